"""Effects by cohort and period, and their averages, from sums of paths by cohort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.cohorts import CohortEffect
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector


class CohortTotals(NamedTuple):
    """Sums over the units of J cohorts, or the noise sds of their entries.

    `path` are sums of paths, shape (J, d); `units` counts, shape (J,); and `square` sums of outer
    products, shape (J, d, d).
    """

    path: Matrix
    units: Vector
    square: Vector

    def seen(self, sd: CohortTotals) -> Mask:
        """Cohorts with enough units to distinguish from noise, shape (J,)."""
        return np.asarray(self.units > FEW_SDS * sd.units)


def estimate_cohorts(
    asked: Sequence[CohortEffect],
    labels: tuple[tuple[str, ...], tuple[str, ...]],
    value: CohortTotals,
    sd: CohortTotals,
    contrasts: Matrix,
    clipped: float,
) -> AverageEstimate:
    """All ATT(g, t) as terms, and their averages as groups, with their joint covariance.

    Estimates are functions of the sums of w = (1, z) by cohort, for the path z of a unit. Let G_j
    be the derivative of all estimates in the sums of cohort j, shape (m, 1 + d). The estimates do
    not change if all sums are multiplied by a number, so the sampling covariance is the sum of
    G_j (sum w w') G_j' over the cohorts. It contains the error of the cohorts' shares, as the
    influence functions of Callaway and Sant'Anna (2021, Section 4) do. The noise of sums enters in
    the same way. `clipped` is a bound of the total norm that clipping removes from all paths. An
    estimate changes by at most its largest derivative in a path times this bound, to first order.

    A comparison of cohorts that are too small to detect has no estimate. Averages leave it out.
    """
    seen, many = value.seen(sd), len(asked)
    units = np.where(seen, value.units, 1.0)
    estimate, slope = [0.0] * many, list(np.zeros((many, len(units), 1 + len(contrasts))))
    lost = np.array([not (seen[a.cohort] and seen[[*a.controls]].any()) for a in asked])
    for k, one in enumerate(asked):
        along = contrasts[:, one.period] - contrasts[:, one.base]
        pool = [c for c in one.controls if seen[c]]
        for sign, own in () if lost[k] else ((1.0, [one.cohort]), (-1.0, pool)):
            change = float(along @ value.path[own].sum(axis=0)) / units[own].sum()
            estimate[k] += sign * change
            slope[k][own] += sign * np.r_[-change, along] / units[own].sum()
    places = list[Place]()

    def average(place: Place, of: Sequence[int], cohorts: Sequence[int] = ()) -> None:
        """Add the mean of the estimates `of`, weighted by the sizes of `cohorts` if given."""
        places.append(place)
        weights = units[[*cohorts]] if cohorts else np.ones(len(of))
        mean = float(np.average([estimate[k] for k in of], weights=weights)) if of else np.nan
        own = sum((w * slope[k] for w, k in zip(weights, of, strict=True)), 0 * slope[0])
        for k, cohort in zip(of, cohorts, strict=False):
            own[cohort, 0] += estimate[k] - mean
        estimate.append(mean)
        slope.append(own / max(weights.sum(), 1.0))

    for kind, place_of in PLACES.items():
        found = list[tuple[int, int]]()
        for at in sorted({place_of(a) for a in asked if a.event >= 0 or kind == "event"}):
            inside = [k for k, a in enumerate(asked) if place_of(a) == at]
            of = [k for k in inside if not lost[k] and (asked[k].event >= 0 or kind == "event")]
            label = f"{at:.10g}" if kind == "event" else labels[kind == "calendar"][int(at)]
            average(Place(kind, label), of, [asked[k].cohort for k in of])
            if of and asked[of[0]].event >= 0:
                found.append((len(estimate) - 1, asked[of[0]].cohort))
        means, cohorts = [k for k, _ in found], [g for _, g in found]
        average(Place(kind, "average"), means, cohorts if kind == "cohort" else ())
    after = [k for k, a in enumerate(asked) if a.event >= 0 and not lost[k]]
    average(Place("overall"), after, [asked[k].cohort for k in after])

    by, noise = np.stack(slope), np.concatenate([sd.units[:, None], sd.path], axis=1) ** 2
    sampling = np.einsum("kja,jab,ljb->kl", by, _moments(value, sd, seen), by, optimize=True)
    privacy = np.einsum("kja,ja,lja->kl", by, noise, by, optimize=True)
    largest = np.sqrt((by[:, :, 1:] ** 2).sum(axis=2)).max(axis=1)
    known = np.where(np.r_[lost, np.zeros(len(places), bool)], np.nan, estimate)
    sampling[np.isnan(known), np.isnan(known)] = np.inf
    terms = tuple(ResultTerm("effect", one.name) for one in asked)
    return AverageEstimate(
        terms, in_places(terms[:1], places), known, sampling, privacy,
        clipped * largest, np.zeros(len(known)),
        float(np.maximum(value.units, 0.0).sum()), size_sd=float(np.linalg.norm(sd.units)),
    )  # fmt: skip


PLACES: dict[str, Callable[[CohortEffect], float]] = {
    "event": lambda one: one.event,
    "cohort": lambda one: one.cohort,
    "calendar": lambda one: one.period,
}
"""Kinds of averages, and the place of a comparison in each."""


def _moments(value: CohortTotals, sd: CohortTotals, seen: Mask) -> Vector:
    """Sums of w w' by cohort for w = (1, z), shape (J, 1 + d, 1 + d); zero if not detected.

    A cohort's covariance of z is its own so far as it differs from the covariance within all
    cohorts by more than the noise. One noise sd is added along every direction, as in
    `averages.raised`, because standard errors that are too small as often as too large undercover.
    """
    out = np.zeros((len(seen), *(1 + value.path.shape[1],) * 2))
    at, entry = np.flatnonzero(seen), float(sd.square.max())
    units, path = value.units[at], value.path[at]
    inside = value.square[at] - np.einsum("ja,jb,j->jab", path, path, 1 / units)
    pooled, pooled_sd = inside.sum(axis=0) / max(units.sum(), 1.0), entry * np.sqrt(len(at))
    for j, n, total, square in zip(at, units, path, inside, strict=True):
        gap, noise = square / n - pooled, float((sd.square[j] ** 2).mean()) / n**2
        share = signal_share(gap.ravel(), noise)
        spread = np.hypot(share * entry / n, (1 - share) * pooled_sd / units.sum())
        out[j] = np.outer(np.r_[n, total], np.r_[n, total]) / n
        out[j, 1:, 1:] += n * (positive_part(pooled + share * gap) + spread * np.eye(len(total)))
    return out
