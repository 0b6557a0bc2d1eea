"""Sizes of the features of a release: the least posterior variance at one norm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privcausal.estimators.meta import water_filling

VARIANCES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12).map(np.array)


def left(variance, noise, squares):
    return float(np.sum(variance * noise / (noise + squares * variance)))


@pytest.mark.slow
@settings(max_examples=100, deadline=None, database=None)
@given(variance=VARIANCES, noise=st.floats(1e-6, 1e3), seed=st.integers(0, 2**32 - 1))
def test_nothing_of_the_same_norm_leaves_less(variance, noise, seed):
    found = water_filling(variance, noise)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    best = left(variance, noise, found)
    rng = np.random.default_rng(seed)
    for other in rng.dirichlet(np.full(len(variance), 0.5), 20):
        assert best <= left(variance, noise, other) * (1 + 1e-9)


def test_without_noise_all_are_alike():
    np.testing.assert_allclose(water_filling(np.array([1e-3, 1.0, 50.0]), 0.0), 1 / 3)


@pytest.mark.parametrize("noise", [1e9, 1e16, 1e100, 1e300])
def test_any_noise_leaves_a_layout(noise):
    found = water_filling(np.array([1.0, 3.0, 2.0]), noise)
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)


def test_where_noise_hides_all_the_least_known_has_everything():
    np.testing.assert_allclose(water_filling(np.array([1.0, 2.0, 0.5]), 1e6), [0, 1, 0])
