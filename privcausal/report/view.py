"""What a fit shows of itself: plain values, filled by the results, read by everything here.

A view holds released, public or computed-from-released values only. Names in it (columns,
levels, groups) are untrusted text; whoever prints them cleans and escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from privcausal.errors import CapabilityError, DataError
from privcausal.typing import Kind, Neighbors

if TYPE_CHECKING:
    import pandas as pd


Pair: TypeAlias = tuple[str, str]


class VarianceSource(NamedTuple):
    """One source of the first effect's uncertainty; squared `std_error`s add up.

    `share` is its part of the variance in [0, 1]; `meaning` a few plain words (up to about 30
    characters fit a text summary). List sampling first: nested bars are drawn in this order.
    """

    label: str
    std_error: float
    share: float
    meaning: str


class Check(NamedTuple):
    """A diagnostic that was bought (overlap, balance): a caption, a sentence, a small frame.

    `draw` draws it on the axes that it is given; `rows` of it are named there, if any are.
    """

    caption: str
    sentence: str
    frame: pd.DataFrame
    draw: Callable[[Any], object] | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The estimated effect as a function of one modifier, the others averaged out.

    Attributes
    ----------
    name : str
        The modifier.
    kind : {"continuous", "levels"}
    grid : sequence of float, or of labels, length m
        Public points, in the modifier's own units.
    estimate, conf_low, conf_high : sequence of float, length m
    interval_label : str
        What the band or bars mean: ``"approximate 95% band"``.
    """

    name: str
    kind: Literal["continuous", "levels"]
    grid: Sequence[float] | Sequence[str]
    estimate: Sequence[float]
    conf_low: Sequence[float]
    conf_high: Sequence[float]
    interval_label: str = "95% interval"

    def __post_init__(self) -> None:
        if self.kind not in ("continuous", "levels"):
            raise CapabilityError(f"kind={self.kind!r} of a shape: write continuous or levels")
        lengths = {len(v) for v in (self.grid, self.estimate, self.conf_low, self.conf_high)}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError("grid, estimate and limits of a shape need one length of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitView:
    """All that summary, plots and report show of one fit.

    Attributes
    ----------
    left, right : tuple of (label, value)
        The head of the summary, printed side by side.
    effects, gates, cells : DataFrame or None
        Index: terms, the headline effect first; groups; cells. Columns estimate std_error conf_low
        conf_high; of effects and gates max_bias; of effects p_value and `mark`: ``dp`` (released),
        ``post`` (computed from releases) or ``pub`` (declared public); of gates privacy_share; of
        cells treated control.
    gains : DataFrame or None
        Expected gain of treating the cells with the largest effect first: share, gain, conf_low,
        conf_high, random.
    variation : str
        Whether the effect varies by `shapes`, in a sentence; may be empty.
    averages : int
        How many of `effects`, the first ones, are no slopes.
    uncertainty : tuple of VarianceSource
        Of the standard error of the row of `effects` at `lead`.
    bias : str
        What clipping may bias that row, and how its interval allows for it; may be empty.
    tails : str
        One line on what the bound of the bias of cut scores rests on; may be empty.
    parallel : str
        One line on prices in brackets, where there are any; may be empty.
    lead : int
    alpha : float
        Intervals are at level 1 - alpha.
    guarantee : tuple of str
        Sentences; `words.odds_sentence` writes the one on odds.
    unit_sentence : str
        Who is protected: ``"One row is one patient."``
    attack : DataFrame or None
        What the guarantee lets the best test between two neighbouring tables do: its power at most
        at each false_alarms, both shares. None where no trade-off function is proven.
    epsilon, delta, rho : float
        The price of this fit; `rho` is nan where the fit is priced in pure epsilon.
    budget : DataFrame
        A line per release: stage query mechanism neighbors sensitivity noise_sd rho epsilon delta
        rows parallel; `noise_sd` nan where there is none.
    total, ledger : str
        ``"(0.5, 1e-05)-DP"``; ``"Ledger 'rhc': 1.91 of 2 left."`` or None.
    headline : tuple of str
        Three plain sentences: the effect, how sure, what was protected.
    notes, assumptions, methods : tuple of str
        Sentences, sentences and paragraphs.
    serious : int
        So many of the notes, the first, were warned of.
    robustness : str
        One sentence on how strong an unmeasured confounder would have to be; may be empty.
    call : str
        Python that reproduces the fit.
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
    def more(self) -> bool:
        """Whether the interval counts more than sampling and privacy noise."""
        return len(self.uncertainty) > 2 or bool(self.bias)
