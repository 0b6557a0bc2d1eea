"""The plain values that a fit shows, filled by the results and read by this subpackage.

A view holds only released values, public values, and values computed from released ones. Names in a
view (columns, levels, groups) are untrusted text. Code that prints names must clean and escape
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from privcausal.errors import CapabilityError, DataError
from privcausal.typing import Kind, Neighbors

if TYPE_CHECKING:
    import pandas as pd

Pair: TypeAlias = tuple[str, str]


class VarianceSource(NamedTuple):
    """One source of the first effect's uncertainty; squared `std_error`s add up.

    `share` is its part of the variance in [0, 1]. `meaning` is a short explanation; about 30
    characters fit a text summary. List sampling first: intervals add up in this order.
    """

    label: str
    std_error: float
    share: float
    meaning: str


class Check(NamedTuple):
    """A block of the report, such as survival or overlap: a caption, a sentence, a small frame.

    `draw(ax=...)` draws it on axes `height` inches high. If the plot names rows, `rows` are
    their numbers instead, one for each of the axes that `draw` takes.
    """

    caption: str
    sentence: str
    frame: pd.DataFrame
    draw: Callable[..., object] | None = None
    rows: tuple[int, ...] = ()
    height: float = 3.2


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The estimated effect as a function of one modifier, averaged over the others."""

    name: str  # The modifier
    kind: Literal["continuous", "levels"]
    grid: Sequence[float] | Sequence[str]  # Public points, in the modifier's own units
    estimate: Sequence[float]
    conf_low: Sequence[float]
    conf_high: Sequence[float]
    interval_label: str = "95% interval"  # Meaning of the band or bars: ``"approximate 95% band"``

    def __post_init__(self) -> None:
        if self.kind not in ("continuous", "levels"):
            raise CapabilityError(
                f"kind={self.kind!r} of an effect curve must be 'continuous' or 'levels'."
            )
        lengths = {len(v) for v in (self.grid, self.estimate, self.conf_low, self.conf_high)}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError(
                "grid, estimate and limits of an effect curve must have the same nonzero length."
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitView:
    """All values that summary, plots and report show of one fit.

    `effects`, `gates` and `cells` have the columns estimate std_error conf_low conf_high for terms
    (the headline effect first), groups and cells.

    - `effects` and `gates` also have max_bias.
    - `effects` also has p_value and `mark`: ``dp`` (released), ``post`` (computed from releases) or
      ``pub`` (declared public).
    - `gates` also has se_sampling.
    - `cells` also has treated and control.
    """

    title: str
    outcome: str
    treatment: str
    left: tuple[Pair, ...]  # Left and right half of the summary's head
    right: tuple[Pair, ...]
    effects: pd.DataFrame | None
    # One line per release: stage query mechanism neighbors sensitivity noise_sd rho epsilon delta
    # rows parallel. `noise_sd` is nan without noise.
    budget: pd.DataFrame
    total: str  # ``"(0.5, 1e-05)-DP"``
    guarantee: tuple[str, ...]  # Sentences; `tables.odds_sentence` writes the sentence on odds
    kind: Kind
    epsilon: float
    delta: float
    rho: float | None  # None if the fit is priced in pure epsilon
    unit_sentence: str  # For whom it holds: ``"One row is one patient."``
    # Three plain sentences: the effect, its uncertainty, and its guarantee
    headline: tuple[str, ...]
    call: str  # Python code that reproduces the fit
    neighbors: Neighbors = "substitute"
    # Maximum power of the best test between two neighboring tables at each false_alarms, both as
    # shares; or None without a proven trade-off function.
    attack: pd.DataFrame | None = None
    lead: int = 0
    alpha: float = 0.05  # Intervals are at level 1 - alpha
    gates: pd.DataFrame | None = None
    cells: pd.DataFrame | None = None
    shapes: tuple[Shape, ...] = ()
    figures: tuple[Check, ...] = ()  # Only this kind of fit has them; before the tables
    third: str = ""  # Title of the report's third section, if not its usual one
    grouped: str = "Average effect by group"  # Title of the groups in that section
    variation: str = ""  # A sentence on whether the effect varies by `shapes`
    # Expected gain of treating the cells with the largest effect first: share, gain, conf_low,
    # conf_high, random
    gains: pd.DataFrame | None = None
    uncertainty: tuple[VarianceSource, ...] = ()  # Parts of the standard error in row `lead`
    bias: str = ""  # That row's maximum bias from clipping, and how its interval allows for it
    adjustment: str = ""  # How far adjustment moved the estimate, and what noise hides of it
    tails: str = ""  # Assumption behind the maximum bias of clipped scores
    parallel: str = ""  # One line on costs in brackets, if there are any
    ledger: str | None = None  # ``"Ledger 'rhc': 1.91 of 2 left."``
    averages: int = 1  # Number of leading `effects` that are not slopes
    notes: tuple[str, ...] = ()
    serious: int = 0  # Number of leading notes that the fit also warned about
    assumptions: tuple[str, ...] = ()
    robustness: str = ""  # How strong an unmeasured confounder would have to be
    checks: tuple[Check, ...] = ()
    methods: tuple[str, ...] = ()
    versions: tuple[Pair, ...] = ()  # Names and versions of packages

    @property
    def errors(self) -> tuple[float, float]:
        """The standard error in row `lead` of `effects`, and its part from sampling alone."""
        alone = sum(s.std_error for s in self.uncertainty if s.label == "sampling")
        return math.hypot(*(s.std_error for s in self.uncertainty)), alone

    @property
    def more(self) -> bool:
        """Whether the interval includes sources other than sampling and privacy noise."""
        return len(self.uncertainty) > 2 or bool(self.bias)
