"""Released results of a fit: estimates with statsmodels' names, nuisances, budget, guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from privcausal import estimators
from privcausal.accounting import Release
from privcausal.errors import CapabilityError, named
from privcausal.estimators import bases, slopes
from privcausal.estimators.base import Learner
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import check_plan, resolve_domains
from privcausal.estimators.estimands import Estimate, complete_alert, listed
from privcausal.estimators.published import PublishedADUM, PublishedDPCATE, PublishedTM
from privcausal.estimators.uplift import ADUM, CellRequest
from privcausal.features.design import read_points, warn_beyond
from privcausal.features.functions import Function
from privcausal.inference import effects
from privcausal.inference.effects import AverageEstimate
from privcausal.report.summary import TIDY, Printed
from privcausal.request.formula import ATE_TERM, ResultTerm
from privcausal.request.panels import Staggered
from privcausal.request.request import COHORTS, GENERALIZED, Plan, Request
from privcausal.request.schema import (
    Binary,
    ColumnKind,
    Header,
    Interval,
    Levels,
    Schema,
    Transformed,
)
from privcausal.results import frames
from privcausal.results.guarantee import Guarantee, guarantee_of
from privcausal.typing import Frame, Mask
from privcausal.vault import Vault

# -- the record of a fit: its public request, and the releases that answered ----------------------


@dataclass(frozen=True, eq=False)
class RowRequest:
    """The request of a fit.

    `kinds` are the public types of the columns without a declared domain. `integers` are those of
    them and of those that form cells, which have an integer type.
    """

    request: Request
    learner: Learner
    base: AnyBase
    kinds: Mapping[str, ColumnKind]
    integers: tuple[str, ...]

    @classmethod
    def of(cls, request: Request, learner: Learner, base: AnyBase, header: Header) -> RowRequest:
        undeclared = [n for n in request.columns if n not in (*request.schema, request.trust.unit)]
        # Other types decide nothing, and a missing value may change the type of a column.
        formula = request.formula
        cells = formula.effect_variables if isinstance(learner, ADUM) else ()
        integers = tuple(
            n
            for n in dict.fromkeys((*undeclared, *cells))
            if n in header.integers and n not in formula.coded
        )
        return cls(request, learner, base, {n: header.kinds[n] for n in undeclared}, integers)

    def planned(self) -> tuple[Plan, Callable[[Vault], Estimate]]:
        """The plan, after all checks that need no rows, and the fit by the answers of a vault."""
        header = Header(self.kinds, integers=frozenset(self.integers))
        schema, undeclared = resolve_domains(self.request, header)
        plan = self.learner.plan(self.request, self.base, undeclared)
        check_plan(plan, schema, self.learner.accepted(self.base).functions)
        return plan, lambda vault: self.learner.fit(plan, vault, schema, undeclared, self.base)


@dataclass(frozen=True, eq=False)
class Record:
    """From this, a fit can be computed again without rows.

    `answers` holds the releases of each stage, one for each fold. `silent` is True if the noise was
    zero, in a test.
    """

    call: RowRequest | CellRequest
    answers: Mapping[str, tuple[Release, ...]]
    silent: bool = False


# The call that reproduces a fit, written from its request.


class _Source(str):
    """Source code: an argument that is printed verbatim."""

    __slots__ = ()
    __repr__ = str.__str__


def written_call(
    learner: estimators.Learner, base: bases.AnyBase, request: Request
) -> tuple[str, str]:
    """Python source of the call, without options at their defaults, and the query it makes.

    The query is the call on one line, without data and bounds, as a ledger records it.
    """
    budget, trust, control = request.budget, request.trust, request.control
    name, options = "private", dict[str, Any]()
    if request.mode == "paper":
        name, options = _paper_call(learner, request)
        specific: list[tuple[str, Any, Any]] = [
            ("propensity_clip", request.clip, 0.1),
            ("shares", control.shares, None),
            ("below_minimum", request.below_minimum, "published"),
        ]
    else:
        if request.regression:
            name = "regress" if request.estimand == "OLS" else request.estimand
        elif request.estimand == "CATE":
            name = "privcate"
            options = {"learner": _option(learner, estimators.LEARNERS, "pc.learners")}
        robust = "pc.Control(cov_type='HC0')" if name in GENERALIZED else "pc.Control()"
        specific = [("control", _option(control, {}, "pc"), robust)]
    if base != bases.BASES["gam"] and not request.regression:
        options["base"] = _option(base, {**bases.BASES, **bases.OTHERS}, "pc.bases")
    options["eps"] = budget.epsilon
    if name not in ("paper.tm", "paper.adum"):
        options["delta"] = budget.delta
    if len(request.declared) or request.declared.complete:
        # One line if it is short, otherwise one line per column.
        columns = [f"{name!r}: {_domain_code(domain)}" for name, domain in request.declared.domains]
        bounds = ", ".join(columns)
        if len(bounds) > CODE_WIDTH - len("    bounds={},"):
            bounds = "".join(f"\n        {column}," for column in columns) + "\n    "
        complete = request.declared.complete
        bounds = f"pc.Schema({{{bounds}}}, complete=True)" if complete else f"{{{bounds}}}"
        options["bounds"] = _Source(bounds)
    estimands = [request.estimand, *request.more] if request.more else request.estimand
    if trust.panel is not None:  # A panel has no max_rows, and its estimand is always the ATT.
        name, options["time"] = "did", trust.panel.time
        if isinstance(trust.panel, Staggered):
            options["cohort"] = trust.panel.cohort
            specific.insert(0, ("control_group", trust.panel.control_group, "nevertreated"))
    elif name == "private" and estimands != "ATE":
        options["estimand"] = estimands
    changed = {key: value for key, value, default in specific if value != default}
    options |= request.call_options | changed
    public = {key: value for key, value in options.items() if key not in ("eps", "delta", "bounds")}
    arguments = "".join(f", {key}={value!r}" for key, value in public.items())
    source = _written(name, request.formula.text, _Source("data"), **options)
    return source, f"{name}({request.formula.text!r}{arguments})"


def _paper_call(learner: estimators.Learner, request: Request) -> tuple[str, dict[str, Any]]:
    """Name of a call in `privcausal.paper`, and the options that only this call has."""
    if isinstance(learner, estimators.TwoStage):
        options: dict[str, Any] = {"learner": _Source(learner.source)}
        if learner.own is None:
            return "paper.two_stage", options
        if learner.own.weighting != "published":
            options["weighting"] = learner.own.weighting
        if learner.own.arm_columns != 1:
            options["arm_columns"] = learner.own.arm_columns
        return "paper.dpebm", options
    names = {PublishedDPCATE: "dpcate", PublishedADUM: "adum", PublishedTM: "tm"}
    queries = {} if request.queries is None else {"queries": _Source("queries")}
    return f"paper.{names.get(type(learner), 'private')}", queries | _not_default(learner)


def cells_call(cells: CellRequest, noise: Mapping[str, float] | None) -> str:
    """Python source of a `from_cells` call."""
    request = cells.request
    options: dict[str, Any] = {"cells": _Source("plan")}
    if cells.partition.variables == ("cell",):
        domain = request.schema[request.formula.outcome]
        options = {"cells": list(cells.names), "outcome": _Source(_domain_code(domain))}
    options |= {"eps": request.budget.epsilon, "delta": request.budget.delta}
    if noise is not None:
        options["noise"] = dict(noise)
    options["learner"] = _option(cells.learner, {}, "pc.learners")
    options["neighbors"] = request.trust.neighbors
    if request.propensity is not None:
        options["propensity"] = request.propensity
    return _written("from_cells", _Source("frame"), **options)


def _written(name: str, /, *positional: Any, **options: Any) -> str:
    arguments = [*map(repr, positional), *(f"{key}={value!r}" for key, value in options.items())]
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import privcausal as pc\n\npc.{name}(\n{lines})"


def _option(option: Any, names: Mapping[str, Any], module: str) -> _Source:
    """The option's short name, or an option object with the values that differ from defaults."""
    if isinstance(option, estimators.DPCATE) and option.queries is not None:
        score = "" if option.score == "r" else f"score={option.score!r}, "
        return _Source(f"{module}.DPCATE({score}queries=queries)")
    if hasattr(option, "source"):  # Its repr does not show everything.
        return _Source(option.source)
    if names and names.get(option.name) == option:
        return _Source(repr(option.name))
    settings = ", ".join(f"{name}={value!r}" for name, value in _not_default(option).items())
    return _Source(f"{module}.{type(option).__name__}({settings})")


def _not_default(option: Any) -> dict[str, Any]:
    values = {f.name: (getattr(option, f.name), f.default) for f in fields(option)}
    return {k: value for k, (value, usual) in values.items() if usual is MISSING or value != usual}


GLANCE = (
    "learner", "base", "estimand", "n", "epsilon", "delta", "rho", "neighbors", "guarantee",
    "alerts",
)  # fmt: skip
"""Columns of `ReleasedFit.glance`."""

CODE_WIDTH = 88
"""Characters in a line of code that fits without horizontal scrolling."""


def _domain_code(domain: Interval | Levels | Binary) -> str:
    domain = domain.raw if isinstance(domain, Transformed) else domain
    if isinstance(domain, Interval):
        if domain.natural:
            return f"pc.Interval({domain.lo!r}, {domain.hi!r}, natural=True)"
        return repr((domain.lo, domain.hi))
    if isinstance(domain, Levels):
        return repr(list(domain.labels))
    return f"pc.{domain!r}"


@dataclass(frozen=True, eq=False)
class NuisanceFunction:
    """A released nuisance function: call it with new data to get a Series with their index."""

    name: str
    result: ReleasedFit
    function: Function

    @named
    def __call__(self, newdata: Frame) -> pd.Series[float]:
        design, propensity = self.result.estimate.design, self.result._propensity
        rows, present, index = read_points(design, design.variables, newdata, propensity)
        warn_beyond(design, newdata)
        values = np.where(present, self.function(rows), np.nan)
        return pd.Series(values, index=index, name=self.name)

    def __repr__(self) -> str:
        return f"<released nuisance model {self.name!r}: call it with new data>"


@dataclass(frozen=True, eq=False)
class ReleasedFit(Printed):
    """The contents of a `Result` and everything computed from them, except later queries."""

    estimate: estimators.Estimate
    record: Record
    call: str
    ledger_line: str | None = None

    # -- estimates ---------------------------------------------------------------------------

    @property
    def _averages(self) -> AverageEstimate:
        averages = self.estimate.averages
        if averages is None:
            raise CapabilityError(
                "No average effects were released. Give 'average' a share above 0 in shares=."
            )
        return averages

    @property
    def params(self) -> pd.Series[float]:
        """Estimates: the average effects, or the coefficients of a regression in natural units.

        No effect can be larger in size than the width of the outcome's bounds. Average effects and
        their limits are therefore restricted to plus or minus that width. An interval entirely
        outside this range is replaced by the whole range. This is post-processing of released
        numbers. Results of published mechanisms are left as printed.

        Examples
        --------
        >>> fit.params.index.tolist()
        ['ATE']
        """
        return self._table()["estimate"][self._listed]

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors from sampling, privacy noise and the estimation error of the nuisances.

        The nuisance component is the root mean square of the bias that nuisance errors cause. Bias
        from clipped scores is not random and not included: see `max_bias`.

        Examples
        --------
        >>> bool((fit.bse > 0).all())
        True
        """
        return self._table()["std_error"][self._listed]

    @property
    def max_bias(self) -> pd.Series[float]:
        r"""Maximum bias of each estimate from clipped scores; 0 if nothing was clipped.

        Intervals and p values allow for this bias. Let b = max_bias / bse. The interval at level
        1 - alpha is the estimate plus and minus c * bse, where c is the 1 - alpha quantile of
        \|N(b, 1)\|. The p value is P(\|N(b, 1)\| >= \|estimate\| / bse) (Armstrong and Kolesár
        2018, Eq. 4). If b is 0, these are the usual normal interval and p value.

        Examples
        --------
        >>> bool((fit.max_bias >= 0).all())
        True
        """
        return self._table()["max_bias"][self._listed]

    def cov_params(self) -> pd.DataFrame:
        """Covariance of `params`, shape (m, m); the diagonal is `bse` squared.

        Examples
        --------
        >>> fit.cov_params().shape == (len(fit.params), len(fit.params))
        True
        """
        listed = np.flatnonzero(self._listed[: len(self._averages.terms)])
        terms = pd.Index([str(self._averages.terms[k]) for k in listed], name="term")
        return pd.DataFrame(self._averages.cov[np.ix_(listed, listed)], index=terms, columns=terms)

    @property
    def zvalues(self) -> pd.Series[float]:
        """Estimates divided by their standard errors.

        A ratio has the z value of the ATE, and the LATE the z value of the reduced form. If scores
        were clipped, `pvalues` also allow for the bias. They are then larger than the normal tail
        probabilities of these z values.
        """
        return self._tests()["statistic"][self._listed]

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p values of no effect, from the test that intervals invert: see `max_bias`.

        Examples
        --------
        >>> bool(fit.pvalues.between(0, 1).all())
        True
        """
        return self._tests()["p_value"][self._listed]

    def conf_int(self, alpha: float = 0.05, simultaneous: bool = False) -> pd.DataFrame:
        """Confidence limits, columns 0 (low) and 1 (high) as in statsmodels.

        The limits are the estimate plus and minus c times `bse`. The factor c is the normal
        quantile if nothing was clipped. Otherwise it is larger, to cover the bias: see `max_bias`.
        The LATE has the least and the largest value of its `confidence_set`, or NaN if that is
        empty.

        Parameters
        ----------
        alpha : float
            1 - level.
        simultaneous : bool
            True: one joint level for all terms and groups, from the maximum of |z| under their
            joint covariance. The declared groups are then rows too. Some covariances, between
            groups and between groups and terms, are not released and are taken as zero. With this
            choice the limits are no narrower than joint limits with the same standard errors (Sidak
            1967).

        Examples
        --------
        >>> fit.conf_int(alpha=0.1).columns.tolist()
        [0, 1]
        """
        averages, terms = self._averages, len(self._averages.terms)
        cov = np.diag(np.diag(averages.cov))
        cov[:terms, :terms] = averages.cov[:terms, :terms]
        if self.plan.request.jointly:  # All covariances are released.
            cov = averages.cov
        used = np.flatnonzero(np.r_[self._listed[:terms], np.ones(len(averages.groups), bool)])
        z = frames.critical(cov[np.ix_(used, used)], alpha, simultaneous=simultaneous)
        parts = [self._table(z=z)[self._listed]]
        if simultaneous and averages.groups:
            parts.append(self._table(groups=True, z=z))
        limits = pd.concat(parts)[["conf_low", "conf_high"]]
        return limits.set_axis([0, 1], axis=1)

    def _rows(self, *, groups: bool = False) -> tuple[ResultTerm, ...]:
        """Terms of the rows of `_table`: those of the estimate, then ratios of mean outcomes."""
        terms = self._averages.groups if groups else self._averages.terms
        places, ratios = [term.place for term in terms if term.arm == 0], self.plan.request.ratios
        return (*terms, *(ResultTerm("ratio", ratio, p) for ratio in ratios for p in places))

    @property
    def _listed(self) -> Mask:
        """Which of these terms are `params`: all but the slopes of an effect by covariates."""
        varies = self.plan.request.estimand == "CATE"
        return np.array([not (varies and row.column) for row in self._rows()], bool)

    def _table(
        self, alpha: float = 0.05, *, groups: bool = False, z: float | None = None
    ) -> pd.DataFrame:
        """estimate std_error max_bias conf_low conf_high se_sampling p_value of terms or groups.

        A ratio of risks, over all rows or in a group, follows from two mean outcomes. The LATE has
        the limits of its confidence set.
        """
        averages, rows = self._averages, self._rows(groups=groups)
        z = frames.quantile(alpha) if z is None else z
        terms = [*averages.terms, *averages.groups]
        places = [terms.index(row) for row in rows if row.kind != "ratio"]
        estimate, se = averages.estimate[places], averages.sd[places]
        half, finite = averages.half_widths(z)[places], np.isfinite(se)
        sampling = np.sqrt(np.diag(averages.sampling)[places])
        frame = pd.DataFrame(
            {
                "estimate": estimate,
                "std_error": se,
                "max_bias": np.where(finite, averages.clipping[places], np.nan),
                "conf_low": estimate - half,
                "conf_high": estimate + half,
                "se_sampling": np.where(finite, sampling, np.nan),
                "p_value": averages.p[places],
            },
            index=pd.Index([str(terms[k]) for k in places], name="term"),
        )
        if rows and rows[0].kind == "late":
            ends = slopes.late_limits(averages, z)
            p = np.nan if np.isinf(ends).all() else slopes.instrument_tests(averages).p_zero
            frame.loc[str(rows[0]), ["conf_low", "conf_high", "p_value"]] = [*ends, p]
        risks = {(term.arm, term.place): k for k, term in enumerate(terms)}
        ratios = {}
        for row in rows[len(places) :]:
            pair = risks[0, row.place], risks[1, row.place]
            ratios[str(row)] = effects.ratio_limits(averages, pair, row.of, z)
        if ratios:
            limits = pd.DataFrame(ratios.values(), index=pd.Index(ratios, name="term"))
            frame = pd.concat([frame, limits.set_axis(frame.columns[:-1], axis=1)])
        # The part of sampling would reveal the noise scale.
        if self.estimate.plan.request.mode == "paper":
            frame["se_sampling"] = np.nan
        means = self._outcomes if self._averages.limited else (-np.inf, np.inf)
        ranges = {"effect": (-self._reach, self._reach), "mean": means}
        bounds = [ranges.get(row.kind, (np.nan, np.nan)) for row in rows]
        return frames.within_reach(frame, *np.reshape(bounds, (-1, 2)).T)

    def _effects(self, alpha: float, *, groups: bool) -> pd.DataFrame:
        """The rows of `_table` on the scale of effects, without mean outcomes and ratios."""
        is_effect = np.array([row.is_effect for row in self._rows(groups=groups)], bool)
        return self._table(alpha, groups=groups)[is_effect]

    def _tests(self, alpha: float = 0.05, *, groups: bool = False) -> pd.DataFrame:
        """`_table` with `statistic` (estimate over standard error) and `p_value`, of no effect.

        A ratio equals 1 exactly when the difference is 0, so its row has the test of the
        difference. The LATE has the test of Anderson and Rubin. With one instrument, it is the test
        of the reduced form. With several, the statistic is the normal quantile of its p value. Its
        sign is that of the estimate. Without a finite limit, the LATE has no test; the reduced form
        has one.
        """
        frame, rows = self._table(alpha, groups=groups), self._rows(groups=groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            frame = frame.assign(statistic=frame["estimate"] / frame["std_error"])
        forms = [str(row) for row in rows if row.kind == "reduced form"]
        if forms:
            late = frame.loc[str(rows[0])]
            size = norm.isf(late["p_value"] / 2)
            if len(forms) == 1 and not np.isnan(size):
                size = frame["statistic"].abs()[forms[0]]
            frame.loc[str(rows[0]), "statistic"] = np.copysign(size, late["estimate"])
        columns = ["statistic", "p_value"]
        for row in rows:
            if row.kind == "ratio":
                same = str(replace(ATE_TERM, place=row.place))
                frame.loc[str(row), columns] = frame.loc[same, columns]
        return frame

    def _headline(self, alpha: float = 0.05) -> pd.Series[Any]:
        """The row of `_table` with the most important number."""
        cohorts = self.plan.request.estimand == COHORTS
        return self._table(alpha, groups=cohorts).iloc[-1 if cohorts else self._lead]

    @property
    def _lead(self) -> int:
        """Position of this number among terms and groups.

        It is the average effect, the first slope of a regression, or the overall average of an
        event study, which is the last group.
        """
        if self.plan.request.estimand == COHORTS:
            return len(self._averages.estimate) - 1
        return int(self.plan.request.regression and len(self._averages.terms) > 1)

    @property
    def _reach(self) -> float:
        """The largest possible effect: the width of the outcome bounds, or infinity for a slope.

        It is infinite, too, if most outcomes are at a bound.
        """
        averages = self.estimate.averages
        if not self.plan.request.bounded or (averages is not None and not averages.limited):
            return float("inf")
        low, high = self._outcomes
        return high - low

    @property
    def _outcomes(self) -> tuple[float, float]:
        """The bounds of the outcome, which also bound its means."""
        request = self.plan.request
        if request.horizon is not None:  # of the outcome itself, not of its scores
            return 0.0, request.horizon if request.estimand == "RMST" else 1.0
        domain = self.estimate.schema[request.formula.outcome]
        return (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)

    @property
    def ate(self) -> pd.DataFrame:
        """The average effect: estimate std_error max_bias conf_low conf_high se_sampling.

        One row, or one row for each arm but the reference if there are several arms.

        `se_sampling` is the standard error of the same estimator from sampling alone: without
        privacy noise, and without the allowance for what noise hides from the nuisance models.

        Examples
        --------
        >>> fit.ate.columns.tolist()
        ['estimate', 'std_error', 'max_bias', 'conf_low', 'conf_high', 'se_sampling']
        """
        arms = max(len(self.plan.request.arms) - 1, 1)
        return self._table().iloc[:arms].drop(columns="p_value")

    @property
    def gate(self) -> pd.DataFrame:
        """Average effects of the declared groups, one row each; columns as in `ate`.

        Examples
        --------
        >>> fit.gate.index.tolist()
        ['ward[east]', 'ward[north]', 'ward[south]', 'ward[west]']
        """
        return self._table(groups=True).drop(columns="p_value")

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Estimates in broom's columns, with the maximum bias and the codes of alerts.

        term estimate std_error statistic p_value conf_low conf_high max_bias alerts

        Examples
        --------
        >>> fit.tidy().columns.tolist()
        ['term', 'estimate', 'std_error', 'statistic', 'p_value', 'conf_low', 'conf_high',
         'max_bias', 'alerts']
        """
        frame = self._tests(alpha)[self._listed].reset_index()[list(TIDY)]
        return frame.assign(alerts=", ".join(self.alerts))

    @property
    def alerts(self) -> dict[str, str]:
        """Serious problems of this fit by code, one sentence each, from released numbers only.

        - bounds: some bounds were estimated privately.
        - covariates: no covariate remains.
        - arm: an arm is absent or too small.
        - allocation: counts of the arms contradict the known propensity.
        - treatment: given the covariates, the treatment hardly varies.
        - levels: a declared label seems to occur in no row, or estimated levels lack many rows.
        - complete: many rows are incomplete.
        - overlap: most propensities reach the clipping limits.
        - clip: many values lie at an end of their declared bounds.
        - nuisances: nuisance errors are most of the variance.
        - noise: the interval contains almost all possible effects.
        - adjustment: noise hides most of the adjustment for covariates.
        - products: products of covariates or thresholds confound in these data.
        - groups: some groups have no estimate.
        - cohorts: some cohorts are too small to detect.
        - weights: survey weights vary much.
        - clusters: there are few clusters.
        - instrument: the first stage may be zero, or instruments contradict each other.
        - collinear: some columns of a regression are collinear or constant.
        - events: the outcome of a logit has too few rows of one value.
        - separation: columns of a logit nearly separate the values of the outcome.
        - tail: outliers of a regression's outcome may bias its coefficients.
        - leverage: a regression's coefficients may rest on few rows.
        - bias: clipping may bias a coefficient by more than two standard errors.
        - censoring: few rows are followed to the horizon of a survival outcome.

        Examples
        --------
        >>> unbounded = pc.private("recovery ~ programme", study.frame, eps=5)
        >>> "bounds" in unbounded.alerts
        True
        """
        domains, alerts = [], {}
        for name, domain in self.schema.columns.items():
            if name in self.plan.request.schema:
                continue
            if isinstance(domain, Interval):
                domains.append(f"{name} [{domain.lo:.6g}, {domain.hi:.6g}]")
            elif isinstance(domain, Levels) and domain.values:  # another alert covers no levels
                domains.append(f"{name} {len(domain.labels)} levels")
        if domains and self._bought:
            alerts["bounds"] = (
                f"Bounds were estimated privately: {', '.join(domains)}. Values outside them were "
                "clipped; confidence intervals of averages allow for clipped outcomes. Reuse "
                "these bounds at no cost with bounds=fit.schema."
            )
        alerts |= dict(self.estimate.alerts) | complete_alert(self.estimate)
        averages = self.estimate.averages
        if averages is not None and averages.unseen:
            few = "too few rows, possibly none (noisy count)"
            alerts["groups"] = f"No estimate for {listed(averages.unseen)}: {few}."
        return alerts

    @property
    def _bought(self) -> bool:
        return any(stage.heading == "bounds" for stage in self.plan.stages)

    @property
    def schema(self) -> Schema:
        """Domains of the columns that the fit used, declared or estimated.

        Estimated domains are public. Pass ``bounds=fit.schema`` to reuse them at no cost.

        Examples
        --------
        >>> fit.schema["ward"].labels
        ('east', 'north', 'south', 'west')
        """
        request = self.plan.request
        declared, estimated = request.declared, self.estimate.schema
        domains = {n: declared.get(n) or estimated.get(n) for n in request.read}
        raw = {n: getattr(domain, "raw", domain) for n, domain in domains.items() if domain}
        return Schema(raw, complete=request.schema.complete)

    def glance(self) -> pd.DataFrame:
        """One row: learner base estimand n epsilon delta rho neighbors guarantee alerts.

        `n` is the public number of rows (or units), or NaN if that number is private. The column
        `alerts` lists the codes of `alerts`, separated by commas.

        Examples
        --------
        >>> round(float(fit.glance()["epsilon"].iloc[0]), 6)
        1.0
        """
        promise, plan, size = self.guarantee, self.estimate.plan, self.estimate.size
        estimand, alerts = ", ".join(plan.request.estimands), ", ".join(self.alerts)
        n, rho = (np.nan if value is None else value for value in (size, promise.rho))
        price = promise.epsilon, promise.delta, rho, promise.neighbors, promise.kind
        row = plan.learner, plan.base, estimand, n, *price, alerts
        return pd.DataFrame([row], columns=[*GLANCE])

    # -- nuisances ---------------------------------------------------------------------------

    @property
    def _propensity(self) -> str | None:
        propensity = self.estimate.plan.request.propensity
        return propensity if isinstance(propensity, str) else None

    @property
    def nuisances(self) -> dict[str, NuisanceFunction]:
        """Released nuisance functions by name: ``propensity``, ``outcome``, ``mu0``, ``mu1``.

        Raises
        ------
        CapabilityError
            No nuisances were released: the fit does not use them, or they are not private.

        Examples
        --------
        >>> fit.nuisances["propensity"](study.frame.head(3)).shape
        (3,)
        """
        nuisances = self.estimate.nuisances
        if nuisances is None:
            learner = self.estimate.plan.learner
            raise CapabilityError(f"Learner {learner!r} released no nuisance models.")
        names = ("propensity", "outcome", "mu0", "mu1")
        return {name: NuisanceFunction(name, self, getattr(nuisances, name)) for name in names}

    # -- privacy cost ------------------------------------------------------------------------

    @property
    def budget(self) -> pd.DataFrame:
        """Privacy budget of the fit, one line per release.

        Columns: stage query mechanism neighbors sensitivity noise_sd rho epsilon delta rows. `rows`
        is the public share of rows used.

        Examples
        --------
        >>> fit.budget.columns.tolist()
        ['stage', 'query', 'mechanism', 'neighbors', 'sensitivity', 'noise_sd', 'rho',
         'epsilon', 'delta', 'rows', 'parallel']
        """
        return frames.budget_lines(self.estimate.releases, self.plan.request.budget.delta)

    @property
    def guarantee(self) -> Guarantee:
        """The privacy guarantee of this fit, and whom it protects.

        Examples
        --------
        >>> fit.guarantee.kind
        'proven'
        """
        return guarantee_of(self.estimate)

    @property
    def plan(self) -> Any:
        """The plan of stages and budget shares that the fit followed."""
        return self.estimate.plan

    def __repr__(self) -> str:
        plan, promise = self.estimate.plan, self.guarantee
        return (
            f"<{type(self).__name__} {plan.request.formula!s}: learner {plan.learner!r}, "
            f"base {plan.base!r}, {promise.short}>"
        )
