"""Kernel regression in the vault: how far a row moves its weights, and what leaves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chi2, kstest
from sklearn.kernel_ridge import KernelRidge
from vault_helpers import (
    CLIP,
    ROUNDING,
    Row,
    Study,
    corner_rows,
    random_rows,
    redrawn,
    study,
    table,
)

from privcausal import testing
from privcausal.accounting import rho_of
from privcausal.auditing import loss_bound
from privcausal.errors import CapabilityError
from privcausal.features.design import Rows
from privcausal.features.functions import Constant, Fourier, fourier
from privcausal.typing import Vector
from privcausal.vault import (
    Aipw,
    KernelRegression,
    OfCovariates,
    OfTreatment,
    ResidualProduct,
    proven_lipschitz,
)
from privcausal.vault.queries.kernel import RIDGE_FLOOR as FLOOR
from privcausal.vault.queries.kernel import SOLVER_TOLERANCE as TOLERANCE
from privcausal.vault.queries.kernel import KernelProblem as Problem
from privcausal.vault.queries.kernel import schedule

LEVEL = 1e-6
ROWS_BOUND = 8.0


@cache
def basis(neighbors: str, size: int = 12, bandwidth: float = 1.0) -> Fourier:
    return fourier(study(neighbors).design, np.arange(2), bandwidth, size)


def regression(
    s: Study, score: str, loss: Any = "huber", ridge: float = 1.0, size: int = 12
) -> KernelRegression:
    """An order with public functions of which no one knows whether they are any good."""
    outcome, features = s.outcome, basis(s.neighbors, size)
    if score == "r":
        eta = s.additive(5, -2.0, 6.0)
        curvature: Any = OfTreatment("overlap", s.e, CLIP)
        target: Any = ResidualProduct(s.e, eta, outcome, CLIP, Constant(0.5), 0.5)
        reach = 8.0 + (1 - CLIP) * 0.5
    else:
        curvature = OfCovariates(Constant(1.0), 1.0)
        target = Aipw(s.nuisance, outcome, CLIP, Constant(0.5), 0.5)
        reach = target.bound
    if loss == "huber":
        return KernelRegression(features, curvature, target, 1.5, ridge, rows=ROWS_BOUND)
    cut = 3.0
    reach = min(reach, cut) if score == "dr" else reach
    lipschitz = proven_lipschitz(curvature.bound, reach, cut, ROWS_BOUND, ridge)
    return KernelRegression(
        features, curvature, target, lipschitz, ridge, "squared", cut, rows=ROWS_BOUND
    )


def exact(s: Study, rows: list[Row], order: KernelRegression) -> tuple[Vector, float]:
    """Weights on the grid, and the sensitivity that the noise is made for."""
    with testing.recorded() as recorder:
        s.vault(table(rows), s.plan(["weights"])).release("weights", order)
    (call,) = recorder.calls
    assert np.array_equal(call.query.weights, np.ones(order.features.size))
    return call.exact.astype(float), call.query.sensitivity


def moved(s: Study, one: list[Row], two: list[Row], order: KernelRegression) -> float:
    """Share of the bound by which the RKHS norm moves."""
    (a, bound), (b, _) = exact(s, one, order), exact(s, two, order)
    return float(np.linalg.norm(a - b)) / bound


def searched(s: Study, order: KernelRegression, seed: int, rounds: int = 60) -> list[float]:
    """Shares found by a hill climb over neighbouring tables of corner and ordinary rows."""
    rng = np.random.default_rng(seed)
    pool = [*corner_rows(), *random_rows(40, seed)]

    def draw() -> Row:
        return pool[rng.integers(len(pool))]

    best, found = 0.0, []
    rows, new = [draw() for _ in range(4)], draw()
    for _ in range(rounds):
        other, newer = list(rows), new
        if rng.random() < 0.5:
            other[rng.integers(len(other))] = draw()
        else:
            newer = draw()
        two = [*other[1:], newer] if s.neighbors == "substitute" else other[1:]
        share = moved(s, other, two, order)
        found.append(share)
        if share >= best:
            best, rows, new = share, other, newer
    return found


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
@pytest.mark.parametrize("score", ["r", "dr"])
@pytest.mark.parametrize("ridge", [0.3, 30.0])
def test_no_row_moves_the_function_further_than_is_stated(
    score: str, ridge: float, relation: str
) -> None:
    """Adversarial rows, found by search: never beyond the bound, and beyond a third of it."""
    s = study(relation)
    shares = searched(s, regression(s, score, ridge=ridge), seed=len(score) + int(ridge))
    assert max(shares) <= ROUNDING
    assert max(shares) >= 1 / 3


@pytest.mark.slow
@pytest.mark.parametrize("score", ["r", "dr"])
def test_the_proven_bound_of_the_squared_loss(score: str) -> None:
    s = study("substitute")
    for ridge in (0.3, 30.0):
        shares = searched(s, regression(s, score, "squared", ridge), seed=3)
        assert max(shares) <= ROUNDING


def test_a_unit_of_two_rows() -> None:
    s = study("substitute", max_rows=2, unit="pid")
    order = regression(s, "dr", ridge=30.0)
    low, high = corner_rows()[0], corner_rows()[-1]
    others = random_rows(4, 1)
    for one, two in ((low, high), (low, low | {"Y": 6.0})):
        with testing.recorded() as recorder:
            for row in (one, two):
                data = table([row, row, row, *others], ["x"] * 3 + ["a", "a", "b", "b"])
                s.vault(data, s.plan(["w"])).release("w", order)
        a, b = recorder.calls
        assert np.linalg.norm(a.exact - b.exact) <= a.query.sensitivity * ROUNDING
    assert a.query.sensitivity == 2 * order.sensitivity("substitute")


# -- the solver ------------------------------------------------------------------------------


def problem(n: int, ridge: float, corner: float, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    a, t = rng.uniform(0.01, 1, n), 3 * rng.standard_cauchy(n).clip(-50, 50)
    return Problem(basis("substitute"), rng.uniform(-1, 1, (n, 2)), a, t, corner, ridge)


def solved(made: Problem, lipschitz: float) -> float:
    """Length of the gradient where the solver ends, over half of what it may be."""
    rows = len(made.a)
    smooth = float(rows + made.ridge) * (1 + 1e-9)
    steps = schedule(made.ridge / smooth, 4 * rows * smooth / (made.ridge * TOLERANCE))
    found = made.minimum(smooth, steps)
    return float(np.linalg.norm(made.gradient(found))) / (0.5 * TOLERANCE * lipschitz)


@pytest.mark.parametrize("corner", [0.1, 2.0, np.inf])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
def test_the_solver_ends_at_a_short_gradient(ridge: float, corner: float) -> None:
    """By a factor of two at least, which the steps are made for."""
    made = problem(300, ridge, corner)
    assert solved(made, min(corner, 50.0)) <= 0.5


def far(n: int, relative: float) -> tuple[Problem, Problem]:
    """Rows at one place, without and with one at the other end that pulls against them."""
    features = fourier(study("substitute").design, np.arange(1), 0.5, 100)
    rng = np.random.default_rng(0)
    z, t = -np.ones((n, 1)) + 0.2 * rng.random((n, 1)), 0.2 * rng.standard_normal(n)
    other, pull = z.copy(), t.copy()
    other[0], pull[0] = 1.0, 1.0
    a = np.full(n, 0.25)
    first, second = (
        Problem(features, x, a, y, 0.1, relative * n) for x, y in ((z, t), (other, pull))
    )
    return first, second


@pytest.mark.slow
@pytest.mark.parametrize("relative", [1e-2, 1e-4, 1e-5])
def test_no_table_needs_more_steps(relative: float) -> None:
    """Tables on which Newton's steps were slow: the stated number is enough for them too."""
    rng = np.random.default_rng(1)
    heavy = problem(300, relative * 300, 0.1, seed=2)
    signs = problem(200, relative * 200, 0.1, seed=3)
    signs.t = rng.choice([-1.0, 1.0], 200) * np.exp(rng.uniform(-5, 5, 200))
    for made in (*far(400, relative), heavy, signs):
        assert solved(made, 0.1) <= 0.5


@pytest.mark.parametrize("share", [0.5, 1e-2, 1e-4])
def test_steps_are_those_of_the_theorem(share: float) -> None:
    """On parabolas of every curvature between, the worst is as near as is stated, and no nearer."""
    curvatures = np.geomspace(share, 1, 300)
    for shorter in (10.0, 1e10):
        x = z = np.ones(300)
        for mix, length in schedule(share, shorter):
            y = z + mix * (x - z)
            slope = curvatures * y
            x, z = y - slope, z + length * (share * (y - z) - slope)
        assert 0.05 < shorter * np.abs(z).max() <= 1


def test_steps_are_public() -> None:
    """Their number follows from the call and the public number of rows alone."""
    s = study("substitute")
    order = regression(s, "r", ridge=0.3)
    kappa = order.smooth / order.ridge
    wanted = np.sqrt(kappa) * np.log(4 * order.rows * kappa**1.5 / TOLERANCE)
    assert 0.5 * wanted < len(order.steps) < wanted
    ordinary = random_rows(6, 2)
    missing = [row | {"Y": np.nan} for row in ordinary]
    for rows in (ordinary, missing, corner_rows()[:6]):
        plain = Problem.gradient
        with mock.patch.object(Problem, "gradient", autospec=True, side_effect=plain) as gradient:
            exact(s, rows, order)
        assert gradient.call_count == len(order.steps) + 1


def test_a_gradient_that_stays_long_stops_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the steps are not enough on some table; then nothing is released."""
    s = study("substitute")
    order = regression(s, "r", ridge=0.01)
    monkeypatch.setattr(KernelRegression, "steps", order.steps[: len(order.steps) // 4])
    with pytest.raises(ArithmeticError, match="gradient"):
        exact(s, corner_rows()[:8], order)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
@pytest.mark.parametrize(
    ("loss", "ridge", "tried"), [("huber", 1e-3, 4), ("squared", 1e-3, 4), ("huber", FLOOR, 1)]
)
def test_one_complete_row_against_none(loss: Any, ridge: float, tried: int, relation: str) -> None:
    """At small ridges, and at the least of all, neither table fails, and the bound holds."""
    s = study(relation)
    order = regression(s, "r", loss, ridge)
    rows = random_rows(6, 2)
    missing = [row | {"Y": np.nan} for row in rows]
    for row in corner_rows()[:tried]:
        one = [*missing[:-1], row]
        two = missing if relation == "substitute" else missing[:-1]
        assert moved(s, one, two, order) <= ROUNDING


def test_ridges_that_floats_cannot_hold_are_refused() -> None:
    s = study("substitute")
    for ridge in (0.0, 0.9 * FLOOR, 1e300, np.nan, np.inf):
        with pytest.raises(CapabilityError, match="ridge"):
            regression(s, "r", ridge=ridge)


def test_the_sensitivity_pays_for_rounded_residuals() -> None:
    """A residual errs by up to 2^-53 p ||w||, and ||w|| may be n L / lambda."""
    s = study("substitute")
    small = regression(s, "r", ridge=1.0)
    large = KernelRegression(
        small.features, small.curvature, small.target, small.lipschitz, 1.0, rows=1e7
    )
    p, a = small.features.size, small.curvature.bound
    worst = (p + 4) * a * 1e7 * 2.0**-53 * 1e7  # of n rows, in units of L
    stated = large.sensitivity("substitute") / small.sensitivity("substitute")
    assert large.units[0] / small.units[0] * stated - 1 >= 0.9 * worst


def test_rows_that_do_not_count_change_nothing() -> None:
    s, rows = study("substitute"), random_rows(20, 2)
    order = regression(s, "r")
    missing = [row | {"Y": np.nan} for row in rows]
    assert np.array_equal(exact(s, [*rows, *missing], order)[0], exact(s, rows, order)[0])
    assert not exact(s, missing, order)[0].any()


def test_without_noise_it_is_weighted_kernel_ridge() -> None:
    """Limit: the function is scikit-learn's, with the exact Gaussian kernel."""
    s = study("substitute")
    rows = [r for r in random_rows(60, 3) if np.isfinite([r["Y"], r["X1"], r["X2"], r["P"]]).all()]
    rows = [r for r in rows if r["T"] in (0, 1) and r["G"] in tuple("abc") and r["B"] is not None]
    rows = [r for r in rows if r["B"] != "zzz"]
    order = regression(s, "r", ridge=0.7, size=150)
    wide = KernelRegression(order.features, order.curvature, order.target, 20.0, 0.7, rows=60.0)
    weights = exact(s, rows, wide)[0] * float(wide.units[0])
    data = table(rows)
    inside = {"X1": data["X1"].clip(0, 10).to_numpy(), "X2": data["X2"].clip(99, 100).to_numpy()}
    z = np.column_stack([inside["X1"] / 5 - 1, 2 * (inside["X2"] - 99) - 1])
    codes = data["G"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
    at = Rows({**inside, "G": codes, "B": (data["B"] == "yes").to_numpy(float)}, len(data))
    away = data["T"].to_numpy() - s.e(at)
    pseudo = (data["Y"].clip(-2, 6).to_numpy() - s.additive(5, -2.0, 6.0)(at)) / away - 0.5
    ridge = KernelRidge(alpha=0.7, kernel="rbf", gamma=0.5)
    found = ridge.fit(z, pseudo, sample_weight=away**2).predict(z)
    assert order.features.error < 1e-6
    assert order.features.at(z) @ weights == pytest.approx(found, abs=0.5 * TOLERANCE * 20 / 0.7)


# -- what leaves -----------------------------------------------------------------------------


def releases(order: KernelRegression, rows: list[Row], times: int, rho: float) -> Any:
    """Noisy weights of many releases of the vault, shape (times, p), and the exact ones."""
    s = study("substitute")
    plan = s.plan(["w"], rho)
    vault = s.vault(table(rows), plan)
    first = vault.release("w", order)
    whole = exact(s, rows, order)[0].astype(np.int64)
    rest = redrawn(vault, plan.stages[0], order, whole, times - 1)
    return (
        np.array([release.value for release in (first, *rest)]),
        whole * order.units,
        float(first.noise_sd[0]),
    )


@pytest.mark.slow
def test_the_noise_of_the_function_is_the_stated_process() -> None:
    """On a grid, the covariance of releases is sd^2 k, k the basis' kernel: chi-square and KS."""
    order = regression(study("substitute"), "dr", size=40)
    noisy, weights, sd = releases(order, random_rows(10, 1), 3000, 0.1)
    noise = (noisy - weights) / sd
    assert kstest(noise.ravel(), "norm").pvalue > LEVEL
    assert kstest(1.3 * noise.ravel(), "norm").pvalue < LEVEL
    z = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    phi = order.features.at(z)
    on_grid = noise @ phi.T
    stated = phi @ phi.T
    root = np.linalg.inv(np.linalg.cholesky(stated))
    scatter = (root @ on_grid.T) @ (root @ on_grid.T).T  # Wishart with the identity
    n, p = len(noise), len(z)
    # Bartlett's likelihood ratio of the covariance, chi-square with p (p + 1) / 2 degrees
    values = np.linalg.eigvalsh(scatter / n)
    statistic = n * float(np.sum(values - np.log(values) - 1))
    assert chi2.sf(statistic, p * (p + 1) / 2) > LEVEL
    assert chi2.sf(n * float(np.sum(1.3 * values - np.log(1.3 * values) - 1)), 21) < LEVEL


@pytest.mark.parametrize("size", [50, 200])
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("columns", [1, 2, 6])
def test_the_basis_has_the_gaussian_kernel_to_the_stated_error(
    columns: int, bandwidth: float, size: int
) -> None:
    """On other pairs than those the error was measured on; and every point has norm one."""
    features = fourier(study("substitute").design, np.arange(columns), bandwidth, size)
    assert features.size <= size
    z, other = features.pairs(seed=99)
    phi = features.at(z)
    assert np.abs((phi**2).sum(axis=1) - 1).max() < 1e-12
    error = np.abs((phi * features.at(other)).sum(axis=1) - features.kernel(z, other))
    # a share above the 99th percentile of 4096 pairs: 41, and more than 95 with chance < 1e-6
    assert np.count_nonzero(error > features.error + 1e-12) < 95
    assert features.error < 0.4
    if columns <= 2 and bandwidth >= 1 and size == 200:
        assert features.error < 1e-3


DRAWS, DELTA = 10_000, 1e-5


@pytest.mark.slow
def test_audit_of_the_function_at_epsilon_one() -> None:
    """10,000 releases on each of two tiny neighbours, whose functions lie far apart."""
    s = study("substitute")
    order = regression(s, "dr", ridge=30.0, size=4)
    others, rho = random_rows(3, 5), rho_of(1.0, DELTA) / 1e12
    made = [(exact(s, [*others, row], order)[0], row) for row in corner_rows()]
    low, high = max(
        ((a, b) for a in made for b in made), key=lambda p: float(np.linalg.norm(p[0][0] - p[1][0]))
    )
    low, high = low[1], high[1]
    first, weights, sd = releases(order, [*others, low], DRAWS, rho)
    second, other, _ = releases(order, [*others, high], DRAWS, rho)
    apart = other - weights
    assert np.linalg.norm(apart) > 0.9 * 2 * order.lipschitz / order.ridge
    along = apart / np.linalg.norm(apart)
    middle = 0.5 * float((weights + other) @ along)
    found = loss_bound(first @ along, second @ along, LEVEL, DELTA, middle + 0.8 * sd)
    assert 0.05 < found <= 1.0
    narrow = [weights + (first - weights) / 4, other + (second - other) / 4]
    cut = middle + 1.3 * sd / 4
    assert loss_bound(narrow[0] @ along, narrow[1] @ along, LEVEL, DELTA, cut) > 1.0


def test_the_sensitivity_pays_for_long_sums() -> None:
    """What rounding adds to a sum of n gradients, by hand; up to 2^26 rows the tolerance pays."""
    order = regression(study("substitute"), "r", ridge=1e18)
    for rows, excess in ((2.0**26, 0.0), (2.0**30, 2.0**-3 - TOLERANCE / 2)):
        long = replace(order, rows=rows)
        moved = (long.sensitivity("substitute") - np.sqrt(order.features.size)) * long.units[0]
        stated = (2 + 2 * (TOLERANCE + 2 * excess)) * order.lipschitz / order.ridge
        assert moved == pytest.approx(stated, rel=1e-5)
