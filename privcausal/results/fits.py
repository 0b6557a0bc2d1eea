"""Average effects, effects tau(x), and regressions, with their price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.features.points import read_points, warn_beyond
from privcausal.inference.cells import CellEffect
from privcausal.inference.contrasts import contrasted
from privcausal.inference.effect import Answers, ArmPolynomials, Effect
from privcausal.learners.aggregates import uplift
from privcausal.report import plots
from privcausal.report.labels import Labels, relabelled
from privcausal.results.base import Picture, Result
from privcausal.results.diagnostics import Balance, Overlap, Uplift
from privcausal.results.frames import (
    cell_table,
    effect_frame,
    gain_frame,
    quantile,
    shapes_of,
    with_limits,
    within_reach,
)
from privcausal.results.guarantee import ledger_line
from privcausal.results.interpretable import as_booster
from privcausal.results.sensitivity import Sensitivity
from privcausal.typing import Frame

if TYPE_CHECKING:
    from interpret.glassbox import ExplainableBoostingRegressor

    from privcausal.accounting import Ledger
    from privcausal.report import Shape


@dataclass(frozen=True, eq=False, repr=False)
class AteResult(Result):
    """What `privcausal.private` returns."""


@dataclass(frozen=True, eq=False, repr=False)
class RegressionResult(Result):
    """What `privcausal.regress` returns; `params` are coefficients in natural units.

    A coefficient that hangs on what the noise hides is NaN.
    """

    def predict(self, newdata: Frame, alpha: float = 0.05) -> pd.DataFrame:
        """x'b at new points: estimate std_error max_bias conf_low conf_high, index of `newdata`.

        For the mean of the outcome at x, as far as it is linear in the columns. Numbers outside
        the declared bounds are cut to them; a row with a missing value is NaN.
        """
        estimate = self.estimate
        design = estimate.design
        rows, present, index = read_points(design, design.variables, newdata, None)
        warn_beyond(design, newdata)
        x = np.ones((len(rows), 1 + len(design)))
        for j, column in enumerate(design.columns, 1):
            x[:, j] = column.natural(rows.scaled(design)[:, j - 1])
        found = contrasted(self._averages, x, np.zeros(len(x)))
        half = found.half_widths(quantile(alpha))
        frame = pd.DataFrame(
            {
                "estimate": found.estimate, "std_error": found.sd, "max_bias": found.bias,
                "conf_low": found.estimate - half, "conf_high": found.estimate + half,
            },
            index=index,
        )  # fmt: skip
        frame[~present] = np.nan
        return frame

    @property
    def ate(self) -> pd.DataFrame:
        raise CapabilityError(NO_EFFECT)

    @property
    def gate(self) -> pd.DataFrame:
        raise CapabilityError(NO_EFFECT)

    def sensitivity(self, alpha: float = 0.05) -> Sensitivity:
        raise CapabilityError(NO_EFFECT)

    def overlap(self, *_: Any, **__: Any) -> Overlap:
        raise CapabilityError(NO_EFFECT)

    def balance(self, *_: Any, **__: Any) -> Balance:
        raise CapabilityError(NO_EFFECT)


NO_EFFECT = "a regression has coefficients, in params; pc.private(...) gives an average effect"


@dataclass(frozen=True, eq=False, repr=False)
class CateResult(Result):
    """What `privcausal.privcate` returns."""

    @property
    def _effect(self) -> Effect | CellEffect | ArmPolynomials:
        effect = self.estimate.effect
        assert effect is not None
        return effect

    def predict(self, newdata: Frame | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """tau(x) at new points: estimate std_error conf_low conf_high, index of `newdata`.

        Post-processing of released numbers: free, without limit, and the same each time. The
        interval is a band: for the projection of tau on the basis, on average over x, and
        approximate: of 95 % bands of learner "r" at eps = 1, those on eight laws that it was not
        tuned on held 94 to 100 % of points at 4,000 rows and more, and 91 to 100 % at 1,000; of
        "dr", 89 to 100 % and 85 to 100 % (`tests/benchmarks/cate/results.md`). Those of
        `params` are intervals for the average and for slopes of the best linear projection (BLP);
        those of `gate` for group averages. Numbers outside the declared bounds are cut to them; a
        row with a missing value is NaN. Predictions averaged over private rows are not private.

        A fit with ``queries=`` knows the effect at these points only; without `newdata` it gives
        them all.

        Raises
        ------
        DataError
            A needed column is absent, or holds a level that was not declared.
        CapabilityError
            A point that was not among the queries.
        """
        z = quantile(alpha)
        estimate = self.estimate
        if newdata is None:
            newdata = self._queries()
        needed = estimate.plan.request.formula.effect_variables
        rows, present, index = read_points(estimate.design, needed, newdata, self._propensity)
        warn_beyond(estimate.design, newdata)
        effect = self._effect
        if isinstance(effect, Answers) and not effect.knows(rows).all():
            raise CapabilityError(
                f"the effect was released at the {len(effect.points)} points of queries= only, and "
                "others were not paid for. Leave queries= out to release the whole function"
            )
        frame = pd.DataFrame(with_limits(effect(rows), effect.sd(rows), z), index=index)
        frame = within_reach(frame, self._reach, len(frame))
        frame[~present] = np.nan
        return frame

    @property
    def cells(self) -> pd.DataFrame:
        """A row per cell: treated control estimate std_error conf_low conf_high.

        `treated` and `control` are noisy counts, which may be below zero.

        Raises
        ------
        CapabilityError
            The learner has no cells.
        """
        effect = self._by_cell(
            f"learner {self.estimate.plan.learner!r} has no cells: learner='adum' has"
        )
        return cell_table(effect, quantile(0.05))

    def _by_cell(self, otherwise: str) -> CellEffect:
        effect = self._effect
        if not isinstance(effect, CellEffect):
            raise CapabilityError(otherwise)
        return effect

    def uplift(self, frame: Frame, *, eps: float, ledger: Ledger | None = None) -> Uplift:
        """Uplift and Qini curves of treating cells in the order of their estimated effects.

        Parameters
        ----------
        frame : data frame
            Rows to judge the ranking by, or a path to them; best are rows that the fit has not
            seen, since on its own the gain looks larger than it is.
        eps : float
            What this look costs, in pure epsilon, beside the fit.
        ledger : Ledger, optional
            Charged before any row is read.

        Raises
        ------
        DataError, SchemaError, BudgetError, LedgerError, CapabilityError
            Nothing was spent. `CapabilityError`: the learner has no cells.
        """
        return Uplift(uplift(self.estimate, frame, eps, ledger), ledger_line(ledger))

    def _queries(self) -> Frame:
        queries = self.estimate.plan.request.queries
        if queries is None:
            raise CapabilityError("predict needs new data: write fit.predict({'age': [40, 60]})")
        return dict(queries.columns)

    def to_interpret(self) -> ExplainableBoostingRegressor:
        """The effect as a fitted `interpret.glassbox.ExplainableBoostingRegressor`.

        Post-processing of released numbers: free. See `results.interpretable` for what is equal
        and what is approximate.

        Raises
        ------
        CapabilityError
            The effect is no sum of functions of one modifier each (learner ``"x"``, interactions).
        """
        return as_booster(self.estimate)

    def plot(
        self,
        kind: str = "effect",
        *,
        ax: Any = None,
        alpha: float = 0.05,
        labels: Labels | None = None,
    ) -> Any:
        """Draw ``"effect"``, ``"coef"``, ``"gate"``, ``"budget"`` or, of effects by cell,
        ``"uplift"``; returns matplotlib axes."""
        return super().plot(kind, ax=ax, alpha=alpha, labels=labels)

    def plot_data(self, kind: str = "effect", alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`, as a frame.

        Returns
        -------
        DataFrame
            ``"effect"``: modifier kind at estimate conf_low conf_high. ``"uplift"``: share gain
            std_error conf_low conf_high random. Others as for `AteResult`.
        """
        return super().plot_data(kind, alpha)

    def _gains(self, alpha: float) -> pd.DataFrame:
        effect = self._by_cell("uplift curves are of effects by cell: learner='adum'")
        return gain_frame(effect, quantile(alpha))

    def _pictures(self, alpha: float, labels: Labels) -> dict[str, Picture]:
        gains = partial(plots.uplift_plot, title="Expected uplift", ylabel="gain for each row")
        return {
            "effect": (
                lambda: effect_frame(self._shapes(alpha)),
                lambda ax: plots.effect_plot(
                    [replace(s, name=relabelled(s.name, labels)) for s in self._shapes(alpha)],
                    ax=ax,
                ),
            ),
            **super()._pictures(alpha, labels),
            "uplift": (
                lambda: self._gains(alpha),
                lambda ax: gains(self._gains(alpha), ax=ax, alpha=alpha),
            ),
        }

    def _shapes(self, alpha: float) -> tuple[Shape, ...]:
        estimate = self.estimate
        if not estimate.plan.request.formula.effect_variables:
            raise CapabilityError("the formula has no effect modifiers: the effect is a constant")
        if not self._effect.drawn:
            raise CapabilityError("the effect was released at points only: it has no shapes")
        return shapes_of(estimate, quantile(alpha), 100 * (1 - alpha))

    def _shown_shapes(self, alpha: float) -> tuple[Shape, ...]:
        request = self.estimate.plan.request
        if not (request.formula.effect_variables and self._effect.drawn):
            return ()
        # a factor's declared groups have averages of their own, which are not shrunken
        return tuple(shape for shape in self._shapes(alpha) if shape.name not in request.groups)
