"""What `fit.overlap`, `balance` and `uplift` hand back: one priced release each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.inference.cells import Curve
from privcausal.learners.aggregates import UpliftCurves
from privcausal.learners.diagnostics import BalanceMeans, OverlapCounts
from privcausal.report import numbers
from privcausal.report.curves import balance_plot, overlap_plot
from privcausal.report.plots import uplift_plot
from privcausal.report.summary import Printed, Summary
from privcausal.report.tables import (
    ESTIMATES,
    Block,
    Prose,
    Rule,
    Table,
    TableColumn,
    TableGrid,
    budget_grid,
    estimate_heads,
    filled,
    named,
    noisy_counts,
    scaled,
)
from privcausal.report.view import Check
from privcausal.report.words import ALERTS, clean
from privcausal.results.frames import budget_lines, curve_frame, quantile, with_limits
from privcausal.results.guarantee import NOT_PRIVATE, Guarantee, price_text, promise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGE = 0.1
"""A standardised difference beyond this is commonly called an imbalance (Austin 2009)."""

CLEAR = 2.0
"""A difference is called large only if it is so by this many noise standard deviations."""

NAMED = 3
"""Columns that the sentence on balance names; the table has all."""


@dataclass(frozen=True, eq=False, repr=False)
class _Look(Printed):
    """A finished look at the data: released numbers, with a price of their own; no rows.

    Attributes
    ----------
    measured : OverlapCounts, BalanceMeans or UpliftCurves
    ledger_line : str or None
        State of the ledger after the charge.
    """

    measured: Any
    ledger_line: str | None = None

    title: ClassVar[str]
    what: ClassVar[str]

    @property
    def guarantee(self) -> Guarantee:
        """What this look promises, in addition to what the fit has spent."""
        return promise(self.measured.plan, kind=self.measured.kind, what=self.what)

    @property
    def budget(self) -> pd.DataFrame:
        """One line; columns as in the fit's `budget`."""
        found = self.measured
        return budget_lines((found.release,), found.plan.request.budget.delta)

    def _summary(self, *shown: Block) -> Summary:
        promised = self.guarantee
        total = f"This look: {price_text(promised.epsilon, promised.delta)}."
        total = "NOT PRIVATE." if promised.kind == "none" else total
        blocks: tuple[Block, ...] = (
            Rule("="), *shown, Rule("="), budget_grid(self.budget),
            Prose((total + (f"  {self.ledger_line}" if self.ledger_line else ""),)), Rule("-"),
            Prose((f"Guarantee: {promised.statement}",)), Rule("="),
        )  # fmt: skip
        return Summary(Table(self.title, blocks, ALERTS[promised.kind]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.guarantee.short}>"


class Diagnostic(_Look):
    """A look that the report can show: a frame, a sentence and a picture."""

    what: ClassVar[str] = "this diagnostic, which adds to the fit,"

    @property
    def frame(self) -> pd.DataFrame:
        """The released numbers."""
        raise NotImplementedError

    @property
    def sentence(self) -> str:
        """What the numbers say, in words."""
        raise NotImplementedError

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the frame; returns matplotlib axes."""
        raise NotImplementedError

    def plot_data(self) -> pd.DataFrame:
        """The numbers behind `plot`: `frame`."""
        return self.frame

    def _grid(self) -> TableGrid:
        raise NotImplementedError

    @property
    def check(self) -> Check:
        """For the report: caption, sentence with the price, and a small frame."""
        price = NOT_PRIVATE
        if self.measured.kind != "none":
            price = f"Bought for {self.guarantee.short}, in addition to the fit."
        sentence = f"{self.sentence} {price}"
        return Check(self.title, sentence, self._shown(), self.plot, self._named_rows)

    @property
    def _named_rows(self) -> int:
        """Rows that the picture names, if it names any."""
        return 0

    def _shown(self) -> pd.DataFrame:
        return self.frame

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        return self._summary(self._grid(), Rule("-"), Prose((self.sentence,)))


@dataclass(frozen=True, eq=False, repr=False)
class Overlap(Diagnostic):
    """How the rows of each arm are spread over the released propensity."""

    measured: OverlapCounts

    title: ClassVar[str] = "Private Overlap of Treated and Control"

    @property
    def frame(self) -> pd.DataFrame:
        """low high treated control std_error, a row per cell of the propensity.

        Counts are noisy and unbiased, so an empty cell may be negative; `std_error` is their
        noise standard deviation. The first and last cell hold what the clip cut.
        """
        borders = np.r_[0.0, self.measured.edges, 1.0]
        control, treated = self.measured.counts
        return pd.DataFrame(
            {
                "low": borders[:-1], "high": borders[1:], "treated": treated, "control": control,
                "std_error": self.measured.noise_sd,
            },
            index=pd.Index(self._labels(), name="propensity"),
        )  # fmt: skip

    def _labels(self) -> list[str]:
        ends = [f"{edge:.2f}" for edge in self.measured.edges]
        inner = [f"{a} to {b}" for a, b in pairwise(ends)]
        return [f"{ends[0]} or less", *inner, f"{ends[-1]} or more"]

    def _shown(self) -> pd.DataFrame:
        return self.frame[["treated", "control"]].round().astype(int)  # the sentence has the noise

    @property
    def sentence(self) -> str:
        """The share of each arm in the outer cells."""
        low, high = self.measured.edges[[0, -1]]
        (control, control_sd), (treated, treated_sd) = map(self._outside, self.measured.counts)
        return (
            f"{numbers.percent(treated)} of the treated (noise sd {numbers.percent(treated_sd)}) "
            f"and {numbers.percent(control)} of the controls "
            f"(noise sd {numbers.percent(control_sd)}) have a propensity at or beyond the ends of "
            f"[{low:.2f}, {high:.2f}]. Each count has noise sd "
            f"{numbers.number(self.measured.noise_sd, 3)}, so small ones may be below zero."
        )

    def _outside(self, counts: np.ndarray) -> tuple[float, float]:
        """Share of an arm in the outer cells, with its noise sd by the delta method."""
        total = float(counts.sum())
        if total <= self.measured.noise_sd * np.sqrt(len(counts)):
            return np.nan, np.nan
        share = float(counts[0] + counts[-1]) / total
        # the outer counts enter with 1 - share, the others with -share
        spread = np.sqrt(2 * (1 - share) ** 2 + (len(counts) - 2) * share**2)
        return min(max(share, 0.0), 1.0), float(self.measured.noise_sd * spread / total)

    def _grid(self) -> TableGrid:
        names = named("Propensity [dp]", self.frame.index, "propensity")
        columns = names, *noisy_counts(self.frame)
        return filled("Rows by propensity and arm", *columns, frame=self.frame)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Histograms of both arms: the treated upwards, the controls downwards."""
        return overlap_plot(self.frame, ax)


@dataclass(frozen=True, eq=False, repr=False)
class Balance(Diagnostic):
    """Standardised mean differences, treated minus control, before and after weighting."""

    measured: BalanceMeans

    title: ClassVar[str] = "Private Balance of Covariates"

    @property
    def frame(self) -> pd.DataFrame:
        """before std_error_before after std_error_after, a row per design column.

        Differences of the arms' means in standard deviations of the column, which are taken from
        the fit's released marginals; `after` weights rows by 1/e(x) and 1/(1 - e(x)). Standard
        errors are those of the privacy noise: a difference describes these very rows.
        """
        found = self.measured
        return pd.DataFrame(
            {
                "before": found.before, "std_error_before": found.before_sd,
                "after": found.after, "std_error_after": found.after_sd,
            },
            index=pd.Index(found.terms, name="term"),
        )  # fmt: skip

    @property
    def _named_rows(self) -> int:
        return len(self.measured.terms)

    def _shown(self) -> pd.DataFrame:
        words = {"std_error_before": "noise sd before", "std_error_after": "noise sd after"}
        return self.frame.rename(columns=words)

    @property
    def sentence(self) -> str:
        """The noise; how many columns are clearly out of balance; for how many it hides that."""
        found = self.measured
        if np.isnan(found.after).any():
            return "The budget is too small to see the means of both arms."
        hidden, all_terms = int((found.after_sd * CLEAR > LARGE).sum()), len(found.terms)
        noise = f"Noise standard deviations are up to {numbers.number(found.after_sd.max(), 2)}"
        if hidden == all_terms:
            noise += f", so an imbalance of {LARGE:g} could not be seen"
        elif hidden:
            noise += f", so an imbalance of {LARGE:g} could not be seen in {hidden} of {all_terms}"
            noise += " columns"
        clear = np.abs(found.after) > LARGE + CLEAR * found.after_sd
        names = [clean(name) for name, bad in zip(found.terms, clear, strict=True) if bad]
        more = ", ..." if len(names) > NAMED else ""
        listed = f" ({', '.join(names[:NAMED])}{more})" if names else ""
        if hidden == all_terms and not names:
            return f"{noise}: more budget is needed to judge the balance."
        return (
            f"{noise}. After weighting, {len(names)} of {all_terms} standardised differences"
            f"{listed} exceed {LARGE:g} by more than {CLEAR:g} of them."
        )

    def _grid(self) -> TableGrid:
        noise = TableColumn("noise sd", words="noise (standard deviation)")
        names = named("Differences [dp]", self.frame.index, "term")
        heads = [TableColumn(n, words=f"{n} weighting") for n in ("before", "after")]
        columns = (
            (head, (numbers.fixed(v, 3) for v in self.frame[name]))
            for head, name in zip((heads[0], noise, heads[1], noise), self.frame, strict=True)
        )
        return filled("Standardised mean differences", names, *columns, frame=self.frame)

    def plot(self, ax: Axes | None = None) -> Axes:
        """A row per column: hollow before weighting, filled after; lines are 95% of the noise."""
        return balance_plot(self.frame, ax)


MEANING = (
    "AUUC is the area under the uplift curve of treating the cells with the largest estimated "
    "effect first, Qini the area between the Qini curve and that of treating by chance."
)
LABELS = {"uplift": "gain for each row", "qini": "gain for each treated row"}


@dataclass(frozen=True, eq=False, repr=False)
class Uplift(_Look):
    """Uplift and Qini curves of treating the cells with the largest estimated effect first."""

    measured: UpliftCurves

    title: ClassVar[str] = "Private Uplift and Qini"
    what: ClassVar[str] = "this release"

    def _curve(self, kind: str) -> Curve:
        if kind not in self.measured.curves:
            raise CapabilityError("kind is 'uplift' or 'qini'")
        return self.measured.curves[kind]

    def frame(self, kind: str = "uplift", alpha: float = 0.05) -> pd.DataFrame:
        """share gain std_error conf_low conf_high random, a row for each number of cells."""
        curve = self._curve(kind)
        return curve_frame(curve.share, curve.gain, curve.spread, curve.random, quantile(alpha))

    def areas(self, alpha: float = 0.05) -> pd.DataFrame:
        """Rows ``AUUC`` and ``Qini``: estimate std_error conf_low conf_high random.

        ``AUUC`` is the area under the uplift curve, ``Qini`` that between the Qini curve and its
        random line.
        """
        z = quantile(alpha)
        up, qini = self._curve("uplift"), self._curve("qini")
        estimate = np.array([up.area, qini.area - qini.random_area])
        spread = np.array([up.area_spread, qini.area_spread])
        columns = with_limits(estimate, spread, z) | {"random": np.array([up.random_area, 0.0])}
        return pd.DataFrame(columns, index=pd.Index(["AUUC", "Qini"], name="area"))

    def plot(self, kind: str = "uplift", ax: Axes | None = None, alpha: float = 0.05) -> Axes:
        """The curve with its band, and the random line."""
        frame = self.plot_data(kind, alpha)
        return uplift_plot(frame, ax=ax, alpha=alpha, title=kind.capitalize(), ylabel=LABELS[kind])

    def plot_data(self, kind: str = "uplift", alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`: `frame`."""
        return self.frame(kind, alpha)

    def summary(self, alpha: float = 0.05) -> Summary:
        """The areas: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        return self._summary(_area_grid(self.areas(alpha), alpha), Rule("-"), Prose((MEANING,)))

    def __repr__(self) -> str:
        return f"<Uplift of {self.measured.plan.request.formula!s}: {self.guarantee.short}>"


def _area_grid(areas: pd.DataFrame, alpha: float) -> TableGrid:
    heads = {name: head for name, head in estimate_heads(alpha).items() if name in ESTIMATES}
    heads["random"] = TableColumn("by chance")
    names = named("Areas [dp]", areas.index, "area")
    columns = scaled(areas, heads, areas["std_error"])
    return filled("Areas under the curves", names, *columns, frame=areas)
