"""Laws of covariates, treatment and outcome, with what is true of them and of an oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from families import Family
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri
from scipy.stats import qmc

SCRAMBLES, POINTS = 8, 2**14
"""What a law's averages are taken over; means over each scramble tell their error."""


@dataclass(frozen=True)
class Column:
    """One covariate: `origin` + `unit` times a raw value that a standard normal z turns into.

    `share` is that of a "binary" column's ones, `size` how many labels "levels" has. Bounds of a
    column that is not `loose` are always tight.
    """

    sort: str
    unit: float = 1.0
    origin: float = 0.0
    share: float = 0.5
    size: int = 0
    loose: bool = True

    def raw(self, z: Any) -> Any:
        match self.sort:
            case "uniform":
                return ndtr(z)
            case "normal":
                return np.clip(z, -4, 4)
            case "skew":
                return np.exp(0.7 * np.clip(z, -3.5, 3.5))
            case "few":
                return np.clip(np.floor(4.5 + 1.6 * z), 1, 8)
            case "binary":
                return (z > -ndtri(self.share)).astype(float)
            case "levels":
                return np.minimum(np.floor(self.size * ndtr(z)), self.size - 1)
            case _:
                raise ValueError(self.sort)

    @property
    def labels(self) -> list[str]:
        return list("ABCDEFGH"[: self.size])

    def values(self, raw: Any) -> Any:
        """As they stand in the table."""
        if self.sort == "levels":
            return np.array(self.labels)[raw.astype(np.int64)]
        if self.sort in ("few", "binary"):
            return raw.astype(np.int64)
        return self.origin + self.unit * raw

    @property
    def support(self) -> tuple[float, float]:
        low, high = map(float, self.raw(np.array([-9.0, 9.0])))
        return self.origin + self.unit * low, self.origin + self.unit * high

    @property
    def scale(self) -> tuple[float, float]:
        """About the mean and the standard deviation of raw values."""
        match self.sort:
            case "binary":
                return self.share, float(np.sqrt(self.share * (1 - self.share)))
            case "uniform":
                return 0.5, 0.29
            case "skew":
                return 1.28, 1.0
            case "few":
                return 4.0, 1.6
            case "levels":
                return (self.size - 1) / 2, float(np.sqrt((self.size**2 - 1) / 12))
            case _:
                return 0.0, 1.0


SHAPES = {
    "linear": lambda v, raw: v[0],
    "square": lambda v, raw: v[0] ** 2,
    "sine": lambda v, raw: np.sin(2 * v[0]),
    "bend": lambda v, raw: np.abs(v[0] - 0.3),
    "steep": lambda v, raw: np.tanh(3 * v[0]),
    "product": lambda v, raw: v[0] * v[1],
    "step": lambda v, raw: np.where((v > -0.4).all(axis=0), 1.0, 0.0),
    "log": lambda v, raw: np.log(raw[0]),
    "sqrt": lambda v, raw: np.sqrt(raw[0]),
    "exp": lambda v, raw: np.exp(raw[0]),
    "power": lambda v, raw: raw[0] ** 2,
}
"""Of standardised values v and raw ones, shape (columns, n)."""


class Part(NamedTuple):
    """A shape of some columns, and its weight."""

    shape: str
    columns: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class Index:
    """A sum of parts; a law takes it standardised, and cut at 3."""

    parts: tuple[Part, ...]

    def __call__(self, v: Any, raw: Any) -> Any:
        return sum(w * SHAPES[s](v[list(c)], raw[list(c)]) for s, c, w in self.parts)

    @property
    def columns(self) -> set[int]:
        return {column for part in self.parts for column in part.columns}


@dataclass(frozen=True)
class Law:
    """Everything a population follows from.

    The log-odds of treatment are a constant, which gives `share`, plus `pull` times `shared`. The
    outcome's location is `strength` times a mean of `shared` (`common` of it) and `own`, and for
    the treated `effect` (1 + `varied` times `modifier`) more.
    """

    columns: tuple[Column, ...]
    correlation: float
    family: Family
    unit: float
    origin: float
    shared: Index
    own: Index
    modifier: Index
    share: float
    pull: float
    strength: float
    common: float
    effect: float
    varied: float

    def without_effect(self) -> Law:
        """Its A/A test: treatment by lot, which does nothing."""
        return replace(self, pull=0.0, effect=0.0)

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.family.support
        return self.origin + self.unit * low, self.origin + self.unit * high

    @property
    def used(self) -> int:
        """The first columns, which alone matter."""
        return 1 + max(self.shared.columns | self.own.columns | self.modifier.columns)


class Population(NamedTuple):
    """Averages over a law; the oracle is AIPW with the law's own nuisances.

    `error` is the standard error of `truth`, `sd` the standard deviation of an oracle's score, and
    `moved` what confounding adds to the difference of the arms' means. `indices` and `constant` are
    what the law's indices are standardised by and its log-odds start from.
    """

    truth: float
    error: float
    sd: float
    indices: tuple[tuple[float, float], ...]
    constant: float
    moved: float


class Surfaces(NamedTuple):
    """Propensity and location without treatment and with it, of each row."""

    e: Any
    u0: Any
    u1: Any


@lru_cache(maxsize=64)
def population(law: Law) -> Population:
    sobol = [qmc.Sobol(law.used + 1, seed=seed).random(POINTS) for seed in range(SCRAMBLES)]
    z = ndtri(np.clip(np.concatenate(sobol), 1e-12, 1 - 1e-12).T)
    v, raw = _values(law, z[0], z[1:])
    found = [index(v, raw) for index in (law.shared, law.own, law.modifier)]
    scales = tuple((float(f.mean()), max(float(f.std()), 1e-9)) for f in found)
    shared = np.clip((found[0] - scales[0][0]) / scales[0][1], -3, 3)
    constant = brentq(lambda a: expit(a + law.pull * shared).mean() - law.share, -20, 20)
    known = Population(0, 0, 0, scales, float(constant), 0)
    e, u0, u1 = _surfaces(law, known, v, raw)
    (m0, v0), (m1, v1) = law.family.moments(u0), law.family.moments(u1)
    effects = (m1 - m0).reshape(SCRAMBLES, -1).mean(axis=1)
    score = np.var(m1 - m0) + np.mean(v1 / e + v0 / (1 - e))
    plain = np.average(m1, weights=e) - np.average(m0, weights=1 - e)
    return known._replace(
        truth=law.unit * float(effects.mean()),
        error=law.unit * float(effects.std(ddof=1) / np.sqrt(SCRAMBLES)),
        sd=law.unit * float(np.sqrt(score)),
        moved=law.unit * float(plain - effects.mean()),
    )


def _values(law: Law, common: Any, own: Any) -> tuple[Any, Any]:
    """Standardised and raw values, shape (columns, n)."""
    r = law.correlation
    columns = law.columns[: len(own)]
    z = np.sqrt(r) * common + np.sqrt(1 - r) * own if r else own
    raw = np.stack([column.raw(z[j]) for j, column in enumerate(columns)])
    scale = np.array([column.scale for column in columns])[:, :, None]
    return (raw - scale[:, 0]) / scale[:, 1], raw


def _surfaces(law: Law, known: Population, v: Any, raw: Any) -> Surfaces:
    shared, own, modifier = (
        np.clip((index(v, raw) - mean) / sd, -3, 3)
        for index, (mean, sd) in zip(
            (law.shared, law.own, law.modifier), known.indices, strict=True
        )
    )
    rest = np.sqrt(1 - law.common**2)
    u0 = law.strength * (law.common * shared + rest * own)
    u1 = u0 + law.effect * (1 + law.varied * modifier)
    return Surfaces(expit(known.constant + law.pull * shared), u0, u1)


class Sample(NamedTuple):
    """Rows, and the oracle's estimate from them."""

    frame: pd.DataFrame
    oracle: float


def sample(law: Law, n: int, seed: int | tuple[int, ...]) -> Sample:
    """n rows with covariates X1, X2, ..., treatment T and outcome Y."""
    rng, known = np.random.default_rng(seed), population(law)
    v, raw = _values(law, rng.standard_normal(n), rng.standard_normal((len(law.columns), n)))
    e, u0, u1 = _surfaces(law, known, v[: law.used], raw[: law.used])
    t = rng.random(n) < e
    y = law.family.draw(rng, np.where(t, u1, u0))
    m0, m1 = law.family.moments(u0)[0], law.family.moments(u1)[0]
    oracle = np.mean(m1 - m0 + np.where(t, (y - m1) / e, -(y - m0) / (1 - e)))
    rows = {f"X{j + 1}": c.values(raw[j]) for j, c in enumerate(law.columns)}
    whole = law.unit == 1 and law.origin == 0
    rows |= {"T": t.astype(np.int64), "Y": y if whole else law.origin + law.unit * y}
    return Sample(pd.DataFrame(rows), law.unit * float(oracle))
