"""Bounded sums within arms: scores for slopes on a treatment, and design columns for balance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from privcausal.features.functions import Function, combine, squared_norm
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.queries import sums
from privcausal.vault.queries.sums import MASS_WEIGHTS, BlockSums, QueryBlock
from privcausal.vault.transforms import Outcome

# Slopes on a treatment: residuals by arm, their scores, and products.

Functions = tuple[Function, ...]


@dataclass(frozen=True, eq=False)
class SlopeScores:
    """s_j = d_j (Y - eta_j - sum_i c_i d_i) for d = T - e, j = 1, ..., J; as a transform, |s|.

    T_j indicates that the row is in arm j. Arm 0 is the reference. The e_j are in [0, 1], and are
    divided by their sum if the sum is above 1. In the reference arm, |d|^2 = sum e_j^2 <= 1. In arm
    a, |d|^2 = (1 - e_a)^2 + sum_(j not a) e_j^2 <= 2 (1 - e_a)^2, because a sum of squares is at
    most the square of the sum. Hence |d| <= D = sqrt(2), and D = 1 for J = 1. With a `cut`, T is
    one number, T - e is clipped to [-D, D], and D = `cut`. With |Y - eta_j| <= R, |s| <= D (R + D
    |c|). `es` and `etas` hold the functions by fold.
    """

    es: tuple[Functions, ...]
    etas: tuple[Functions, ...]
    outcome: Outcome
    centre: Vector
    cut: float = 0.0
    most: float = 0.0
    sizes: tuple[int, int] = field(init=False)  # Number of residuals d, and number of scores s
    reach: float = field(init=False)  # The bound of |d|
    bound: float = field(init=False)

    def __post_init__(self) -> None:
        many = len(self.centre)
        reach = self.cut or (1.0 if many == 1 else float(np.sqrt(2)))  # D
        most = max(self.most, reach) * float(np.linalg.norm(self.centre))
        bound = reach * (2 * self.outcome.bound + most)
        vars(self).update(sizes=(many, many), reach=reach, bound=bound)

    def __call__(self, batch: Batch) -> Vector:
        return np.sqrt(squared_norm(self.parts(batch)[1]))

    def parts(self, batch: Batch) -> tuple[Matrix, Matrix]:
        """d and s, shape (n, J) each."""
        e = _by_fold(self.es, batch)
        if self.cut:
            left = np.clip(batch.dose[:, None] - e, -self.most, self.most)
        else:
            e /= np.maximum(combine(e, np.ones(e.shape[1])), 1.0)[:, None]
            left = (batch.t[:, None] == np.arange(1, len(self.centre) + 1)) - e
        # The order is fixed, so that a row gets the same bits in every block.
        rest = batch.y[:, None] - _by_fold(self.etas, batch) - combine(left, self.centre)[:, None]
        left = np.clip(left, -self.reach, self.reach)
        return left, left * rest


@dataclass(frozen=True, eq=False)
class InstrumentScores:
    """d (Y - eta - c (T - e)) and d (T - e) times `scale`, for d = Z - m; as a transform, the norm.

    Z are J instruments. Each entry of d is in [-D, D]. D is 1 if each Z is 0 or 1, and otherwise D
    is the clipping bound `cut`. Therefore |d| <= sqrt(J) D. With |Y - eta| <= R and |T - e| <=
    `most`, the norm is at most |d| times the norm of (R + |c| most, scale most). The functions are
    given by fold: J of m, one e, and one eta.
    """

    ms: tuple[Functions, ...]
    es: tuple[Functions, ...]
    etas: tuple[Functions, ...]
    outcome: Outcome
    centre: float
    scale: float
    most: float
    cut: float = 0.0
    sizes: tuple[int, int] = field(init=False)  # Number of residuals d, and number of scores
    reach: float = field(init=False)  # The bound of |d|
    bound: float = field(init=False)

    def __post_init__(self) -> None:
        many = len(self.ms[0])
        reach = (self.cut or 1.0) * float(np.sqrt(many))
        away = 2 * self.outcome.bound + abs(self.centre) * self.most
        bound = reach * float(np.hypot(away, self.scale * self.most))
        vars(self).update(sizes=(many, 2 * many), reach=reach, bound=bound)

    __call__ = SlopeScores.__call__  # the norm of the scores

    def parts(self, batch: Batch) -> tuple[Matrix, Matrix]:
        """d, shape (n, J), and the scores, of the outcome and then of T, shape (n, 2 J)."""
        most = self.cut or 1.0
        left = np.clip(batch.instruments - _by_fold(self.ms, batch), -most, most)
        taken = np.clip(batch.taken[:, None] - _by_fold(self.es, batch), -self.most, self.most)
        rest = batch.y[:, None] - _by_fold(self.etas, batch) - self.centre * taken
        return left, np.hstack([left * rest, left * (self.scale * taken)])


def _by_fold(folds: tuple[Functions, ...], batch: Batch) -> Matrix:
    """Each row's values by the functions of the row's fold, shape (n, J)."""
    values = [np.stack([f(batch.rows) for f in functions], axis=1) for functions in folds]
    return values[0] if len(values) == 1 else np.where(batch.part[:, None] == 0, *values)


BETA2 = 0.5
"""Squared weight of either product in the norm. It adds a fifth to the noise of the scores."""


@dataclass(frozen=True, eq=False)
class SlopeSums(sums.BlockSums):
    """Sums of s, and of the upper triangles of d d' and s s', over complete rows.

    d and s belong to treatments or to an instrument. An s with norm above `cut` is shortened to
    norm `cut`. Below, x is s divided by `cut`, and u is d divided by D.

    Privacy
    -------
    The rule of `BlockSums` applies. A row adds (x, beta u u', beta x x') with |x| <= 1 and |u| <=
    1. Therefore |u u'| <= 1 and |x x'| <= 1 in the Frobenius norm. Replacing a row changes x by at
    most 2. The products are positive semidefinite. In total, the change is at most sqrt(4 + 4
    beta^2). `grid_sum` drops a row with a larger norm (a fault).
    """

    scores: SlopeScores | InstrumentScores
    cut: float

    label = "sums of scores and products"

    @cached_property
    def blocks(self) -> tuple[sums.QueryBlock, ...]:
        left, scores = self.scores.sizes
        return (
            sums.QueryBlock((scores,), 1.0, 4.0, unit=self.cut),
            sums.QueryBlock((), 1.0, weight=BETA2, unit=self.scores.reach**2, matrix=left),
            sums.QueryBlock((), 1.0, weight=BETA2, unit=self.cut**2, matrix=scores),
        )

    def integers(self, batch: Batch) -> Integers:
        left, score = self.scores.parts(batch)
        x = score / np.maximum(np.sqrt(squared_norm(score)), self.cut)[:, None]
        u = left / self.scores.reach
        products = [v[:, i] * v[:, j] for v in (u, x) for i, j in [np.triu_indices(v.shape[1])]]
        rows = np.hstack([x, *products]).T
        return self.summed(lambda scale: iter(rows * scale), batch.complete)


@dataclass(frozen=True, eq=False)
class ArmMeans(sums.BlockSums):
    """Sums of a and of h a over the rows of each arm; a = (1, alpha z), z scaled design columns.

    h = clip / e(x) for the treated and clip / (1 - e(x)) for the controls. This is the
    inverse-propensity weight divided by its bound, so h lies in [0, 1]. The mean of z in an arm,
    weighted or not, is a ratio of the arm's sums.

    Privacy
    -------
    ||a||^2 <= A (A = 1 without columns, otherwise A = 2; see `Regressors`). Let gamma be the norm's
    weight of the weighted sums. A row adds v = (a, h a) to the block of its arm. The weighted norm
    of v is at most N, N^2 = (1 + gamma^2) A. Rows of different arms are orthogonal. For two rows of
    one arm, a . a' = 1 + alpha^2 z . z' >= 0, since alpha ||z|| <= 1. Also h >= 0, so v . v' >= 0.
    Therefore replacing a row changes the sums by at most sqrt(2) N, and adding a row changes them
    by at most N.

    A row without a propensity counts as zero, as does a row that fails the check of its norm (a
    fault).
    """

    e: Function
    clip: float
    regressors: sums.Regressors

    arms = 2

    @cached_property
    def query(self) -> str:
        return f"means by arm, {self.regressors.width - 1} columns"

    @cached_property
    def blocks(self) -> tuple[sums.QueryBlock, ...]:
        """Sums of weights, then of alpha z: first unweighted, then with the weight 1 / e itself.

        gamma^2 = 1 / (2 clip) minimizes the sum of both variances if the arms are equal. The noise
        sd of an arm's mean is sd / (rows of the arm) without weights. With weights, it is
        sd / (gamma clip x all rows). Here, sd^2 is proportional to 1 + gamma^2.
        """
        width, norm2 = self.regressors.width, self.regressors.norm2
        plain = sums.QueryBlock((width,), norm2)
        gamma = float(np.sqrt(0.5 / self.clip))
        return plain, replace(plain, weight=gamma**2, unit=1.0 / self.clip)

    def integers(self, batch: Batch) -> Integers:
        a, e = self.regressors.a(batch).T, self.e(batch.rows)
        chance = np.where(batch.t == 1, e, 1.0 - e)
        h = np.minimum(np.maximum(self.clip / chance, 0.0), 1.0)
        columns = (*a, *(h * column for column in a))
        arms = [batch.complete & (batch.t == arm) for arm in (0, 1)]
        sums_by_arm = [
            self.summed(lambda scale: (column * scale for column in columns), rows) for rows in arms
        ]
        return np.concatenate(sums_by_arm)


# -- paths of cohorts --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PathSize:
    """||z|| for the path z = H y of a unit: T outcomes in [lo, hi], without their mean.

    H are the T - 1 orthonormal contrasts of Helmert (1876), so that ||z||^2 = sum_t (y_t - mean)^2.
    This is convex in the outcomes, so it is largest if each is at one end. With k of T outcomes at
    hi, it is (hi - lo)^2 k (T - k) / T, which is largest at k = T // 2.
    """

    wide: tuple[str, ...]  # Columns of the outcomes after the first period
    width: float  # hi - lo
    contrasts: Matrix = field(init=False)  # H, shape (T - 1, T)
    bound: float = field(init=False)

    def __post_init__(self) -> None:
        periods = len(self.wide) + 1
        low = periods // 2
        bound = float(self.width * np.sqrt(low * (periods - low) / periods))
        vars(self).update(contrasts=np.asarray(helmert(periods)), bound=bound)

    def path(self, batch: Batch) -> Matrix:
        """z, shape (n, T - 1)."""
        out = np.zeros((len(batch.y), len(self.wide)))
        # Columns are added in a fixed order, so that a row gets the same bits in every block.
        for name, weights in zip(self.wide, self.contrasts.T[1:], strict=True):
            out += (np.asarray(batch.rows.frame[name]) - batch.y)[:, None] * weights
        return out

    def __call__(self, batch: Batch) -> Vector:
        return np.minimum(np.sqrt(squared_norm(self.path(batch))), self.bound)


@dataclass(frozen=True, eq=False)
class CohortSums(BlockSums):
    """Sums of x, of 1, and of the upper triangle of x x' by cohort, for clipped paths x.

    x is the path of the unit divided by `cut`. A path with norm above `cut` is shortened to norm
    `cut`. `cohorts` are the positions of the cohorts' labels; units of other cohorts count as zero.

    Privacy
    -------
    The rule of `BlockSums` applies, with cohorts as arms. Let beta and gamma be the weights of
    counts and products. A row adds v = (x, beta, gamma x x') to the block of its cohort, with
    |x| <= 1 and |x x'| = |x|^2 <= 1 in the Frobenius norm. Adding a row changes the sums by at most
    A, A^2 = 1 + beta^2 + gamma^2. Rows of different cohorts differ by at most sqrt(2) A.

    Two rows x and y of one cohort have the same count. Let c = x'y. Their squared distance is
    |x|^2 + |y|^2 - 2 c + gamma^2 (|x|^4 + |y|^4 - 2 c^2). For given c it grows with |x| and |y|, so
    it is at most 2 (1 - c) + 2 gamma^2 (1 - c^2). For c >= 0 this is at most 2 + 2 gamma^2. For
    c < 0 it is 2 (1 + |c|) (1 + gamma^2 (1 - |c|)). In |c|, the derivative is
    2 - 4 gamma^2 |c|, which is not negative if gamma^2 <= 1/2. The distance is then largest at
    |c| = 1, where it is 4. So for gamma^2 <= 1/2 it is at most 4, the bound of x alone, and the
    products are stated with a change of 0. Under substitution, beta^2 + gamma^2 <= 1 makes counts
    and products free. The weights are those of `ArmSums`.

    `grid_sum` drops a row with a larger norm (a fault).
    """

    size: PathSize
    cohort: str
    cohorts: tuple[int, ...]
    cut: float
    neighbors: Neighbors

    label = "sums by cohort"

    def __post_init__(self) -> None:
        vars(self).update(arms=len(self.cohorts))
        super().__post_init__()

    @cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        count, square = MASS_WEIGHTS[self.neighbors][True]
        dim = len(self.size.wide)
        return (
            QueryBlock((dim,), 1.0, 4.0, unit=self.cut),
            QueryBlock((1,), 1.0, 0.0, weight=count),
            QueryBlock((), 1.0, 0.0, weight=square, unit=self.cut**2, matrix=dim),
        )

    def integers(self, batch: Batch) -> Integers:
        path = self.size.path(batch)
        x = (path / np.maximum(np.sqrt(squared_norm(path)), self.cut)[:, None]).T
        codes = np.asarray(batch.rows.frame[self.cohort])
        pairs = zip(*np.triu_indices(len(x)), strict=True)
        columns = (*x, np.ones(len(codes)), *(x[i] * x[j] for i, j in pairs))
        sums_by_cohort = [
            self.summed(
                lambda scale: (column * scale for column in columns),
                batch.complete & (codes == code),
            )
            for code in self.cohorts
        ]
        return np.concatenate(sums_by_cohort)
