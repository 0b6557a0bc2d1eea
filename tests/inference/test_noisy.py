"""Derivatives of formulas in released sums, against numerical ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privcausal.inference.effects import Noisy, Reading
from privcausal.typing import Matrix, Vector

SUMS = np.array([[3.0, 2.0, 5.0], [4.0, 7.0, 1.5]])
TRIANGLE = np.array([2.0, 0.3, 1.5])


def solution(sums: Noisy, triangle: Noisy) -> Noisy:
    mass = triangle[np.array([[0, 1], [1, 2]])]
    return mass.solve(sums[:, 0], np.linalg.inv(mass.value))


FORMULAS: dict[str, Callable[[Noisy, Noisy], Noisy]] = {
    "ratio": lambda sums, _: sums[0] / sums[1] + 2.0,
    "product": lambda sums, _: sums[0] * sums[1, 2] - sums[1] * np.array([1.0, 2.0, 3.0]),
    "contrast": lambda sums, _: np.array([[1.0, -1.0]]) @ sums / sums.sum()[1],
    "joined": lambda sums, triangle: Noisy.joined([sums[0, 1] * sums[1, 0], triangle, sums[1]]),
    "solved": solution,
    "clipped": lambda sums, _: sums.held(np.clip(sums.value, 0.0, 9.0))[0] * 3.0,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_slopes_are_derivatives(name: str) -> None:
    readings = Reading(SUMS, 0.1 * SUMS), Reading(TRIANGLE, np.ones(3))

    def value(change: Vector) -> Vector:
        parts = np.split(change, [SUMS.size])
        moved = [
            Reading(one.value + part.reshape(one.value.shape), one.sd)
            for one, part in zip(readings, parts, strict=True)
        ]
        return FORMULAS[name](*Noisy.inputs(*moved)).value

    found, steps = FORMULAS[name](*Noisy.inputs(*readings)), 1e-6 * np.eye(SUMS.size + 3)
    numerical = np.stack([(value(s) - value(-s)) / 2e-6 for s in steps], axis=-1)
    np.testing.assert_allclose(found.slope, numerical, rtol=1e-6, atol=1e-8)
    variance = np.r_[(0.1 * SUMS.ravel()) ** 2, np.ones(3)]
    np.testing.assert_allclose(found.sd**2, numerical**2 @ variance, rtol=1e-6)


def test_combinations_of_readings_have_the_sds_of_their_noise() -> None:
    matrix: Matrix = np.array([[1.0, -1.0, 0.0], [0.5, 0.5, 2.0]])
    reading = Reading(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3]))
    (inputs,) = Noisy.inputs(reading)
    through = reading.through(matrix)
    np.testing.assert_allclose(through.value, (matrix @ inputs).value)
    np.testing.assert_allclose(through.sd, (matrix @ inputs).sd)
    np.testing.assert_allclose(through.sd**2, np.diag((matrix @ inputs).cov))
