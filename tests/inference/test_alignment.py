"""Moments of synthetic rows, moved to where the released Gram has rows."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.inference.population import alignment

N = 20_000


def curves(x: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(x), x, x**2 - 1 / 3, x**3 - 0.6 * x], axis=1)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_curves_of_a_column_of_two_values_have_no_variance_left(rng: np.random.Generator) -> None:
    """Synthetic rows spread by a tenth around -1 and 1; the rows are at the two."""
    rows = rng.choice([-1.0, 1.0], N)
    spread = curves(rows + rng.uniform(-0.1, 0.1, N))
    model, seen = spread.T @ spread / N, curves(rows).T @ curves(rows) / N
    move = alignment(model, seen, 0.0)
    moved = move @ model @ move.T
    assert moved == pytest.approx(seen, abs=0.05)
    # directions in which the rows do not vary: x^2 - 1 and x^3 - x
    for still in (np.array([-2 / 3, 0, 1, 0]), np.array([0, -0.4, 0, 1])):
        assert still @ moved @ still < 0.05 * (still @ model @ still)


def test_where_the_model_is_right_nothing_moves(rng: np.random.Generator) -> None:
    phi = curves(rng.uniform(-1, 1, N))
    model = phi.T @ phi / N
    assert alignment(model, model, 0.0) == pytest.approx(np.eye(4), abs=1e-6)


@pytest.mark.parametrize("noise", [0.003, 0.03, 0.3, 3.0])
def test_noise_takes_no_variance_off(noise: float, rng: np.random.Generator) -> None:
    """At 2 sds a direction is below by chance in 2 %: on average over all, none is."""
    phi = curves(rng.uniform(-1, 1, N))
    model, kept = phi.T @ phi / N, []
    for _ in range(200):
        e = rng.standard_normal((4, 4)) * noise
        seen = model + np.triu(e) + np.triu(e, 1).T + np.diag(np.diag(e)) * (np.sqrt(2) - 1)
        move = alignment(model, seen, noise)
        kept.append(np.trace(np.linalg.solve(model, move @ model @ move.T)) / 4)
    assert np.mean(kept) > 0.9
