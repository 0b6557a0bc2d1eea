"""Regression with one unknown scale per coefficient."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import PRIOR_SCALES as SCALES
from privcausal.inference.regression import (
    Moments,
    ScaleMixturePrior,
    mixture,
    second_moment,
)

SIZE = 13
KIND = np.r_[-1, np.zeros(6, int), np.ones(6, int)]
LAW = ScaleMixturePrior(4.0, np.ones(SIZE), KIND)


def moments(beta, sd, seed=0, rows=1000.0):
    gram = rows * np.eye(SIZE)
    noise = np.random.default_rng(seed).standard_normal(SIZE)
    return Moments(gram, gram @ beta + sd * noise, 0.0, sd, 1e-6)


def sparse():
    beta = np.zeros(SIZE)
    beta[[0, 2, 9]] = 0.7, 1.5, -2.0
    return beta


def test_without_noise_it_is_least_squares():
    beta = np.linspace(-1, 1, SIZE)
    found = mixture(moments(beta, 1e-3), LAW)
    np.testing.assert_allclose(found.mean, beta, atol=1e-4)


def test_few_large_coefficients_are_found_and_the_others_are_not():
    """At noise .2 a coefficient; least squares would have a squared error of 13 x .04 = .52."""
    errors = [
        float(np.sum((mixture(moments(sparse(), 200.0, seed), LAW).mean - sparse()) ** 2))
        for seed in range(8)
    ]
    assert np.mean(errors) < 0.3


def test_no_coefficient_is_invented():
    found = [mixture(moments(np.zeros(SIZE), 200.0, seed), LAW) for seed in range(8)]
    assert np.mean([np.sum(f.mean[1:] ** 2) for f in found]) < 0.1  # least squares: .48


def test_the_covariance_holds_the_errors():
    """z of 8 x 13 errors under the law's own prior: mean square near one (below 2 and above .3)."""
    rng, z = np.random.default_rng(5), []
    for seed in range(8):
        beta = np.where(rng.random(SIZE) < 0.3, rng.standard_normal(SIZE), 0.0)
        found = mixture(moments(beta, 200.0, seed), LAW)
        z.extend((found.mean - beta) ** 2 / np.diag(found.cov))
    assert 0.3 < np.mean(z) < 2.0


def test_evidence_prefers_scales_that_made_the_moments():
    """Against units a thousand times too small for the coefficients there are."""
    small = ScaleMixturePrior(4.0, np.full(SIZE, 1e-3), KIND)
    at = moments(sparse(), 50.0)
    assert mixture(at, LAW).evidence > mixture(at, small).evidence + 10


def test_it_is_a_function_of_the_moments():
    at = moments(sparse(), 200.0)
    np.testing.assert_array_equal(mixture(at, LAW).mean, mixture(at, LAW).mean)


@pytest.mark.parametrize("sd", [1e-3, 200.0, 1e7])
def test_spread_is_the_posterior_and_the_distance_to_its_mean(sd):
    """With an orthogonal Gram the posterior is known entry by entry."""
    at, estimate = moments(sparse(), sd), np.full(SIZE, 0.3)
    prior = 0.25
    variance = (sd**2 + 1e-6 * 1000) / 1000**2 + 1e-9 * 1e-6 / 1000  # the floor of the noise
    keep = prior / (prior + variance)
    gap = estimate - keep * at.cross / 1000
    expected = keep * variance * np.eye(SIZE) + np.outer(gap, gap)
    np.testing.assert_allclose(
        second_moment(at, prior * np.eye(SIZE), estimate), expected, rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("value", [0.02, 0.3, 1.5, 6.0])
def test_one_coefficient_is_exact(value):
    """Mean, variance and evidence against sums over the ten scales that there are.

    A normal factor cannot widen what the moments say, as a mixture of two minds can.
    """
    n, sd, unit = 50.0, 20.0, 0.7
    one = ScaleMixturePrior(1.0, np.array([unit]), np.zeros(1, int))
    found = mixture(Moments(np.eye(1) * n, np.array([n * value]), 0.0, sd, 1e-6), one)
    variance = (sd**2 + 1e-6 * n) / n**2
    prior = (unit * np.geomspace(PRIORS.least_scale, PRIORS.most_scale, SCALES)) ** 2
    share = np.r_[PRIORS.negligible, np.full(SCALES - 1, (1 - PRIORS.negligible) / (SCALES - 1))]
    height = share * np.exp(-0.5 * value**2 / (prior + variance)) / np.sqrt(prior + variance)
    chance, keep = height / height.sum(), prior / (prior + variance)
    mean = chance @ keep * value
    square = chance @ (keep * variance + (keep * value) ** 2)
    assert found.mean[0] == pytest.approx(mean, rel=1e-4)
    assert found.cov[0, 0] == pytest.approx(min(square - mean**2, variance), rel=5e-3)
    nothing = -0.5 * value**2 / variance - 0.5 * np.log(variance)
    error = sd**2 + 1e-6 * n  # of the moment
    none = -0.5 * (n * value) ** 2 / error - 0.5 * np.log(error)
    assert found.evidence - none == pytest.approx(np.log(height.sum()) - nothing, abs=1e-3)


def test_evidence_of_many_is_that_of_each_where_nothing_is_shared():
    """Coefficients of classes of their own, an orthogonal Gram: likelihoods multiply."""
    beta, n, sd = np.array([0.8, 0.0, -2.0]), 100.0, 30.0
    law = ScaleMixturePrior(1.0, np.ones(3), np.arange(3))
    whole = mixture(Moments(n * np.eye(3), n * beta, 0.0, sd, 1e-6), law)
    single = ScaleMixturePrior(1.0, np.ones(1), np.zeros(1, int))
    each = [mixture(Moments(n * np.eye(1), np.array([n * b]), 0.0, sd, 1e-6), single) for b in beta]
    assert whole.evidence == pytest.approx(sum(one.evidence for one in each), abs=1e-3)
