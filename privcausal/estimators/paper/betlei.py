"""Betlei et al. (2021) as printed: `privcausal.paper.adum` and `privcausal.paper.tm`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError, is_number
from privcausal.estimators import uplift, words
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import Undeclared
from privcausal.estimators.first_stages import Fit, outcome_of
from privcausal.estimators.paper import refuse_published
from privcausal.features.design import Design
from privcausal.inference.cells import CellEffect
from privcausal.inference.effects import ArmLogits, ArmPolynomials, trimmed
from privcausal.prices import as_typed, at_most
from privcausal.request.plan import Plan
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.typing import Neighbors, Vector

GRID_STEP = 2.0**-30
"""Replaces a noisy count of exactly zero in divisions; one step of the count's grid."""


@dataclass(frozen=True)
class PublishedADUM(uplift.ADUM):
    """Algorithm 1 with the noise and the quotients of the paper, without clipping or smoothing."""

    release: Literal["ends", "count_sum"] = "count_sum"
    shrink: bool = False
    name: ClassVar[str] = "adum-printed"
    title: ClassVar[str] = "ADUM as published"
    called: ClassVar[str] = "pc.paper.adum"
    instead: ClassVar[str] = ""

    def run(self, fit: Fit) -> words.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        partition = self._partition(fit)
        outcome = outcome_of(request, schema)
        sums = vault.PrintedCells(partition, outcome)
        release = fit.release(uplift.CELL_STAGE, sums)
        count, total = sums.split(release.value)
        noise, total_noise = (part[0, 0] ** 2 for part in sums.split(release.noise_sd))
        rows = np.where(count == 0, GRID_STEP, count)
        mean = total / rows
        # Not in the paper: the delta method, with the largest variance that the bounds allow.
        variance = (total_noise + mean**2 * noise) / rows**2 + outcome.bound**2 / np.abs(rows)
        root, width = np.diag(np.sqrt(variance.sum(axis=1))), 2 * outcome.bound
        effect = CellEffect(partition, mean[:, 1] - mean[:, 0], root, count, width)
        fit.plan = replace(fit.plan, partition=partition)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        return fit.finished(design, None, effect)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        return replace(
            super().describe(estimate),
            methods=CELL_METHODS,
            notes=(CELL_BANDS,),
            claim=CELL_CLAIM,
            doubts=(doubt(estimate),),
        )


CELL_METHODS = (
    "Uplift was estimated from aggregates as printed by Betlei et al. (2021, Algorithm 1). The "
    "mean in each cell and arm is SUM + Lap(2 D/eps) over COUNT + Lap(2/eps), with D the width of "
    "the outcome bounds, however small the noisy count. The effect is the difference between the "
    "means of the arms.",
    words.LEFT_OUT,
)

CELL_BANDS = (
    "The paper gives no intervals and no average effect. The intervals by cell are an addition of "
    "privcausal (delta method). They are meaningless if a noisy count is near zero or negative."
)

CELL_CLAIM = "is claimed by Betlei et al. (2021, Algorithm 1) for this mechanism"


def doubt(estimate: words.Estimate) -> str:
    """Actual cost of the printed noise with these bounds and neighbors."""
    outcome = outcome_of(estimate.plan.request, estimate.schema)
    width, most = 2 * outcome.bound, max(abs(outcome.lo), abs(outcome.hi))
    added = 0.5 + 0.5 * most / width
    if estimate.plan.request.trust.neighbors == "add_remove":
        cost = f"adding a row costs {at_most(added)} times the stated epsilon of its cells"
    else:
        cost = (
            "replacing a row moves it from one cell to another and costs up to "
            f"{at_most(2 * added)} times the stated epsilon of the cells"
        )
    return (
        "One row changes a count by 1 and a sum by |y|, but the noise is scaled to the width of "
        f"the outcome bounds. With these bounds, {cost}. learner='adum' has proven noise scales."
    )


@dataclass(frozen=True, eq=False)
class PrintedLoss(vault.PolynomialSums):
    """Squared losses by arm with the noise that Zhang et al. (2012, Algorithm 1) print.

    Features are divided by the root of A = `polynomials.bound`, so that their length is at most 1.
    For p features and outcomes in [-1, 1], each coefficient -2 sum x phi and sum phi phi' has noise
    of scale Delta / epsilon, Delta = 2 (1 + 2p + p^2), whether a row is replaced or added.

    Privacy
    -------
    The claim is true: replacing a row changes the coefficients by at most 2 (2 sqrt(A) + (A + 1) /
    2) in l1, which is below Delta because A <= p. The difference exceeds the rounding on the grid.
    """

    @property
    def weights(self) -> Vector:
        """One over the factors of the noise of sum x phi and sum phi phi' before the division."""
        size, bound = self.polynomials.size, self.polynomials.bound
        squares = size * (size + 1) // 2
        factors = [np.full(size, 2 / math.sqrt(bound)), np.full(squares, 1 / bound)]
        return np.tile(np.concatenate(factors), 2)

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """The printed Delta, for both relations, in steps of the grid."""
        a = self.polynomials.bound
        step = super().l1_sensitivity("add_remove") / (a + 0.5 * (a * a + a))
        return 2.0 * (1 + self.polynomials.size) ** 2 * step


@dataclass(frozen=True)
class PublishedTM(uplift.TM):
    """Two regressions, which release only their coefficients.

    A numeric outcome has linear regressions by the functional mechanism. An outcome of two values
    has logistic regressions by objective perturbation.

    Parameters
    ----------
    C : float, optional
        One over the ridge of each arm's summed logistic loss. Default: the value that a tenth of
        epsilon allows.
    """

    C: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.C is not None and not (is_number(self.C) and 0 < self.C < math.inf):
            raise CapabilityError("C= must be a number above 0.")

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Plan for one row per unit, a declared outcome, and a ridge within epsilon."""
        unit = {"unit=": request.trust.unit is not None}
        refuse_published(unit, "its theorem covers data sets that differ in one row", undeclared)
        domain = request.schema.get(request.formula.outcome)
        if self.C is not None and isinstance(domain, Interval):
            raise CapabilityError(
                "C= belongs to logistic regressions. Omit it for a numeric outcome, or declare two "
                f"values: bounds={{{request.formula.outcome!r}: pc.Binary()}}."
            )
        price = 0.0 if self.C is None else vault.ridge_price(self.C, request.trust.neighbors)
        if price >= request.budget.epsilon:
            raise CapabilityError(
                f"C={self.C:g} is too large for eps={as_typed(request.budget.epsilon)}: a ridge of "
                f"1/C costs epsilon {at_most(price)}. Use a smaller C."
            )
        return super().plan(request, base, undeclared)

    def run(self, fit: Fit) -> words.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        polynomials = self.polynomials(request, schema)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        if not isinstance(schema[request.formula.outcome], Interval):
            query = vault.PublishedLogits(polynomials, request.trust.neighbors, self.C)
            release = fit.release(uplift.LOSS, query)
            logits = ArmLogits(polynomials, release.value.reshape(2, -1), 0.5)
            return fit.finished(design, effect=logits)
        outcome = outcome_of(request, schema)
        sums = PrintedLoss(polynomials, outcome)
        release = fit.release(uplift.LOSS, sums)
        cross, grams = sums.split(release.value)
        scale, sd = polynomials.bound, sums.split(release.noise_sd)[1][0, 0, 0]
        # Regress on phi / sqrt(A). The coefficient of phi is that of phi / sqrt(A) over sqrt(A).
        pairs = zip(grams / scale, outcome.bound * cross / scale, strict=True)
        coef = np.stack([trimmed(gram, linear, sd / scale) for gram, linear in pairs])
        return fit.finished(design, effect=ArmPolynomials(polynomials, coef, UNCLIPPED))

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        methods, claim, doubts = FUNCTIONAL, LINEAR_CLAIM, (LARGER,)
        if isinstance(estimate.effect, ArmLogits):
            methods, claim, doubts = LOGISTIC, LOGISTIC_CLAIM, (EXACT,)
        return replace(
            super().describe(estimate), methods=methods, notes=(BARE,), claim=claim, doubts=doubts
        )


UNCLIPPED = 1e100
"""Bound of predictions that are not clipped."""

FUNCTIONAL = (
    "One linear regression on Legendre polynomials was fitted in each arm by the functional "
    "mechanism (Zhang et al. 2012, Algorithm 1; the baseline of Betlei et al. 2021). Features have "
    "a length of at most 1, and outcomes are scaled to [-1, 1]. Noise Lap(2 (1 + p)^2 / eps), with "
    "p the number of features, was added to each coefficient of both squared losses. A ridge of "
    "four noise standard deviations was added, and directions without curvature were dropped. The "
    "effect is the difference between the regressions, without clipping.",
    words.LEFT_OUT,
)

LINEAR_CLAIM = (
    "is claimed by Zhang et al. (2012, Theorem 1) for this mechanism, here with the two models of "
    "Betlei et al. (2021)"
)

LARGER = (
    "The printed noise is larger than required, and no failure of the claim is known. "
    "learner='tm' is proven and has less noise."
)

LOGISTIC = (
    "One logistic regression on polynomials was fitted in each arm by objective perturbation "
    "(Chaudhuri et al. 2011, Algorithm 2; the baseline of Betlei et al. 2021 for binary outcomes). "
    "The inner product of the coefficients with a random vector, whose length has a Gamma "
    "distribution, was added to each penalized log-likelihood. Newton's method found the optimum. "
    "The ridge is public: 1/C, or by default the value that costs a tenth of epsilon. The effect "
    "is the difference between the two probabilities.",
    words.LEFT_OUT,
)

LOGISTIC_CLAIM = (
    "is claimed by Chaudhuri et al. (2011, Algorithm 2) for this mechanism, here with the two "
    "models of Betlei et al. (2021)"
)

EXACT = (
    "Their proof assumes a continuous random vector and an exact minimum. A computer provides only "
    "floating-point numbers: the digits of the computed minimum show which random vectors are "
    "possible, and the proof does not cover this leak."
)

BARE = "The regressions have no bands, and no average effect was released."
