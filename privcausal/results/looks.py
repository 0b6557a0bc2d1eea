"""Contrasts, sensitivity and the variation test; results of `overlap`, `balance` and `uplift`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import ncx2, norm

from privcausal.errors import CapabilityError
from privcausal.estimators import describe
from privcausal.estimators.diagnostics import BalanceMeans, OverlapCounts, UpliftCurves
from privcausal.estimators.estimands import words_of
from privcausal.inference import effects
from privcausal.report import plots, tables
from privcausal.report.summary import Printed, Summary
from privcausal.report.tables import Check
from privcausal.request.schema import Binary, level_names
from privcausal.results import frames
from privcausal.results.base import ReleasedFit
from privcausal.results.guarantee import NOT_PRIVATE, Guarantee, price_text, promise
from privcausal.typing import Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One test of whether an effect varies with covariates, from slopes, groups and curves.

VARIATION_LEVEL = 0.05
"""Chance of reporting variation that does not exist: Bonferroni over all tests."""

FLAT = (
    "No variation of the effect with covariates can be distinguished from noise at this budget. "
    "Report the average effect."
)
VARIES = "The effect varies with {names} by more than noise can explain (level {level:.0%})."


def variation(result: ReleasedFit, alpha: float) -> str:
    """One sentence on modifiers, if the effect detectably varies with them.

    Slopes are tested by their intervals, and each factor's groups by Cochran's (1954) Q. All tests
    share `VARIATION_LEVEL`. Biases from clipping take their worst-case values. Curves are not
    tested: their bands assume equal variances and no clipping. Empty for a fit without slopes and
    groups.
    """
    if result.estimate.averages is None:
        return ""
    slopes = zip(result._rows(), result._tests(alpha)["p_value"], strict=True)
    tests = [(row.column, p) for row, p in slopes if row.column]
    places = [row.place.factor for row in result._rows(groups=True)]
    gates = result._table(alpha, groups=True)
    for factor in dict.fromkeys(places):
        # P value of equal effects in all groups of a factor.
        groups, p = gates[[place == factor for place in places]], 1.0
        groups = groups[np.isfinite(groups["std_error"]) & (groups["std_error"] > 0)]
        if len(groups) > 1:
            weight = 1 / groups["std_error"].to_numpy() ** 2
            value = groups["estimate"].to_numpy()
            q = float(weight @ (value - np.average(value, weights=weight)) ** 2)
            noncentrality = float(weight @ (2 * groups["max_bias"].to_numpy()) ** 2)
            p = float(ncx2.sf(q, len(groups) - 1, noncentrality))
        tests.append((factor, p))
    if not tests:
        return ""
    columns = dict.fromkeys(name for name, p in tests if p < VARIATION_LEVEL / len(tests))
    if not columns:
        return FLAT
    return VARIES.format(names=", ".join(map(tables.clean, columns)), level=VARIATION_LEVEL)


# The result of `fit.sensitivity`: how strong an unmeasured confounder would have to be.

CONFOUNDER_SHARES = (0.01, 0.05, 0.1, 0.2, 0.3)
"""Strengths of a confounder that the table shows."""

SENSITIVITY_POINTS = 60

SENSITIVITY_READING = (
    "strength: share of the residual variance that an unmeasured confounder explains, of both "
    "outcome and treatment; from, to: smallest and largest estimate without the bias of such a "
    "confounder; lower, upper: the same for the interval."
)
SENSITIVITY_SOURCE = (
    "Computed from released numbers at no privacy cost (Chernozhukov et al. 2022; Cinelli and "
    "Hazlett 2020). Assumption: the residual variance is not smaller for rows with larger weights. "
    "Variation of the effect counts as residual variance, so robustness values are conservative."
)
NOTHING_CONFOUNDS = "If treatment was randomized, there is no confounding."
STRONG_PRODUCTS = (
    "If products and thresholds of the covariates are twice as strong as in most public data sets, "
    "the {level} interval is {low} to {high}."
)


@dataclass(frozen=True, repr=False)
class Sensitivity(Printed):
    """Sensitivity of an average effect to an unmeasured confounder.

    Attributes
    ----------
    term : str
    estimate, conf_low, conf_high : float
        Include all noise; limits are at level 1 - alpha.
    scale : float
        S, in units of the outcome: the bias is at most S sqrt(r_y r_t / (1 - r_t)).
    alpha : float
    kind : {"proven", "published", "none"}
        Kind of the fit's guarantee.
    randomised : bool
        Whether the propensity was declared known, or no covariate was adjusted for.
    strong_low, strong_high : float
        Limits at level 1 - alpha with twice the prior standard deviations of products and
        thresholds of the covariates. NaN without these.
    """

    term: str
    estimate: float
    conf_low: float
    conf_high: float
    scale: float
    alpha: float
    kind: Kind
    randomised: bool
    strong_low: float = np.nan
    strong_high: float = np.nan

    @property
    def robustness(self) -> pd.Series[float]:
        """Robustness values: index ``estimate`` and ``interval``.

        A robustness value is a share of unexplained variation. A confounder that explained this
        share of the unexplained outcome and of the unexplained treatment would bring the estimate,
        or the nearer limit of the interval, to zero. The value is zero if the interval contains
        zero.
        """
        toward = self.conf_low if self.estimate >= 0 else -self.conf_high
        values = [effects.robustness_value(d, self.scale) for d in (abs(self.estimate), toward)]
        return pd.Series(values, index=["estimate", "interval"], name="robustness value")

    def bounds(self, r2_outcome: float, r2_treatment: float) -> pd.Series[float]:
        """Worst-case bias, estimates and interval for a confounder of this strength.

        Parameters
        ----------
        r2_outcome, r2_treatment : float
            Shares of the unexplained variation of the outcome, and of the treatment.

        Returns
        -------
        Series
            bias low high conf_low conf_high. Estimates from `low` to `high` are possible, and
            values from `conf_low` to `conf_high` with the interval.

        Raises
        ------
        CapabilityError
            The treatment share is not in [0, 1), or the outcome share not in [0, 1].
        """
        bias = effects.largest_bias(self.scale, r2_outcome, r2_treatment)
        values = {
            "bias": bias, "low": self.estimate - bias, "high": self.estimate + bias,
            "conf_low": self.conf_low - bias, "conf_high": self.conf_high + bias,
        }  # fmt: skip
        return pd.Series(values, name=self.term)

    @property
    def frame(self) -> pd.DataFrame:
        """`bounds` for confounders equally strong for outcome and treatment; index: strength."""
        rows = [self.bounds(share, share) for share in CONFOUNDER_SHARES]
        return pd.DataFrame(rows, index=pd.Index(CONFOUNDER_SHARES, name="strength"))

    @property
    def sentence(self) -> str:
        """The robustness values as a sentence."""
        estimate, interval = (tables.share_percent(value) for value in self.robustness)
        both = "of the residual variance of both outcome and treatment"
        if self.robustness["interval"] <= 0:
            return (
                f"The interval already includes zero. A confounder that explains {estimate} {both} "
                "could account for the entire estimate."
            )
        return (
            f"An unmeasured confounder would have to explain {interval} {both} for the "
            f"{tables.confidence(self.alpha)} interval to include zero, and {estimate} to explain "
            "away the estimate."
        )

    def plot_data(self) -> pd.DataFrame:
        """The numbers behind `plot`: strength, and the columns of `bounds`."""
        most = min(0.95, max(0.15, 1.5 * float(self.robustness["estimate"])))
        shares = np.linspace(0, most, SENSITIVITY_POINTS).tolist()
        frame = pd.DataFrame([self.bounds(share, share) for share in shares])
        return frame.set_axis(pd.Index(shares, name="strength")).reset_index()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the possible estimates by the strength of the confounder."""
        return plots.sensitivity_plot(self.plot_data(), self.robustness, ax, self.alpha)

    def summary(self) -> Summary:
        sentences = [self.sentence, *((NOTHING_CONFOUNDS,) if self.randomised else ())]
        if np.isfinite(self.strong_low):
            limits = self.strong_low, self.strong_high
            low, high = tables.alike(limits, (limits[1] - limits[0]) / 4)
            level = tables.confidence(self.alpha)
            sentences.append(STRONG_PRODUCTS.format(level=level, low=low, high=high))
        level = tables.confidence(self.alpha)
        heads = {
            "bias": tables.TableColumn("bias", words="maximum bias"),
            "low": tables.TableColumn("from", words="estimate, from"),
            "high": tables.TableColumn("to", words="estimate, to"),
            "conf_low": tables.TableColumn("lower", words=f"{level} limits, from"),
            "conf_high": tables.TableColumn("upper", words=f"{level} limits, to"),
        }
        shares = map(tables.share_percent, CONFOUNDER_SHARES)
        grid = tables.filled(
            "Range of the effect by strength of the confounder",
            tables.labelled_names(self.term, shares, "strength"),
            *tables.scaled(self.frame, heads, (self.conf_high - self.conf_low) / 4),
            frame=self.frame,
        )
        line, below = tables.Rule("="), tables.Prose((SENSITIVITY_READING, SENSITIVITY_SOURCE))
        content = grid, tables.Rule("-"), tables.Prose((" ".join(sentences),))
        title = "Sensitivity to Unmeasured Confounding"
        return Summary(title, (line, *content, line, below), tables.ALERTS[self.kind])

    def __repr__(self) -> str:
        estimate, interval = self.robustness
        return f"<Sensitivity of {self.term}: robustness {estimate:.3f}, interval {interval:.3f}>"


def sensitivity_of(result: ReleasedFit, alpha: float) -> Sensitivity:
    """Sensitivity of a fit's average effect; raises `CapabilityError` if there is no average."""
    averages = result._averages
    if result.plan.request.mode == "paper":
        raise CapabilityError(
            "sensitivity() requires the sampling variance apart from the privacy noise. Fits of "
            "pc.paper do not release it. Use pc.private(...) instead."
        )
    request, row = result.plan.request, result._table(alpha).iloc[0]
    if words_of(request).in_set:
        raise CapabilityError("sensitivity() is not available for instrumental variables.")
    # S follows from the variance of the estimate. That variance was multiplied by the design effect
    # if a unit or a cluster may have several rows.
    variance, design_effect = float(averages.sampling[0, 0]), averages.design_effect
    if request.weights is not None:
        design_effect *= averages.weighting
    stronger = replace(averages, remainder=np.hypot(averages.remainder, averages.strong))
    half_width = float(stronger.half_widths(float(norm.isf(alpha / 2)))[0])
    adjusts = request.trust.panel is not None or describe(result.estimate).adjusts
    return Sensitivity(
        term=str(averages.terms[0]),
        estimate=float(row["estimate"]),
        conf_low=float(row["conf_low"]),
        conf_high=float(row["conf_high"]),
        scale=math.sqrt(max(variance, 0.0) * averages.size / design_effect),
        alpha=alpha,
        kind=result.guarantee.kind,
        randomised=request.propensity is not None or not adjusts,
        strong_low=float(row["estimate"]) - half_width,
        strong_high=float(row["estimate"]) + half_width,
    )


CLEAR = 2.0
"""A difference is called large only if it exceeds the limit by this many noise sds."""

NAMED = 3
"""Maximum number of columns named in the sentence on balance; the table has all of them."""


@dataclass(frozen=True, eq=False, repr=False)
class _Look(Printed):
    """A finished diagnostic release: released numbers with a cost of their own; no rows."""

    measured: Any
    ledger_line: str | None = None

    title: ClassVar[str]
    what: ClassVar[str] = "this diagnostic only, not the fit,"
    frame: ClassVar[Any]

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this release, in addition to the guarantee of the fit."""
        return promise(self.measured.plan, kind=self.measured.kind, what=self.what)

    @property
    def budget(self) -> pd.DataFrame:
        """One line; columns as in the fit's `budget`."""
        measured = self.measured
        return frames.budget_lines((measured.release,), measured.plan.request.budget.delta)

    def plot_data(self) -> pd.DataFrame:
        """The numbers behind `plot`: `frame`."""
        numbers: pd.DataFrame = self.frame
        return numbers

    def _check(
        self, sentence: str, frame: pd.DataFrame, draw: Callable[..., Axes], rows: tuple[int, ...]
    ) -> Check:
        """The diagnostic for the report: caption, sentence with the cost, and a small frame."""
        price = NOT_PRIVATE
        if self.measured.kind != "none":
            price = f"Cost: {self.guarantee.short}, in addition to the fit."
        return Check(self.title, f"{sentence} {price}", frame, draw, rows)

    def _summary(self, grid: tables.TableGrid, words: str) -> Summary:
        guarantee, line = self.guarantee, tables.Rule("=")
        total = f"Cost of this release: {price_text(guarantee.epsilon, guarantee.delta)}."
        total = "NOT PRIVATE." if guarantee.kind == "none" else total
        head = "" if guarantee.kind == "none" else "Privacy: "
        cost = tables.Prose((total + (f"  {self.ledger_line}" if self.ledger_line else ""),))
        end = tables.Rule("-"), tables.Prose((head + guarantee.statement,)), line
        content = grid, tables.Rule("-"), tables.Prose((words,))
        blocks = line, *content, line, tables.budget_grid(self.budget), cost, *end
        return Summary(self.title, blocks, tables.ALERTS[guarantee.kind])

    def __repr__(self) -> str:
        formula = self.measured.plan.request.formula
        return f"<{type(self).__name__} of {formula!s}: {self.guarantee.short}>"


@dataclass(frozen=True, eq=False, repr=False)
class Overlap(_Look):
    """Distribution of the released propensity in each arm."""

    measured: OverlapCounts

    title: ClassVar[str] = "Private Overlap of Treated and Control"

    @property
    def frame(self) -> pd.DataFrame:
        """low high treated control std_error, one row per propensity cell.

        Counts are noisy and unbiased, and an empty cell may be negative. `std_error` is the
        standard deviation of their noise. The first and last cells hold the clipped propensities.
        """
        borders = np.r_[0.0, self.measured.edges, 1.0]
        control, treated = self.measured.counts
        ends = [f"{edge:.2f}" for edge in self.measured.edges]
        inner = [f"{a} to {b}" for a, b in pairwise(ends)]
        cells = [f"{ends[0]} or less", *inner, f"{ends[-1]} or more"]
        columns = {"low": borders[:-1], "high": borders[1:], "treated": treated, "control": control}
        columns["std_error"] = self.measured.noise_sd
        return pd.DataFrame(columns, pd.Index(cells, name="propensity"))

    @property
    def check(self) -> Check:
        """For the report, without the noise of the counts, which the sentence has."""
        counts = self.frame[["treated", "control"]].round().astype(int)
        return self._check(self.sentence, counts, self.plot, ())

    @property
    def sentence(self) -> str:
        """A sentence on the share of each arm in the outer cells."""
        low, high = self.measured.edges[[0, -1]]
        # Share of each arm in the outer cells, with its noise sd by the delta method.
        noise_sd, outside = self.measured.noise_sd, []
        for counts in self.measured.counts:
            total, cells = float(counts.sum()), len(counts)
            if total <= noise_sd * np.sqrt(cells):
                outside.append((np.nan, np.nan))
                continue
            share = float(counts[0] + counts[-1]) / total
            # The outer counts have derivative weight 1 - share, and the others -share.
            spread = np.sqrt(2 * (1 - share) ** 2 + (cells - 2) * share**2)
            outside.append((min(max(share, 0.0), 1.0), float(noise_sd * spread / total)))
        (control, control_sd), (treated, treated_sd) = outside
        return (
            f"{tables.share_percent(treated)} of the treated (noise sd "
            f"{tables.share_percent(treated_sd)}) "
            f"and {tables.share_percent(control)} of the controls "
            f"(noise sd {tables.share_percent(control_sd)}) have a propensity at or outside the "
            f"limits [{low:.2f}, {high:.2f}]. The noise of each count has standard deviation "
            f"{tables.number(noise_sd, 3)}, so small counts may be negative."
        )

    def summary(self) -> Summary:
        names = tables.labelled_names("Propensity (noisy)", self.frame.index, "propensity")
        columns = names, *tables.noisy_counts(self.frame)
        grid = tables.filled("Rows by propensity and arm", *columns, frame=self.frame)
        return self._summary(grid, self.sentence)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Histograms of both arms: the treated upward, the controls downward."""
        request = self.measured.plan.request
        domain = request.schema.get(request.formula.treatment)
        if isinstance(domain, Binary) and domain.labels is not None:
            return plots.overlap_plot(self.frame, ax, level_names(domain))
        return plots.overlap_plot(self.frame, ax)


@dataclass(frozen=True, eq=False, repr=False)
class Balance(_Look):
    """Standardized mean differences, treated minus control, before and after weighting."""

    measured: BalanceMeans

    title: ClassVar[str] = "Private Balance of Covariates"

    @property
    def frame(self) -> pd.DataFrame:
        """before std_error_before after std_error_after, one row per design column.

        Each value is a difference of the arms' means, in standard deviations of the column. These
        standard deviations come from the fit's released marginals. `after` weights rows by 1/e(x)
        and 1/(1 - e(x)). Standard errors measure privacy noise only, because a difference describes
        the rows themselves.
        """
        means = self.measured
        columns = {"before": means.before, "std_error_before": means.before_sd}
        columns |= {"after": means.after, "std_error_after": means.after_sd}
        return pd.DataFrame(columns, pd.Index(means.terms, name="term"))

    @property
    def check(self) -> Check:
        """For the report, with the noise in words, and room for the names of the columns."""
        words = {"std_error_before": "noise sd before", "std_error_after": "noise sd after"}
        frame = self.frame.rename(columns=words)
        return self._check(self.sentence, frame, self.plot, (len(frame),))

    @property
    def sentence(self) -> str:
        """A sentence on the noise, on clear imbalances, and on imbalances that noise may hide."""
        means, limit = self.measured, plots.IMBALANCE
        if np.isnan(means.after).any():
            return "The budget is too small to estimate the means of both arms."
        hidden, total = int((means.after_sd * CLEAR > limit).sum()), len(means.terms)
        noise = f"Noise standard deviations are up to {tables.number(means.after_sd.max(), 2)}"
        if hidden == total:
            noise += f", so an imbalance of {limit:g} would not be detected"
        elif hidden:
            noise += f", so an imbalance of {limit:g} would not be detected in {hidden} of "
            noise += f"{total} columns"
        clear = np.abs(means.after) > limit + CLEAR * means.after_sd
        names = [tables.clean(name) for name, bad in zip(means.terms, clear, strict=True) if bad]
        more = ", ..." if len(names) > NAMED else ""
        listed = f" ({', '.join(names[:NAMED])}{more})" if names else ""
        if hidden == total and not names:
            return f"{noise}. Use more budget to assess balance."
        return (
            f"{noise}. After weighting, {len(names)} of {total} standardized differences"
            f"{listed} exceed {limit:g} by more than {CLEAR:g} noise standard deviations."
        )

    def summary(self) -> Summary:
        noise = tables.TableColumn("noise sd", words="noise (standard deviation)")
        names = tables.labelled_names("Differences (noisy)", self.frame.index, "term")
        heads = [tables.TableColumn(n, words=f"{n} weighting") for n in ("before", "after")]
        columns = (
            (head, (tables.fixed(v, 3) for v in self.frame[name]))
            for head, name in zip((heads[0], noise, heads[1], noise), self.frame, strict=True)
        )
        grid = tables.filled("Standardized mean differences", names, *columns, frame=self.frame)
        return self._summary(grid, self.sentence)

    def plot(self, ax: Axes | None = None) -> Axes:
        """One row per column: hollow before weighting, filled after; lines are 95% of the noise."""
        return plots.balance_plot(self.frame, ax)


LABELS = {"uplift": "gain for each row", "qini": "gain for each treated row"}


@dataclass(frozen=True, eq=False, repr=False)
class Uplift(_Look):
    """Uplift and Qini curves of treating the rows with the largest estimated effect first."""

    measured: UpliftCurves

    title: ClassVar[str] = "Private Uplift and Qini"
    what: ClassVar[str] = "this release"

    def frame(self, kind: str = "uplift", alpha: float = 0.05) -> pd.DataFrame:
        """share gain std_error conf_low conf_high random, a row for each number of cells."""
        if kind not in self.measured.curves:
            raise CapabilityError("kind= must be 'uplift' or 'qini'.")
        curve = self.measured.curves[kind]
        gains = frames.with_limits(curve.gain, curve.spread, frames.quantile(alpha), "gain")
        return pd.DataFrame({"share": curve.share} | gains | {"random": curve.random})

    def areas(self, alpha: float = 0.05) -> pd.DataFrame:
        """Rows ``AUUC`` and ``Qini``: estimate std_error conf_low conf_high random.

        ``AUUC`` is the area under the uplift curve. ``Qini`` is the area between the Qini curve and
        its random line.
        """
        z = frames.quantile(alpha)
        up, qini = self.measured.curves["uplift"], self.measured.curves["qini"]
        estimate = np.array([up.area, qini.area - qini.random_area])
        spread = np.array([up.area_spread, qini.area_spread])
        columns = frames.with_limits(estimate, spread, z)
        columns["random"] = np.array([up.random_area, 0.0])
        return pd.DataFrame(columns, pd.Index(["AUUC", "Qini"], name="area"))

    def plot(self, kind: str = "uplift", ax: Axes | None = None, alpha: float = 0.05) -> Axes:
        """Draw the curve with its band, and the random line."""
        frame, title = self.frame(kind, alpha), kind.capitalize()
        return plots.uplift_plot(frame, ax=ax, alpha=alpha, title=title, ylabel=LABELS[kind])

    plot_data = frame

    def summary(self, alpha: float = 0.05) -> Summary:
        """The areas: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        meaning = (
            "AUUC is the area under the uplift curve if cells with the largest estimated effects "
            "are treated first. Qini is the area between the Qini curve and the line for random "
            "treatment."
        )
        areas, all_heads = self.areas(alpha), tables.estimate_heads(alpha)
        heads = {name: all_heads[name] for name in tables.ESTIMATES}
        heads["random"] = tables.TableColumn("at random")
        names = tables.labelled_names("Areas (noisy)", areas.index, "area")
        columns = tables.scaled(areas, heads, areas["std_error"])
        grid = tables.filled("Areas under the curves", names, *columns, frame=areas)
        return self._summary(grid, meaning)
