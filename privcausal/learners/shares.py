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


class BudgetShares:
    """Shares of the groups (`top_...`) and weights of the stages, by kind of release.

    What several learners release alike, with one weight and one reason, stands there once.
    """

    __slots__ = ()

    # groups of stages, for learners of tau(x)
    top_bounds = 0.1
    """Bounds that are bought: found early, and all that follows is laid out by them. By hand."""
    top_nuisance = 0.425
    """As much as for the effect; 0.52 against 0.33 was 2 % better, which is chance. Effect laws."""
    top_effect = 0.425
    """What the fit is for. Sketch."""
    top_average = 0.15
    """It makes the noise variance of tau(x) 18 % larger (0.15 / 0.85), no more. Sketch."""
    labels_delta = 0.1
    """Part of delta for labels found by threshold: the rest loses next to nothing of rho by it."""

    # groups of other learners, which leave out what they do not have
    private_nuisance = 0.42
    """Share of the group, next to `private_effect`. Random laws."""
    private_effect = 0.48
    """Share of the scores, their sizes and squares. Random laws."""
    private_nuisance_known = 0.24
    """With a known propensity half of the nuisances' stages fall away. Building half."""
    private_effect_known = 0.66
    """What they cost goes to the scores. Building half."""
    arms_nuisance = 0.75
    """Learners "s" and "t": nuisances and arms together, as there is no second stage. By hand."""
    regress_first = 0.12
    """The first fit: it whitens and centres, a third of it, or three times, lost a few
    per cent. Regression laws."""
    regress_moments = 0.78
    """The coefficients themselves. Regression laws."""
    trial_effect = 0.9
    """All but what bounds cost: there is nothing else."""

    # where values are
    ranges = 0.02
    """64 cells tell where covariates are; as much as for the outcome's range. Building half."""
    outcome_range = 0.02
    """One histogram of 32 cells, worth a narrower range of the outcome. Effect laws."""
    average_range = trial_range = 0.08
    """A look at the outcome, so that loose bounds cost little. Building half."""
    private_ranges = 0.06
    """Two to three in a hundred of all rho, as the look needs for a few columns. Building half."""
    private_range = 0.18
    """The look at the outcome serves nuisances and scores alike. Building half."""
    marginals = 0.04
    """16 cells a column are smoothed anyway. Sketch."""
    private_marginals = 0.08
    """As `marginals` within a larger group. Sketch."""
    networks_marginals = 0.06
    """Where networks learn the nuisances, all that is left of their group. By hand."""

    # Gram matrices
    gram = 0.14
    """The Gram matrix is shrunken to the population's, and so bears noise. Sketch."""
    private_gram = 0.10
    """Less than `gram`: no effect is regressed on it. Random laws."""
    r_weights = 0.08
    """Base "linear" only: its second Gram matrix, as large as the first. By hand."""
    arms_weights = 0.06
    """Base "linear" only: the Gram matrix of the weights. By hand."""
    private_weights = dr_first_weights = 0.04
    """Half of `r_weights`: the first effect only centres the scores. By hand."""
    regress_rough_gram = 0.4
    """Small directions of the columns have to be told from its noise. Regression laws."""
    regress_gram = 0.14
    """Its noise multiplies only what the first fit left of the coefficients; with a third, more
    of them could not be told. Regression laws."""

    # nuisances
    treatment = 0.07
    """Less than for the outcome: e(x) is known to vary little. Sketch."""
    private_treatment = late_treatment = 0.31
    """Its errors times the outcome's are the bias of an average. Random laws; the instrument has
    as much as the treatment, by hand."""
    boosted_propensity = 0.25
    """Its errors times the outcome's bias the effect. By hand."""
    boosted_arms_propensity = 0.15
    """Only weighs the arms: least is at stake. By hand."""
    outcome = 0.25
    """The residual product's range, and so all later noise, falls with its errors. Sketch."""
    private_outcome = 0.45
    """Most of it: errors of the mean outcome are what weight limits leave. Random laws."""
    boosted_outcome = 0.67
    """As `outcome`: the residual's range falls with its errors. By hand."""
    regress_rough_outcome = 0.2
    """What it misses the second fit finds. By hand."""
    interactions_treatment = 0.06
    """Half of it lost 14 % in squared error at n = 4,000. Effect laws."""
    interactions_outcome = 0.14
    """As `interactions_treatment`; three times the weight gained nothing more. Effect laws."""
    private_interactions_treatment = 0.16
    """Where products confound, they bias an average: more than for tau(x). Random laws."""
    private_interactions_outcome = 0.22
    """As `private_interactions_treatment`. Random laws."""
    private_interactions_sizes = 0.03
    """As `interactions_sizes`, by the same measure. Random laws."""
    boosted_interactions_treatment = 0.11
    """With the next and the sizes 28 % of the group, as those of learner "r" have. By hand."""
    boosted_interactions_outcome = 0.25
    """As `boosted_interactions_treatment`. By hand."""

    # sizes: one histogram, of which one number is read
    interactions_sizes = boosted_interactions_sizes = 0.01
    """One histogram, of which one quantile is read. By hand."""
    r_sizes = 0.02
    """One histogram, of which one cut is read. Sketch."""
    dpcate_first_sizes = dpcate_sizes = regress_sizes = 0.02
    """As `r_sizes`. By hand."""
    dr_first_sizes = dr_sizes = x_sizes = x_imputed_sizes = 0.01
    """As `r_sizes`, halved: there are two. By hand."""
    arms_sizes = boosted_arms_sizes = 0.03
    """As `r_sizes`, in a larger group. By hand."""
    boosted_sizes = boosted_effect_sizes = networks_sizes = 0.04
    """As `r_sizes`, next to few other stages. By hand."""
    regress_scores = 0.26
    """Half of `regress_cross`: squared noise M^2 / rho and squared bias M^-4 / rho' of the best cut
    M are least in sum where rho' = rho / 2, for tails that fall as 1/x^3."""

    # effects
    r_moments = 0.17
    """A third of the sketch's 0.48: halves, and a quarter, did no better. Effect laws."""
    r_rest = 0.31
    """Two thirds: what is left of the product has the smaller range. Effect laws."""
    dr_first = dr_scores = x_outcomes = x_imputed = 0.24
    """Half of the sketch's 0.48, for a first effect or for scores less that: these have as large a
    range. By hand."""
    arms_outcomes = 0.7
    """Their effect is a difference of these moments. By hand."""
    dpcate_first = 0.35
    """The first effect is most of what is found: the kernel learns what it leaves. By hand."""
    dpcate_kernel = 0.15
    """Its noise is for the whole function: more would seldom show. By hand."""
    networks_kernel = 0.90
    """All but the sizes. By hand."""
    boosted_arms_outcome = 0.78
    """The estimate itself; with a mean effect what that leaves of it. By hand."""
    boosted_mean_outcome = 0.66
    """`boosted_arms_outcome` less `boosted_mean`. By hand."""
    boosted_mean = 0.12
    """One number, the mean effect. By hand."""
    boosted_effect = 0.96
    """The effect itself. By hand."""
    regress_cross = 0.52
    """The coefficients' own noise. By hand."""
    regress_squares = 0.03
    """One number. By hand."""
    regress_meat = 0.1
    """The residual variance at all columns, where it is asked for. By hand."""
    private_moments = 0.06
    """The first effect only centres the scores. Random laws."""
    plr_first = 0.12
    """Its slope centres the scores and its mass scales them: twice `private_moments`. By hand."""

    # averages
    average_sizes = 0.12
    """Sizes of scores by arm; the bound of the bias falls with its noise. Building half."""
    private_sizes = 0.16
    """As `average_sizes`. Building half."""
    known_arms = 0.01
    """Of a known propensity: at n = 5,000 and eps = 1 arms are counted to 1 % of the rows."""
    average_scores = 0.66
    """The estimate itself. Building half."""
    private_scores = 0.78
    """The estimate itself. Random laws."""
    trial_sums = 0.92
    """The estimate itself, next to `trial_range`."""
    average_squares = 0.14
    """The variance is raised by its noise, so that too little widens intervals. Building half."""
    private_squares = 0.10
    """As `average_squares`. Random laws."""


SHARES = BudgetShares()
