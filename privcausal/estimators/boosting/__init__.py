"""Base "dpebm", private explainable boosting: its options here, its training and its learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privcausal.accounting.charge import is_number
from privcausal.errors import CapabilityError, Made
from privcausal.estimators.options import check_switch, check_whole

BOOSTING = (
    "Boosting (Nori et al. 2021): in each round residuals, cut to a public or released bound, "
    "are summed within random leaves of public bins, and the shapes move a step towards the noisy "
    "means. The shapes' noise is known, and they are smoothed across neighbouring bins by "
    "empirical Bayes unless smooth=False was asked for. What the nuisances' shapes of single "
    "columns leave of products of columns is regressed on these from noisy moments."
)

MASS = (
    "On base dpebm noise counts some 3% more where treatment depends strongly on correlated "
    "covariates: its propensity does not come all the way there."
)


@dataclass(frozen=True)
class DPEBM(Made):
    """Private explainable boosting (Nori et al. 2021), as a base of the CATE learners.

    Unlike that of the package interpret, its guarantee holds for any data: bins come from declared
    or bought bounds and levels, targets are centred, residuals are cut at a public or released
    bound, and sums are integers with discrete Gaussian noise.

    Parameters
    ----------
    rounds : int
        Sums of residuals, 10 to 3000, which share the stage's budget.
    bins : int
        Most bins of a numeric column, 2 to 256, of about equal shares of the released histogram.
    leaves : int
        Number of leaves into which the bins are joined at random in each round, 2 to 16.
    learning_rate : float
        Step length, in (0, 1]. With ``rounds * learning_rate`` of about 3 a line is learned to some
        90 %, and a rougher shape to less.
    smooth : bool
        Smooth the shapes across neighbouring bins by empirical Bayes, which is free (it is
        post-processing). False keeps the shapes as the rounds left them.

    Notes
    -----
    Where the propensity is estimated, products of columns are added to propensity and mean outcome:
    shapes of single columns would leave what these confound. The effect stays a sum of shapes.

    A numeric column of few values, such as 0 and 1, is better declared by its levels
    (``bounds={"member": [0, 1]}``): how rows lie within a cell of the released histogram is
    unknown. Smoothing takes them to be spread over it, unless the cell stands alone.

    Raises
    ------
    CapabilityError
        An option is outside its range.
    """

    rounds: int = 300
    bins: int = 32
    leaves: int = 3
    learning_rate: float = 0.01
    smooth: bool = True
    name: ClassVar[str] = "dpebm"
    functions: ClassVar[int] = 1
    interactions: ClassVar[bool] = False
    released_weights: ClassVar[bool] = False
    methods: ClassVar[tuple[str, ...]] = (BOOSTING,)
    planned: ClassVar[str] = MASS

    def __post_init__(self) -> None:
        for option, low, high in (("rounds", 10, 3000), ("bins", 2, 256), ("leaves", 2, 16)):
            check_whole(f"DPEBM({option}=)", getattr(self, option), low, high)
        if not is_number(self.learning_rate) or not 0 < self.learning_rate <= 1:
            raise CapabilityError("DPEBM(learning_rate=) must be a number in (0, 1]")
        check_switch("DPEBM(smooth=)", self.smooth)
