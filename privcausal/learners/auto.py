"""The R-learner, with the form of the effect chosen by the released moments themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from privcausal.errors import CapabilityError
from privcausal.inference.additive import Moments, Posterior
from privcausal.learners.base import Learnt
from privcausal.learners.bases import AnyBase, Gam, PrivateBase
from privcausal.learners.ground import Ground
from privcausal.learners.r import R

FORM_NOTE = (
    "Of the forms that the effect could have ({all}), {form} has the greatest marginal likelihood "
    "given the released moments: choosing it cost nothing."
)


@dataclass(frozen=True)
class Auto(R):
    """Learner "r" with one form of the effect: constant, linear, smooth alike, or smooth by term.

    All forms are read from the moments that learner "r" releases, so that their marginal
    likelihoods are of the same numbers, and comparable; those of other learners are not, whose
    moments differ. Nothing more is released, and nothing more is spent.
    """

    name: ClassVar[str] = "auto"

    def accepted(self, base: AnyBase) -> PrivateBase:
        if not isinstance(base, Gam):
            raise CapabilityError(
                "learner 'auto' compares forms of base 'gam': write base='gam', or learner='r'"
            )
        return base

    def learn(self, ground: Ground) -> Learnt:
        chosen: list[str] = []

        def choose(moments: Moments, intercept_var: float, size_var: float) -> Posterior:
            forms = _base(ground).forms(moments, ground.effect_features, intercept_var, size_var)
            best = max(forms, key=lambda form: forms[form].evidence)
            chosen[:] = [FORM_NOTE.format(all=", ".join(forms), form=best)]
            return forms[best]

        learnt = self._learnt(ground, choose)
        return replace(learnt, notes=tuple(chosen))


def _base(ground: Ground) -> Gam:
    base = ground.session.regression
    assert isinstance(base, Gam)
    return base
