"""Base "dpebm" (private explainable boosting): options, training, and learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privcausal.accounting.charge import is_number
from privcausal.errors import CapabilityError, Made
from privcausal.estimators.options import check_switch, check_whole

BOOSTING = (
    "Functions of single columns were fitted by private explainable boosting (Nori et al. 2021). "
    "In each round, residuals were clipped to a public or released bound and summed within random "
    "leaves of public bins, and the functions moved a step toward the noisy means. Unless "
    "smooth=False, the functions were smoothed across neighboring bins by empirical Bayes. "
    "Products of columns were then added to the nuisance models by regression on noisy moments."
)

MASS = (
    "With base='dpebm', privacy noise is about 3% larger if the treatment depends strongly on "
    "correlated covariates, because boosting then underfits the propensity."
)


@dataclass(frozen=True)
class DPEBM(Made):
    """Private explainable boosting (Nori et al. 2021), as a base of the CATE learners.

    Unlike the implementation in the package interpret, the guarantee holds for any data. Bins come
    from declared or privately estimated bounds and levels. Targets are centered, and residuals are
    clipped at a public or released bound. Sums are integers with discrete Gaussian noise.

    Parameters
    ----------
    rounds : int
        Number of boosting rounds, 10 to 3000, which share the budget of the stage.
    bins : int
        Maximum number of bins of a numeric column, 2 to 256. Bins have about equal shares of the
        released histogram.
    leaves : int
        Number of leaves, 2 to 16. Each round joins the bins into leaves at random.
    learning_rate : float
        Step length, in (0, 1]. If ``rounds * learning_rate`` is about 3, boosting learns about 90%
        of a line, and less of a rougher shape.
    smooth : bool
        Smooth the shapes across neighboring bins by empirical Bayes. Smoothing is post-processing
        and costs no budget. False keeps the shapes from the rounds.

    Notes
    -----
    If the propensity is estimated, products of columns are added to the propensity and the mean
    outcome. Shapes of single columns cannot adjust for confounding by products. The effect remains
    a sum of shapes.

    Declare a numeric column with few values, such as 0 and 1, by its levels
    (``bounds={"member": [0, 1]}``). The positions of rows within a cell of the released histogram
    are unknown. Smoothing assumes that rows are spread over the cell, unless the cell is isolated.

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
            raise CapabilityError("DPEBM(learning_rate=) must be a number in (0, 1].")
        check_switch("DPEBM(smooth=)", self.smooth)
