"""The same integers before noise, wherever rows live and however they are cut into blocks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from fit_helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from vault_helpers import (
    answers,
    hostile_tables,
    mechanisms,
    random_rows,
    raw_mechanisms,
    regression_row,
    saved,
    study,
    table,
)

import privcausal as pc
from privcausal import testing
from privcausal.errors import BudgetError, CapabilityError, DataError
from privcausal.features.design import Rows
from privcausal.features.functions import row_weights
from privcausal.vault import Source, open_source, open_vault
from privcausal.vault.batch import Batch, Layout, reads_labels
from privcausal.vault.exit import TWO_FACTOR
from privcausal.vault.queries.moments import Cross, Gram, OutlierSums, row_scale
from privcausal.vault.queries.sums import ScoreSums, sum_scale
from privcausal.vault.sources.memory import Memory
from privcausal.vault.sources.spark import Spark, carried_out
from privcausal.vault.sources.stored import Lazy

SEVERAL = ("gram", "gram with factor", "cross outcome", "cross by arm", "cross cut")
SCORES = ("sums, slopes", "sums in the overlap, slopes and groups")


def batch_of(rows: Sequence[Any]) -> Batch:
    s, memory = study("substitute"), Memory(table(rows))
    layout = Layout(s.request, s.schema, (s.design, s.linear), s.groups)
    kinds = memory.header.kinds
    wanted = [(n, reads_labels(s.schema[n], kinds[n])) for n in layout.variables]
    ((_, columns),) = memory.blocks(wanted, len(rows))
    return Batch(columns, np.zeros(len(rows), np.int64), np.ones(len(rows), bool), layout)


def slow_gram(order: Gram, batch: Batch, public: Rows) -> Any:
    phi = public.phi(order.features)
    root = np.sqrt(row_weights(order.features, public))
    if order.factor is not None:
        root = root * np.clip(order.factor(batch), -1.0, 1.0)
    scale = row_scale(order.features.size) / order.features.cut
    u = np.rint(phi * (root * scale)[:, None]).astype(np.int64)
    kept = u[batch.complete]
    return (kept[:, :, None] * kept[:, None, :]).sum(0)[np.triu_indices(u.shape[1])]


def slow_cross(order: Cross, batch: Batch, public: Rows) -> Any:
    phi = public.phi(order.features)
    w = row_weights(order.features, public)
    scale = row_scale(order.features.size) / order.features.cut
    v = np.rint(phi * (w * scale)[:, None]).astype(np.int64)
    r = np.clip(np.nan_to_num(order.target(batch) / order.cut), -1.0, 1.0)
    r = np.rint(r * 2.0**TWO_FACTOR).astype(np.int64)
    arms = [batch.t == 0, batch.t == 1] if order.by_arm else [np.ones(len(v), bool)]
    kept = [batch.complete & arm for arm in arms]
    return np.concatenate([(v[rows] * r[rows, None]).sum(0) for rows in kept])


def slow_scores(order: Any, batch: Batch, public: Rows) -> Any:
    (mass,), groups = order.masses, order.by_group == (1,)
    x = np.clip(order.scores.score(batch) / order.scores.cut, -1.0, 1.0)[:, None]
    q = np.clip(mass(batch) / mass.bound, 0.0, 1.0)[:, None]
    z, g = public.scaled(order.regressors.design), batch.member
    a = np.hstack([np.ones((len(z), 1)), order.regressors.alpha * z])
    if not order.regressors.groups:
        g = g[:, :0]
    i, j = np.triu_indices(a.shape[1])
    # it is taken into one factor of each product
    scale = sum_scale(order.row_weights, order.row_norm)
    x1, q1 = x * scale, q * scale
    outer = a[:, i] * (a[:, j] * scale)
    rows = np.hstack([a * x1, g * x1, outer, q1, g * q1 if groups else g * scale])
    ints = np.rint(rows).astype(np.int64)
    return ints[batch.complete].sum(axis=0)


SLOW = {Gram: slow_gram, Cross: slow_cross, ScoreSums: slow_scores}


@pytest.mark.parametrize("name", [*SEVERAL, *SCORES])
@given(rows=hostile_tables(1, 12))
@settings(max_examples=5, deadline=None)
def test_fast_sums_are_the_plain_integer_sums(name: str, rows: Any) -> None:
    order = mechanisms(study("substitute"))[name]
    batch = batch_of(rows)
    if isinstance(order, ScoreSums) and not order.regressors.groups:
        batch.member = batch.member[:, :0]
    public = Rows(batch.rows.frame, len(rows), batch.rows.propensity)  # row by row in memory
    assert order.integers(batch).tolist() == SLOW[type(order)](order, batch, public).tolist()


@pytest.mark.parametrize("name", ["cross outcome", "cross by arm", "cross cut"])
@given(rows=hostile_tables(1, 12))
@settings(max_examples=5, deadline=None)
def test_kept_features_give_the_same_sums(name: str, rows: Any) -> None:
    """In 32 bits, when they are made and when they are found again."""
    order, batch = mechanisms(study("substitute"))[name], batch_of(rows)
    expected = order.integers(batch).tolist()
    batch.rows.keeps_matrices = True
    for _ in range(2):
        assert order.integers(batch).tolist() == expected
    (kept,) = [
        entry.value
        for entry in batch.rows.cache.values()
        if entry.lifetime == "used" and entry.value.dtype == np.float32
    ]
    assert kept.shape == (len(rows), order.features.size)


# -- places and partitions --------------------------------------------------------------------


class Executors(Spark):
    """What Spark does, here: orders are pickled, each part of the rows sends back its sums."""

    __slots__ = ("sent",)

    def __init__(self, parts: Sequence[pa.Table], batch_rows: int) -> None:
        self._frame = [p.to_batches(max_chunksize=batch_rows) for p in parts]
        self._rows = sum(p.num_rows for p in parts)
        self.header = Memory(parts[0]).header
        self.sent: list[int] = []

    def repeats(self, names: Any) -> bool:
        return True

    def sums(self, job: Any, rows: int, unit: Any, max_rows: int, order: Any) -> Any:
        from privcausal.vault.exit import ExactSum

        total, words = ExactSum(job.size), pickle.dumps(job)
        names = [name for name, _ in job.columns]
        for part in self._frame:
            there = carried_out(pickle.loads(words), rows)
            (record,) = there(iter([batch.select(names) for batch in part]))
            assert record.num_rows == record.num_columns == 1
            self.sent.append(record.nbytes)
            total.merge(record.column(0)[0].as_py())
        return total.value()


@st.composite
def partitions(draw: Any, size: int) -> list[np.ndarray]:
    """Rows in any order, cut anywhere, some parts empty."""
    order = np.array(draw(st.permutations(range(size))))
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    return np.split(order, cuts)


ROWS = random_rows(60, 4)
WANTED = {
    name: order
    for name, order in {**mechanisms(study("substitute")), **raw_mechanisms()}.items()
    if name in (*SEVERAL, *SCORES, "marginals", "sizes", "squares, mean", "arm sums", "grid")
}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return exact(table(ROWS))


def exact(data: Any, *, ahead: bool = False) -> dict[str, list[int]]:
    found = answers(study("substitute"), data, WANTED, ahead=ahead)
    return {name: a.exact.tolist() for name, a in found.items()}


def opened(data: Any) -> Source:
    return Source(data) if isinstance(data, Executors) else open_source(data)


@pytest.mark.slow
@given(parts=partitions(60), batch_rows=st.integers(1, 40), block=st.integers(1, 40))
@settings(max_examples=3, deadline=None)
def test_sums_do_not_depend_on_the_partition(
    limits: Any, expected: Any, parts: Any, batch_rows: int, block: int
) -> None:
    frame = table(ROWS)
    places = {
        "memory": frame.iloc[np.concatenate(parts)].reset_index(drop=True),
        "polars": pl.from_pandas(frame.iloc[np.concatenate(parts)]).lazy(),
        "duckdb": duckdb.from_arrow(pa.Table.from_pandas(frame.iloc[np.concatenate(parts)])),
        "spark": Executors(
            [pa.Table.from_pandas(frame.iloc[p], preserve_index=False) for p in parts], batch_rows
        ),
    }
    with limits(BATCH=block, KEEP_ROWS=0):
        for place, data in places.items():
            assert exact(opened(data)) == expected, place
            assert exact(opened(data), ahead=True) == expected, place


def test_what_was_gathered_is_released_for_its_own_query_only() -> None:
    s = study("substitute")
    vault = s.vault(table(ROWS), s.plan(["cross outcome"]))
    one, other = (mechanisms(s)["cross outcome"] for _ in range(2))
    vault.gather({"cross outcome": one}, {})
    with pytest.raises(CapabilityError, match="A different query was gathered"):
        vault.release("cross outcome", other if other is not one else replace(one))
    vault.release("cross outcome", one)
    with pytest.raises(BudgetError, match="already spent"):
        vault.release("cross outcome", one)


def test_one_of_several_gathered_queries_is_released() -> None:
    s = study("substitute")
    with testing.zero_noise():
        vault = s.vault(table(ROWS), s.plan(["outliers"]))
        near, far = (OutlierSums(regression_row(s, 0.8), at) for at in (1.0, 2.0))
        vault.gather({"outliers": [near, far]}, {})
        assert vault.passes == 0
        found = vault.release("outliers", far)
        alone = s.vault(table(ROWS), s.plan(["outliers"])).release("outliers", far)
    np.testing.assert_array_equal(found.value, alone.value)
    with pytest.raises(BudgetError, match="already spent"):
        vault.release("outliers", near)


@pytest.mark.slow
def test_a_thousand_executors_send_the_sums_of_one(expected: Any) -> None:
    """Each has some of 3,000 rows, or none; what they send is small and does not grow with rows."""
    rows = random_rows(3_000, 9)
    frame = table(rows)
    cuts = np.sort(np.random.default_rng(0).integers(0, len(frame), 999))
    parts = np.split(np.arange(len(frame)), cuts)
    executors = Executors(
        [pa.Table.from_pandas(frame.iloc[p], preserve_index=False) for p in parts], 100
    )
    s, wanted = study("substitute"), {"gram": WANTED["gram"]}
    found = [answers(s, opened(data), wanted)["gram"].exact.tolist() for data in (executors, frame)]
    assert found[0] == found[1]
    assert len(executors.sent) == 1_000
    assert max(executors.sent) <= 16 * len(found[0]) + 64


# -- queries of polars ------------------------------------------------------------------------

FORMULA, BOUNDS = "Y ~ T | X1 + X2", {"Y": (-2, 6), "X1": (0, 10), "X2": (99, 100)}


@pytest.mark.slow
def test_a_query_of_polars_gives_the_fit_of_its_frame(tmp_path: Any) -> None:
    frame = table(random_rows(400, 5))
    frame["unused"] = object()
    query = pl.from_pandas(frame.drop(columns="unused")).lazy()
    found = [
        saved(tmp_path, pc.privcate, FORMULA, data, bounds=BOUNDS, groups=["X1 >= 5"])
        for data in (frame, query.with_columns(boom=pl.col("G").cast(pl.Int64)))
    ]
    assert found[0] == found[1]


def test_a_query_that_fails_midway_stays_paid_for(charged: Any) -> None:
    query = pl.LazyFrame({"Y": ["1", "77310"] * 50, "T": [0, 1] * 50}).with_columns(
        X1=pl.col("Y").str.replace("77310", "secret").cast(pl.Float64), Y=pl.col("T")
    )
    with refused(DataError, "Not all rows could be read", "secret"):
        pc.privcate("Y ~ T | X1", query, bounds={"Y": (0, 1), "X1": (0, 1)}, ledger=charged)


def test_bases_that_hold_rows_name_those_that_do_not(tmp_path: Any, unspent: Any) -> None:
    table(random_rows(400, 5)).to_parquet(tmp_path / "rows.parquet")
    boosted, effects = partial(pc.privcate, base="dpebm"), partial(pc.privcate, learner="dpcate")
    for data in (tmp_path / "rows.parquet", pl.from_pandas(table(ROWS)).lazy()):
        for call in (boosted, effects, pc.paper.dpebm):
            with pytest.raises(CapabilityError, match="base='gam' or 'linear'"):
                call(FORMULA, data, bounds=BOUNDS, ledger=unspent)


def test_the_watch_is_told_shares_only_where_the_number_of_rows_is_public() -> None:
    rows = table(random_rows(50, 6))
    for neighbors, public in (("substitute", True), ("add_remove", False)):
        s = study(neighbors)
        watch = mock.Mock()
        vault = open_vault(open_source(rows), s.plan(["gram"]), None, "run", watch)
        s.set_layout(vault, groups=False)
        with testing.zero_noise():
            vault.release("gram", mechanisms(s)["gram"])
        shares = None, 1.0 if public else None
        assert watch.call_args_list == [mock.call("gram", share, "rows") for share in shares]


def test_lazy_tables_count_their_rows() -> None:
    assert Lazy(pl.LazyFrame({"x": [1, 2, 3]})).size() == 3
