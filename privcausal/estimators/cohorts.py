"""Event studies: effects by cohort and period under staggered adoption.

The private version of `att_gt` in the R package `did` (Callaway and Sant'Anna 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, words
from privcausal.estimators.averages import row_sizes
from privcausal.estimators.base import Learner
from privcausal.estimators.survey import FitRun
from privcausal.features.design import Design
from privcausal.inference.cohorts import CohortTotals, estimate_cohorts
from privcausal.inference.cuts import Cut, Extremes, score_cut
from privcausal.request.cohorts import comparisons, labels_of
from privcausal.request.panels import Staggered
from privcausal.request.plan import StageKey, check_release
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Levels, Schema

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
