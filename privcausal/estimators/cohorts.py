"""Event studies: effects by cohort and period under staggered adoption.

The private version of `att_gt` in the R package `did` (Callaway and Sant'Anna 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, words
from privcausal.estimators.averages import row_sizes
from privcausal.estimators.base import Learner
from privcausal.estimators.survey import FitRun
from privcausal.features.design import Design
from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.cuts import Cut, Extremes, score_cut
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.cohorts import CohortEffect, comparisons, labels_of
from privcausal.request.panels import Staggered
from privcausal.request.plan import StageKey, check_release
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector

# -- effects by cohort and period --------------------------------------------------------------


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


# -- the learner -------------------------------------------------------------------------------

PATH_SIZES = StageKey("effect", "sizes of paths")
COHORT_SUMS = StageKey("effect", "sums by cohort")

SMALL = (
    "Too few units to detect in cohorts {names} (noisy counts). Their effects have the widest "
    "possible intervals, and averages leave them out. Check the levels of {column!r}, or combine "
    "cohorts."
)


@dataclass(frozen=True)
class EventStudy(Learner):
    """ATT(g, t) of all cohorts and periods, from one release of sums of paths by cohort."""

    name: ClassVar[str] = "cohorts"
    title: ClassVar[str] = "group-time average effects"
    whole: ClassVar[str] = "an event study has no nuisance models"
    shares: ClassVar[Mapping[str, float]] = {"effect": 0.9}  # There are no other stages.
    uses: ClassVar[tuple[budget.Use, ...]] = (
        budget.Use(PATH_SIZES, 0.10, "As the sizes of scores in private(). Library."),
        budget.Use(COHORT_SUMS, 0.78, "The estimate itself. Random laws."),
    )

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        if base != bases.BASES["gam"]:
            raise CapabilityError("An event study has no nuisance models. Omit base=.")
        return super().accepted(base)

    def needs(self, request: Request, base: bases.PrivateBase) -> list[budget.StageWeight]:
        check_release(len(_sums(request, request.schema)[0].units), "periods or cohorts")
        return super().needs(request, base)

    def run(self, session: FitRun) -> words.Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        sums, labels = _sums(request, schema)
        size = sums.size
        sizes = row_sizes(session, PATH_SIZES, size, "sizes of paths")
        rows = max(float(sizes.counts.sum()), 1.0)
        change, unit = sums.sensitivity(request.trust.neighbors), float(sums.units[0]) / size.bound
        largest, one = np.full((1, 1), size.bound), np.ones((1, 1))
        # The bias of a cohort's mean, like its noise, is the bias of the mean of all units over the
        # cohort's share, because all clipped paths may be in this cohort.
        cut = score_cut(
            Extremes(largest, one, one), session.noise_sd(COHORT_SUMS, change, unit) / rows, sizes,
            None, rows, anywhere=request.tails == "any",
        )  # fmt: skip
        if not sizes.noise_sd:  # In tests without noise, nothing is clipped.
            cut = Cut(size.bound, 0.0)
        sums = replace(sums, cut=cut.at)
        release = session.release(COHORT_SUMS, sums)
        value, sd = (
            CohortTotals(path, units[:, 0], square)
            for path, units, square in map(sums.split, (release.value, release.noise_sd))
        )
        found = estimate_cohorts(
            comparisons(request), labels, value, sd, size.contrasts,
            cut.bias * rows,
        )  # fmt: skip
        small = [label for label, seen in zip(labels[0], value.seen(sd), strict=True) if not seen]
        if small:
            names = words.listed(small)
            session.alerts["cohorts"] = SMALL.format(names=names, column=sums.cohort)
        return session.finished(Design((), schema, full_rank=True), averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        said, panel = words.words_of(estimate.plan.request), estimate.plan.request.trust.panel
        assert isinstance(panel, Staggered)
        return words.Description(
            title=cls.title, rows=(("Controls", panel.control_group),), reading=(said.reading,),
            assumptions=(*said.identified, words.NO_INTERFERENCE, words.BOUNDED),
            methods=(*said.methods, words.SUMS, COHORT_METHOD), adjusts=False,
        )  # fmt: skip


def _sums(
    request: Request, schema: Schema
) -> tuple[vault.CohortSums, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The query for the sums by cohort, without clipping, and the labels."""
    panel, outcome = request.trust.panel, schema[request.formula.outcome]
    assert isinstance(panel, Staggered)
    assert isinstance(outcome, Interval)
    levels, size = schema[panel.cohort], vault.PathSize(panel.wide, outcome.width)
    assert isinstance(levels, Levels)
    labels, neighbors = labels_of(schema, panel), request.trust.neighbors
    cohorts = tuple(map(levels.labels.index, labels[0]))
    return vault.CohortSums(size, panel.cohort, cohorts, size.bound, neighbors), labels


COHORT_METHOD = (
    "Each unit has the deviations of its outcomes from their mean. Sums of these vectors and of "
    "their outer products, and counts, were released by cohort. Vectors with a large norm were "
    "shortened; the limit follows from a noisy histogram of the norms, and intervals and p-values "
    "allow for the largest bias that this can cause (Armstrong and Kolesár 2018). Standard errors "
    "combine sampling, including that of the cohorts' sizes, and privacy noise (delta method)."
)
