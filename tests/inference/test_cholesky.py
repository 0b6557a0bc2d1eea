"""LAPACK's factor and solution against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.inference.regression import cholesky, solve


def test_solutions_are_those_of_the_matrix() -> None:
    rng = np.random.default_rng(1)
    root, right = rng.normal(size=(7, 7)), rng.normal(size=(7, 3))
    matrix = root @ root.T + np.eye(7)
    lower = cholesky(matrix)
    assert np.tril(lower) @ np.tril(lower).T == pytest.approx(matrix)
    assert solve(lower, right) == pytest.approx(np.linalg.solve(matrix, right))
    assert solve(lower, right[:, 0]) == pytest.approx(np.linalg.solve(matrix, right[:, 0]))
    assert matrix == pytest.approx(root @ root.T + np.eye(7))  # left as it was


@pytest.mark.parametrize("matrix", [-np.eye(2), np.ones((2, 2))])
def test_what_is_not_positive_definite_is_refused(matrix: np.ndarray) -> None:
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(matrix)
