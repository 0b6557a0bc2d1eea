"""Covariances of slopes against derivatives, and which instruments a noisy Gram tells apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privcausal.estimators.slopes import estimate_reduced, not_collinear
from privcausal.inference.effects import AverageEstimate, Reading, SlopeTotals, estimate_slopes
from privcausal.request.formula import PLR_TERM
from privcausal.typing import Matrix, Vector

SIZE = 1000.0


def sums(value: tuple[Any, ...], sd: tuple[Any, ...]) -> SlopeTotals:
    return SlopeTotals(*map(Reading, value, sd))


def by_derivatives(found: Callable[[Vector, Matrix], Vector], total: Vector, mass: Matrix,
                   sd: tuple[Vector, Matrix]) -> Matrix:  # fmt: skip
    """Covariance by the delta method: numerical derivatives in each released number."""
    columns = []
    for i in range(len(total)):
        step = 1e-4 * sd[0][i] * np.eye(len(total))[i]
        columns.append((found(total + step, mass) - found(total - step, mass)) / 2e-4)
    for i, j in zip(*np.triu_indices(len(mass)), strict=True):
        step = np.zeros_like(mass)
        step[i, j] = step[j, i] = 1e-4 * sd[1][i, j]
        columns.append((found(total, mass + step) - found(total, mass - step)) / 2e-4)
    moved = np.stack(columns, axis=1)
    return np.asarray(moved @ moved.T)


def test_slopes_on_arms_share_the_noise_of_their_products() -> None:
    """One noisy sum d_1 d_2 changes both slopes: it is an entry of each row of the matrix."""
    mass, total = SIZE * np.array([[0.2, -0.1], [-0.1, 0.2]]), np.array([60.0, 40.0])
    sd = np.full(2, 1.5), np.array([[2.0, 1.2], [1.2, 2.0]])

    def found(total: Vector, mass: Matrix) -> AverageEstimate:
        return estimate_slopes(
            (PLR_TERM, PLR_TERM),
            sums((total, mass, SIZE * np.eye(2)), (*sd, np.full((2, 2), 5.0))),
            np.zeros(2), 0.0, np.zeros(2), model=SIZE * np.array([[0.2, -0.1], [-0.1, 0.2]]),
            size=SIZE,
        )  # fmt: skip

    exact = by_derivatives(lambda t, m: found(t, m).estimate, total, mass, sd)
    np.testing.assert_allclose(found(total, mass).privacy, exact, rtol=1e-3)


def reduced(total: Vector, mass: Matrix, sd: tuple[Any, ...], **options: Any) -> AverageEstimate:
    """Estimates with instruments and treatment in units of their own."""
    many = len(mass)
    widths = np.linspace(1.0, 2.0, many)
    return estimate_reduced(
        [f"z{i}" for i in range(many)],
        sums((total, mass, 500.0 * np.eye(2 * many)), (*sd, np.full((2 * many, 2 * many), 5.0))),
        (0.3, 2.0), 0.01, np.full((2, many), 0.01),
        size=SIZE, units=(list(widths), 1.5), **({"model": np.diag(np.diag(mass))} | options),
    )  # fmt: skip


@pytest.mark.parametrize("many", [1, 3])
def test_the_late_of_instruments_that_disagree(many: int) -> None:
    rng = np.random.default_rng(many)
    mass = SIZE * (np.eye(many) * 0.2 + 0.02)
    total = np.r_[rng.normal(0, 30, many), rng.normal(60, 10, many)]
    sd = np.full(2 * many, 0.4), np.full((many, many), 0.3)
    model = np.diag(np.diag(mass))
    exact = by_derivatives(lambda t, m: reduced(t, m, sd, model=model).estimate, total, mass, sd)
    np.testing.assert_allclose(reduced(total, mass, sd).privacy, exact, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_slopes_on_instruments_are_those_of_a_regression(share: float) -> None:
    """Correlated instruments, or such of little variance, have unbiased slopes."""
    mass = SIZE * np.array([[0.25, 0.225 * 0.3], [0.225 * 0.3, 0.0225 + share * 0.0675]])
    total = np.r_[mass @ [0.4, 0.2], 2.0 * mass @ [0.5, 0.1]]
    found = reduced(total, mass, (np.full(4, 1e-3), np.full((2, 2), 1e-3)), model=np.eye(2) * 250.0)
    np.testing.assert_allclose(found.estimate[3:], 1.5 * np.array([0.5, 0.1 / 2]), rtol=0.02)


# -- instruments that are combinations of others ---------------------------------------------------


def gram(z: Matrix) -> Matrix:
    left = z - z.mean(axis=0)
    return np.asarray(left.T @ left)


@pytest.mark.parametrize("unit", [1.0, 1e3])
@pytest.mark.parametrize("noise", [1e-9, 3.0, 10.0])
def test_a_copy_and_the_last_dummy_are_left_out(noise: float, unit: float) -> None:
    """Noise sds of 0.1% to 4% of a variance. A false choice needs an error of three sds, or of
    twenty: the draws are fixed."""
    rng = np.random.default_rng(3)
    quarter, number = rng.integers(0, 4, 2000), rng.normal(size=2000) / 2
    z = np.column_stack([quarter[:, None] == np.arange(4), number, 0.5 * number]) * 1.0
    error = rng.normal(0, noise, (6, 6))
    by = np.outer(*[np.where(np.arange(6) > 3, unit, 1.0)] * 2)
    used = not_collinear(
        Reading((gram(z) + (error + error.T) / np.sqrt(2)) * by, np.full((6, 6), noise) * by)
    )
    assert used.tolist() == [0, 1, 2, 4]


def test_one_instrument_is_always_in_use() -> None:
    assert not_collinear(Reading(np.array([[1.0]]), np.array([[5.0]]))).tolist() == [0]
    assert not_collinear(Reading(np.zeros((2, 2)), np.zeros((2, 2)))).tolist() == [0]


def test_what_is_left_out_has_no_slopes_and_costs_nothing() -> None:
    """The LATE and its error are those of the fit without the copy."""
    mass, total = SIZE * np.array([[0.2, 0.05], [0.05, 0.1]]), np.array([30.0, 20.0, 60.0, 10.0])
    copied, both = [0, 1, 0], [0, 1, 0, 2, 3, 2]
    sd = np.full(4, 4.0), np.full((2, 2), 2.0)
    one = reduced(total, mass, sd)
    wide = estimate_reduced(
        ["a", "b", "copy"],
        sums(
            (total[both], mass[np.ix_(copied, copied)], 500.0 * np.eye(6)),
            (np.full(6, 4.0), np.full((3, 3), 2.0), np.full((6, 6), 5.0)),
        ),
        (0.3, 2.0), 0.01, np.full((2, 3), 0.01), model=np.diag(mass.diagonal()[copied]), size=SIZE,
        units=([1.0, 2.0, 1.0], 1.5),
    )  # fmt: skip
    seen = [0, 1, 2, 4, 5]
    assert np.isnan(wide.estimate[[3, 6]]).all() and np.isinf(wide.sd[[3, 6]]).all()
    np.testing.assert_allclose(wide.estimate[seen], one.estimate)
    np.testing.assert_allclose(wide.cov[np.ix_(seen, seen)], one.cov)
    np.testing.assert_allclose(wide.clipping[seen], one.clipping)
