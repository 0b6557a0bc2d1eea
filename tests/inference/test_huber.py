"""The part of a score's slope that a cut leaves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from privcausal.inference.cuts import LEAST_KEPT, slope_kept

N = 400


def cut_rms(weights: np.ndarray, chances: np.ndarray, sd: float, cut: float) -> float:
    """By quadrature over a normal residual."""
    z = sd * norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    square = [np.mean(np.minimum(np.abs(w) * np.abs(z), cut) ** 2) for w in weights[:, :40].ravel()]
    return float(np.sqrt(np.sum(chances[:, :40].ravel() * square) / 40))


@pytest.mark.parametrize("sd", [0.1, 0.5, 1.0])
def test_equal_weights_leave_the_share_inside_the_cut(sd: float) -> None:
    weights, half = np.ones((2, N)), np.full((2, N), 0.5)
    rms = cut_rms(weights, half, sd, 1.0)
    kept = slope_kept(weights, weights, half, 1.0, rms)
    assert kept == pytest.approx(1 - 2 * norm.sf(1 / sd), abs=1e-4)


@pytest.mark.slow
def test_a_wrong_centre_is_left_behind_after_division() -> None:
    """Cut scores of residuals off by a constant: their mean over the kept slope tells of it."""
    rng = np.random.default_rng(2)
    e = np.tile(rng.uniform(0.1, 0.9, 40), 10)
    weights, left = np.stack([-e / (1 - e), np.ones(N)]), np.stack([-e, 1 - e])
    chances, slopes = np.stack([1 - e, e]), np.stack([e**2 / (1 - e), 1 - e])
    cut, off = 1.5, 0.1
    kept = slope_kept(weights, slopes, chances, cut, cut_rms(weights, chances, 1.0, cut))
    z = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    # Y - mu_T = (T - e) off + z, times its weight
    scores = weights[..., None] * (left[..., None] * off + z)[..., :]
    found = float((chances * np.clip(scores, -cut, cut).mean(axis=2)).sum())
    whole = float((chances * slopes).sum())
    assert found / whole < 0.85 * off  # the mass alone would leave this far from the truth
    assert found / (whole * kept) == pytest.approx(off, rel=0.02)


def test_the_ends() -> None:
    weights, half = np.ones((2, N)), np.full((2, N), 0.5)
    assert slope_kept(weights, weights, half, 1.0, 0.0) == 1.0
    assert slope_kept(weights, weights, half, 1.0, 1e-3) == pytest.approx(1.0)
    assert slope_kept(weights, weights, half, 1.0, 1.0) == LEAST_KEPT
    assert slope_kept(weights, weights, half, 1.0, 0.99) == LEAST_KEPT
