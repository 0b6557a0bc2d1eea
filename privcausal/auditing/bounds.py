"""An audited fit, its invented tables, and lower bounds on its privacy loss.

The tables are neighbors: ordinary rows, and one unit at a corner of the declared domains. All rows
are invented, because an audit tests the mechanism and uses only domains.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np

from privcausal import api
from privcausal.accounting import PICO, rho_of
from privcausal.errors import CapabilityError
from privcausal.estimators.options import check_whole
from privcausal.request.factors import parse_group
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Budget, Trust
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.testing import Call, drawn_again, recorded
from privcausal.typing import Integers, Neighbors, Vector

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


def log_ratio(first: Sequence[Call], second: Sequence[Call]) -> float:
    """The log likelihood ratio, `second` to `first`, of the noisy answers recorded in `first`."""
    total = 0.0
    for a, b in zip(first, second, strict=True):
        differs = a.exact != b.exact
        total += float(_ratio(a.noisy[None, differs], a, b, differs)[0])
    return total


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
"""Number of quantiles of the first half at which a threshold is tried."""


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
    return _bound(one, two, level, cut, _mu)


def epsilon_bound(
    one: Vector, two: Vector, level: float, delta: float = 0.0, cut: float | None = None
) -> float:
    """A lower bound on epsilon at `delta`, like `mu_bound`."""
    if not 0 <= delta < 1:
        raise CapabilityError("delta of an audit must be at least 0 and below 1.")
    return _bound(one, two, level, cut, lambda rates: _epsilon(rates, delta))


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


LikelihoodScore = Callable[[tuple[Vector, Vector, Vector, Vector]], Vector]


def _bound(
    first: Vector, second: Vector, level: float, cut: float | None, score: LikelihoodScore
) -> float:
    if not 0 < level < 1:
        raise CapabilityError("level of an audit must be a number between 0 and 1.")
    # Values that differ only in the last bits are one value. A threshold between them would split
    # a plateau.
    first, second = (np.asarray(np.round(draws, 9), np.float64) for draws in (first, second))
    if cut is None:
        (choosing, first), (choosing_second, second) = _halves(first), _halves(second)
        cuts = _cuts(np.concatenate([choosing, choosing_second]))
        cut = float(cuts[np.argmax(score(_rates(choosing, choosing_second, cuts, level)))])
    bound = score(_rates(first, second, np.array([cut]), level))
    return max(0.0, float(bound[0]))


def _halves(draws: Vector) -> tuple[Vector, Vector]:
    if len(draws) < 2:
        raise CapabilityError(
            "An audit requires at least two trials, because half of them choose the threshold."
        )
    middle = len(draws) // 2
    return draws[:middle], draws[middle:]


def _cuts(draws: Vector) -> Vector:
    """Thresholds between values, at quantiles and both ends, where bounded draws have plateaus."""
    values = np.unique(draws)
    between = (values[1:] + values[:-1]) / 2
    if not len(between):
        return values
    quantiles = np.quantile(draws, np.linspace(0, 1, QUANTILE_CUTS))
    places = np.unique(np.searchsorted(between, quantiles))
    return np.asarray(between[np.clip(places, 0, len(between) - 1)])


def _rates(
    first: Vector, second: Vector, cuts: Vector, level: float
) -> tuple[Vector, Vector, Vector, Vector]:
    """Lower bounds of 1 - alpha and 1 - beta, upper bounds of alpha and beta, at each threshold.

    The order is 1 - alpha, alpha, 1 - beta, beta.
    """
    quiet, missed = (
        np.asarray(np.searchsorted(np.sort(v), cuts, side="right")) for v in (first, second)
    )
    alpha = _most(len(first) - quiet, len(first), level / 2)
    beta = _most(missed, len(second), level / 2)
    return 1 - alpha, alpha, 1 - beta, beta


def _most(count: Integers, trials: int, level: float) -> Vector:
    """The Clopper-Pearson upper limit of a share; the share exceeds it with probability `level`."""
    from scipy.stats import beta

    with np.errstate(invalid="ignore"):
        limit = beta.ppf(1 - level, count + 1, trials - count)
    return np.asarray(np.where(count >= trials, 1.0, limit))


def _mu(rates: tuple[Vector, Vector, Vector, Vector]) -> Vector:
    from scipy.special import ndtri

    right, _, hit, _ = rates
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(ndtri(right) + ndtri(hit), nan=0.0, neginf=0.0))


def _epsilon(rates: tuple[Vector, Vector, Vector, Vector], delta: float) -> Vector:
    right, alarm, hit, miss = rates
    ratio = np.maximum((hit - delta) / alarm, (right - delta) / miss)
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
    neighbors: Neighbors

    def pairs(self) -> list[tuple[int, int]]:
        """Index pairs of neighboring tables."""
        if self.neighbors == "add_remove":
            return [(0, k) for k in range(1, len(self.tables))]
        return list(itertools.combinations(range(len(self.tables)), 2))


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
    call = {**options, "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors}
    if fit is api.privcate:
        call["learner"] = learner
    name = learner if isinstance(learner, str) else repr(learner)
    return AuditTarget(
        partial(fit, formula, **call),
        ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())]),
        tuple(tables),
        neighbors,
    )


def _domains(
    parsed: CausalFormula, schema: Schema, options: Mapping[str, Any]
) -> dict[str, Domain]:
    """The declared domain of each column; treatment and the like are 0/1 unless declared."""
    groups = options.get("groups", ())
    texts = [groups] if isinstance(groups, str) else groups
    of_groups = [column for text in texts for column in parse_group(text).columns]
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
