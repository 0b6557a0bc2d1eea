"""Squared sums of clusters: their noise, the change by one row or unit, and the textbook sums."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vault_helpers import (
    GROUPS,
    HOSTILE_ROWS,
    RELATIONS,
    ROUNDING,
    Answer,
    Study,
    assert_normal,
    batches,
    corner_rows,
    hostile_tables,
    random_rows,
    redrawn,
    study,
    table,
)

from privcausal import testing
from privcausal.request.request import Clusters, Plan
from privcausal.testing import zero_noise
from privcausal.vault import ClusterSquares, CutScore, Influence, open_source
from privcausal.vault import open_vault as opened
from privcausal.vault.queries.sums import ONE

QUICK = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
NAMES = st.sampled_from(["u", "v", "w", None])


def query(s: Study, cap: float = 3.0, *, groups: bool = True) -> ClusterSquares:
    """Two scores over all rows, and one in each group."""
    one = CutScore(s.aipw, 0.3 * s.aipw.bound, 0.5)
    other = CutScore(Influence(s.aipw, s.balance, -2.0), 0.2 * s.aipw.bound)
    places = tuple(range(1, 1 + len(s.groups))) if groups else ()
    scores = (one, other, *([one] * len(places)))
    return ClusterSquares(scores, (0, 0, *places), 2 + groups * len(GROUPS), cap, s.neighbors)


def plan_of(s: Study, most: int = 3) -> Plan:
    request = replace(s.request, estimand="ATE", cluster=Clusters("village", most))
    return replace(s.plan(["squares"]), request=request)


def clustered(rows: Sequence[Any], names: Sequence[Any], units: Any = None) -> pd.DataFrame:
    return table(rows, units).assign(village=pd.Series(list(names), dtype="str"))


def answer(s: Study, data: Any, order: ClusterSquares | None = None) -> Answer:
    order = query(s) if order is None else order
    with testing.recorded() as recorder, warnings.catch_warnings():
        warnings.simplefilter("error")
        vault = opened(open_source(data), plan_of(s), None, "run")
        s.set_layout(vault, groups=len(order.scores) > 2)
        vault.release("squares", order)
    (call,) = recorder.calls
    return Answer(call.exact, call.query.weights, call.query.sensitivity, call.query.scale)


def assert_close(one: Answer, other: Answer) -> None:
    assert one.distance(other) <= one.sensitivity * ROUNDING
    assert one.sensitivity == other.sensitivity
    assert one.scale == other.scale
    assert np.array_equal(one.weights, other.weights)


@pytest.mark.slow
@QUICK
@given(
    rows=hostile_tables(1, 6), names=st.lists(NAMES, min_size=6, max_size=6),
    new=HOSTILE_ROWS, name=NAMES, at=st.integers(0, 5), cap=st.sampled_from([1.0, 2.0, 2.7, 9.0]),
)  # fmt: skip
def test_replacing_a_row(rows: Any, names: Any, new: Any, name: Any, at: int, cap: float) -> None:
    """A row may also move to another cluster, or lose its cluster."""
    s, at, own = study("substitute"), at % len(rows), names[: len(rows)]
    changed, moved = list(rows), list(own)
    changed[at], moved[at] = new, name
    order = query(s, cap)
    one, two = (answer(s, clustered(*p), order) for p in ((rows, own), (changed, moved)))
    assert_close(one, two)


@pytest.mark.slow
@QUICK
@given(
    rows=hostile_tables(1, 6), names=st.lists(NAMES, min_size=6, max_size=6),
    at=st.integers(0, 5), cap=st.sampled_from([1.0, 2.0, 2.7, 9.0]),
)  # fmt: skip
def test_removing_a_row(rows: Any, names: Any, at: int, cap: float) -> None:
    s, at, own = study("add_remove"), at % len(rows), names[: len(rows)]
    fewer = clustered(rows[:at] + rows[at + 1 :], own[:at] + own[at + 1 :])
    assert_close(answer(s, clustered(rows, own), query(s, cap)), answer(s, fewer, query(s, cap)))


@pytest.mark.slow
@QUICK
@given(
    rows=hostile_tables(0, 4), old=hostile_tables(1, 4), new=hostile_tables(1, 4),
    names=st.lists(NAMES, min_size=12, max_size=12), relation=st.sampled_from(RELATIONS),
)  # fmt: skip
def test_changing_a_unit(rows: Any, old: Any, new: Any, names: Any, relation: Any) -> None:
    """At most two rows of a unit count, in one cluster or in two."""
    s = study(relation, max_rows=2, unit="pid")
    others = [f"u{i // 2}" for i in range(len(rows))]
    kept = names[: len(rows)]
    one = clustered([*old, *rows], names[4 : 4 + len(old)] + kept, ["x"] * len(old) + others)
    two = clustered(rows, kept, others)
    if relation == "substitute":
        more = kept + names[8 : 8 + len(new)]
        two = clustered([*rows, *new], more, others + ["y"] * len(new))
    assert_close(answer(s, one), answer(s, two))


def ends() -> tuple[Any, Any]:
    """Corner rows with the largest positive and negative score."""
    s = study("substitute")
    order = query(s, groups=False)
    sums = [
        order.scores[0].score(_batch(s, row))[0] if row["T"] else np.nan for row in corner_rows()
    ]
    return corner_rows()[int(np.nanargmax(sums))], corner_rows()[int(np.nanargmin(sums))]


def _batch(s: Study, row: Any) -> Any:
    vault = opened(open_source(clustered([row], ["u"])), plan_of(s), None, "run")
    s.set_layout(vault, groups=False)
    return batches(vault)[0]


@pytest.mark.slow
def test_the_sensitivity_is_reached() -> None:
    """A row that moves between two clusters, or appears in one, that are nearly at the limit."""
    high, low = ends()
    cap = 4.0
    for relation in ("substitute", "add_remove"):
        s = study(relation)
        order = replace(query(s, cap, groups=False), most=1)
        order = replace(order, scores=order.scores[:1], places=(0,))
        four = [high] * 4, ["u"] * 4
        if relation == "add_remove":
            one, two = four, ([high] * 3, ["u"] * 3)
        else:
            # one cluster loses a negative score, and another gains a positive score
            rows = [*[high] * 4, low, *[high] * 3]
            one = rows, [*["u"] * 5, *["v"] * 3]
            two = [*rows[:4], high, *rows[5:]], [*["u"] * 4, "v", *["v"] * 3]
        found = [answer(s, clustered(*pair), order) for pair in (one, two)]
        assert found[0].distance(found[1]) == pytest.approx(found[0].sensitivity, rel=1e-3)

    nobody = dict(high, Y=np.nan)
    alone = answer(s, clustered([high], ["u"]), order), answer(s, clustered([nobody], ["u"]), order)
    assert alone[0].distance(alone[1]) == pytest.approx(alone[0].sensitivity, rel=1e-3)


def test_a_row_in_too_many_places_counts_as_zero() -> None:
    s = study("substitute")
    order = replace(query(s), most=1)
    found = answer(s, clustered(list(corner_rows())[:4], ["u"] * 4), order)
    assert not found.exact[:-1].any()
    assert found.exact[-1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_has_the_stated_law(relation: Any) -> None:
    """Kolmogorov-Smirnov at 1e-6; the same draws fail at a scale 30% off."""
    s, data = study(relation), clustered(random_rows(40, 5), np.arange(40) % 7)
    order, plan = query(s), plan_of(study(relation))
    exact = answer(s, data).exact
    vault = opened(open_source(data), plan, None, "run")
    s.set_layout(vault, groups=True)
    released = [vault.release("squares", order)]
    released += redrawn(vault, plan.stages[0], order, exact, 1000)
    sd, units = released[0].noise_sd, order.units
    noise = np.array([one.value for one in released]) - exact * units
    noise += np.random.default_rng(0).uniform(-units / 2, units / 2, noise.shape)
    z = (noise / np.hypot(sd, units / np.sqrt(12))).ravel()
    assert_normal(z)
    spread = released[0].charge.sensitivity / released[0].charge.noise_sd
    assert spread**2 / 2 == pytest.approx(1e-3, rel=1e-9)


def test_without_noise_the_answer_is_the_textbook_sum() -> None:
    s, rows = study("substitute"), random_rows(300, 9)
    names = [None if k % 11 == 0 else f"c{k * k % 23}" for k in range(300)]
    data, order = clustered(rows, names), query(s, cap=4.0)
    vault = opened(open_source(data), plan_of(s), None, "run")
    s.set_layout(vault, groups=True)
    (batch,) = batches(vault)
    expected, inside = [], np.column_stack([np.ones(300), batch.member])
    for score, place in zip(order.scores, order.places, strict=True):
        x = np.clip((score.score(batch) - score.middle) / score.cut, -1, 1)
        x = np.where(batch.complete, x * inside[:, place], 0.0)
        sums = pd.Series(x).groupby(pd.Series(names)).sum()
        expected.append(float((np.clip(sums, -4, 4) ** 2).sum()) * score.cut**2)
    with zero_noise():
        vault = opened(open_source(data), plan_of(s), None, "run")
        s.set_layout(vault, groups=True)
        found = vault.release("squares", order)
    np.testing.assert_allclose(found.value[:-1], expected, rtol=2e-3)
    assert found.value[-1] == len({n for n, c in zip(names, batch.complete, strict=True) if c})
    assert not found.noise_sd.any()


@pytest.mark.slow
def test_large_sums_are_exact() -> None:
    """More than 2^53 in all: squares are added as whole numbers."""
    s, (high, _) = study("substitute"), ends()
    order = query(s, cap=50_000.0, groups=False)
    found = answer(s, clustered([high] * 40_000, ["u"] * 40_000), order)
    assert found.exact[0] == (40_000 * ONE) ** 2
    assert found.exact[-1] == 1


def test_every_source_gives_the_same_integers(tmp_path: Any) -> None:
    import polars as pl

    s = study("substitute")
    data = clustered(random_rows(90, 3), [f"c{k % 8}" if k % 9 else None for k in range(90)])
    want = answer(s, data)
    data.to_parquet(tmp_path / "rows.parquet")
    for source in (data, tmp_path / "rows.parquet", pl.from_pandas(data)):
        assert np.array_equal(answer(s, source).exact, want.exact)
    units = [f"u{k // 3}" if k % 5 else None for k in range(90)]
    by_unit, of_units = study("substitute", max_rows=2, unit="pid"), data.assign(pid=units)
    of_units.to_parquet(tmp_path / "units.parquet")
    found = answer(by_unit, tmp_path / "units.parquet")
    assert np.array_equal(found.exact, answer(by_unit, of_units).exact)
    assert found.exact[0] != want.exact[0]
    shuffled = data.sample(frac=1.0, random_state=1)
    assert np.array_equal(answer(s, shuffled).exact, want.exact)


@pytest.mark.parametrize(("cap", "relation"), [*itertools.product([2.0, 7.3], RELATIONS)])
def test_the_number_of_clusters_has_no_cost(cap: float, relation: Any) -> None:
    """The weight of the count makes a row that is alone as costly as any other row."""
    order = replace(query(study(relation), cap, groups=False), most=1)
    one, k, beta = float(ONE), float(int(cap * ONE)), float(order.weights[-1])
    alone = 2 * k * one if relation == "substitute" else one**2
    assert np.hypot(alone, beta) == pytest.approx(order.sensitivity(relation), rel=1e-9)
    assert beta > 0
