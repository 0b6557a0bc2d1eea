"""Weighted suffix sums of survival times: their noise, the change by one row, and exact counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vault_helpers import Answer, Study, batches, corner_rows, random_rows, study, table

from privcausal import testing
from privcausal.request.formula import CausalFormula
from privcausal.vault import FollowUp, SurvivalCounts, SurvivalScore, open_source, open_vault

FOLLOWS = [FollowUp("B", horizon) for horizon in (3.0, 4.7)]


def answer(s: Study, rows: Any, follow: FollowUp, units: Any = None) -> Answer:
    """The exact answer; the outcome Y in [-2, 6] is the time, and B the event."""
    with testing.recorded() as recorder:
        s.vault(table(rows, units), s.plan(["times"])).release("times", SurvivalCounts(follow))
    (call,) = recorder.calls
    return Answer(call.exact, call.query.weights, call.query.sensitivity, call.query.scale)


@pytest.mark.parametrize("follow", FOLLOWS)
def test_the_sensitivity_is_reached(follow: FollowUp) -> None:
    """Rows of different arms with times beyond the horizon have the longest columns."""
    row = next(r for r in corner_rows() if r["Y"] == 6.0 and r["T"] == 1.0)
    for relation, other in (("substitute", [dict(row, T=0.0)]), ("add_remove", [])):
        s = study(relation)
        one, two = answer(s, [row, row], follow), answer(s, [row, *other], follow)
        assert one.distance(two) == pytest.approx(one.sensitivity, rel=1e-9)


@pytest.mark.parametrize("follow", FOLLOWS)
def test_without_noise_the_suffix_sums_are_counts(follow: FollowUp) -> None:
    s, rows, order = study("substitute"), random_rows(200, 9), SurvivalCounts(follow)
    with testing.zero_noise():
        vault = s.vault(table(rows), s.plan(["times"]))
        (batch,) = batches(vault)
        found = vault.release("times", order).value.reshape(follow.shape) @ order.root.T
    time, died, whole = batch.y, batch.rows.frame["B"] == 1, batch.complete
    ends = np.linspace(0, follow.horizon, follow.bins + 1)
    for arm in (0, 1):
        seen = whole & died & (time <= follow.horizon) & (batch.t == arm)
        other = whole & ~seen & (batch.t == arm)
        for kind, rows_of in enumerate((seen, other)):
            at_least = [(time[rows_of] > end).sum() for end in np.r_[-np.inf, ends[:-1]]]
            np.testing.assert_allclose(found[arm, kind], at_least, atol=0.02)
    assert not order.root[np.tril_indices(follow.bins + 1, -1)].any()


@given(
    time=st.floats(allow_nan=False), event=st.sampled_from([0.0, 1.0]),
    arm=st.sampled_from([0.0, 1.0]), horizon=st.one_of(st.integers(1, 500), st.floats(1e-3, 1e4)),
)  # fmt: skip
def test_every_row_has_a_cell_and_a_bounded_score(
    time: float, event: float, arm: float, horizon: float
) -> None:
    follow = FollowUp("B", float(horizon))
    row = np.array([time]), np.array([event]), np.array([arm])
    (cell,) = follow.cell(*row)
    at_arm, kind, at = np.unravel_index(cell, follow.shape)
    assert at_arm == arm
    assert kind == (0 if event and time <= horizon else 1)
    assert (at == follow.bins) or time < horizon
    assert (at == 0) == (time <= 0) or time < 1e-300
    values = np.random.default_rng(1).normal(size=follow.shape)
    score = SurvivalScore(follow, values)
    assert score.lo <= score(*row)[0] <= score.hi
    assert score(*row)[0] == values[at_arm, kind, at]


def test_a_layout_has_the_scores_as_outcomes() -> None:
    s, follow = study("substitute"), FOLLOWS[0]
    formula = CausalFormula.parse("Surv(Y, B) ~ T | X1")
    request = replace(
        s.request, formula=formula, estimand="risk", horizon=3.0, groups=(),
        schema=s.schema.with_columns({"Y": (0, 6)}),
    )  # fmt: skip
    plan = replace(s.plan(["times"]), request=request)
    schema = request.schema
    vault = open_vault(open_source(table(random_rows(50, 2))), plan, None, "run")
    vault.set_layout(schema, (), ())
    (before,) = batches(vault)
    score = SurvivalScore(follow, np.arange(16.0).reshape(follow.shape))
    vault.score_survival(score)
    vault.set_layout(schema, (), ())
    (after,) = batches(vault)
    died = np.asarray(before.rows.frame["B"], float)
    assert np.array_equal(after.y, follow.cell(before.y, died, before.t))
