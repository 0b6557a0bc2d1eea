"""For users of other packages: fits in their tables, and where they find what they look for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import ncx2

from privcausal.errors import CapabilityError
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.report.words import clean
from privcausal.results.base import ReleasedFit

if TYPE_CHECKING:
    from statsmodels.stats.contrast import ContrastResults

STATS = {
    "N": "Observations",
    "learner": "Learner",
    "base": "Base",
    "estimand": "Estimand",
    "epsilon": "Epsilon",
    "delta": "Delta",
    "neighbors": "Neighbours",
    "guarantee": "Guarantee",
}
"""Keys of `__maketables_stat__` with their labels; "N" is the protocol's own."""

_MEANT = {
    "see params": "coef coef_ coefficients",
    "see bse": "se std_errors stderr",
    "see cov_params()": "vcov cov normalized_cov_params",
    "see conf_int(alpha=0.05)": "confint conf_int_ ate_interval effect_interval coef__interval",
    "see pvalues": "pvalue pval",
    "see zvalues": "tstat t_stat tstats",
    "see contrast('x - z') and wald_test('x = 0')": "t_test f_test wald linear_hypothesis",
    "see summary(), tidy() and glance()": "summary2 summary_frame",
    "see summary().as_latex(label=...), .as_html() and .as_markdown()": (
        "to_latex as_latex to_html as_html to_markdown as_text"
    ),
    "see predict(newdata) of privcate's results": (
        "effect cate tau const_marginal_effect get_prediction get_margeff"
    ),
    "an average effect predicts nothing: pc.privcate gives the effect at new points": "predict",
    "fit with pc.private(..., estimand='ATT')": "att ATT",
    "fit with pc.private(..., estimand='ATO')": "ato ATO",
    "see gate": "gates groups",
    "see guarantee": "eps epsilon delta rho privacy",
    "see ledger_line, or the Ledger itself": "ledger remaining",
    "see plan.request.formula, or call": "formula",
    "the number of rows is private under these neighbours": "nobs",
    "it would be a number about the rows, and was not released": (
        "resid residuals fittedvalues fitted rsquared rsquared_adj r2 ssr llf aic bic fvalue "
        "f_pvalue augment data scores"
    ),
}
HINTS = {name: hint for hint, names in _MEANT.items() for name in names.split()}
"""By name; a fit that has the attribute never asks here."""

SHOWN = ("N", "learner", "epsilon", "delta", "guarantee")


@dataclass(frozen=True, slots=True)
class Model:
    """What statsmodels asks of a fit's model: the names of its outcome and of its terms."""

    endog_names: str
    exog_names: tuple[str, ...]


@dataclass(frozen=True)
class ForMaketables:
    """A fit that shows maketables nothing but the attributes of its protocol."""

    fit: Exchange

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__maketables_"):
            return getattr(self.fit, name)
        raise AttributeError(name)


class Exchange(ReleasedFit):
    """What lets other packages put a result in their tables; nothing here is a release."""

    @property
    def tvalues(self) -> pd.Series[float]:
        """`zvalues`, under the name that statsmodels has for both."""
        return self.zvalues

    @property
    def model(self) -> Model:
        """The names of outcome and terms, for statsmodels' `summary_col`.

        Who reads nothing else of a fit made with test noise still sees that it is not private.
        """
        mark = " (NOT PRIVATE)" if self.guarantee.kind == "none" else ""
        outcome = self.estimate.plan.request.formula.effect_on
        return Model(f"{outcome}{mark}", tuple(self.params.index))

    @property
    def default_model_infos(self) -> dict[str, Callable[[Exchange], str]]:
        """The lines that `summary_col` puts below the estimates."""
        return {STATS[key]: partial(_info, key) for key in SHOWN}

    @property
    def nobs(self) -> int:
        """The public number of rows or units; there is no such attribute where it is private."""
        size = self.estimate.size
        if size is None:
            raise AttributeError(f"nobs: {HINTS['nobs']}")
        return size

    def to_maketables(self) -> ForMaketables:
        """This fit for `maketables.ETable`, with epsilon, delta and the guarantee.

        The fit itself goes there too, but is taken for one of statsmodels by its attributes, and
        what it promised is not shown.
        """
        return ForMaketables(self)

    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        wide = self.tidy(0.10)
        names = {"estimate": "b", "std_error": "se", "statistic": "t", "p_value": "p",
                 "conf_low": "ci95l", "conf_high": "ci95u"}  # fmt: skip
        frame = self.tidy(0.05).rename(columns=names).set_index("term").rename_axis("Coefficient")
        return frame.assign(ci90l=wide["conf_low"].to_numpy(), ci90u=wide["conf_high"].to_numpy())

    def __maketables_stat__(self, key: str) -> int | str | None:
        text = stat_text(self, key)
        return int(text) if key == "N" and text else text

    @property
    def __maketables_depvar__(self) -> str:
        return self.estimate.plan.request.formula.effect_on

    @property
    def __maketables_stat_labels__(self) -> dict[str, str]:
        return dict(STATS)

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        return list(SHOWN)

    @property
    def __maketables_vcov_info__(self) -> dict[str, str]:
        return {"vcov_type": "with privacy noise"}

    def wald_test(self, hypotheses: Any) -> ContrastResults:
        """A Wald test that linear hypotheses about `params` hold together, as in statsmodels.

        Parameters
        ----------
        hypotheses : str, sequence of str, or array of shape (k, m)
            ``"age = 0, severity = 0"``; ``["C(ward)[T.north] = C(ward)[T.south]"]``; or rows of
            weights whose sums of `params` are zero.

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
            `statistic`, chi-squared with `df_denom` degrees of freedom, and `pvalue`. Its variance
            is that of `cov_params`; the p value allows for the largest bias that `max_bias` admits.

        Raises
        ------
        CapabilityError
            An unknown term, or a hypothesis that is not linear or follows from the others.
        """
        cov = self.cov_params()
        return wald(self.params[cov.index], cov, self.max_bias[cov.index], hypotheses)

    def __getattr__(self, name: str) -> Any:
        """Answers for names that a result does not have."""
        if hasattr(type(self), name):  # it is there, and failed: its own error is told
            return object.__getattribute__(self, name)
        hint = f": {HINTS[name]}" if name in HINTS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")


def _info(key: str, fit: Exchange) -> str:
    return stat_text(fit, key) or ""


def stat_text(fit: Exchange, key: str) -> str | None:
    """One of `STATS` as text; None for what a private fit does not have, such as R squared."""
    if key not in STATS:
        return None
    if key == "guarantee":
        kind = fit.guarantee.kind
        return "NOT PRIVATE" if kind == "none" else kind
    value = fit.glance().iloc[0]["n" if key == "N" else key]
    if key == "N":  # NaN where it is private
        return f"{value:.0f}" if math.isfinite(value) else None
    digits = {"epsilon": 4, "delta": DELTA_DIGITS}.get(key)
    return at_most(value, digits) if digits else str(value).replace("_", "/")


def wald(
    params: pd.Series[float], cov: pd.DataFrame, bound: pd.Series[float], hypotheses: Any
) -> ContrastResults:
    """(R b - q)' (R V R')^-1 (R b - q), chi-squared with as many degrees of freedom as rows of R.

    Where biases within `bound` are possible, the p value is of the noncentral chi-squared law whose
    noncentrality they can cause at most: each by itself, and in sum by the triangle inequality.
    `hypotheses` as for `Result.wald_test`.
    """
    from statsmodels.stats.contrast import ContrastResults

    matrix, values = linear(list(params.index), hypotheses)
    distance = matrix @ params.to_numpy() - values
    spread = matrix @ cov.to_numpy() @ matrix.T
    if not 0 < np.linalg.matrix_rank(matrix) == len(matrix):
        raise CapabilityError(
            "a hypothesis follows from the others, or holds no term: leave it out"
        )
    statistic, away, rank = np.nan, 0.0, len(matrix)
    if np.isfinite(spread).all():
        statistic = float(distance @ np.linalg.solve(spread, distance))
        lengths = np.sqrt((matrix * np.linalg.solve(spread, matrix)).sum(axis=0))
        away = float(lengths @ bound.to_numpy()) ** 2
    found = ContrastResults(
        chi2=statistic, df_denom=rank, statistic=statistic, distribution="chi2", distargs=(rank,)
    )
    if away > 0:
        found.pvalue = np.float64(ncx2.sf(statistic, rank, away))  # as of statsmodels
    return found


def linear(terms: list[str], hypotheses: Any) -> tuple[np.ndarray, np.ndarray]:
    """R, shape (k, m), and q, shape (k,), of hypotheses as for `Result.wald_test`."""
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
