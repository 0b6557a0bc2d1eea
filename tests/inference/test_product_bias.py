"""What nuisance errors leave in the residual product: its law by simulation, and its limits."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.inference.regression import Regression, leftover
from privcausal.inference.regression import RegressionPair as Pair

Source = tuple[np.ndarray, Pair, np.ndarray, np.ndarray]
P, POINTS, DRAWS = 3, 4, 200_000
SHARED = np.array([0, 1, 1]) > 0


def source(noise: float, gap: float = 0.0) -> Source:
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((POINTS, P))
    beta_e, beta_y = np.array([0.0, 0.1, -0.1]), np.array([0.2, 1.0, -0.5])
    gram = 100.0 * np.eye(P)
    e = Regression(gram, gram @ beta_e, noise**2 * np.eye(P), np.full(P, 0.01))
    y = Regression(gram, gram @ beta_y, (5 * noise) ** 2 * np.eye(P), np.full(P, 1.0))
    pair = Pair(e, y, SHARED, effect=0.5)
    used_e, used_y = pair.mean
    return phi, pair, used_e + gap, used_y - gap


def simulated(one: Source) -> np.ndarray:
    """Draws of d_e d_b at the points, shape (DRAWS, POINTS)."""
    rng = np.random.default_rng(4)
    phi, pair, used_e, used_y = one
    weights, laws, *_ = pair.posterior
    pick = rng.choice(len(laws), DRAWS, p=weights)
    out = np.empty((DRAWS, POINTS))
    for k, (mean, cov) in enumerate(laws):
        at = pick == k
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0))
        beta = mean + rng.standard_normal((int(at.sum()), 2 * P)) @ root.T
        d_e = beta[:, :P] - used_e
        d_b = beta[:, P:] - used_y - pair.effect * d_e
        out[at] = (d_e @ phi.T) * (d_b @ phi.T)
    return out


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_law_by_simulation(gap: float) -> None:
    """Six standard errors: a false alarm in fewer than one of 1e6 runs."""
    one = source(15.0, gap)
    drawn, (mean, cov) = simulated(one), leftover([one])
    error = drawn.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(mean - drawn.mean(axis=0)) < 6 * error + 1e-3 * np.abs(mean)).all()
    # covariances of products of normals have tails of their own: within a tenth of the largest
    found = np.cov(drawn.T)
    assert cov == pytest.approx(found, abs=0.1 * found.max())


def test_without_noise_nothing_is_left() -> None:
    for moment in leftover([source(1e-3)]):
        assert np.abs(moment).max() < 1e-6


def test_what_is_used_instead_of_the_mean_is_what_is_left() -> None:
    one = source(1e-3, gap=0.05)
    d_e = -0.05 * one[0].sum(axis=1)
    d_b = 0.05 * one[0].sum(axis=1) - 0.5 * d_e
    assert leftover([one])[0] == pytest.approx(d_e * d_b, abs=1e-6)


def test_support_tells_signal_from_none() -> None:
    gram, error, prior = 100.0 * np.eye(P), 25.0 * np.eye(P), np.full(P, 1.0)
    none = Regression(gram, np.zeros(P), error, prior)
    some = Regression(gram, np.full(P, 100.0), error, prior)
    assert Pair(none, none, SHARED).support < 0 < Pair(none, some, SHARED).support
    value = np.log(1 + 100**2 / 25)  # of each coefficient, twice its log
    assert Pair(none, none, SHARED).support == pytest.approx(-P * value, rel=1e-6)
