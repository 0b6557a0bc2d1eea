"""Objective perturbation: the law of its vector, its minimum, its claim (false alarms: 1e-6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import gamma, kstest, norm
from sklearn.linear_model import LogisticRegression

from privcausal import testing
from privcausal.features.functions import Polynomials
from privcausal.request.partition import Coordinates
from privcausal.request.schema import Schema
from privcausal.vault import PublishedLogits, noise
from privcausal.vault.exit import Exit
from privcausal.vault.published import CURVATURE, RIDGE_SHARE, drawn, minimum, ridge_price

LEVEL = 1e-6


def mechanism(neighbors: Any = "substitute", degree: int = 2, C: Any = None) -> PublishedLogits:
    schema = Schema({"X": (-1, 1), "Z": (0, 4)})
    return PublishedLogits(Polynomials(Coordinates(schema, ("X", "Z")), degree), neighbors, C)


def arms(n: int = 60, seed: int = 0) -> tuple[Any, Any, Any]:
    """phi of norm at most one with rows at the corners, signs, and arms."""
    rng = np.random.default_rng(seed)
    polynomials = mechanism().polynomials
    frame = {"X": rng.choice([-1.0, 1.0, 0.3], n), "Z": rng.uniform(0, 4, n)}
    phi = polynomials.of(frame) / math.sqrt(polynomials.bound)
    return phi, rng.choice([-1.0, 1.0], n), rng.integers(0, 2, n)


def test_rows_are_no_longer_than_one() -> None:
    phi, _, _ = arms(500)
    assert 0.99 < np.linalg.norm(phi, axis=1).max() <= 1 + 1e-12


def test_the_vectors_law() -> None:
    """Density proportional to exp(-||b||) in three dimensions: length and direction."""
    with testing.seeded_noise(3):
        add = Exit(None, noise.current()).claimed  # type: ignore[arg-type]  # no stage
        b = np.array([drawn(3, add) for _ in range(4000)])
    length = np.linalg.norm(b, axis=1)
    assert kstest(length, gamma(3).cdf).pvalue > LEVEL
    assert kstest(length, gamma(2.5).cdf).pvalue < LEVEL
    for j in range(3):  # a coordinate of a uniform direction in space is uniform
        assert kstest((b[:, j] / length + 1) / 2, "uniform").pvalue > LEVEL
    assert abs(np.corrcoef(b[:, 0], length)[0, 1]) < norm.isf(LEVEL) / math.sqrt(4000)


def test_without_noise_it_is_penalised_logistic_regression() -> None:
    phi, sign, _ = arms(400)
    for ridge in (0.05, 5.0):
        model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-10, max_iter=1000)
        found = minimum(phi, sign, ridge, np.zeros(phi.shape[1]))
        assert found == pytest.approx(model.fit(phi, sign).coef_[0], abs=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_the_minimum_has_no_slope(rows: int) -> None:
    """Also of an arm without rows, and with a long vector."""
    phi, sign, _ = arms(max(rows, 1))
    phi, sign = phi[:rows], sign[:rows]
    b = np.linspace(-40, 60, phi.shape[1])
    w = minimum(phi, sign, 0.7, b)
    slope = 0.7 * w + b - phi.T @ (sign * expit(-sign * (phi @ w)))
    assert np.abs(slope).max() < 1e-6


def log_density(w: Any, phi: Any, sign: Any, beta: float, ridge: float) -> float:
    """Of the minimum w: that of the b which leads there, times the Jacobian."""
    p = expit(-sign * (phi @ w))
    b = phi.T @ (sign * p) - ridge * w
    jacobian = (phi.T * (p * (1 - p))) @ phi + ridge * np.eye(len(w))
    return -beta * float(np.linalg.norm(b)) + float(np.linalg.slogdet(jacobian)[1])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_what_is_claimed_of_exact_numbers(neighbors: Any, epsilon: float) -> None:
    """Over minima and neighbours, a row moved between arms included: at most epsilon is lost."""
    beta, ridge = mechanism(neighbors).law(epsilon)
    assert beta > 0.5 * (1 - RIDGE_SHARE) * epsilon * 0.999
    rng = np.random.default_rng(1)
    lost = []
    for trial in range(300):
        phi, sign, t = arms(int(rng.integers(1, 6)), trial)
        other = phi, sign.copy(), t.copy()
        keep = np.ones(len(t), bool)
        if neighbors == "substitute":
            other[1][0], other[2][0] = -sign[0], rng.integers(0, 2)
        else:
            keep[0] = False
        total = 0.0
        for arm in (0, 1):
            w = rng.normal(size=phi.shape[1]) * 10 ** rng.uniform(-2, 2)
            one, two = t == arm, (other[2] == arm) & keep
            total += log_density(w, phi[one], sign[one], beta, ridge)
            total -= log_density(w, phi[two], other[1][two], beta, ridge)
        lost.append(abs(total))
    assert max(lost) <= epsilon * (1 + 1e-9)
    assert max(lost) >= epsilon / 3


def test_the_ridge_is_what_its_share_pays_for() -> None:
    for neighbors, rows in (("substitute", 2), ("add_remove", 1)):
        beta, ridge = mechanism(neighbors).law(0.7)
        assert rows * math.log1p(CURVATURE / ridge) == pytest.approx(RIDGE_SHARE * 0.7)
        assert rows * (beta + math.log1p(CURVATURE / ridge)) == pytest.approx(0.7)
        assert mechanism(neighbors).law(1e4)[1] == mechanism(neighbors).law(5e3)[1] > 0.01


@pytest.mark.parametrize(("neighbors", "rows"), [("substitute", 2), ("add_remove", 1)])
def test_a_ridge_of_ones_own_costs_what_it_says(neighbors: Any, rows: int) -> None:
    beta, ridge = mechanism(neighbors, C=0.5).law(0.7)
    assert ridge == 2.0
    assert ridge_price(0.5, neighbors) == pytest.approx(rows * math.log1p(CURVATURE / 2))
    assert rows * beta + ridge_price(0.5, neighbors) == pytest.approx(0.7)
