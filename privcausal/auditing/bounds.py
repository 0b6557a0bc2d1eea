"""A fit that is audited, and the tables it is tried on.

The tables are neighbours: ordinary rows, and one unit at a corner of the declared domains. All rows
are invented, since an audit is of the mechanism and uses domains alone.
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

from privcausal import api, testing
from privcausal.errors import CapabilityError
from privcausal.estimators.options import check_whole
from privcausal.request.factors import parse_group
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Trust
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.typing import Integers, Neighbors, Vector

# What a fit asks of two neighbours on the same earlier answers, and how well answers tell them.
#
# The statistic is the log likelihood ratio of all answers under the noise that each query states:
# the
# best that anyone who knows both tables can use (Neyman and Pearson). It is zero on coordinates
# that
# do not differ, so only the others are drawn.

SEED = 4
"""Of the noise in the answers that all tables are given: any answers do, and with these every query
of the catalogue meets tables that are hard for it."""

FitCall = Callable[[Any], Any]
"""Fits a table and returns its result."""


class Departure(Exception):
    """On the same answers something else differed: it depends on a row and was not paid for."""


def record(
    fit: FitCall, table: Any, seed: int = SEED, *, system: bool = False
) -> tuple[tuple[testing.Call, ...], Any]:
    """Queries of one fit with noise from a seed, or with that of real fits, and its result."""
    with quiet(), testing.recorded(seed, system=system) as recorder:
        result = fit(table)
    return tuple(recorder.calls), result


def replay(
    fit: FitCall, table: Any, told: Sequence[testing.Call], result: Any, seed: int = SEED
) -> tuple[testing.Call, ...]:
    """The same queries on a neighbour, answered as they were; `result` came of these answers.

    Raises
    ------
    Departure
        Its number of queries, a public part of one, or a byte of what is released is another.
    """
    with quiet(), testing.recorded(seed, told) as recorder:
        try:
            other: Any = fit(table)
        except (IndexError, ValueError):  # there is no answer, or none of this shape
            other = None
    if other is None or len(recorder.calls) != len(told):
        raise Departure("a neighbour was asked another number of queries")
    for own, first in zip(recorder.calls, told, strict=True):
        a, b = own.query, first.query
        same = (a.name, a.law, a.scale) == (b.name, b.law, b.scale)
        if not (same and np.array_equal(a.weights, b.weights)):
            raise Departure(f"a neighbour was asked {b.name!r} at another price")
    if _document(other) != _document(result):
        raise Departure("other numbers were released for a neighbour")
    return tuple(recorder.calls)


def _document(result: Any) -> bytes:
    """Everything that is released, as it is saved."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        result.save(path)
        return path.read_bytes()


def quiet() -> warnings.catch_warnings[None]:
    """Within this block no fit warns: its table is small on purpose."""
    return warnings.catch_warnings(action="ignore")


def loss(one: Sequence[testing.Call], two: Sequence[testing.Call]) -> float:
    """mu of the queries' exact answers, or epsilon where the noise is Laplace's."""
    moves = [
        (a.exact - b.exact).astype(np.float64) * a.query.weights / a.query.scale
        for a, b in zip(one, two, strict=True)
    ]
    moved = np.concatenate(moves) if moves else np.zeros(0)
    return float(np.linalg.norm(moved, 1 if law(one) == "laplace" else 2))


def law(calls: Iterable[testing.Call]) -> str:
    """The one law of the noise of these queries."""
    laws = {call.query.law for call in calls}
    if len(laws) != 1:
        raise CapabilityError("a white-box audit is of noise of one law, Gaussian or Laplace")
    return laws.pop()


class Drawn(NamedTuple):
    """Real answers on two tables, drawn again and again.

    Attributes
    ----------
    one, two : Vector, shapes (trials,)
        Likelihood ratios.
    quiet, beyond : Integers, shapes (k,)
        How often each number that differs reached its exact value on the second table, or went
        beyond it, with noise on the first table and on the second.
    """

    one: Vector
    two: Vector
    quiet: Integers
    beyond: Integers


def draw(one: Sequence[testing.Call], two: Sequence[testing.Call], trials: int) -> Drawn:
    """`trials` answers on each table."""
    found = np.zeros((2, trials))
    counts: tuple[list[Integers], list[Integers]] = ([], [])
    for a, b in zip(one, two, strict=True):
        at = a.exact != b.exact
        query = replace(a.query, weights=a.query.weights[at])
        way = np.sign(b.exact - a.exact)[at]
        for side, exact in enumerate((a.exact[at], b.exact[at])):
            noisy = (
                testing.drawn_again(query, exact, trials)
                if at.any()
                else np.zeros((trials, 0), int)
            )
            found[side] += _ratio(noisy, a, b, at)
            counts[side].append(np.count_nonzero(way * (noisy - b.exact[at]) >= 0, axis=0))
    return Drawn(found[0], found[1], *map(np.concatenate, counts))


def told_apart(one: Sequence[testing.Call], two: Sequence[testing.Call]) -> float:
    """The likelihood ratio of the answers that the first calls hold, of `two` to `one`."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        at = a.exact != b.exact
        total += float(_ratio(a.noisy[None, at], a, b, at)[0])
    return total


def _ratio(noisy: Any, one: testing.Call, two: testing.Call, at: Any) -> Vector:
    """log f(noisy; two) - log f(noisy; one), for answers of shape (trials, m)."""
    rate = one.query.weights[at] / one.query.scale
    off, other = (rate * (noisy - call.exact[at]) for call in (one, two))
    if one.query.law == "laplace":
        return np.asarray((np.abs(off) - np.abs(other)).sum(axis=1))
    return np.asarray((off**2 - other**2).sum(axis=1) / 2)


# How far apart two laws are at least, from draws of one statistic: mu or epsilon, at a level.
#
# A test says "two" where the statistic is above a cut. From counts of its false alarms and misses,
# Clopper and Pearson (1934) bound their rates alpha and beta from above, each with chance
# 1 - level / 2. Then, with chance at least 1 - level,
#
# - mu >= Phi^-1(1 - alpha) - Phi^-1(beta), since a mu-GDP mechanism allows no test below G_mu
#   (Dong, Roth and Su 2022, Definition 4), and
# - epsilon >= log((1 - beta - delta) / alpha), and with the two laws exchanged, since an
#   (epsilon, delta)-DP mechanism allows none (Kairouz, Oh and Viswanath 2017, equation 3).
#
# The cut is chosen on the first half of the draws and tested on the second; a cut chosen where it
# is
# tested would make the bound too large.
#
# Where epsilon is spread over many numbers with independent noise, all of it shows only where every
# one of them is far out, which is too rare to count. `product_bound` counts each by itself.

Measure = Literal["mu", "epsilon"]

QUANTILE_CUTS = 200
"""At so many quantiles of the first half a cut is tried."""


def mu_bound(one: Vector, two: Vector, level: float, cut: float | None = None) -> float:
    """A lower bound of mu with chance 1 - `level`, from draws of a statistic larger under `two`.

    Parameters
    ----------
    one, two : Vector, shapes (n,) and (m,)
        Independent draws on two neighbouring tables.
    level : float
        Chance that the bound is above the truth, in (0, 1).
    cut : float, optional
        Known beforehand; then all draws test it.

    Returns
    -------
    float
        0 if nothing is shown.
    """
    return _bound(one, two, level, cut, _mu)


def epsilon_bound(
    one: Vector, two: Vector, level: float, delta: float = 0.0, cut: float | None = None
) -> float:
    """A lower bound of epsilon at `delta`, as `mu_bound`."""
    if not 0 <= delta < 1:
        raise CapabilityError("delta of an audit is a number from 0 to 1")
    return _bound(one, two, level, cut, lambda rates: _epsilon(rates, delta))


def product_bound(hits: Integers, alarms: Integers, trials: int, level: float) -> float:
    """A lower bound of epsilon with chance 1 - `level`, from one event of each of k numbers.

    The numbers' noise is independent, so all k events together have probability p_1 ... p_k on one
    table and q_1 ... q_k on the other, and epsilon >= sum of log(p_j / q_j). With observed shares
    p^_j and q^_j of n draws, Chernoff's bound says that n KL(p^_j || p_j), where p^_j > p_j, and
    n KL(q^_j || q_j), where q^_j < q_j, exceed x with chance at most exp(-x): their sum is
    stochastically below a gamma variable of shape 2 k. The bound is the least sum of logarithms
    where that sum is at most its quantile. It lies at p_j = (m p^_j - 1) / (m - 1),
    q_j = (m q^_j + 1) / (m + 1) for one multiplier m.

    Parameters
    ----------
    hits, alarms : Integers, shapes (k,)
        How often each event, fixed beforehand, happened on the one table and on the other.
    trials : int
        Draws on each table.

    Returns
    -------
    float
        0 if nothing is shown.
    """
    from scipy.optimize import brentq
    from scipy.stats import gamma

    # a hit less shows no more, and keeps logarithms finite
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
    """KL of two coins."""
    from scipy.special import xlogy

    rest = xlogy(1 - seen, (1 - seen) / np.maximum(1 - share, 1e-300))
    return np.asarray(xlogy(seen, np.maximum(seen, 1e-300) / share) + rest)


LikelihoodScore = Callable[[tuple[Vector, Vector, Vector, Vector]], Vector]


def _bound(
    one: Vector, two: Vector, level: float, cut: float | None, score: LikelihoodScore
) -> float:
    if not 0 < level < 1:
        raise CapabilityError("level of an audit is a number between 0 and 1")
    # what differs in the last bits alone is one value: a cut between would split a plateau
    one, two = (np.asarray(np.round(draws, 9), np.float64) for draws in (one, two))
    if cut is None:
        (first, one), (other, two) = _halves(one), _halves(two)
        cuts = _cuts(np.concatenate([first, other]))
        cut = float(cuts[np.argmax(score(_rates(first, other, cuts, level)))])
    found = score(_rates(one, two, np.array([cut]), level))
    return max(0.0, float(found[0]))


def _halves(draws: Vector) -> tuple[Vector, Vector]:
    if len(draws) < 2:
        raise CapabilityError("an audit needs at least two trials: one half chooses the cut")
    middle = len(draws) // 2
    return draws[:middle], draws[middle:]


def _cuts(draws: Vector) -> Vector:
    """Places between values, at quantiles and both ends: laws with bounds have plateaus there."""
    values = np.unique(draws)
    between = (values[1:] + values[:-1]) / 2
    if not len(between):
        return values
    at = np.unique(np.searchsorted(between, np.quantile(draws, np.linspace(0, 1, QUANTILE_CUTS))))
    return np.asarray(between[np.clip(at, 0, len(between) - 1)])


def _rates(
    one: Vector, two: Vector, cuts: Vector, level: float
) -> tuple[Vector, Vector, Vector, Vector]:
    """Bounds of 1 - alpha (least), alpha (most), 1 - beta (least), beta (most), at each cut."""
    quiet, missed = (
        np.asarray(np.searchsorted(np.sort(v), cuts, side="right")) for v in (one, two)
    )
    alpha = _most(len(one) - quiet, len(one), level / 2)
    beta = _most(missed, len(two), level / 2)
    return 1 - alpha, alpha, 1 - beta, beta


def _most(count: Integers, trials: int, level: float) -> Vector:
    """The Clopper-Pearson upper limit of a share, which the share exceeds with chance `level`."""
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
"""At most this many corners of the domains are tried for the odd row."""

GOLDEN_STEP = 0.6180339887498949
"""The golden ratio's fraction, by whose multiples corners are spread where there are more."""

_OWN = {"formula", "data", "bounds", "learner", "eps", "delta", "neighbors", "ledger", "progress"}

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class AuditTarget:
    """A fit and the tables it is tried on."""

    fit: FitCall
    words: str
    tables: tuple[Mapping[str, Any], ...]
    neighbors: Neighbors

    def pairs(self) -> list[tuple[int, int]]:
        """Numbers of tables that are neighbours."""
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
    rows: int,
    options: Mapping[str, Any],
) -> AuditTarget:
    """The fit of a call, and invented tables for it."""
    own = {"private": api.private, "regress": api.regress}
    fit: Any = own.get(learner, api.privcate) if isinstance(learner, str) else api.privcate
    known = [name for name in inspect.signature(fit).parameters if name not in _OWN]
    for name in options:
        if name not in known:
            raise CapabilityError(f"audit has no {name}=; known are {', '.join(known)}")
    unit, most = options.get("unit"), options.get("max_rows", 1)
    Trust(neighbors, unit, most)  # refuses what is wrong
    check_whole("rows", rows, 2, 10_000)
    schema = Schema.of(bounds)
    read = CausalFormula.regression if fit is api.regress else CausalFormula.parse
    domains = _domains(read(formula), schema, options)
    plain = [_ordinary(domains, k) for k in range(rows)]
    odd: list[Row | None] = [None] if neighbors == "add_remove" else []
    odd += _corners(domains, schema.complete)
    call = {**options, "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors}
    if fit is api.privcate:
        call["learner"] = learner
    name = learner if isinstance(learner, str) else repr(learner)
    return AuditTarget(
        partial(fit, formula, **call),
        ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())]),
        tuple(_table(plain, row, unit, most) for row in odd),
        neighbors,
    )


def _domains(
    parsed: CausalFormula, schema: Schema, options: Mapping[str, Any]
) -> dict[str, Domain]:
    """The declared domain of each column; treatment and instrument are 0/1 unless declared."""
    known, groups = (options.get("propensity"), options.get("weights")), options.get("groups", ())
    names = [
        *parsed.variables,
        *(name for name in known if isinstance(name, str)),
        *(parse_group(name).column for name in ([groups] if isinstance(groups, str) else groups)),
    ]
    found: dict[str, Domain] = {}
    for name in dict.fromkeys(names):
        domain = schema.get(name)
        if domain is None and name not in (parsed.treatment, parsed.instrument):
            raise CapabilityError(
                f"an audit needs a declared domain of {name!r}, to invent rows at its ends: write "
                f"bounds={{{name!r}: (lo, hi)}}, or its levels"
            )
        found[name] = Binary() if domain is None else domain
    return found


def _corners(domains: Mapping[str, Domain], complete: bool) -> list[Row]:
    """Rows at the ends of all domains, spread over the corners if these are many.

    Last comes a row with nothing in it, unless the schema declares that none is missing.
    """
    ends = {name: _ends(domain) for name, domain in domains.items()}
    rows: list[Row]
    if math.prod(len(values) for values in ends.values()) <= MOST_CORNERS:
        rows = [dict(zip(ends, row, strict=True)) for row in itertools.product(*ends.values())]
    else:
        # each column walks through its own values by its own step: columns mix
        rows = [
            {
                name: values[int((k * GOLDEN_STEP * (j + 1) + j / 7) % 1.0 * len(values))]
                for j, (name, values) in enumerate(ends.items())
            }
            for k in range(MOST_CORNERS)
        ]
    nothing = {name: math.nan if _is_number(d) else None for name, d in domains.items()}
    return rows if complete else [*rows, nothing]


def _ordinary(domains: Mapping[str, Domain], k: int) -> Row:
    """One of many rows that are spread over the domains."""
    row: dict[str, Any] = {}
    for j, (name, domain) in enumerate(domains.items()):
        place, ends = (k * GOLDEN_STEP * (j + 1) + 0.5) % 1.0, _ends(domain)
        row[name] = ends[int(place * len(ends))]
        if isinstance(domain, Interval):
            row[name] = domain.lo + place * domain.width
    return row


def _table(rows: Sequence[Row], odd: Row | None, unit: str | None, max_rows: int) -> dict[str, Any]:
    """Columns of a table whose last unit is `odd`, or absent if None."""
    added = [] if odd is None else [odd] * max_rows
    every = [*rows, *added]
    columns = {name: np.array([row[name] for row in every]) for name in rows[0]}
    for name in rows[0]:
        if columns[name].dtype.kind in "UO":
            columns[name] = np.array([row[name] for row in every], object)
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


def _is_number(domain: Domain) -> bool:
    return isinstance(domain, Interval) or (isinstance(domain, Binary) and domain.labels is None)
