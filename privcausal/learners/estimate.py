"""What every learner hands to the results: public functions and averages with their prices."""

from __future__ import annotations

from dataclasses import dataclass

from privcausal.accounting import Release
from privcausal.features.design import Design
from privcausal.features.functions import Additive, Extended, Function, Known, Mixture
from privcausal.inference.average import AverageEstimate
from privcausal.inference.cells import CellEffect
from privcausal.inference.effect import ArmPolynomials, Effect
from privcausal.inference.population import Population
from privcausal.request.plan import Plan
from privcausal.request.schema import Interval, Schema
from privcausal.stored import stored
from privcausal.typing import Kind

Alerts = tuple[tuple[str, str], ...]
"""Codes and sentences."""

AnyEffect = Effect | CellEffect | ArmPolynomials


@stored
@dataclass(frozen=True, eq=False)
class Nuisances:
    """Released nuisances as functions of covariates; each may be absent."""

    propensity: Function
    outcome: Function
    mu0: Function
    mu1: Function


@stored
@dataclass(frozen=True, eq=False)
class Estimate:
    """A finished fit: released numbers and functions of them, nothing else.

    Attributes
    ----------
    effect : AnyEffect or None
        tau(x) with its posterior; None for average effects only.
    nuisances : Nuisances or None
        None where none were learned, or they are not private.
    averages : AverageEstimate or None
        None where no budget was given to averages.
    size : int or None
        Public number of rows or units.
    real : bool
        False if the noise was not real: then nothing is guaranteed.
    notes : tuple of str
        What is said of this fit, from released numbers.
    alerts : tuple of (code, sentence)
        What is serious among it: the call warns of it.
    """

    plan: Plan
    schema: Schema
    design: Design
    population: Population
    effect: AnyEffect | None
    nuisances: Nuisances | None
    averages: AverageEstimate | None
    releases: tuple[Release, ...]
    size: int | None
    real: bool
    notes: tuple[str, ...] = ()
    alerts: Alerts = ()

    @property
    def clip(self) -> float:
        """c with e in [c, 1 - c] where something is divided by it."""
        clip = self.plan.request.arm_clip
        return clip if self.nuisances is None else min(clip, _least(self.nuisances.propensity))

    def __repr__(self) -> str:
        return f"<released numbers of {self.plan.request.formula!s}: {len(self.releases)} releases>"

    @property
    def kind(self) -> Kind:
        """What the released numbers rest on, and so what is computed from them at best."""
        if not self.real:
            return "none"
        # a table that came with noise of its maker has no stage: its promise is its maker's word
        claimed = self.plan.request.mode == "paper" or not self.plan.stages
        return "published" if claimed else "proven"

    @property
    def known(self) -> Known | None:
        """The declared range of a known propensity column."""
        name = self.plan.request.propensity
        domain = self.schema[name] if isinstance(name, str) else None
        return Known(domain.lo, domain.hi) if isinstance(domain, Interval) else None


def _least(e: Function) -> float:
    """Lower limit of a propensity; one half where it is not an additive one."""
    if isinstance(e, Mixture):
        return min(_least(e.at_one), _least(e.at_zero))
    if isinstance(e, Extended):
        e = e.base
    return e.lo if isinstance(e, Additive) else 0.5
