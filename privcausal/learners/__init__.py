"""How it is learnt: orders to the vault, never a row. Names and option objects of learners."""

from __future__ import annotations

from privcausal.errors import CapabilityError
from privcausal.learners.adum import ADUM
from privcausal.learners.arms import S, T, X
from privcausal.learners.auto import Auto
from privcausal.learners.base import CateLearner, EffectLearner, Learner
from privcausal.learners.bases import AnyBase
from privcausal.learners.difference import Difference
from privcausal.learners.dpcate import DPCATE
from privcausal.learners.dpebm import DPEBM
from privcausal.learners.dr import DR
from privcausal.learners.estimate import Estimate
from privcausal.learners.meta import PrivateEstimator, TwoStage
from privcausal.learners.options import check_object
from privcausal.learners.private import Private
from privcausal.learners.published import Published
from privcausal.learners.r import R
from privcausal.learners.tm import TM
from privcausal.spec.request import AVERAGES, Request

LEARNERS: dict[str, EffectLearner] = {
    "r": R(), "dr": DR(), "s": S(), "t": T(), "x": X(), "adum": ADUM(), "tm": TM(),
    "dpcate": DPCATE(), "auto": Auto(),
}  # fmt: skip


def find(learner: object, *others: str) -> EffectLearner:
    """The learner of this name, or the option object itself; `others` are known elsewhere."""
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]
    check_object("learner", learner)
    if isinstance(learner, EffectLearner):
        return learner
    shown = repr(learner)[:40] if isinstance(learner, str) else f"of type {type(learner).__name__}"
    known = ", ".join(map(repr, (*others, *LEARNERS)))
    raise CapabilityError(f"learner {shown} is unknown; choose one of {known}")


def for_effect(learner: object, base: AnyBase, request: Request) -> Learner:
    """What `privcate` uses: the learner, or in ``mode="paper"`` Algorithm 1 of Niu et al. (2022).

    There it takes base "dpebm", which is then interpret's, or estimators of the user's own.
    """
    if isinstance(learner, TwoStage):
        if request.mode != "paper":
            raise CapabilityError(
                "TwoStage rests on what its estimators declare: write mode='paper', by which "
                "every output says so"
            )
        return learner
    found = find(learner)
    if request.mode != "paper" or isinstance(found, DPCATE | TM):
        return found
    if not isinstance(base, DPEBM) or found.name not in ("dr", "r", "s"):
        raise CapabilityError(
            "privcate(mode='paper') runs Niu et al. (2022): base='dpebm' with learner 'dr', 'r' or "
            "'s', or learner=pc.learners.TwoStage(...) with private estimators of your own; or "
            "Schroeder et al. (2025): learner='dpcate'; or for an outcome of two values the "
            "baseline of Betlei et al. (2021): learner='tm'"
        )
    if base != DPEBM():
        raise CapabilityError(
            "mode='paper' runs interpret's DP-EBM with its defaults: write base='dpebm'"
        )
    return TwoStage.published(found.name, request)


def for_average(request: Request) -> Learner:
    """What `private` uses: the difference in means where there is nothing to adjust for.

    ``mode="paper"`` asks for the published mechanism.

    A column of known propensities is something to adjust for: with one probability for all the
    arms are comparable as they are, with several they are not.
    """
    if request.estimand == "CATE":
        known = ", ".join(map(repr, AVERAGES))
        raise CapabilityError(f"estimand='CATE' is no average effect; choose one of {known}")
    if request.mode == "paper":
        return Published()
    if request.formula.terms or isinstance(request.propensity, str):
        return Private()
    return Difference()


__all__ = [
    "ADUM",
    "DPCATE",
    "DR",
    "LEARNERS",
    "TM",
    "Auto",
    "CateLearner",
    "Difference",
    "EffectLearner",
    "Estimate",
    "Learner",
    "Private",
    "PrivateEstimator",
    "Published",
    "R",
    "S",
    "T",
    "TwoStage",
    "X",
    "find",
    "for_average",
    "for_effect",
]
