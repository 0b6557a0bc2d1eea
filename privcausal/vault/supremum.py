"""The largest value of a function of covariates over their declared domain, by local search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.spec.features import Design, Rows
from privcausal.spec.schema import Binary, Domain, Interval
from privcausal.typing import Integers, Matrix, Vector

STEP = 1.0 / 256.0
"""Half the width of a central difference, as a share of a variable's range: one of the fine bins
on which additive bases are tables, so that their steps have a slope too."""

ROUNDS = 5
"""At most so many times are numbers and levels improved in turn."""


@dataclass(frozen=True, eq=False)
class Supremum:
    """sup of a function over the declared domain of a design's variables.

    L-BFGS-B with box constraints from each of `starts` (Schroeder et al. 2025, supplement C.2);
    two-valued variables and levels, an undeclared label among them, are tried one by one. It is a
    local search: what it finds is at most the supremum.

    Attributes
    ----------
    starts : Matrix
        Public points of the unit cube, shape (starts, variables of the design).
    """

    design: Design
    starts: Matrix

    @cached_property
    def _values(self) -> tuple[Vector | Integers | None, ...]:
        """What each variable can be; None for an interval."""
        return tuple(_discrete(self.design.schema[name]) for name in self.design.variables)

    @cached_property
    def _smooth(self) -> Integers:
        """Positions of the variables that range over an interval."""
        return np.array([j for j, v in enumerate(self._values) if v is None], np.int64)

    def of(self, value: Callable[[Rows], Vector]) -> float:
        """The largest `value` (of n points, shape (n,)) found."""
        found = [self._climb(value, self._begin(start)) for start in self.starts]
        return float(max(found))

    def _begin(self, start: Vector) -> Vector:
        """A start with the index of its value in place of a discrete variable's coordinate."""
        point = start.copy()
        for j, values in enumerate(self._values):
            if values is not None:
                point[j] = min(int(start[j] * len(values)), len(values) - 1)
        return point

    def _climb(self, value: Callable[[Rows], Vector], point: Vector) -> float:
        best = float(value(self._rows(point[None]))[0])
        for _ in range(ROUNDS):
            point, best = self._ascend(value, point, best)
            others = self._neighbours(point)
            if not len(others):
                break
            found = value(self._rows(others))
            if not found.max() > best:
                break
            point, best = others[found.argmax()], float(found.max())
        return best

    def _ascend(
        self, value: Callable[[Rows], Vector], point: Vector, best: float
    ) -> tuple[Vector, float]:
        """L-BFGS-B in the variables that range over intervals."""
        from scipy.optimize import minimize

        smooth = self._smooth
        if not len(smooth):
            return point, best

        def at(u: Vector) -> tuple[float, Vector]:
            moved, width = self._stencil(point, u)
            values = value(self._rows(moved))
            up, down = np.split(values[1:], 2)
            return -float(values[0]), -(up - down) / width

        found = minimize(
            at, point[smooth], jac=True, method="L-BFGS-B", bounds=[(0, 1)] * len(smooth)
        )
        if not -found.fun > best:
            return point, best
        higher = point.copy()
        higher[smooth] = found.x
        return higher, -float(found.fun)

    def _stencil(self, point: Vector, u: Vector) -> tuple[Matrix, Vector]:
        """The point at `u`, then a step up and a step down in each smooth variable; their gaps."""
        k, smooth = len(u), self._smooth
        out = np.tile(point, (2 * k + 1, 1))
        out[:, smooth] = u
        rows = np.arange(k)
        out[1 + rows, smooth] = np.minimum(u + STEP, 1.0)
        out[1 + k + rows, smooth] = np.maximum(u - STEP, 0.0)
        return out, out[1 + rows, smooth] - out[1 + k + rows, smooth]

    def _neighbours(self, point: Vector) -> Matrix:
        """Every point that differs in the value of one discrete variable."""
        out = []
        for j, values in enumerate(self._values):
            for index in range(0 if values is None else len(values)):
                if index != point[j]:
                    other = point.copy()
                    other[j] = index
                    out.append(other)
        return np.array(out) if out else np.zeros((0, len(point)))

    def _rows(self, points: Matrix) -> Rows:
        """Points as rows, with their design columns where these are plain."""
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
        """For each variable its own design columns, at its values or at both ends of its interval.

        None where a column is a function of a variable, or of several: only formulaic knows those.
        It takes most of the time of a search, so it is asked but once where columns are linear.
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
                assert isinstance(domain, Interval)
                frame[name] = domain.lo + domain.width * points[:, j]
        return frame


def _discrete(domain: Domain) -> Vector | Integers | None:
    """The values a variable can have inside the vault: 0 and 1, or level codes (-1: undeclared)."""
    if isinstance(domain, Interval):
        return None
    if isinstance(domain, Binary):
        return np.array([0.0, 1.0])
    return np.arange(0 if domain.other else -1, len(domain.labels))
