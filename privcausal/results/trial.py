"""What a difference in means says of itself: a trial is taken at its word, and nothing else."""

from __future__ import annotations

NAME = "difference"
"""Of the learner."""

NOTE = (
    "Causal reading needs a randomised treatment, with one probability for all rows, and no "
    "interference; nothing is adjusted for."
)

SAME = (
    "Where one probability decides for all, the effects over all, over the treated and by overlap "
    "weights are estimated by the same difference in means."
)

ASSUMPTIONS = (
    "Randomised treatment: chance decided who was treated, with one probability for all. Nothing "
    "was adjusted for, so in a study that observed treatment this is no causal effect.",
    "No interference: one unit's treatment does not change another's outcome.",
    "The outcome lies within its bounds; what lies outside was cut to them.",
)

HEAD = (("Nuisances", "none"), ("Propensity", "one for all rows"))

METHODS = (
    "Difference in means. The rows were read through sums of bounded row vectors only, computed "
    "exactly on an integer grid; discrete Gaussian noise (OpenDP) was added to each sum. "
    "Everything after that is post-processing.",
    "Means of the arms are ratios of noisy sums; standard errors add the sampling variance of "
    "Welch (HC2 in the regression on treatment), privacy noise (delta method) and, where a noisy "
    "histogram of the outcome showed that its bounds are wide, an allowance for what was cut.",
    "A row with a missing value adds nothing to any sum; how many there were is not shown.",
)
