"""Difference in means of a randomized trial without covariates.

The private version of ``smf.ols("Y ~ T", data).fit(cov_type="HC2")`` (Neyman 1923; Welch 1947).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, words
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Use
from privcausal.estimators.clusters import CLUSTER_USE, ClusterScore, with_dependence
from privcausal.estimators.estimands import ESTIMANDS, Tilted
from privcausal.estimators.survey import FitRun
from privcausal.estimators.survival import SURVIVAL_USE, with_noise
from privcausal.features.design import Design
from privcausal.features.functions import Constant, NuisanceTriple
from privcausal.inference import cuts, ranges
from privcausal.inference.difference import ArmTotals, agreed, estimate_difference, unseen
from privcausal.inference.population import Population
from privcausal.request.factors import partitions, resolve_groups
from privcausal.request.plan import Plan, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval

WINDOW, DIFFERENCE_SUMS = StageKey("effect", "outcome"), StageKey("effect", "sums")

HIDDEN_ARM = (
    "Noise hides how many rows one treatment arm has, so only the outcome bounds inform the mean "
    "of this arm. Use more rows or budget."
)


@dataclass(frozen=True)
class DifferenceInMeans(Learner):
    """Difference of the arms' mean outcomes, from one release of bounded sums within the arms.

    Valid if treatment was randomized with one probability for all rows. The ATE, ATT, and ATO are
    then equal. The outcome range of a numeric outcome is first estimated with a histogram, so that
    wide bounds cost little if there are many rows. Both arms are clipped to one interval, and the
    confidence interval allows for the clipping bias. An outcome with two labels needs no squares.
    """

    name: ClassVar[str] = "difference"
    title: ClassVar[str] = "difference in means"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "effect": 0.9,  # The whole budget except the bounds, because there are no other stages.
    }
    uses: ClassVar[tuple[Use, ...]] = (
        Use(WINDOW, 0.16, "A histogram of the outcome. With 0.08, intervals of 700 to 1,400 rows "
            "are 12% wider. Public data.", budget.wide),
        Use(DIFFERENCE_SUMS, 0.92, "The estimate itself, next to the histogram."),
        CLUSTER_USE,
        SURVIVAL_USE,
    )  # fmt: skip

    def plan(self, request: Request, base: bases.AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Plan stages with integer budgets.

        Raises
        ------
        CapabilityError
            A split is requested, but the fit has no nuisances to split off.
        """
        if request.split != "full":
            raise CapabilityError(
                f"split={request.split!r} fits nuisance models to separate rows, but a formula "
                "without covariates has no nuisance models. Use split='full'."
            )
        needs, name = self.needs(request, bases.moment_base(base)), request.formula.outcome
        if not (isinstance(request.schema.get(name), Interval) or name in undeclared.numbers):
            needs = [need for need in needs if need.key != WINDOW]  # two values have no range
        return budget.make_plan(request, self.name, "none", needs, self.shares, undeclared)

    def run(self, session: FitRun) -> words.Estimate:
        session.buy_bounds()
        request, schema = session.plan.request, session.schema
        groups = resolve_groups(request.groups, schema)
        session.vault.set_layout(schema, (), groups)
        domain = schema[request.formula.outcome]
        bounds = domain if isinstance(domain, Interval) else Interval(0.0, 1.0)
        rough = vault.ArmSums(
            (bounds, bounds), len(groups), len(request.groups),
            request.trust.neighbors, squares=isinstance(domain, Interval),
        )  # fmt: skip
        cut = _window(session, bounds, rough)
        sums = replace(rough, windows=(cut.interval, cut.interval))
        release = session.release(DIFFERENCE_SUMS, sums)
        value, sd = (ArmTotals(*sums.split(part)) for part in (release.value, release.noise_sd))
        arms, count_sd = value.count[:, 0], float(sd.count[:, 0].max())
        session.look_for(arms, count_sd)
        if isinstance(request.propensity, float):
            session.look_at_arms(arms, count_sd, (request.propensity,) * 2)
        value, sd, noise = agreed(value, sd, partitions(groups, schema, request.needed))
        places = tuple(g.place for g in groups)
        found = estimate_difference(request.terms, places, value, sd, cut, bounds, noise)
        if session.beyond is not None:
            bias = session.beyond.bias(value.count)
            found = replace(found, clipping=found.clipping + bias)
        scores = [] if request.cluster is None else _influences(value, cut.interval, bounds)
        found = with_dependence(session, found, scores, 1 + len(request.groups))
        found = with_noise(request, session.curves, found)
        if unseen(value, sd)[:, 0].any():
            session.alerts.setdefault("arm", HIDDEN_ARM)
        population = Population(schema, {}, np.eye(0), found.size)
        return session.finished(Design((), schema, full_rank=True), population, averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        own, trial = words.words_of(request), request.trust.panel is None
        ratio = (words.RATIO,) if request.ratios else ()
        tilted = any(isinstance(ESTIMANDS[one], Tilted) for one in request.averages)
        same = (SAME_NOTE,) if tilted else ()
        assumed = (words.RANDOMISED,) if trial else own.identified
        return words.Description(
            title=cls.title, reading=(words.BY_LOT, *same) if trial else (own.reading,),
            rows=(("Nuisance models", "none"), ("Propensity", "one for all rows")),
            assumptions=(*assumed, words.NO_INTERFERENCE, words.BOUNDED),
            methods=(*own.methods, *DIFFERENCE_METHODS, *ratio), adjusts=False,
        )  # fmt: skip


LEAST_ARM = 1e-3
"""Least share of an arm in the influences of its rows. A guard."""


def _influences(value: ArmTotals, window: Interval, bounds: Interval) -> list[ClusterScore]:
    """Influences of rows on the difference and on its groups: residuals by arm over its share.

    An arm that cannot be detected has the mean of the window.
    """
    outcome, scores = vault.Outcome(bounds.lo, bounds.hi), []
    for place, (total, count) in enumerate(zip(value.total.T, value.count.T, strict=True)):
        arms = np.maximum(count, 1.0)
        share = float(np.clip(arms[1] / arms.sum(), LEAST_ARM, 1 - LEAST_ARM))
        means = window.mid + np.clip(total / arms, -window.width / 2, window.width / 2)
        mu0, mu1, e = (Constant(float(x)) for x in (*means, share))
        model, centre = NuisanceTriple(mu0=mu0, mu1=mu1, e=e), Constant(float(means[1] - means[0]))
        aipw = vault.Aipw(model, outcome, min(share, 1 - share), centre)
        ends = np.abs(np.array([[window.lo], [window.hi]]) - means).max(axis=0)
        cut = float((ends / (1 - share, share)).max())
        scores.append(ClusterScore(vault.CutScore(aipw, cut), place, *[float(arms.sum())] * 2))
    return scores


SAME_NOTE = (
    "Without covariates, ATE, ATT, and ATO are equal. If all rows have the same probability of "
    "treatment, the difference in means estimates all three."
)

DIFFERENCE_METHODS = (
    f"Difference in means between the treatment arms. {words.SUMS}",
    "The mean of each arm is a ratio of noisy sums. Standard errors combine Welch's sampling "
    "variance (HC2 in the regression on treatment) and privacy noise (delta method). If a noisy "
    "histogram of the outcome showed that its bounds are wide, outcomes were clipped to a narrower "
    "interval; confidence intervals and p-values allow for the bias that this can cause "
    "(Armstrong and Kolesár 2018).",
    words.MISSING,
)


def _window(session: FitRun, bounds: Interval, sums: vault.ArmSums) -> ranges.Window:
    """Clipping interval of the outcome, from a histogram if the plan has one."""
    if not session.plan.has(WINDOW):
        return ranges.Window(bounds)
    height = vault.OutcomeResidual(Constant(bounds.lo), vault.Outcome(bounds.lo, bounds.hi))
    cells = vault.ArmHistogram(height, ranges.heights(bounds), "outcome")
    release = session.release(WINDOW, cells)
    # Noise of the sums per half-width of the clipping interval.
    change = sums.sensitivity(session.plan.request.trust.neighbors)
    noise = session.noise_sd(DIFFERENCE_SUMS, change, float(sums.units[0])) / (0.5 * bounds.width)
    counts, sd = cells.split(release.value), float(release.noise_sd[0])
    outcome = session.plan.request.formula.outcome
    session.look_at(outcome, counts.sum(axis=0), np.sqrt(2.0) * sd)
    anywhere = session.plan.request.tails == "any"
    return cuts.trial_window(counts, sd, bounds, noise, anywhere=anywhere)
