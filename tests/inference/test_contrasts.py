"""Shapes of noise, contrasts and ratios, against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privcausal.inference.effects import AverageEstimate, contrasted, noise_shape, ratio_limits
from privcausal.request.formula import ResultTerm

Z = float(norm.ppf(0.975))


def estimate(value: Any, sampling: Any, privacy: Any, clipping: Any = None) -> AverageEstimate:
    value = np.array(value, float)
    zero = np.zeros(len(value))
    terms = tuple(ResultTerm("effect", f"x{k}") for k in range(len(value)))
    bias = zero if clipping is None else np.array(clipping, float)
    return AverageEstimate(
        terms, (), value, np.array(sampling, float), np.array(privacy, float), bias, zero, 100.0
    )


def test_the_shape_holds_every_point() -> None:
    points = np.random.default_rng(1).standard_normal((400, 3)) @ np.diag([1.0, 5.0, 0.1])
    shape = noise_shape(points, np.diag([1.0, 0.04, 100.0]))
    reach = np.einsum("ij,jk,ik->i", points, np.linalg.inv(shape), points)
    assert reach.max() <= 1 + 1e-9
    assert reach.max() >= 1 - 1e-6


def test_the_shape_of_two_orthogonal_points_is_known() -> None:
    """Least w1 V11 + w2 V22 subject to a^2/V11 <= 1 and b^2/V22 <= 1: both hold with equality."""
    shape = noise_shape(np.array([[2.0, 0.0], [0.0, 0.5]]), np.diag([1.0, 3.0]))
    assert shape == pytest.approx(np.diag([4.0, 0.25]), rel=1e-4, abs=1e-4)


def test_the_shape_of_a_right_triangle_is_known() -> None:
    """Of (1, 1/3) and (1, 1): in ATE and difference, V = diag(1 + s, d^2 (1 + 1/s))."""
    points = np.array([[1.0, 1 / 3], [1.0, 1.0]])
    shape = noise_shape(points, np.eye(2))
    shares = np.linspace(0.01, 3, 3000)
    base, away = 1 + shares, (1 + 1 / shares) / 9
    least = (base + 4 / 9 * base + away).min()
    assert np.trace(shape) <= least * 1.001  # the family has a fixed axis, the shape has not
    assert np.trace(shape) >= 0.9 * least


def test_alike_scores_cost_no_more_than_one() -> None:
    points = np.outer(np.linspace(-2, 2, 9), [1.0, 0.5])
    shape = noise_shape(points, np.eye(2))
    assert np.sqrt(np.diag(shape)) == pytest.approx([2.0, 1.0], rel=2e-3)


def test_contrasts_are_the_textbooks() -> None:
    value = [1.0, 2.0, 4.0]
    root = np.random.default_rng(2).standard_normal((3, 3))
    found = estimate(value, root @ root.T, np.eye(3), [0.1, 0.0, 0.2])
    weights = np.array([[1.0, -1.0, 0.0], [0.5, 0.0, 0.5]])
    told = contrasted(found, weights, np.zeros(2))
    assert told.estimate == pytest.approx([-1.0, 2.5])
    assert told.sd == pytest.approx(
        np.sqrt(np.diag(weights @ (root @ root.T + np.eye(3)) @ weights.T))
    )
    assert told.bias == pytest.approx([0.1, 0.15])
    alone = contrasted(found, np.eye(3), np.zeros(3))
    shown = alone.columns(Z)
    assert shown["conf_high"] - alone.estimate == pytest.approx(found.half_widths(Z))
    assert alone.estimate - shown["conf_low"] == pytest.approx(found.half_widths(Z))


def test_a_group_without_an_estimate_has_no_contrast() -> None:
    found = estimate([1.0, np.nan], np.diag([1.0, np.inf]), np.eye(2))
    told = contrasted(found, np.array([[1.0, 0.0], [1.0, -1.0]]), np.zeros(2))
    assert np.isfinite(told.sd[0])
    assert np.isnan(told.estimate[1])
    assert np.isinf(told.sd[1])


def fieller(risk: Any, cov: Any) -> tuple[float, float]:
    """Roots of (r1 - q r0)^2 = z^2 (v11 - 2 q v01 + q^2 v00)."""
    (r0, r1), z2 = risk, Z**2
    roots = np.roots(
        [r0**2 - z2 * cov[0, 0], -2 * (r0 * r1 - z2 * cov[0, 1]), r1**2 - z2 * cov[1, 1]]
    )
    return float(roots.min()), float(roots.max())


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.7])
def test_limits_of_a_risk_ratio_are_fiellers(correlation: float) -> None:
    risk, sd = np.array([0.10, 0.17]), np.array([0.02, 0.03])
    cov = np.outer(sd, sd) * np.array([[1, correlation], [correlation, 1]])
    told = ratio_limits(estimate(risk, 0.6 * cov, 0.4 * cov), (0, 1), "RR", Z)
    assert (told.low, told.high) == pytest.approx(fieller(risk, cov), rel=1e-6)
    assert told.estimate == pytest.approx(1.7)
    assert told.se_sampling == pytest.approx(np.sqrt(0.6) * told.std_error)


def test_limits_of_an_odds_ratio_are_those_of_a_profile() -> None:
    """All points of the ellipse, by a fine grid; none is beyond the limits, some nearly reach."""
    risk, cov = np.array([0.3, 0.55]), np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    told = ratio_limits(estimate(risk, cov, np.zeros((2, 2))), (0, 1), "OR", Z)
    angles = np.linspace(0, 2 * np.pi, 200_001)
    p0, p1 = risk[:, None] + Z * np.linalg.cholesky(cov) @ [np.cos(angles), np.sin(angles)]
    ratios = p1 / (1 - p1) / (p0 / (1 - p0))
    assert (told.low, told.high) == pytest.approx((ratios.min(), ratios.max()), rel=1e-7)


def test_a_risk_that_may_be_zero_leaves_no_limit() -> None:
    few = estimate([0.01, 0.04], np.diag([1e-4, 1e-4]), np.zeros((2, 2)))
    told = ratio_limits(few, (0, 1), "RR", Z)
    assert told.high == np.inf
    assert 0 < told.low < 4
    rare = ratio_limits(few, (1, 0), "RR", Z)
    assert rare.low == 0
    assert np.isfinite(rare.high)
    nobody = ratio_limits(estimate([-0.01, 0.04], np.eye(2) * 1e-4, np.eye(2) * 0), (0, 1), "RR", Z)
    assert np.isnan(nobody.estimate)
    assert nobody.high == np.inf
    sure = estimate([0.5, 0.99], np.diag([1e-4, 1e-4]), np.zeros((2, 2)))
    assert ratio_limits(sure, (0, 1), "OR", Z).high == np.inf
    assert np.isfinite(ratio_limits(sure, (0, 1), "RR", Z).high)


def test_limits_allow_for_cut_scores() -> None:
    risk, cov = [0.2, 0.3], np.diag([1e-4, 1e-4])
    plain = ratio_limits(estimate(risk, cov, np.zeros((2, 2))), (0, 1), "RR", Z)
    cut = ratio_limits(estimate(risk, cov, np.zeros((2, 2)), [0.01, 0.0]), (0, 1), "RR", Z)
    assert cut.low < plain.low < plain.high < cut.high


@pytest.mark.slow
def test_ratios_cover_where_events_are_few() -> None:
    """Noisy normal risks of which the control's is two standard errors above zero."""
    rng = np.random.default_rng(3)
    truth, cov = np.array([0.02, 0.05]), np.diag([1e-4, 1.5e-4])
    hits = 0
    for _ in range(400):
        drawn = rng.multivariate_normal(truth, cov)
        told = ratio_limits(estimate(drawn, cov, np.zeros((2, 2))), (0, 1), "RR", Z)
        hits += told.low <= 2.5 <= told.high
    assert hits >= 366  # 95 % of 400 less three standard errors
