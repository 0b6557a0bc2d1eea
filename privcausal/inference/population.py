"""A synthetic population from released marginals: who the rows are, as far as was paid for.

Marginals come from noisy histograms, the dependence between numeric variables from a Gaussian
copula fitted to the noisy Gram matrix. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from privcausal.spec.features import FINE, Rows
from privcausal.spec.functions import Known
from privcausal.spec.schema import Interval, Levels, Schema
from privcausal.typing import Matrix, Vector

SIZE = 3000
_PUBLIC_SEED = 20_250_711  # the population is a quadrature rule; its points are public


@dataclass(frozen=True, eq=False)
class Population:
    """Variables of a population.

    Attributes
    ----------
    probabilities : mapping
        Variable to probabilities, shape (FINE,) over its interval or (levels + 1,) over codes.
    correlation : Matrix
        Of the numeric variables' normal scores, in the order of `numeric`.
    count : float
        (Noisy) number of complete rows it stands for.
    count_sd : float
        At least the noise's sd of it.
    """

    schema: Schema
    probabilities: Mapping[str, Vector]
    correlation: Matrix
    count: float
    count_sd: float = 0.0

    @property
    def numeric(self) -> tuple[str, ...]:
        return tuple(v for v in self.probabilities if isinstance(self.schema[v], Interval))

    def rows(self, known: Known | None = None) -> Rows:
        """`SIZE` synthetic rows. Known propensities spread evenly over their declared bounds.

        (Nothing is released of them. Were all at the midpoint, scores would be cut as if the
        propensities that make them large did not occur.)
        """
        scores = _normal_scores(len(self.probabilities)).copy()
        numeric = self.numeric
        if numeric:
            root = np.linalg.cholesky(self.correlation)
            scores[:, : len(numeric)] = scores[:, : len(numeric)] @ root.T
        order = [*numeric, *(v for v in self.probabilities if v not in numeric)]
        frame = {name: self._draw(name, ndtr(scores[:, j])) for j, name in enumerate(order)}
        even = np.arange(0.5, SIZE) * np.sqrt(5.0) % 1.0  # in no order that covariates share
        propensity = None if known is None else known.lo + (known.hi - known.lo) * even
        return Rows(frame, SIZE, propensity, by_column=True)

    def _draw(self, name: str, uniform: Vector) -> Vector:
        p = self.probabilities[name]
        at = np.minimum(np.searchsorted(np.cumsum(p), uniform), len(p) - 1)
        domain = self.schema[name]
        if isinstance(domain, Interval):
            return np.asarray(domain.lo + (at + 0.5) * (domain.width / FINE))
        undeclared = len(p) - 1
        is_levels = hasattr(domain, "values")
        return (
            np.where(at == undeclared, -1, at).astype(np.int64) if is_levels else at.astype(float)
        )


def uniform_population(schema: Schema, variables: Sequence[str], size: int | None) -> Population:
    """Nobody in particular: every variable uniform over its declared domain, and independent."""
    probabilities: dict[str, Vector] = {}
    for name in variables:
        domain = schema[name]
        if isinstance(domain, Interval):
            probabilities[name] = np.full(FINE, 1.0 / FINE)
        elif isinstance(domain, Levels):
            levels = len(domain.labels)
            probabilities[name] = np.r_[np.full(levels, 1.0 / levels), 0.0]
        else:
            probabilities[name] = np.full(2, 0.5)
    numeric = sum(isinstance(schema[name], Interval) for name in variables)
    return Population(schema, probabilities, np.eye(numeric), float(size or 1))


@lru_cache(maxsize=8)
def _normal_scores(width: int) -> Matrix:
    draws = np.random.default_rng(_PUBLIC_SEED).standard_normal((SIZE, max(width, 1)))
    return np.asarray((draws - draws.mean(0)) / draws.std(0))


def interval_probabilities(counts: Vector, noise_sd: float) -> Vector:
    """Fine-bin probabilities, shape (FINE,), from a noisy histogram over an interval.

    Bins that look like noise are pulled down, neighbours are averaged, and 2 % is spread evenly;
    a histogram that is all noise becomes uniform.
    """
    bins = len(counts)
    kernel = np.array([0.25, 0.5, 0.25]) if noise_sd > 0 else np.array([0.0, 1.0, 0.0])
    smooth = np.convolve(np.pad(np.maximum(counts, 0.0), 1, mode="edge"), kernel, "valid")
    if smooth.sum() < 4 * noise_sd * np.sqrt(bins) or smooth.max() <= 3 * noise_sd:
        smooth = np.ones(bins)
    else:
        smooth = np.where(smooth < 1.5 * noise_sd, 0.25 * smooth, smooth)
    total = smooth.sum()
    share = smooth / total * 0.98 + 0.02 / bins if total > 0 else np.full(bins, 1.0 / bins)
    return np.repeat(share / (FINE // bins), FINE // bins)


CENTRES, SPREADS = 61, 25
"""Means and standard deviations of normal marginals that are tried."""


def modelled_probabilities(counts: Vector, noise_sd: float, count: float) -> Vector:
    """Fine-bin probabilities, shape (FINE,), helped by what marginals usually look like.

    Few rows leave a histogram that is mostly noise; taken to be uniform over declared bounds, a
    column seems to vary by far more than it does. A uniform and normal laws are averaged by their
    likelihood, the uniform being thought as likely as all normal ones together. What counts say
    beyond noise is kept, as `interval_probabilities` has it.
    """
    seen = interval_probabilities(counts, noise_sd)
    if noise_sd == 0:
        return seen
    laws, likely = _usual_laws()
    bins = len(counts)
    expected = count * laws.reshape(len(laws), bins, -1).sum(axis=-1)
    logs = likely - 0.5 * ((counts - expected) ** 2).sum(axis=1) / noise_sd**2
    chance = np.exp(logs - logs.max())
    chance /= chance.sum()
    signal = max(float(((counts - chance @ expected) ** 2).mean()) - noise_sd**2, 0.0)
    keep = signal / (signal + noise_sd**2)
    return np.asarray((1 - keep) * (0.98 * (chance @ laws) + 0.02 / FINE) + keep * seen)


@lru_cache(maxsize=1)
def _usual_laws() -> tuple[Matrix, Vector]:
    """Fine-bin probabilities of normal laws, and last the uniform; log prior weights."""
    grid = np.arange(FINE + 1) / FINE
    centres = np.linspace(0.0, 1.0, CENTRES)[:, None, None]
    spreads = np.geomspace(0.03, 0.4, SPREADS)[None, :, None]
    normal = np.diff(ndtr((grid - centres) / spreads), axis=-1).reshape(-1, FINE)
    laws = np.r_[normal / normal.sum(axis=1, keepdims=True), np.full((1, FINE), 1.0 / FINE)]
    return laws, np.r_[np.zeros(len(normal)), np.log(len(normal))]


def level_probabilities(counts: Vector, noise_sd: float, *, undeclared: bool) -> Vector:
    """Probabilities of level codes from noisy counts; the last cell may be undeclared labels."""
    kept = np.maximum(counts, 0.0)
    if undeclared and kept[-1] <= 2 * noise_sd:
        kept[-1] = 0.0
    levels = len(kept) - 1 if undeclared else len(kept)
    if kept.sum() <= 3 * noise_sd * np.sqrt(len(kept)):
        return np.asarray(np.r_[np.full(levels, 1.0 / levels), np.zeros(len(kept) - levels)])
    share = kept / kept.sum()
    # as much as noise might hide is spread over the levels, so that none is taken to be empty
    hidden = min(0.02, 2 * noise_sd / float(kept.sum()))
    floor = np.r_[np.full(levels, hidden / levels), np.zeros(len(kept) - levels)]
    return np.asarray((1 - hidden) * share + floor)


def with_correlation(population: Population, noisy: Matrix, noise_sd: float) -> Population:
    """The population with a correlation matrix shrunk towards independence.

    Parameters
    ----------
    noisy : Matrix
        Noisy correlations of the numeric variables, shape (d, d).
    noise_sd : float
        Noise sd of an off-diagonal entry.
    """
    d = len(noisy)
    if d < 2:
        return population
    off = noisy[~np.eye(d, dtype=bool)]
    signal = max(float((off**2).mean()) - noise_sd**2, 0.0)
    shrunk = noisy * (signal / (signal + noise_sd**2) if signal > 0 else 0.0)
    np.fill_diagonal(shrunk, 1.0)
    values, vectors = np.linalg.eigh(shrunk)
    positive = (vectors * np.maximum(values, 0.05)) @ vectors.T
    scale = np.sqrt(np.diag(positive))
    return replace(population, correlation=positive / np.outer(scale, scale))
