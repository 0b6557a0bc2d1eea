"""Effects by cohort and period, and their averages, from sums of paths by cohort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.cohorts import Comparison
from privcausal.typing import Mask, Matrix, Vector

AVERAGE = "average"
"""Name of the average over event times, cohorts, or periods."""


class CohortTotals(NamedTuple):
    """Sums over the units of J cohorts, or the noise sds of their entries.

    `path` are sums of paths, shape (J, d); `count` has shape (J,); and `square` are sums of outer
    products, shape (J, d, d).
    """

    path: Matrix
    count: Vector
    square: Matrix

    def seen(self, sd: CohortTotals) -> Mask:
        """Cohorts with enough units to distinguish from noise, shape (J,)."""
        return np.asarray(self.count > FEW_SDS * sd.count)


@dataclass(frozen=True, eq=False)
class Clipped:
    """The bound on the total norm that clipping removes from all paths, and its noise sd."""

    bias: float
    doubt: float


def estimate_cohorts(
    asked: Sequence[Comparison],
    labels: Sequence[str],
    periods: Sequence[str],
    value: CohortTotals,
    sd: CohortTotals,
    contrasts: Matrix,
    clipped: Clipped,
    reach: float,
) -> AverageEstimate:
    """All ATT(g, t) as terms, and their averages as groups, with their joint covariance.

    Estimates are functions of the sums of w = (1, z) by cohort, for the path z of a unit. Let G_j
    be the derivative of all estimates in the sums of cohort j, shape (m, 1 + d). All estimates are
    ratios of sums of one degree, so the sampling covariance is the sum of G_j (sum w w') G_j' over
    the cohorts. It contains the error of the cohorts' shares, as the influence functions of
    Callaway and Sant'Anna (2021, Section 4) do. The noise of sums enters in the same way. If
    clipping shortens the paths by a total of B, an estimate changes by at most B times its largest
    derivative in a path, to first order.

    A comparison of cohorts that are too small to detect is 0 with the standard error `reach`, the
    width of the outcome's bounds. Averages leave it out.
    """
    seen, d = value.seen(sd), value.path.shape[1]
    count = np.where(seen, value.count, 1.0)
    mean = np.where(seen[:, None], value.path / count[:, None], 0.0)
    estimate, slope = np.zeros(len(asked)), np.zeros((len(asked), len(count), 1 + d))
    lost = np.zeros(len(asked), bool)
    for k, one in enumerate(asked):
        pool = [c for c in one.controls if seen[c]]
        lost[k] = not (seen[one.cohort] and pool)
        if lost[k]:
            continue
        along = contrasts[:, one.period] - contrasts[:, one.base]
        for sign, own in ((1.0, [one.cohort]), (-1.0, pool)):
            rows = float(count[own].sum())
            level = float(along @ value.path[own].sum(axis=0)) / rows
            estimate[k] += sign * level
            slope[k, own, 0] -= sign * level / rows
            slope[k, own, 1:] += sign * along / rows
    names, estimate, slope = _averaged(asked, labels, periods, count, lost, estimate, slope)
    moments = _moments(value, sd, count, mean, seen)
    noise = np.concatenate([sd.count[:, None], sd.path], axis=1) ** 2
    sampling = np.einsum("kja,jab,ljb->kl", slope, moments, slope, optimize=True)
    privacy = np.einsum("kja,ja,lja->kl", slope, noise, slope, optimize=True)
    largest = np.sqrt((slope[:, :, 1:] ** 2).sum(axis=2)).max(axis=1)
    wide = np.r_[lost, np.zeros(len(names), bool)] * reach**2
    privacy += np.diag((clipped.doubt * largest) ** 2 + wide)
    sampling[np.isnan(estimate), np.isnan(estimate)] = np.inf
    return AverageEstimate(
        tuple(one.term for one in asked), names, estimate, sampling, privacy,
        clipped.bias * largest, np.zeros(len(estimate)),
        float(np.maximum(value.count, 0.0).sum()), size_sd=float(np.linalg.norm(sd.count)),
    )  # fmt: skip


def _averaged(
    asked: Sequence[Comparison],
    labels: Sequence[str],
    periods: Sequence[str],
    count: Vector,
    lost: Mask,
    estimate: Vector,
    slope: Vector,
) -> tuple[tuple[str, ...], Vector, Vector]:
    """Names of the averages; then estimates and derivatives of the comparisons and averages.

    Averages over cohorts weight by their sizes (Callaway and Sant'Anna 2021, Eq. 3.4 to 3.11).
    """
    names = list[str]()

    def average(name: str, of: Sequence[int], cohorts: Sequence[int] | None) -> None:
        """Add the mean of the estimates `of`; without their cohorts, weights are equal."""
        nonlocal estimate, slope
        names.append(name)
        if not of:
            estimate, slope = np.append(estimate, np.nan), np.append(slope, 0 * slope[:1], axis=0)
            return
        weight = np.ones(len(of)) if cohorts is None else count[list(cohorts)]
        share = weight / weight.sum()
        mean = float(share @ estimate[list(of)])
        own = np.einsum("k,kja->ja", share, slope[list(of)])
        for k, c in zip(of, cohorts or (), strict=False):
            own[c, 0] += (estimate[k] - mean) / weight.sum()
        estimate, slope = np.append(estimate, mean), np.append(slope, own[None], axis=0)

    places = {
        "event": {str(e): [k for k, a in enumerate(asked) if a.event == e]
                  for e in sorted({a.event for a in asked})},
        "cohort": {labels[g]: [k for k, a in enumerate(asked) if a.cohort == g and a.event >= 0]
                   for g in dict.fromkeys(a.cohort for a in asked)},
        "calendar": {periods[t]: [k for k, a in enumerate(asked) if a.period == t and a.event >= 0]
                     for t in sorted({a.period for a in asked if a.event >= 0})},
    }  # fmt: skip
    after = [k for k, a in enumerate(asked) if a.event >= 0 and not lost[k]]
    average("overall", after, [asked[k].cohort for k in after])
    for kind, parts in places.items():
        found, whose = [], []
        for part, every in parts.items():
            of = [k for k in every if not lost[k]]
            average(f"{kind}[{part}]", of, [asked[k].cohort for k in of])
            if of and asked[of[0]].event >= 0:
                found.append(len(estimate) - 1)
                whose.append(asked[of[0]].cohort)
        average(f"{kind}[{AVERAGE}]", found, whose if kind == "cohort" else None)
    return tuple(names), estimate, slope


def _moments(
    value: CohortTotals, sd: CohortTotals, count: Vector, mean: Matrix, seen: Mask
) -> Vector:
    """Sums of w w' by cohort for w = (1, z), shape (J, 1 + d, 1 + d); zero if not detected.

    A cohort's covariance of z is its own so far as it differs from the covariance within all
    cohorts by more than the noise. One noise sd is added along every direction, as in
    `averages.raised`, because standard errors that are too small as often as too large undercover.
    """
    d = mean.shape[1]
    out = np.zeros((len(count), 1 + d, 1 + d))
    if not seen.any():
        return out
    rows, entry = float(count[seen].sum()), float(sd.square.max())
    inside = value.square - count[:, None, None] * mean[:, :, None] * mean[:, None, :]
    pooled, pooled_sd = inside[seen].sum(axis=0) / rows, entry * np.sqrt(seen.sum()) / rows
    for j in np.flatnonzero(seen):
        own, own_sd = inside[j] / count[j], entry / count[j]
        noise = float((sd.square[j] ** 2).mean()) / count[j] ** 2
        share = signal_share((own - pooled).ravel(), noise)
        cov = positive_part(pooled + share * (own - pooled))
        cov += np.hypot(share * own_sd, (1 - share) * pooled_sd) * np.eye(d)
        out[j] = count[j] * np.outer(np.r_[1.0, mean[j]], np.r_[1.0, mean[j]])
        out[j, 1:, 1:] += count[j] * cov
    return out
