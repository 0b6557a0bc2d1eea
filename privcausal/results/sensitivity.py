"""What `fit.sensitivity` hands back: how strong an unmeasured confounder would have to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.inference.sensitivity import largest_bias, robustness_value, scale_of
from privcausal.learners import describe
from privcausal.report import numbers
from privcausal.report.curves import sensitivity_plot
from privcausal.report.summary import Printed, Summary
from privcausal.report.tables import (
    Prose,
    Rule,
    Table,
    TableColumn,
    TableGrid,
    filled,
    named,
    scaled,
)
from privcausal.report.words import ALERTS
from privcausal.results.base import ReleasedFit
from privcausal.typing import Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TITLE = "Sensitivity to Unmeasured Confounding"

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3)
"""Strengths of a confounder that the table shows."""

POINTS = 60

READING = (
    "strength: the share of what is left unexplained that an unmeasured confounder would explain, "
    "of the outcome and of the treatment alike; from, to: the estimates it could hide, at worst; "
    "limits: the same of the interval."
)
SOURCE = (
    "Computed from released numbers, so free (Chernozhukov et al. 2022; Cinelli and Hazlett 2020). "
    "The residual variance is taken not to fall where a row counts more; what effects vary counts "
    "as unexplained, so that a robustness value is rather too small."
)
RANDOMISED = "Where chance decided who was treated, nothing confounds."


@dataclass(frozen=True, repr=False)
class Sensitivity(Printed):
    """How an average effect would stand up to a confounder that nobody measured.

    Attributes
    ----------
    term : str
    estimate, conf_low, conf_high : float
        With all noise, at level 1 - alpha.
    scale : float
        S, in units of the outcome: the bias is at most S sqrt(r_y r_t / (1 - r_t)).
    alpha : float
    kind : {"proven", "published", "none"}
        Of the fit's guarantee.
    randomised : bool
        Whether the propensity was declared known, or nothing was adjusted for.
    """

    term: str
    estimate: float
    conf_low: float
    conf_high: float
    scale: float
    alpha: float
    kind: Kind
    randomised: bool

    @property
    def robustness(self) -> pd.Series[float]:
        """Robustness values: index ``estimate`` and ``interval``.

        The share of what is left unexplained, of outcome and treatment alike, that a confounder
        would have to explain to bring the estimate, or the nearer limit of the interval, to zero.
        Zero where the interval holds zero already.
        """
        toward = self.conf_low if self.estimate >= 0 else -self.conf_high
        values = [robustness_value(d, self.scale) for d in (abs(self.estimate), toward)]
        return pd.Series(values, index=["estimate", "interval"], name="robustness value")

    def bounds(self, r2_outcome: float, r2_treatment: float) -> pd.Series[float]:
        """What a confounder of this strength could hide, at worst.

        Parameters
        ----------
        r2_outcome, r2_treatment : float
            Shares of what is left unexplained of the outcome, and of the treatment.

        Returns
        -------
        Series
            bias low high conf_low conf_high: estimates from `low` to `high` are possible, and
            `conf_low` to `conf_high` with the interval.

        Raises
        ------
        CapabilityError
            A share is not in [0, 1), or [0, 1] for the outcome.
        """
        bias = largest_bias(self.scale, r2_outcome, r2_treatment)
        values = {
            "bias": bias, "low": self.estimate - bias, "high": self.estimate + bias,
            "conf_low": self.conf_low - bias, "conf_high": self.conf_high + bias,
        }  # fmt: skip
        return pd.Series(values, name=self.term)

    @property
    def frame(self) -> pd.DataFrame:
        """`bounds` where the confounder is as strong for both; index: its strength."""
        return self._frame(SHARES)

    def _frame(self, shares: Sequence[float]) -> pd.DataFrame:
        rows = [self.bounds(share, share) for share in shares]
        return pd.DataFrame(rows, index=pd.Index(list(shares), name="strength"))

    @property
    def sentence(self) -> str:
        """The robustness values in words."""
        estimate, interval = (numbers.percent(value) for value in self.robustness)
        both = "of what is left unexplained of both outcome and treatment"
        if self.robustness["interval"] <= 0:
            return (
                f"The interval holds zero already; a confounder that explained {estimate} {both} "
                "could by itself account for the estimate."
            )
        return (
            f"A confounder that nobody measured would have to explain {interval} {both} before "
            f"the {numbers.level(self.alpha)} interval could hold zero, and {estimate} to account "
            "for the whole estimate."
        )

    def plot_data(self) -> pd.DataFrame:
        """The numbers behind `plot`: strength, and the columns of `bounds`."""
        most = min(0.95, max(0.15, 1.5 * float(self.robustness["estimate"])))
        return self._frame(np.linspace(0, most, POINTS).tolist()).reset_index()

    def plot(self, ax: Axes | None = None) -> Axes:
        """What could be hidden, by the strength of the confounder."""
        return sensitivity_plot(self.plot_data(), self.robustness, ax, self.alpha)

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        said = (self.sentence, *((RANDOMISED,) if self.randomised else ()))
        blocks = (
            Rule("="), self._grid(), Rule("-"), Prose((" ".join(said),)), Rule("="),
            Prose((READING, SOURCE)),
        )  # fmt: skip
        return Summary(Table(TITLE, blocks, ALERTS[self.kind]))

    def _grid(self) -> TableGrid:
        level = numbers.level(self.alpha)
        heads = {
            "bias": TableColumn("bias", words="largest bias"),
            "low": TableColumn("from", words="estimate, from"),
            "high": TableColumn("to", words="estimate, to"),
            "conf_low": TableColumn("lower", words=f"{level} limits, from"),
            "conf_high": TableColumn("upper", words=f"{level} limits, to"),
        }
        return filled(
            "What a confounder could hide",
            named(f"{self.term} [post]", map(numbers.percent, SHARES), "strength"),
            *scaled(self.frame, heads, (self.conf_high - self.conf_low) / 4),
            frame=self.frame,
        )

    def __repr__(self) -> str:
        estimate, interval = self.robustness
        return f"<Sensitivity of {self.term}: robustness {estimate:.3f}, interval {interval:.3f}>"


def sensitivity_of(result: ReleasedFit, alpha: float) -> Sensitivity:
    """The sensitivity of a fit's average effect; raises `CapabilityError` where it has none."""
    found = result._averages
    if result.plan.request.mode == "paper":
        raise CapabilityError(
            "sensitivity needs the sampling variance by itself, which published mechanisms do not "
            "release"
        )
    request, row = result.plan.request, result._terms_table(alpha).iloc[0]
    if request.formula.instrument:
        raise CapabilityError("sensitivity is not computed of the effect by an instrument")
    max_rows = 1 if request.trust.unit is None else request.trust.max_rows
    return Sensitivity(
        str(found.terms[0]),
        float(row["estimate"]),
        float(row["conf_low"]),
        float(row["conf_high"]),
        scale_of(float(found.sampling[0, 0]), found.size, max_rows),
        alpha,
        result.guarantee.kind,
        request.propensity is not None
        or not (request.trust.panel is not None or describe(result.estimate).adjusts),
    )
