"""Betlei et al. (2021) as printed: `privcausal.paper.adum` and `privcausal.paper.tm`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal import vault
from privcausal.accounting.charge import is_number
from privcausal.errors import CapabilityError
from privcausal.estimators import uplift, words
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import Undeclared
from privcausal.estimators.paper import refuse_published
from privcausal.estimators.survey import FitRun, outcome_of
from privcausal.features.design import Design
from privcausal.inference.cells import CellEffect
from privcausal.inference.effects import ArmLogits
from privcausal.prices import as_typed, at_most
from privcausal.request.plan import Plan
from privcausal.request.request import Request
from privcausal.request.schema import Interval

GRID_STEP = 2.0**-30
"""Replaces a noisy count of exactly zero in divisions; one step of the count's grid."""


@dataclass(frozen=True)
class PublishedADUM(uplift.ADUM):
    """Algorithm 1 with the noise and the quotients of the paper, without clipping or smoothing."""

    release: Literal["ends", "count_sum"] = "count_sum"
    shrink: bool = False
    name: ClassVar[str] = "adum-printed"
    title: ClassVar[str] = "ADUM as published"
    called: ClassVar[str] = "pc.paper.adum"
    instead: ClassVar[str] = ""

    def run(self, session: FitRun) -> words.Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        partition = self._partition(session)
        outcome = outcome_of(request, schema)
        sums = vault.PrintedCells(partition, outcome)
        release = session.release(uplift.CELL_STAGE, sums)
        count, total = sums.split(release.value)
        noise, total_noise = (part[0, 0] ** 2 for part in sums.split(release.noise_sd))
        rows = np.where(count == 0, GRID_STEP, count)
        mean = total / rows
        # Not in the paper: the delta method, with the largest variance that the bounds allow.
        variance = (total_noise + mean**2 * noise) / rows**2 + outcome.bound**2 / np.abs(rows)
        effect = CellEffect(
            partition, mean[:, 1] - mean[:, 0], np.diag(np.sqrt(variance.sum(axis=1))), count,
            2 * outcome.bound,
        )  # fmt: skip
        session.plan = replace(session.plan, partition=partition)
        return session.finished(
            Design(request.formula.modifiers, schema, full_rank=True), None, effect
        )

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        return replace(
            super().describe(estimate),
            methods=CELL_METHODS, notes=(CELL_BANDS,), claim=CELL_CLAIM, doubts=(doubt(estimate),),
        )  # fmt: skip


CELL_METHODS = (
    "Uplift from aggregates as printed (Betlei et al. 2021, Algorithm 1): in each cell and arm "
    "COUNT + Lap(2/eps) and SUM + Lap(2 D/eps), D the width of the outcome's bounds, and their "
    "quotient as it is, however small the noisy count. The effect is the difference of both arms'.",
    words.LEFT_OUT,
)

CELL_BANDS = (
    "The paper has no intervals and no average effect. Intervals by cell are ours (delta method) "
    "and mean nothing where a noisy count is near zero or below."
)

CELL_CLAIM = "is what Betlei et al. (2021, Algorithm 1) claim of this mechanism"


def doubt(estimate: words.Estimate) -> str:
    """Actual cost of the printed noise with these bounds and neighbors."""
    outcome = outcome_of(estimate.plan.request, estimate.schema)
    width, most = 2 * outcome.bound, max(abs(outcome.lo), abs(outcome.hi))
    added = 0.5 + 0.5 * most / width
    if estimate.plan.request.trust.neighbors == "add_remove":
        cost = f"a row that is added costs {at_most(added)} epsilon of its cells with these bounds"
    else:
        cost = (
            f"a row that is replaced leaves one cell and enters another, which costs up to "
            f"{at_most(2 * added)} epsilon of the cells' with these bounds"
        )
    return (
        f"One row moves a count by 1 and a sum by |y|, which the noise takes for the width of the "
        f"outcome's bounds: {cost}. learner='adum' has scales that are proven."
    )


@dataclass(frozen=True)
class PublishedTM(uplift.TM):
    """Logistic regressions by objective perturbation; they release only their coefficients.

    Parameters
    ----------
    C : float, optional
        One over the ridge of each arm's summed loss. Default: the value that a tenth of epsilon
        allows.
    """

    C: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.C is not None and not (is_number(self.C) and 0 < self.C < math.inf):
            raise CapabilityError("C is a number above 0")

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Plan for one row per unit, two declared outcome values, and a ridge within epsilon."""
        unit = {"unit=": request.trust.unit is not None}
        refuse_published(unit, "its theorem is of tables that differ in one row", undeclared)
        domain = request.schema.get(request.formula.outcome)
        if domain is None or isinstance(domain, Interval):
            raise CapabilityError(
                "pc.paper.tm has logistic regressions, for an outcome of two declared values: "
                f"bounds={{{request.formula.outcome!r}: pc.Binary()}}; for other outcomes "
                "privcate(learner='tm') has linear ones, which are proven"
            )
        price = 0.0 if self.C is None else vault.ridge_price(self.C, request.trust.neighbors)
        if price >= request.budget.epsilon:
            raise CapabilityError(
                f"C={self.C:g} leaves nothing of eps={as_typed(request.budget.epsilon)}: a ridge "
                f"of 1/C costs {at_most(price)} of it; take a smaller C"
            )
        return super().plan(request, base, undeclared)

    def run(self, session: FitRun) -> words.Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        polynomials = self.polynomials(request, schema)
        asked = vault.PublishedLogits(polynomials, request.trust.neighbors, self.C)
        release = session.release(uplift.LOSS, asked)
        logits = ArmLogits(polynomials, release.value.reshape(2, -1), 0.5)
        return session.finished(
            Design(request.formula.modifiers, schema, full_rank=True), effect=logits
        )

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        found = super().describe(estimate)
        return replace(
            found, methods=LOGISTIC, notes=(BARE,), claim=LOGISTIC_CLAIM, doubts=(EXACT,)
        )


LOGISTIC = (
    "Two logistic regressions on polynomials, one for each arm, by objective perturbation "
    "(Chaudhuri et al. 2011, Algorithm 2; the baseline of Betlei et al. 2021 for binary "
    "outcomes). To each arm's penalised log-likelihood was added the product of its coefficients "
    "with a random vector whose length has a Gamma law; the minimum was found by Newton's method. "
    "The ridge is public: 1/C, or without C what a tenth of epsilon pays for. The effect is the "
    "difference of both probabilities.",
    words.LEFT_OUT,
)

LOGISTIC_CLAIM = (
    "is what Chaudhuri et al. (2011, Algorithm 2), for the two models of Betlei et al. (2021), "
    "claim of this mechanism"
)

EXACT = (
    "Their proof is of a continuous random vector inside an optimisation and of its exact "
    "minimum. A computer has neither: the digits of a minimum in floating point tell which random "
    "vectors of its grid can have led there, and their proof does not cover that."
)

BARE = "The regressions have no bands, and no average effect was released."
