"""Privacy audits: lower bounds on the privacy loss of a fit, and a self-test of this machine.

`audit` tests a fit's claim on two neighboring tables. The tables are ordinary rows, and one unit at
a corner of the declared domains. All rows are invented, because an audit tests the mechanism and
uses only domains. Their answers give lower bounds on the privacy loss.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import multiprocessing
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from privcausal import accounting, api, errors, estimators
from privcausal.accounting import PICO, rho_of
from privcausal.accounting.price import epsilon_at
from privcausal.errors import CapabilityError, LedgerError
from privcausal.estimators.bases import DPEBM, Kernel, check_whole
from privcausal.prices import as_typed, at_least, at_most
from privcausal.report import tables
from privcausal.report.summary import Printed, Summary
from privcausal.request.formula import CausalFormula, group_columns
from privcausal.request.request import OVER_ROWS, Budget, Control, Trust
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.testing import Call, drawn_again, drawn_noise, recorded
from privcausal.typing import Integers, Neighbors, Vector

if TYPE_CHECKING:
    import pandas as pd

# Recording the queries of a fit on two neighbors, and comparing their answers.
#
# The statistic is the log likelihood ratio of all answers under the noise that each query states.
# It is the best statistic for anyone who knows both tables (Neyman and Pearson). It is zero on
# coordinates that do not differ, so only the other coordinates are drawn.

SEED = 4
"""Seed of the noise in the answers that all tables receive. Any answers are valid. With this seed,
every query of the catalog meets tables that are hard for it."""

Measure = Literal["mu", "epsilon"]

FitCall = Callable[[Any], Any]
"""Fits a table and returns its result."""


class Departure(Exception):
    """Given the same answers, something else differed: it depends on a row and was not paid for."""


def record(
    fit: FitCall, table: Any, seed: int = SEED, *, system: bool = False
) -> tuple[tuple[Call, ...], Any]:
    """The queries of one fit and its result, with noise from a seed or with real noise."""
    with warnings.catch_warnings(action="ignore"), recorded(seed, system=system) as recorder:
        result = fit(table)
    return tuple(recorder.calls), result


def replay(
    fit: FitCall, table: Any, answers: Sequence[Call], result: Any, seed: int = SEED
) -> tuple[Call, ...]:
    """Repeat the queries on a neighbor, with the recorded answers that led to `result`.

    Raise `Departure` if the neighbor differs in its number of queries, in a public part of a query,
    or in any byte of the released result.
    """
    with warnings.catch_warnings(action="ignore"), recorded(seed, answers) as recorder:
        try:
            other: Any = fit(table)
        except (IndexError, ValueError):  # an answer is missing, or has another shape
            other = None
    if other is None or len(recorder.calls) != len(answers):
        raise Departure("a neighboring table received a different number of queries")
    for again, first in zip(recorder.calls, answers, strict=True):
        a, b = again.query, first.query
        same = (a.name, a.law, a.scale) == (b.name, b.law, b.scale)
        if not (same and np.array_equal(a.weights, b.weights)):
            raise Departure(f"a neighboring table received {b.name!r} with different noise")
    # The whole released result: the releases, and all numbers computed from the releases.
    documents = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        for fitted in (other, result):
            fitted.save(path)
            documents.append(path.read_bytes() + str(fitted.summary(full=True)).encode())
    if documents[0] != documents[1]:
        raise Departure("a neighboring table led to different released numbers")
    return tuple(recorder.calls)


def loss(first: Sequence[Call], second: Sequence[Call]) -> float:
    """mu between the queries' exact answers, or epsilon if the noise is Laplace."""
    moves = [
        (a.exact - b.exact).astype(np.float64) * a.query.weights / a.query.scale
        for a, b in zip(first, second, strict=True)
    ]
    moved = np.concatenate(moves) if moves else np.zeros(0)
    return float(np.linalg.norm(moved, 1 if measure_of(first) == "epsilon" else 2))


def measure_of(calls: Iterable[Call]) -> Measure:
    """mu for Gaussian noise or epsilon for Laplace noise; all queries must have the same kind."""
    laws = {call.query.law for call in calls}
    if len(laws) != 1:
        raise CapabilityError(
            "A white-box audit requires one kind of noise in all queries, Gaussian or Laplace."
        )
    return "epsilon" if laws.pop() == "laplace" else "mu"


def _ratio(noisy: Any, first: Call, second: Call, differs: Any) -> Vector:
    """log f(noisy; second) - log f(noisy; first), for answers of shape (trials, m)."""
    rate = first.query.weights[differs] / first.query.scale
    off, other = (rate * (noisy - call.exact[differs]) for call in (first, second))
    if first.query.law == "laplace":
        return np.asarray((np.abs(off) - np.abs(other)).sum(axis=1))
    return np.asarray((off**2 - other**2).sum(axis=1) / 2)


# Lower bounds on the distance between two distributions, from draws of one statistic.
#
# A test decides for the second distribution if the statistic is above a threshold. Clopper and
# Pearson (1934) bound its false positive rate alpha and its false negative rate beta from above,
# from counts of errors. Each bound holds with probability 1 - level / 2. With probability at least
# 1 - level,
#
# - mu >= Phi^-1(1 - alpha) - Phi^-1(beta), because a mu-GDP mechanism allows no test below G_mu
#   (Dong, Roth and Su 2022, Definition 4), and
# - epsilon >= log((1 - beta - delta) / alpha), because any test of an (epsilon, delta)-DP mechanism
#   has 1 - beta <= e^epsilon alpha + delta (Kairouz, Oh and Viswanath 2017, equation 3). This bound
#   also holds with the two distributions exchanged.
#
# The threshold is chosen on the first half of the draws and tested on the second half. Choosing and
# testing it on the same draws would make the bound too large.
#
# If epsilon is spread over many numbers with independent noise, the whole of epsilon shows only in
# draws with every number far out. Such draws are too rare to count, so `product_bound` counts each
# number separately.

QUANTILE_CUTS = 200
"""So many quantiles of the first half are tried as thresholds."""


def loss_bound(
    first: Vector,
    second: Vector,
    level: float,
    delta: float | None = None,
    cut: float | None = None,
) -> float:
    """A lower bound on mu, or on epsilon at `delta`, valid with probability 1 - `level`.

    `first` and `second` are independent draws of a statistic on two neighboring tables. Of mu, the
    statistic must tend to be larger under `second`. If `cut` is given, a threshold fixed
    beforehand, all draws test it. The bound is 0 if the draws give no evidence of a loss.
    """
    if delta is not None and not 0 <= delta < 1:
        raise CapabilityError("delta of an audit must be at least 0 and below 1.")
    if not 0 < level < 1:
        raise CapabilityError("level of an audit must be a number between 0 and 1.")
    # Values that differ only in the last bits are one value. A threshold between them would split
    # a plateau.
    first, second = (np.asarray(np.round(draws, 9), np.float64) for draws in (first, second))
    if cut is None:
        if min(len(first), len(second)) < 2:
            raise CapabilityError(
                "An audit requires at least two trials, because half of them choose the threshold."
            )
        half, half_second = len(first) // 2, len(second) // 2
        choosing, choosing_second = first[:half], second[:half_second]
        first, second = first[half:], second[half_second:]
        # Thresholds between values, at quantiles and both ends, where bounded draws have plateaus.
        draws = np.concatenate([choosing, choosing_second])
        cuts = np.unique(draws)
        if len(cuts) > 1:
            between = (cuts[1:] + cuts[:-1]) / 2
            quantiles = np.quantile(draws, np.linspace(0, 1, QUANTILE_CUTS))
            places = np.unique(np.searchsorted(between, quantiles))
            cuts = between[np.clip(places, 0, len(between) - 1)]
        cut = float(cuts[np.argmax(_losses(choosing, choosing_second, cuts, level, delta))])
    return max(0.0, float(_losses(first, second, np.array([cut]), level, delta)[0]))


def product_bound(hits: Integers, alarms: Integers, trials: int, level: float) -> float:
    """A lower bound on epsilon with probability 1 - `level`, from one event for each of k numbers.

    `hits` and `alarms`, of shape (k,), are how often each event, fixed beforehand, happened in
    `trials` draws on the one table and on the other. The bound is 0 if they give no evidence of a
    loss.

    The numbers' noise is independent. All k events together therefore have probability p_1 ... p_k
    on one table and q_1 ... q_k on the other, and epsilon >= sum of log(p_j / q_j).

    Let p^_j and q^_j be the observed shares of n draws. Take n KL(p^_j || p_j) where p^_j > p_j,
    and n KL(q^_j || q_j) where q^_j < q_j. By Chernoff's bound, each exceeds x with probability at
    most exp(-x). Their sum is stochastically below a gamma variable of shape 2 k.

    The bound is the smallest sum of logarithms for which that sum is at most its quantile. It is
    attained at p_j = (m p^_j - 1) / (m - 1), q_j = (m q^_j + 1) / (m + 1) for one multiplier m.
    """
    from scipy.optimize import brentq
    from scipy.special import xlogy
    from scipy.stats import gamma

    # One hit less never makes the bound larger, and keeps the logarithms finite.
    p, q = np.minimum(hits, trials - 1) / trials, np.asarray(alarms) / trials
    if not len(p) or p.min() <= 0:
        return 0.0
    budget = gamma(2 * len(p)).isf(level) / trials

    def excess(log: float) -> float:
        m = math.exp(log) + 1 / float(p.min())
        divergence = 0.0  # KL divergences of Bernoulli distributions
        for seen, share in ((p, (m * p - 1) / (m - 1)), (q, (m * q + 1) / (m + 1))):
            rest = xlogy(1 - seen, (1 - seen) / np.maximum(1 - share, 1e-300))
            divergence += float((xlogy(seen, np.maximum(seen, 1e-300) / share) + rest).sum())
        return divergence - budget

    m = math.exp(brentq(excess, -30.0, 60.0)) + 1 / float(p.min())
    low, high = np.log((m * p - 1) / (m - 1)), np.log((m * q + 1) / (m + 1))
    return max(0.0, float(low.sum() - high.sum()))


def _losses(
    first: Vector, second: Vector, cuts: Vector, level: float, delta: float | None
) -> Vector:
    """The bound at each threshold, from upper bounds of alpha and beta (Clopper and Pearson)."""
    from scipy.special import ndtri
    from scipy.stats import beta as beta_law

    quiet, missed = (np.searchsorted(np.sort(v), cuts, side="right") for v in (first, second))
    shares = []
    for count, trials in ((len(first) - quiet, len(first)), (missed, len(second))):
        with np.errstate(invalid="ignore"):
            limit = beta_law.ppf(1 - level / 2, count + 1, trials - count)
        shares.append(np.where(count >= trials, 1.0, limit))
    alpha, beta = shares
    if delta is None:
        with np.errstate(invalid="ignore"):
            mu = ndtri(1 - alpha) + ndtri(1 - beta)
        return np.asarray(np.nan_to_num(mu, nan=0.0, neginf=0.0))
    ratio = np.maximum((1 - beta - delta) / alpha, (1 - alpha - delta) / beta)
    return np.asarray(np.log(np.maximum(ratio, 1.0)))


MOST_CORNERS = 32
"""Maximum number of corners of the domains to try for the odd row."""

GOLDEN_STEP = 0.6180339887498949
"""Fractional part of the golden ratio. Its multiples spread the tried corners if there are many."""

_NAMED_CALLS = ("private", "regress", "logit", "poisson", "did")
"""Calls that audit() knows by their names; any other learner is audited in `api.privcate`."""

_PASSED = {
    "formula",
    "data",
    "bounds",
    "learner",
    "eps",
    "delta",
    "neighbors",
    "ledger",
    "progress",
}

Row = Mapping[str, Any]


AuditTarget: TypeAlias = tuple[FitCall, list[dict[str, Any]], list[tuple[int, int]]]
"""A fit, the tables to try it on, and the positions of neighboring tables."""


def audit_target(
    formula: str,
    learner: Any,
    bounds: Any,
    eps: float,
    delta: float,
    neighbors: Neighbors,
    rows: int | None,
    options: Mapping[str, Any],
) -> tuple[str, AuditTarget]:
    """The words of a call; its fit, and the tables invented for it."""
    named = isinstance(learner, str) and learner in _NAMED_CALLS
    fit: Any = getattr(api, learner) if named else api.privcate
    allowed = [name for name in inspect.signature(fit).parameters if name not in _PASSED]
    for name in options:
        if name not in allowed:
            choices = ", ".join(allowed)
            raise CapabilityError(f"audit() has no argument {name}=. Choices: {choices}.")
    panel = fit is api.did
    if panel and not (options.get("cohort") and options.get("periods")):
        raise CapabilityError(
            "audit() of did() requires cohort= and periods=. Audit two periods as "
            "audit('Y ~ T', estimand='ATT')."
        )
    Trust(neighbors, options.get("unit"), options.get("max_rows", 1))  # raises if it is invalid
    if rows is None:  # more than two groups of three noise sds each, as a fit requires
        rho = rho_of(Budget(eps, delta).epsilon, delta, gdp=True) / PICO
        rows = min(max(20, math.ceil(7 / math.sqrt(rho))), 10_000)
    check_whole("rows", rows, 2, 10_000)
    schema = Schema.of(bounds)
    read = CausalFormula.parse if fit in (api.private, api.privcate) else CausalFormula.regression
    parsed = read(formula)
    # The declared domain of each column; treatment and the like are 0/1 unless declared.
    of_groups = group_columns(options.get("groups", ()))
    options_named = [name for name in options.values() if isinstance(name, str) and name in schema]
    domains: dict[str, Domain] = {}
    for column in dict.fromkeys([*parsed.variables, *options_named, *of_groups]):
        domain = schema.get(column)
        if domain is None and column not in parsed.coded:
            raise CapabilityError(
                f"An audit requires a declared domain for {column!r}, because it invents rows at "
                f"its ends. Write bounds={{{column!r}: (lo, hi)}}, or list its levels."
            )
        domains[column] = Binary() if domain is None else domain
    if panel:  # A row has the cohort and all outcomes of a unit.
        outcome = domains.pop(parsed.outcome)
        domains |= {f"{parsed.outcome} {k}": outcome for k in range(len(options["periods"]))}
    covariates = [name for term in parsed.terms for name in term.variables]
    plain, corners = _invented(domains, covariates, schema.complete, rows)
    odd: list[Row | None] = [None, *corners] if neighbors == "add_remove" else [*corners]
    tables = [_table(plain, row, options, parsed.outcome if panel else None) for row in odd]
    pairs = list(itertools.combinations(range(len(tables)), 2))
    if neighbors == "add_remove":  # only the first table lacks a unit
        pairs = [pair for pair in pairs if pair[0] == 0]
    call = {**options, "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors}
    if fit is api.privcate:
        call["learner"] = learner
    name = learner if isinstance(learner, str) else repr(learner)
    words = ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())])
    return words, (partial(fit, formula, **call), tables, pairs)


def _invented(
    domains: Mapping[str, Domain], covariates: Sequence[str], complete: bool, count: int
) -> tuple[list[Row], list[Row]]:
    """Ordinary rows, and odd rows at the ends of all domains, spread over many corners.

    Covariates also have the middles of both halves. Rows beyond the usual norm have less weight, so
    that the ends of an interval may change a sum by less than a value inside.

    The last odd row is empty, unless the schema declares that all values are present.
    """
    ends: dict[str, list[Any]] = {}
    plain: list[dict[str, Any]] = [{} for _ in range(count)]
    for j, (name, domain) in enumerate(domains.items()):
        if isinstance(domain, Interval):
            ends[name] = [domain.lo, domain.hi]
        elif isinstance(domain, Levels):
            ends[name] = list(domain.values)
        else:
            ends[name] = [0.0, 1.0] if domain.labels is None else list(domain.labels)
        for k, row in enumerate(plain):
            place = (k * GOLDEN_STEP * (j + 1) + 0.5) % 1.0
            row[name] = ends[name][int(place * len(ends[name]))]
            if isinstance(domain, Interval):
                row[name] = domain.lo + place * domain.width
    for name in covariates:
        if isinstance(domain := domains[name], Interval):
            inside = [domain.lo + 0.25 * domain.width, domain.hi - 0.25 * domain.width]
            ends[name] = [domain.lo, *inside, domain.hi]
    rows: list[Row]
    if math.prod(len(values) for values in ends.values()) <= MOST_CORNERS:
        rows = [dict(zip(ends, row, strict=True)) for row in itertools.product(*ends.values())]
    else:
        # Each column moves through its own values with its own step, so the columns mix.
        rows = [
            {
                name: values[int((k * GOLDEN_STEP * (j + 1) + j / 7) % 1.0 * len(values))]
                for j, (name, values) in enumerate(ends.items())
            }
            for k in range(MOST_CORNERS)
        ]
    labeled = (Levels, Binary)
    nothing = {
        name: None if isinstance(d, labeled) and d.labels is not None else math.nan
        for name, d in domains.items()
    }
    return list(plain), rows if complete else [*rows, nothing]


def _table(
    rows: Sequence[Row], odd: Row | None, options: Mapping[str, Any], path: str | None
) -> dict[str, Any]:
    """Columns of a table whose last unit is `odd`; None leaves that unit out.

    That unit has a cluster of its own, and all other rows are in one of two clusters. If a row has
    the whole `path` of an outcome, the table has a row for each unit and period.
    """
    added = [] if odd is None else [odd] * options.get("max_rows", 1)
    every, count = [*rows, *added], len(rows)
    columns = {name: np.array([row[name] for row in every]) for name in rows[0]}
    for name in rows[0]:
        if columns[name].dtype.kind in "UO":
            columns[name] = np.array([row[name] for row in every], object)
    cluster, unit = getattr(options.get("control"), "cluster", None), options.get("unit")
    clusters, units = [f"c{k % 2}" for k in range(count)], [f"u{k}" for k in range(count)]
    for column, names in ((cluster, clusters), (unit, units)):
        if column is not None:
            columns[column] = np.array(names + ["odd"] * len(added), object)
    if path is not None:
        waves = options["periods"]
        outcomes = np.stack([columns.pop(f"{path} {t}") for t in range(len(waves))], axis=1)
        columns = {column: np.repeat(values, len(waves)) for column, values in columns.items()}
        columns |= {options["time"]: np.tile(waves, len(outcomes)), path: outcomes.ravel()}
    return columns


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
    measure: Measure
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
            (("Level", f"{self.level:g}"), ("Verdict", VERDICTS[self.passes])),
        )
        departed = f"Given the same answers, {self.departed}."
        note = tables.Prose((AUDIT_READING if self.departed is None else departed,))
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
        return Summary("Privacy Audit", (rule, head, rule, grid, rule, note), alert="")

    def __repr__(self) -> str:
        return f"<audit of {self.call}: {VERDICTS[self.passes]}>"


VERDICTS = ("CLAIM REFUTED", "no claim refuted")
"""Results of an audit that does not pass, and of one that passes."""

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
    loss (see `privcausal.auditing`).

    Parameters
    ----------
    formula : str
        As for the fit.
    learner : str or option object
        ``"private"``, ``"regress"``, ``"logit"`` and ``"poisson"`` audit the calls of these names,
        ``"did"`` `privcausal.did` with cohorts, and any other `privcausal.privcate`.
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
    words, target = audit_target(formula, learner, bounds, eps, delta, neighbors, rows, options)
    if not callable(statistic) and statistic not in _WHITE:
        raise CapabilityError(
            "statistic= must be 'queries', 'fits', or a callable that takes a result."
        )
    check_whole("trials", trials, 2, 10**7)
    if not (errors.is_number(level) and 0 < level < 1):
        raise CapabilityError("level= must be a number between 0 and 1.")
    run = partial(_outputs, statistic) if callable(statistic) else _WHITE[statistic]
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            lines: list[Line] = run(target, trials, level)
            departed: str | None = None
        except Departure as departure:
            lines, departed = [], str(departure)
    return AuditResult(words, tuple(lines), level, neighbors, departed)


# -- white box -------------------------------------------------------------------------------


def _answers(
    target: AuditTarget, *, singly: bool
) -> tuple[tuple[tuple[Call, ...], ...], Any, tuple[int, int]]:
    """Exact answers on every table given the same noisy ones, the first result, the worst pair.

    `singly` requires a fit charged by the noise of each answer.
    """
    fit, tables, pairs = target
    answers, result = record(fit, tables[0])
    if singly:
        plan, gaussian = result.estimate.plan, measure_of(answers) == "mu"
        # For a stage in rho, delta is the probability that its proof fails, in addition to the cost
        # of its noise. For selected labels, delta pays for revealing which labels exist.
        other = any(s.delta for s in plan.stages if not s.rho or s.heading == "bounds")
        if other or bool(plan.rho) == bool(plan.epsilon) or gaussian != bool(plan.rho):
            raise CapabilityError(
                "This fit is not charged by the noise of each query, so its queries cannot be "
                "audited one by one. Pass a callable: statistic=lambda fit: fit.params['ATE']."
            )
    calls = (answers, *(replay(fit, table, answers, result) for table in tables[1:]))
    return calls, result, max(pairs, key=lambda pair: loss(calls[pair[0]], calls[pair[1]]))


def _queries(target: AuditTarget, trials: int, level: float) -> list[Line]:
    calls, result, pair = _answers(target, singly=True)
    _, _, pairs = target
    names = list(dict.fromkeys(call.query.name for call in calls[0]))
    share = level / (len(names) + 1)
    lines = []
    for name in names:
        of_query = [[call for call in table if call.query.name == name] for table in calls]
        charges = [r.charge for r in result.estimate.releases if r.charge.query == name]
        if not charges:
            raise CapabilityError(
                "A query of this fit has no line in the budget. Pass a callable as statistic=."
            )
        if measure_of(of_query[0]) == "epsilon":
            claimed = float(sum(c.cost.epsilon for c in charges) / PICO)
        else:
            claimed = math.sqrt(2 * sum(c.alone for c in charges) / PICO)
        tried = ((of_query[i], of_query[j]) for i, j in pairs)
        worst = max(tried, key=lambda tables: loss(*tables))
        measure, exact, bound = _drawn(*worst, trials, share)
        lines.append(Line(name, measure, claimed, exact, bound, trials))
    first, second = (calls[k] for k in pair)
    return lines + _whole_fit(result, trials, *_drawn(first, second, trials, share))


def _drawn(
    first: Sequence[Call], second: Sequence[Call], trials: int, level: float
) -> tuple[Measure, float, float]:
    """The exact loss between two tables, and its bound by `trials` answers drawn on each."""
    # Log likelihood ratios, shape (2, trials). How often each differing number reached or passed
    # its exact value on the second table, with the noise added on the first and on the second.
    ratios = np.zeros((2, trials))
    counts: tuple[list[Integers], list[Integers]] = ([], [])
    for a, b in zip(first, second, strict=True):
        differs = a.exact != b.exact
        query = replace(a.query, weights=a.query.weights[differs])
        way = np.sign(b.exact - a.exact)[differs]
        for side, exact in enumerate((a.exact[differs], b.exact[differs])):
            moved = differs.any()
            noisy = drawn_again(query, exact, trials) if moved else np.zeros((trials, 0), int)
            ratios[side] += _ratio(noisy, a, b, differs)
            counts[side].append(np.count_nonzero(way * (noisy - b.exact[differs]) >= 0, axis=0))
    measure = measure_of(first)
    if measure == "mu":
        bound = loss_bound(ratios[0], ratios[1], level)
    else:
        # The larger of two bounds for Laplace noise: number by number, and all together
        quiet, beyond = map(np.concatenate, counts)
        singly = product_bound(beyond, quiet, trials, level / 2)
        bound = max(loss_bound(ratios[0], ratios[1], level / 2, delta=0.0), singly)
    return measure, loss(first, second), bound


def _fits(target: AuditTarget, trials: int, level: float) -> list[Line]:
    answers, fitted, (i, j) = _answers(target, singly=True)
    fit, tables, _ = target
    first, second = tables[i], tables[j]
    ratios = np.zeros((2, trials))
    for k in range(trials):
        for side, (table, other) in enumerate(((first, second), (second, first))):
            calls, result = record(fit, table, k, system=True)
            replayed = replay(fit, other, calls, result, k)
            # The log likelihood ratio of the noisy answers, of the other table to this one.
            for a, b in zip(calls, replayed, strict=True):
                differs = a.exact != b.exact
                ratio = float(_ratio(a.noisy[None, differs], a, b, differs)[0])
                ratios[side, k] += ratio * (-1) ** side
    exact, measure = loss(answers[i], answers[j]), measure_of(answers[0])
    bound = loss_bound(ratios[0], ratios[1], level, 0.0 if measure == "epsilon" else None)
    return _whole_fit(fitted, trials, measure, exact, bound)


_WHITE: dict[str, Callable[[AuditTarget, int, float], list[Line]]] = {
    "queries": _queries,
    "fits": _fits,
}


# -- the fit's guarantee ---------------------------------------------------------------------


def _whole_fit(
    result: Any, trials: int, measure: Measure, exact: float, bound: float
) -> list[Line]:
    """The claim on all answers together, and the guarantee in (epsilon, delta).

    The claim is mu = sqrt(2 rho) of the whole fit, or its pure epsilon, which is the guarantee
    itself. The guarantee is compared with mu converted to epsilon at its delta.
    """
    plan, budget = result.estimate.plan, result.estimate.plan.request.budget
    claimed = math.sqrt(2 * plan.rho / PICO) if plan.rho else plan.epsilon / PICO
    line = Line(ALL_TOGETHER, measure, claimed, exact, bound, trials)
    if measure == "epsilon":
        return [line]
    exact, bound = (
        epsilon_at(budget.delta, math.floor(PICO * min(mu, 30.0) ** 2 / 2), 0)
        for mu in (exact, bound)
    )
    name = f"epsilon at delta={as_typed(budget.delta)}"
    return [line, Line(name, "epsilon", budget.epsilon, exact, bound, trials)]


# -- black box -------------------------------------------------------------------------------


def _outputs(
    statistic: AuditStatistic, target: AuditTarget, trials: int, level: float
) -> list[Line]:
    """The loss shown by one released number, using only the noise of real fits."""
    _, first_result, (i, j) = _answers(target, singly=False)
    values: list[list[float]] = [[], []]
    fit, tables, _ = target
    for side, table in enumerate((tables[i], tables[j])):
        for _ in range(trials):
            with warnings.catch_warnings(action="ignore"):
                result = fit(table)
            try:
                value = float(statistic(result))
            except Exception as error:  # an error of the caller's own code, on invented rows
                raise CapabilityError(
                    f"statistic= failed with {type(error).__name__}. It must take a result of the "
                    "fit and return a number."
                ) from error
            # treat all non-finite values as one value
            values[side].append(value if math.isfinite(value) else sys.float_info.max)
    first, second = (np.array(v, np.float64) for v in values)
    pairs = (first, second), (second, first)
    budget = first_result.estimate.plan.request.budget
    delta = first_result.guarantee.delta
    # The table with the larger number is unknown, so both directions are tried.
    bound = max(loss_bound(a, b, level / 2, delta) for a, b in pairs)
    name = f"the statistic, epsilon at delta={as_typed(delta)}"
    return [Line(name, "epsilon", budget.epsilon, math.nan, bound, trials)]


EPSILON = 8.0
"""Epsilon of the catalog, a budget of mu = 1.5. At epsilon = 1, mu is 0.25 and one query's part
of it is less than a tenth. Ten thousand draws would then show no loss. The releases differ only in
scale."""

_CALL: dict[str, Any] = {"formula": "Y ~ T | X", "bounds": {"Y": (0, 1), "X": (0, 1)}}

_ON_LINEAR = {"learner": "private", "base": "linear"}

CASES: Mapping[str, Mapping[str, Any]] = {
    "private": _ON_LINEAR,
    "private, off-center": {**_ON_LINEAR, "bounds": {"Y": (99, 100), "X": (0, 1)}},
    "trial": {"learner": "private", "formula": "Y ~ T"},
    "clusters": {
        "learner": "private", "formula": "Y ~ T",
        "control": Control(cluster="village", max_cluster_rows=8),
    },
    "weights": {
        **_ON_LINEAR, "weights": "W", "bounds": {"Y": (0, 1), "X": (0, 1), "W": (0, 4)},
    },
    "survival": {
        "learner": "private", "formula": "Surv(Y, D) ~ T", "estimand": "RMST", "horizon": 3,
        "bounds": {"Y": (0, 6), "D": ["no", "yes"]},
    },
    "ATO": {**_ON_LINEAR, "estimand": "ATO"},
    "PLR": {
        **_ON_LINEAR, "estimand": "PLR", "rows": 5,
        "bounds": {"Y": (0, 1), "X": (0, 1), "T": ["a", "b", "c"]},
    },
    "dose": {
        **_ON_LINEAR, "estimand": "PLR", "bounds": {"Y": (0, 1), "X": (0, 1), "T": (0, 1)},
    },
    "together": {**_ON_LINEAR, "estimand": [*OVER_ROWS, "RR"]},
    "several arms": {
        **_ON_LINEAR, "bounds": {"Y": (0, 1), "X": (0, 1), "T": ["a", "b", "c"]},
    },
    "LATE": {**_ON_LINEAR, "estimand": "LATE", "formula": "Y ~ T | X | T ~ Z"},
    "instruments": {**_ON_LINEAR, "estimand": "LATE", "formula": "Y ~ T | X | T ~ Z1 + Z2"},
    "regression": {"learner": "regress", "formula": "Y ~ X", "control": Control(cov_type="HC0")},
    "logit": {
        "learner": "logit", "formula": "Y ~ X", "bounds": {"Y": [0, 1], "X": (0, 1)}, "rows": 100,
    },
    "poisson": {"learner": "poisson", "formula": "Y ~ X", "rows": 100},
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


# Self-test on this machine: noise, replay and ledger. All rows are invented. If possible, a check
# also tries a planted fault, because a check that detects no faults would pass too.

CHECK_LEVEL = 1e-6
"""Approximate probability that a check fails on correct code, for each check that draws noise."""

CHECK_DRAWS = 20_000

# fork starts at once where it is safe; spawn elsewhere
CONTEXT: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")

CAP = rho_of(2.0, 1e-5, gdp=True)


class SelfTestFailure(Exception):
    """A check failed; the message is its figure."""


def selftest() -> Iterator[tuple[bool, str]]:
    """Run every check in turn: whether it passes, and a line with its subject and its figure."""
    for name, check in SELF_TESTS.items():
        passes = False
        try:
            figure, passes = check(), True
        except SelfTestFailure as failure:
            figure = str(failure)
        except Exception as error:
            figure = f"stopped by {type(error).__name__}"
        yield passes, f"{'ok  ' if passes else 'FAIL'}  {name:<30} {figure}"


def _need(holds: bool, words: str) -> None:
    if not holds:
        raise SelfTestFailure(words)


# -- noise -------------------------------------------------------------------------------------


def _law_of_noise() -> str:
    """Test discrete Gaussian and Laplace noise at three scales; scales 10% off must be detected."""
    from scipy.stats import chisquare, gamma

    laws: tuple[Any, ...] = ("gaussian", "laplace")
    for law, scale in itertools.product(laws, (1.0, 30.0, 1e4)):
        drawn = drawn_noise(law, scale, CHECK_DRAWS)
        for tested in (scale, 0.9 * scale, 1.1 * scale):
            # Probability of a deviation at least as large as seen, if the tested scale is right
            if law == "laplace" and tested < 10:  # whole numbers: test the probabilities themselves
                k = np.arange(-60, 61)
                mass = np.exp(-np.abs(k) / tested)
                expected = len(drawn) * mass / mass.sum()
                counts = np.bincount(np.clip(drawn, -60, 60).astype(int) + 60, minlength=121)
                big = expected >= 10
                both = counts.astype(float), expected
                seen, wanted = (np.append(v[big], v[~big].sum()) for v in both)
                chance = chisquare(seen, wanted).pvalue
            else:  # Sums of squared normal, and of absolute Laplace numbers, are gamma variables.
                size = np.abs(drawn) / tested
                power, shape = (size**2 / 2, 0.5) if law == "gaussian" else (size, 1.0)
                below = gamma(shape * len(drawn)).cdf(power.sum())
                chance = 2 * min(below, 1 - below)
            if tested == scale:
                right = chance > CHECK_LEVEL
                _need(right, f"{law} noise does not have the scale {scale:g}")
            else:
                noticed = chance < CHECK_LEVEL
                _need(noticed, f"{law} noise: a scale that is 10% off was not detected")
    for law in laws:
        again = drawn_noise(law, 1e12, 2_000)
        _need(len(np.unique(again)) > 1_990, f"{law} noise repeats values")
    return f"2 distributions, scales 1 to 1e4, {CHECK_DRAWS} draws each; 10% off is detected"


# -- replay and audits -------------------------------------------------------------------------


def _replayed() -> str:
    """Replay every catalog fit under both relations, on neighbors with the first fit's answers."""
    result = audit_all(trials=2, level=CHECK_LEVEL)
    _need(result.departed is None, str(result.departed))
    for line in result.lines:
        _need(line.holds, f"{line.query}: a claim is refuted")
    most = max(line.exact / line.claimed for line in result.lines)
    _need(most > 0.99, "no invented pair comes close to its claim")
    fits, claims = len(CASES) * len(get_args(Neighbors)), len(result.lines)
    return f"{fits} fits, {claims} claims: all hold, largest loss {most:.3f} of its claim"


# -- the ledger --------------------------------------------------------------------------------

SELFTEST_CHARGE = accounting.Charge(
    "selftest", "none", "none", "substitute", 1.0, 1.0, accounting.Cost(1, gdp=True)
)


def _spend(name: int, path: Path, pipe: Any, barrier: Any, charges: int, price: int) -> None:
    """In a process of its own: charge the ledger, and confirm every charge through the pipe."""
    ledger = accounting.Ledger.open(path)
    charge = replace(SELFTEST_CHARGE, cost=accounting.Cost(price, gdp=True))
    barrier.wait(60)
    for k in range(charges):
        with contextlib.suppress(accounting.BudgetExhaustedError):
            ledger.charge(f"{name}-{k}", [charge])
            pipe.send_bytes(b"x")


def _processes_keep_the_cap() -> str:
    """Four processes start together and request twice the ledger's cap."""
    parts, charges = 40, 20
    with TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        ledger = accounting.Ledger(path, "selftest", 2.0)
        reader, writer = CONTEXT.Pipe(duplex=False)
        arguments = (path, writer, CONTEXT.Barrier(4), charges, CAP // parts)
        children = [
            CONTEXT.Process(target=_spend, args=(k, *arguments), daemon=True) for k in range(4)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        answered = 0
        while reader.poll():
            answered += len(reader.recv_bytes())
        _need(answered == ledger.fits == parts, f"{answered} of {parts} charges accepted")
        ledger.verify()
    return f"4 processes, {4 * charges} charges, cap {parts}: {answered} accepted"


def _kills_lose_nothing() -> str:
    """A process is killed at a random time: every charge confirmed to it must be on the disk."""
    kills = 8
    with TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        ledger = accounting.Ledger(path, "selftest", 2.0)
        for number in range(kills):
            before = ledger.fits
            reader, writer = CONTEXT.Pipe(duplex=False)
            arguments = (number, path, writer, CONTEXT.Barrier(1), 100_000, 1)
            child = CONTEXT.Process(target=_spend, args=arguments, daemon=True)
            child.start()
            writer.close()
            answered = len(reader.recv_bytes())
            time.sleep(0.003 * number)
            child.kill()
            child.join()
            with contextlib.suppress(EOFError):
                while True:
                    answered += len(reader.recv_bytes())
            charged = ledger.fits - before
            _need(answered <= charged <= answered + 1, f"{answered} confirmed, {charged} charged")
        ledger.verify()
    return f"{kills} kills, {charged + before} charges: none lost"


def _changes_are_noticed() -> str:
    """A ledger that was changed, truncated, rolled back or lost its head must refuse everything."""
    changes = ("edit", "truncate", "roll back", "lose head", "delete")
    for change in changes:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "study.db"
            ledger = accounting.Ledger(path, "selftest", 2.0)
            ledger.charge("first", [SELFTEST_CHARGE])
            if change == "edit":
                with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                    connection.execute("DROP TRIGGER charges_no_UPDATE")
                    connection.execute("UPDATE charges SET rho = 0")
            elif change == "truncate":
                path.write_bytes(path.read_bytes()[:-2_000])
            elif change == "roll back":
                old = shutil.copy2(path, path.with_name("old"))
                ledger.charge("second", [SELFTEST_CHARGE])
                shutil.copy2(old, path)
            else:
                lost = path.with_name(path.name + ".head") if change == "lose head" else path
                lost.unlink()
            with contextlib.suppress(LedgerError):
                accounting.Ledger.open(path)
                raise SelfTestFailure(f"not detected: {change}")
    return f"{len(changes)} kinds of change and loss: all detected"


SELF_TESTS: dict[str, Callable[[], str]] = {
    "noise distribution": _law_of_noise,
    "replay on neighbors": _replayed,
    "ledger: processes share a cap": _processes_keep_the_cap,
    "ledger: processes killed": _kills_lose_nothing,
    "ledger: changes": _changes_are_noticed,
}
