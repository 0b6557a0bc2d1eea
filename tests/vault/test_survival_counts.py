"""Weighted suffix sums of survival times: their noise, the change by one row, and exact counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest
from vault_helpers import (
    HOSTILE_ROWS,
    RELATIONS,
    ROUNDING,
    Answer,
    Study,
    batches,
    corner_rows,
    hostile_tables,
    random_rows,
    redrawn,
    study,
    table,
)

from privcausal import testing
from privcausal.request.formula import CausalFormula
from privcausal.vault import FollowUp, SurvivalCounts, SurvivalScore, open_source, open_vault

QUICK = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
FOLLOWS = [FollowUp("B", horizon) for horizon in (3.0, 4.7)]
FEW = st.sampled_from(FOLLOWS[:1])


def answer(s: Study, rows: Any, follow: FollowUp, units: Any = None) -> Answer:
    """The exact answer; the outcome Y in [-2, 6] is the time, and B the event."""
    with testing.recorded() as recorder:
        s.vault(table(rows, units), s.plan(["times"])).release("times", SurvivalCounts(follow))
    (call,) = recorder.calls
    return Answer(call.exact, call.query.weights, call.query.sensitivity, call.query.scale)


def assert_close(one: Answer, other: Answer) -> None:
    assert one.distance(other) <= one.sensitivity * ROUNDING
    assert one.scale == other.scale


@pytest.mark.slow
@QUICK
@given(rows=hostile_tables(1, 6), new=HOSTILE_ROWS, at=st.integers(0, 5), follow=FEW)
def test_replacing_a_row(rows: Any, new: Any, at: int, follow: FollowUp) -> None:
    changed, s = list(rows), study("substitute")
    changed[at % len(rows)] = new
    assert_close(answer(s, rows, follow), answer(s, changed, follow))


@pytest.mark.slow
@QUICK
@given(rows=hostile_tables(1, 6), at=st.integers(0, 5), follow=FEW)
def test_removing_a_row(rows: Any, at: int, follow: FollowUp) -> None:
    s, at = study("add_remove"), at % len(rows)
    assert_close(answer(s, rows, follow), answer(s, rows[:at] + rows[at + 1 :], follow))


@pytest.mark.slow
@QUICK
@given(rows=hostile_tables(1, 3), old=hostile_tables(1, 4), relation=st.sampled_from(RELATIONS))
def test_removing_a_unit(rows: Any, old: Any, relation: Any) -> None:
    s, others = study(relation, max_rows=2, unit="pid"), [f"u{k}" for k in range(len(rows))]
    one = answer(s, [*old, *rows], FOLLOWS[0], ["x"] * len(old) + others)
    two = answer(s, rows, FOLLOWS[0], others)
    assert_close(one, two)


@pytest.mark.parametrize("follow", FOLLOWS)
def test_the_sensitivity_is_reached(follow: FollowUp) -> None:
    """Rows of different arms with times beyond the horizon have the longest columns."""
    row = next(r for r in corner_rows() if r["Y"] == 6.0 and r["T"] == 1.0)
    for relation, other in (("substitute", [dict(row, T=0.0)]), ("add_remove", [])):
        s = study(relation)
        one, two = answer(s, [row, row], follow), answer(s, [row, *other], follow)
        assert one.distance(two) == pytest.approx(one.sensitivity, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_has_the_stated_law(relation: Any) -> None:
    """Kolmogorov-Smirnov at 1e-6; the same draws fail at a scale 30% off."""
    s, rows, order = study(relation), random_rows(60, 5), SurvivalCounts(FOLLOWS[1])
    exact, plan = answer(s, rows, FOLLOWS[1]).exact, s.plan(["times"])
    vault = s.vault(table(rows), plan)
    released = vault.release("times", order)
    more = redrawn(vault, plan.stages[0], order, exact, 9)
    z = (
        (np.array([draw.value for draw in (released, *more)]) - exact * order.units)
        / released.noise_sd
    ).ravel()
    assert len(z) == 40 * 251
    assert kstest(z, "norm").pvalue > 1e-6
    for scale in (0.7, 1.3):
        assert kstest(z * scale, "norm").pvalue < 1e-6
    spread = released.charge.sensitivity / released.charge.noise_sd
    assert spread**2 / 2 == pytest.approx(1e-3, rel=1e-9)


@pytest.mark.parametrize("follow", FOLLOWS)
def test_without_noise_the_suffix_sums_are_counts(follow: FollowUp) -> None:
    s, rows, order = study("substitute"), random_rows(200, 9), SurvivalCounts(follow)
    with testing.zero_noise():
        vault = s.vault(table(rows), s.plan(["times"]))
        (batch,) = batches(vault)
        found = order.split(vault.release("times", order).value) @ order.root.T
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
