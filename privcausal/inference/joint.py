"""Several averages from one release: in which shape noise is added, and their joint covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.inference.average import (
    AverageEstimate,
    Frame,
    ScoreData,
    Sums,
    slopes_in_sums,
    with_sums,
)
from privcausal.inference.reconcile import terms_first
from privcausal.typing import Matrix, Vector

ROUNDS = 200
"""Steps towards the best shape; the last is scaled to hold all points, however near it came."""

THIN = 1e-6
"""Least squared half-axis, as a share of the longest: scores may be multiples of one another."""


def noise_shape(points: Matrix, weights: Matrix) -> Matrix:
    """V of (nearly) least trace(W V) with x'V^-1 x <= 1 for all points x, shape (J, J).

    Gaussian noise of covariance V hides rows whose scores lie among the points as well as standard
    noise hides rows of norm 1. It is the dual of an A-optimal design (Pukelsheim 1993, ch. 7):
    V = W^-1/2 (W^1/2 M W^1/2)^1/2 W^-1/2 for the moments M of a law on the points, which is found
    by multiplicative steps.

    Parameters
    ----------
    points : Matrix
        Shape (n, J).
    weights : Matrix
        W, positive definite: what the variances of the averages are worth.
    """
    root, inverse = (matrix_power(weights, p) for p in (0.5, -0.5))
    x = points @ root
    law = np.full(len(x), 1.0 / len(x))
    for _ in range(ROUNDS):
        moments = (x.T * law) @ x
        moments += THIN * np.trace(moments) * np.eye(len(moments))
        shape = matrix_power(moments, 0.5)
        reach = (x @ np.linalg.inv(shape) * x).sum(axis=1)
        law = law * np.maximum(reach, 0.0)
        law /= law.sum()
    return np.asarray(inverse @ (shape * reach.max()) @ inverse)


def matrix_power(matrix: Matrix, power: float) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 1e-300) ** power) @ vectors.T)


@dataclass(frozen=True, eq=False)
class Asked:
    """One of several averages.

    Attributes
    ----------
    parts : Vector
        Its score as a combination of the released ones, shape (J,).
    mass : int
        The place of its mass among the released sizes, of which the first counts rows.
    """

    name: str
    parts: Vector
    mass: int
    frame: Frame


@dataclass(frozen=True, eq=False)
class JointData:
    """Released sums, or the noise sds of their entries; P = 1 + G places: all rows, then groups.

    `score` (J, P), `size` (1 + K, P) of rows and masses, and `square` (P, J, J).
    """

    score: Matrix
    size: Matrix
    square: Matrix

    def of(self, asked: Asked, *, noise: bool) -> ScoreData:
        """Those of one average; the parts of a noise sd add up in squares."""
        own, pairs = asked.parts, np.outer(asked.parts, asked.parts)
        if noise:
            score = np.sqrt(own**2 @ self.score**2)
            twice = np.triu(2 * pairs) - np.diag(np.diag(pairs))
            square = np.sqrt((twice**2 * self.square**2).sum(axis=(1, 2)))
        else:
            score, square = own @ self.score, (pairs * self.square).sum(axis=(1, 2))
        sizes = self.size[asked.mass if asked.frame.group_masses else 0, 1:]
        return ScoreData(
            score[:1], score[1:], self.size[:1, :1], float(self.size[asked.mass, 0]), sizes,
            float(square[0]), square[1:], np.zeros((0, 0)),
        )  # fmt: skip


def estimate_together(
    asked: Sequence[Asked], groups: tuple[str, ...], value: JointData, sd: JointData
) -> AverageEstimate:
    """Averages, then the groups of each, with their joint covariance.

    Estimates and variances are those of `estimate_averages`. Privacy noise: the released scores
    have independent noise of one sd, so covariances follow by the delta method, as do those of
    sizes and masses that averages share. Sampling: by the released products of scores.
    """
    found, sums = [], []
    for a in asked:
        one, own = with_sums(
            (a.name,), groups, value.of(a, noise=False), sd.of(a, noise=True), a.frame
        )
        found.append(one)
        sums.append(own)
    privacy = _privacy(asked, found, sums, sd)
    sampling = _sampling(asked, found, sums, value)
    r, places = len(asked), 1 + len(groups)
    order = terms_first(r, places)
    estimate, clipping, remainder = (
        np.concatenate([getattr(one, name) for one in found])[order]
        for name in ("estimate", "clipping", "remainder")
    )
    return AverageEstimate(
        tuple(a.name for a in asked),
        tuple(f"{a.name}:{g}" for a in asked for g in groups),
        estimate,
        sampling[np.ix_(order, order)],
        privacy[np.ix_(order, order)],
        clipping,
        remainder,
        found[0].size,
        size_sd=found[0].size_sd,
        shares=np.concatenate([one.shares for one in found]),
        shares_sd=np.concatenate([one.shares_sd for one in found]),
    )


def _privacy(
    asked: Sequence[Asked], found: Sequence[AverageEstimate], sums: Sequence[Sums], sd: JointData
) -> Matrix:
    """Noise covariance, average by average, each with its groups; shape (R P, R P)."""
    places, noise_sd = sd.score.shape[1], float(sd.score[0, 0])
    by_score, by_size, sizes = [], [], [a.mass if a.frame.group_masses else 0 for a in asked]
    for a, one, own in zip(asked, found, sums, strict=True):
        score, size, mass = slopes_in_sums(
            one, float(one.estimate[0]) - a.frame.centre, np.array([1 / own.mass]), own
        )
        if own.noise is None:
            whole = own.mass_sd / a.frame.kept if a.frame.group_masses else sd.size[0, 0]
            cov = np.diag(np.r_[whole, own.sd.group_size] ** 2)
        else:  # of readings with one sd, least squares is a projection
            scale = noise_sd**2 * float(a.parts @ a.parts)
            score = score @ own.noise.score / scale if scale > 0 else score
            cov = own.noise.size
        by_score.append(np.kron(a.parts, score))
        by_size.append(np.hstack([size @ matrix_power(cov, 0.5), own.mass_sd * mass[:, None]]))
    slopes = np.vstack(by_score) * noise_sd
    same = np.repeat(np.repeat(np.equal.outer(sizes, sizes), places, 0), places, 1)
    every = np.vstack(by_size)
    out = slopes @ slopes.T + same * (every @ every.T)
    own_variance = np.concatenate([np.diag(one.privacy) for one in found])
    return np.asarray(out + np.diag(np.maximum(own_variance - np.diag(out), 0.0)))


def _sampling(
    asked: Sequence[Asked], found: Sequence[AverageEstimate], sums: Sequence[Sums], value: JointData
) -> Matrix:
    """Sampling covariance, average by average; by the rules of `reconcile.joint_sampling`.

    At each place the released products give the covariance of the averages, raised to the variances
    that each has by itself. A group's rows move an average by their share p times as much as their
    own: their covariance is diag(p) times that of the group, lowered until parts of a column do not
    exceed the whole. Other pairs of groups are independent given the averages.
    """
    r, places = len(asked), value.score.shape[1]
    parts = np.stack([a.parts for a in asked])
    own = np.stack([np.diag(one.sampling) for one in found])  # (R, P)
    at = [_moments(a, one, s) for a, one, s in zip(asked, found, sums, strict=True)]
    weight, mean = (np.stack(one) for one in zip(*at, strict=True))
    blocks = np.stack(
        [
            _raised(
                np.outer(weight[:, p], weight[:, p]) * (parts @ value.square[p] @ parts.T)
                - np.outer(mean[:, p], mean[:, p]),
                own[:, p],
            )
            for p in range(places)
        ]
    )
    out = np.zeros((r, places, r, places))
    for p in range(places):
        out[:, p, :, p] = blocks[p]
    noise = sums[0].noise
    if noise is not None and all(one.noise is not None for one in sums):
        share = np.stack([s.share(one) for s, one in zip(sums, found, strict=True)])
        with_groups = np.zeros((places, r, r))  # of averages and groups
        same = np.eye(places, dtype=bool)
        inverse = np.linalg.pinv(blocks[0], hermitian=True)
        for identity in noise.identities:
            column = np.flatnonzero(identity[1:]) + 1
            part = share[:, column - 1].T[:, :, None] * blocks[column]
            total = np.einsum("gij,jg->ij", part, share[:, column - 1])
            most = float(np.linalg.eigvals(inverse @ total).real.max())
            with_groups[column] += part / max(most, 1.0)
            same[np.ix_(column, column)] = True
        for g in range(1, places):
            out[:, 0, :, g], out[:, g, :, 0] = with_groups[g], with_groups[g].T
            for h in range(1, places):
                if not same[g, h]:
                    out[:, g, :, h] = with_groups[g].T @ inverse @ with_groups[h]
    cov = out.reshape(r * places, r * places)
    cov[np.diag_indices_from(cov)] = np.where(np.isfinite(own.ravel()), np.diag(cov), np.inf)
    return cov


def _moments(asked: Asked, found: AverageEstimate, sums: Sums) -> tuple[Vector, Vector]:
    """By place: the slope in a row's score, and the mean score in standard errors of one row."""
    score, _, _ = slopes_in_sums(found, 0.0, np.array([1 / sums.mass]), sums)
    mean = found.estimate - asked.frame.centre
    rows = np.r_[sums.frame.size, sums.share(found) * sums.frame.size]
    return np.diag(score).copy(), np.where(np.isfinite(mean), mean, 0.0) / np.sqrt(rows)


def _raised(moments: Matrix, variances: Vector) -> Matrix:
    """The covariance nearest to `moments`, with at least these variances where they are finite."""
    values, vectors = np.linalg.eigh(moments)
    cov = (vectors * np.maximum(values, 0.0)) @ vectors.T
    lacking = np.where(np.isfinite(variances), variances, 0.0) - np.diag(cov)
    return np.asarray(cov + np.diag(np.maximum(lacking, 0.0)))
