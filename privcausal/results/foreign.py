"""Fits of other packages, read as broom's columns for a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from privcausal.errors import CapabilityError
from privcausal.report.comparison import TIDY

if TYPE_CHECKING:
    import pandas as pd

Facts = dict[str, str]


def read_foreign(fit: Any, alpha: float) -> tuple[pd.DataFrame, Facts]:
    """Terms (columns `TIDY`) and facts of a fit that this package did not make.

    Read are results of statsmodels and pyfixest, whatever follows the maketables protocol, and
    frames with broom's columns (``std.error`` or ``std_error``; the terms as index or as column
    ``term``). Limits that are not given at `alpha` are normal.

    Raises
    ------
    CapabilityError
        It is none of these, or has no single column of estimates.
    """
    import pandas as pd

    readers: tuple[tuple[bool, Callable[[Any, float], tuple[pd.DataFrame, Facts]]], ...] = (
        (isinstance(fit, pd.DataFrame), _frame),
        (_has(fit, "params", "bse", "pvalues", "conf_int"), _statsmodels),
        (_has(fit, "tidy", "confint", "_depvar"), _pyfixest),
        (_has(fit, "__maketables_coef_table__"), _maketables),
    )
    for fits, reader in readers:
        if fits:
            return reader(fit, alpha)
    # of pyfixest, for a formula with sw() or several outcomes
    if _has(fit, "to_list", "all_fitted_models"):
        raise CapabilityError(f"a {type(fit).__name__} holds several models: give *fit.to_list()")
    raise CapabilityError(
        f"a {type(fit).__name__} cannot be compared: give fits of privcausal, statsmodels or "
        "pyfixest, fits that follow the maketables protocol, or frames with the columns term, "
        "estimate and std_error"
    )


def _has(fit: Any, *names: str) -> bool:
    return all(hasattr(fit, name) for name in names)


def _statsmodels(fit: Any, alpha: float) -> tuple[pd.DataFrame, Facts]:
    estimates = np.asarray(fit.params, dtype=float)
    if estimates.ndim != 1:
        raise CapabilityError(
            f"a {type(fit.model).__name__} has several columns of estimates: give each as a frame"
        )
    # arrays in, arrays out: then the names are the model's
    terms = getattr(fit.params, "index", None)
    limits = np.asarray(fit.conf_int(alpha), dtype=float)
    frame = _tidy(
        fit.model.exog_names if terms is None else terms,
        estimates,
        fit.bse,
        alpha,
        p_value=fit.pvalues,
        low=limits[:, 0],
        high=limits[:, 1],
    )
    facts = {
        "Outcome": str(fit.model.endog_names), "Estimator": type(fit.model).__name__,
        "n": _count(getattr(fit, "nobs", None)),
    }  # fmt: skip
    return frame, facts


def _pyfixest(fit: Any, alpha: float) -> tuple[pd.DataFrame, Facts]:
    found = fit.tidy()
    limits = np.asarray(fit.confint(alpha=alpha), dtype=float)
    frame = _tidy(
        found.index,
        found["Estimate"],
        found["Std. Error"],
        alpha,
        p_value=found["Pr(>|t|)"],
        low=limits[:, 0],
        high=limits[:, 1],
    )
    facts = {
        "Outcome": str(fit._depvar), "Estimator": type(fit).__name__,
        "n": _count(getattr(fit, "_N", None)),
    }  # fmt: skip
    absorbed = getattr(fit, "_fixef", None)
    return frame, facts | ({"Fixed effects": absorbed} if absorbed not in (None, "0") else {})


def _maketables(fit: Any, alpha: float) -> tuple[pd.DataFrame, Facts]:
    found = fit.__maketables_coef_table__
    ends = [f"ci{100 * (1 - alpha):.4g}{side}" for side in "lu"]
    low, high = (found.get(end) for end in ends)
    frame = _tidy(found.index, found["b"], found["se"], alpha, p_value=found["p"],
                  low=low, high=high)  # fmt: skip
    stat = getattr(fit, "__maketables_stat__", None)
    facts = {
        "Outcome": str(getattr(fit, "__maketables_depvar__", "")),
        "Estimator": type(fit).__name__, "n": _count(stat("N") if stat else None),
    }  # fmt: skip
    return frame, facts


def _frame(fit: pd.DataFrame, alpha: float) -> tuple[pd.DataFrame, Facts]:
    found = fit.rename(columns=lambda name: str(name).replace(".", "_"))
    found = found.set_index("term") if "term" in found else found
    missing = [name for name in ("estimate", "std_error") if name not in found]
    if missing:
        raise CapabilityError(f"a frame to be compared lacks the column {missing[0]!r}")
    columns = {name: found.get(name) for name in ("p_value", "conf_low", "conf_high")}
    frame = _tidy(found.index, found["estimate"], found["std_error"], alpha,
                  p_value=columns["p_value"], low=columns["conf_low"],
                  high=columns["conf_high"])  # fmt: skip
    return frame, {}


def _tidy(
    terms: Any, estimate: Any, std_error: Any, alpha: float, *, p_value: Any, low: Any, high: Any
) -> pd.DataFrame:
    """Broom's columns; what is absent follows from the normal law."""
    import pandas as pd

    value, spread = (np.asarray(v, dtype=float) for v in (estimate, std_error))
    half = float(norm.ppf(1 - alpha / 2)) * spread
    with np.errstate(divide="ignore", invalid="ignore"):
        z = value / spread
    p = 2 * norm.sf(np.abs(z)) if p_value is None else np.asarray(p_value, dtype=float)
    ends = [
        normal if given is None else np.asarray(given, dtype=float)
        for given, normal in ((low, value - half), (high, value + half))
    ]
    columns = ([str(t) for t in terms], value, spread, z, p, *ends)
    return pd.DataFrame(dict(zip(TIDY, columns, strict=True)))


def _count(n: Any) -> str:
    return "" if n is None or not np.isfinite(float(n)) else f"{float(n):.0f}"
