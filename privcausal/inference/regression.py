"""Regressions from noisy moments, whose noise is part of the likelihood.

Given G = sum w phi phi' + noise and b = sum w y phi + noise,

    b | beta ~ N(G+ beta, s2 G+ + (sd_b^2 + sd_G^2 ||beta||^2) I + sd_G^2 beta beta'),

where G+ is the positive part of G. The noise levels are known because they were chosen. Priors of
beta are normal with fitted variances (`fit`), wide (`least_squares`), or sparse (`mixture`).

A propensity and a mean outcome are learned together. The mean outcome is eta = b + e tau with a
baseline b. Confounders affect both e(x) and b(x), so the model lets their coefficients correlate,
with an unknown rho of prior sd `Priors.correlation_sd`:

    (beta_e, beta_b)_j ~ N(0, [[t_e, rho sqrt(t_e t_b)], [., t_b]]_j),
    beta_y = beta_b + tau beta_e,   moments_k ~ N(G_k beta_k, N_k) for k = e, y.

The average of doubly robust scores has the error d_e' W (d_y - tau d_e), called the remainder. Here
d are the errors of the coefficients and W = E[phi phi' / (e (1 - e))]. If e and y are learned
separately, both shrink to zero with large noise, and a narrow interval hides the bias. If they are
learned together, the remainder has a mean and a spread, and both widen the interval.

In the residual product (T - e)(Y - eta), the errors add d_e(x) d_b(x) to
E[(T - e)^2 | x] tau(x), where d_b = d_y - tau d_e (Nie and Wager 2021, Section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize

from privcausal.inference.priors import PRIORS
from privcausal.typing import Integers, Mask, Matrix, Vector


def cholesky(matrix: Matrix) -> Matrix:
    """L with L L' = matrix, lower triangle only; LinAlgError if it is not positive definite.

    For a small matrix, the checks in SciPy's functions take longer than the factorization by
    LAPACK.
    """
    lower, info = dpotrf(matrix, lower=1, clean=0)
    if info:
        raise np.linalg.LinAlgError("The matrix is not positive definite.")
    return np.asarray(lower)


def solve(lower: Matrix, right: Any) -> Any:
    """inv(matrix) @ right, shape (p,) or (p, k), from the matrix's Cholesky factor."""
    return dpotrs(lower, right, lower=1)[0]


# -- fitted and wide priors -------------------------------------------------------------------

FIXED_POINT_ROUNDS = 3
"""Number of fixed-point rounds: the noise of the Gram makes the noise term depend on beta."""


FAR_VARIANCE, FAR_NOISE = 30.0, 5.0
"""Maximum distances of log variances from their centers, so that exp() stays finite."""

LEAST_PRIOR_SHARE = 1e-2
"""Least-squares priors are at most this much wider when they are used again jointly. This is far
wider than any coefficient, and narrow enough for floats."""


TRIED = (-1.5, 0.0, 1.5)
"""Log factors of a fitted prior variance over which nuisances are averaged. With the precision 0.8,
the three have nearly the prior's sd. With the fitted variance alone, slopes that the noise hides
are taken for small: plain linear confounding and 1,000 rows were covered in 0.85 of fits."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy moments of one regression; `gram_sd` and `cross_sd` are noise sds of an entry.

    `cross_sd` may have shape (p,). `noise_var` is the residual variance of the target per unit of
    Gram weight. `extra` (p, p) is the covariance of further errors in `cross`.
    """

    gram: Matrix
    cross: Vector
    gram_sd: float
    cross_sd: float | Vector
    noise_var: float
    extra: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Regression:
    """cross ~ N(gram beta, error), beta ~ N(0, diag(prior)); `gram_sd` is the noise of `gram`.

    Where `unsure` (p,) is true, prior variances are known up to one factor. The log of the fitted
    factor is `shift` above its prior mean, with the prior precision `pull`.
    """

    gram: Matrix
    cross: Vector
    error: Matrix
    prior: Vector
    gram_sd: float = 0.0
    unsure: Mask | None = None
    shift: float = 0.0
    pull: float = 0.0


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent normal coefficients with one variance per group."""

    group: Integers  # 0 for coefficients of variance `fixed` (the intercept), otherwise 1..G
    scale: Vector  # Relative prior sd within the group, shape (p,)
    fixed: float
    # Centers of the groups' log variances, shape (G,), and the precision around them
    log_var: Vector
    pull: float = 0.03
    fit_noise: bool = False  # Also fit the noise variance s2
    basis: Matrix | None = None  # Coefficients are ``basis @ theta``, theta independent a priori
    unsure: Mask | None = None  # The coefficients of `Regression.unsure`


@dataclass(frozen=True, eq=False)
class Posterior:
    """Coefficients with covariance and log marginal likelihood.

    `regression` is None for a mixture, or if the coefficients are combinations of others
    (``basis``).
    """

    mean: Vector
    cov: Matrix
    evidence: float
    regression: Regression | None = None


def signal_share(gap: Vector, noise_var: float) -> float:
    """Share of the mean square of noisy numbers that noise of this variance does not explain."""
    signal = max(float((gap**2).mean()) - noise_var, 0.0)
    return signal / (signal + noise_var) if signal > 0 else 0.0


def likelihoods(
    counts: Vector, noise_sd: float, laws: Matrix, prior: Vector | float = 0.0
) -> Vector:
    """Likelihoods of `laws` (m, K) for noisy counts (K,), relative to the largest, shape (m,).

    `prior` is a log weight.
    """
    logs = prior - 0.5 * ((counts - laws) ** 2).sum(axis=1) / noise_sd**2
    return np.asarray(np.exp(logs - logs.max()))


def positive_part(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def fit(moments: Moments, prior: Prior) -> Posterior:
    """Posterior under the prior variances of greatest marginal likelihood."""
    gram = positive_part(moments.gram)
    basis = np.eye(len(moments.cross)) if prior.basis is None else prior.basis
    design = gram @ basis
    x = np.r_[prior.log_var, 0.0]
    beta = np.zeros(len(moments.cross))
    for _ in range(FIXED_POINT_ROUNDS if moments.gram_sd else 1):
        noise = noise_cov(moments, beta)
        problem = moments, prior, gram, design, noise
        if len(x) == 1 and not prior.fit_noise:
            evidence = -objective(x, *problem)[0]
        else:
            best = minimize(
                objective, x, problem, jac=True, method="L-BFGS-B", options={"maxiter": 60}
            )
            x, evidence = best.x, -float(best.fun)
        variances, noise_var, factor = _variances(x, *problem)
        gain = variances[:, None] * design.T
        theta = gain @ solve(factor, moments.cross)
        cov = np.diag(variances) - gain @ solve(factor, gain.T)
        beta = basis @ theta
    if prior.basis is not None:
        return Posterior(beta, basis @ cov @ basis.T, evidence)
    error = noise_var * gram + noise
    regression = Regression(gram, moments.cross, error, variances, moments.gram_sd)
    if prior.unsure is not None and prior.unsure.any():
        groups = np.unique(prior.group[prior.unsure]) - 1
        shift = float((x[:-1] - prior.log_var)[groups].mean())
        regression = replace(regression, unsure=prior.unsure, shift=shift, pull=prior.pull)
    return Posterior(beta, basis @ cov @ basis.T, evidence, regression)


def noise_cov(moments: Moments, beta: Vector) -> Matrix:
    """Covariance of the noise in b - G beta: the noise of b, and the noise of G times beta."""
    p, g2 = len(beta), moments.gram_sd**2
    # a floor much smaller than any noise, so that the covariance can be factored if noise is tiny
    tiny = 1e-9 * max(float(np.trace(moments.gram)), 1e-300) * moments.noise_var / p
    diagonal = moments.cross_sd**2 + g2 * float(beta @ beta) + tiny
    noise = np.asarray(diagonal * np.eye(p) + g2 * np.outer(beta, beta))
    return noise if moments.extra is None else noise + moments.extra


def objective(
    x: Vector, moments: Moments, prior: Prior, gram: Matrix, design: Matrix, noise: Matrix
) -> tuple[float, Vector]:
    """Negative log marginal likelihood at x, and its gradient.

    x has the log variances of the groups, then the log of the noise factor. `gram` is the positive
    part of the Gram, `design` is `gram` times the basis, and `noise` is the `noise_cov`.
    """
    t, s2, factor = _variances(x, moments, prior, gram, design, noise)
    b, shift = moments.cross, x[:-1] - prior.log_var
    # without a basis the design is the Gram
    same, d = prior.basis is None, design.shape[1]
    right = (design, b[:, None]) if same else (design, gram, b[:, None])
    solved = solve(factor, np.concatenate(right, axis=1))
    inv_design, inv_gram, z = solved[:, :d], solved[:, -1 - len(b) : -1], solved[:, -1]
    value = 2 * np.log(factor.diagonal()).sum() + b @ z + prior.pull * shift @ shift
    by_coef = t * ((inv_design * design).sum(0) - (design.T @ z) ** 2)
    grad = np.bincount(prior.group, by_coef, len(x))[1:] + 2 * prior.pull * shift
    noise_grad = 0.0
    if prior.fit_noise:
        value += PRIORS.noise_pull * x[-1] ** 2
        noise_grad = s2 * float(inv_gram.trace() - z @ gram @ z)
        noise_grad += 2 * PRIORS.noise_pull * x[-1]
    return 0.5 * float(value), 0.5 * np.append(grad, noise_grad)


def _variances(
    x: Vector, moments: Moments, prior: Prior, gram: Matrix, design: Matrix, noise: Matrix
) -> tuple[Vector, float, Matrix]:
    """Prior variances of the coefficients, the residual variance, and a root of Cov(cross)."""
    by_group, centre = np.empty(len(x)), prior.log_var  # in the unit of the outcome
    near = np.minimum(np.maximum(x[:-1], centre - FAR_VARIANCE), centre + FAR_VARIANCE)
    by_group[0], by_group[1:] = prior.fixed, np.exp(near)
    log_noise = min(max(float(x[-1]), -FAR_NOISE), FAR_NOISE)
    t = by_group[prior.group] * prior.scale**2
    s2 = float(moments.noise_var * (np.exp(log_noise) if prior.fit_noise else 1.0))
    return t, s2, factored(np.asarray(s2 * gram + noise + (design * t) @ design.T))


def factored(cov: Matrix) -> Matrix:
    """Cholesky factor after a tiny ridge.

    With tiny noise and wide priors, rounding alone makes eigenvalues negative.
    """
    raised = cov.copy()
    raised.flat[:: len(cov) + 1] += 1e-10 * float(cov.diagonal().max())
    return cholesky(raised)


def mixture_law(laws: Sequence[tuple[float, Vector, Matrix]]) -> tuple[float, Vector, Matrix]:
    """Log of the total weight, mean and covariance of a mixture of (log weight, mean, cov)."""
    logs = np.array([law[0] for law in laws])
    weights = np.exp(logs - logs.max())
    total = weights.sum()
    mean = np.asarray(weights / total @ np.array([law[1] for law in laws]))
    cov = np.zeros_like(laws[0][2])
    for weight, (_, centre, spread) in zip(weights / total, laws, strict=True):
        cov += weight * (spread + np.outer(centre - mean, centre - mean))
    return float(logs.max() + np.log(total)), mean, cov


def least_squares(moments: Moments, spread: Vector, basis: Matrix | None = None) -> Posterior:
    """Regression for base "linear", with a wide normal prior that fades with the privacy noise.

    Without noise this is least squares. With noise, coefficients much larger than their `spread`
    are shrunk in proportion to the noise's share of the error.
    """
    gram = positive_part(moments.gram)
    basis = np.eye(len(moments.cross)) if basis is None else basis
    design = gram @ basis
    theta = np.zeros(basis.shape[1])
    cov: Matrix = np.eye(basis.shape[1])
    for _ in range(FIXED_POINT_ROUNDS):
        noise = noise_cov(moments, basis @ theta)
        share = np.trace(noise) / (np.trace(noise) + moments.noise_var * np.trace(gram))
        error = moments.noise_var * gram + noise
        inverse = np.linalg.pinv(error, hermitian=True)
        precision = design.T @ inverse @ design + np.diag(share / spread**2)
        cov = np.asarray(np.linalg.pinv(precision, hermitian=True))
        theta = cov @ design.T @ inverse @ moments.cross
    wide = spread**2 / max(share, LEAST_PRIOR_SHARE)
    regression = Regression(gram, moments.cross, error, wide, moments.gram_sd)
    return Posterior(basis @ theta, basis @ cov @ basis.T, 0.0, regression)


def second_moment(moments: Moments, reference: Matrix, estimate: Vector) -> Matrix:
    """E[(c - beta)(c - beta)'] of an estimate c, under the prior N(0, reference), shape (p, p).

    An estimate may use a sparse prior, whose own posterior is too narrow if the moments contain
    little information. Bands therefore use a public reference prior of plausible effects. Its
    posterior has a mean m and a covariance V, and the second moment of the error is V + (c - m)(c -
    m)'.
    """
    gram = positive_part(moments.gram)
    error = moments.noise_var * gram + noise_cov(moments, estimate)
    lead = gram @ reference
    gain = solve(factored(error + lead @ gram.T), lead).T
    gap = estimate - gain @ moments.cross
    cov = reference - gain @ lead
    return np.asarray(0.5 * (cov + cov.T) + np.outer(gap, gap))


# -- sparse priors ----------------------------------------------------------------------------

PRIOR_SCALES = 10
"""Number of scales of a coefficient's prior: a geometric grid with factor 2.5."""

MIXTURE_ROUNDS, MIXTURE_STEPS = 2, 20
"""Rounds update the Gram's noise, which depends on the coefficients; steps are within a round."""

KEPT = 0.5
"""Share of a factor that a step keeps unchanged: undamped steps would oscillate."""


class ScaleMixturePrior(NamedTuple):
    """Intercept with prior variance `fixed`; coefficients with prior sd `unit` times a scale.

    `kind` (p,) is -1 for the intercept, otherwise the class of the coefficient (linear, curved).
    """

    fixed: float
    unit: Vector
    kind: Integers


def mixture(moments: Moments, law: ScaleMixturePrior) -> Posterior:
    """Posterior and evidence if few of many coefficients may matter, by unknown amounts.

    The scales' shares are learned within each class, with a Dirichlet prior that favors the
    least scale. A coefficient's prior is thus a mixture of normals. Its posterior is found by
    expectation propagation (Minka 2001, Section 3). A normal factor of precision tau_j and center
    nu_j / tau_j replaces each prior. Let N(m, s2) be the distribution of beta_j from all other
    information. Multiplied with it, the factor gives the mean and variance of

        sum_k r_k N(m v_k / (v_k + s2), v_k s2 / (v_k + s2)),    r_k ~ share_k N(m; 0, v_k + s2).

    Shares come from the base weights and the other coefficients' r_k (Asuncion et al. 2009,
    "CVB0"). All factors are updated at once, a fixed number of times.
    """
    gram = positive_part(moments.gram)
    factors = _Factors(law)
    mean = np.zeros(len(moments.cross))
    for _ in range(MIXTURE_ROUNDS if moments.gram_sd else 1):
        error = moments.noise_var * gram + noise_cov(moments, mean)
        solved = np.linalg.solve(error, np.c_[gram, moments.cross])
        precision = gram.T @ solved[:, :-1]
        precision, centre = 0.5 * (precision + precision.T), gram.T @ solved[:, -1]
        for _ in range(MIXTURE_STEPS):
            mean, cov, *without = factors.posterior(precision, centre)
            factors.renew(*without)
    mean, cov, *without = factors.posterior(precision, centre)
    # log of the integral of N(cross; G beta, error) times the normal factors of height 1
    lower, cross = factored(error), moments.cross
    log = -float(np.log(lower.diagonal()).sum()) - 0.5 * float(cross @ solve(lower, cross))
    log += 0.5 * float((centre + factors.shift) @ mean)
    log += 0.5 * float(np.linalg.slogdet(cov)[1])
    return Posterior(mean, cov, log + factors.evidence(mean, cov.diagonal(), *without))


class _Factors:
    """Normal factors in place of the coefficients' priors, and each scale's chances."""

    def __init__(self, law: ScaleMixturePrior) -> None:
        self.law = law
        self.free = law.kind >= 0
        scales = np.geomspace(PRIORS.least_scale, PRIORS.most_scale, PRIOR_SCALES)
        self.tried = (law.unit[self.free, None] * scales) ** 2
        rest = (1 - PRIORS.negligible) / (PRIOR_SCALES - 1)
        self.base = PRIORS.concentration * np.r_[PRIORS.negligible, np.full(PRIOR_SCALES - 1, rest)]
        kind = law.kind[self.free]
        self.same = (kind[:, None] == kind).astype(float)
        np.fill_diagonal(self.same, 0.0)
        self.chance = np.tile(self.base / PRIORS.concentration, (len(kind), 1))
        self.precision = np.full(len(law.kind), 1 / law.fixed)
        self.precision[self.free] = 1 / (self.chance * self.tried).sum(1)
        self.shift = np.zeros(len(law.kind))

    def posterior(self, precision: Matrix, centre: Vector) -> tuple[Vector, Matrix, Vector, Vector]:
        """Mean and covariance; mean and variance of each free coefficient without its own prior."""
        inverse, free = precision.copy(), self.free
        inverse.flat[:: len(inverse) + 1] += self.precision
        cov = np.asarray(np.linalg.inv(inverse), np.float64)
        mean, alone = cov @ (centre + self.shift), 1 / cov.diagonal()[free]
        s2 = 1 / np.maximum(alone - self.precision[free], 1e-9 * alone)
        return mean, cov, s2 * (alone * mean[free] - self.shift[free]), s2

    def renew(self, m: Vector, s2: Vector) -> None:
        """Move every factor towards the one that matches the mixture's moments.

        `m` and `s2` are the coefficients' means and variances without their own priors.
        """
        total = self.tried + s2[:, None]
        log = np.log(self.same @ self.chance + self.base)
        log -= 0.5 * (np.log(total) + (m**2)[:, None] / total)
        chance = np.exp(log - log.max(1, keepdims=True))
        self.chance = chance / chance.sum(1, keepdims=True)
        share = self.tried / total
        first = m * (self.chance * share).sum(1)
        square = (self.chance * (share * s2[:, None] + (m[:, None] * share) ** 2)).sum(1)
        spread = np.maximum(square - first**2, 1e-12 * s2)
        # a mixture may be wider than the distribution that it multiplies; a factor may not
        precision = np.maximum(1 / spread - 1 / s2, 1 / self.tried[:, -1])
        shift = first * (precision + 1 / s2) - m / s2
        free = self.free
        self.precision[free] += (1 - KEPT) * (precision - self.precision[free])
        self.shift[free] += (1 - KEPT) * (shift - self.shift[free])

    def evidence(self, mean: Vector, var: Vector, m: Vector, s2: Vector) -> float:
        """Log of the integral of prior times N(m, s2) over the integral with its factor, summed.

        Shares condition on the earlier coefficients of the class, so that they form a chain.
        """
        precision = 1 / var[self.free]
        before = np.tril(self.same)
        share = (before @ self.chance + self.base) / (before.sum(1) + PRIORS.concentration)[:, None]
        total = self.tried + s2[:, None]
        terms = np.log(share) - 0.5 * ((m**2)[:, None] / total + np.log(total))
        log = np.logaddexp.reduce(terms, axis=1) + 0.5 * (m**2 / s2 + np.log(s2))
        log -= 0.5 * (precision * mean[self.free] ** 2 - np.log(precision))
        return float(log.sum()) - 0.5 * float(np.log(self.law.fixed)) * int((~self.free).sum())


# -- propensity and mean outcome together -----------------------------------------------------


@dataclass(frozen=True)
class Remainder:
    """Mean and standard deviation of the bias from nuisance errors, given the moments."""

    mean: float
    sd: float

    @property
    def rms(self) -> float:
        return float(np.hypot(self.mean, self.sd))

    def __add__(self, other: Remainder) -> Remainder:
        return Remainder(self.mean + other.mean, float(np.hypot(self.sd, other.sd)))


@dataclass(frozen=True, eq=False)
class RegressionPair:
    """Two regressions learned together, given the constant part of the effect.

    `shared` (p,) is true if two coefficients have the correlation rho, and false if they are
    uncorrelated (the intercept's). `before` is the pair before its coefficients were set to zero.
    With `one_factor`, the unknown factors of both prior variances are equal. So are those of
    interactions: both nuisances are rough or smooth in the same columns.
    """

    e: Regression
    y: Regression
    shared: Mask
    effect: float = 0.0
    before: RegressionPair | None = None
    one_factor: bool = False

    @cached_property
    def posterior(self) -> tuple[Vector, list[tuple[Vector, Matrix]], Vector, Matrix]:
        """Weights of every rho, joint means (2p,) and covariances, and those over all rho.

        For one rho, each is a mixture over the prior variances that the two regressions try: all
        pairs, or pairs with one factor.
        """
        e, y, p, effect, laws = self.e, self.y, len(self.shared), self.effect, []
        # log prior weight and prior variances for each of the factors that are tried
        tried, at = list[list[tuple[float, Vector]]](), np.arange(p)
        for side in (e, y):
            factors = [(0.0, side.prior)]
            if side.unsure is not None:
                log_weights = [-0.5 * side.pull * (side.shift + step) ** 2 for step in TRIED]
                variances = [side.prior * np.exp(step * side.unsure) for step in TRIED]
                factors = list(zip(log_weights, variances, strict=True))
            tried.append(factors)
        pairs = list(zip(*tried, strict=True) if self.one_factor else product(*tried))
        for rho in PRIORS.correlations if self.shared.any() else (0.0,):
            mixture = []
            for (e_log, e_variance), (y_log, y_tried) in pairs:
                # Var(beta_e), Cov(beta_e, beta_y) and Var(beta_y) for beta_y = beta_b + tau beta_e
                least = PRIORS.baseline_least * y_tried
                baseline = np.maximum(y_tried - effect**2 * e_variance, least)
                across = np.where(self.shared, rho, 0.0) * np.sqrt(e_variance * baseline)
                across = across + effect * e_variance
                y_variance = baseline + 2 * effect * across - effect**2 * e_variance
                # the joint prior covariance has diagonal blocks; the joint design is block diagonal
                lead, total = np.empty((2 * p, 2 * p)), np.empty((2 * p, 2 * p))
                lead[:p, :p], lead[:p, p:] = e.gram * e_variance, e.gram * across
                lead[p:, :p], lead[p:, p:] = y.gram * across, y.gram * y_variance
                np.matmul(lead[:, :p], e.gram.T, out=total[:, :p])
                np.matmul(lead[:, p:], y.gram.T, out=total[:, p:])
                total[:p, :p] += e.error
                total[p:, p:] += y.error
                # each regression in its own units, to avoid rounding errors
                scale = 1.0 / np.sqrt(total.diagonal())
                total *= scale
                total *= scale[:, None]
                total.flat[:: 2 * p + 1] += 1e-10
                lower = cholesky(total)
                lead *= scale[:, None]
                cross = np.concatenate((e.cross, y.cross)) * scale
                solved = solve(lower, np.concatenate((lead, cross[:, None]), axis=1))
                gain, z = solved[:, :-1].T, solved[:, -1]
                # the posterior covariance: the prior's less the part that the moments explain
                cov = gain @ lead
                np.negative(cov, out=cov)
                cov[at, at] += e_variance
                cov[at, at + p] += across
                cov[at + p, at] += across
                cov[at + p, at + p] += y_variance
                log = float(-np.log(lower.diagonal()).sum() - 0.5 * float(cross @ z))
                mixture.append((log + e_log + y_log, gain @ cross, cov))
            log, mean, cov = mixture_law(mixture)
            laws.append((log - 0.5 * (rho / PRIORS.correlation_sd) ** 2, mean, cov))
        logs = np.array([log for log, *_ in laws])
        weights = np.exp(logs - logs.max())
        _, mean, cov = mixture_law(laws)
        return weights / weights.sum(), [(mean, cov) for _, mean, cov in laws], mean, cov

    @property
    def support(self) -> float:
        """Log marginal likelihood of both regressions, minus its value for zero coefficients."""
        gains = []
        for fit in (self.e, self.y):
            # log N(cross; 0, error + G T G') - log N(cross; 0, error)
            values = []
            for total in (fit.error + (fit.gram * fit.prior) @ fit.gram.T, fit.error):
                scale = 1.0 / np.sqrt(np.diag(total))
                ridge = 1e-10 * np.eye(len(total))
                lower = cholesky(total * np.outer(scale, scale) + ridge)
                z = solve(lower, fit.cross * scale)
                logdet = np.log(lower.diagonal()).sum() - np.log(scale).sum()
                values.append(-logdet - 0.5 * float(fit.cross * scale @ z))
            gains.append(float(values[0] - values[1]))
        return gains[0] + gains[1]

    def stronger(self, factor: float) -> RegressionPair:
        """This pair with prior sds `factor` times as large; coefficients are not set to zero."""
        pair = self.before or self
        e, y = (replace(fit, prior=factor**2 * fit.prior) for fit in (pair.e, pair.y))
        return replace(pair, e=e, y=y)

    @property
    def mean(self) -> tuple[Vector, Vector]:
        """Posterior means of beta_e and beta_y."""
        mean = self.posterior[2]
        return mean[: len(self.shared)], mean[len(self.shared) :]

    @property
    def slopes(self) -> tuple[Vector, Vector]:
        """Posterior means of beta_e and of beta_b."""
        e, y = self.mean
        return e, y - self.effect * e

    def hidden(self, cov: Matrix) -> float:
        """Share of the confounding that noise hides: the part that the fit does not remove.

        A doubly robust mean leaves the product of both errors. A coefficient that is shrunken by
        the factor k has an error of 1 - k times its size, so the product of both 1 - k is left.
        For each regression, 1 - k is the variance of the unknown part of its function over that of
        the whole function, fitted or as usual. `cov` is Cov(phi), (p, p).
        """
        p, (*_, mean, whole), share = len(self.shared), self.posterior, 1.0
        for at, prior in ((slice(p), self.e.prior), (slice(p, None), self.y.prior)):
            left = float(np.sum(cov * whole[at, at]))
            share *= left / max(
                float(mean[at] @ cov @ mean[at]) + left, float(prior @ np.diag(cov))
            )
        return share

    @property
    def e_cov(self) -> Matrix:
        """Posterior covariance of beta_e, shape (p, p)."""
        p = len(self.shared)
        return self.posterior[3][:p, :p]

    def remainder(
        self, weight: Matrix, gap: Vector | float = 0.0, used: RegressionPair | None = None
    ) -> Remainder:
        """Mean and sd of (d_e' W + gap') (d_y - effect d_e) under the posterior.

        `weight` is W (p, p). `gap` is E[w g phi] (p,) if the propensity in use is the fitted
        propensity minus g. The means of the pair `used`, by default this one, are the coefficients
        in use.
        """
        p, tau, (e, y) = len(self.shared), self.effect, (used or self).mean
        (weights, laws, *_), first, second = self.posterior, [], []
        for mean, cov in laws:
            ee, by_e = cov[:p, :p], cov[p:, :p] - tau * cov[:p, :p]  # d_b = d_y - tau d_e
            bb = cov[p:, p:] - tau * (cov[p:, :p] + by_e.T)
            d_e, d_b = mean[:p] - e, mean[p:] - y - tau * (mean[:p] - e)
            gap_e, gap_b = weight @ d_e + gap, weight @ d_b
            v_e, v_b, across = weight @ ee, weight @ bb, weight @ by_e
            bias = float(np.trace(across) + gap_e @ d_b)
            traces = np.sum(v_e * v_b.T) + np.sum(across * across.T)  # of products of matrices
            spread = float(traces + gap_e @ bb @ gap_e + gap_b @ ee @ gap_b)
            first.append(bias)
            second.append(spread + bias**2)
        mean_bias = float(weights @ first)
        variance = float(weights @ second) - mean_bias**2
        return Remainder(mean_bias, float(np.sqrt(max(variance, 0.0))))


def unrelated(weight: Matrix, e_cov: Matrix, y_cov: Matrix) -> Remainder:
    """`RegressionPair.remainder` if both are learned apart, with the same prior of rho.

    Var = tr(W V_e W V_y) + E[rho^2] (sum of the roots of the eigenvalues of W V_e W V_y)^2.
    """
    product = weight @ e_cov @ weight @ y_cov
    along = float(np.sqrt(np.maximum(np.linalg.eigvals(product).real, 0.0)).sum())
    variance = max(float(np.trace(product)), 0.0) + (PRIORS.correlation_sd * along) ** 2
    return Remainder(0.0, float(np.sqrt(variance)))


# -- in the residual product ------------------------------------------------------------------

NEGLIGIBLE = 1e-3
"""Distributions with less weight are skipped: each costs a covariance and adds little."""


def leftover(
    sources: Sequence[tuple[Matrix, RegressionPair, Vector, Vector]],
) -> tuple[Vector, Matrix]:
    """Mean (N,) and covariance (N, N) of d_e d_b at N points.

    Each source has features at the points (N, p), a pair of regressions, and the coefficients of
    e and y in use (p,). Errors of different pairs are independent.

    Given rho, the errors at two points are normal with covariances C_ee, C_bb, C_eb
    and means m_e, m_b. By Isserlis' theorem, their products have the mean C_eb(x, x) + m_e m_b and
    the covariance C_ee C_bb + C_eb C_be plus terms of the means. Let A_ee = C_ee + m_e m_e' be the
    second moments, and define A_bb and A_eb in the same way. With v = m_e m_b at the points, the
    covariance is A_ee A_bb + A_eb A_be - 2 v v', entry by entry. The variation of the mean with rho
    is added.
    """
    size = len(sources[0][0])
    gap_e, gap_b = np.zeros(size), np.zeros(size)
    total, spread = np.zeros(size), np.zeros((size, size))
    for phi, pair, used_e, used_y in sources:
        p, tau = len(used_e), pair.effect
        turned = np.ascontiguousarray(phi.T)
        weights, means, products = [], [], []
        within = np.zeros((size, size))
        chances, laws, *_ = pair.posterior
        chances = chances * (chances >= NEGLIGIBLE)
        for weight, (mean, cov) in zip((chances / chances.sum()).tolist(), laws, strict=True):
            if not weight:
                continue
            d_e = mean[:p] - used_e
            d_b = mean[p:] - used_y - tau * d_e
            c_ee, c_ey = cov[:p, :p], cov[:p, p:]
            c_bb = cov[p:, p:] - tau * (c_ey + c_ey.T) + tau**2 * c_ee
            ee = phi @ (c_ee + np.multiply.outer(d_e, d_e)) @ turned
            eb = phi @ (c_ey - tau * c_ee + np.multiply.outer(d_e, d_b)) @ turned
            ee *= phi @ (c_bb + np.multiply.outer(d_b, d_b)) @ turned
            means.append(np.diag(eb).copy())
            ee += eb * eb.T
            ee *= weight
            within += ee
            weights.append(weight)
            products.append((phi @ d_e) * (phi @ d_b))
        share, values, twice = np.array(weights), np.array(means), np.array(products)
        pair_mean = share @ values
        away = values - pair_mean
        within += (away.T * share) @ away - 2 * (twice.T * share) @ twice
        total += pair_mean
        spread += within
        # the products of one pair's mean with another's
        e_mean, y_mean = pair.mean
        d_e = e_mean - used_e
        e, b = phi @ d_e, phi @ (y_mean - used_y - tau * d_e)
        total += e * gap_b + gap_e * b
        gap_e, gap_b = gap_e + e, gap_b + b
    return total, spread
