"""Two private polynomial regressions, one for each arm: epsilon-TM of Betlei et al. (2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.design import Design
from privcausal.features.expansions import Polynomials
from privcausal.inference.cells import CellTotals
from privcausal.inference.effect import ArmPolynomials, trimmed
from privcausal.inference.population import Population
from privcausal.learners.adum import ADUM, absent_arm, average_of, within_cells
from privcausal.learners.base import EffectLearner
from privcausal.learners.bases import AnyBase, PrivateBase
from privcausal.learners.budget import MOST_COLUMNS, StageWeight, Undeclared
from privcausal.learners.description import MISSING, Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.options import check_whole
from privcausal.learners.state import Session, outcome_of
from privcausal.request.partition import Coordinates
from privcausal.request.plan import Plan, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Schema
from privcausal.vault import PolynomialSums

LOSS = StageKey("effect", "squared loss")

MOST_DEGREE = 12


@dataclass(frozen=True)
class TM(EffectLearner):
    """The difference of two linear regressions on polynomials, by the functional mechanism.

    Laplace noise is added to the coefficients of each arm's squared loss (Zhang et al. 2012), in
    pure epsilon; the minimum is then found with their regularisation and spectral trimming. It is a
    baseline: there are no intervals for tau(x).

    A binary outcome is regressed as a number (a linear probability). The paper's logistic
    regressions by objective perturbation (Chaudhuri et al. 2011) are `privcausal.paper.tm`, with a
    guarantee that is "published" and not proven: its proof is about real numbers and exact minima
    (see `vault.PublishedLogits`). They release no average effect.

    Parameters
    ----------
    degree : int
        Of the polynomials of every numeric modifier.
    """

    degree: int = 1
    name: ClassVar[str] = "tm"
    title: ClassVar[str] = "two regressions (TM)"
    shares: ClassVar[Mapping[str, float]] = {"effect": 1.0}

    def __post_init__(self) -> None:
        check_whole("degree", self.degree, 1, MOST_DEGREE)

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        return [StageWeight(LOSS, 1.0)]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """A plan in pure epsilon, refused where ADUM's would be for any reason but its grid."""
        checked = _Pure(partition={}).plan(request, base, undeclared)
        if self.polynomials(request, request.schema).size > MOST_COLUMNS:
            raise CapabilityError(
                f"polynomials of degree {self.degree} of this formula have more than "
                f"{MOST_COLUMNS} columns; write TM(degree=1), or name fewer modifiers"
            )
        return replace(checked, learner=self.name, stages=(replace(checked.stages[-1], name=LOSS),))

    def polynomials(self, request: Request, schema: Schema) -> Polynomials:
        return Polynomials(Coordinates(schema, request.formula.effect_variables), self.degree)

    def run(self, session: Session) -> Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        polynomials = self.polynomials(request, schema)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        outcome = outcome_of(request, schema)
        sums = PolynomialSums(polynomials, outcome)
        release = session.release(LOSS, sums)
        cross, grams = sums.split(release.value)
        sd, half = float(release.noise_sd[0]), outcome.bound
        coef = np.stack([trimmed(g, half * c, sd) for g, c in zip(grams, cross, strict=True)])
        found = CellTotals(
            grams[:, 0, 0][None], half * cross[:, 0][None], None, sd**2, (half * sd) ** 2, 0.0,
            half, request.trust.max_rows,
        )  # fmt: skip
        average = average_of(found)
        binary = not isinstance(schema[request.formula.outcome], Interval)
        middle = NOTE.format(middle=0.5 * (outcome.lo + outcome.hi))
        return session.finished(
            design, Population(schema, {}, np.eye(0), average.size),
            ArmPolynomials(polynomials, coef, half), None, average,
            (middle, BINARY_NOTE) if binary else (middle,), absent_arm(found),
        )  # fmt: skip

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        effect = estimate.effect
        degree = effect.polynomials.degree if isinstance(effect, ArmPolynomials) else 1
        rows = (("Means", f"polynomials, degree {degree}"), ("Propensity", "not used"))
        return within_cells(cls.title, rows, LINEAR)


class _Pure(ADUM):
    """What ADUM checks of a request in pure epsilon, in this learner's name."""

    name = TM.name
    called = "learner 'tm', in pure epsilon,"
    instead = "; or write learner='s', base='linear', which does"


LINEAR = (
    "Two linear regressions on polynomials, one for each arm (the baseline of Betlei et al. 2021). "
    "The rows were read once, through the coefficients of both squared losses, sums over bounded "
    "rows computed exactly on an integer grid; discrete Laplace noise (OpenDP) was added to each "
    "(the functional mechanism, Zhang et al. 2012). Everything after that is post-processing.",
    "Each loss got a ridge of four noise standard deviations, and directions without curvature "
    "were left out. The effect is the difference of both regressions, cut to the outcome's bounds.",
    MISSING,
)

NOTE = (
    "Regressions are of the outcome less {middle:g}, and have no bands. It is the middle of the "
    "outcome's bounds."
)

BINARY_NOTE = (
    "The outcome has two values, and its regressions are linear. Logistic ones by objective "
    "perturbation (pc.paper.tm) have no proof for numbers that a computer holds."
)
