"""The synthetic population, the basis built on it, and Gram matrices helped by it."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.features.design import FINE_BINS as FINE
from privcausal.features.design import Design, Rows
from privcausal.inference.population import (
    Population,
    correlated,
    feature_map,
    interval_probabilities,
    level_probabilities,
    population_gram,
    shrunken,
    smooth_table,
)
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema

SCHEMA = Schema({"a": (0.0, 1.0), "b": (-2.0, 2.0), "g": ["u", "v", "w"]})


def population(correlation: float = 0.0) -> Population:
    uniform = np.full(FINE, 1.0 / FINE)
    return Population(
        SCHEMA,
        {"a": uniform, "b": uniform, "g": np.array([0.5, 0.3, 0.2, 0.0])},
        np.array([[1.0, correlation], [correlation, 1.0]]),
        1000.0,
    )


def design(text: str = "y ~ t | a + b + C(g)") -> Design:
    return Design(CausalFormula.parse(text).terms, SCHEMA, full_rank=False)


def test_population_has_its_marginals_and_dependence() -> None:
    rows = population(0.6).rows()
    assert np.corrcoef(rows.frame["a"], rows.frame["b"])[0, 1] == pytest.approx(0.58, abs=0.06)
    shares = np.bincount(rows.frame["g"], minlength=3) / len(rows)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)
    assert rows.frame["a"].min() >= 0 and rows.frame["b"].max() <= 2


def test_population_is_the_same_each_time() -> None:
    one, two = population(0.3).rows(), population(0.3).rows()
    assert all(np.array_equal(one.frame[v], two.frame[v]) for v in one.frame)


def test_histogram_of_noise_is_a_usual_column() -> None:
    """Noise hides all: the column varies as usual columns do, not as its bounds allow."""
    z = (np.arange(FINE) + 0.5) / FINE
    for seed in range(20):
        p = interval_probabilities(np.random.default_rng(seed).normal(0, 5000, 16), 5000.0, 1000.0)
        assert p.sum() == pytest.approx(1.0)
        assert 0.15 < np.sqrt(p @ z**2 - (p @ z) ** 2) < 0.286  # the uniform: .289


def test_few_rows_of_a_normal_column_are_not_spread_over_the_bounds() -> None:
    """Noise of sd 110 on 16 bins of 1000 rows: the sd of the column is .14 and not .29."""
    rng, z = np.random.default_rng(3), (np.arange(FINE) + 0.5) / FINE
    found = []
    for _ in range(20):
        counts = np.histogram(rng.normal(0.5, 0.14, 1000), 16, (0, 1))[0] + rng.normal(0, 110, 16)
        p = interval_probabilities(counts, 110.0, 1000.0)
        assert p.min() >= 0 and p.sum() == pytest.approx(1.0)
        found.append(np.sqrt(p @ z**2 - (p @ z) ** 2))
    assert np.mean(found) < 0.24


def test_many_rows_are_taken_as_they_are() -> None:
    counts = np.r_[np.full(8, 100.0), np.full(8, 9000.0)]
    noisy = counts + np.random.default_rng(4).normal(0, 60, 16)
    p = interval_probabilities(noisy, 60.0, counts.sum()).reshape(16, -1).sum(axis=1)
    np.testing.assert_allclose(
        p, counts / counts.sum(), atol=0.04
    )  # neighbouring bins are averaged


def test_many_zeros_stay_in_their_bin_as_far_as_noise_shows_them() -> None:
    """95 % of 3,000 rows are 0: noise of sd 12 shows the spike, noise of sd 3,000 does not."""
    counts = np.r_[2850.0, np.full(15, 10.0)]
    noise = np.random.default_rng(5).normal(0, 1, 16)
    clear, hidden = (
        interval_probabilities(counts + sd * noise, sd, 3000.0).reshape(16, -1).sum(axis=1)
        for sd in (12.0, 3000.0)
    )
    assert clear[0] > 0.88 and clear[1] < 0.05
    assert hidden[0] < 0.5


def test_exact_histogram_is_kept() -> None:
    counts = np.arange(1.0, 17.0) * 100
    p = interval_probabilities(counts, 0.0, counts.sum()).reshape(16, -1).sum(axis=1)
    np.testing.assert_allclose(p, 0.98 * counts / counts.sum() + 0.02 / 16, rtol=1e-12)


def test_level_probabilities_drop_a_silent_undeclared_cell() -> None:
    p = level_probabilities(np.array([500.0, 300.0, 3.0]), 10.0, undeclared=True)
    assert p[2] == 0.0 and p.sum() == pytest.approx(1.0)
    noisy = level_probabilities(np.array([3.0, -2.0, 1.0]), 100.0, undeclared=True)
    np.testing.assert_allclose(noisy, [0.5, 0.5, 0.0])


def test_smooth_table_is_orthonormal_and_linear_first() -> None:
    p = np.full(FINE, 1.0 / FINE)
    table = smooth_table(p, 3)
    full = np.c_[np.ones(FINE), table]
    np.testing.assert_allclose(full.T @ (full * p[:, None]), np.eye(4), atol=1e-8)
    assert np.corrcoef(table[:, 0], np.arange(FINE))[0, 1] > 0.999


def test_norm_cut_bounds_weighted_features() -> None:
    features = feature_map(design(), population(), 3, 0.5)
    rng = np.random.default_rng(1)
    rows = Rows(
        {"a": rng.uniform(0, 1, 500), "b": rng.uniform(-2, 2, 500), "g": rng.integers(-1, 3, 500)},
        500,
    )
    phi = features.of(rows)
    w = features.weight(phi)
    norms = np.linalg.norm(phi, axis=1)
    assert (np.sqrt(w) * norms <= features.cut * (1 + 1e-12)).all()
    assert (w * norms <= features.cut * (1 + 1e-12)).all() and (w <= 1).all()


def test_gram_shrinks_to_the_model_under_noise_and_not_without() -> None:
    features = feature_map(design(), population(), 2, 0.5)
    rows = population().rows()
    model = population_gram(features, rows, 1000.0, np.ones(len(rows)))
    seen = model * 1.2
    np.testing.assert_allclose(shrunken(seen, model, 0.0, features).value, seen)
    kept = shrunken(seen, model, 1e6, features)
    np.testing.assert_allclose(kept.value, model)
    assert kept.sd == 0.0


def test_dependence_is_learnt_from_the_gram() -> None:
    features = feature_map(design(), population(), 2, 0.5)
    rows = population(0.7).rows()
    gram = population_gram(features, rows, 1000.0, np.ones(len(rows)))
    learnt = correlated(population(), features, gram, 0.01)
    assert learnt.correlation[0, 1] == pytest.approx(0.7, abs=0.12)
    independent = correlated(population(), features, gram, 1e5)
    assert independent.correlation[0, 1] == pytest.approx(0.0, abs=1e-9)


def test_rows_remember_features_of_each_map() -> None:
    rows = Rows({"a": np.array([0.2]), "b": np.array([0.0]), "g": np.array([1])}, 1)
    features = feature_map(design(), population(), 2, 0.5)
    assert rows.phi(features) is rows.phi(features)
