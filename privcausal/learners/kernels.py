"""Base "kernel": the second stage of DP-CATE, and its option object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from privcausal.errors import CapabilityError

MOST_FUNCTIONS = 1000


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
        Default: chosen from released numbers, by trading noise against shrinkage.
    loss : {"huber", "squared"}
        Huber's needs far less noise: one row's pull on the fit is cut at a released number.
    functions : int
        Size of the basis; an even number.

    Raises
    ------
    CapabilityError
        A parameter is not positive, or unknown.
    """

    bandwidth: float | None = None
    ridge: float | None = None
    loss: Literal["huber", "squared"] = "huber"
    functions: int = 200
    name: ClassVar[str] = "kernel"

    def __post_init__(self) -> None:
        for name in ("bandwidth", "ridge"):
            _check_positive(name, getattr(self, name))
        if self.loss not in ("huber", "squared"):
            raise CapabilityError("Kernel(loss=) is 'huber' or 'squared'")
        whole = isinstance(self.functions, int) and not isinstance(self.functions, bool)
        if not (whole and 2 <= self.functions <= MOST_FUNCTIONS and self.functions % 2 == 0):
            raise CapabilityError(
                f"Kernel(functions=) must be an even whole number from 2 to {MOST_FUNCTIONS}"
            )


def _check_positive(name: str, value: Any) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value > 0):
        raise CapabilityError(f"Kernel({name}=) must be a finite number above 0")
