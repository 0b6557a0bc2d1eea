"""Two private polynomial regressions, one for each arm: epsilon-TM of Betlei et al. (2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.inference.cells import CellTotals
from privcausal.inference.polynomials import ArmLogits, ArmPolynomials, trimmed
from privcausal.inference.population import Population
from privcausal.learners.adum import ADUM, average_of, outcome_of
from privcausal.learners.base import EffectLearner
from privcausal.learners.bases import AnyBase, PrivateBase
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Session
from privcausal.learners.needs import Need, Undeclared
from privcausal.learners.papers import refuse
from privcausal.spec.features import Design
from privcausal.spec.partition import Coordinates
from privcausal.spec.plan import Plan
from privcausal.spec.polynomials import Polynomials
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval
from privcausal.vault import PolynomialSums, PublishedLogits

LOSS = "effect: squared loss"

MOST_DEGREE = 12


@dataclass(frozen=True)
class TM(EffectLearner):
    """The difference of two linear regressions on polynomials, by the functional mechanism.

    Laplace noise goes to the coefficients of each arm's squared loss (Zhang et al. 2012), in pure
    epsilon; the minimum is then found with their regularisation and spectral trimming. It is a
    baseline: there are no intervals for tau(x).

    A binary outcome is a number here (a linear probability). The paper has logistic regressions by
    objective perturbation (Chaudhuri et al. 2011) for it, which ``mode="paper"`` runs, with a
    guarantee that is "published" and not proven: its proof is about real numbers and exact minima
    (see `vault.PublishedLogits`). They release no average effect.

    Parameters
    ----------
    degree : int
        Of the polynomials of every numeric modifier.
    """

    degree: int = 1
    name: ClassVar[str] = "tm"
    shares: ClassVar[Mapping[str, float]] = {"effect": 1.0}

    def __post_init__(self) -> None:
        if type(self.degree) is not int or not 1 <= self.degree <= MOST_DEGREE:
            raise CapabilityError(f"degree is a whole number from 1 to {MOST_DEGREE}")

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        return [Need(LOSS, 1.0, "effect")]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        return pure_plan(self, request, base, undeclared)

    def run(self, session: Session) -> Estimate:
        session.vault.arrange(session.schema, (), ())
        request, schema = session.plan.request, session.schema
        if request.mode == "paper":
            return self._published(session)
        outcome, binary = outcome_of(session)
        where = Coordinates(schema, request.formula.effect_variables)
        polynomials = Polynomials(where, self.degree)
        sums = PolynomialSums(polynomials, outcome)
        release = session.release(LOSS, sums)
        cross, grams = sums.split(release.value)
        sd, half = float(release.noise_sd[0]), outcome.bound
        middle = 0.5 * (outcome.lo + outcome.hi)
        coef = np.stack([trimmed(g, half * c, sd) for g, c in zip(grams, cross, strict=True)])
        effect = ArmPolynomials(polynomials, coef, half)
        found = CellTotals(
            grams[:, 0, 0][None], half * cross[:, 0][None], None, sd**2, (half * sd) ** 2, 0.0,
            half, request.trust.max_rows,
        )  # fmt: skip
        average = average_of(found)
        return Estimate(
            session.plan, schema, Design(request.formula.modifiers, schema, full_rank=True),
            Population(schema, {}, np.eye(0), average.size), effect, None, average,
            tuple(session.releases), session.vault.size, session.vault.real_noise,
            (NOTE.format(middle=middle), *((BINARY_NOTE,) if binary else ())),
        )  # fmt: skip

    def _published(self, session: Session) -> Estimate:
        """Logistic regressions: their coefficients are all that is released."""
        request, schema, vault = session.plan.request, session.schema, session.vault
        where = Coordinates(schema, request.formula.effect_variables)
        polynomials = Polynomials(where, self.degree)
        release = vault.release_answers(LOSS, PublishedLogits(polynomials, request.trust.neighbors))
        effect = ArmLogits(polynomials, release.value.reshape(2, -1), 0.5)
        return Estimate(
            session.plan, schema, Design(request.formula.modifiers, schema, full_rank=True),
            Population(schema, {}, np.eye(0), float(vault.size or 0)), effect, None, None,
            (release,), vault.size, vault.real_noise,
        )  # fmt: skip


NOTE = (
    "Regressions are of the outcome less {middle:g}, the middle of its bounds; they have no bands."
)

BINARY_NOTE = (
    "The outcome has two values, and regressions are of linear probabilities: logistic ones by "
    "objective perturbation (mode='paper') have no proof for numbers that a computer holds."
)


def pure_plan(learner: TM, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
    """A plan in pure epsilon, refused where ADUM's would be, for whatever reason but its grid.

    Raises
    ------
    CapabilityError
        Or for what objective perturbation does not cover.
    """
    if request.mode == "paper":
        _check_published(request)
    checked = ADUM(partition={}).plan(request, base, undeclared)
    stage = checked.stages[-1]
    return replace(checked, learner=learner.name, stages=(replace(stage, name=LOSS),))


def _check_published(request: Request) -> None:
    """One row a person, and an outcome of two declared values."""
    refuse(
        {"unit=": request.trust.unit is not None}, "its theorem is of tables that differ in one row"
    )
    domain = request.schema.get(request.formula.outcome)
    if domain is None or isinstance(domain, Interval):
        raise CapabilityError(
            "mode='paper' of learner='tm' has logistic regressions, for an outcome of two declared "
            f"values: bounds={{{request.formula.outcome!r}: pc.Binary()}}; for other outcomes its "
            "linear ones are proven, leave mode= out"
        )
