"""White-box audit of boosting at epsilon 1, by the likelihood ratio of all rounds' releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privcausal.accounting import PICO, rho_of
from privcausal.auditing import loss_bound
from privcausal.features.design import Design
from privcausal.features.functions import Constant, make_bins
from privcausal.inference.population import uniform_population
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Budget, Plan, Request, Stage
from privcausal.request.schema import Schema
from privcausal.vault import Boosting, Outcome, OutcomeResidual, open_source, open_vault

LEVEL, SEEN = 1e-6, 1e-3
"""Chances that the correct booster fails, and of each bound that is to show a fault."""

TRIALS = 5_000
ROUNDS = 2
RHO = rho_of(1.0, 1e-5) / PICO
MU = float(np.sqrt(2 * RHO))


@dataclass(frozen=True)
class Claim:
    """A regression of Y in [lo, hi] on one column with residuals cut to `bound`."""

    lo: float = 0.0
    hi: float = 1.0
    bound: float = 0.5
    centre: float = 0.5

    def vault(self, outcome: float) -> tuple[Any, Any, Stage]:
        """The vault of a table whose last row has this outcome, the order to boost, its stage."""
        schema = Schema.of({"Y": (self.lo, self.hi), "T": (0, 1), "X": (0, 1)})
        formula = CausalFormula.parse("Y ~ T | X", ["Y", "T", "X"])
        request = Request(formula, schema, Budget(1.0))
        plan = Plan(request, "audit", "dpebm", (Stage("a", round(RHO * PICO)),), 10**15)
        y = np.r_[np.full(5, self.centre), outcome]
        data = pd.DataFrame({"Y": y, "T": [0, 1] * 3, "X": [0.1, 0.9, 0.1, 0.9, 0.1, 0.9]})
        vault = open_vault(open_source(data), plan, None, "run")
        design = Design(formula.modifiers, schema, full_rank=False)
        vault.set_layout(schema, [design], ())
        bins = make_bins(design, uniform_population(schema, ["X"], None).rows(), 2)
        leaf = np.tile(np.arange(bins.size), (ROUNDS, 1))
        target = OutcomeResidual(Constant(self.centre), Outcome(self.lo, self.hi))
        order = Boosting(
            bins, np.full((1, bins.size), 3.0), leaf, 1e-12, target=target, bound=self.bound,
            what="audit",
        )  # fmt: skip
        return vault, order, plan.stages[0]

    def statistics(self, ends: tuple[float, float], trials: int = TRIALS) -> tuple[Any, Any]:
        """The likelihood ratio's statistic of `trials` fits on each of the two tables."""
        exact, drawn = [], []
        for outcome in ends:
            vault, order, stage = self.vault(outcome)
            rows = [order.prepare(batch) for batch in vault._passes.batches()]
            sums = sum(order.integers(r) for r in rows)
            exact.append(np.tile(order.by_leaf(sums, 0).ravel() * order.unit, ROUNDS))
            drawn.append([vault._drawn(stage, order, (None,))[0].value for _ in range(trials)])
        direction = exact[1] - exact[0]
        middle = direction @ (exact[0] + exact[1]) / 2
        one, two = (np.array(values) @ direction - middle for values in drawn)
        return one, two


@pytest.mark.slow
@pytest.mark.parametrize("trials", [1500, TRIALS])
def test_the_booster_keeps_its_promise(trials: int) -> None:
    one, two = Claim().statistics((0.0, 1.0), trials)
    assert loss_bound(one, two, LEVEL, cut=0.0) <= MU
    # and the audit can see: its best guess is what the worst pair has, all of it
    guess = (two.mean() - one.mean()) / np.sqrt((one.var() + two.var()) / 2)
    assert guess == pytest.approx(MU, abs=6 * np.sqrt(2 / trials))  # 6 sd of the two means


def test_interpret_fails_the_audit() -> None:
    """Its regressor with declared bounds, one round, outcomes in [99, 100]: a row more or less."""
    privacy = pytest.importorskip("interpret.privacy")
    x = np.repeat([0.0, 1.0], 200)[:, None]
    found: list[list[float]] = []
    for extra in (False, True):
        own = x if not extra else np.r_[x, [[1.0]]]
        y = np.full(len(own), 99.5)
        y[-1] = 100.0
        scores = []
        for _ in range(60):
            model = privacy.DPExplainableBoostingRegressor(
                feature_types=["continuous"], epsilon=1.0, delta=1e-5, max_rounds=1, max_bins=3,
                bin_budget_frac=0.5, privacy_bounds=np.array([[0.0, 1.0]]),
                privacy_target_min=99.0, privacy_target_max=100.0, n_jobs=1,
            )  # fmt: skip
            model.fit(own, y)
            # the released sum: what the round moved, times the noisy weights it was divided by
            moved = model.term_scores_[0] + model.intercept_
            scores.append(float(moved @ model.bin_weights_[0]))
        found.append(scores)
    one, two = (np.array(values) for values in found)
    # which way the sums go is not known beforehand: both ways are tried
    assert max(loss_bound(one, two, SEEN / 2), loss_bound(-one, -two, SEEN / 2)) > MU
