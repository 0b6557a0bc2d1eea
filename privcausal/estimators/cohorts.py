"""Event studies: effects by cohort and period under staggered adoption.

The private version of `att_gt` in the R package `did` (Callaway and Sant'Anna 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, words
from privcausal.estimators.averages import row_sizes
from privcausal.estimators.base import Learner
from privcausal.estimators.first_stages import Fit
from privcausal.features.design import Design
from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.cuts import Cut, Extremes, score_cut
from privcausal.inference.noisy import Noisy, Reading
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.cohorts import CohortEffect, comparisons, labels_of
from privcausal.request.panels import Staggered
from privcausal.request.plan import Plan, StageKey, check_release
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector

# -- effects by cohort and period --------------------------------------------------------------


def estimate_cohorts(
    effects: Sequence[CohortEffect],
    labels: tuple[tuple[str, ...], tuple[str, ...]],
    path: Reading,
    square: Reading,
    seen: Mask,
    contrasts: Matrix,
    clipped: float,
) -> AverageEstimate:
    """All ATT(g, t) as terms, and their averages as groups, with their joint covariance.

    Estimates are functions of the sums of w by cohort. Let G_j be the derivative of all estimates
    in the sums of cohort j, shape (m, 1 + d). The estimates do not change if all sums are
    multiplied by a number, so the sampling covariance is the sum of G_j (sum w w') G_j' over the
    cohorts. It contains the error of the cohorts' shares, as the influence functions of Callaway
    and Sant'Anna (2021, Section 4) do. `clipped` is a bound of the total norm that clipping removes
    from all paths. An estimate changes by at most its largest derivative in a path times this
    bound, to first order.

    A comparison of cohorts that are too small to detect has no estimate. Averages leave it out.

    Parameters
    ----------
    path, square : Reading
        Sums over the units of each cohort: of w = (1, z) for the path z of a unit, shape
        (J, 1 + d), and of z z', shape (J, d, d).
    seen : Mask
        Cohorts with enough units to distinguish from noise, shape (J,).
    """
    (w,) = Noisy.inputs(path)
    units, none = w[:, 0], np.zeros(w.slope.shape[-1])
    unknown = Noisy(np.asarray(np.nan), none, w.noise)

    def change(effect: CohortEffect, cohorts: Sequence[int]) -> Noisy:
        along = contrasts[:, effect.period] - contrasts[:, effect.base]
        return along @ w[cohorts, 1:].sum() / units[cohorts].sum()

    estimates = list[Noisy]()
    for effect in effects:
        pool = [c for c in effect.controls if seen[c]]
        known = seen[effect.cohort] and pool
        difference = change(effect, [effect.cohort]) - change(effect, pool) if known else unknown
        estimates.append(difference)
    lost = np.isnan([estimate.value for estimate in estimates])
    after, places = [effect.event >= 0 for effect in effects], list[Place]()

    def average(place: Place, of: Sequence[int], cohorts: Sequence[int] = ()) -> None:
        """Add the mean of the estimates `of`, weighted by the sizes of `cohorts` if given."""
        places.append(place)
        parts = Noisy.joined([estimates[k] for k in of] or [unknown])
        if cohorts:
            weights = units[[*cohorts]]
            estimates.append((parts * weights).sum() / weights.sum())
        else:
            estimates.append(parts.sum() / len(parts.value))

    for kind, place_of in PLACES.items():
        inside, means = dict[float, list[int]](), list[tuple[int, int]]()
        for k, effect in enumerate(effects):
            if after[k] or kind == "event":
                inside.setdefault(place_of(effect), []).append(k)
        for number, members in sorted(inside.items()):
            of = [k for k in members if not lost[k]]
            event = kind == "event"
            label = f"{number:.10g}" if event else labels[kind == "calendar"][int(number)]
            average(Place(kind, label), of, [effects[k].cohort for k in of])
            if of and after[of[0]]:
                means.append((len(estimates) - 1, effects[of[0]].cohort))
        cohorts = [cohort for _, cohort in means]
        average(Place(kind, "average"), [k for k, _ in means], cohorts if kind == "cohort" else ())
    of = [k for k in range(len(effects)) if after[k] and not lost[k]]
    average(Place("overall"), of, [effects[k].cohort for k in of])

    theta = Noisy.joined(estimates)
    by = theta.slope.reshape(-1, *w.value.shape)
    sampling = np.einsum(
        "kja,jab,ljb->kl", by, _moments(path.value, square, seen), by, optimize=True
    )
    sampling[np.isnan(theta.value), np.isnan(theta.value)] = np.inf
    # all clipped paths may be of one cohort
    moved = clipped * by[:, :, 1:].swapaxes(0, 1)
    largest = np.linalg.norm(moved, axis=2).max(axis=0)
    terms = tuple(ResultTerm("effect", effect.name) for effect in effects)
    return AverageEstimate(
        terms,
        in_places(terms[:1], places),
        theta.value,
        sampling,
        theta.cov,
        largest,
        np.zeros(len(largest)),
        float(np.maximum(path.value[:, 0], 0.0).sum()),
        size_sd=float(np.linalg.norm(path.sd[:, 0])),
        moved=moved,
    )


PLACES: dict[str, Callable[[CohortEffect], float]] = {
    "event": lambda effect: effect.event,
    "cohort": lambda effect: effect.cohort,
    "calendar": lambda effect: effect.period,
}
"""Kinds of averages, and the place of a comparison in each."""


def _moments(value: Matrix, square: Reading, seen: Mask) -> Vector:
    """Sums of w w' by cohort for w = (1, z), shape (J, 1 + d, 1 + d); zero if not detected.

    A cohort's covariance of z is its own so far as it differs from the covariance within all
    cohorts by more than the noise. One noise sd is added along every direction, as in
    `averages.raised`, because standard errors that are too small as often as too large undercover.
    """
    out = np.zeros((*value.shape, value.shape[1]))
    detected, entry = np.flatnonzero(seen), float(square.sd.max())
    units, path = value[detected, 0], value[detected, 1:]
    inside = square.value[detected] - np.einsum("ja,jb,j->jab", path, path, 1 / units)
    pooled, pooled_sd = inside.sum(axis=0) / max(units.sum(), 1.0), entry * np.sqrt(len(detected))
    for j, n, total, square_j in zip(detected, units, path, inside, strict=True):
        gap, noise = square_j / n - pooled, float((square.sd[j] ** 2).mean()) / n**2
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
    steps: ClassVar[tuple[budget.Step, ...]] = (
        budget.Step(PATH_SIZES, 0.10),
        budget.Step(COHORT_SUMS, 0.78),
    )

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        if base != bases.BASES["gam"]:
            raise CapabilityError("An event study has no nuisance models. Omit base=.")
        return super().accepted(base)

    def stages(self, request: Request, base: bases.PrivateBase) -> budget.Weights:
        check_release(len(_sums(request, request.schema)[0].units), "periods or cohorts")
        return super().stages(request, base)

    def counted(self, plan: Plan) -> tuple[float, int]:
        sums, labels = _sums(plan.request, plan.request.schema)
        unit = float((sums.units / sums.weights)[len(sums.size.wide)])
        change, rho = sums.sensitivity(sums.neighbors), plan.stage(COHORT_SUMS).rho
        return budget.noise_sd(plan, rho, change, unit), len(labels[0])

    def run(self, fit: Fit) -> words.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        sums, labels = _sums(request, schema)
        size = sums.size
        sizes = row_sizes(fit, PATH_SIZES, size, "sizes of paths")
        rows = max(float(sizes.counts.sum()), 1.0)
        change, unit = sums.sensitivity(request.trust.neighbors), float(sums.units[0]) / size.bound
        largest, ones = np.full((1, 1), size.bound), np.ones((1, 1))
        # The bias of a cohort's mean, like its noise, is the bias of the mean of all units over the
        # cohort's share, because all clipped paths may be in this cohort.
        cut = score_cut(
            Extremes(largest, ones, ones),
            fit.noise_sd(COHORT_SUMS, change, unit) / rows,
            sizes,
            None,
            rows,
            anywhere=request.tails == "any",
        )
        if not sizes.noise_sd:  # In tests without noise, nothing is clipped.
            cut = Cut(size.bound, 0.0)
        sums = replace(sums, cut=cut.at)
        path, units, square = fit.read(COHORT_SUMS, sums)
        path = Reading(*map(np.hstack, zip(units, path, strict=True)))
        seen = np.asarray(path.value[:, 0] > FEW_SDS * path.sd[:, 0])
        effects, bias = comparisons(request), cut.bias * rows
        estimate = estimate_cohorts(effects, labels, path, square, seen, size.contrasts, bias)
        if not seen.all():
            names = words.listed([labels[0][k] for k in np.flatnonzero(~seen)])
            fit.alerts["cohorts"] = SMALL.format(names=names, column=sums.cohort)
        return fit.finished(Design((), schema, full_rank=True), averages=estimate)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        text, panel = words.words_of(estimate.plan.request), estimate.plan.request.trust.panel
        assert isinstance(panel, Staggered)
        labels, periods = labels_of(estimate.schema, panel)
        never = next((f"{panel.cohort} = {x}" for x in labels if x not in periods), "none declared")
        return words.Description(
            title=cls.title,
            reading=(text.reading,),
            rows=(("Controls", panel.control_group), ("Never treated", never)),
            assumptions=(*text.identified, words.NO_INTERFERENCE, words.BOUNDED),
            methods=(*text.methods, words.SUMS, COHORT_METHOD),
            adjusts=False,
        )


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
