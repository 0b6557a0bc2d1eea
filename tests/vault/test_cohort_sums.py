"""Sums by cohort: their noise, the change by one unit, the textbook sums, and the units' rows."""

from __future__ import annotations

import math
import random
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vault_helpers import assert_normal

import privcausal as pc
from privcausal import testing
from privcausal.request.cohorts import cohorts_of
from privcausal.request.formula import CausalFormula
from privcausal.request.request import COHORTS, Budget, Request, Trust
from privcausal.request.schema import Schema
from privcausal.vault import CohortSums, PathSize, open_source
from privcausal.vault.admission import changes

RELATIONS: tuple[Any, ...] = ("substitute", "add_remove")
LOW, HIGH = -1.0, 3.0
BOUNDS: dict[str, Any] = {"Y": (LOW, HIGH), "first": [0, 2, 3]}
CALL: dict[str, Any] = {
    "unit": "id", "time": "year", "cohort": "first", "periods": [1, 2, 3], "bounds": BOUNDS,
}  # fmt: skip
OUTCOMES = st.sampled_from([LOW, HIGH, 0.0, 1.0, 2.999, -0.3])
UNITS = st.tuples(st.lists(OUTCOMES, min_size=4, max_size=4), st.sampled_from([-1, 0, 1, 2]))


def batch(units: list[Any]) -> Any:
    """Units as the vault holds them: outcomes inside their bounds, and the cohort's position."""
    y = np.array([path for path, _ in units])
    frame = {f"Y{k}": y[:, k] for k in (1, 2, 3)} | {"first": np.array([c for _, c in units])}
    complete = np.array([c >= 0 for _, c in units])
    return SimpleNamespace(y=y[:, 0], rows=SimpleNamespace(frame=frame), complete=complete)


def query(cut: float, neighbors: Any) -> CohortSums:
    size = PathSize(("Y1", "Y2", "Y3"), HIGH - LOW)
    return CohortSums(size, "first", (0, 2), cut, neighbors)


@pytest.mark.slow
@given(units=st.lists(UNITS, min_size=1, max_size=4), new=UNITS, cut=st.sampled_from([0.1, 1, 4]))
@settings(max_examples=100, deadline=None)
def test_a_unit_changes_the_sums_by_at_most_the_sensitivity(units: Any, new: Any, cut: Any) -> None:
    for relation in RELATIONS:
        order = query(cut, relation)
        other = [new, *units[1:]] if relation == "substitute" else [*units, new]
        moved = order.integers(batch(units)) - order.integers(batch(other))
        assert np.linalg.norm(moved * order.weights) <= order.sensitivity(relation)


def test_the_sensitivity_is_reached() -> None:
    """Opposite paths of one cohort under substitution; any long path of a counted cohort else."""
    up, down = ([LOW, LOW, HIGH, HIGH], 0), ([HIGH, HIGH, LOW, LOW], 0)
    pairs = ("substitute", [up], [down]), ("add_remove", [up], [up, up])
    other = [([LOW, LOW, HIGH, HIGH], 2)]
    for relation, one, two in (*pairs, ("substitute", [up], other)):
        order = query(4.0, relation)
        moved = order.integers(batch(one)) - order.integers(batch(two))
        change = np.linalg.norm(moved * order.weights)
        assert change == pytest.approx(order.sensitivity(relation), rel=1e-6)


@given(units=st.lists(UNITS, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_sums_are_those_of_the_textbook(units: Any) -> None:
    """Without clipping: sums of paths and outer products, whose norms are those of deviations."""
    order = query(4.0, "substitute")
    own = batch(units)
    path, count, square = order.split(order.integers(own) * order.units)
    z = order.size.path(own)
    y = np.array([one for one, _ in units])
    spread = y - y.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(order.size(own), np.linalg.norm(spread, axis=1), atol=1e-12)
    np.testing.assert_allclose(z @ order.size.contrasts, spread, atol=1e-12)
    for k, cohort in enumerate((0, 2)):
        inside = z[[c == cohort for _, c in units]]
        np.testing.assert_allclose(path[k], inside.sum(axis=0), atol=1e-6)
        np.testing.assert_allclose(square[k], inside.T @ inside, atol=1e-6)
        assert count[k, 0] == pytest.approx(len(inside), abs=1e-6)


def test_the_bound_of_a_path_is_reached() -> None:
    for periods in (2, 3, 4, 5):
        size = PathSize(tuple(f"Y{k}" for k in range(1, periods)), HIGH - LOW)
        y = np.where(np.arange(periods) < periods // 2, LOW, HIGH)
        frame = {f"Y{k}": y[[k]] for k in range(1, periods)}
        own: Any = SimpleNamespace(y=y[:1], rows=SimpleNamespace(frame=frame))
        assert np.linalg.norm(size.path(own)) == pytest.approx(size.bound)
        assert np.linalg.norm(y - y.mean()) == pytest.approx(size.bound)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_has_the_stated_law(relation: Any) -> None:
    """Kolmogorov-Smirnov at 1e-6; the same draws fail at a scale 30% off."""
    years, levels, found = list(range(1, 9)), [0, *range(2, 9)], list[Any]()
    frame = pd.DataFrame({
        "id": np.repeat(np.arange(16), 8), "year": np.tile(years, 16),
        "first": np.repeat(np.tile(levels, 2), 8), "Y": np.linspace(LOW, HIGH, 128),
    })  # fmt: skip
    options = {**CALL, "periods": years, "bounds": BOUNDS | {"first": levels}}
    for seed in range(6):
        with warnings.catch_warnings(), testing.recorded(seed) as recorder:
            warnings.simplefilter("ignore")  # Cohorts are small.
            fit = pc.did("Y ~ 1", frame, eps=30, neighbors=relation, **options)
        _, sums = recorder.calls
        found.append((sums.noisy - sums.exact) * sums.query.weights / sums.query.scale)
    assert_normal(np.concatenate(found))
    rho = fit.plan.stages[-1].rho / 1e12
    assert (sums.query.sensitivity / sums.query.scale) ** 2 / 2 == pytest.approx(rho, rel=1e-9)


# -- rows of units -------------------------------------------------------------------------------


def derived(frame: pd.DataFrame) -> dict[str, tuple[Any, ...]]:
    """The cohort and the outcomes of each unit."""
    source, formula = open_source(frame), CausalFormula.regression("Y ~ 1")
    schema, made = cohorts_of(
        formula, Schema(BOUNDS), "id", "year", [1, 2, 3], "first", "nevertreated", ()
    )  # fmt: skip
    trust = Trust(unit="id", panel=made)
    rows = changes(source.rows, Request(formula, schema, Budget(1.0), trust, estimand=COHORTS))
    names, cohort = (rows.column(name, as_labels=True) for name in ("id", "first"))
    assert names.codes is not None
    assert cohort.codes is not None
    numbers = [rows.column(name, as_labels=False).numbers for name in ("Y", *made.wide)]
    return {
        names.labels[code]: (
            cohort.labels[cohort.codes[at]] if cohort.codes[at] >= 0 else None,
            *(float(one[at]) for one in numbers),
        )
        for at, code in enumerate(names.codes.tolist())
    }


def expected(rows: list[Any]) -> tuple[Any, ...]:
    """The rule, for the rows (year, first, Y) of one unit."""
    own = sorted((r for r in rows if r[0] in (1, 2, 3)), key=lambda r: r[0])
    whole = [year for year, _, _ in own] == [1, 2, 3] and len({r[1] for r in own}) == 1
    if not whole or own[0][1] is None or any(not math.isfinite(y) for *_, y in own):
        return None, math.nan, math.nan, math.nan
    return str(own[0][1]), *(min(max(y, LOW), HIGH) for *_, y in own)


@pytest.mark.slow
@example([("u", year, 0, math.inf if year == 1 else 0.5) for year in (1, 2, 3)], random.Random(0))
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["u", "v"]), st.sampled_from([1, 2, 3, 3, 4]),
            st.sampled_from([0, 0, 0, 2, 7, None]),
            st.sampled_from([0.5, 1.5, 9.0, -9.0, math.nan, math.inf]),
        ),
        min_size=1, max_size=9,
    ),
    order=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_units_row_is_of_its_own_rows_alone(rows: Any, order: Any) -> None:
    """Most draws lack a period, so each also has a complete unit."""
    rows = [*rows, *(("w", year, 2, 0.25 * year) for year in (3, 1, 2))]
    order.shuffle(rows)
    frame = pd.DataFrame(rows, columns=["id", "year", "first", "Y"])
    found = derived(frame.astype({"first": "Int64"}))
    assert set(found) == {unit for unit, *_ in rows}
    for unit, own in found.items():
        assert repr(own) == repr(expected([row[1:] for row in rows if row[0] == unit]))
    assert found["w"] == ("2", 0.25, 0.5, 0.75)
