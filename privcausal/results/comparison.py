"""`compare`: several fits in one table, including fits of other packages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd
from scipy.stats import norm

from privcausal.accounting import Events, total_epsilon
from privcausal.errors import CapabilityError, named
from privcausal.report import summary, tables
from privcausal.request.request import COHORTS
from privcausal.results.exchange import ForMaketables, stat_text
from privcausal.results.fits import Result
from privcausal.results.frames import check_alpha, quantile
from privcausal.results.guarantee import price_text
from privcausal.results.view import outcome_name

Facts = dict[str, str]

Terms = Sequence[str] | Mapping[str, str] | None


@named
def compare(
    *fits: Any,
    terms: Terms = None,
    statistic: summary.Statistic = "std_error",
    groups: bool = False,
    alpha: float = 0.05,
    title: str | None = None,
    labels: tables.Labels | None = None,
) -> summary.Comparison:
    """Combine several fits in one table, as text, LaTeX, HTML, Markdown or a Word document.

    The table is post-processing of released numbers, at no privacy cost. It may include fits of
    other packages. Their numbers have no privacy guarantee, and the table says so.

    Parameters
    ----------
    *fits : fits, or one sequence of them, or a mapping from names to fits
        Each fit may be one of the following. Fits without names are numbered (1), (2), ...

        - a result of `private`, `privcate`, `from_cells` or `load`;
        - a result of statsmodels, linearmodels, pyfixest, DoubleML, or lifelines;
        - a linear estimator of EconML, or its `ate_inference` or another inference;
        - any object that follows the maketables protocol;
        - a frame with broom's columns (term estimate std_error, and optionally p_value conf_low
          conf_high).
    terms : sequence of str, or mapping, optional
        Terms to show, in this order. A mapping renames terms, and terms with the same name share a
        row: ``{"ATE": "effect", "programme": "effect"}``. Default: all terms except the slopes of a
        fit by covariates. These slopes show how the effect varies, and are mostly noise.
    statistic : {"std_error", "conf_int", "p_value"}
        The statistic printed below each estimate.
    groups : bool
        Whether to add rows for the averages of the declared groups.
    alpha : float
        Confidence intervals are at level 1 - alpha.
    title : str, optional
    labels : dict, optional
        Display names of columns: ``{"dth30": "30-day mortality"}``.

    Returns
    -------
    Comparison
        `str()`, `.as_text()`, `.as_latex(caption=, label=)`, `.as_html()`, `.as_markdown()`,
        `.to_word(path)`. `.frame` and `.stats` hold the numbers of the table.

    Raises
    ------
    CapabilityError
        An object cannot be compared, a term or statistic is unknown, or two terms of one fit would
        share a row.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> given = {"formula": study.formula, "data": study.frame, "bounds": study.bounds}
    >>> table = pc.compare({"AIPW": pc.private(**given), "R-learner": pc.privcate(**given)})
    >>> table.frame["fit"].tolist()
    ['AIPW', 'R-learner']
    """
    check_alpha(alpha)
    if statistic not in get_args(summary.Statistic):
        choices = ", ".join(map(repr, get_args(summary.Statistic)))
        raise CapabilityError(
            f"statistic={str(statistic)[:40]!r} is not available. Choices: {choices}."
        )
    models: Any = fits[0] if len(fits) == 1 else fits
    if isinstance(models, Mapping):
        named = {str(name): fit for name, fit in models.items()}
    elif isinstance(models, Sequence) and not isinstance(models, str | bytes):
        named = {f"({place})": fit for place, fit in enumerate(models, 1)}
    else:
        raise CapabilityError(
            'compare() takes several fits: compare(one, other) or compare({"DR": one, "R": other}).'
        )
    if not named:
        raise CapabilityError("compare() requires at least one fit.")
    # Passed to maketables, a fit shows fewer of its attributes.
    named = {n: fit.fit if isinstance(fit, ForMaketables) else fit for n, fit in named.items()}
    frames, facts = dict[str, pd.DataFrame](), dict[str, Facts]()
    for name, fit in named.items():
        frames[name], facts[name] = (
            _private(fit, alpha, groups, slopes=terms is not None)
            if isinstance(fit, Result)
            else _external(fit, alpha)
        )
    frame = pd.concat([rows.assign(fit=name) for name, rows in frames.items()], ignore_index=True)
    frame = frame[["fit", *summary.TIDY]]
    if terms is not None:
        frame = _chosen(frame, terms)
    private = {name: fit for name, fit in named.items() if isinstance(fit, Result)}
    if labels is not None:
        columns = dict.fromkeys(name for fit in private.values() for name in fit.schema)
        names = tables.check_labels(labels, tuple(columns))
        frame["term"] = [tables.relabelled(str(term), names) for term in frame["term"]]
        for lines in facts.values():
            lines["Outcome"] = tables.relabelled(lines.get("Outcome", ""), names)
    kinds = {fit.guarantee.kind for fit in private.values()}
    others = [tables.clean(name) for name in named if name not in private]
    notes = _notes(list(private.values()), others)
    linear = all(fit.plan.request.regression for fit in private.values())
    title = title or f"Comparison of {'Coefficients' if linear and private else 'Effect Estimates'}"
    return summary.compared(frame, facts, kinds, title, statistic, alpha, notes)


def _private(
    fit: Result, alpha: float, groups: bool, *, slopes: bool
) -> tuple[pd.DataFrame, Facts]:
    frame = fit._tests(alpha)[slopes | fit._listed].reset_index()
    if fit.plan.request.estimand == COHORTS:  # averages first, and on request all ATT(g, t)
        places = np.array([row.place.factor for row in fit._rows(groups=True)])
        means = fit._tests(alpha, groups=True).reset_index()
        frames = [means[places == "overall"], means[places == "event"]]
        frames += [means[np.isin(places, ["cohort", "calendar"])], frame] * slopes
        frame = pd.concat(frames, ignore_index=True)
    elif groups and fit._averages.groups:
        frame = pd.concat([frame, fit._tests(alpha, groups=True).reset_index()], ignore_index=True)
    plan, view = fit.estimate.plan, fit._view()
    title = view.right[1][1]
    short = title.partition("(")[2].rstrip(")") or title
    row = fit._headline()
    sampling = tables.alike([row["se_sampling"]], row["std_error"])[0]
    hidden = fit._averages.hidden
    return frame, {
        "Outcome": outcome_name(plan.request, fit.estimate.schema),
        "Estimator": short if plan.base == "none" else f"{short} / {plan.base}",
        "Estimand": ", ".join(plan.request.estimands),
        # Other packages count complete rows; their number is released if rows may be incomplete.
        "n": dict(view.left).get(tables.COMPLETE) or stat_text(fit, "N") or "private",
        "ε": stat_text(fit, "epsilon") or "",
        "δ": stat_text(fit, "delta") or "",
        "Neighboring data": stat_text(fit, "neighbors") or "",
        "Adjustment hidden": f"{hidden:.0%}" if math.isfinite(hidden) else "",
        "Sampling alone": sampling if math.isfinite(row["se_sampling"]) else "",
        "Guarantee": stat_text(fit, "guarantee") or "",
    }


def _chosen(frame: pd.DataFrame, terms: Sequence[str] | Mapping[str, str]) -> pd.DataFrame:
    """Rows of the chosen terms, in the chosen order for each fit, with the chosen names."""
    if isinstance(terms, str):
        raise CapabilityError(
            f"terms= must be a list of names or a mapping. Write [{terms[:40]!r}]."
        )
    named = dict(terms) if isinstance(terms, Mapping) else {str(t): str(t) for t in terms}
    available = list(dict.fromkeys(map(str, frame["term"])))
    unknown = [term for term in named if term not in available]
    if unknown or not named:
        choices = ", ".join(repr(tables.clean(term)) for term in available[:10])
        problem = (
            f"No fit has the term {tables.clean(unknown[0])!r}" if unknown else "terms= is empty"
        )
        raise CapabilityError(f"{problem}. Choices: {choices}{', ...' * (len(available) > 10)}.")
    rows = frame[frame["term"].isin(named)]
    places = rows["term"].map({term: place for place, term in enumerate(named)})
    order = np.lexsort((places, pd.factorize(rows["fit"])[0]))
    rows = rows.iloc[order].reset_index(drop=True)
    rows["term"] = rows["term"].map(named)
    twice = rows[rows.duplicated(["fit", "term"])]
    if len(twice):
        raise CapabilityError(
            f"Two terms of {tables.clean(twice['fit'].iloc[0])!r} would share one row. Give them "
            "different names in terms=."
        )
    return rows


def _notes(private: list[Result], others: list[str]) -> list[str]:
    notes = []
    if private:
        notes.append(
            "In private fits, they include the privacy noise. Sampling alone: standard error of "
            "the first term, after the intercept, without this noise. Adjustment hidden: share of "
            "the confounding by covariates that noise hides."
        )
    if others:
        notes.append(
            f"No privacy guarantee covers {', '.join(others)} (fitted without privcausal)."
        )
    # Total cost of the proven fits of one unit, if all of them used the same rows.
    distinct = list({id(fit.estimate): fit for fit in private}.values())
    promises = [fit.guarantee for fit in distinct]
    same_unit = len({(p.kind, p.neighbors, p.unit) for p in promises}) == 1
    if len(distinct) > 1 and same_unit and promises[0].kind == "proven":
        delta = max(p.delta for p in promises)
        costs = [release.charge.cost for fit in distinct for release in fit.estimate.releases]
        epsilon = total_epsilon(Events.of(costs), delta)
        if math.isfinite(epsilon):
            notes.append(
                "If the private fits use the same rows and their costs were fixed in advance, they "
                f"are {price_text(epsilon, delta)} together."
            )
    return notes


# -- fits of other packages --------------------------------------------------------------------


Foreign = tuple[pd.DataFrame, Facts]
"""Terms (columns `TIDY`) and facts of a fit from another package."""


def _external(fit: Any, alpha: float) -> Foreign:
    """Read the fit by its public attributes. Limits that are not given at `alpha` are normal."""
    if isinstance(fit, pd.DataFrame):
        return _frame(fit, alpha), {"Guarantee": "none"}
    for names, read in READERS.items():
        if all(hasattr(fit, name) for name in names.split()):
            return read(fit, alpha)
    if hasattr(fit, "__maketables_coef_table__"):
        heads = {"b": "estimate", "se": "std_error", "p": "p_value"}
        for end, side in (("l", "low"), ("u", "high")):
            heads[f"ci{100 * (1 - alpha):.4g}{end}"] = f"conf_{side}"
        table = fit.__maketables_coef_table__.rename(columns=heads)
        stat = getattr(fit, "__maketables_stat__", None)
        outcome = getattr(fit, "__maketables_depvar__", "")
        return _frame(table, alpha), _facts(outcome, fit, stat("N") if stat else None)
    if hasattr(fit, "all_fitted_models"):  # pyfixest, for sw() or several outcomes
        raise CapabilityError(
            f"A {type(fit).__name__} contains several models. Pass *fit.to_list()."
        )
    raise CapabilityError(
        f"A {type(fit).__name__} cannot be compared. Pass fits of privcausal, statsmodels, "
        "linearmodels, pyfixest, DoubleML, lifelines, EconML, or maketables, or frames with the "
        "columns term, estimate, and std_error."
    )


def _regression(fit: Any, alpha: float) -> Foreign:
    """A fit of statsmodels, linearmodels, pyfixest or lifelines."""
    if hasattr(fit, "bse"):
        estimates = np.asarray(fit.params, dtype=float)
        if estimates.ndim != 1:
            raise CapabilityError(
                f"A {type(fit.model).__name__} has several columns of estimates. Pass each as a "
                "frame."
            )
        # A fit on plain arrays has no index; the model then has the names.
        terms = getattr(fit.params, "index", None)
        names = fit.model.exog_names if terms is None else terms
        frame = _tidy(names, estimates, fit.bse, alpha, fit.pvalues, fit.conf_int(alpha))
        return frame, _facts(fit.model.endog_names, fit.model, getattr(fit, "nobs", None))
    if hasattr(fit, "std_errors"):
        limits = fit.conf_int(level=1 - alpha)
        frame = _tidy(fit.params.index, fit.params, fit.std_errors, alpha, fit.pvalues, limits)
        outcome = fit.model.dependent  # its columns are `cols` or, in panels, `vars`
        columns = getattr(outcome, "cols", None) or outcome.vars
        return frame, _facts(columns[0], fit.model, fit.nobs)
    if hasattr(fit, "_depvar"):
        table = fit.tidy()
        estimate, error, p = (table[name] for name in ("Estimate", "Std. Error", "Pr(>|t|)"))
        frame = _tidy(table.index, estimate, error, alpha, p, fit.confint(alpha=alpha))
        absorbed = getattr(fit, "_fixef", None)
        more = {"Fixed effects": absorbed} if absorbed not in (None, "0") else {}
        return frame, _facts(fit._depvar, fit, getattr(fit, "_N", None), **more)
    terms, p = fit.params_.index, fit.summary["p"]
    frame = _tidy(terms, fit.params_, fit.standard_errors_, alpha, p)
    outcome = f"Surv({fit.duration_col}, {fit.event_col})"
    return frame, _facts(outcome, fit, len(fit.event_observed))


def _causal(fit: Any, alpha: float) -> Foreign:
    """A fit of DoubleML, or an inference or a linear estimator of EconML."""
    if hasattr(fit, "coef"):
        limits = fit.confint(level=1 - alpha)
        frame = _tidy(limits.index, fit.coef, fit.se, alpha, fit.pval, limits)
        return frame, _facts("", fit, getattr(fit, "n_obs", None))
    if hasattr(fit, "point_estimate"):  # its frame has broom's columns under other names
        names = {
            "point_estimate": "estimate",
            "stderr": "std_error",
            "pvalue": "p_value",
            "ci_lower": "conf_low",
            "ci_upper": "conf_high",
        }
        frame = fit.summary_frame(alpha=alpha, decimals=15).rename(columns=names)
        return _frame(frame, alpha), _facts("", fit, None)
    if hasattr(fit, "mean_point"):
        low, high = fit.conf_int_mean(alpha=alpha)
        value = np.atleast_1d(fit.mean_point).ravel()
        terms = ["ATE"] if len(value) == 1 else [f"ATE[{place}]" for place in range(len(value))]
        limits = np.column_stack([np.ravel(low), np.ravel(high)])
        spread, p = np.ravel(fit.stderr_mean), np.ravel(fit.pvalue())
        return _tidy(terms, value, spread, alpha, p, limits), _facts("", fit, None)
    try:
        parts = [
            _causal(part(), alpha)[0] for part in (fit.intercept__inference, fit.coef__inference)
        ]
    except (AttributeError, TypeError):
        raise CapabilityError(
            f"A {type(fit).__name__} has coefficients by treatment, or none. Pass an inference, "
            "for example fit.ate_inference(X) or fit.coef__inference(T=1)."
        ) from None
    return pd.concat(parts, ignore_index=True), _facts("", fit, None)


READERS: dict[str, Callable[[Any, float], Foreign]] = {
    "params bse pvalues conf_int": _regression,
    "params std_errors pvalues conf_int model": _regression,
    "tidy confint _depvar": _regression,
    "coef se pval confint": _causal,
    "params_ standard_errors_ summary duration_col": _regression,
    "point_estimate stderr summary_frame": _causal,
    "coef__inference intercept__inference": _causal,
    "mean_point stderr_mean conf_int_mean": _causal,
}
"""Readers of other packages' fits, by attributes that only such fits have, without imports."""


def _frame(fit: pd.DataFrame, alpha: float) -> pd.DataFrame:
    table = fit.rename(columns=lambda name: str(name).replace(".", "_"))
    table = table.set_index("term") if "term" in table else table
    missing = [name for name in ("estimate", "std_error") if name not in table]
    if missing:
        raise CapabilityError(f"A frame to compare must have the column {missing[0]!r}.")
    p_value, low, high = (table.get(name) for name in ("p_value", "conf_low", "conf_high"))
    frame = _tidy(table.index, table["estimate"], table["std_error"], alpha, p_value)
    for name, column in (("conf_low", low), ("conf_high", high)):
        frame[name] = frame[name] if column is None else np.asarray(column, dtype=float)
    return frame


def _tidy(
    terms: Any, estimate: Any, std_error: Any, alpha: float, p_value: Any = None, limits: Any = None
) -> pd.DataFrame:
    """Columns `TIDY`; p values and limits that are not given are normal."""
    value, spread = (np.asarray(v, dtype=float) for v in (estimate, std_error))
    half = quantile(alpha) * spread
    with np.errstate(divide="ignore", invalid="ignore"):
        z = value / spread
    p = 2 * norm.sf(np.abs(z)) if p_value is None else np.asarray(p_value, dtype=float)
    ends = (value - half, value + half) if limits is None else np.asarray(limits, dtype=float).T
    names = [":".join(map(str, t)) if isinstance(t, tuple) else str(t) for t in terms]
    columns = (names, value, spread, z, p, *ends, np.zeros(len(value)))
    return pd.DataFrame(dict(zip(summary.TIDY, columns, strict=True)))


def _facts(outcome: object, model: object, n: Any, **others: str) -> Facts:
    finite = n is not None and np.isfinite(float(n))
    facts = {"Outcome": str(outcome), "Estimator": type(model).__name__}
    return facts | {"n": f"{float(n):,.0f}" if finite else "", **others, "Guarantee": "none"}
