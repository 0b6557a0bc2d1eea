"""Row maps with proven bounds: residuals, doubly robust scores, and denominator weights.

Each map is a frozen value that names public functions. The vault evaluates it on rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, assert_never

import numpy as np

from privcausal.features import functions
from privcausal.features.design import Rows
from privcausal.features.functions import TINY, FeatureMap, Turned, combine, squared_norm
from privcausal.typing import Matrix, Vector
from privcausal.vault.batch import Batch


class Transform(Protocol):
    """A number for each row, computed only from that row. |value| <= bound, always."""

    @property
    def bound(self) -> float: ...

    def __call__(self, batch: Batch) -> Vector: ...


@dataclass(frozen=True)
class Assigned:
    """D - 1/2 for D in [0, 1]. Centering halves the bound.

    D is the treatment, the treatment that an instrument affects, or the instrument at a place. The
    batch clips the treatment to [0, 1]; the other two are clipped here.
    """

    column: Literal["treatment", "received"] | int = "treatment"

    bound = 0.5

    def __call__(self, batch: Batch) -> Vector:
        if self.column == "treatment":
            return batch.t - 0.5
        if self.column == "received":
            return np.clip(batch.taken, 0.0, 1.0) - 0.5
        return np.clip(batch.instruments[:, self.column], 0.0, 1.0) - 0.5


class RowScore(ABC):
    """A transform of a row's covariates, treatment and outcome."""

    @abstractmethod
    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows with this treatment and outcome."""

    def __call__(self, batch: Batch) -> Vector:
        return self.at(batch.rows, batch.t, batch.y)


@dataclass(frozen=True)
class OfArm:
    """Apply a two-arm transform to one of several arms against all others. The bound is unchanged.

    Every row then has a treatment of 0 or 1, as the two-arm transform requires. Do not wrap a
    transform whose values are cached for the rows (such as `Aipw`), because the cache does not
    distinguish arms.
    """

    transform: Assigned | ResidualProduct | ArmScore
    arm: int

    @property
    def bound(self) -> float:
        return self.transform.bound

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows with outcome y that were in the arm (t = 1) or not (t = 0)."""
        assert isinstance(self.transform, ArmScore)
        return self.transform.at(rows, t, y)

    def __call__(self, batch: Batch) -> Vector:
        treated = np.asarray(batch.t == self.arm, np.float64)
        return self.transform(batch.changed(dose=treated, t=treated))


@dataclass(frozen=True)
class OfTreatment:
    """A function of a row's treatment T and of the propensity e(x) in [c, 1 - c], c = `clip`.

    - "residual": T - e, clipped to |.| <= 1 - c. If T is 0 or 1, |T - e| is no larger.
    - "overlap": (T - e)^2 / scale, the R-learner's weight. Its mean is e (1 - e) / scale if e is
      correct. It lies in [0, (1 - c)^2 / scale].
    - "root": the square root of the overlap weight |T - e| / scale, clipped at 1. These weights
      give both arms the same covariates (Li, Morgan, and Zaslavsky 2018).
    - "balance": (T - e)^2 / (e (1 - e)), the slope of the AIPW score in a shift of the effect. If
      the arm means change by (t - e) kappa, psi changes by kappa (1 - balance). The mean of the
      balance is 1 if e is correct. The balance lies between 0 and (1 - c)/c.
    - "treated": T / scale, which is 0 or 1 / scale.

    `scale` is public. Without a `clip`, e lies in [0, 1].
    """

    kind: Literal["residual", "overlap", "root", "balance", "treated"]
    e: functions.Function
    clip: float = 0.0
    scale: float = 1.0

    @property
    def bound(self) -> float:
        match self.kind:
            case "residual":
                return 1 - self.clip
            case "overlap":
                return (1 - self.clip) ** 2 / self.scale
            case "root":
                return 1.0
            case "balance":
                return (1 - self.clip) / self.clip
            case _:
                return 1 / self.scale

    def __call__(self, batch: Batch) -> Vector:
        if self.kind == "treated":
            return np.asarray(batch.t / self.scale)
        e = self.e(batch.rows)
        match self.kind:
            case "residual":
                value = np.clip(batch.dose - e, self.clip - 1, 1 - self.clip)
            case "overlap":
                value = (batch.t - e) ** 2 / self.scale
            case "root":
                value = np.sqrt(np.minimum(np.abs(batch.t - e) / self.scale, 1.0))
            case "balance":
                value = (batch.t - e) ** 2 / (e * (1 - e))
            case _:
                assert_never(self.kind)
        return np.asarray(value)


@dataclass(frozen=True)
class TransformProduct:
    """The product of two transforms."""

    first: Transform
    second: Transform

    @property
    def bound(self) -> float:
        return self.first.bound * self.second.bound

    def __call__(self, batch: Batch) -> Vector:
        return self.first(batch) * self.second(batch)


@dataclass(frozen=True)
class OfCovariates:
    """A public function of the covariates, |.| <= bound."""

    function: functions.Function
    bound: float

    def __call__(self, batch: Batch) -> Vector:
        return self.function(batch.rows)


@dataclass(frozen=True, eq=False)
class RegressionRow:
    """||u|| for u = f phi(x): the leverage of a row; and its vector z = (w u, t e).

    f is `unit` times the `root` of the row's weight, or 1. The weight w = min(1, L / ||u||) keeps
    ||w u|| at the features' cut L. The response r gives e: w f r, clipped so that ||z|| is at most
    the `cut`. t is the `scale`.
    """

    features: FeatureMap | Turned
    response: Transform
    root: Transform | None = None  # In [0, 1]
    unit: float = 1.0
    scale: float = 1.0
    cut: float = np.inf

    @property
    def bound(self) -> float:
        return self.features.reach * self.unit

    def __call__(self, batch: Batch) -> Vector:
        size = np.sqrt(squared_norm(batch.rows.phi(self.features)))
        factor = 1.0 if self.root is None else self.unit * self.root(batch)
        return np.minimum(factor * size, self.bound)

    def weighted(self, batch: Batch) -> tuple[Vector, Vector, Vector]:
        """w f, f r, and ||w u||^2, shape (n,)."""
        factor = 1.0 if self.root is None else self.unit * self.root(batch)
        norm2 = factor**2 * squared_norm(batch.rows.phi(self.features))
        square = np.minimum(1.0, self.features.cut**2 / np.maximum(norm2, TINY))
        return factor * np.sqrt(square), factor * self.response(batch), square * norm2

    def parts(self, batch: Batch) -> tuple[Vector, Vector]:
        """w f and e, shape (n,)."""
        weight, _, norm2 = self.weighted(batch)
        most = np.sqrt(np.maximum(self.cut**2 - norm2, 0.0)) / self.scale
        return weight, np.clip(weight * self.response(batch), -most, most)

    def left(self, batch: Batch, delta: Vector) -> tuple[Vector, Vector]:
        """w f and e - w u'delta, shape (n,)."""
        weight, last = self.parts(batch)
        return weight, last - weight * combine(batch.rows.phi(self.features), delta)


@dataclass(frozen=True, eq=False)
class RegressionInfluence:
    """w u'by (e - w u'delta): the influence of a row on a coefficient, clipped to the `bound`."""

    row: RegressionRow
    delta: Vector
    by: Vector
    bound: float

    def __call__(self, batch: Batch) -> Vector:
        weight, left = self.row.left(batch, self.delta)
        along = weight * combine(batch.rows.phi(self.row.features), self.by)
        return np.clip(along * left, -self.bound, self.bound)


@dataclass(frozen=True)
class SurveyWeight:
    """Ratio of a row's weight to the public `top`, or the square root of that ratio; in [0, 1]."""

    column: str
    top: float
    root: bool = False

    bound = 1.0

    def of(self, rows: Rows) -> Vector:
        share = np.clip(rows.frame[self.column] / self.top, 0.0, 1.0)
        return np.asarray(np.sqrt(share) if self.root else share)

    def __call__(self, batch: Batch) -> Vector:
        return self.of(batch.rows)


@dataclass(frozen=True)
class WeightedScore:
    """A score or a mass times the row's weight, relative to a public `mean` weight.

    |.| <= top / mean times the bound of the score.
    """

    score: Transform
    weight: SurveyWeight
    mean: float
    factor: float = field(init=False, compare=False)
    bound: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        factor = self.weight.top / self.mean
        vars(self).update(factor=factor, bound=factor * self.score.bound)

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows with this treatment and outcome."""
        return self.factor * self.weight.of(rows) * self.score.at(rows, t, y)  # type: ignore[attr-defined,no-any-return]  # a score

    def __call__(self, batch: Batch) -> Vector:
        return self.factor * self.weight(batch) * self.score(batch)


@dataclass(frozen=True)
class Outcome:
    """Y minus the public midpoint of its bounds. |.| <= R/2 for the range R = hi - lo."""

    lo: float
    hi: float

    @property
    def bound(self) -> float:
        return 0.5 * (self.hi - self.lo)

    def __call__(self, batch: Batch) -> Vector:
        return batch.y - 0.5 * (self.lo + self.hi)


@dataclass(frozen=True)
class OutcomeResidual:
    """Y - eta(x). Its absolute value is at most the range R, since both terms lie in [a, b]."""

    eta: functions.Function
    outcome: Outcome

    @property
    def bound(self) -> float:
        return 2 * self.outcome.bound

    def __call__(self, batch: Batch) -> Vector:
        return batch.y - self.eta(batch.rows)


@dataclass(frozen=True, eq=False)
class LinkWeight:
    """The root of a row's weight in Newton's step, over its largest value, in [0, 1]."""

    family: functions.Family
    eta: functions.Function

    bound = 1.0

    def __call__(self, batch: Batch) -> Vector:
        mean = self.family.mean(self.eta(batch.rows))
        return np.sqrt(np.minimum(self.family.weight(mean) / self.family.most, 1.0))


@dataclass(frozen=True, eq=False)
class WorkingResidual:
    """(Y - mu) / weight, clipped to its largest size: that at an end of eta and of the outcome."""

    family: functions.Family
    eta: functions.Function
    outcome: Outcome

    @property
    def bound(self) -> float:
        mean = self.family.mean(np.array([self.family.lo, self.family.hi]))
        far = np.maximum(np.abs(self.outcome.hi - mean), np.abs(self.outcome.lo - mean))
        return float((far / self.family.weight(mean)).max())

    def __call__(self, batch: Batch) -> Vector:
        mean = self.family.mean(self.eta(batch.rows))
        rest = (batch.y - mean) / self.family.weight(mean)
        return np.asarray(np.clip(rest, -self.bound, self.bound))


@dataclass(frozen=True)
class ResidualProduct(RowScore):
    """(T - e) (Y - eta - (T - e) centre) / scale, or (T - e) (Y - eta) / scale without a centre.

    Nie and Wager (2021), Eq. 4: their pseudo-outcome (Y - eta) / (T - e), minus the centre, times
    its weight (T - e)^2. The centre is a number c, or a function whose largest size is
    `centre_bound`; for a number, the largest size is |c|, whatever is stated. The score does not
    divide by e: |T - e| <= 1 - s and |Y - eta| <= R give |.| <= (1 - s) (R + (1 - s) |centre|) /
    scale for e in [s, 1 - s] and s = `clip`.

    With a number c, it is the score of the ATO (Robinson 1988). The effect with overlap weights h =
    e (1 - e) (Crump et al. 2006; Li, Morgan, and Zaslavsky 2018) is the slope of Y - eta on T - e.
    This score is the efficient score of the slope. With Y - eta = (T - e) tau + u and (T - e)^2 = h
    + (1 - 2e) (T - e), the score is h (tau - c) + (T - e) u + (1 - 2e) (T - e) (tau - c). This is
    the influence function for weights h(e).
    """

    e: functions.Function
    eta: functions.Function
    outcome: Outcome
    clip: float
    centre: functions.Function | float | None = None
    centre_bound: float = 0.0
    scale: float = 1.0

    @property
    def bound(self) -> float:
        most, centre = 1 - self.clip, self.centre
        largest = self.centre_bound if centre is None or callable(centre) else abs(centre)
        return most * (2 * self.outcome.bound + most * largest) / self.scale

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        functions.Extended.together(rows, (self.e, self.eta))
        away = t - self.e(rows)
        rest = y - self.eta(rows)
        if self.centre is not None:
            centre = self.centre(rows) if callable(self.centre) else self.centre
            rest = rest - away * centre
        return np.asarray(away * rest / self.scale)


@dataclass(frozen=True)
class Aipw:
    """psi - centre(x), psi = mu1 - mu0 + T (Y - mu1)/e - (1 - T)(Y - mu0)/(1 - e).

    This is the doubly robust score (Robins and Rotnitzky 1995; Kennedy 2020). With Y, mu0, mu1 in
    [a, b] and e in [c, 1 - c], |psi| <= R/c. Proof: for T = 1, psi = (mu1 - mu0) + (Y - mu1)/e. It
    is linear in mu1 with slope 1 - 1/e <= 0, so its extremes have mu1, Y, and mu0 in {a, b}. One
    end gives R/e and (Y - a)/e + a - b >= -R. The other end is the mirror image. The case T = 0 is
    the same with 1 - e. Subtracting the centre adds at most `centre_bound`, the largest |centre|.
    """

    nuisance: functions.NuisanceTriple
    outcome: Outcome
    clip: float
    centre: functions.Function | None = None
    centre_bound: float = 0.0

    @property
    def bound(self) -> float:
        return 2 * self.outcome.bound / self.clip + self.centre_bound

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows with this treatment and outcome."""
        n = self.nuisance
        mu0, mu1, e = n.mu0(rows), n.mu1(rows), n.e(rows)
        treated, control = t * (y - mu1), (1 - t) * (y - mu0)
        treated /= e
        control /= 1 - e
        score = mu1 - mu0
        score += treated
        score -= control
        return score if self.centre is None else np.asarray(score - self.centre(rows))

    def __call__(self, batch: Batch) -> Vector:
        # Scores with different centers share the same nuisances and psi.
        rows, key = batch.rows, (self.nuisance.mu0, self.nuisance.mu1, self.nuisance.e)
        score: Vector | None = rows.kept(*key)
        if score is None:
            psi = replace(self, centre=None)
            score = rows.keep(key, psi.at(rows, batch.t, batch.y), "pass")
        return score if self.centre is None else np.asarray(score - self.centre(rows))


@dataclass(frozen=True)
class ArmScore(RowScore):
    """mu_t + 1(T = t) (Y - mu_t) / P(T = t | x) - centre: the doubly robust score of E[Y(t)].

    The scores of the two arms differ by the score `Aipw`. With Y, mu_t, and the centre in [a, b]
    and p = P(T = t | x) in [c, 1 - c], |.| <= R/c. Proof: for T = t, the score is linear in mu_t
    with slope 1 - 1/p <= 0. Its extremes a - centre + R/p and b - centre - R/p are therefore within
    R/p of zero. For the other arm, |mu_t - centre| <= R.
    """

    nuisance: functions.NuisanceTriple
    outcome: Outcome
    clip: float
    arm: int
    centre: float

    @property
    def bound(self) -> float:
        return 2 * self.outcome.bound / self.clip

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        n = self.nuisance
        e = n.e(rows)
        mu, in_arm, chance = (n.mu1(rows), t, e) if self.arm else (n.mu0(rows), 1 - t, 1 - e)
        return np.asarray(mu + in_arm * (y - mu) / chance - self.centre)


@dataclass(frozen=True, eq=False)
class ScoreVector:
    """B s for the scores s of a row, with a public matrix B, shape (J, J).

    Each score is clipped at its own entry of `cuts`. A vector outside the unit ball is scaled back
    to the ball.
    """

    scores: tuple[Transform, ...]
    cuts: Vector
    basis: Matrix

    cut = 1.0  # The norm at which B s is shortened

    @property
    def size(self) -> int:
        return len(self.scores)

    def __call__(self, batch: Batch) -> Matrix:
        """Shape (n, J), summed in a fixed order, independent of the batch. NaN counts as 0."""
        out = np.zeros((len(batch.t), len(self.cuts)))
        for score, cut, column in zip(self.scores, self.cuts, self.basis.T, strict=True):
            out += np.clip(np.nan_to_num(score(batch)), -cut, cut)[:, None] * column
        return np.asarray(out / np.maximum(np.sqrt(squared_norm(out)), 1.0)[:, None])


@dataclass(frozen=True)
class ArmSize:
    """|score| times a public factor in [0, 1] for the row's arm: controls first, then treated.

    With several arms, the rows in `arm` are the treated, and all others are controls. If `signed`,
    the score keeps its sign.

    |.| <= the score's bound.
    """

    score: Transform
    factors: tuple[float, float]
    arm: int = 1
    signed: bool = False

    @property
    def bound(self) -> float:
        return self.score.bound

    def __call__(self, batch: Batch) -> Vector:
        control, treated = self.factors
        factor = np.where(batch.t == self.arm, treated, control)
        score = self.score(batch)
        return factor * (score if self.signed else np.abs(score))


@dataclass(frozen=True)
class ImputedEffect:
    """The X-learner's imputed effect (Kuenzel et al. 2019): Y - mu0(x) if treated, else mu1(x) - Y.

    |.| <= R, since Y and the means lie in [a, b].
    """

    nuisance: functions.NuisanceTriple
    outcome: Outcome

    @property
    def bound(self) -> float:
        return 2 * self.outcome.bound

    def __call__(self, batch: Batch) -> Vector:
        treated = batch.y - self.nuisance.mu0(batch.rows)
        control = self.nuisance.mu1(batch.rows) - batch.y
        return np.where(batch.t == 1, treated, control)


@dataclass(frozen=True)
class Influence:
    """A score less a multiple of the row's mass: the influence of the row on a ratio of sums.

    Without a mass, each row counts as 1.
    """

    score: Transform
    mass: Transform | None
    mean: float

    @property
    def bound(self) -> float:
        return self.score.bound + abs(self.mean) * (1.0 if self.mass is None else self.mass.bound)

    def __call__(self, batch: Batch) -> Vector:
        mass = 1.0 if self.mass is None else self.mass(batch)
        return np.asarray(self.score(batch) - self.mean * mass)


@dataclass(frozen=True)
class ByFold:
    """Each row's value, by the transform of the row's fold (cross-fitting)."""

    transforms: tuple[Transform, ...]

    @property
    def bound(self) -> float:
        return max(t.bound for t in self.transforms)

    def __call__(self, batch: Batch) -> Vector:
        values = np.stack([t(batch) for t in self.transforms])
        return np.asarray(np.take_along_axis(values, batch.part[None, :], axis=0)[0])


# A weighted average effect is E[q tau(X)] / E[q] for a denominator weight q (the "mass"). Its
# estimate is c + sum(score) / sum(mass), with scores centered at a public number c. Scores and
# masses are divided by a public `scale` near the mean mass. Then scores have the units of the
# outcome, and masses are near 1.


@dataclass(frozen=True)
class TreatedScore(RowScore):
    """[(T - e)/(1 - e) (Y - mu0) - T c] / scale: the ATT's doubly robust score (Hahn 1998).

    (T - e)/(1 - e) is 1 for the treated and -e/(1 - e) for controls. It weights controls so that
    their covariates match the treated. Take e in [0, 1 - k] and Y, mu0 in [a, b]. Before the
    division by `scale`, a treated row gives at most R + |c|, and a control at most R (1 - k)/k. The
    score does not divide by a small e.
    """

    e: functions.Function
    mu0: functions.Function
    outcome: Outcome
    clip: float
    centre: float
    scale: float

    @property
    def bound(self) -> float:
        reach = 2 * self.outcome.bound
        return max(reach + abs(self.centre), reach * (1 - self.clip) / self.clip) / self.scale

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        e = self.e(rows)
        weight = (t - e) / (1 - e)
        return np.asarray((weight * (y - self.mu0(rows)) - t * self.centre) / self.scale)
