"""Short ways of a pass over rows give the bits of the long ones, and check what those check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from vault_helpers import Study, random_rows, regressors, study, table

from privcausal.features.design import Space
from privcausal.features.functions import (
    PART,
    Additive,
    Extended,
    Interactions,
    by_rows,
    onto,
    row_weights,
)
from privcausal.features.functions import SMALL_PRODUCT as SMALL
from privcausal.vault import Cross, CutScore, OfCovariates, ScoreSums, SizeHistogram
from privcausal.vault.batch import Batch, Layout
from privcausal.vault.queries import moments
from privcausal.vault.queries.sums import Regressors
from privcausal.vault.sources.memory import Memory


@pytest.fixture(scope="module")
def s() -> Study:
    return study("substitute")


def batch(s: Study, rows: int, seed: int = 0) -> Batch:
    layout = Layout(s.request, s.schema, (s.design, s.linear), s.groups)
    wanted = [(name, name in ("G", "B")) for name in layout.variables]
    memory = Memory(table(random_rows(rows, seed)))
    _, columns = next(memory.blocks(wanted, rows))
    return Batch(columns, np.zeros(rows, np.int64), np.ones(rows, bool), layout)


def products(s: Study) -> Interactions:
    rng = np.random.default_rng(5)
    p, linear = s.features.size, np.flatnonzero(s.features.order == 1).tolist()
    pairs, size = ((linear[0], linear[1]),), 1 + 3 + 2
    first, second = ((rng.normal(size=p), 0.1, 2.0) for _ in range(2))
    lift, gain = rng.normal(0, 0.3, (p, size)), rng.uniform(0.2, 1, size)
    splits = (0, 0.2), (1, -0.1)
    return Interactions(
        s.features, (first, second), pairs, pairs, np.ones(p), lift, gain, 2.0, splits
    )


@pytest.mark.parametrize("rows", [1, SMALL - 1, SMALL, 2 * SMALL + 7])
def test_products_in_pieces_are_those_of_the_whole(rows: int) -> None:
    rng = np.random.default_rng(rows)
    left, right = (
        np.asfortranarray(rng.integers(-(2**16), 2**16, (rows, k)).astype(float)) for k in (3, 5)
    )
    whole = left.astype(np.int64).T @ right.astype(np.int64)
    assert (by_rows(left, right) == whole).all()
    lift, out = rng.integers(-9, 9, (3, 4)).astype(float), np.empty((rows, 4), order="F")
    onto(left, lift, out)
    assert (out == left @ lift).all()


@pytest.mark.slow
def test_interactions_of_parts_are_those_of_the_whole(s: Study) -> None:
    rows, psi = batch(s, 2 * PART + 9).rows, products(s)
    whole = psi.of(rows)
    with rows.within(Space()):
        found = [(at, psi.of(part), row_weights(psi, part)) for at, part in psi.parts(rows)]
    assert [at.start for at, _, _ in found] == [0, PART, 2 * PART]
    assert np.nanmax(np.abs(whole)) > 1
    for at, part, weight in found[-1:]:  # each is valid until the next
        np.testing.assert_array_equal(part, whole[at])
        np.testing.assert_array_equal(weight, psi.weight(whole[at]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["additive", "products"])
def test_moments_of_kept_rows_are_those_of_rows_made_anew(s: Study, kind: str) -> None:
    features: Any = s.features if kind == "additive" else products(s)
    cross = Cross(features, OfCovariates(s.e, 1.0), 1.0, "covariates")
    long, found = batch(s, PART + 9), []
    phi, factor = features.of(long.rows), moments.row_scale(features.size) / features.cut
    if kind == "products":  # of 32 bits
        phi = phi.astype(np.float32)
    v = np.rint(phi * (features.weight(phi) * factor).astype(phi.dtype)[:, None])
    assert 0.999 * moments.PRODUCT_UNIT < np.linalg.norm(v, axis=1).max() <= moments.PRODUCT_UNIT
    r = np.where(long.complete, np.rint(s.e(long.rows) * 2.0**16), 0.0)
    for keeps_matrices in (False, True):
        short = batch(s, PART + 9)
        short.rows.keeps_matrices = keeps_matrices
        for _ in range(2):
            with short.rows.within(Space()):
                found.append(cross.integers(short).tolist())
    assert found == [[int(x) for x in v.T @ r]] * 4


def test_functions_of_the_same_products_have_their_own_bits(s: Study) -> None:
    rows, psi, rng = batch(s, 300).rows, products(s), np.random.default_rng(8)
    asked = [
        Extended(Additive(s.features, rng.normal(size=s.features.size)), psi, coef)
        for coef in (rng.normal(size=psi.size), np.r_[0.0, rng.normal(size=psi.size - 1)])
    ]
    alone = [f(batch(s, 300).rows) for f in asked]
    with rows.within(Space()):
        Extended.together(rows, asked)
        for f, value in zip(asked, alone, strict=True):
            np.testing.assert_array_equal(f(rows), value)


def test_a_histogram_of_sizes_counts_as_a_search_does(s: Study) -> None:
    """What is no number counts in the last cell, and what is not complete nowhere."""

    class AbsHistogram:
        bound = 4.0

        def __call__(self, one: Batch) -> Any:
            found = np.linspace(-5, 5, len(one.complete))
            found[::7], found[1::7], found[2::7] = np.nan, 2.0, np.inf
            return found

    one, edges = batch(s, 211), np.array([0.5, 1.0, 2.0, 4.0])
    size = np.abs(AbsHistogram()(one))[one.complete]
    cell = np.minimum(np.searchsorted(edges, size, side="left"), len(edges) - 1)
    expected = np.bincount(cell, minlength=len(edges))
    assert not one.complete.all()
    assert SizeHistogram(AbsHistogram(), edges).integers(one).tolist() == expected.tolist()


@pytest.mark.parametrize("wrong", [3.0, np.nan])
def test_a_row_with_factors_beyond_their_bound_counts_zero(
    s: Study, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = batch(s, 60)
    score, r = CutScore(s.aipw, 4.0), regressors(s, "slopes and groups")
    sums = ScoreSums(score, (s.balance,), r, s.neighbors)
    bad = int(np.flatnonzero(one.complete)[3])
    right, a = sums.integers(one), Regressors.a

    def faulty(self: Regressors, rows: Batch) -> Any:
        found = a(self, rows)
        found[bad, 1] = wrong
        return found

    monkeypatch.setattr(Regressors, "a", faulty)
    found = sums.integers(one)
    monkeypatch.undo()
    one.complete[bad] = False
    assert found.tolist() == sums.integers(one).tolist() != right.tolist()


def test_what_a_pass_makes_no_use_of_is_let_go(s: Study) -> None:
    rows, space = batch(s, 30).rows, Space()
    one, two = s.e, s.additive(2, -2.0, 6.0)
    table = (object(),)

    def held(*objects: object) -> bool:
        return any([*map(id, objects)] == [*map(id, e.objects)] for e in rows.cache.values())

    with rows.within(space):
        one(rows)
        rows.keep(table, np.zeros((30, 2), np.float32))
    assert held(one.features, one.coef)
    with rows.within(space):
        two(rows)
    assert not held(one.features, one.coef)
    assert held(two.features, two.coef)
    assert held(*table)  # tables that several passes have in common


@pytest.mark.parametrize("rows", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL])
def test_tables_without_columns_have_products_whatever_their_rows(rows: int) -> None:
    """The number of rows may be private: that a product fails from one on would tell it."""
    some, none = np.ones((rows, 2)), np.ones((rows, 0))
    assert by_rows(none, some).shape == (0, 2)
    assert by_rows(some, none).shape == (2, 0)
    onto(np.asfortranarray(some), np.ones((2, 0)), np.empty((rows, 0), order="F"))
