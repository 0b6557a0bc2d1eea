"""Kinds of data: which laws, sizes and bounds a cell of the laboratory is drawn from.

A cell is a kind and a number: everything else follows from the two. A hash of them says which half
a cell belongs to: "build" is there to choose by, "report" is run once, when all is chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, islice
from typing import Any

import numpy as np
from families import FAMILIES, IN_UNITS
from populations import Column, Index, Law, Part

HALVES = ("build", "report")
SMALL_ARM = 10
"""Rows that the smaller arm has on average, at least."""


@dataclass(frozen=True)
class Kind:
    """Ranges; every cell draws from each of them. Sizes, shares and eps are drawn on a log scale.

    `share` is that of the smaller arm, which is the treated one unless `either` says that it may
    be the controls. `known` is how often the propensity is given, where it is a number.
    """

    outcome: tuple[str, ...] = ("normal", "binary", "log-normal", "counts", "ends", "ordinal")
    confounding: tuple[str, ...] = ("none", "linear", "curved")
    n: tuple[int, int] = (500, 200_000)
    p: tuple[int, int] = (1, 8)
    share: tuple[float, float] = (0.2, 0.5)
    either: bool = True
    known: float = 0.5
    pull: tuple[float, float] = (0.2, 0.8)
    loose_outcome: tuple[float, ...] = (1.0,)
    loose_covariates: tuple[float, ...] = (1.0,)
    eps: tuple[float, float] = (0.25, 8.0)


_AMOUNTS = ("normal", "log-normal", "counts", "ends", "zero-inflated", "ordinal")
_NONE = ("none",)

LAWS: dict[str, Kind] = {
    **{f"outcome {family}": Kind(outcome=(family,)) for family in FAMILIES},
    **{f"outcome bounds x{f}": Kind(outcome=_AMOUNTS, loose_outcome=(f,)) for f in (5, 20, 100)},
    **{
        f"covariate bounds x{f}": Kind(
            confounding=("none", "linear", "curved", "transforms"), p=(2, 8), loose_covariates=(f,)
        )
        for f in (5, 20, 100)
    },
    "trial": Kind(confounding=_NONE, share=(0.01, 0.5), known=1),
    "trial estimated": Kind(confounding=_NONE, share=(0.01, 0.5), known=0),
    "few treated": Kind(confounding=("linear", "curved"), share=(0.01, 0.15)),
    "threshold rules": Kind(confounding=("threshold",), p=(2, 8), pull=(0.3, 1.2)),
    "strong logistic": Kind(confounding=("linear",), p=(2, 8), pull=(0.8, 1.4)),
    "confounding none": Kind(confounding=_NONE, p=(1, 20)),
    "confounding linear": Kind(confounding=("linear",), p=(1, 12)),
    "confounding curved": Kind(confounding=("curved",), p=(1, 12)),
    "confounding products": Kind(confounding=("products",), p=(2, 8)),
    "confounding transforms": Kind(confounding=("transforms",), p=(2, 6)),
    "many columns": Kind(confounding=("none", "linear", "curved"), p=(15, 40)),
    "few rows many columns": Kind(confounding=("none", "linear"), n=(500, 3000), p=(10, 40)),
    "anything": Kind(
        outcome=tuple(FAMILIES),
        confounding=("none", "linear", "curved", "products", "transforms", "threshold"),
        p=(1, 40), share=(0.01, 0.5), loose_outcome=(1, 1, 5, 20, 100),
        loose_covariates=(1, 1, 5, 20, 100),
    ),
}  # fmt: skip

TRIALS: dict[str, Kind] = {
    f"{share:.0%} {family}": Kind(
        outcome=(family,), confounding=_NONE, n=(1000, 50_000), p=(1, 5), share=(share, share),
        either=False, known=1,
    )
    for share in (0.01, 0.03, 0.10, 0.30)
    for family in FAMILIES
}  # fmt: skip

STUDIES = {"laws": LAWS, "aa": LAWS, "trials": TRIALS}
"""`aa` has the cells of `laws` with treatment by lot that does nothing."""


@dataclass(frozen=True)
class Cell:
    """A law and how it is studied; `propensity` is the number that is given, if one is."""

    study: str
    kind: str
    number: int
    law: Law = field(repr=False)
    n: int
    eps: float
    formula: str
    propensity: float | None
    loose_outcome: float
    loose_covariates: float
    confounding: str
    outcome: str

    @property
    def half(self) -> str:
        return HALVES[_digest(f"half {self.kind} {self.number}") % 2]

    @property
    def p(self) -> int:
        return len(self.law.columns)

    @property
    def lot(self) -> bool:
        """Whether treatment is by lot with one probability."""
        return self.law.pull == 0

    @property
    def bounds(self) -> dict[str, Any]:
        """What is public; where a bound is too wide, the room is on a side that varies."""
        found: dict[str, Any] = {"T": (0.0, 1.0)}
        if self.outcome == "binary":
            found["Y"] = (0.0, 1.0)
        else:
            signed = self.outcome in ("normal", "ends", "contaminated")
            found["Y"] = _wider(self.law.support, self.loose_outcome, self._side(0, signed))
        for j, column in enumerate(self.law.columns):
            if column.sort == "levels":
                found[f"X{j + 1}"] = column.labels
                continue
            loose = self.loose_covariates if column.loose else 1.0
            side = self._side(j + 1, column.sort in ("normal", "uniform"))
            found[f"X{j + 1}"] = _wider(column.support, loose, side)
        return found

    def _side(self, place: int, signed: bool) -> float:
        """The part of the room below: none for what cannot be negative."""
        part = _digest(f"side {self.kind} {self.number} {place}") % 3 / 2
        return part if signed else 0.0

    def seeds(self, repetition: int) -> tuple[tuple[int, int], int]:
        """Of rows and of noise: methods and budgets see the same draws."""
        first = _digest(f"rows {self.study} {self.kind} {self.number}")
        return (first, repetition), (first + 7919 * repetition) % 2**63


def cells(study: str, half: str, kind: str, size: int) -> list[Cell]:
    """The first cells of a kind that are in this half."""
    return list(islice((c for c in _all(study, kind) if c.half == half), size))


def _all(study: str, kind: str) -> Iterator[Cell]:
    return (drawn(study, kind, number) for number in count())


@lru_cache(maxsize=4096)
def drawn(study: str, kind: str, number: int) -> Cell:
    """The cell of this number."""
    ranges = STUDIES[study][kind]
    rng = np.random.default_rng(_digest(f"law {kind} {number}"))
    outcome, confounding = str(rng.choice(ranges.outcome)), str(rng.choice(ranges.confounding))
    share = _log_uniform(rng, *ranges.share)
    lot, small = confounding == "none", share
    if ranges.either and rng.random() < 0.5:
        share = 1 - share
    n = round(max(_log_uniform(rng, *ranges.n), SMALL_ARM / small))
    p = int(rng.integers(ranges.p[0], ranges.p[1], endpoint=True))
    eps = _log_uniform(rng, *ranges.eps)
    given = share if lot and rng.random() < ranges.known else None
    loose_outcome = float(rng.choice(ranges.loose_outcome))
    loose_covariates = float(rng.choice(ranges.loose_covariates))
    columns, shared, formula = _confounding(confounding, p, rng)
    own = _linear(rng, len(columns), 4)
    law = Law(
        columns=columns,
        correlation=float(rng.choice((0.0, 0.2, 0.5))),
        family=FAMILIES[outcome](rng),
        unit=_unit(rng) if outcome in IN_UNITS else 1.0,
        origin=_origin(rng) if outcome in ("normal", "ends") else 0.0,
        shared=shared,
        own=own,
        modifier=_linear(rng, len(columns), 2),
        share=share,
        pull=0.0 if lot else float(rng.uniform(*ranges.pull)),
        strength=float(rng.uniform(0.2, 1.0)),
        common=float(rng.uniform(0.3, 0.9)),
        effect=float(rng.choice((0.0, -1.0, 1.0, 1.0)) * rng.uniform(0.05, 0.5)),
        varied=float(rng.uniform(0, 0.6)),
    )
    cell = Cell(
        study, kind, number, law, n, eps, formula, given, loose_outcome, loose_covariates,
        confounding, outcome,
    )  # fmt: skip
    return replace(cell, law=law.without_effect()) if study == "aa" else cell


def _confounding(name: str, p: int, rng: Any) -> tuple[tuple[Column, ...], Index, str]:
    """Covariates, what treatment and outcome share, and the formula."""
    columns = tuple(_column(rng) for _ in range(p))
    terms = _terms(columns)
    few = min(p, int(rng.integers(1, 5)))
    match name:
        case "none" | "linear":
            shared = _linear(rng, p, few)
        case "curved":
            shapes = ("square", "sine", "bend", "steep")
            parts = [Part(str(rng.choice(shapes)), (j,), _weight(rng)) for j in range(few)]
            shared = Index((*parts, *_linear(rng, p, few, 0.4).parts))
        case "products":
            pairs = [(j, j + 1) for j in range(0, min(p - 1, 5), 2)]
            shared = Index(
                (
                    *(Part("product", pair, _weight(rng)) for pair in pairs),
                    *_linear(rng, p, few, 0.4).parts,
                )
            )
            if rng.random() < 0.5:
                terms += [f"{terms[a]}:{terms[b]}" for a, b in pairs]
        case "threshold":
            shared = Index((Part("step", tuple(range(min(p, int(rng.integers(1, 3))))), 1.0),))
        case "transforms":
            columns, shared, terms = _transforms(columns, rng)
        case _:
            raise ValueError(name)
    return columns, shared, f"Y ~ T | {' + '.join(terms)}"


_WRITTEN = {"log": "log({})", "sqrt": "sqrt({})", "exp": "exp({})", "power": "I({}**2)"}


def _transforms(columns: tuple[Column, ...], rng: Any) -> tuple[Any, Index, list[str]]:
    """One to four columns act by a transform that the formula names; most rows lie far from its
    largest value."""
    acting = min(len(columns), int(rng.integers(1, 5)))
    names = [str(rng.choice(list(_WRITTEN))) for _ in range(acting)]
    # exp is in units of its own, and bounds 100 times too wide would be beyond all numbers
    made = [
        Column("normal", loose=False) if s == "exp" else Column("skew", _unit(rng)) for s in names
    ]
    scale = {"log": 0.7, "sqrt": 0.4, "exp": 2.0, "power": 3.0}
    parts = [Part(s, (j,), _weight(rng) / scale[s]) for j, s in enumerate(names)]
    terms = [_WRITTEN[s].format(f"X{j + 1}") for j, s in enumerate(names)]
    terms += _terms(columns)[acting:]
    return (*made, *columns[acting:]), Index(tuple(parts)), terms


def _terms(columns: tuple[Column, ...]) -> list[str]:
    names = [f"X{j + 1}" for j in range(len(columns))]
    return [f"C({x})" if c.sort == "levels" else x for x, c in zip(names, columns, strict=True)]


def _column(rng: Any) -> Column:
    sort = str(rng.choice(("uniform", "normal", "skew", "few", "binary", "levels")))
    match sort:
        case "binary":
            return Column(sort, share=float(rng.uniform(0.1, 0.9)), loose=False)
        case "levels":
            return Column(sort, size=int(rng.integers(3, 7)))
        case "few":
            return Column(sort)
    return Column(sort, _unit(rng), _origin(rng) if sort != "skew" else 0.0)


def _linear(rng: Any, p: int, few: int, weight: float = 1.0) -> Index:
    return Index(tuple(Part("linear", (j,), weight * _weight(rng)) for j in range(min(p, few))))


def _weight(rng: Any) -> float:
    return float(rng.choice((-1, 1)) * rng.uniform(0.5, 1.5))


def _unit(rng: Any) -> float:
    return float(rng.choice((0.1, 1.0, 10.0, 1000.0)))


def _origin(rng: Any) -> float:
    return float(rng.choice((0.0, 0.0, -3.0, 20.0)))


def _wider(support: tuple[float, float], factor: float, below: float) -> tuple[float, float]:
    low, high = support
    room = (factor - 1) * (high - low)
    return low - below * room, high + (1 - below) * room


def _log_uniform(rng: Any, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
