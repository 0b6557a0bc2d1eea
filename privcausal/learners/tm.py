"""Two private polynomial regressions, one for each arm: epsilon-TM of Betlei et al. (2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.accounting.charge import is_number
from privcausal.errors import CapabilityError
from privcausal.features.design import Design
from privcausal.features.expansions import Polynomials
from privcausal.inference.cells import CellTotals
from privcausal.inference.effect import ArmLogits, ArmPolynomials, trimmed
from privcausal.inference.population import Population
from privcausal.learners.adum import ADUM, absent_arm, average_of, within_cells
from privcausal.learners.base import EffectLearner
from privcausal.learners.bases import AnyBase, PrivateBase
from privcausal.learners.budget import MOST_COLUMNS, StageWeight, Undeclared
from privcausal.learners.description import LEFT_OUT, MISSING, Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.paper import refuse_published
from privcausal.learners.state import Session, outcome_of
from privcausal.prices import as_typed, at_most
from privcausal.request.partition import Coordinates
from privcausal.request.plan import Plan, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.vault import PolynomialSums, PublishedLogits, ridge_price

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
    C : float, optional
        Of `privcausal.paper.tm` only: one over the ridge of each arm's summed logistic loss. None:
        what a tenth of epsilon pays for.
    """

    degree: int = 1
    C: float | None = None
    name: ClassVar[str] = "tm"
    title: ClassVar[str] = "two regressions (TM)"
    shares: ClassVar[Mapping[str, float]] = {"effect": 1.0}

    def __post_init__(self) -> None:
        if type(self.degree) is not int or not 1 <= self.degree <= MOST_DEGREE:
            raise CapabilityError(f"degree is a whole number from 1 to {MOST_DEGREE}")
        if self.C is not None and not (is_number(self.C) and 0 < self.C < math.inf):
            raise CapabilityError("C is a number above 0")

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        return [StageWeight(LOSS, 1.0)]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """A plan in pure epsilon, refused where ADUM's would be, for whatever reason but its grid.

        Raises
        ------
        CapabilityError
            Or for what objective perturbation does not cover.
        """
        if request.mode == "paper":
            _check_published(request, self.C, undeclared)
        elif self.C is not None:
            raise CapabilityError("C= is the ridge of pc.paper.tm; learner 'tm' is linear, without")
        checked = _Pure(partition={}).plan(request, base, undeclared)
        where = Coordinates(request.schema, request.formula.effect_variables)
        if Polynomials(where, self.degree).size > MOST_COLUMNS:
            raise CapabilityError(
                f"polynomials of degree {self.degree} of this formula have more than "
                f"{MOST_COLUMNS} columns; write TM(degree=1), or name fewer modifiers"
            )
        return replace(checked, learner=self.name, stages=(replace(checked.stages[-1], name=LOSS),))

    def run(self, session: Session) -> Estimate:
        request, schema = session.plan.request, session.schema
        session.vault.set_layout(schema, (), ())
        where = Coordinates(schema, request.formula.effect_variables)
        polynomials = Polynomials(where, self.degree)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        if request.mode == "paper":  # the coefficients are all that is released
            asked = PublishedLogits(polynomials, request.trust.neighbors, self.C)
            release = session.release(LOSS, asked)
            logits = ArmLogits(polynomials, release.value.reshape(2, -1), 0.5)
            return session.finished(design, effect=logits)
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
        found = within_cells(cls.title, rows, LINEAR)
        if estimate.plan.request.mode != "paper":
            return found
        return replace(found, methods=LOGISTIC, notes=(BARE,), claim=CLAIM, doubts=(EXACT,))


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

LOGISTIC = (
    "Two logistic regressions on polynomials, one for each arm, by objective perturbation "
    "(Chaudhuri et al. 2011, Algorithm 2; the baseline of Betlei et al. 2021 for binary "
    "outcomes). To each arm's penalised log-likelihood was added the product of its coefficients "
    "with a random vector whose length has a Gamma law; the minimum was found by Newton's method. "
    "The ridge is public: 1/C, or without C what a tenth of epsilon pays for. The effect is the "
    "difference of both probabilities.",
    LEFT_OUT,
)

CLAIM = (
    "is what Chaudhuri et al. (2011, Algorithm 2), for the two models of Betlei et al. (2021), "
    "claim of this mechanism"
)

EXACT = (
    "Their proof is of a continuous random vector inside an optimisation and of its exact "
    "minimum. A computer has neither: the digits of a minimum in floating point tell which random "
    "vectors of its grid can have led there, and their proof does not cover that."
)

BARE = "The regressions have no bands, and no average effect was released."

NOTE = (
    "Regressions are of the outcome less {middle:g}, and have no bands. It is the middle of the "
    "outcome's bounds."
)

BINARY_NOTE = (
    "The outcome has two values, and its regressions are linear. Logistic ones by objective "
    "perturbation (pc.paper.tm) have no proof for numbers that a computer holds."
)


def _check_published(request: Request, c: float | None, undeclared: Undeclared) -> None:
    """One row a person, an outcome of two declared values, and a ridge that epsilon pays for."""
    unit = {"unit=": request.trust.unit is not None}
    refuse_published(unit, "its theorem is of tables that differ in one row", undeclared)
    domain = request.schema.get(request.formula.outcome)
    if domain is None or isinstance(domain, Interval):
        raise CapabilityError(
            "pc.paper.tm has logistic regressions, for an outcome of two declared values: "
            f"bounds={{{request.formula.outcome!r}: pc.Binary()}}; for other outcomes "
            "privcate(learner='tm') has linear ones, which are proven"
        )
    if c is not None and ridge_price(c, request.trust.neighbors) >= request.budget.epsilon:
        raise CapabilityError(
            f"C={c:g} leaves nothing of eps={as_typed(request.budget.epsilon)}: a ridge of 1/C "
            f"costs {at_most(ridge_price(c, request.trust.neighbors))} of it; take a smaller C"
        )
