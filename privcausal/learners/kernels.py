"""Bases "kernel" and "nn": the stages of DP-CATE, as option objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from privcausal.errors import CapabilityError

MOST_FUNCTIONS = 1000

RANGES = {"bandwidth": (1e-3, 1e3), "ridge": (1e-6, 1e6)}
"""Beyond them nothing is gained, and floats end: the default ridge is found between too."""


@dataclass(frozen=True)
class Kernel:
    """Gaussian-kernel regression of the effect, released once on a public basis.

    Only ``learner="dpcate"`` takes it. The kernel is exp(-||z - z'||^2 / (2 h^2)) on the effect
    modifiers, each scaled to [-1, 1] by its declared bounds (0/1 for each level of a factor).

    Parameters
    ----------
    bandwidth : float, optional
        h. Default: half the square root of the number of modifiers.
    ridge : float, optional
        The paper's lambda (Schroeder et al. 2025, Eq. 18), for a mean loss with squares halved.
        From 1e-6; a fit's time grows with one over its root. Default: chosen from released numbers,
        by trading noise against shrinkage.
    loss : {"huber", "squared"}
        Huber's needs far less noise: one row's pull on the fit is cut at a released number.
        ``mode="paper"`` always has the squared loss.
    functions : int
        Size of the basis; an even number.

    Raises
    ------
    CapabilityError
        A parameter is beyond its range, or unknown.
    """

    bandwidth: float | None = None
    ridge: float | None = None
    loss: Literal["huber", "squared"] = "huber"
    functions: int = 200
    name: ClassVar[str] = "kernel"

    def __post_init__(self) -> None:
        for name in RANGES:
            _check_range(name, getattr(self, name))
        if self.loss not in ("huber", "squared"):
            raise CapabilityError("Kernel(loss=) is 'huber' or 'squared'")
        whole = isinstance(self.functions, int) and not isinstance(self.functions, bool)
        if not (whole and 2 <= self.functions <= MOST_FUNCTIONS and self.functions % 2 == 0):
            raise CapabilityError(
                f"Kernel(functions=) must be an even whole number from 2 to {MOST_FUNCTIONS}"
            )


def _check_range(name: str, value: Any) -> None:
    if value is None:
        return
    low, high = RANGES[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low <= value <= high):
        raise CapabilityError(f"Kernel({name}=) must be a number from {low:g} to {high:g}")


@dataclass(frozen=True)
class NN:
    """Networks with one hidden layer of 32 rectified units, by DP-SGD; for ``learner="dpcate"``.

    Each row's gradient is cut to norm one, rows enter a step by coins, and noise is discrete
    Gaussian. It is accounted for by Renyi divergences of rows added or removed, so that replacing a
    row costs twice: base "gam" is more accurate in most studies. Half of epsilon and of delta is
    the networks'. It needs a public number of rows and declared bounds. No average effects are
    released: their intervals would have to allow for the networks' errors.

    With ``mode="paper"`` they learn from the nuisances' half of the rows; the second stage, on the
    other half, has the other half of epsilon and delta, as in the paper.

    Parameters
    ----------
    epochs : int
        How often each row is seen, on average (the paper does not tell).
    second : Kernel
        The second stage.

    Raises
    ------
    CapabilityError
        A parameter is wrong.
    """

    epochs: int = 20
    second: Kernel = field(default_factory=Kernel)
    name: ClassVar[str] = "nn"

    def __post_init__(self) -> None:
        whole = isinstance(self.epochs, int) and not isinstance(self.epochs, bool)
        if not (whole and 1 <= self.epochs <= 1000):
            raise CapabilityError("NN(epochs=) must be a whole number from 1 to 1000")
        if not isinstance(self.second, Kernel):
            raise CapabilityError("NN(second=) takes a Kernel, such as pc.bases.Kernel()")
