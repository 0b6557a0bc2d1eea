"""Results of fits: average effects, effects tau(x), regressions, and event studies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import ncx2

from privcausal.errors import CapabilityError, write
from privcausal.estimators import diagnostics, slopes, survival
from privcausal.estimators.difference import PLACES
from privcausal.estimators.estimands import Linked, words_of
from privcausal.features.design import Rows, read_points, warn_beyond
from privcausal.features.functions import Family
from privcausal.inference import effects
from privcausal.inference.cells import CellEffect
from privcausal.report import document, plots, tables
from privcausal.report.summary import TIDY, Summary, summarize
from privcausal.report.tables import Check, Shape
from privcausal.request.cohorts import comparisons, labels_of
from privcausal.request.panels import clock
from privcausal.request.request import COHORTS, Budget
from privcausal.request.schema import Binary, Interval, level_names
from privcausal.results import exchange, frames, guarantee, looks, stored
from privcausal.results.view import outcome_name, part_words, set_words, view_of
from privcausal.typing import Frame, Matrix

if TYPE_CHECKING:
    from interpret.glassbox import ExplainableBoostingRegressor

    from privcausal.accounting import Ledger

Drawn = tuple[pd.DataFrame, Callable[..., Any]]
"""The numbers of a plot, and the function that draws it on axes `ax`."""

CATE_KINDS = ("effect", "uplift")
"""Kinds of plots for effects that depend on covariates."""


class Result(exchange.Exchange):
    """A finished fit: released numbers and functions of these numbers; no rows.

    Attributes
    ----------
    estimate : Estimate
    record : Record
        The request and the releases, from which the estimate was computed.
    call : str
        Python code that reproduces the fit.
    ledger_line : str or None
        State of the ledger after the fit.
    """

    # -- diagnostics with a privacy cost of their own ------------------------------------------

    def overlap(
        self, frame: Frame, *, eps: float, delta: float | None = None, ledger: Ledger | None = None
    ) -> looks.Overlap:
        """Release noisy counts of both arms by propensity, at an additional privacy cost.

        Parameters
        ----------
        frame : data frame
            The original data, because a fit holds no rows. The rows used are the same as in the
            fit.
        eps, delta : float
            The cost of this diagnostic, in addition to the fit; neighbors and unit are the same.
            The default of `delta` is the fit's own.
        ledger : Ledger, optional
            Charged before any row is read. It refuses diagnostics of a fit made with test noise.

        Raises
        ------
        DataError, SchemaError, BudgetError, LedgerError, CapabilityError
            No budget was spent. `CapabilityError`: the propensity is one known number.

        Examples
        --------
        >>> fit.overlap(study.frame, eps=0.2)
        <Overlap of recovery ~ programme | age + severity + C(ward) | bmi: (0.2, 1e-05)-DP, proven>
        """
        delta = self.estimate.plan.request.budget.delta if delta is None else delta
        counts = diagnostics.overlap(self.estimate, frame, Budget(eps, delta), ledger)
        return looks.Overlap(counts, guarantee.ledger_line(ledger))

    def balance(
        self, frame: Frame, *, eps: float, delta: float | None = None, ledger: Ledger | None = None
    ) -> looks.Balance:
        """Release noisy standardized mean differences before and after propensity weighting.

        Weights are inverse propensities. Parameters and errors are as for `overlap`.
        `CapabilityError`: there are no covariates.

        Examples
        --------
        >>> fit.balance(study.frame, eps=0.2)
        <Balance of recovery ~ programme | age + severity + C(ward) | bmi: (0.2, 1e-05)-DP, proven>
        """
        delta = self.estimate.plan.request.budget.delta if delta is None else delta
        means = diagnostics.balance(self.estimate, frame, Budget(eps, delta), ledger)
        return looks.Balance(means, guarantee.ledger_line(ledger))

    def sensitivity(self, alpha: float = 0.05) -> looks.Sensitivity:
        """How strong an unmeasured confounder must be to explain away the average effect.

        Robustness values and bounds on the bias (Chernozhukov et al. 2022; Cinelli and Hazlett
        2020), computed from released numbers at no privacy cost. See `inference.effects` for
        the assumptions.

        Raises
        ------
        CapabilityError
            No average was released, or the mechanism is published.

        Examples
        --------
        >>> fit.sensitivity()
        <Sensitivity of ATE: robustness ..., interval ...>
        """
        return looks.sensitivity_of(self, frames.check_alpha(alpha))

    # -- output ------------------------------------------------------------------------------

    def summary(
        self,
        alpha: float = 0.05,
        full: bool = False,
        labels: tables.Labels | None = None,
        title: str | None = None,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
    ) -> Summary:
        """The publication table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`.

        Parameters
        ----------
        full : bool
            True: every release with its noise and cost, each source of uncertainty, and complete
            notes. False: one line each.
        labels : dict, optional
            Display names of columns: ``{"dth30": "30-day mortality"}``.
        title, yname : str, optional
            Title of the table, and display name of the outcome.
        xname : sequence of str, optional
            Display names of all `params`, in their order.

        Examples
        --------
        >>> print(fit.summary())
        Private Average Treatment Effect
        ...
        """
        view = self._view(frames.check_alpha(alpha))
        return self._summarized(view, full, labels, title, yname, xname)

    def _view(self, alpha: float = 0.05) -> tables.FitView:
        return view_of(self, (), alpha)

    def _summarized(
        self,
        view: tables.FitView,
        full: bool,
        labels: tables.Labels | None,
        title: str | None,
        yname: str | None,
        xname: Sequence[str] | None,
    ) -> Summary:
        terms, names = () if xname is None else (*self.params.index,), xname or ()
        texts = (title or "", yname or "", *names)
        if isinstance(names, str) or not all(isinstance(text, str) for text in texts):
            raise CapabilityError("title= and yname= must be texts, and xname= a list of texts.")
        if len(terms) != len(names):
            raise CapabilityError(f"xname= must have {len(terms)} names, one for each of params.")
        named = dict(zip(terms, names, strict=True)) | ({view.left[0][1]: yname} if yname else {})
        display_names = tables.check_labels(labels, self.plan.request.formula.variables)
        view = tables.with_labels(view, display_names, named)
        return summarize(replace(view, title=title or view.title), full=full)

    def report(
        self,
        path: str | os.PathLike[str],
        audience: Literal["public", "technical"] = "technical",
        checks: Sequence[looks.Overlap | looks.Balance] = (),
        labels: tables.Labels | None = None,
    ) -> None:
        """Write the self-contained HTML report to `path`, which ends in .html.

        Parameters
        ----------
        checks : sequence
            Results of `overlap` and `balance`, to be shown with their own costs.
        labels : dict, optional
            Display names of columns: ``{"dth30": "30-day mortality"}``.

        Examples
        --------
        >>> fit.report("report.html", audience="public")
        """
        place = Path(path)
        suffix = place.suffix.lower()
        if suffix not in ("", ".html", ".htm"):  # the error shows what to write instead
            instead = document.INSTEAD.get(suffix, "fit.report('{stem}.html')")
            raise CapabilityError(
                f"A report is an HTML file, but {place.name!r} does not end in .html. Write "
                f"{instead.format(stem=place.stem)}."
            )
        names = tables.check_labels(labels, self.plan.request.formula.variables)
        view = tables.with_labels(self._view(), names)
        blocks, figures = tuple(check.check for check in checks), self._figures(0.05, names)
        view = replace(view, checks=blocks, figures=figures)
        write(place, document.render_report(view, audience))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the request and the released numbers as versioned JSON.

        Read the file with `privcausal.load`, which computes the fit again from these numbers.

        Examples
        --------
        >>> fit.save("fit.json")
        >>> bool(pc.load("fit.json").params["ATE"] == fit.params["ATE"])
        True
        """
        stored.save(self.estimate, self.record, self.call, self.ledger_line, path)

    def plot(
        self,
        kind: str | None = None,
        *,
        ax: Any = None,
        alpha: float = 0.05,
        labels: tables.Labels | None = None,
    ) -> Any:
        """Draw ``"coef"``, ``"gate"`` (a forest plot) or ``"budget"``; returns matplotlib axes.

        Results of `privcate` can also draw ``"effect"``, which is their default. Effects by cell
        can also draw ``"uplift"``, and fits of survival outcomes ``"survival"``. A LATE draws its
        ``"set"``, or ``"first stage"``. Regressions can also draw ``"line"``. Other results draw
        ``"coef"`` by default, without an intercept. Coefficients in the outcome's unit share one
        axis, and each slope has its own axis. The result is then an array of axes, unless you pass
        `ax`. `labels` are display names of columns.

        Examples
        --------
        >>> ax = fit.plot("gate")
        """
        names = tables.check_labels(labels, self.plan.request.formula.variables)
        return self._picture(kind, alpha, names)[1](ax=ax)

    def plot_data(self, kind: str | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`, for the kinds that the fit can draw.

        Returns
        -------
        DataFrame
            Columns by kind:

            - ``"coef"`` and ``"gate"``: estimate std_error max_bias conf_low conf_high
              se_sampling, one row per term or group.
            - ``"budget"``: stage query currency price share.
            - ``"effect"``: modifier kind at estimate conf_low conf_high.
            - ``"uplift"``: share gain std_error conf_low conf_high random.
            - ``"survival"``: the columns of `AteResult.survival`.
            - ``"set"``: conf_low conf_high, one row per part. ``"first stage"``: as ``"coef"``.
            - ``"line"``: the columns of `RegressionResult.predict`, by values of a column.

        Examples
        --------
        >>> fit.plot_data("gate").index.tolist()
        ['ward[east]', 'ward[north]', 'ward[south]', 'ward[west]']
        """
        return self._picture(kind, alpha)[0]

    def _picture(
        self, kind: str | None, alpha: float, labels: tables.Labels = MappingProxyType({})
    ) -> Drawn:
        frames.check_alpha(alpha)
        kinds = self._kinds
        kind = kinds[0] if kind is None else kind
        if kind not in kinds:
            names = ", ".join(map(repr, kinds))
            why = "requires a fit of pc.privcate" if kind in CATE_KINDS else "is not available"
            raise CapabilityError(f"plot(kind={str(kind)[:40]!r}) {why}. Choices: {names}.")
        if kind == "gate" and not self._averages.groups:
            raise CapabilityError(
                "No groups were declared. Fit with groups=, for example ['region', 'age >= 65']."
            )
        return self._drawn(kind, alpha, labels)

    _plots: ClassVar[tuple[str, ...]] = ("coef", "gate", "budget")

    @property
    def _kinds(self) -> tuple[str, ...]:
        """Kinds of plots that this fit can draw, its default first; all of its class `_plots`."""
        return self._plots

    def _drawn(self, kind: str, alpha: float, labels: tables.Labels) -> Drawn:
        """The plot of this kind, which is one of `_kinds`."""
        if kind == "budget":
            return tables.price_frame(self.budget), partial(plots.budget_plot, self.budget)
        request, groups = self.plan.request, kind == "gate"
        skip = self._lead if request.regression and not groups else 0  # the intercept
        numbers = self._table(alpha, groups=groups).drop(columns="p_value").iloc[skip:]
        frame = self._effects(alpha, groups=groups).iloc[skip:]
        frame = frame.rename(index=lambda term: tables.relabelled(str(term), labels))
        outcome = survival.measured(request) or outcome_name(request, self.estimate.schema)
        words = words_of(request)
        axis = f"{words.axis} of " if isinstance(words, Linked) else ""
        frame = frame.rename_axis(axis + tables.relabelled(outcome, labels))
        if groups and request.estimand == COHORTS:
            return numbers, partial(plots.gate_plot, frame, alpha=alpha, title="All averages")
        if groups:
            return numbers, partial(plots.gate_plot, frame, alpha=alpha, overall=self.ate)
        slopes = [row.kind == "slope" for row in self._rows() if row.is_effect][skip:]
        title = "Coefficients" if request.regression else "Estimated effects"
        return numbers, partial(plots.coef_plot, frame, alpha=alpha, slopes=slopes, title=title)

    def _figures(self, alpha: float, labels: tables.Labels) -> tuple[Check, ...]:
        """Figures that only this kind of fit has, for its report."""
        return ()

    refusal: ClassVar[str] = ""

    def _refused(self, *_: Any, **__: Any) -> Any:
        """What this kind of fit does not have."""
        raise CapabilityError(self.refusal)

    @property
    def methods(self) -> str:
        """Paragraphs on methods, privacy and software, with references, to paste into a paper.

        Examples
        --------
        >>> print(fit.methods)
        The estimator was doubly robust (AIPW) with base 'gam'...
        """
        view = self._view()
        software = ", ".join(f"{name} {version}" for name, version in view.versions)
        privacy = " ".join((view.headline[-1], *view.guarantee))
        methods = " ".join(view.methods)
        cited = [w for words, w in document.WORKS.items() if words in f"{methods} {privacy}"]
        references = "\n".join(f"- {work}" for work in sorted([*cited, document.ALWAYS]))
        return f"{methods}\n\n{privacy}\n\nSoftware: {software}.\n\nReferences\n{references}\n"


@dataclass(frozen=True, eq=False, repr=False)
class AteResult(Result):
    """The result of `privcausal.private`.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.private(study.formula, study.frame, eps=1, bounds=study.bounds, groups=["ward"])
    >>> list(fit.params.index)
    ['ATE']
    """

    def confidence_set(self, alpha: float = 0.05) -> list[tuple[float, float]]:
        """Intervals that together are the confidence set of the LATE, in ascending order.

        The set of Anderson and Rubin (1949) is one interval if the instruments are strong. If the
        first stages may be zero, it is two half-lines, or all numbers. With several instruments, it
        is empty if these contradict each other. `conf_int` has its least and largest value.

        Parameters
        ----------
        alpha : float
            1 - level.

        Raises
        ------
        CapabilityError
            For other estimands; their set is the interval of `conf_int`.

        Examples
        --------
        >>> study = pc.datasets.clinic(2000)
        >>> frame = study.frame.assign(offer=study.frame["programme"])
        >>> fit = pc.private("recovery ~ programme | age | programme ~ offer", frame, eps=4,
        ...                  estimand="LATE", bounds=study.bounds)
        >>> len(fit.confidence_set())
        1
        """
        if self._rows()[0].kind != "late":
            raise CapabilityError("confidence_set() requires estimand='LATE'. Use conf_int().")
        return list(slopes.late_set(self._averages, frames.quantile(alpha)))

    def survival(self, alpha: float = 0.05) -> pd.DataFrame:
        """Survival curves of both arms up to the horizon, from released numbers, at no cost.

        Kaplan-Meier curves (Kaplan and Meier 1958) of the noisy times, not adjusted for covariates.

        Returns
        -------
        DataFrame
            Columns arm time survival std_error at_risk conf_low conf_high band_low band_high, one
            row for each arm and bin of time: the probability of no event up to and including
            `time`. `at_risk` is the noisy number of rows in the bin of `time` or later. Standard
            errors combine Greenwood's formula and privacy noise. Limits hold at each time alone.
            Bands hold at all times of an arm together, at level 1 - alpha.

        Raises
        ------
        CapabilityError
            The outcome is not ``Surv(time, event)``.

        Examples
        --------
        >>> trial = study.frame.assign(days=study.frame["age"] * 3, died=study.frame["age"] > 40)
        >>> timed = pc.private("Surv(days, died) ~ programme", trial, estimand="RMST", horizon=180)
        >>> timed.survival().columns.tolist()
        ['arm', 'time', 'survival', 'std_error', 'at_risk', 'conf_low', 'conf_high',
         'band_low', 'band_high']
        """
        frames.check_alpha(alpha)
        estimate, request = self.estimate, self.plan.request
        if request.horizon is None:
            raise CapabilityError(
                "Survival curves require a survival outcome. Write pc.private('Surv(days, died) ~ "
                "T', data, estimand='RMST', horizon=180)."
            )
        coding, parts = estimate.schema[request.formula.treatment], []
        labels = level_names(coding) if isinstance(coding, Binary) else ()
        curves = survival.arm_curves(request, estimate.releases)
        for label, (curve, replicas) in zip(labels, curves, strict=True):
            cov = curve.cov(replicas, request.trust.max_rows)
            sd, value = np.sqrt(np.diag(cov)), curve.survival
            columns = {"arm": label, "time": survival.times(request), "survival": value}
            columns |= {"std_error": sd, "at_risk": curve.risk}
            for name, joint in (("conf", False), ("band", True)):
                half = frames.critical(cov, alpha, simultaneous=joint) * sd
                columns[f"{name}_low"] = np.clip(value - half, 0.0, 1.0)
                columns[f"{name}_high"] = np.clip(value + half, 0.0, 1.0)
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    @property
    def _kinds(self) -> tuple[str, ...]:
        late = ("set", "first stage") * (self._rows()[0].kind == "late")
        return *late, *self._plots, *(["survival"] * (self.plan.request.horizon is not None))

    def _drawn(self, kind: str, alpha: float, labels: tables.Labels) -> Drawn:
        formula, forest = self.plan.request.formula, partial(plots.coef_plot, alpha=alpha)
        if kind == "survival":
            time, mean = formula.outcome, self.plan.request.estimand == "RMST"
            curves = partial(plots.survival_plot, time=tables.relabelled(time, labels), mean=mean)
            frame = self.survival(alpha)
            return frame, partial(curves, frame, alpha=alpha)
        if kind == "set":
            value, parts = float(self.params.iloc[0]), self.confidence_set(alpha)
            rows = [(value if low <= value <= high else np.nan, low, high) for low, high in parts]
            names = pd.Index([f"LATE {part_words(*part)}" for part in parts])
            names = names.rename(tables.relabelled(formula.effect_on, labels))
            sets = pd.DataFrame(rows, names, ["estimate", "conf_low", "conf_high"])
            return sets, partial(forest, sets, title="Confidence set of the LATE")
        if kind == "first stage":
            stages = self._table(alpha).drop(columns="p_value")
            stages = stages[[row.kind == "first stage" for row in self._rows()]]
            stages = stages.rename_axis(tables.relabelled(formula.treatment, labels))
            return stages, partial(forest, stages, title="First stage")
        return super()._drawn(kind, alpha, labels)

    def _figures(self, alpha: float, labels: tables.Labels) -> tuple[Check, ...]:
        if self.plan.request.horizon is not None:
            caption = "Survival by arm, and noisy numbers at risk"
            curves, draw = self._drawn("survival", alpha, labels)
            risk = plots.at_risk(curves).round()
            return (Check(caption, UNADJUSTED, risk, draw, height=4.2),)
        if self._rows()[0].kind != "late":
            return ()
        strength = slopes.instrument_tests(self._averages).strength
        captions = {"first stage": f"F statistic of the first stage: {strength:,.1f} (noisy)."}
        parts = self.confidence_set(alpha)
        if len(parts) != 1 or np.isinf(parts).any():  # one interval is already in the table
            captions = {"set": set_words(parts, alpha)} | captions
        drawn = [(words, *self._drawn(kind, alpha, labels)) for kind, words in captions.items()]
        return tuple(
            Check(words.partition(":")[0], words, frame, draw, (max(len(frame), 1),))
            for words, frame, draw in drawn
        )


UNADJUSTED = (
    "Kaplan-Meier curves of the noisy times. They are not adjusted for covariates, so the area "
    "between them may differ from the estimated effect."
)


LINE = (
    "The line shows predicted means over the declared range of {}. The other columns are at the "
    "middle of their ranges, or at their first level."
)


@dataclass(frozen=True, eq=False, repr=False)
class RegressionResult(Result):
    """The result of `privcausal.regress`; `params` are coefficients in natural units.

    If the noise hides what distinguishes a column from the others, its interval is wide.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.regress("recovery ~ programme + age", study.frame, eps=1, bounds=study.bounds)
    >>> list(fit.params.index)
    ['Intercept', 'programme', 'age']
    """

    def predict(self, newdata: Frame, alpha: float = 0.05) -> pd.DataFrame:
        """x'b at new points: estimate std_error max_bias conf_low conf_high, index of `newdata`.

        The prediction estimates the mean of the outcome at x, to the extent that the mean is linear
        in the columns. Numbers outside the declared bounds are clipped to them. A row with a
        missing value is NaN.

        Examples
        --------
        >>> fit.predict(study.frame.head(3)).shape
        (3, 5)
        """
        return self.get_prediction(newdata).at(alpha)

    def get_prediction(self, newdata: Frame) -> frames.Prediction:
        """`predict`, with the names of statsmodels: see `summary_frame()` of the result."""
        estimate = self.estimate
        design = estimate.design
        rows, present, index = read_points(design, design.variables, newdata, None)
        warn_beyond(design, newdata)
        x = self._regressors(rows)
        predicted = effects.contrasted(self._averages, x, np.zeros(len(x)))
        return frames.Prediction(
            present[:, None],
            lambda alpha: pd.DataFrame(predicted.columns(frames.quantile(alpha)), index),
        )

    def _regressors(self, rows: Rows) -> Matrix:
        """The intercept and the columns of rows, in natural units, shape (n, k)."""
        x = np.ones((len(rows), 1 + len(self.estimate.design)))
        scaled = rows.scaled(self.estimate.design)
        for j, column in enumerate(self.estimate.design.columns, 1):
            x[:, j] = column.middle + scaled[:, j - 1] / column.per_unit
        return x

    @property
    def rsquared(self) -> float:
        """Share of the outcome's variance that the columns explain, or NaN if noise hides it.

        Examples
        --------
        >>> bool(0 <= fit.rsquared <= 1)
        True
        """
        return float(self._averages.r2)

    @property
    def fvalue(self) -> float:
        """Statistic of `f_test`: all slopes are 0."""
        return float(self.f_test().fvalue)

    @property
    def f_pvalue(self) -> float:
        """P value of `f_test`: all slopes are 0."""
        return float(self.f_test().pvalue)

    @property
    def rsquared_adj(self) -> float:
        """`rsquared`, adjusted for the number of columns.

        Examples
        --------
        >>> bool(fit.rsquared_adj <= fit.rsquared)
        True
        """
        n, p = self._averages.size, len(self._averages.terms)
        return 1 - (1 - self.rsquared) * (n - 1) / max(n - p, 1.0)

    @property
    def _kinds(self) -> tuple[str, ...]:
        domains = [self.estimate.schema[name] for name in self.estimate.design.variables]
        numeric = any(isinstance(domain, Interval) for domain in domains)
        return *self._plots, *(["line"] * numeric)

    def _drawn(self, kind: str, alpha: float, labels: tables.Labels) -> Drawn:
        if kind != "line":
            return super()._drawn(kind, alpha, labels)
        # The first numeric column varies. Others are at their middles, or at their first levels.
        schema, column, points = self.estimate.schema, "", dict[str, Any]()
        for name in self.estimate.design.variables:
            domain, points[name] = schema[name], 0
            if isinstance(domain, Interval):
                points[name] = (domain.lo + domain.hi) / 2
                if not column:
                    column = name
                    points[name] = np.linspace(domain.lo, domain.hi, frames.CURVE_GRID)
            elif domain.labels:
                points[name] = domain.labels[0]
        line = self.predict(pd.DataFrame(points).set_index(column, drop=False), alpha)
        interval = f"{tables.confidence(alpha)} interval at each point"
        value, low, high = (line[k].tolist() for k in ("estimate", "conf_low", "conf_high"))
        name, at = tables.relabelled(column, labels), line.index.tolist()
        shape = Shape(name, "continuous", at, value, low, high, interval)
        ends = (min(low), max(high)) if np.isfinite([*low, *high]).all() else None
        what = f"Predicted {tables.relabelled(outcome_name(self.plan.request, schema), labels)}"
        return line, partial(plots.effect_plot, [shape], ylim=ends, what=what)

    def _figures(self, alpha: float, labels: tables.Labels) -> tuple[Check, ...]:
        slopes = [row.kind == "slope" for row in self._rows() if row.is_effect][self._lead :]
        frame, draw = self._drawn("coef", alpha, labels)
        rows = tuple(filter(None, (slopes.count(False), *(1 for is_slope in slopes if is_slope))))
        caption = f"Coefficients with {tables.confidence(alpha)} intervals, without the intercept."
        coefficients = (Check("Coefficients", caption, frame, draw, rows),)
        if "line" not in self._kinds:
            return coefficients
        line, draw = self._drawn("line", alpha, labels)
        caption = LINE.format(tables.relabelled(str(line.index.name), labels))
        grid = line.iloc[::8].rename(index="{:.6g}".format)
        return *coefficients, Check("Fitted line", caption, grid, draw)

    refusal = (
        "A regression has no average effect. Its coefficients are in params. For an average "
        "effect, use pc.private(...)."
    )

    ate = gate = property(Result._refused)
    sensitivity = overlap = balance = Result._refused


@dataclass(frozen=True, eq=False, repr=False)
class GeneralizedResult(RegressionResult):
    """The result of `privcausal.logit` and `privcausal.poisson`; `params` are log odds or logs.

    `predict` estimates the mean of the outcome, a probability or a rate. `rsquared` is NaN.

    Examples
    --------
    >>> study = pc.datasets.clinic(5000)
    >>> fit = pc.poisson("recovery ~ programme + age", study.frame, eps=4, bounds=study.bounds)
    >>> fit.predict(study.frame.head(3)).shape
    (3, 5)
    """

    def summary(
        self,
        alpha: float = 0.05,
        full: bool = False,
        labels: tables.Labels | None = None,
        title: str | None = None,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        exponentiate: bool = False,
    ) -> Summary:
        """The publication table; see `Result.summary` for the other parameters.

        Parameters
        ----------
        exponentiate : bool
            True: odds or rate ratios, with the exponentials of the limits. Standard errors and
            largest biases are then multiplied by the ratio (delta method).

        Examples
        --------
        >>> print(fit.summary(exponentiate=True))
        Private Poisson Regression: Rate Ratios
        ...
        """
        view = self._view(frames.check_alpha(alpha))
        words = words_of(self.plan.request)
        if exponentiate and view.effects is not None and isinstance(words, Linked):
            effects = view.effects.copy()
            for column in ("estimate", "conf_low", "conf_high"):
                effects[column] = np.exp(effects[column])
            for column in {"std_error", "max_bias", "se_sampling"} & {*effects.columns}:
                effects[column] *= effects["estimate"]
            title_of_ratios = f"{view.title}: {words.exponential.title()}s"
            view = replace(view, effects=effects, title=title_of_ratios)
        return self._summarized(view, full, labels, title, yname, xname)

    def get_prediction(self, newdata: Frame) -> frames.Prediction:
        """`predict`, with the names of statsmodels: see `summary_frame()` of the result."""
        linear, family = super().get_prediction(newdata), Family(self.plan.request.estimand)

        def means(alpha: float) -> pd.DataFrame:
            frame = linear.frame(alpha)
            slope = family.variance(family.mean(frame["estimate"].to_numpy()))
            for column in ("std_error", "max_bias"):
                frame[column] *= slope
            for column in ("estimate", "conf_low", "conf_high"):
                frame[column] = family.mean(frame[column].to_numpy())
            return frame

        return replace(linear, frame=means)

    def get_margeff(self) -> frames.Prediction:
        """Average marginal effects: the mean over the rows of the mean's derivative in each column.

        The average over the columns' distribution is that of a synthetic population with the
        released moments, without survey weights, at no privacy cost. Intervals are those of the
        coefficients (delta method); they do not contain the error of that distribution.

        Returns
        -------
        Prediction
            ``summary_frame()`` has one row per column: mean mean_se mean_ci_lower mean_ci_upper.

        Examples
        --------
        >>> fit.get_margeff().summary_frame().index.tolist()
        ['programme', 'age']
        """
        coef, family = self._averages.estimate, Family(self.plan.request.estimand)
        x = self._regressors(self.estimate.population.rows())
        mean = family.mean(x @ coef)
        slope = family.variance(mean)
        curve = slope * (1 - 2 * mean) if family.name == "logit" else slope
        by = np.eye(len(coef)) * slope.mean() + np.outer(coef, curve @ x / len(x))
        effects_of = effects.contrasted(self._averages, by[1:], np.zeros(len(coef) - 1))
        effects_of = effects_of._replace(estimate=slope.mean() * coef[1:])
        index = pd.Index(self.params.index[1:])
        return frames.Prediction(
            np.ones((len(index), 1), bool),
            lambda alpha: pd.DataFrame(effects_of.columns(frames.quantile(alpha)), index),
        )


@dataclass(frozen=True, eq=False, repr=False)
class CateResult(Result):
    """The result of `privcausal.privcate`.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.privcate(study.formula, study.frame, eps=1, bounds=study.bounds)
    >>> fit.predict(study.frame.head(3)).shape
    (3, 4)
    """

    @property
    def _effect(self) -> effects.Effect | CellEffect | effects.ArmPolynomials:
        effect = self.estimate.effect
        assert effect is not None
        return effect

    def predict(self, newdata: Frame | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """tau(x) at new points: estimate std_error conf_low conf_high, index of `newdata`.

        Prediction is post-processing of released numbers. It costs no privacy budget, has no limit
        on its use, and gives the same values each time. Averages of predictions over private rows
        are not private. Numbers outside the declared bounds are clipped to them. A row with a
        missing value is NaN.

        The interval is an approximate band for the projection of tau on the basis, valid on average
        over x. Coverage of 95% bands at eps = 1 was measured on eight data-generating processes
        that were not used for tuning. Learner "r" covered 94 to 100% of points at 4,000 or more
        rows, and 91 to 100% at 1,000 rows. Learner "dr" covered 89 to 100% and 85 to 100%
        (`tests/benchmarks/cate/results.md`).

        A fit with ``queries=`` knows the effect only at its query points. Without `newdata` it
        returns all of them.

        Raises
        ------
        DataError
            A required column is absent, or holds a level that was not declared.
        CapabilityError
            A point that was not among the queries.

        Examples
        --------
        >>> fit.predict(study.frame.head(3)).columns.tolist()
        ['estimate', 'std_error', 'conf_low', 'conf_high']
        """
        return self.get_prediction(newdata).at(alpha)

    def get_prediction(self, newdata: Frame | None = None) -> frames.Prediction:
        """`predict`, with the names of statsmodels: see `summary_frame()` of the result."""
        estimate = self.estimate
        if newdata is None:
            queries = estimate.plan.request.queries
            if queries is None:
                raise CapabilityError(
                    "predict() requires new data, for example fit.predict({'age': [40, 60]})."
                )
            newdata = dict(queries.columns)
        needed = estimate.plan.request.formula.effect_variables
        rows, present, index = read_points(estimate.design, needed, newdata, self._propensity)
        warn_beyond(estimate.design, newdata)
        effect = self._effect
        if isinstance(effect, effects.Answers) and (effect.point_of(rows) < 0).any():
            raise CapabilityError(
                f"The effect was released only at the {len(effect.points)} points of queries=. "
                "Omit queries= to release the whole function."
            )
        value, sd = effect(rows), effect.sd(rows)

        def limits(alpha: float) -> pd.DataFrame:
            frame = pd.DataFrame(frames.with_limits(value, sd, frames.quantile(alpha)), index)
            return frames.within_reach(frame, -self._reach, self._reach)

        return frames.Prediction(present[:, None], limits)

    @property
    def blp(self) -> pd.DataFrame:
        """Slopes of the best linear projection of tau(x) on its modifiers, in natural units.

        Columns as in `tidy`. Slopes are not shrunken, and mostly noise at a small epsilon. They are
        therefore not in `params`, but tests and contrasts may name them.

        Examples
        --------
        >>> fit.blp.loc["age", ["conf_low", "conf_high"]].shape
        (2,)
        """
        return self._tests()[~self._listed][list(TIDY[1:])]

    @property
    def cells(self) -> pd.DataFrame:
        """One row per cell: treated control estimate std_error conf_low conf_high.

        `treated` and `control` are noisy counts, which may be below zero.

        Raises
        ------
        CapabilityError
            The learner has no cells.

        Examples
        --------
        >>> one = pc.learners.ADUM(cells=4)
        >>> bycell = pc.privcate("recovery ~ programme | age", study.frame, learner=one, eps=1,
        ...                      bounds=study.bounds)
        >>> len(bycell.cells)
        4
        """
        effect, learner = self._effect, self.estimate.plan.learner
        if not isinstance(effect, CellEffect):
            raise CapabilityError(f"Learner {learner!r} has no cells. Use learner='adum'.")
        return frames.cell_table(effect, frames.quantile(0.05))

    def uplift(self, frame: Frame, *, eps: float, ledger: Ledger | None = None) -> looks.Uplift:
        """Uplift and Qini curves by cells or, in a trial, by ten ranges of the estimated effect.

        Parameters
        ----------
        frame : data frame
            Rows that were not in the fit, or their path. On its own rows the gain looks larger.
        eps : float
            The cost of this evaluation in pure epsilon, in addition to the fit.
        ledger : Ledger, optional
            Charged before any row is read.

        Raises
        ------
        DataError, SchemaError, BudgetError, LedgerError, CapabilityError
            No budget was spent. `CapabilityError`: no cells, and no single declared propensity.

        Examples
        --------
        >>> one = pc.learners.ADUM(cells=4)
        >>> bycell = pc.privcate("recovery ~ programme | age", study.frame, learner=one, eps=1,
        ...                      bounds=study.bounds)
        >>> new = pc.datasets.clinic(2000, seed=1).frame
        >>> bycell.uplift(new, eps=0.5)
        <Uplift of recovery ~ programme | age: 0.5-DP (pure), proven>
        """
        measured_curves = diagnostics.uplift(self.estimate, frame, eps, ledger)
        return looks.Uplift(measured_curves, guarantee.ledger_line(ledger))

    def to_interpret(self) -> ExplainableBoostingRegressor:
        """The effect as a fitted `interpret.glassbox.ExplainableBoostingRegressor`.

        This costs no privacy. Which parts are approximate is explained in `results.exchange`.

        Raises
        ------
        CapabilityError
            The effect is not a sum of functions of one modifier and products of two (for
            example, learner ``"x"``).

        Examples
        --------
        >>> fit.to_interpret().feature_names_in_
        ['age', 'severity', 'ward']
        """
        return exchange.as_booster(self.estimate)

    _plots = ("effect", *Result._plots, "uplift")

    def _drawn(self, kind: str, alpha: float, labels: tables.Labels) -> Drawn:
        if kind == "uplift":
            effect = self._effect
            if not isinstance(effect, CellEffect):
                raise CapabilityError("Uplift curves require effects by cell. Use learner='adum'.")
            gains = frames.gain_frame(effect, frames.quantile(alpha))
            uplift = partial(plots.uplift_plot, title="Expected uplift", ylabel="gain for each row")
            return gains, partial(uplift, gains, alpha=alpha)
        if kind != "effect":
            return super()._drawn(kind, alpha, labels)
        shapes, rows = self._shapes(alpha), list[tuple[Any, ...]]()
        for shape in shapes:
            limits = shape.conf_low, shape.conf_high
            for values in zip(shape.grid, shape.estimate, *limits, strict=True):
                rows.append((shape.name, shape.kind, *values))
        columns = ["modifier", "kind", "at", "estimate", "conf_low", "conf_high"]
        named = [replace(shape, name=tables.relabelled(shape.name, labels)) for shape in shapes]
        return pd.DataFrame(rows, columns=columns), partial(plots.effect_plot, named)

    def _shapes(self, alpha: float) -> tuple[Shape, ...]:
        estimate = self.estimate
        if not estimate.plan.request.formula.effect_variables:
            raise CapabilityError(
                "The effect is constant because the formula has no effect modifiers."
            )
        if not self._effect.drawn:
            raise CapabilityError(
                "The effect was released only at the points of queries=, so it has no curves."
            )
        return frames.shapes_of(estimate, frames.quantile(alpha), 100 * (1 - alpha))

    def _view(self, alpha: float = 0.05) -> tables.FitView:
        request = self.estimate.plan.request
        if not (request.formula.effect_variables and self._effect.drawn):
            return super()._view(alpha)
        # Declared groups of a factor have separate averages, which are not shrunken.
        shapes = (shape for shape in self._shapes(alpha) if shape.name not in request.groups)
        return view_of(self, tuple(shapes), alpha)


@dataclass(frozen=True, eq=False, repr=False)
class EventStudyResult(Result):
    """The result of `privcausal.did` with cohorts; `params` are all ATT(g, t).

    `plot` draws averages by time since treatment (kind ``"event"``).

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> first = np.repeat(rng.choice([0, 3, 4], 900), 4)  # 0: never treated
    >>> frame = pd.DataFrame({"id": np.repeat(range(900), 4), "year": [1, 2, 3, 4] * 900,
    ...                       "first": first, "Y": rng.random(3600)})
    >>> at = {"unit": "id", "time": "year", "cohort": "first", "periods": [1, 2, 3, 4]}
    >>> fit = pc.did("Y ~ 1", frame, **at, eps=4, bounds={"Y": (0, 1), "first": [0, 3, 4]})
    >>> list(fit.params.index)
    ['ATT(3, 2)', 'ATT(3, 3)', 'ATT(3, 4)', 'ATT(4, 2)', 'ATT(4, 3)', 'ATT(4, 4)']
    """

    def aggregate(
        self,
        kind: Literal["event", "cohort", "calendar", "overall"] = "event",
        alpha: float = 0.05,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Averages of ATT(g, t): estimate std_error max_bias conf_low conf_high se_sampling.

        Parameters
        ----------
        kind : {"event", "cohort", "calendar", "overall"}
            Rows are times since treatment (in the unit of the periods if these are numbers,
            otherwise in periods), cohorts, or periods. The last row is the average over treated
            event times, cohorts (by size), or periods. "overall" is the average over all treated
            cohorts and periods, weighted by the cohorts' sizes: ``type="simple"`` in the R package
            ``did``.
        simultaneous : bool
            True: one joint level for all rows but the last (sup-t bands).

        Examples
        --------
        >>> fit.aggregate("event").index.tolist()
        ['-2', '-1', '0', '1', 'average']
        """
        if kind not in (*PLACES, "overall"):
            raise CapabilityError(f"aggregate() takes one of {', '.join(PLACES)}, or overall.")
        averages, places = self._averages, [term.place for term in self._averages.groups]
        positions = [i for i, place in enumerate(places) if place.factor == kind]
        rows = len(averages.terms) + np.array(positions[:-1] or positions)
        z = frames.critical(averages.cov[np.ix_(rows, rows)], alpha, simultaneous=simultaneous)
        frame = self._table(groups=True, z=z).iloc[positions].drop(columns="p_value")
        return frame.set_axis(pd.Index([places[i].level or kind for i in positions], name=kind))

    def pretrends(self) -> Any:
        """Wald test that all ATT(g, t) before treatment are zero; see `wald_test`.

        The p-value allows for the maximum bias of clipping. A large one does not show that trends
        are parallel: `drift` of the result is the smallest difference of linear trends that the
        test rejects with probability 80% at level 5%, whatever the bias. It is per unit of time
        since treatment. A smaller difference may remain undetected (Roth 2022).

        Examples
        --------
        >>> bool(fit.pretrends().drift > 0)
        True
        """
        pairs, averages = comparisons(self.plan.request), self._averages
        estimated = np.isfinite(self.params.to_numpy())
        before = np.flatnonzero([pair.event < 0 and estimated[k] for k, pair in enumerate(pairs)])
        if not len(before):
            raise CapabilityError("No cohort has two periods before its treatment.")
        test = self.wald_test(np.eye(len(self.params))[before])
        test.drift, spread = np.inf, averages.cov[np.ix_(before, before)]
        if np.isfinite(spread).all():
            labels = labels_of(self.plan.request.schema, self.plan.request.trust.panel)[1]
            times = clock(labels)
            steps = np.array([times[pairs[k].period] - times[pairs[k].base] for k in before])
            nc = effects.largest_noncentrality(averages, before, np.eye(len(before)), spread)
            limit = ncx2.isf(0.05, len(before), nc)
            most = np.sqrt(limit) + 5
            drift = brentq(lambda x: ncx2.sf(limit, len(before), x**2) - 0.8, 0.0, most)
            test.drift = (drift + np.sqrt(nc)) / np.sqrt(steps @ np.linalg.solve(spread, steps))
        return test

    _plots = ("event", *Result._plots)

    def _drawn(self, kind: str, alpha: float, labels: tables.Labels) -> Drawn:
        if kind != "event":
            return super()._drawn(kind, alpha, labels)
        frame, bands = (self.aggregate("event", alpha, joint) for joint in (False, True))
        bands = bands[["conf_low", "conf_high"]].set_axis(["band_low", "band_high"], axis=1)
        events, panel = frame.join(bands).iloc[:-1].dropna(), self.plan.request.trust.panel
        numeric = isinstance(clock(labels_of(self.plan.request.schema, panel)[1])[0], float)
        time = tables.relabelled(panel.time, labels) if numeric else "periods"
        return events, partial(plots.event_plot, events, time, alpha=alpha)

    def _figures(self, alpha: float, labels: tables.Labels) -> tuple[Check, ...]:
        frame, draw = self._drawn("event", alpha, labels)
        if frame.empty:
            return ()
        sentence = "No cohort has two periods before its treatment, so trends cannot be compared."
        if (frame.index.astype(float) < 0).any():
            test = self.pretrends()
            p = f"p = {tables.p_value_text(test.pvalue)}".replace("= <", "< ")
            sentence = (
                f"Wald test that all effects before treatment are zero, given max bias: {p}. It "
                f"detects linear trends that differ by {test.drift:.2g} per unit of time with "
                "probability 80%, and may miss smaller ones."
            )
        return (Check("Effect by time since treatment", sentence, frame, draw),)

    refusal = "An event study has no nuisance models. Use aggregate(), pretrends() and contrast()."

    ate = property(Result._refused)
    sensitivity = overlap = balance = Result._refused
