"""Base "dpebm": private explainable boosting, a constant and one step function for each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privcausal.errors import CapabilityError


@dataclass(frozen=True)
class DPEBM:
    """Private explainable boosting (Nori et al. 2021), as a base of the CATE learners.

    Unlike the package interpret's, its guarantee holds whatever the data are: bins come from
    declared or bought bounds and levels, targets are centred, residuals are cut to a bound that is
    public or released, sums are whole numbers with discrete Gaussian noise.

    Parameters
    ----------
    rounds : int
        Sums of residuals, 10 to 3000; together they have the stage's budget.
    bins : int
        Most bins of a numeric column, 2 to 256; about equal shares of the released histogram.
    leaves : int
        Into how many leaves the bins are joined at random in each round, 2 to 16.
    learning_rate : float
        Step length, in (0, 1]. ``rounds * learning_rate`` of about 3 has come some 90 % of the way
        along a line, and less far the rougher a shape is.
    smooth : bool
        Smooth the shapes across neighbouring bins by empirical Bayes. It is post-processing, hence
        free; False keeps the shapes as the rounds left them.

    Notes
    -----
    A numeric column of few values, such as 0 and 1, is better declared by its levels
    (``bounds={"member": [0, 1]}``): how rows lie within a cell of the released histogram is not
    known. Smoothing takes them to be spread over it, unless the cell stands alone.

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

    def __post_init__(self) -> None:
        for option, low, high in (("rounds", 10, 3000), ("bins", 2, 256), ("leaves", 2, 16)):
            value = getattr(self, option)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole and low <= value <= high):
                raise CapabilityError(
                    f"DPEBM({option}=) must be a whole number from {low} to {high}"
                )
        rate = self.learning_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise CapabilityError("DPEBM(learning_rate=) must be a number in (0, 1]")
        if not isinstance(self.smooth, bool):
            raise CapabilityError("DPEBM(smooth=) must be True or False")
