"""Features of a second release: uneven stretches, products, and the norm they never pass."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.features.design import Design, Rows
from privcausal.features.functions import (
    Block,
    FeatureMap,
    Interactions,
    RescaledFeatures,
    row_weights,
)
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema

SINGLE = 1e-6
"""Products and what is stretched are made as floats of 32 bits."""

SCHEMA = Schema({"a": (0, 1), "b": (-2, 5)})
DESIGN = Design(CausalFormula.parse("y ~ t | a + b").terms, SCHEMA, full_rank=False)
PHI = FeatureMap(DESIGN, (Block(0, (1,), "a", 0.5), Block(1, (1,), "b", 0.9)), 1.1)
LIFT = np.array([[0.1], [-0.3], [0.05]])
PSI = Interactions(
    PHI, None, ((1, 2),), (), np.array([1.0, 0.4, 0.5]), LIFT, np.array([2.0]), np.inf
)


def rows(n: int = 3000, *, by_column: bool = False) -> Rows:
    rng = np.random.default_rng(2)
    return Rows({"a": rng.uniform(0, 1, n), "b": rng.uniform(-2, 5, n)}, n, by_column=by_column)


def test_products_are_those_of_standardised_columns_less_the_lift() -> None:
    at = rows()
    phi = at.phi(PHI)
    first, second = (np.clip(phi[:, j] / PSI.scales[j], -2.5, 2.5) for j in (1, 2))
    expected = 2.0 * (first * second - phi @ LIFT[:, 0])
    np.testing.assert_allclose(at.phi(PSI)[:, 0], expected, atol=1e-6)  # the lift is on a grid
    total = PSI.total(np.array([1.0, -2.0, 0.5]), np.array([0.7]))(at)
    np.testing.assert_allclose(total, phi @ [1.0, -2.0, 0.5] + 0.7 * expected, atol=5 * SINGLE)


@pytest.mark.parametrize("cut", [0.05, 0.9, 3.0, np.inf])
def test_no_row_is_longer_than_the_cut_nor_heavier_than_before(cut: float) -> None:
    features, at = RescaledFeatures(PHI, PSI, np.array([0.3, 2.0, 0.1, 4.0]), cut), rows()
    values = at.phi(features)
    weight = features.weight(values)
    assert (np.linalg.norm(values, axis=1) * weight).max() <= cut * (1 + 1e-12)
    own = PHI.weight(at.phi(PHI))
    assert (weight <= own * (1 + SINGLE)).all()
    short = np.linalg.norm(values, axis=1) * own <= cut
    np.testing.assert_allclose(weight[short], own[short], rtol=SINGLE)


@pytest.mark.parametrize("products", [PSI, None])
def test_rows_are_weighed_as_they_are_made(products: Interactions | None) -> None:
    stretch = np.array([0.3, 2.0, 0.1, 4.0])[: 4 if products else 3]
    features, at = RescaledFeatures(PHI, products, stretch, 0.9), rows(by_column=True)
    made, weight = features.weighted(at)
    phi, parts = at.phi(PHI), [at.phi(PHI)] + ([] if products is None else [at.phi(products)])
    np.testing.assert_allclose(made, np.hstack(parts) * stretch, rtol=SINGLE, atol=5 * SINGLE)
    np.testing.assert_allclose(weight, features.weight(features.of(at)), rtol=SINGLE)
    norms = np.linalg.norm(np.asarray(made, np.float64), axis=1) * weight
    assert norms.max() == pytest.approx(0.9, rel=SINGLE)
    assert (weight <= PHI.weight(phi) * (1 + SINGLE)).all()


def test_as_they_are_they_are_the_features() -> None:
    at = rows()
    same = RescaledFeatures(PHI, None, np.ones(3), PHI.cut)
    np.testing.assert_allclose(at.phi(same), at.phi(PHI), rtol=SINGLE)
    np.testing.assert_allclose(row_weights(same, at), row_weights(PHI, at), rtol=SINGLE)


def test_the_bits_are_the_same_by_row_and_by_column() -> None:
    features = RescaledFeatures(PHI, PSI, np.array([0.3, 2.0, 0.1, 4.0]), 0.9)
    one, other = rows(), rows(by_column=True)
    np.testing.assert_array_equal(one.phi(features), other.phi(features))
    np.testing.assert_array_equal(row_weights(features, one), row_weights(features, other))


def test_products_have_names() -> None:
    assert PSI.names == ["a:b"]
