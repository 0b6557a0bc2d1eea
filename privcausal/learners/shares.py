"""How rho is divided: among the groups of stages, and among the stages of a group.

A stage's share of its group is its weight over the sum of the weights of the group's stages that
are planned. No theorem gives these numbers. They are from trials on invented laws, by these names:

- *sketch*: setups A to E of Niu et al. (2022), where halving or doubling one changed little;
- *random laws*: `tests/benchmarks/coverage/random_laws.py`;
- *effect laws*: `tests/benchmarks/effect_laws.py`, with what was tried in `cate/log.md` there;
- *building half*: that of the laboratory, `tests/benchmarks/lab`;
- *regression laws*: three in `tests/benchmarks/regress.py`, those called "building" there;
- *by hand*: no comparison is on record.
"""

from __future__ import annotations

from dataclasses import dataclass

from privcausal.request.plan import StageKey


class Stages:
    """The stages that learners share, each named here and nowhere else."""

    MAGNITUDES = StageKey("bounds", "magnitudes")
    GRID = StageKey("bounds", "grid")

    RANGES = StageKey("nuisance", "ranges")
    MARGINALS = StageKey("nuisance", "marginals")
    GRAM = StageKey("nuisance", "moments")
    OUTCOME_RANGE = StageKey("nuisance", "outcome range")
    PROPENSITY = StageKey("nuisance", "propensity")
    TREATMENT = StageKey("nuisance", "treatment")
    INSTRUMENT = StageKey("nuisance", "instrument")
    OUTCOME = StageKey("nuisance", "outcome")
    TREATMENT_INTERACTIONS = StageKey("nuisance", "treatment interactions")
    INTERACTION_SIZES = StageKey("nuisance", "residual sizes")
    OUTCOME_INTERACTIONS = StageKey("nuisance", "outcome interactions")
    NUISANCE_RESIDUALS = StageKey("nuisance", "residual moments")
    NUISANCE_WEIGHTS = StageKey("nuisance", "weights")

    RESIDUAL_SIZES = StageKey("effect", "residual sizes")
    RESIDUALS = StageKey("effect", "residual moments")
    REMAINING = StageKey("effect", "remaining moments")
    WEIGHTS = StageKey("effect", "weights")
    SCORE_SIZES = StageKey("effect", "score sizes")

    AVERAGE_RANGE = StageKey("average", "outcome range")
    AVERAGE_SIZES = StageKey("average", "score sizes")
    AVERAGE_SCORES = StageKey("average", "scores")
    AVERAGE_SQUARES = StageKey("average", "squared scores")

    @staticmethod
    def levels(column: str) -> StageKey:
        """Labels of an undeclared column."""
        return StageKey("bounds", f"levels of {column}")


@dataclass(frozen=True)
class BudgetShares:
    """Shares of the groups (`top_...`) and weights of the stages, each with its reason."""

    # groups of stages, for learners of tau(x)
    top_bounds: float = 0.1
    """Bounds that are bought: found early, and all that follows is laid out by them. By hand."""
    top_nuisance: float = 0.425
    """As much as for the effect; 0.52 against 0.33 was 2 % better, which is chance. Effect laws."""
    top_effect: float = 0.425
    """What the fit is for. Sketch."""
    top_average: float = 0.15
    """It makes the noise variance of tau(x) 18 % larger (0.15 / 0.85), no more. Sketch."""
    labels_delta: float = 0.1
    """Part of delta for labels found by threshold: the rest loses next to nothing of rho by it."""

    # nuisances of learners of tau(x)
    ranges: float = 0.02
    """64 cells tell where covariates are; as much as for the outcome's range. Building half."""
    marginals: float = 0.04
    """16 cells a column are smoothed anyway. Sketch."""
    gram: float = 0.14
    """The Gram matrix is shrunken to the population's, and so bears noise. Sketch."""
    treatment: float = 0.07
    """Less than for the outcome: e(x) is known to vary little. Sketch."""
    outcome: float = 0.25
    """The residual product's range, and so all later noise, falls with its errors. Sketch."""
    outcome_range: float = 0.02
    """One histogram of 32 cells, worth a narrower range of the outcome. Effect laws."""
    interactions_treatment: float = 0.06
    """Half of it lost 14 % in squared error at n = 4,000. Effect laws."""
    interactions_outcome: float = 0.14
    """As `interactions_treatment`; three times the weight gained nothing more. Effect laws."""
    interactions_sizes: float = 0.01
    """One histogram, of which one quantile is read. By hand."""

    # learner "r"
    r_sizes: float = 0.02
    """One histogram, of which one cut is read. Sketch."""
    r_moments: float = 0.17
    """A third of the sketch's 0.48: halves, and a quarter, did no better. Effect laws."""
    r_rest: float = 0.31
    """Two thirds: what is left of the product has the smaller range. Effect laws."""
    r_weights: float = 0.08
    """Base "linear" only: its second Gram matrix, as large as the first. By hand."""

    # averages
    average_range: float = 0.08
    """A look at the outcome, so that loose bounds cost little. Building half."""
    average_sizes: float = 0.12
    """Sizes of scores by arm; the bound of the bias falls with its noise. Building half."""
    known_arms: float = 0.01
    """Of a known propensity: at n = 5,000 and eps = 1 arms are counted to 1 % of the rows."""
    average_scores: float = 0.66
    """The estimate itself. Building half."""
    average_squares: float = 0.14
    """The variance is raised by its noise, so that too little widens intervals. Building half."""

    # learner "private": averages alone
    private_nuisance: float = 0.42
    """Share of the group, next to `private_effect`. Random laws."""
    private_effect: float = 0.48
    """Share of the scores, their sizes and squares. Random laws."""
    private_nuisance_known: float = 0.24
    """With a known propensity half of the nuisances' stages fall away. Building half."""
    private_effect_known: float = 0.66
    """What they cost goes to the scores. Building half."""
    private_ranges: float = 0.06
    """Two to three in a hundred of all rho, as the look needs for a few columns. Building half."""
    private_marginals: float = 0.08
    """As `marginals` within a larger group. Sketch."""
    private_gram: float = 0.10
    """Less than `gram`: no effect is regressed on it. Random laws."""
    private_outcome: float = 0.45
    """Most of it: errors of the mean outcome are what weight limits leave. Random laws."""
    private_moments: float = 0.06
    """The first effect only centres the scores. Random laws."""
    private_treatment: float = 0.31
    """Its errors times the outcome's are the bias of an average. Random laws."""
    private_weights: float = 0.04
    """Base "linear" only: the Gram matrix of the first effect. By hand."""
    private_scores: float = 0.78
    """The estimate itself. Random laws."""
    private_squares: float = 0.10
    """As `average_squares`. Random laws."""
    private_range: float = 0.18
    """The look at the outcome serves nuisances and scores alike. Building half."""
    private_sizes: float = 0.16
    """As `average_sizes`. Building half."""
    private_interactions_treatment: float = 0.16
    """Where products confound, they bias an average: more than for tau(x). Random laws."""
    private_interactions_outcome: float = 0.22
    """As `private_interactions_treatment`. Random laws."""
    private_interactions_sizes: float = 0.03
    """As `interactions_sizes`, by the same measure. Random laws."""

    # learner "plr": otherwise as "private"
    plr_first: float = 0.12
    """Its slope centres the scores and its mass scales them: twice `private_moments`. By hand."""

    # learner "late": otherwise as "plr"
    late_treatment: float = 0.31
    """Of the treatment, next to the instrument's `private_treatment`: alike. By hand."""

    # learner "dr"
    dr_first_sizes: float = 0.01
    """As `r_sizes`, halved: there are two. By hand."""
    dr_first: float = 0.24
    """Half of the sketch's 0.48 for the moments. By hand."""
    dr_first_weights: float = 0.04
    """Half of `r_weights`: the first effect only centres the scores. By hand."""
    dr_sizes: float = 0.01
    """As `dr_first_sizes`. By hand."""
    dr_scores: float = 0.24
    """The other half: scores less a first effect have as large a range. By hand."""

    # learners "s", "t" and "x"
    arms_nuisance: float = 0.75
    """The group of nuisances and arms together: they have no second stage. By hand."""
    arms_sizes: float = 0.03
    """One histogram, of which one cut is read. By hand."""
    arms_outcomes: float = 0.7
    """Their effect is a difference of these moments. By hand."""
    arms_weights: float = 0.06
    """Base "linear" only: the Gram matrix of the weights. By hand."""
    x_sizes: float = 0.01
    """As `dr_first_sizes`. By hand."""
    x_outcomes: float = 0.24
    """As `dr_first`. By hand."""
    x_imputed_sizes: float = 0.01
    """As `dr_sizes`. By hand."""
    x_imputed: float = 0.24
    """As `dr_scores`. By hand."""

    # learner "dpcate"
    dpcate_first_sizes: float = 0.02
    """As `r_sizes`. By hand."""
    dpcate_first: float = 0.35
    """The first effect is most of what is found: the kernel learns what it leaves. By hand."""
    dpcate_sizes: float = 0.02
    """As `r_sizes`. By hand."""
    dpcate_kernel: float = 0.15
    """Its noise is for the whole function: more would seldom show. By hand."""
    networks_marginals: float = 0.06
    """Where networks learn the nuisances, all that is left of their group. By hand."""
    networks_sizes: float = 0.04
    """As `dpcate_sizes`, in a smaller group. By hand."""
    networks_kernel: float = 0.90
    """The rest. By hand."""

    # base "dpebm"
    boosted_arms_propensity: float = 0.15
    """Only weighs the arms: least is at stake. By hand."""
    boosted_arms_sizes: float = 0.03
    """As `arms_sizes`. By hand."""
    boosted_arms_outcome: float = 0.78
    """The estimate itself; with a mean effect what that leaves of it. By hand."""
    boosted_mean_outcome: float = 0.66
    """`boosted_arms_outcome` less `boosted_mean`. By hand."""
    boosted_mean: float = 0.12
    """One number, the mean effect. By hand."""
    boosted_propensity: float = 0.25
    """Its errors times the outcome's bias the effect. By hand."""
    boosted_sizes: float = 0.04
    """One histogram, of which one cut is read. By hand."""
    boosted_outcome: float = 0.67
    """As `outcome`: the residual's range falls with its errors. By hand."""
    boosted_interactions_treatment: float = 0.11
    """With the next two 28 % of the group, as those of learner "r" have. By hand."""
    boosted_interactions_outcome: float = 0.25
    """As `boosted_interactions_treatment`. By hand."""
    boosted_interactions_sizes: float = 0.01
    """As `interactions_sizes`. By hand."""
    boosted_effect_sizes: float = 0.04
    """As `boosted_sizes`. By hand."""
    boosted_effect: float = 0.96
    """The effect itself. By hand."""

    # regression
    regress_first: float = 0.12
    """The first fit: it whitens and centres, a third of it, or three times, lost a few
    per cent. Regression laws."""
    regress_moments: float = 0.78
    """The coefficients themselves. Regression laws."""
    regress_rough_gram: float = 0.4
    """Small directions of the columns have to be told from its noise. Regression laws."""
    regress_rough_outcome: float = 0.2
    """What it misses the second fit finds. By hand."""
    regress_sizes: float = 0.02
    """One histogram, of which one cut is read. By hand."""
    regress_scores: float = 0.26
    """Half of `regress_cross`: squared noise M^2 / rho and squared bias M^-4 / rho' of the best cut
    M are least in sum where rho' = rho / 2, for tails that fall as 1/x^3."""
    regress_gram: float = 0.14
    """Its noise multiplies only what the first fit left of the coefficients; with a third, more
    of them could not be told. Regression laws."""
    regress_cross: float = 0.52
    """The coefficients' own noise. By hand."""
    regress_squares: float = 0.03
    """One number. By hand."""
    regress_meat: float = 0.1
    """The residual variance at all columns, where it is asked for. By hand."""

    # trials without covariates
    trial_effect: float = 0.9
    """All but what bounds cost: there is nothing else."""
    trial_range: float = 0.08
    """One histogram, worth a narrower range of the outcome. Building half."""
    trial_sums: float = 0.92
    """The estimate itself."""


SHARES = BudgetShares()
