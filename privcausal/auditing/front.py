"""`audit`: test a fit's privacy claim on two neighboring tables."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from privcausal import accounting, errors, estimators, testing
from privcausal.accounting.price import epsilon_at
from privcausal.auditing import bounds
from privcausal.auditing.bounds import Departure, audit_target
from privcausal.estimators.options import DPEBM, Kernel, check_whole
from privcausal.prices import as_typed, at_least, at_most
from privcausal.report import tables
from privcausal.report.summary import Printed, Summary
from privcausal.request.request import Control
from privcausal.typing import Neighbors

if TYPE_CHECKING:
    import pandas as pd

# Results of an audit: a line per query, one line for all queries, and the fit's guarantee.

CLAIM_ROUNDING = 1 + 2.0**-30
"""Tolerance of claims. Rounding to integers of pico-rho, and of floats, is much smaller."""

AUDIT_READING = (
    "claimed: the charged privacy loss. exact: the loss on the worst of the tested pairs of "
    "tables, under the stated noise. bound: a lower bound on the loss from drawn noise; all "
    "bounds hold together with probability 1 - level. An audit can refute a claim, but it cannot "
    "prove one."
)


@dataclass(frozen=True)
class Line:
    """One claim and the evidence against it."""

    query: str  # The release
    # mu of Gaussian noise, sqrt(2 rho). epsilon of Laplace noise, and of the fit's guarantee.
    measure: bounds.Measure
    claimed: float  # The charged or guaranteed amount
    # The loss from the exact answers on the worst pair of tables, under the noise that the query
    # states. NaN if only outputs were seen.
    exact: float
    bound: float  # Lower bound on the loss, from the drawn noise
    trials: int  # Draws on each of the two tables

    @property
    def holds(self) -> bool:
        return not (self.bound > self.claimed or self.exact > self.claimed * CLAIM_ROUNDING)


@dataclass(frozen=True, eq=False)
class AuditResult(Printed):
    """Findings of `privcausal.audit`. An audit reads no private row.

    Attributes
    ----------
    call : str
        The audited call.
    lines : tuple of Line
    level : float
        Probability that correct code fails a bound, over all lines together.
    neighbors : str
    departed : str or None
        A difference between neighbors given the same answers. It means that the output depends on
        a row other than through the noise, so the other lines are meaningless.

    Examples
    --------
    >>> result = pc.audit("Y ~ T", bounds={"Y": (0, 1)}, trials=200)
    >>> result.passes
    True
    """

    call: str
    lines: tuple[Line, ...]
    level: float
    neighbors: str
    departed: str | None = None

    @property
    def passes(self) -> bool:
        """Whether every claim passed."""
        return self.departed is None and all(line.holds for line in self.lines)

    @property
    def table(self) -> pd.DataFrame:
        """Columns query, measure, claimed, exact, bound, trials, holds; a line per claim."""
        import pandas as pd

        names = ["query", "measure", "claimed", "exact", "bound", "trials", "holds"]
        values = [[getattr(line, name) for name in names] for line in self.lines]
        return pd.DataFrame(values, columns=names)

    def summary(self) -> Summary:
        rule = tables.Rule("=")
        head = tables.Pairs(
            "The audit",
            (("Call", self.call), ("Neighbors", self.neighbors.replace("_", "/"))),
            (("Level", f"{self.level:g}"), ("Verdict", self.verdict)),
        )
        departed = self.departed is not None
        note = tables.Prose(
            (f"Given the same answers, {self.departed}." if departed else AUDIT_READING,)
        )
        heads = ("claimed", "exact", "bound", "trials", "")
        left = (tables.TableColumn(name, "left") for name in ("query", "of"))
        columns = (*left, *map(tables.TableColumn, heads))
        cells = []
        for line in self.lines:
            amounts = at_most(line.claimed), "" if math.isnan(line.exact) else at_least(line.exact)
            mark = "" if line.holds else "FAILS"
            drawn = at_least(line.bound), f"{line.trials}"
            cells.append((line.query, line.measure, *amounts, *drawn, mark))
        grid = tables.TableGrid("Claims", columns, tuple(cells), self.table)
        return Summary(tables.Table("Privacy Audit", (rule, head, rule, grid, rule, note)))

    @property
    def verdict(self) -> str:
        return "no claim refuted" if self.passes else "CLAIM REFUTED"

    def __repr__(self) -> str:
        return f"<audit of {self.call}: {self.verdict}>"


ALL_TOGETHER = "all answers together"

AuditStatistic = Callable[[Any], float]


@errors.named
def audit(
    formula: str,
    *,
    learner: Any = "private",
    bounds: Any,
    eps: float = 1.0,
    delta: float = 1e-5,
    neighbors: Neighbors = "substitute",
    statistic: str | AuditStatistic = "queries",
    trials: int = 10_000,
    level: float = 1e-3,
    rows: int | None = None,
    **options: Any,
) -> AuditResult:
    """Lower bounds on the privacy loss of a fit, to compare with its claims.

    The audit invents two neighboring tables from the declared domains. Each has `rows` ordinary
    rows. One unit is at a corner of the domains, or at a quarter of a covariate's bounds, and is
    replaced by another such unit, added or removed. The audit reads no data and makes no charge.
    The better the fit's answers distinguish the two tables, the larger is the lower bound on its
    loss (see `privcausal.auditing.bounds`).

    Parameters
    ----------
    formula : str
        As for the fit.
    learner : str or option object
        ``"private"`` audits `privcausal.private`, ``"regress"`` `privcausal.regress`, ``"did"``
        `privcausal.did` with cohorts, and any other `privcausal.privcate`.
    bounds : dict or Schema
        A domain for every column but a 0/1 treatment. Privately estimated bounds are not audited.
    eps, delta, neighbors
        As for the fit.
    statistic : {"queries", "fits"} or callable
        The two strings are white-box audits. The exact answers on both tables are known, and the
        statistic is the likelihood ratio.

        ``"queries"`` takes the exact answers of one fit, and of its neighbor on the same earlier
        answers, and draws their noise `trials` times. It gives a line per query, on its worst pair
        of corners, and one line for all. Laplace noise is also tested number by number.

        ``"fits"`` makes `trials` whole fits on each table and replays each on the other. Later
        queries then depend on earlier noise, as in real use.

        A callable is a black-box audit. It takes a result and returns a number, for example
        ``lambda fit: fit.params["ATE"]``, over `trials` whole fits on each table.
    trials : int
        Draws on each table. One half chooses the test's threshold, the other half tests it.
    level : float
        Probability that correct code fails, over all lines together (Bonferroni).
    rows : int, optional
        Number of ordinary rows, in addition to the odd row. By default 20, or as many as a fit with
        this budget requires.
    **options
        Other options of the fit: base, estimand, unit, max_rows, propensity, groups, control.

    Returns
    -------
    AuditResult
        A line per claim. Laplace noise is compared in epsilon. Gaussian noise is compared in
        mu = sqrt(2 rho), because a test of epsilon at a small delta detects almost nothing.

    Raises
    ------
    CapabilityError
        A column without a domain. Or a fit that mixes noise distributions, or is not charged by
        its noise (networks): use a callable `statistic` for these.
    FormulaError, SchemaError, BudgetError
        As the fit would.

    Examples
    --------
    >>> pc.audit("Y ~ T", bounds={"Y": (0, 1)}, trials=200).passes
    True
    """
    target = audit_target(formula, learner, bounds, eps, delta, neighbors, rows, options)
    if not callable(statistic) and statistic not in _WHITE:
        raise errors.CapabilityError(
            "statistic= must be 'queries', 'fits', or a callable that takes a result."
        )
    check_whole("trials", trials, 2, 10**7)
    if not (errors.is_number(level) and 0 < level < 1):
        raise errors.CapabilityError("level= must be a number between 0 and 1.")
    run = partial(_outputs, statistic) if callable(statistic) else _WHITE[statistic]
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            lines: list[Line] = run(target, trials, level)
            departed: str | None = None
        except Departure as departure:
            lines, departed = [], str(departure)
    return AuditResult(target.words, tuple(lines), level, neighbors, departed)


# -- white box -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answers:
    """Exact answers on every table given the same noisy answers, and the first table's result."""

    calls: tuple[tuple[testing.Call, ...], ...]
    result: Any

    def of(self, query: str) -> _Answers:
        """The answers of one query only."""
        calls = tuple(tuple(c for c in table if c.query.name == query) for table in self.calls)
        return replace(self, calls=calls)

    def worst(self, among: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The pair of tables with the largest loss."""
        return max(among, key=lambda p: bounds.loss(self.calls[p[0]], self.calls[p[1]]))

    def charged(self, query: str) -> float:
        """mu or epsilon charged for the releases of a query."""
        releases = self.result.estimate.releases
        charges = [r.charge for r in releases if r.charge.query == query]
        if not charges:
            raise errors.CapabilityError(
                "A query of this fit has no line in the budget. Pass a callable as statistic=."
            )
        if bounds.law(self.of(query).calls[0]) == "laplace":
            return float(sum(c.cost.epsilon for c in charges) / accounting.PICO)
        return math.sqrt(2 * sum(c.alone for c in charges) / accounting.PICO)


def _answers(target: bounds.AuditTarget, *, singly: bool) -> _Answers:
    """Answers on all tables; `singly` requires a fit charged by the noise of each answer."""
    answers, result = bounds.record(target.fit, target.tables[0])
    if singly:
        plan, law = result.estimate.plan, bounds.law(answers)
        # For a stage in rho, delta is the probability that its proof fails, in addition to the cost
        # of its noise. For selected labels, delta pays for revealing which labels exist.
        other = any(s.delta for s in plan.stages if not s.rho or s.heading == "bounds")
        if other or bool(plan.rho) == bool(plan.epsilon) or (law == "gaussian") != bool(plan.rho):
            raise errors.CapabilityError(
                "This fit is not charged by the noise of each query, so its queries cannot be "
                "audited one by one. Pass a callable: statistic=lambda fit: fit.params['ATE']."
            )
    others = (bounds.replay(target.fit, table, answers, result) for table in target.tables[1:])
    return _Answers((answers, *others), result)


def _queries(target: bounds.AuditTarget, trials: int, level: float) -> list[Line]:
    answers = _answers(target, singly=True)
    names = list(dict.fromkeys(call.query.name for call in answers.calls[0]))

    def drawn(name: str, answers: _Answers, claimed: float) -> Line:
        first, second = (answers.calls[k] for k in answers.worst(target.pairs()))
        draws, share = bounds.draw(first, second, trials), level / (len(names) + 1)
        if _measure(first) == "mu":
            bound = bounds.mu_bound(draws.first, draws.second, share)
        else:
            # The larger of two bounds for Laplace noise: number by number, and all together
            singly = bounds.product_bound(draws.beyond, draws.quiet, trials, share / 2)
            bound = max(bounds.epsilon_bound(draws.first, draws.second, share / 2), singly)
        return Line(name, _measure(first), claimed, bounds.loss(first, second), bound, trials)

    lines = [drawn(name, answers.of(name), answers.charged(name)) for name in names]
    whole = drawn(ALL_TOGETHER, answers, _promised(answers.result))
    return [*lines, whole, *_as_epsilon(whole, answers.result)]


def _fits(target: bounds.AuditTarget, trials: int, level: float) -> list[Line]:
    answers = _answers(target, singly=True)
    i, j = answers.worst(target.pairs())
    first, second = target.tables[i], target.tables[j]
    ratios = np.zeros((2, trials))
    for k in range(trials):
        for side, (table, other) in enumerate(((first, second), (second, first))):
            calls, result = bounds.record(target.fit, table, k, system=True)
            replayed = bounds.replay(target.fit, other, calls, result, k)
            ratios[side, k] = bounds.log_ratio(calls, replayed) * (-1) ** side
    exact = bounds.loss(answers.calls[i], answers.calls[j])
    measure = _measure(answers.calls[0])
    lower = bounds.epsilon_bound if measure == "epsilon" else bounds.mu_bound
    bound = lower(ratios[0], ratios[1], level)
    line = Line(ALL_TOGETHER, measure, _promised(answers.result), exact, bound, trials)
    return [line, *_as_epsilon(line, answers.result)]


_WHITE: dict[str, Callable[[bounds.AuditTarget, int, float], list[Line]]] = {
    "queries": _queries,
    "fits": _fits,
}


def _measure(calls: Sequence[testing.Call]) -> bounds.Measure:
    return "epsilon" if bounds.law(calls) == "laplace" else "mu"


# -- the fit's guarantee ---------------------------------------------------------------------


def _promised(result: Any) -> float:
    """mu = sqrt(2 rho) of the whole fit, or its pure epsilon."""
    plan = result.estimate.plan
    return math.sqrt(2 * plan.rho / accounting.PICO) if plan.rho else plan.epsilon / accounting.PICO


def _as_epsilon(line: Line, result: Any) -> list[Line]:
    """The guarantee in (epsilon, delta), compared with mu converted to epsilon at that delta."""
    if line.measure == "epsilon":
        return []
    budget = result.estimate.plan.request.budget
    exact, bound = (
        epsilon_at(budget.delta, math.floor(accounting.PICO * min(mu, 30.0) ** 2 / 2), 0)
        for mu in (line.exact, line.bound)
    )
    name = f"epsilon at delta={as_typed(budget.delta)}"
    return [Line(name, "epsilon", budget.epsilon, exact, bound, line.trials)]


# -- black box -------------------------------------------------------------------------------


def _outputs(
    statistic: AuditStatistic, target: bounds.AuditTarget, trials: int, level: float
) -> list[Line]:
    """The loss shown by one released number, using only the noise of real fits."""
    answers = _answers(target, singly=False)
    i, j = answers.worst(target.pairs())
    values: list[list[float]] = [[], []]
    for side, table in enumerate((target.tables[i], target.tables[j])):
        for _ in range(trials):
            with bounds.quiet():
                fit = target.fit(table)
            try:
                value = float(statistic(fit))
            except Exception as error:  # an error of the caller's own code, on invented rows
                raise errors.CapabilityError(
                    f"statistic= failed with {type(error).__name__}. It must take a result of the "
                    "fit and return a number."
                ) from error
            # treat all non-finite values as one value
            values[side].append(value if math.isfinite(value) else sys.float_info.max)
    first, second = (np.array(v, np.float64) for v in values)
    pairs = (first, second), (second, first)
    budget = answers.result.estimate.plan.request.budget
    delta = answers.result.guarantee.delta
    # The table with the larger number is unknown, so both directions are tried.
    bound = max(bounds.epsilon_bound(a, b, level / 2, delta) for a, b in pairs)
    name = f"the statistic, epsilon at delta={as_typed(delta)}"
    return [Line(name, "epsilon", budget.epsilon, math.nan, bound, trials)]


EPSILON = 8.0
"""Epsilon of the catalog, a budget of mu = 1.5. At epsilon = 1, mu is 0.25 and one query's part
of it is less than a tenth. Ten thousand draws would then show no loss. The releases differ only in
scale."""

_CALL: dict[str, Any] = {"formula": "Y ~ T | X", "bounds": {"Y": (0, 1), "X": (0, 1)}}

CASES: Mapping[str, Mapping[str, Any]] = {
    "private": {"learner": "private", "base": "linear"},
    "private, off-center": {
        "learner": "private", "base": "linear", "bounds": {"Y": (99, 100), "X": (0, 1)},
    },
    "trial": {"learner": "private", "formula": "Y ~ T"},
    "clusters": {
        "learner": "private", "formula": "Y ~ T",
        "control": Control(cluster="village", max_cluster_rows=8),
    },
    "weights": {
        "learner": "private", "base": "linear", "weights": "W",
        "bounds": {"Y": (0, 1), "X": (0, 1), "W": (0, 4)},
    },
    "survival": {
        "learner": "private", "formula": "Surv(Y, D) ~ T", "estimand": "RMST", "horizon": 3,
        "bounds": {"Y": (0, 6), "D": ["no", "yes"]},
    },
    "ATO": {"learner": "private", "base": "linear", "estimand": "ATO"},
    "PLR": {
        "learner": "private", "base": "linear", "estimand": "PLR",
        "bounds": {"Y": (0, 1), "X": (0, 1), "T": ["a", "b", "c"]}, "rows": 5,
    },
    "dose": {
        "learner": "private", "base": "linear", "estimand": "PLR",
        "bounds": {"Y": (0, 1), "X": (0, 1), "T": (0, 1)},
    },
    "together": {"learner": "private", "base": "linear", "estimand": ["ATE", "ATT", "RR"]},
    "several arms": {
        "learner": "private", "base": "linear",
        "bounds": {"Y": (0, 1), "X": (0, 1), "T": ["a", "b", "c"]},
    },
    "LATE": {
        "learner": "private", "base": "linear", "estimand": "LATE", "formula": "Y ~ T | X | T ~ Z",
    },
    "instruments": {
        "learner": "private", "base": "linear", "estimand": "LATE",
        "formula": "Y ~ T | X | T ~ Z1 + Z2",
    },
    "regression": {
        "learner": "regress", "formula": "Y ~ X", "control": Control(cov_type="HC0"),
    },
    "event study": {
        "learner": "did", "formula": "Y ~ 1", "unit": "id", "time": "year", "cohort": "first",
        "periods": [1, 2, 3], "bounds": {"Y": (0, 1), "first": [0, 2, 3]}, "eps": 20.0,
    },
    "r": {"learner": "r"},
    "dr": {"learner": "dr"},
    "s": {"learner": "s", "base": "linear"},
    "t": {"learner": "t", "base": "linear"},
    "x": {"learner": "x", "base": "linear"},
    "r, disjoint": {"learner": "r", "base": "linear", "control": Control(split="disjoint")},
    "r, crossfit": {"learner": "r", "base": "linear", "control": Control(split="crossfit")},
    "boosting": {"learner": "s", "base": DPEBM(rounds=10)},
    "kernel": {"learner": estimators.DPCATE(), "base": Kernel(ridge=5.0, functions=20)},
    "adum": {"learner": "adum", "eps": 1.0, "rows": 20},
    "adum, count and sum": {
        "learner": estimators.ADUM(release="count_sum", cells=4), "eps": 1.0, "rows": 20,
    },
    "adum, gaussian": {"learner": estimators.ADUM(noise="gaussian")},
    "adum, kmeans": {"learner": estimators.ADUM(partition="kmeans", cells=3, rounds=2), "eps": 4.0},
    "tm": {"learner": "tm", "eps": 1.0, "rows": 20},
}  # fmt: skip
"""Calls that together use every additive mechanism, boosting and the kernel."""


def audit_case(
    name: str, neighbors: Neighbors, *, trials: int = 10_000, level: float = 1e-3
) -> AuditResult:
    """Audit one of `CASES`."""
    call = {"eps": EPSILON, "rows": 8, **_CALL, **CASES[name]}
    return audit(**call, neighbors=neighbors, trials=trials, level=level)


def audit_all(*, trials: int = 10_000, level: float = 1e-3) -> AuditResult:
    """Audit all of `CASES` under both relations, in one table; `level` is for the whole table."""
    lines, departed = [], None
    every = list(itertools.product(CASES, get_args(Neighbors)))
    for name, neighbors in every:
        result = audit_case(name, neighbors, trials=trials, level=level / len(every))
        if result.departed is not None:
            departed = departed or f"{result.departed} ({name}, {neighbors})"
        place = f"{name}, {neighbors}"
        lines += [replace(line, query=f"{place}: {line.query}") for line in result.lines]
    return AuditResult("all catalog fits", tuple(lines), level, "both", departed)
