"""What Algorithm 1 of Niu et al. (2022) is made of: private estimators and first stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from privcausal.accounting import TradeOff
from privcausal.accounting.charge import is_number
from privcausal.errors import CapabilityError
from privcausal.typing import Matrix, Vector


class PrivateEstimator(Protocol):
    """A private estimator to plug in. It runs inside the vault, on a copy.

    Attributes
    ----------
    guarantee : TradeOff or (epsilon, delta)
        What its fit promises for tables that differ as the call's ``neighbors=`` says.

    Methods
    -------
    fit(x, target, *, bounds, weight)
        `x` has shape (n, q): the formula's columns on [0, 1] by their declared bounds and 0/1 for
        each level, with the treatment before them where it is regressed on too; `target` (n,) lies
        in `bounds`, a public pair; `weight` (n,) is None or in [0, 1]. It must not raise for any
        rows, keep them, or print what it sees.
    predict(x)
        Shape (n,), each row's number from that row of `x` alone: the guarantee of the whole rests
        on it. For a propensity: the probability of treatment.
    """

    @property
    def guarantee(self) -> Any: ...

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Any: ...

    def predict(self, x: Matrix) -> Vector: ...


RowFunction = Callable[[Vector, Vector, Mapping[str, Vector]], Vector]


@dataclass(frozen=True, eq=False)
class FirstStage:
    """One of the k nuisances A_1 ... A_k of Algorithm 1, learned on rows of its own.

    Parameters
    ----------
    estimator : PrivateEstimator
        Regresses the target on all columns of the formula.
    target : {"outcome", "treatment"} or callable
        A function of (y, t, first), shapes (n,), with `first` holding what earlier stages give,
        must give each row's number from that row's values alone; it needs `target_bounds`.
    with_treatment : bool
        Regress on the treatment too. A stage "mu" then gives "mu0" and "mu1", its values with the
        treatment at 0 and at 1, and else "mu".
    target_bounds : (float, float), optional
        Public bounds of what a function gives.

    Raises
    ------
    CapabilityError
        The estimator lacks what the protocol asks for, or the target its bounds.
    """

    estimator: Any
    target: str | RowFunction = "outcome"
    with_treatment: bool = False
    target_bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_estimator("FirstStage(estimator=)", self.estimator)
        if self.target not in ("outcome", "treatment") and not callable(self.target):
            raise CapabilityError("FirstStage(target=) is 'outcome', 'treatment' or a function")
        if callable(self.target) != (self.target_bounds is not None):
            raise CapabilityError(
                "FirstStage(target=<function>), and it alone, takes target_bounds=(lo, hi)"
            )
        if self.target_bounds is not None:
            as_bounds(self.target_bounds)
        if self.with_treatment and self.target == "treatment":
            raise CapabilityError("FirstStage(target='treatment') cannot have with_treatment=True")

    def names(self, name: str) -> tuple[str, ...]:
        """What its values are called in `first`."""
        return (f"{name}0", f"{name}1") if self.with_treatment else (name,)


def tradeoff_of(declared: Any) -> TradeOff:
    """A declared guarantee as a trade-off function."""
    if isinstance(declared, TradeOff):
        return declared
    pair = tuple(declared) if isinstance(declared, tuple | list) else ()
    if len(pair) == 2 and all(is_number(v) for v in pair):
        return TradeOff.from_dp(*pair)
    raise CapabilityError("a guarantee is a pc.TradeOff, or a pair (epsilon, delta)")


def check_estimator(name: str, estimator: Any) -> None:
    kind = type(estimator).__name__
    missing = [m for m in ("fit", "predict") if not callable(getattr(estimator, m, None))]
    if isinstance(estimator, type) or missing:
        raise CapabilityError(
            f"{name} takes an object with fit(x, target, *, bounds, weight) and "
            f"predict(x), not {kind}"
        )
    if not hasattr(estimator, "guarantee"):
        raise CapabilityError(
            f"{name}: {kind} declares no guarantee, a pc.TradeOff or (epsilon, delta)"
        )
    tradeoff_of(estimator.guarantee)


def as_bounds(pair: Any) -> tuple[float, float]:
    """A target's public bounds."""
    numbers = isinstance(pair, tuple) and len(pair) == 2 and all(is_number(v) for v in pair)
    if not numbers or not -math.inf < pair[0] < pair[1] < math.inf:
        raise CapabilityError("target_bounds= is a pair of numbers (lo, hi), lo < hi")
    return float(pair[0]), float(pair[1])
