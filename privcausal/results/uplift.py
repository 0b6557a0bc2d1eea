"""What `fit.uplift` hands back: curves, the areas under them, and their price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from privcausal.errors import CapabilityError
from privcausal.inference.uplift import Curve
from privcausal.learners.uplift import UpliftCurves
from privcausal.results.frames import budget_lines, check_alpha
from privcausal.results.guarantee import Guarantee, promise

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from privcausal.report import Grid, Summary

TITLE = "Private Uplift and Qini"
MEANING = (
    "AUUC is the area under the uplift curve of treating the cells with the largest estimated "
    "effect first, Qini the area between the Qini curve and that of treating by chance."
)
LABELS = {"uplift": "gain for each row", "qini": "gain for each treated row"}


@dataclass(frozen=True, eq=False, repr=False)
class Uplift:
    """Uplift and Qini curves of treating the cells with the largest estimated effect first.

    Attributes
    ----------
    measured : UpliftCurves
    ledger_line : str or None
    """

    measured: UpliftCurves
    ledger_line: str | None = None

    def _curve(self, kind: str) -> Curve:
        if kind not in self.measured.curves:
            raise CapabilityError("kind is 'uplift' or 'qini'")
        return self.measured.curves[kind]

    def frame(self, kind: str = "uplift", alpha: float = 0.05) -> pd.DataFrame:
        """share gain std_error conf_low conf_high random, a row for each number of cells."""
        import pandas as pd

        curve, z = self._curve(kind), float(norm.ppf(1 - check_alpha(alpha) / 2))
        return pd.DataFrame(
            {
                "share": curve.share, "gain": curve.gain, "std_error": curve.spread,
                "conf_low": curve.gain - z * curve.spread,
                "conf_high": curve.gain + z * curve.spread, "random": curve.random,
            }
        )  # fmt: skip

    def areas(self, alpha: float = 0.05) -> pd.DataFrame:
        """Rows ``AUUC`` and ``Qini``: estimate std_error conf_low conf_high random.

        ``AUUC`` is the area under the uplift curve, ``Qini`` that between the Qini curve and its
        random line.
        """
        import pandas as pd

        z = float(norm.ppf(1 - check_alpha(alpha) / 2))
        up, qini = self._curve("uplift"), self._curve("qini")
        estimate = np.array([up.area, qini.area - qini.random_area])
        spread = np.array([up.area_spread, qini.area_spread])
        return pd.DataFrame(
            {
                "estimate": estimate, "std_error": spread, "conf_low": estimate - z * spread,
                "conf_high": estimate + z * spread, "random": [up.random_area, 0.0],
            },
            index=pd.Index(["AUUC", "Qini"], name="area"),
        )  # fmt: skip

    @property
    def guarantee(self) -> Guarantee:
        """What this look promises, beside the fit."""
        return promise(self.measured.plan, kind=self.measured.kind, what="this release")

    @property
    def budget(self) -> pd.DataFrame:
        """One line: the release of counts and sums in the fit's cells."""
        return budget_lines([self.measured.release], self.measured.plan.request.budget.delta)

    def plot(self, kind: str = "uplift", ax: Axes | None = None, alpha: float = 0.05) -> Axes:
        """The curve with its band, and the random line."""
        from privcausal.report import uplift_plot

        frame = self.plot_data(kind, alpha)
        return uplift_plot(frame, ax=ax, alpha=alpha, title=kind.capitalize(), ylabel=LABELS[kind])

    def plot_data(self, kind: str = "uplift", alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`: `frame`."""
        return self.frame(kind, alpha)

    def summary(self, alpha: float = 0.05) -> Summary:
        """The areas: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        from privcausal.report.table import Prose, Rule
        from privcausal.results.diagnostics import look

        shown = (_area_grid(self.areas(alpha), alpha), Rule("-"), Prose((MEANING,)))
        return look(TITLE, shown, self.budget, self.guarantee, self.ledger_line)

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __repr__(self) -> str:
        return f"<Uplift of {self.measured.plan.request.formula!s}: {self.guarantee.short}>"


def _area_grid(areas: pd.DataFrame, alpha: float) -> Grid:
    from privcausal.report import Column, Grid, numbers

    low, high = numbers.limits(alpha)
    columns = (
        Column("Areas [dp]", "left", "area"),
        Column("estimate"),
        Column("std err", words="standard error"),
        Column(low, words=f"{numbers.level(alpha)} interval, low"),
        Column(high, words=f"{numbers.level(alpha)} interval, high"),
        Column("by chance"),
    )
    rows = tuple(
        (str(name), *numbers.alike(values, values[1]))
        for name, values in zip(areas.index, areas.to_numpy(dtype=float).tolist(), strict=True)
    )
    return Grid("Areas under the curves", columns, rows, areas)
