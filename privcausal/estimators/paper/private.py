"""PrivATE as printed in its paper (Schroeder et al. 2025): `privcausal.paper.private`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.errors import BudgetError, is_number
from privcausal.estimators import bases, first_stages, paper, words
from privcausal.estimators.base import Learner, finish, reported_nuisances
from privcausal.estimators.bases import Sklearn
from privcausal.estimators.budget import Step, Undeclared
from privcausal.features.functions import NuisanceTriple
from privcausal.inference.averages import AverageEstimate
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Request
from privcausal.request.terms import ATE_TERM
from privcausal.vault import Estimators, PublishedAte

AIPW_MEAN = StageKey("effect", "AIPW mean")
VARIANCE = StageKey("effect", "squared error", heading="variance")

PUBLISHED_SHARES = {"effect": 0.5, "variance": 0.5}
"""Shares of epsilon and of delta: eps_1 = eps_2 and delta_1 = delta_2 (supplement C.2)."""


@dataclass(frozen=True)
class Published(Learner):
    """PrivATE's Theorems 4.3, 4.5 and 4.6, with the guarantee that the paper claims.

    *Base* `Sklearn`. Estimators fit the nuisances on all rows without protection, as printed. The
    AIPW mean uses the same rows, because the paper does not cross-fit.

    *Base "gam" or "linear"*. As remarked in section 4.2 of the paper, one half of the rows provides
    private nuisances, and the paper's noise is added on the other half. The paper gives these
    nuisances half of epsilon_1. Here they have all of epsilon at no extra cost, because the halves
    are disjoint.
    """

    name: ClassVar[str] = "published"
    title: ClassVar[str] = "PrivATE as published"
    steps: ClassVar[tuple[Step, ...]] = paper.PUBLISHED_STEPS

    def plan(self, request: Request, base: bases.AnyBase, undeclared: Undeclared) -> Plan:
        """Plan stages charged in epsilon and delta, plus stages of private nuisances.

        Refuse requests that the theorems, or this base, do not cover.
        """
        refused = {
            f"estimand={request.estimand!r}": request.estimand != "ATE",
            "neighbors='add_remove'": request.trust.neighbors != "substitute",
            "unit=": request.trust.unit is not None,
            "groups=": bool(request.groups),
            "a column of known propensities": isinstance(request.propensity, str),
        }
        why = "its theorems cover only the ATE, for data sets that differ in one replaced row"
        paper.refuse_published(refused, why, undeclared)
        nuisances: tuple[Stage, ...] = ()
        cap, whole = 0, isinstance(base, Sklearn)
        if not whole:
            nuisances, cap = paper.on_one_half(request, self.stages(request, self.accepted(base)))
        # If only one share is declared, the other is the rest.
        declared = request.budget.shares
        for name, share in declared.items():
            if name not in PUBLISHED_SHARES:
                raise BudgetError(
                    f"shares= has no entry {str(name)[:40]!r}. Use {', '.join(PUBLISHED_SHARES)}."
                )
            if not is_number(share) or not 0 < share < 1:
                raise BudgetError(
                    f"shares[{name!r}] must be a number strictly between 0 and 1, because the "
                    "effect and its variance both need budget."
                )
        if len(declared) == 2 and abs(sum(declared.values()) - 1) > 1e-9:
            raise BudgetError("shares= of effect and variance must sum to 1.")
        effect_share = declared.get(
            "effect", 1 - declared.get("variance", PUBLISHED_SHARES["variance"])
        )
        shares = effect_share, declared.get("variance", 1 - effect_share)
        effect, variance = (
            paper.claimed_stage(key, request, share, whole=whole)
            for key, share in zip((AIPW_MEAN, VARIANCE), shares, strict=True)
        )
        least = (1 if whole else 2) * max(paper.least_rows(effect), paper.least_rows(variance))
        stages = (*nuisances, effect, variance)
        return Plan(request, self.name, base.name, stages, cap, least)

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Gam() if isinstance(base, Sklearn) else bases.moment_base(base)

    def run(self, fit: first_stages.Fit) -> words.Estimate:
        """Learn nuisances from all rows, or privately from one half, then add the paper's noise.

        The variance is reported as one number. Its parts, sampling and privacy, would reveal gamma.
        """
        base, vault, request = fit.option, fit.vault, fit.request
        nuisances: Estimators | NuisanceTriple
        if isinstance(base, Sklearn):  # The user's own estimators; none is released.
            design, clip = paper.plain_design(fit), request.arm_clip
            propensity = first_stages.declared_propensity(request, fit.schema)
            nuisances = Estimators(base.propensity, base.outcome, propensity)
        else:
            state, partials, nuisances = paper.private_nuisance(fit, linear_terms=False)
            design, clip = state.design, state.clip
        outcome = first_stages.outcome_of(request, fit.schema)
        query = PublishedAte(nuisances, design, outcome, clip, paper.starting_points(design))
        effect, error = vault.release_published(AIPW_MEAN, VARIANCE, query)
        fit.releases += [effect, error]
        ate = AverageEstimate(
            (ATE_TERM,),
            (),
            effect.value,
            error.value[None],
            np.full((1, 1), 0.0),
            np.zeros(1),
            np.zeros(1),
            float(vault.size or 0),
        )
        if isinstance(nuisances, Estimators):
            return fit.finished(design, averages=ate)
        return finish(state, None, reported_nuisances(partials, (nuisances,)), ate)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        doubt = HALVED if paper.has_private_nuisances(estimate.plan) else UNPROTECTED
        return replace(
            super().describe(estimate),
            rows=paper.published_rows(estimate),
            methods=_methods(estimate.plan),
            notes=(ONE_VARIANCE,),
            doubts=(doubt, WIDTH_NOTE),
            claim=f"is claimed by {PUBLISHED_SOURCE} for this mechanism",
        )


PUBLISHED_SOURCE = "Schroeder et al. (2025, Theorems 4.3, 4.5 and 4.6)"

HALVED = (
    "The nuisance models use one half of the rows and are private, which is proven. On the other "
    "half, the claim depends on the largest influence of a row, which a local search approximates "
    "without a bound."
)

UNPROTECTED = (
    "The claim assumes that one row does not change the nuisance models (their Lemma 4.2). Here, "
    "the nuisance models are estimated on the same rows, so the claim is false: there are data "
    "sets that differ in one row for which the actual epsilon is in the tens when 1 is claimed."
)

WIDTH_NOTE = (
    "The width of the interval also depends on the rows. It includes the largest influence that a "
    "row could have on this estimate, without added noise."
)

ONE_VARIANCE = (
    "Sampling and privacy noise are reported as one variance, because separate values would reveal "
    "the noise scale, which depends on the rows."
)


def _methods(plan: Plan) -> tuple[str, ...]:
    request = plan.request
    where = (
        "private nuisance models from the other half of the rows"
        if paper.has_private_nuisances(plan)
        else "scikit-learn nuisance models fitted to the same rows, without cross-fitting"
    )
    clip = request.arm_clip
    cut = (
        f"The propensity is known to be {request.propensity:g}."
        if isinstance(request.propensity, float | int)
        else f"Propensities were clipped to [{clip:.2f}, {1 - clip:.2f}]."
    )
    return (
        f"The estimator was PrivATE as printed by {PUBLISHED_SOURCE}: the mean of AIPW scores with "
        f"{where}. Noise was added to the mean and to the mean squared deviation (OpenDP's "
        "discrete Gaussian on a fine grid). Its standard deviation is 5 sqrt(2 ln(n) ln(2/delta)) "
        "/ (epsilon n) times the gross error sensitivity. This sensitivity is the largest "
        "influence in the declared domain that L-BFGS-B found, with starting points throughout the "
        "domain and at its corners. The reported variance includes the noise (their Eq. 16).",
        f"{cut} Outcome, outcome means, and covariates were clipped to their bounds.",
        words.LEFT_OUT,
    )
