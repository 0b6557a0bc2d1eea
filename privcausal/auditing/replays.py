"""What a fit asks of two neighbours on the same earlier answers, and how well answers tell them.

The statistic is the log likelihood ratio of all answers under the noise that each query states: the
best that anyone who knows both tables can use (Neyman and Pearson). It is zero on coordinates that
do not differ, so only the others are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.testing import Call, drawn_again, recorded
from privcausal.typing import Integers, Vector

SEED = 4
"""Of the noise in the answers that all tables are given: any answers do, and with these every query
of the catalogue meets tables that are hard for it."""

Fit = Callable[[Any], Any]
"""Fits a table and returns its result."""


class Departure(Exception):
    """On the same answers something else differed: it depends on a row and was not paid for."""


def record(
    fit: Fit, table: Any, seed: int = SEED, *, system: bool = False
) -> tuple[tuple[Call, ...], Any]:
    """Queries of one fit with noise from a seed, or with that of real fits, and its result."""
    with quiet(), recorded(seed, system=system) as recorder:
        result = fit(table)
    return tuple(recorder.calls), result


def replay(
    fit: Fit, table: Any, told: Sequence[Call], result: Any, seed: int = SEED
) -> tuple[Call, ...]:
    """The same queries on a neighbour, answered as they were; `result` came of these answers.

    Raises
    ------
    Departure
        Its number of queries, a public part of one, or a byte of what is released is another.
    """
    with quiet(), recorded(seed, told) as recorder:
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


def loss(one: Sequence[Call], two: Sequence[Call]) -> float:
    """mu of the queries' exact answers, or epsilon where the noise is Laplace's."""
    moves = [
        (a.exact - b.exact).astype(np.float64) * a.query.weights / a.query.scale
        for a, b in zip(one, two, strict=True)
    ]
    moved = np.concatenate(moves) if moves else np.zeros(0)
    return float(np.linalg.norm(moved, 1 if law(one) == "laplace" else 2))


def law(calls: Iterable[Call]) -> str:
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


def draw(one: Sequence[Call], two: Sequence[Call], trials: int) -> Drawn:
    """`trials` answers on each table."""
    found = np.zeros((2, trials))
    counts: tuple[list[Integers], list[Integers]] = ([], [])
    for a, b in zip(one, two, strict=True):
        at = a.exact != b.exact
        query = replace(a.query, weights=a.query.weights[at])
        way = np.sign(b.exact - a.exact)[at]
        for side, exact in enumerate((a.exact[at], b.exact[at])):
            noisy = drawn_again(query, exact, trials) if at.any() else np.zeros((trials, 0), int)
            found[side] += _ratio(noisy, a, b, at)
            counts[side].append(np.count_nonzero(way * (noisy - b.exact[at]) >= 0, axis=0))
    return Drawn(found[0], found[1], *map(np.concatenate, counts))


def told_apart(one: Sequence[Call], two: Sequence[Call]) -> float:
    """The likelihood ratio of the answers that the first calls hold, of `two` to `one`."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        at = a.exact != b.exact
        total += float(_ratio(a.noisy[None, at], a, b, at)[0])
    return total


def _ratio(noisy: Any, one: Call, two: Call, at: Any) -> Vector:
    """log f(noisy; two) - log f(noisy; one), for answers of shape (trials, m)."""
    rate = one.query.weights[at] / one.query.scale
    off, other = (rate * (noisy - call.exact[at]) for call in (one, two))
    if one.query.law == "laplace":
        return np.asarray((np.abs(off) - np.abs(other)).sum(axis=1))
    return np.asarray((off**2 - other**2).sum(axis=1) / 2)
