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
    """A figure or a diagnostic release (overlap, balance): a caption, a sentence, a small frame.

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

    Attributes
    ----------
    left, right : tuple of (label, value)
        The head of the summary, printed side by side.
    effects, gates, cells : DataFrame or None
        Index: terms, the headline effect first; groups; cells. All have the columns estimate
        std_error conf_low conf_high.

        - `effects` and `gates` also have max_bias.
        - `effects` also has p_value and `mark`: ``dp`` (released), ``post`` (computed from
          releases) or ``pub`` (declared public).
        - `gates` also has se_sampling.
        - `cells` also has treated and control.
    gains : DataFrame or None
        Expected gain of treating the cells with the largest effect first: share, gain, conf_low,
        conf_high, random.
    figures : tuple of Check
        Figures that only this kind of fit has, shown before the tables of estimates.
    third, grouped : str
        Titles of the report's third section (if empty, the report has a title for it), and of the
        groups in it.
    variation : str
        A sentence on whether the effect varies by `shapes`; may be empty.
    averages : int
        Number of leading `effects` that are not slopes.
    uncertainty : tuple of VarianceSource
        Sources of the standard error in row `lead` of `effects`.
    bias : str
        The maximum bias of that row from clipping, and how its interval allows for it; may be
        empty.
    tails : str
        One line on the assumption behind the maximum bias of clipped scores; may be empty.
    parallel : str
        One line on costs in brackets, if there are any; may be empty.
    lead : int
    alpha : float
        Intervals are at level 1 - alpha.
    guarantee : tuple of str
        Sentences; `tables.odds_sentence` writes the sentence on odds.
    unit_sentence : str
        Who is protected: ``"One row is one patient."``
    attack : DataFrame or None
        Maximum power of the best test between two neighboring tables at each false_alarms, both as
        shares. None if no trade-off function is proven.
    epsilon, delta, rho : float
        The cost of this fit; `rho` is nan if the fit is priced in pure epsilon.
    budget : DataFrame
        One line per release: stage query mechanism neighbors sensitivity noise_sd rho epsilon delta
        rows parallel. `noise_sd` is nan if there is no noise.
    total, ledger : str
        ``"(0.5, 1e-05)-DP"``; ``"Ledger 'rhc': 1.91 of 2 left."`` or None.
    headline : tuple of str
        Three plain sentences: the effect, its uncertainty, and what was protected.
    notes, assumptions, methods : tuple of str
        Sentences, sentences and paragraphs.
    serious : int
        Number of leading notes that the fit also warned about.
    robustness : str
        One sentence on how strong an unmeasured confounder would have to be; may be empty.
    call : str
        Python code that reproduces the fit.
    versions : tuple of (name, version)
    """

    title: str
    outcome: str
    treatment: str
    left: tuple[Pair, ...]
    right: tuple[Pair, ...]
    effects: pd.DataFrame | None
    budget: pd.DataFrame
    total: str
    guarantee: tuple[str, ...]
    kind: Kind
    epsilon: float
    delta: float
    rho: float
    unit_sentence: str
    headline: tuple[str, ...]
    call: str
    neighbors: Neighbors = "substitute"
    attack: pd.DataFrame | None = None
    lead: int = 0
    alpha: float = 0.05
    gates: pd.DataFrame | None = None
    cells: pd.DataFrame | None = None
    shapes: tuple[Shape, ...] = ()
    figures: tuple[Check, ...] = ()
    third: str = ""
    grouped: str = "Average effect by group"
    variation: str = ""
    gains: pd.DataFrame | None = None
    uncertainty: tuple[VarianceSource, ...] = ()
    bias: str = ""
    tails: str = ""
    parallel: str = ""
    ledger: str | None = None
    averages: int = 1
    notes: tuple[str, ...] = ()
    serious: int = 0
    assumptions: tuple[str, ...] = ()
    robustness: str = ""
    checks: tuple[Check, ...] = ()
    methods: tuple[str, ...] = ()
    versions: tuple[Pair, ...] = ()

    @property
    def errors(self) -> tuple[float, float]:
        """The standard error in row `lead` of `effects`, and its part from sampling alone."""
        alone = sum(s.std_error for s in self.uncertainty if s.label == "sampling")
        return math.hypot(*(s.std_error for s in self.uncertainty)), alone

    @property
    def more(self) -> bool:
        """Whether the interval includes sources other than sampling and privacy noise."""
        return len(self.uncertainty) > 2 or bool(self.bias)
