"""What every learner hands to the results: public functions and averages with their prices."""

from __future__ import annotations

from dataclasses import dataclass

from privcausal.accounting import Release
from privcausal.inference.average import AverageEstimate
from privcausal.inference.cells import CellEffect
from privcausal.inference.effect import Effect
from privcausal.inference.polynomials import ArmPolynomials
from privcausal.inference.population import Population
from privcausal.spec.features import Design
from privcausal.spec.functions import Function, Known
from privcausal.spec.plan import Plan
from privcausal.spec.schema import Interval, Schema
from privcausal.typing import Kind


@dataclass(frozen=True, eq=False)
class Nuisances:
    """Released nuisances as functions of covariates; each may be absent."""

    propensity: Function
    outcome: Function
    mu0: Function
    mu1: Function


@dataclass(frozen=True, eq=False)
class Estimate:
    """A finished fit: released numbers and functions of them, nothing else.

    Attributes
    ----------
    effect : Effect, CellEffect, ArmPolynomials or None
        tau(x) with its posterior; None for average effects only.
    nuisances : Nuisances or None
        None where none were learned, or they are not private.
    averages : AverageEstimate or None
        None where no budget was given to averages.
    size : int or None
        Public number of rows or units.
    real : bool
        False if the noise was not real: then nothing is guaranteed.
    """

    plan: Plan
    schema: Schema
    design: Design
    population: Population
    effect: Effect | CellEffect | ArmPolynomials | None
    nuisances: Nuisances | None
    averages: AverageEstimate | None
    releases: tuple[Release, ...]
    size: int | None
    real: bool
    notes: tuple[str, ...] = ()

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
