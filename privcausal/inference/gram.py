"""Gram matrices helped by the synthetic population: shrinkage, correlations, second stages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privcausal.inference.population import Population, with_correlation
from privcausal.spec.features import FeatureMap, Features, Rows
from privcausal.typing import Integers, Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class GramEstimate:
    """Estimate of sum w phi phi' with a typical sd of an entry's remaining noise."""

    value: Matrix
    sd: float
    model: Matrix

    def sub(self, keep: Integers) -> GramEstimate:
        """The block of some features."""
        at = np.ix_(keep, keep)
        return GramEstimate(self.value[at], self.sd, self.model[at])


def population_gram(features: Features, rows: Rows, count: float, weight: Vector) -> Matrix:
    """count x mean of weight w phi phi' over the synthetic rows."""
    phi = rows.phi(features)
    w = features.weight(phi) * weight
    return np.asarray((phi.T * w) @ phi * (count / len(rows)))


def alignment(model: Matrix, seen: Matrix, noise_sd: float) -> Matrix:
    """A linear map that moves synthetic features to where the released Gram says that rows are.

    Synthetic rows spread within the cells of a histogram. Where a column takes few values, its
    curves are collinear on the rows and not on the synthetic ones, whose moments then have variance
    where there is none. In the model's metric the released Gram has eigenvalues l, each with the
    noise sd s of its own direction: features are scaled by the root of min(l + 2 s, 1) along it.

    Parameters
    ----------
    model : Matrix
        Mean of w phi phi' over the synthetic rows, shape (p, p).
    seen : Matrix
        Released Gram on that scale.
    noise_sd : float
        Of an off-diagonal entry of `seen`.
    """
    values, vectors = np.linalg.eigh(model)
    values = np.maximum(values, 1e-9 * values[-1])
    inverse, root = vectors / np.sqrt(values), vectors * np.sqrt(values)
    found, turn = np.linalg.eigh(inverse.T @ seen @ inverse)
    noise = np.sqrt(2.0) * noise_sd * np.sum((inverse @ turn) ** 2, axis=0)
    scale = np.sqrt(np.clip(found + 2 * noise, 0.0, 1.0))
    return np.asarray(root @ (turn * scale) @ turn.T @ inverse.T)


def correlated(
    population: Population, features: FeatureMap, gram: Matrix, gram_sd: float
) -> Population:
    """The population with the dependence seen in the noisy Gram's linear entries."""
    columns = features.design.columns
    linear = {
        columns[c].variable: j
        for j, (c, order) in enumerate(zip(features.column, features.order, strict=True))
        if order == 1 and columns[c].kind == "numeric"
    }
    numeric = population.numeric
    at = [linear.get(v, -1) for v in numeric]
    correlation = np.eye(len(numeric))
    known = [i for i, j in enumerate(at) if j >= 0]
    if len(known) < 2:
        return population
    rows = population.rows()
    model = population_gram(features, rows, population.count, np.ones(len(rows)))
    block = gram[np.ix_([at[i] for i in known], [at[i] for i in known])]
    diagonal = np.maximum(np.diag(model)[[at[i] for i in known]], 1e-9 * population.count)
    size = np.sqrt(np.outer(diagonal, diagonal))
    estimate = with_correlation(population, block / size, gram_sd / float(size.mean())).correlation
    correlation[np.ix_(known, known)] = estimate
    return replace(population, correlation=correlation)


def shrunken(noisy: Matrix, model: Matrix, noise_sd: float, features: FeatureMap) -> GramEstimate:
    """The noisy Gram moved towards the population's, one factor per class of entries.

    `noise_sd` is that of an off-diagonal entry; the diagonal's is sqrt(2) larger.
    """
    value, left = model.copy(), np.zeros_like(model)
    for entries, factor in _classes(features):
        if not entries.any():
            continue
        variance = factor * noise_sd**2
        gap = (noisy - model)[entries]
        signal = max(float((gap**2).mean()) - variance, 0.0)
        keep = signal / (signal + variance) if signal > 0 else 0.0
        value[entries] += keep * gap
        left[entries] = keep * variance
    return GramEstimate(value, float(np.sqrt(left.mean())), model)


def _classes(features: FeatureMap) -> list[tuple[Mask, float]]:
    """Entries that share a shrinkage factor, with their noise variance factor."""
    p = features.size
    diagonal = np.eye(p, dtype=bool)
    column, linear = features.column, features.order == 1
    intercept = np.zeros((p, p), bool)
    intercept[0] = intercept[:, 0] = True
    same = column[:, None] == column[None]
    both = linear[:, None] & linear[None] & ~same
    inner = ~intercept
    return [
        (intercept & ~diagonal, 1.0),
        (intercept & diagonal, 2.0),
        (same & inner & ~diagonal, 1.0),
        (diagonal & inner, 2.0),
        (both & inner, 1.0),
        (~same & ~both & inner, 1.0),
    ]
