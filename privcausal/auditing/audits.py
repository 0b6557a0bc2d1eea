"""`audit`: test a fit's privacy claim on two neighboring tables.

The tables are ordinary rows, and one unit at a corner of the declared domains. All rows are
invented, because an audit tests the mechanism and uses only domains. Their answers give lower
bounds on the privacy loss.
"""

from __future__ import annotations

import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from privcausal import accounting, api, errors, estimators
from privcausal.accounting import PICO, rho_of
from privcausal.accounting.price import epsilon_at
from privcausal.errors import CapabilityError
from privcausal.estimators.bases import DPEBM, Kernel, check_whole
from privcausal.prices import as_typed, at_least, at_most
from privcausal.report import tables
from privcausal.report.summary import Printed, Summary
from privcausal.request.factors import group_columns
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Budget, Control, Trust
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.testing import Call, drawn_again, recorded
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

FitCall = Callable[[Any], Any]
"""Fits a table and returns its result."""


class Departure(Exception):
    """Given the same answers, something else differed: it depends on a row and was not paid for."""


def record(
    fit: FitCall, table: Any, seed: int = SEED, *, system: bool = False
) -> tuple[tuple[Call, ...], Any]:
    """The queries of one fit and its result, with noise from a seed or with real noise."""
    with quiet(), recorded(seed, system=system) as recorder:
        result = fit(table)
    return tuple(recorder.calls), result


def replay(
    fit: FitCall, table: Any, answers: Sequence[Call], result: Any, seed: int = SEED
) -> tuple[Call, ...]:
    """Repeat the queries on a neighbor, with the recorded answers that led to `result`.

    Raise `Departure` if the neighbor differs in its number of queries, in a public part of a query,
    or in any byte of the released result.
    """
    with quiet(), recorded(seed, answers) as recorder:
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
    if _document(other) != _document(result):
        raise Departure("a neighboring table led to different released numbers")
    return tuple(recorder.calls)


def _document(result: Any) -> bytes:
    """The whole released result: the releases, and what is computed from them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        result.save(path)
        return path.read_bytes() + str(result.summary(full=True)).encode()


def quiet() -> warnings.catch_warnings[None]:
    """Suppress warnings of fits within this block; the audit's tables are small on purpose."""
    return warnings.catch_warnings(action="ignore")


def loss(first: Sequence[Call], second: Sequence[Call]) -> float:
    """mu between the queries' exact answers, or epsilon if the noise is Laplace."""
    moves = [
        (a.exact - b.exact).astype(np.float64) * a.query.weights / a.query.scale
        for a, b in zip(first, second, strict=True)
    ]
    moved = np.concatenate(moves) if moves else np.zeros(0)
    return float(np.linalg.norm(moved, 1 if law(first) == "laplace" else 2))


def law(calls: Iterable[Call]) -> str:
    """The noise distribution of these queries, which must be the same for all."""
    laws = {call.query.law for call in calls}
    if len(laws) != 1:
        raise CapabilityError(
            "A white-box audit requires one kind of noise in all queries, Gaussian or Laplace."
        )
    return laws.pop()


class Drawn(NamedTuple):
    """Repeatedly drawn real answers on two tables."""

    # `first`, `second`: log likelihood ratios, shape (trials,)
    first: Vector
    second: Vector
    # How often each differing number reached or passed its exact value on the second table, shape
    # (k,). Noise is added on the first table for `quiet`, on the second table for `beyond`.
    quiet: Integers
    beyond: Integers


def draw(first: Sequence[Call], second: Sequence[Call], trials: int) -> Drawn:
    """Draw `trials` answers on each table."""
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
    return Drawn(ratios[0], ratios[1], *map(np.concatenate, counts))


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

Measure = Literal["mu", "epsilon"]

QUANTILE_CUTS = 200
"""So many quantiles of the first half are tried as thresholds."""


def mu_bound(one: Vector, two: Vector, level: float, cut: float | None = None) -> float:
    """A lower bound on mu, valid with probability 1 - `level`, from draws of a statistic.

    The statistic must tend to be larger under `two`.

    Parameters
    ----------
    one, two : Vector, shapes (n,) and (m,)
        Independent draws on two neighboring tables.
    level : float
        Probability that the bound exceeds the truth, in (0, 1).
    cut : float, optional
        A threshold fixed beforehand. All draws then test it.

    Returns
    -------
    float
        0 if the draws give no evidence of a loss.
    """
    return _bound(one, two, level, cut, None)


def epsilon_bound(
    one: Vector, two: Vector, level: float, delta: float = 0.0, cut: float | None = None
) -> float:
    """A lower bound on epsilon at `delta`, like `mu_bound`."""
    if not 0 <= delta < 1:
        raise CapabilityError("delta of an audit must be at least 0 and below 1.")
    return _bound(one, two, level, cut, delta)


def product_bound(hits: Integers, alarms: Integers, trials: int, level: float) -> float:
    """A lower bound on epsilon with probability 1 - `level`, from one event for each of k numbers.

    The numbers' noise is independent. All k events together therefore have probability p_1 ... p_k
    on one table and q_1 ... q_k on the other, and epsilon >= sum of log(p_j / q_j).

    Let p^_j and q^_j be the observed shares of n draws. Take n KL(p^_j || p_j) where p^_j > p_j,
    and n KL(q^_j || q_j) where q^_j < q_j. By Chernoff's bound, each exceeds x with probability
    at most exp(-x). Their sum is stochastically below a gamma variable of shape 2 k.

    The bound is the smallest sum of logarithms for which that sum is at most its quantile. It is
    attained at p_j = (m p^_j - 1) / (m - 1), q_j = (m q^_j + 1) / (m + 1) for one multiplier m.

    Parameters
    ----------
    hits, alarms : Integers, shapes (k,)
        How often each event, fixed beforehand, happened on the one table and on the other.
    trials : int
        Draws on each table.

    Returns
    -------
    float
        0 if the draws give no evidence of a loss.
    """
    from scipy.optimize import brentq
    from scipy.stats import gamma

    # One hit less never makes the bound larger, and keeps the logarithms finite.
    p, q = np.minimum(hits, trials - 1) / trials, np.asarray(alarms) / trials
    if not len(p) or p.min() <= 0:
        return 0.0
    budget = gamma(2 * len(p)).isf(level) / trials

    def ends(m: float) -> tuple[Vector, Vector]:
        return (m * p - 1) / (m - 1), (m * q + 1) / (m + 1)

    def excess(log: float) -> float:
        low, high = ends(math.exp(log) + 1 / float(p.min()))
        return float(_kl(p, low).sum() + _kl(q, high).sum()) - budget

    m = math.exp(brentq(excess, -30.0, 60.0)) + 1 / float(p.min())
    low, high = ends(m)
    return max(0.0, float(np.log(low).sum() - np.log(high).sum()))


def _kl(seen: Vector, share: Vector) -> Vector:
    """KL divergence of two Bernoulli distributions."""
    from scipy.special import xlogy

    rest = xlogy(1 - seen, (1 - seen) / np.maximum(1 - share, 1e-300))
    return np.asarray(xlogy(seen, np.maximum(seen, 1e-300) / share) + rest)


def _bound(
    first: Vector, second: Vector, level: float, cut: float | None, delta: float | None
) -> float:
    """A lower bound on epsilon at `delta`, or on mu if `delta` is None."""
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

_NAMED = {"formula", "data", "bounds", "learner", "eps", "delta", "neighbors", "ledger", "progress"}

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class AuditTarget:
    """A fit and the tables to try it on."""

    fit: FitCall
    words: str
    tables: tuple[Mapping[str, Any], ...]
    pairs: tuple[tuple[int, int], ...]  # Positions of neighboring tables


def audit_target(
    formula: str,
    learner: Any,
    bounds: Any,
    eps: float,
    delta: float,
    neighbors: Neighbors,
    rows: int | None,
    options: Mapping[str, Any],
) -> AuditTarget:
    """The fit of a call, and its invented tables."""
    calls = {"private": api.private, "regress": api.regress, "did": api.did}
    fit: Any = calls.get(learner, api.privcate) if isinstance(learner, str) else api.privcate
    allowed = [name for name in inspect.signature(fit).parameters if name not in _NAMED]
    for name in options:
        if name not in allowed:
            choices = ", ".join(allowed)
            raise CapabilityError(f"audit() has no argument {name}=. Choices: {choices}.")
    unit, most = options.get("unit"), options.get("max_rows", 1)
    cluster = getattr(options.get("control"), "cluster", None)
    panel = options if fit is api.did else None
    if panel is not None and not (panel.get("cohort") and panel.get("periods")):
        raise CapabilityError(
            "audit() of did() requires cohort= and periods=. Audit two periods as "
            "audit('Y ~ T', estimand='ATT')."
        )
    Trust(neighbors, unit, most)  # raises if an argument is invalid
    if rows is None:  # more than two groups of three noise sds each, as a fit requires
        rho = rho_of(Budget(eps, delta).epsilon, delta, gdp=True) / PICO
        rows = min(max(20, math.ceil(7 / math.sqrt(rho))), 10_000)
    check_whole("rows", rows, 2, 10_000)
    schema = Schema.of(bounds)
    read = CausalFormula.parse if fit in (api.private, api.privcate) else CausalFormula.regression
    parsed = read(formula)
    domains = _domains(parsed, schema, options)
    if panel is not None:  # A row has the cohort and all outcomes of a unit.
        outcome = domains.pop(parsed.outcome)
        domains |= {f"{parsed.outcome} {k}": outcome for k in range(len(panel["periods"]))}
    # Ordinary rows, spread over the domains
    plain: list[dict[str, Any]] = [{} for _ in range(rows)]
    for j, (column, domain) in enumerate(domains.items()):
        for k, row in enumerate(plain):
            place, ends = (k * GOLDEN_STEP * (j + 1) + 0.5) % 1.0, _ends(domain)
            row[column] = ends[int(place * len(ends))]
            if isinstance(domain, Interval):
                row[column] = domain.lo + place * domain.width
    odd: list[Row | None] = [None] if neighbors == "add_remove" else []
    covariates = [name for term in parsed.terms for name in term.variables]
    odd += _corners(domains, covariates, schema.complete)
    tables = [_table(plain, row, unit, most, cluster) for row in odd]
    if panel is not None:  # one row for each unit and period
        waves = panel["periods"]
        for k, table in enumerate(tables):
            columns = [table.pop(f"{parsed.outcome} {t}") for t in range(len(waves))]
            paths = np.stack(columns, axis=1)
            long = {column: np.repeat(values, len(waves)) for column, values in table.items()}
            times = np.tile(np.array(waves), len(paths))
            tables[k] = {**long, panel["time"]: times, parsed.outcome: paths.ravel()}
    pairs = list(itertools.combinations(range(len(tables)), 2))
    if neighbors == "add_remove":  # only the first table lacks a unit
        pairs = [pair for pair in pairs if pair[0] == 0]
    call = {**options, "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors}
    if fit is api.privcate:
        call["learner"] = learner
    name = learner if isinstance(learner, str) else repr(learner)
    return AuditTarget(
        partial(fit, formula, **call),
        ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())]),
        tuple(tables),
        tuple(pairs),
    )


def _domains(
    parsed: CausalFormula, schema: Schema, options: Mapping[str, Any]
) -> dict[str, Domain]:
    """The declared domain of each column; treatment and the like are 0/1 unless declared."""
    of_groups = group_columns(options.get("groups", ()))
    options_named = [name for name in options.values() if isinstance(name, str) and name in schema]
    domains: dict[str, Domain] = {}
    for name in dict.fromkeys([*parsed.variables, *options_named, *of_groups]):
        domain = schema.get(name)
        if domain is None and name not in parsed.coded:
            raise CapabilityError(
                f"An audit requires a declared domain for {name!r}, because it invents rows at its "
                f"ends. Write bounds={{{name!r}: (lo, hi)}}, or list its levels."
            )
        domains[name] = Binary() if domain is None else domain
    return domains


def _corners(domains: Mapping[str, Domain], covariates: Sequence[str], complete: bool) -> list[Row]:
    """Rows at the ends of all domains, spread over the corners if these are many.

    Covariates also have the middles of both halves. Rows beyond the usual norm have less weight, so
    that the ends of an interval may change a sum by less than a value inside.

    The last row is empty, unless the schema declares that all values are present.
    """
    ends = {name: _ends(domain) for name, domain in domains.items()}
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
    return rows if complete else [*rows, nothing]


def _table(
    rows: Sequence[Row], odd: Row | None, unit: str | None, max_rows: int, cluster: str | None
) -> dict[str, Any]:
    """Columns of a table whose last unit is `odd`; None leaves that unit out.

    That unit has a cluster of its own, and all other rows are in one of two clusters.
    """
    added = [] if odd is None else [odd] * max_rows
    every = [*rows, *added]
    columns = {name: np.array([row[name] for row in every]) for name in rows[0]}
    for name in rows[0]:
        if columns[name].dtype.kind in "UO":
            columns[name] = np.array([row[name] for row in every], object)
    if cluster is not None:
        names = [f"c{k % 2}" for k in range(len(rows))] + ["odd"] * len(added)
        columns[cluster] = np.array(names, object)
    if unit is not None:
        owners = [f"u{k}" for k in range(len(rows))] + ["odd"] * len(added)
        columns[unit] = np.array(owners, object)
    return columns


def _ends(domain: Domain) -> list[Any]:
    if isinstance(domain, Interval):
        return [domain.lo, domain.hi]
    if isinstance(domain, Levels):
        return list(domain.values)
    return [0.0, 1.0] if domain.labels is None else list(domain.labels)


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
    loss (see `privcausal.auditing.audits`).

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
    return AuditResult(target.words, tuple(lines), level, neighbors, departed)


# -- white box -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answers:
    """Exact answers on every table given the same noisy answers, and the first table's result."""

    calls: tuple[tuple[Call, ...], ...]
    result: Any

    def of(self, query: str) -> _Answers:
        """The answers of one query only."""
        calls = tuple(tuple(c for c in table if c.query.name == query) for table in self.calls)
        return replace(self, calls=calls)

    def worst(self, among: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The pair of tables with the largest loss."""
        return max(among, key=lambda p: loss(self.calls[p[0]], self.calls[p[1]]))

    def charged(self, query: str) -> float:
        """mu or epsilon charged for the releases of a query."""
        releases = self.result.estimate.releases
        charges = [r.charge for r in releases if r.charge.query == query]
        if not charges:
            raise CapabilityError(
                "A query of this fit has no line in the budget. Pass a callable as statistic=."
            )
        if law(self.of(query).calls[0]) == "laplace":
            return float(sum(c.cost.epsilon for c in charges) / accounting.PICO)
        return math.sqrt(2 * sum(c.alone for c in charges) / accounting.PICO)


def _answers(target: AuditTarget, *, singly: bool) -> _Answers:
    """Answers on all tables; `singly` requires a fit charged by the noise of each answer."""
    answers, result = record(target.fit, target.tables[0])
    if singly:
        plan, gaussian = result.estimate.plan, law(answers) == "gaussian"
        # For a stage in rho, delta is the probability that its proof fails, in addition to the cost
        # of its noise. For selected labels, delta pays for revealing which labels exist.
        other = any(s.delta for s in plan.stages if not s.rho or s.heading == "bounds")
        if other or bool(plan.rho) == bool(plan.epsilon) or gaussian != bool(plan.rho):
            raise CapabilityError(
                "This fit is not charged by the noise of each query, so its queries cannot be "
                "audited one by one. Pass a callable: statistic=lambda fit: fit.params['ATE']."
            )
    others = (replay(target.fit, table, answers, result) for table in target.tables[1:])
    return _Answers((answers, *others), result)


def _queries(target: AuditTarget, trials: int, level: float) -> list[Line]:
    answers = _answers(target, singly=True)
    names = list(dict.fromkeys(call.query.name for call in answers.calls[0]))

    def drawn(name: str, answers: _Answers, claimed: float) -> Line:
        first, second = (answers.calls[k] for k in answers.worst(target.pairs))
        draws, share = draw(first, second, trials), level / (len(names) + 1)
        if _measure(first) == "mu":
            bound = mu_bound(draws.first, draws.second, share)
        else:
            # The larger of two bounds for Laplace noise: number by number, and all together
            singly = product_bound(draws.beyond, draws.quiet, trials, share / 2)
            bound = max(epsilon_bound(draws.first, draws.second, share / 2), singly)
        return Line(name, _measure(first), claimed, loss(first, second), bound, trials)

    lines = [drawn(name, answers.of(name), answers.charged(name)) for name in names]
    whole = drawn(ALL_TOGETHER, answers, _promised(answers.result))
    return [*lines, whole, *_as_epsilon(whole, answers.result)]


def _fits(target: AuditTarget, trials: int, level: float) -> list[Line]:
    answers = _answers(target, singly=True)
    i, j = answers.worst(target.pairs)
    first, second = target.tables[i], target.tables[j]
    ratios = np.zeros((2, trials))
    for k in range(trials):
        for side, (table, other) in enumerate(((first, second), (second, first))):
            calls, result = record(target.fit, table, k, system=True)
            replayed = replay(target.fit, other, calls, result, k)
            # The log likelihood ratio of the noisy answers, of the other table to this one.
            for a, b in zip(calls, replayed, strict=True):
                differs = a.exact != b.exact
                ratio = float(_ratio(a.noisy[None, differs], a, b, differs)[0])
                ratios[side, k] += ratio * (-1) ** side
    exact = loss(answers.calls[i], answers.calls[j])
    measure = _measure(answers.calls[0])
    lower = epsilon_bound if measure == "epsilon" else mu_bound
    bound = lower(ratios[0], ratios[1], level)
    line = Line(ALL_TOGETHER, measure, _promised(answers.result), exact, bound, trials)
    return [line, *_as_epsilon(line, answers.result)]


_WHITE: dict[str, Callable[[AuditTarget, int, float], list[Line]]] = {
    "queries": _queries,
    "fits": _fits,
}


def _measure(calls: Sequence[Call]) -> Measure:
    return "epsilon" if law(calls) == "laplace" else "mu"


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
    statistic: AuditStatistic, target: AuditTarget, trials: int, level: float
) -> list[Line]:
    """The loss shown by one released number, using only the noise of real fits."""
    answers = _answers(target, singly=False)
    i, j = answers.worst(target.pairs)
    values: list[list[float]] = [[], []]
    for side, table in enumerate((target.tables[i], target.tables[j])):
        for _ in range(trials):
            with quiet():
                fit = target.fit(table)
            try:
                value = float(statistic(fit))
            except Exception as error:  # an error of the caller's own code, on invented rows
                raise CapabilityError(
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
    bound = max(epsilon_bound(a, b, level / 2, delta) for a, b in pairs)
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
