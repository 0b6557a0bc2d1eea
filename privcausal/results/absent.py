"""What users of other packages look for in a fit and do not find: where it is, or why it is not."""

from __future__ import annotations

from typing import Any

ROWS = "it would be a number about the rows, and was not released"

HINTS = {
    **dict.fromkeys(("coef", "coef_", "coefficients"), "see params"),
    **dict.fromkeys(("se", "std_errors", "stderr"), "see bse"),
    **dict.fromkeys(("vcov", "cov", "normalized_cov_params"), "see cov_params()"),
    **dict.fromkeys(
        ("confint", "conf_int_", "ate_interval", "effect_interval", "coef__interval"),
        "see conf_int(alpha=0.05)",
    ),
    **dict.fromkeys(("pvalue", "pval"), "see pvalues"),
    **dict.fromkeys(("tstat", "t_stat", "tstats"), "see zvalues"),
    **dict.fromkeys(("t_test", "f_test", "wald", "linear_hypothesis"), "see wald_test('x = 0')"),
    **dict.fromkeys(("summary2", "summary_frame"), "see summary(), tidy() and glance()"),
    **dict.fromkeys(
        ("to_latex", "as_latex", "to_html", "as_html", "to_markdown", "as_text"),
        "see summary().as_latex(label=...), .as_html() and .as_markdown()",
    ),
    **dict.fromkeys(
        ("effect", "cate", "tau", "const_marginal_effect", "get_prediction", "get_margeff"),
        "see predict(newdata) of privcate's results",
    ),
    "predict": "an average effect predicts nothing: pc.privcate gives the effect at new points",
    **dict.fromkeys(("att", "ATT"), "fit with pc.private(..., estimand='ATT')"),
    **dict.fromkeys(("ato", "ATO"), "fit with pc.private(..., estimand='ATO')"),
    **dict.fromkeys(("gates", "groups"), "see gate"),
    **dict.fromkeys(("eps", "epsilon", "delta", "rho", "privacy"), "see guarantee"),
    **dict.fromkeys(("ledger", "remaining"), "see ledger_line, or the Ledger itself"),
    "formula": "see plan.request.formula, or call",
    "nobs": "the number of rows is private under these neighbours",
    **dict.fromkeys(
        ("resid", "residuals", "fittedvalues", "fitted", "rsquared", "rsquared_adj", "r2", "ssr",
         "llf", "aic", "bic", "fvalue", "f_pvalue", "augment", "data", "scores"),
        ROWS,
    ),
}  # fmt: skip
"""By name; a fit that has the attribute never asks here."""


class Absent:
    """Answers for names that a result does not have."""

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # it is there, and failed: its own error is told
            return object.__getattribute__(self, name)
        hint = f": {HINTS[name]}" if name in HINTS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
