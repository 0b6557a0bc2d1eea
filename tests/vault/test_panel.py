"""The rows that units of a panel give: one each, of their own alone, wherever rows are kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vault_helpers import saved

import privcausal as pc
from privcausal.request.formula import CausalFormula
from privcausal.request.panels import panel_of
from privcausal.request.request import Budget, Request, Trust
from privcausal.request.schema import Schema, label_key
from privcausal.vault import open_source
from privcausal.vault.admission import changes

BOUNDS: dict[str, Any] = {"Y": (-2, 3), "T": pc.Binary(), "X": (0, 1), "G": ["a", "b"]}


def derived(frame: pd.DataFrame, bounds: dict[str, Any] = BOUNDS) -> dict[str, tuple[Any, ...]]:
    """The change, treatment, X and G of each unit."""
    source = open_source(frame)
    formula = CausalFormula.parse("Y ~ T | X + C(G)")
    schema, panel = panel_of(
        formula, Schema(bounds), source.header.kinds, "id", "year", (2018, 2019), ()
    )
    trust = Trust(unit="id", panel=panel)
    rows = changes(source.rows, Request(formula, schema, Budget(1.0), trust, estimand="ATT"))
    names = rows.column("id", as_labels=True)
    assert names.codes is not None
    labels = rows.column("G", as_labels=True)
    assert labels.codes is not None
    numbers = [rows.column(name, as_labels=False).numbers for name in "YTX"]
    assert rows.header.kinds["Y"] == "numeric"
    found = {}
    for at, code in enumerate(names.codes.tolist()):
        group = labels.codes[at]
        own = (*(float(n[at]) for n in numbers), labels.labels[group] if group >= 0 else None)
        assert names.labels[code] not in found  # at most one row of each
        found[names.labels[code]] = own
    return found


def number(value: Any) -> float:
    try:
        return float(value)
    except Exception:
        return math.nan


def expected(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The rule, for the rows (year, Y, T, X, G) of one unit."""
    one = {key: [r for r in rows if label_key(r[0]) == key] for key in ("2018", "2019")}
    before, after = one["2018"], one["2019"]
    if len(before) != 1 or len(after) != 1:
        return (math.nan,)
    (_, y0, t0, x, g), (_, y1, t1, _, _) = before[0], after[0]
    # infinite values are missing, as everywhere
    low, high = (min(max(number(y), -2.0), 3.0) if math.isfinite(number(y)) else math.nan
                 for y in (y0, y1))  # fmt: skip
    untreated = number(t0) == 0
    return (high - low if untreated else math.nan, number(t1), number(x), label_key(g))


UNITS = st.sampled_from(["u", "v", 3, 3.0, None, math.nan, "", "ü'\"", True])
YEARS = st.sampled_from([2018, 2019, 2019.0, "2018", 2020, None, math.nan, math.inf, "x", b"\xff"])
VALUES = st.sampled_from(
    [0, 1, 0.5, 7, -7.25, math.nan, math.inf, -math.inf, 1e308, None, "1", "z", [1], 10**400]
)
ARMS = st.sampled_from([0, 1, 0.0, 1.0, 2, math.nan, None])
GROUPS = st.sampled_from(["a", "b", "c", None, 1])
ROWS = st.lists(st.tuples(UNITS, YEARS, VALUES, ARMS, VALUES, GROUPS), min_size=1, max_size=12)


def table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    columns = zip(*rows, strict=True)
    names = ("id", "year", "Y", "T", "X", "G")
    return pd.DataFrame(
        {n: pd.Series(list(c), dtype=object) for n, c in zip(names, columns, strict=True)}
    ).assign(T=[number(t) for *_, t, _, _ in rows])


def same(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    """Equal, with NaN for what is missing; of what is no change only that is told."""
    if math.isnan(one[0]) and math.isnan(two[0]):
        return True
    return all(
        a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(one, two, strict=True)
    )


def _identity(value: Any) -> tuple[type, Any] | None:
    """Of a cell in a column of objects: values of two types name two units."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return None if missing else (type(value), value)


@given(rows=ROWS, order=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_a_units_row_is_of_its_own_rows_alone_and_in_no_order(rows: Any, order: Any) -> None:
    """So a neighbour differs in one row: adding, removing or replacing a unit leaves the others."""
    whole = derived(table(rows))
    units = {_identity(row[0]) for row in rows} - {None}
    assert len(whole) == len(units)
    for unit in units:
        own = [row for row in rows if _identity(row[0]) == unit]
        order.shuffle(own)
        ((name, alone),) = derived(table(own)).items()
        assert repr(alone) == repr(whole[name])
        assert same(alone, expected([row[1:] for row in own]))
        assert not abs(alone[0]) > 5.0


@pytest.mark.slow
@given(values=st.lists(st.floats(), min_size=2, max_size=2))
@settings(max_examples=40, deadline=None)
def test_no_change_overflows(values: list[float]) -> None:
    bounds = BOUNDS | {"Y": (-(2.0**57), 2.0**57)}
    rows = [("u", year, y, 0, 0.5, "a") for year, y in zip((2018, 2019), values, strict=True)]
    (change, *_), = derived(table(rows), bounds).values()  # fmt: skip
    assert not math.isinf(change)
    assert math.isfinite(change) == all(map(math.isfinite, values))


def study(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """With units that lack a period, have one twice, have no name, or are treated before."""
    rng = np.random.default_rng(seed)
    x, d = rng.uniform(0, 1, n), rng.integers(0, 2, n)
    before, change = rng.normal(0, 0.5, n), rng.normal(0.3 * d + 0.2 * x, 0.4)
    columns = {"id": np.tile([f"u{k}" for k in range(n)], 2), "year": np.repeat([2018, 2019], n)}
    columns |= {"Y": np.r_[before, before + change], "T": np.r_[np.zeros(n), d]}
    columns["X"] = np.r_[x, rng.uniform(0, 1, n)]
    frame = pd.DataFrame(columns | {"G": np.tile(rng.choice(["a", "b"], n), 2).astype(object)})
    frame.loc[4, "T"], frame.loc[5, "Y"], frame.loc[6, "X"] = 1.0, np.nan, np.nan
    frame.loc[7, "id"] = None
    more = [frame.iloc[[10, 11]], frame.iloc[20:30].assign(year=2021), frame.iloc[30:33]]
    return pd.concat([frame.drop(index=8), *more]).sample(frac=1.0, random_state=2)


def document(data: Any, folder: Path, **options: Any) -> bytes:
    options = {"bounds": BOUNDS, "periods": (2018, 2019), **options}
    return saved(folder, pc.did, "Y ~ T | X + C(G)", data, unit="id", time="year", **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "declared": {"groups": ["G"]},
    "bought": {"bounds": {"T": pc.Binary(), "Y": (-2, 3)}, "eps": 20.0},
    "parts": {"control": pc.Control(split="disjoint"), "neighbors": "add_remove"},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_byte_of_a_fit_is_that_of_memory(options: Any, tmp_path: Path) -> None:
    """From Parquet files, CSV, a DuckDB relation, a polars query, in whatever order of the rows."""
    import duckdb
    import polars as pl

    frame = study()
    wanted = document(frame, tmp_path, **options)
    frame.iloc[:99].to_parquet(tmp_path / "1.parquet")
    frame.iloc[99:].to_parquet(tmp_path / "2.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    others = {
        "other order": frame.iloc[::-1],
        "Parquet": str(tmp_path / "*.parquet"),
        "DuckDB": duckdb.connect().from_df(frame),
        "polars": pl.from_pandas(frame).lazy(),
        "CSV": tmp_path / "rows.csv",
    }
    for name, data in others.items():
        assert document(data, tmp_path, **options) == wanted, name


def test_rows_are_read_after_the_charge(charged: pc.Ledger, broken: Any) -> None:
    options: dict[str, Any] = {"unit": "id", "time": "year", "periods": (2018, 2019)}
    with broken("vault.admission.changes", ZeroDivisionError()), pytest.raises(ZeroDivisionError):
        pc.did("Y ~ T", study(), bounds=BOUNDS, ledger=charged, **options)
    assert charged.fits == 1
