"""Families of outcomes: the law of Y where a latent location u is given, with exact moments.

u is 0 on average and of standard deviation .2 to 1; a treatment adds to it. `support` is what is
public in a study that knows its outcome well; rows outside it do not occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, logit, ndtr
from scipy.stats import nbinom


class Family(Protocol):
    """What a law of outcomes is asked."""

    @property
    def support(self) -> tuple[float, float]: ...

    def moments(self, u: Any) -> tuple[Any, Any]:
        """Mean and variance of Y at each location."""

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        """One Y for each location."""


@dataclass(frozen=True)
class Normal:
    """u + noise, cut to [low, high]: plain where they are far away, mass at both ends else."""

    low: float
    high: float
    noise: float = 1.0

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def moments(self, u: Any) -> tuple[Any, Any]:
        a, b = (self.low - u) / self.noise, (self.high - u) / self.noise
        below, above, inside = ndtr(a), ndtr(-b), ndtr(b) - ndtr(a)
        da, db = _density(a), _density(b)
        # of the cut standard normal, whose ends are a and b
        first = a * below + b * above + da - db
        second = a**2 * below + b**2 * above + inside + a * da - b * db
        return u + self.noise * first, self.noise**2 * (second - first**2)

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        return np.clip(u + self.noise * rng.standard_normal(len(u)), self.low, self.high)


@dataclass(frozen=True)
class Contaminated:
    """A `Normal` outcome, but with probability `mass` the value `far`, whatever else holds."""

    main: Normal
    mass: float
    far: float

    @property
    def support(self) -> tuple[float, float]:
        return min(self.main.low, self.far), max(self.main.high, self.far)

    def moments(self, u: Any) -> tuple[Any, Any]:
        return _mixed(1 - self.mass, *self.main.moments(u), self.mass, self.far, 0.0)

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        return np.where(rng.random(len(u)) < self.mass, self.far, self.main.draw(rng, u))


@dataclass(frozen=True)
class Binary:
    """0 or 1; `share` are 1 where u = 0, and u adds to the log-odds."""

    share: float

    @property
    def support(self) -> tuple[float, float]:
        return 0, 1

    def moments(self, u: Any) -> tuple[Any, Any]:
        p = expit(logit(self.share) + u)
        return p, p * (1 - p)

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        return (rng.random(len(u)) < self.moments(u)[0]).astype(np.int64)


@dataclass(frozen=True)
class LogNormal:
    """exp(slope u + noise), cut at `high`."""

    noise: float
    high: float
    slope: float = 0.4

    @property
    def support(self) -> tuple[float, float]:
        return 0, self.high

    def moments(self, u: Any) -> tuple[Any, Any]:
        at, s, cap = self.slope * u, self.noise, np.log(self.high)
        over = ndtr(-(cap - at) / s)
        first = np.exp(at + s**2 / 2) * ndtr((cap - at - s**2) / s) + self.high * over
        second = np.exp(2 * at + 2 * s**2) * ndtr((cap - at - 2 * s**2) / s)
        return first, second + self.high**2 * over - first**2

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        logged = self.slope * u + self.noise * rng.standard_normal(len(u))
        return np.minimum(np.exp(logged), self.high)


@dataclass(frozen=True)
class ZeroInflated:
    """0, but for a `Binary` share of rows an amount."""

    some: Binary
    amount: LogNormal

    @property
    def support(self) -> tuple[float, float]:
        return self.amount.support

    def moments(self, u: Any) -> tuple[Any, Any]:
        p, _ = self.some.moments(u)
        return _mixed(p, *self.amount.moments(u), 1 - p, 0.0, 0.0)

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        return self.some.draw(rng, u) * self.amount.draw(rng, u)


@dataclass(frozen=True)
class Counts:
    """Negative binomial counts of mean `mean` exp(.4 u), of variance mean + mean^2 / `size`.

    They are cut where a hundred-thousandth of the rows with u = 2 lie above; the moments are of
    the law that is not cut.
    """

    mean: float
    size: float

    @property
    def support(self) -> tuple[float, float]:
        return 0, float(nbinom.isf(1e-5, self.size, self._success(2.0)))

    def _success(self, u: Any) -> Any:
        return self.size / (self.size + self.mean * np.exp(0.4 * u))

    def moments(self, u: Any) -> tuple[Any, Any]:
        mean = self.mean * np.exp(0.4 * u)
        return mean, mean + mean**2 / self.size

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        drawn = rng.negative_binomial(self.size, self._success(u))
        return np.minimum(drawn, int(self.support[1]))


@dataclass(frozen=True)
class Ordinal:
    """1, 2, ...: how many of the `cuts` a logistic variable around u exceeds, and one."""

    cuts: tuple[float, ...]

    @property
    def support(self) -> tuple[float, float]:
        return 1, len(self.cuts) + 1

    def moments(self, u: Any) -> tuple[Any, Any]:
        above = [expit(u - c) for c in self.cuts]
        first = sum(above)
        second = sum((2 * k + 1) * p for k, p in enumerate(above))
        return 1 + first, second - first**2

    def draw(self, rng: np.random.Generator, u: Any) -> Any:
        return 1 + np.searchsorted(self.cuts, u + rng.logistic(size=len(u)))


def _density(z: Any) -> Any:
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def _mixed(p: Any, mean: Any, variance: Any, q: Any, other: Any, spread: Any) -> tuple[Any, Any]:
    """Moments of a mixture of two laws with weights p and q."""
    first = p * mean + q * other
    return first, p * (variance + mean**2) + q * (spread + other**2) - first**2


# --- their parameters are drawn ----------------------------------------------------------------


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _plain(rng: np.random.Generator) -> Normal:
    noise, room = float(rng.uniform(0.3, 1.0)), float(rng.uniform(1.0, 1.4))
    return Normal(-room * (3 + 2 * noise), room * (3 + 2 * noise), noise)


def _ends(rng: np.random.Generator) -> Normal:
    return Normal(-float(rng.uniform(0.2, 1.5)), float(rng.uniform(0.2, 1.5)))


def _contaminated(rng: np.random.Generator) -> Contaminated:
    far = float(rng.choice((-1, 1))) * _log_uniform(rng, 10, 200)
    return Contaminated(_plain(rng), _log_uniform(rng, 1e-4, 5e-3), far)


def _binary(rng: np.random.Generator) -> Binary:
    return Binary(_log_uniform(rng, 0.001, 0.5))


def _amounts(rng: np.random.Generator, low: float, high: float) -> LogNormal:
    noise = float(rng.uniform(low, high))
    return LogNormal(noise, float(np.exp(3.7 * noise + 0.8)))


def _lognormal(rng: np.random.Generator) -> LogNormal:
    return _amounts(rng, 0.5, 1.5)


def _zeros(rng: np.random.Generator) -> ZeroInflated:
    return ZeroInflated(Binary(_log_uniform(rng, 0.005, 0.5)), _amounts(rng, 0.3, 1.2))


def _counts(rng: np.random.Generator) -> Counts:
    return Counts(_log_uniform(rng, 0.1, 20), _log_uniform(rng, 0.5, 20))


def _ordinal(rng: np.random.Generator) -> Ordinal:
    cuts = np.sort(rng.normal(0, 1.5, int(rng.integers(3, 7))))
    return Ordinal(tuple(map(float, cuts)))


FAMILIES = {
    "normal": _plain,
    "binary": _binary,
    "zero-inflated": _zeros,
    "log-normal": _lognormal,
    "counts": _counts,
    "ends": _ends,
    "ordinal": _ordinal,
    "contaminated": _contaminated,
}
IN_UNITS = ("normal", "ends", "zero-inflated", "log-normal", "contaminated")
"""Families whose values are amounts of some unit; the others are what they count."""
