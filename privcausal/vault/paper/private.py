"""PrivATE as printed in its paper (Schroeder et al. 2025): an estimate and its squared error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcausal.accounting.charge import PICO
from privcausal.features.design import Design
from privcausal.features.functions import NuisanceTriple
from privcausal.features.rows import Rows
from privcausal.request import schema
from privcausal.request.plan import Stage
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import estimators
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, ClaimedNoise
from privcausal.vault.transforms import Aipw, Outcome

FEWEST_ROWS = 3
"""Minimum number of rows in the formulas: at one row their noise would be zero."""


@dataclass(frozen=True, eq=False)
class PublishedAte:
    """tau_hat with the noise of Theorem 4.3, and V/n of Theorem 4.6 with the noise of Theorem 4.5.

    tau_hat is the mean of the AIPW score Gamma over all complete rows. The nuisance models are
    fitted on the same rows, without cross-fitting: the paper uses "the complete data" (its section
    4.2). sigma_hat^2 is the mean of (Gamma - tau_hat)^2 (its Eq. 8). With U standard normal and
    K(eps, delta) = 5 sqrt(2 ln(n) ln(2/delta)) / (eps n),

        tau_DP     = tau_hat + gamma K(eps_1, delta_1) U                                  (Eq. 7)
        sigma_DP^2 = max(0, sigma_hat^2 + gamma_sigma K(eps_2, delta_2) U')              (Eq. 11)
        V          = sigma_DP^2 + gamma^2 50 ln(n) ln(2/delta_1) / (n eps_1^2)           (Eq. 16)

    gamma = sup |Gamma(z) - tau_hat| over the declared domain. It is exact in treatment and outcome,
    because the score is linear in them. In the covariates it is found by `Supremum`.
    gamma_sigma = sup |(Gamma(z) - tau_hat)^2 - sigma_hat^2| is max(gamma^2 - sigma_hat^2,
    sigma_hat^2), because Gamma(z) = tau_hat for some z.

    Attributes
    ----------
    nuisances : Estimators or Nuisance
        Estimators to be fitted on the rows, or released functions.
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    Privacy is not proven. Suppose the nuisances are *fixed*, gamma is exact and n is large enough.
    Then the noise is a smooth sensitivity bound (Nissim et al. 2007), and tau_DP and sigma_DP^2 are
    private. But fitted nuisances change with a row, and so does n, which counts complete rows. The
    sensitivity is then no longer gamma / n: `tests/estimators/test_published.py` has two
    neighboring tables for which the noise is far too small. V contains gamma, a function of the
    rows, without noise of its own. This function therefore does not return gamma or a noise scale.
    """

    nuisances: estimators.Estimators | NuisanceTriple
    design: Design
    outcome: Outcome
    clip: float
    starts: Matrix

    name = "discrete Gaussian"

    def answer(
        self, batches: Sequence[Batch], effect: Stage, variance: Stage, add_noise: ClaimedNoise
    ) -> tuple[float, float]:
        """(tau_DP, V/n), each rounded to a fine public grid."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            # Suppress warnings: an estimator's warning may describe values of the rows.
            nuisance = nuisances_on(
                self.nuisances, self.design, self.outcome, self.clip, *stacked(batches)
            )
            score = Aipw(nuisance, self.outcome, self.clip)
            values = np.concatenate([score(batch)[batch.complete] for batch in batches])
            size = max(len(values), FEWEST_ROWS)
            tau = float(values.sum()) / size
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(nuisance, rows, tau)
            )
        square = float(((values - tau) ** 2).sum()) / size
        scale = gamma * noise_scale(size, effect)
        grid = 2.0**-ONE_FACTOR
        noisy = add_noise("estimate", np.array([tau]), score.bound * grid, scale)
        sd = max(gamma**2 - square, square) * noise_scale(size, variance)
        unit = (2 * score.bound) ** 2 * grid
        noisy_square = add_noise("variance", np.array([square]), unit, sd)
        return float(noisy[0]), max(0.0, float(noisy_square[0])) / size + scale**2

    def _reach(self, nuisance: NuisanceTriple, rows: Rows, tau: float) -> Vector:
        """max over t and y of |Gamma(t, x, y) - tau| at given covariates, shape (n,)."""
        mu0, mu1, e = nuisance.mu0(rows), nuisance.mu1(rows), nuisance.e(rows)
        ends = [
            np.abs(mu1 - mu0 - tau + sign * (y - mu) / p)
            for y in (self.outcome.lo, self.outcome.hi)
            for sign, mu, p in ((1.0, mu1, e), (-1.0, mu0, 1 - e))
        ]
        return np.asarray(np.max(ends, axis=0))


def nuisances_on(
    wanted: estimators.Estimators | NuisanceTriple,
    design: Design,
    outcome: Outcome,
    clip: float,
    rows: Rows,
    t: Vector,
    y: Vector,
) -> NuisanceTriple:
    """Nuisance models fitted on these rows, unless they are given."""
    if isinstance(wanted, NuisanceTriple):
        return wanted
    x, bounds = estimators.unit_columns(rows, design), (outcome.lo, outcome.hi)
    return estimators.learn_nuisances(wanted, x, t, y, design=design, clip=clip, bounds=bounds)


def stacked(batches: Sequence[Batch]) -> tuple[Rows, Vector, Vector]:
    """The complete rows as one block, with their treatments and outcomes."""
    keep = [batch.complete for batch in batches]

    def joined(parts: Sequence[Any]) -> Any:
        return np.concatenate([part[k] for part, k in zip(parts, keep, strict=True)])

    names = batches[0].rows.frame
    frame = {name: joined([b.rows.frame[name] for b in batches]) for name in names}
    t, y = joined([b.t for b in batches]), joined([b.y for b in batches])
    return Rows(frame, len(t)), t, y


def noise_scale(size: int, stage: Stage) -> float:
    """5 sqrt(2 ln(n) ln(2/delta)) / (eps n): noise per unit of gross error sensitivity (Eq. 13)."""
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return float(5 * np.sqrt(2 * np.log(size) * np.log(2 / delta)) / (epsilon * size))


HALF_DIFFERENCE = 1.0 / 256.0
"""Half the width of a central difference, as a share of a variable's range. It is one of the fine
bins on which additive bases are tabulated, so that their steps have a slope too."""

CLIMBS = 10
"""Number of starts to improve, as in the paper."""

LEVEL_ROUNDS = 5
"""Maximum number of rounds that improve first numbers, then levels."""


@dataclass(frozen=True, eq=False)
class Supremum:
    """sup of a function over the declared domain of a design's variables.

    `starts` are public points of the unit cube, shape (starts, variables). The `CLIMBS` starts with
    the largest values are improved by L-BFGS-B with box constraints (Schroeder et al. 2025,
    supplement C.2). Values of two-valued variables, and levels including an undeclared label, are
    tried one by one. A local search finds at most the supremum.
    """

    design: Design
    starts: Matrix

    @cached_property
    def _values(self) -> tuple[Vector | Integers | None, ...]:
        """The possible values of each variable inside the vault; None for an interval."""
        values: list[Vector | Integers | None] = []
        for name in self.design.variables:
            domain = self.design.schema[name]
            if isinstance(domain, schema.Interval):
                values.append(None)
            elif isinstance(domain, schema.Binary):
                values.append(np.array([0.0, 1.0]))
            else:  # Codes of levels; -1 is an undeclared level.
                values.append(np.arange(0 if domain.other else -1, len(domain.labels)))
        return tuple(values)

    @cached_property
    def _smooth(self) -> Integers:
        """Positions of the variables that range over an interval."""
        return np.array([j for j, v in enumerate(self._values) if v is None], np.int64)

    def of(self, value: Callable[[Rows], Vector]) -> float:
        """The largest `value` found; `value` maps n points to shape (n,)."""
        points = np.stack([self._begin(start) for start in self.starts])
        highest = np.argsort(-value(self._rows(points)), kind="stable")[:CLIMBS]
        return max(self._climb(value, points[k]) for k in highest)

    def _begin(self, start: Vector) -> Vector:
        """A start, with the index of its value as the coordinate of each discrete variable."""
        point = start.copy()
        for j, values in enumerate(self._values):
            if values is not None:
                point[j] = min(int(start[j] * len(values)), len(values) - 1)
        return point

    def _climb(self, value: Callable[[Rows], Vector], point: Vector) -> float:
        best = float(value(self._rows(point[None]))[0])
        for _ in range(LEVEL_ROUNDS):
            point, best = self._ascend(value, point, best)
            # Every point that differs in the value of one discrete variable.
            others = []
            for j, values in enumerate(self._values):
                for index in range(0 if values is None else len(values)):
                    if index != point[j]:
                        other = point.copy()
                        other[j] = index
                        others.append(other)
            if not others:
                break
            heights = value(self._rows(np.array(others)))
            if not heights.max() > best:
                break
            point, best = others[heights.argmax()], float(heights.max())
        return best

    def _ascend(
        self, value: Callable[[Rows], Vector], point: Vector, best: float
    ) -> tuple[Vector, float]:
        """L-BFGS-B in the variables that range over intervals."""
        from scipy.optimize import minimize

        smooth = self._smooth
        if not len(smooth):
            return point, best

        k = len(smooth)
        above, below = 1 + np.arange(k), 1 + k + np.arange(k)

        def slope(u: Vector) -> tuple[float, Vector]:
            # The point at `u`, then a step up and a step down in each smooth variable.
            points = np.tile(point, (2 * k + 1, 1))
            points[:, smooth] = u
            points[above, smooth] = np.minimum(u + HALF_DIFFERENCE, 1.0)
            points[below, smooth] = np.maximum(u - HALF_DIFFERENCE, 0.0)
            values = value(self._rows(points))
            width = points[above, smooth] - points[below, smooth]
            return -float(values[0]), -(values[above] - values[below]) / width

        bounds = [(0, 1)] * k
        top = minimize(slope, point[smooth], jac=True, method="L-BFGS-B", bounds=bounds)
        if not -top.fun > best:
            return point, best
        higher = point.copy()
        higher[smooth] = top.x
        return higher, -float(top.fun)

    def _rows(self, points: Matrix) -> Rows:
        """Points as rows, with their design columns if these are plain."""
        frame = self._frame(points)
        if self._tables is None:
            return Rows(frame, len(points))
        scaled = np.empty((len(points), len(self.design)))
        for j, (at, table) in enumerate(self._tables):
            u = points[:, j]
            if self._values[j] is None:
                scaled[:, at] = table[0] + u[:, None] * (table[1] - table[0])
            else:
                scaled[:, at] = table[u.astype(np.int64)]
        return Rows(frame, len(points), None, {self.design: scaled})

    @cached_property
    def _tables(self) -> list[tuple[Integers, Matrix]] | None:
        """Each variable's own design columns, at its values or at both ends of its interval.

        None if a column is a function of variables, which only formulaic can evaluate. formulaic is
        slow, so it is called only once if columns are linear.
        """
        columns = self.design.columns
        if any(column.variable is None for column in columns):
            return None
        tables = []
        for j, (name, values) in enumerate(zip(self.design.variables, self._values, strict=True)):
            at = np.array([i for i, c in enumerate(columns) if c.variable == name], np.int64)
            probe = np.zeros((2 if values is None else len(values), len(self._values)))
            probe[:, j] = np.arange(len(probe))
            tables.append((at, self.design.scaled(self._frame(probe), len(probe))[:, at]))
        return tables

    def _frame(self, points: Matrix) -> dict[str, Vector | Integers]:
        """Points in natural units and level codes."""
        frame: dict[str, Vector | Integers] = {}
        for j, (name, values) in enumerate(zip(self.design.variables, self._values, strict=True)):
            domain = self.design.schema[name]
            if values is not None:
                frame[name] = values[points[:, j].astype(np.int64)]
            else:
                assert isinstance(domain, schema.Interval)
                frame[name] = domain.lo + domain.width * points[:, j]
        return frame
