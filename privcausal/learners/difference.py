"""The difference in means of a randomised trial: what is left to do where there are no covariates.

What ``smf.ols("Y ~ T", data).fit(cov_type="HC2")`` gives, privately (Neyman 1923; Welch 1947).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.inference.average import clustered
from privcausal.inference.difference import (
    Totals,
    Window,
    agreed,
    estimate_difference,
    unseen,
    window,
)
from privcausal.inference.outcome import heights
from privcausal.inference.population import Population
from privcausal.learners.base import Learner
from privcausal.learners.bases import AnyBase, PrivateBase, moment_base
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Session
from privcausal.learners.needs import Need, Undeclared, make_plan
from privcausal.spec.features import Design
from privcausal.spec.functions import Constant
from privcausal.spec.groups import partitions, resolve_groups
from privcausal.spec.plan import Plan
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval
from privcausal.vault import ArmHistogram, ArmSums, Outcome, OutcomeResidual

WINDOW, SUMS = "effect: outcome", "effect: sums"

UNSEEN = (
    "An arm has too few rows to be told from the noise; of its mean only the bounds of the "
    "outcome are used."
)


@dataclass(frozen=True)
class Difference(Learner):
    """Difference of the arms' mean outcomes, from one release of bounded sums within the arms.

    Valid where treatment was randomised with one probability for all; for such a trial it needs
    no propensity, and the average effect, that on the treated and the overlap-weighted one are
    the same. An outcome with declared numeric bounds is first looked at through a histogram, so
    that wide bounds cost little where there are many rows: both arms are cut to one window, and
    the interval holds the bias of that (`inference.tail`). One with two labels needs no squares.
    """

    name: ClassVar[str] = "difference"
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "effect": 0.9}

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        # bounds that are bought are narrow already
        declared = isinstance(request.schema.get(request.formula.outcome), Interval)
        return [
            *([Need(WINDOW, 0.08, "effect")] if declared else []),
            Need(SUMS, 0.92, "effect"),
        ]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages with integer budgets.

        Raises
        ------
        CapabilityError
            A split is asked for: there are no nuisances whose rows could be kept apart.
        """
        if request.split != "full":
            raise CapabilityError(
                f"split={request.split!r} keeps the rows of nuisances apart, and a formula without "
                "covariates has no nuisances: leave split='full'"
            )
        needs = self.needs(request, moment_base(base))
        return make_plan(request, self.name, "none", needs, self.shares, undeclared)

    def run(self, session: Session) -> Estimate:
        session.buy_bounds()
        request, schema = session.plan.request, session.schema
        groups = resolve_groups(request.groups, schema)
        session.vault.arrange(schema, (), groups)
        domain = schema[request.formula.outcome]
        bounds = domain if isinstance(domain, Interval) else Interval(0.0, 1.0)
        rough = ArmSums(
            (bounds, bounds), len(groups), len(request.groups),
            request.trust.neighbors, squares=isinstance(domain, Interval),
        )  # fmt: skip
        cut = _window(session, bounds, rough)
        sums = replace(rough, windows=(cut.interval, cut.interval))
        release = session.release(SUMS, sums)
        value, sd = (Totals(*sums.split(part)) for part in (release.value, release.noise_sd))
        value, sd, noise = agreed(value, sd, partitions(groups, schema, request.needed))
        labels = tuple(g.label for g in groups)
        found = estimate_difference(request.estimand, labels, value, sd, cut, bounds, noise)
        found = clustered(found, request.trust.max_rows)
        return Estimate(
            session.plan,
            schema,
            Design((), schema, full_rank=True),
            Population(schema, {}, np.eye(0), found.size),
            None,
            None,
            found,
            tuple(session.releases),
            session.vault.size,
            session.vault.real_noise,
            (UNSEEN,) if unseen(value, sd)[:, 0].any() else (),
        )


def _window(session: Session, bounds: Interval, sums: ArmSums) -> Window:
    """Where outcomes are cut: by a histogram if the plan has one."""
    if not session.plan.has(WINDOW):
        return Window(bounds)
    height = OutcomeResidual(Constant(bounds.lo), Outcome(bounds.lo, bounds.hi))
    cells = ArmHistogram(height, heights(bounds), "outcome")
    release = session.release(WINDOW, cells)
    trust, rho = session.plan.request.trust, session.plan.stage(SUMS).rho / 1e12
    # of the noise of sums, per half width of their window
    change = sums.sensitivity(trust.neighbors) * trust.max_rows * sums.units[0]
    noise = change / np.sqrt(2 * rho) / (0.5 * bounds.width)
    counts, sd = cells.split(release.value), float(release.noise_sd[0])
    anywhere = session.plan.request.tails == "any"
    return window(counts, sd, bounds, float(noise), anywhere=anywhere)
