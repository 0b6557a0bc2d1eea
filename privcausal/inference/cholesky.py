"""Cholesky factors of small matrices: SciPy's own take longer to check than LAPACK to compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from privcausal.typing import Matrix


def factor(matrix: Matrix) -> Matrix:
    """L with L L' = matrix, shape (p, p), lower triangle; above it is nothing of meaning.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite.
    """
    lower, info = dpotrf(matrix, lower=1, clean=0)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return np.asarray(lower)


def solve(lower: Matrix, right: Any) -> Any:
    """The matrix's inverse times `right`, shape (p,) or (p, k), by its factor."""
    return dpotrs(lower, right, lower=1)[0]
