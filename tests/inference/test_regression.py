"""Empirical-Bayes regression from noisy moments: limits, gradients, and what noise does to it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from privcausal.inference import regression
from privcausal.inference.regression import Moments, Posterior, Prior


def study(n: int = 4000, p: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    phi = np.c_[np.ones(n), rng.standard_normal((n, p - 1)) * 0.5]
    beta = np.r_[1.0, rng.standard_normal(p - 1)]
    return phi, phi @ beta + rng.standard_normal(n), beta


def moments_of(
    phi: np.ndarray, y: np.ndarray, gram_sd: float = 0.0, cross_sd: float = 0.0
) -> Moments:
    return Moments(phi.T @ phi, phi.T @ y, gram_sd, cross_sd, 1.0)


def ridge_prior(p: int, fixed: float = 4.0, pull: float = 0.03, **kwargs: object) -> Prior:
    group = np.r_[0, np.ones(p - 1, np.int64)]
    return Prior(group, np.ones(p), fixed, np.array([0.0]), pull, **kwargs)  # type: ignore[arg-type]


def test_without_noise_least_squares_is_least_squares() -> None:
    phi, y, _ = study()
    fitted = regression.least_squares(moments_of(phi, y), np.ones(6))
    np.testing.assert_allclose(fitted.mean, np.linalg.lstsq(phi, y, rcond=None)[0], rtol=1e-8)


def test_without_noise_empirical_bayes_is_nearly_least_squares() -> None:
    phi, y, _ = study()
    fitted = regression.fit(moments_of(phi, y), ridge_prior(6))
    exact = np.linalg.lstsq(phi, y, rcond=None)[0]
    np.testing.assert_allclose(fitted.mean, exact, atol=5e-3)


def test_posterior_variance_is_that_of_least_squares_without_noise() -> None:
    phi, y, _ = study()
    fitted = regression.fit(moments_of(phi, y), ridge_prior(6))
    np.testing.assert_allclose(np.diag(fitted.cov), np.diag(np.linalg.inv(phi.T @ phi)), rtol=0.05)


def test_noise_pulls_slopes_to_zero_and_widens_the_posterior() -> None:
    phi, y, _ = study()
    quiet = regression.fit(moments_of(phi, y), ridge_prior(6))
    loud = regression.fit(moments_of(phi, y, cross_sd=5_000.0), ridge_prior(6))
    assert np.abs(loud.mean[1:]).sum() < 0.2 * np.abs(quiet.mean[1:]).sum()
    assert (np.diag(loud.cov) > 5 * np.diag(quiet.cov)).all()


def test_a_strong_pull_keeps_the_posterior_from_collapsing() -> None:
    """Where the data cannot speak, the error bar stays at the public prior's size."""
    phi, _, _ = study()
    silent = Moments(phi.T @ phi, np.zeros(6), 0.0, 50_000.0, 1.0)
    fitted = regression.fit(silent, ridge_prior(6, pull=0.25))
    assert (np.diag(fitted.cov)[1:] > 0.2).all()


@pytest.mark.parametrize("fit_noise", [False, True])
@pytest.mark.parametrize("gram_sd", [0.0, 30.0])
def test_gradient_of_the_marginal_likelihood(fit_noise: bool, gram_sd: float) -> None:
    phi, y, beta = study(n=300)
    moments = moments_of(phi, y, gram_sd, 20.0)
    prior = ridge_prior(6, fit_noise=fit_noise)
    gram = regression.positive_part(moments.gram)
    problem = moments, prior, gram, gram, regression.noise_cov(moments, beta)
    for x in (np.array([0.3, 0.2]), np.array([-2.0, -0.5])):
        value, gradient = (lambda v, *a, k=k: regression.objective(v, *a)[k] for k in (0, 1))
        error = check_grad(value, gradient, x, *problem)
        free = gradient(x, *problem)
        assert error < 1e-3 * max(1.0, np.abs(free).max())


def test_basis_of_both_arms_shares_what_they_have_in_common() -> None:
    """mu_1 = mu_0 + gamma with a small gamma: the arms' fits pull each other."""
    phi, y, _ = study(n=500)
    from scipy.linalg import block_diag

    gram = block_diag(phi.T @ phi, phi.T @ phi)
    cross = np.r_[phi.T @ y, phi.T @ (y + 1.0)]
    one = np.eye(6)
    basis = np.vstack([np.hstack([one, np.zeros((6, 6))]), np.hstack([one, one])])
    group = np.r_[0, np.ones(5, np.int64), 0, np.full(5, 2)]
    prior = Prior(group, np.ones(12), 4.0, np.array([0.0, -6.0]), 0.5, basis=basis)
    fitted = regression.fit(Moments(gram, cross, 0.0, 1.0, 1.0), prior)
    contrast = fitted.mean[6:] - fitted.mean[:6]
    assert contrast[0] == pytest.approx(1.0, abs=0.05)
    assert np.abs(contrast[1:]).max() < 0.05


def test_averaging_weighs_by_evidence() -> None:
    one = Posterior(np.array([1.0]), np.eye(1), 0.0)
    two = Posterior(np.array([3.0]), np.eye(1), np.log(3.0))
    _, mean, cov = regression.mixture_law([(p.evidence, p.mean, p.cov) for p in (one, two)])
    assert mean[0] == pytest.approx(2.5)
    assert cov[0, 0] == pytest.approx(1.0 + 0.25 * 1.5**2 + 0.75 * 0.5**2)
