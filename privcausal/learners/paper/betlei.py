"""Epsilon-ADUM as its paper prints it (Betlei et al. 2021): `privcausal.paper.adum`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal.features.design import Design
from privcausal.inference.cells import CellEffect
from privcausal.learners.adum import ADUM, CELLS
from privcausal.learners.description import LEFT_OUT, Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.state import Session, outcome_of
from privcausal.prices import at_most
from privcausal.vault import PrintedCells

STEP = 2.0**-30
"""A noisy count of exactly zero is divided as this: one step of its grid."""


@dataclass(frozen=True)
class PublishedADUM(ADUM):
    """Algorithm 1 with the noise and the quotients of the paper: nothing is cut or smoothed."""

    release: Literal["ends", "count_sum"] = "count_sum"
    shrink: bool = False
    name: ClassVar[str] = "adum-printed"
    title: ClassVar[str] = "ADUM as published"
    called: ClassVar[str] = "pc.paper.adum"
    instead: ClassVar[str] = ""

    def run(self, session: Session) -> Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        partition = self._partition(session)
        outcome = outcome_of(request, schema)
        sums = PrintedCells(partition, outcome)
        release = session.release(CELLS, sums)
        count, total = sums.split(release.value)
        noise, total_noise = (part[0, 0] ** 2 for part in sums.split(release.noise_sd))
        rows = np.where(count == 0, STEP, count)
        mean = total / rows
        # not in the paper: the delta method, with the largest variance that the bounds allow
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
    def describe(cls, estimate: Estimate) -> Description:
        return replace(
            super().describe(estimate),
            methods=METHODS, notes=(BANDS,), claim=CLAIM, doubts=(doubt(estimate),),
        )  # fmt: skip


METHODS = (
    "Uplift from aggregates as printed (Betlei et al. 2021, Algorithm 1): in each cell and arm "
    "COUNT + Lap(2/eps) and SUM + Lap(2 D/eps), D the width of the outcome's bounds, and their "
    "quotient as it is, however small the noisy count. The effect is the difference of both arms'.",
    LEFT_OUT,
)

BANDS = (
    "The paper has no intervals and no average effect. Intervals by cell are ours (delta method) "
    "and mean nothing where a noisy count is near zero or below."
)

CLAIM = "is what Betlei et al. (2021, Algorithm 1) claim of this mechanism"


def doubt(estimate: Estimate) -> str:
    """What the printed noise really costs with these bounds and neighbours."""
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
