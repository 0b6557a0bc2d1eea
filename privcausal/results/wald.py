"""Wald tests of linear hypotheses about a fit's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.report.words import clean

if TYPE_CHECKING:
    import pandas as pd
    from statsmodels.stats.contrast import ContrastResults


def wald(params: pd.Series[float], cov: pd.DataFrame, hypotheses: Any) -> ContrastResults:
    """(R b - q)' (R V R')^-1 (R b - q), chi-squared with as many degrees of freedom as rows of R.

    `hypotheses` as for `Result.wald_test`.
    """
    from statsmodels.stats.contrast import ContrastResults

    matrix, values = _linear(list(params.index), hypotheses)
    distance = matrix @ params.to_numpy() - values
    spread = matrix @ cov.to_numpy() @ matrix.T
    if not 0 < np.linalg.matrix_rank(matrix) == len(matrix):
        raise CapabilityError(
            "a hypothesis follows from the others, or holds no term: leave it out"
        )
    statistic = np.nan
    if np.isfinite(spread).all():
        statistic = float(distance @ np.linalg.solve(spread, distance))
    rank = len(matrix)
    return ContrastResults(
        chi2=statistic, df_denom=rank, statistic=statistic, distribution="chi2", distargs=(rank,)
    )


def _linear(terms: list[str], hypotheses: Any) -> tuple[np.ndarray, np.ndarray]:
    """R, shape (k, m), and q, shape (k,)."""
    from formulaic.utils.constraints import LinearConstraints

    if isinstance(hypotheses, (list, tuple)) and all(isinstance(h, str) for h in hypotheses):
        hypotheses = ", ".join(hypotheses)
    if not isinstance(hypotheses, str):
        hypotheses = np.atleast_2d(np.asarray(hypotheses, dtype=float))
        if hypotheses.ndim != 2 or hypotheses.shape[1] != len(terms):
            raise CapabilityError(f"a matrix of hypotheses needs {len(terms)} columns, one a term")
    try:
        found = LinearConstraints.from_spec(hypotheses, variable_names=terms)
    except Exception:
        known = ", ".join(repr(clean(term)) for term in terms[:10])
        raise CapabilityError(
            "hypotheses are linear in the terms, such as 'x = 0, z = 1'; the terms are "
            f"{known}{', ...' * (len(terms) > 10)}"
        ) from None
    return np.asarray(found.constraint_matrix, float), np.asarray(found.constraint_values, float)
