"""What a plan takes for granted about rows that nobody has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privcausal.errors import CapabilityError
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval

SPREADS_PER_RANGE = 4.0
"""A numeric outcome is taken to span this many of its standard deviations."""

PROPENSITY_SPREAD = 0.15
"""Standard deviation of e(x) over the covariates, where it is not known."""

LEVELS = 4
"""Labels that a column of undeclared labels is taken to hold, equally often."""

LEAST_SPREAD = 1e-4
"""Least standard deviation of the outcome, as a share of its range."""


@dataclass(frozen=True)
class Assumed:
    """The law of invented rows: outcome, arms and covariates, all of it public.

    Covariates are independent and uniform over their domains. The outcome given treatment and
    covariates has a beta law over its range, so that any standard deviation up to half the range
    is possible; there a value is one of the two ends. Treatment has no effect, and nothing is
    missing.

    Attributes
    ----------
    width : float
        Of the outcome's domain.
    outcome_sd : float
        Standard deviation of the outcome within an arm, in its own units; of an outcome of two
        labels it says how often the rarer one occurs.
    r2 : float
        Share of its variance that the covariates explain alike in both arms, in [0, 1).
    treated : float
        Share of rows treated, where the propensity is not known.
    """

    width: float
    outcome_sd: float
    r2: float = 0.0
    treated: float = 0.5

    def __post_init__(self) -> None:
        most = 0.5 * self.width
        least = LEAST_SPREAD * self.width
        if not (_number(self.outcome_sd) and least <= self.outcome_sd <= most * (1 + 1e-9)):
            raise CapabilityError(
                f"outcome_sd must be a number from {least:.4g} to {most:.4g}: no outcome in its "
                "bounds has a standard deviation above half their width"
            )
        if not (_number(self.r2) and 0 <= self.r2 <= 0.99):
            raise CapabilityError("r2 must be a number from 0 to 0.99")
        if not (_number(self.treated) and 0.01 <= self.treated <= 0.99):
            raise CapabilityError("treated must be a number from 0.01 to 0.99")

    @property
    def worst(self) -> Assumed:
        """The most variable outcome its bounds allow, with nothing explained."""
        return replace(self, outcome_sd=0.5 * self.width, r2=0.0)


def assume(
    request: Request, outcome_sd: float | None = None, r2: float = 0.0, treated: float = 0.5
) -> Assumed:
    """The user's assumptions, completed.

    An outcome of two labels is taken to have both equally often; a numeric one, a standard
    deviation of a quarter of its declared width.

    Raises
    ------
    CapabilityError
        A number that no outcome within the bounds can have, or no bounds and no `outcome_sd`.
    """
    name = request.formula.outcome
    domain = request.schema.get(name)
    if domain is None:
        if outcome_sd is None or not (_number(outcome_sd) and outcome_sd > 0):
            raise CapabilityError(
                f"a plan needs the scale of the outcome {name!r}: declare its bounds, "
                f"bounds={{{name!r}: (lo, hi)}}, or give outcome_sd="
            )
        return Assumed(SPREADS_PER_RANGE * outcome_sd, outcome_sd, r2, treated)
    width, usual = 1.0, 0.5
    if isinstance(domain, Interval):
        width, usual = domain.width, domain.width / SPREADS_PER_RANGE
    return Assumed(width, usual if outcome_sd is None else outcome_sd, r2, treated)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
