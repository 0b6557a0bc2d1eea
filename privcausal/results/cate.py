"""`CateResult`: a conditional effect tau(x), its averages and its price."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from privcausal.errors import CapabilityError
from privcausal.inference.answers import Answers
from privcausal.inference.cells import CellEffect
from privcausal.inference.effect import Effect
from privcausal.inference.polynomials import ArmPolynomials
from privcausal.learners import Estimate
from privcausal.learners.published_cate import Asked
from privcausal.results.base import Result
from privcausal.results.frames import check_alpha, within
from privcausal.results.points import read_points
from privcausal.typing import Frame

if TYPE_CHECKING:
    import pandas as pd
    from interpret.glassbox import ExplainableBoostingRegressor

    from privcausal.accounting import Ledger
    from privcausal.report import FitView, Shape
    from privcausal.results.uplift import Uplift


def has_shapes(estimate: Estimate) -> bool:
    """Whether the effect is a function that can be drawn along each modifier."""
    modifiers = estimate.plan.request.formula.effect_variables
    return bool(modifiers) and not isinstance(estimate.effect, Answers | Asked)


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
        import pandas as pd

        z = float(norm.ppf(1 - check_alpha(alpha) / 2))
        estimate = self.estimate
        if newdata is None:
            newdata = self._queries()
        needed = estimate.plan.request.formula.effect_variables
        rows, present, index = read_points(estimate.design, needed, newdata, self._propensity)
        effect = self._effect
        if isinstance(effect, Answers) and not effect.knows(rows).all():
            raise CapabilityError(
                f"the effect was released at the {len(effect.points)} points of queries= only, and "
                "others were not paid for. Leave queries= out to release the whole function"
            )
        value, sd = effect(rows), effect.sd(rows)
        frame = pd.DataFrame(
            {
                "estimate": value, "std_error": sd, "conf_low": value - z * sd,
                "conf_high": value + z * sd,
            },
            index=index,
        )  # fmt: skip
        frame[~present] = np.nan
        return within(frame, self._reach, len(frame))

    @property
    def cells(self) -> pd.DataFrame:
        """A row per cell: treated control estimate std_error conf_low conf_high.

        `treated` and `control` are noisy counts, which may be below zero.

        Raises
        ------
        CapabilityError
            The learner has no cells.
        """
        return self._cells(0.05)

    def _cells(self, alpha: float) -> pd.DataFrame:
        from privcausal.results.cells import cell_table

        effect = self._effect
        if not isinstance(effect, CellEffect):
            raise CapabilityError(
                f"learner {self.estimate.plan.learner!r} has no cells: learner='adum' has"
            )
        return cell_table(effect, float(norm.ppf(1 - alpha / 2)))

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
        from privcausal.learners.uplift import uplift
        from privcausal.results.call import ledger_line
        from privcausal.results.uplift import Uplift

        return Uplift(uplift(self.estimate, frame, eps, ledger), ledger_line(ledger))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit as versioned JSON: released numbers only. Read it by `privcausal.load`.

        Raises
        ------
        CapabilityError
            ``mode="paper"`` without queries: the fit holds secret state.
        """
        if isinstance(self.estimate.effect, Asked):
            raise CapabilityError(
                "this fit cannot be saved: its process keeps the effect without noise. Declare "
                "queries=, or use mode='proven'"
            )
        super().save(path)

    def _queries(self) -> Frame:
        queries = self.estimate.plan.request.queries
        if queries is None:
            raise CapabilityError("predict() needs new data: no queries= were declared")
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
        from privcausal.results.interpretable import as_booster

        return as_booster(self.estimate)

    def plot(self, kind: str = "effect", *, ax: Any = None, alpha: float = 0.05) -> Any:
        """Draw ``"effect"``, ``"coef"``, ``"gate"``, ``"budget"`` or, of effects by cell,
        ``"uplift"``; returns matplotlib axes."""
        return super().plot(kind, ax=ax, alpha=alpha)

    def plot_data(self, kind: str = "effect", alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`, as a frame.

        Returns
        -------
        DataFrame
            ``"effect"``: modifier kind at estimate conf_low conf_high. ``"uplift"``: share gain
            std_error conf_low conf_high random. Others as for `AteResult`.
        """
        return super().plot_data(kind, alpha)

    def _plotted(self, alpha: float) -> dict[str, Any]:
        from privcausal.results import plotted

        return {
            "effect": lambda: plotted.effect_frame(self._shapes(alpha)),
            **super()._plotted(alpha),
            "uplift": lambda: self._gains(alpha),
        }

    def _gains(self, alpha: float) -> pd.DataFrame:
        from privcausal.results.plotted import gain_frame

        effect = self._effect
        if not isinstance(effect, CellEffect):
            raise CapabilityError("uplift curves are of effects by cell: learner='adum'")
        return gain_frame(effect, float(norm.ppf(1 - alpha / 2)))

    def _drawings(self, alpha: float, ax: Any) -> dict[str, Any]:
        from privcausal.report import plots

        return {
            "effect": lambda: plots.effect_plot(self._shapes(alpha), ax=ax),
            **super()._drawings(alpha, ax),
            "uplift": lambda: plots.uplift_plot(
                self._gains(alpha), ax=ax, alpha=alpha, title="Expected uplift",
                ylabel="gain for each row",
            ),
        }  # fmt: skip

    def _shapes(self, alpha: float) -> tuple[Shape, ...]:
        from privcausal.results.shapes import shapes_of

        estimate = self.estimate
        variables = estimate.plan.request.formula.effect_variables
        if not variables:
            raise CapabilityError("the formula has no effect modifiers: the effect is a constant")
        if not has_shapes(estimate):
            raise CapabilityError("the effect was released at points only: it has no shapes")
        z = float(norm.ppf(1 - alpha / 2))
        effect = self._effect
        if isinstance(effect, CellEffect):
            from privcausal.results.cells import cell_shapes

            return cell_shapes(effect, z, 100 * (1 - alpha))
        if isinstance(effect, ArmPolynomials):  # no bands, which a shape has
            return ()
        return shapes_of(
            effect, estimate.population, variables, estimate.known, z, 100 * (1 - alpha)
        )

    def _view(self, alpha: float = 0.05) -> FitView:
        from privcausal.results.view import cate_view

        return cate_view(self, alpha)
