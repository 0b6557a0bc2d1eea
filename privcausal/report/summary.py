"""The table values of `summary()` and `compare()`, and their output formats."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from privcausal.errors import CapabilityError, Strict
from privcausal.prices import at_most
from privcausal.report import formats, tables
from privcausal.report.plots import forest_plot
from privcausal.report.tables import FitView
from privcausal.typing import Kind

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summary(Strict):
    """A summary that prints itself; its numbers are the same in every format."""

    table: tables.Table

    floats: ClassVar[bool] = False
    """Whether LaTeX uses a float even without a caption and a label."""

    def as_text(self) -> str:
        """The summary as ASCII text of at most 78 columns; long names are cut in the middle."""
        return formats.render_text(self.table)

    __str__ = __repr__ = as_text

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """The tables as LaTeX for a document that loads booktabs: a centered group, or a float.

        Parameters
        ----------
        caption : str, optional
            Plain text. With a caption or a label, the tables are in one floating `table`. A
            comparison always is; its default caption is the title.
        label : str
            For ``\\ref``, inserted literally.
        """
        if caption is None and (label or self.floats):
            caption = self.table.title
        return formats.render_latex(self.table, caption, label)

    def as_html(self) -> str:
        """A `div` of tables, with every name escaped."""
        return formats.render_html(self.table)

    _repr_html_ = as_html

    def as_markdown(self) -> str:
        """Pipe tables for GitHub, Quarto and pandoc."""
        return formats.render_markdown(self.table)

    def as_csv(self) -> str:
        """Comma-separated cells, as printed; `tables` has unrounded numbers."""
        return formats.render_csv(self.table)

    def to_word(self, path: str | os.PathLike[str]) -> None:
        """Write a Word document to `path`; needs the extra ``privcausal[word]``.

        Raises
        ------
        CapabilityError
            python-docx is not installed.
        """
        formats.write_word(self.table, path)

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The head and every table as frames, with full names and unrounded numbers."""
        import pandas as pd

        grids = [block.frame for block in self.table.blocks if isinstance(block, tables.TableGrid)]
        pairs = [(*b.left, *b.right) for b in self.table.blocks if isinstance(b, tables.Pairs)]
        heads = [pd.DataFrame({"value": dict(rows)}, index=[k for k, _ in rows]) for rows in pairs]
        return [*heads, *(frame.copy() for frame in grids if frame is not None)]


class Printed(Strict):
    """An object that prints its summary, and shows it in notebooks."""

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def summarize(view: FitView, *, full: bool = False) -> Summary:
    """The summary of a fit: a card, or with `full` everything about it.

    The card has four lines of facts, the estimates, alerts, budget, and guarantee. The full summary
    adds sources of uncertainty, every release, the meaning of the guarantee, and complete notes.
    """
    # The average, then groups, then slopes, which are the least informative alone. If the fit has
    # effect curves, only the full summary shows slopes. Slopes are not shrunken, but the curves
    # are. Readers would therefore take the slopes for a second, different answer.
    effects, slopes = view.effects, None
    if effects is not None and (view.gates is not None or view.shapes):
        first, rest = effects.iloc[: view.averages], effects.iloc[view.averages :]
        effects, slopes = first, rest if full or not view.shapes else None
    grids = (
        (effects, tables.effect_grid),
        (view.gates, tables.gate_grid),
        (slopes, tables.slope_grid),
        (view.cells, tables.cell_grid),
    )
    estimates: list[list[tables.TableBlock]] = [
        [grid(frame, view.alpha)] for frame, grid in grids if frame is not None and len(frame)
    ]
    below = (view.adjustment, *(() if full else (view.region,)))
    if any(below) and estimates:
        estimates[0].append(tables.Prose(tuple(filter(None, below))))
    one = view.cells is not None and len(view.shapes) == 1  # its effects are those of the cells
    if view.shapes and (full or not one):
        lead = (view.variation,) if view.variation else ()
        shown = view.shapes if full or view.varies else ()
        lines = (f"{tables.clean(shape.name)}: {tables.shape_line(shape)}" for shape in shown)
        estimates.append([tables.Prose((*lead, *lines), "Effect by modifier")])
    promise = " ".join(view.guarantee if full else view.promise)
    private: tables.TableBlock = tables.Prose(
        (f"{'' if view.kind == 'none' else 'Privacy: '}{promise}",)
    )
    left, right = view.left, view.right
    ends: list[list[tables.TableBlock]]
    if full:
        numbered = " ".join(f"[{i}] {note}" for i, note in enumerate(view.notes, 1))
        notes: list[tables.TableBlock] = [tables.Prose((f"Notes: {numbered}",) if numbered else ())]
        ends = [_ruled([*_prices(view), [private]]), notes]
    else:
        complete = tuple(fact for fact in left if fact[0] == tables.COMPLETE)
        left = tuple(fact for fact in left if fact[0] not in (*ON_FULL, tables.COMPLETE))
        right = (*right[:2], *(fact for fact in right if fact[0] in ON_CARD), *complete)
        firsts = (tables.first_sentence(note) for note in view.notes[: view.serious])
        alerts = (shorten(f"Alert: {text}", ALERT_WIDTH, placeholder=" ...") for text in firsts)
        ends = [
            [tables.Prose((*alerts, *_cost(view))), private, tables.Prose((MORE,), console=True)]
        ]
    head: list[tables.TableBlock] = [tables.Pairs("The analysis", left, right)]
    parts = [head, _ruled(estimates), *ends]
    blocks = [block for part in parts if part for block in (tables.Rule("="), *part)]
    return Summary(tables.Table(view.title, tuple(blocks), tables.ALERTS[view.kind]))


ON_FULL = ("Periods", "Instrument", "Treated (noisy)", "Outcome bounds")
"""Facts that only the full summary shows."""

ON_CARD = ("Horizon", "Weights", "First-stage F", "Instruments agree")
"""Facts about the estimator that the card shows, too."""

ALERT_WIDTH = 150
"""Maximum characters of an alert on the card: two lines."""


def _cost(view: FitView) -> tuple[str, ...]:
    """One line: how the budget was divided, and what is left of it."""
    stages = tables.stage_shares(view.budget)
    shares = (f"{SHOWN.get(k, k)} {tables.share_percent(s)}" for k, s in stages.items())
    parts = [f"Budget: {', '.join(shares)}."] if len(stages) > 1 else []
    line = " ".join([*parts, *([view.ledger.split(REST)[0]] if view.ledger else [])])
    return (line,) if line else ()


def _prices(view: FitView) -> list[list[tables.TableBlock]]:
    """Tables of the sources of the uncertainty, and of the cost."""
    terms = [] if view.effects is None else [str(term) for term in view.effects.index]
    of = f" of {terms[view.lead]}" if len(terms) > 1 else ""
    grouped = view.gates is not None and len(view.gates)
    remarks = [line for line in (view.bias, view.tails, SAMPLING if grouped else "") if line]
    mechanisms = {str(name) for name in view.budget["mechanism"] if name}
    noise = mechanisms.pop() if len(mechanisms) == 1 else None
    costs = [f"Cost of this fit: {view.total}." + (f"  {view.ledger}" if view.ledger else "")]
    costs += [f"Noise: {noise}."] if noise else []
    costs += [RHO.format(at_most(view.rho))] if view.rho else []
    costs += [view.parallel] if view.parallel else []
    budget = tables.budget_grid(view.budget, mechanisms=noise is None)
    parts: list[list[tables.TableBlock]] = [[budget, tables.Prose(tuple(costs))]]
    if view.uncertainty:
        grid = tables.source_grid(view.uncertainty, of)
        parts.insert(0, [grid, *([tables.Prose(tuple(remarks))] if remarks else [])])
    return parts


SHOWN = {"nuisance": "models for adjustment"}
"""Display names of stages."""

SAMPLING = "Sampling: the standard error of each group from sampling alone."
REST = " More remains than"

RHO = "rho is the cost in zero-concentrated DP, rounded up. All releases cost {}."


def _ruled(parts: list[list[tables.TableBlock]]) -> list[tables.TableBlock]:
    """The parts, separated by light rules."""
    return [
        block for i, part in enumerate(parts) for block in ([tables.Rule("-")] if i else []) + part
    ]


MORE = "summary(full=True) has the meaning, the releases, and the assumptions."

# -- several fits in one table ---------------------------------------------------------------------

Statistic: TypeAlias = Literal["std_error", "conf_int", "p_value"]

TIDY = (
    "term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high", "max_bias",
)  # fmt: skip

BELOW: dict[str, str] = {
    "std_error": "Standard errors in parentheses{bias}",
    "conf_int": "{level} confidence intervals in brackets",
    "p_value": "p-values in parentheses",
}

FACT = 19
"""Maximum characters of a fact about a fit (a column's name); `Comparison.stats` has it all."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Summary):
    """One table of several fits, which prints itself.

    Attributes
    ----------
    frame : DataFrame
        One row per fit and term, unrounded: fit term estimate std_error statistic p_value conf_low
        conf_high max_bias.
    stats : DataFrame
        One row per fit: the facts below the estimates, as text.
    alpha : float
        Limits are at level 1 - alpha.
    """

    frame: pd.DataFrame
    stats: pd.DataFrame
    alpha: float = 0.05

    floats: ClassVar[bool] = True

    @property
    def tables(self) -> list[pd.DataFrame]:
        """`frame` and `stats`."""
        return [self.frame.copy(), self.stats.copy()]

    def plot(self, term: str | None = None, *, ax: Any = None) -> Any:
        """Forest plot of one term over all fits that have it; default: the first fit's first term.

        Raises
        ------
        CapabilityError
            No fit has the term.
        """
        wanted = str(self.frame["term"].iloc[0]) if term is None else term
        rows = self.frame[self.frame["term"] == wanted].set_index("fit")
        if rows.empty:
            choices = ", ".join(map(repr, dict.fromkeys(self.frame["term"])))
            raise CapabilityError(f"No fit has the term {wanted!r}. Choices: {choices}.")
        return forest_plot(rows, ax=ax, alpha=self.alpha, term=wanted)


def compared(
    frame: pd.DataFrame,
    facts: Mapping[str, Mapping[str, str]],
    kinds: Collection[Kind],
    title: str,
    statistic: Statistic,
    alpha: float,
    notes: Sequence[str],
) -> Comparison:
    """The comparison of fits: terms in order of appearance, facts as in the fit with the most.

    Parameters
    ----------
    frame : DataFrame
        As `Comparison.frame`; names of fits and terms are untrusted text.
    facts : mapping
        For each fit, facts about the fit as a whole, by label: text, ready to print.
    kinds : collection of {"proven", "published", "none"}
        Guarantee kinds of the fits that this package made.
    """
    import pandas as pd

    fullest = sorted(facts.values(), key=len, reverse=True)
    labels = list(dict.fromkeys(label for lines in fullest for label in lines))
    stats = pd.DataFrame(
        {label: [lines.get(label, "") for lines in facts.values()] for label in labels},
        index=pd.Index(list(facts), name="fit"),
    )
    # Limits and p values allow for the bias; standard errors do not.
    biased = statistic == "std_error" and bool((frame["max_bias"] > 0).any())
    heads = (tables.TableColumn(tables.clean(fit), "center") for fit in stats.index)
    # The estimate of a term, and the text of the two lines below it.
    cells = {}
    for row in frame.to_dict("records"):
        estimate, error, bias, low, high = tables.estimates(row)
        texts = {
            "std_error": f"({error})",
            "conf_int": f"[{low}, {high}]",
            "p_value": f"({tables.p_value_text(float(row['p_value']))})",
        }
        braces = f"{{{bias}}}" if row["max_bias"] > 0 else ""
        cells[row["fit"], str(row["term"])] = estimate, texts[statistic], braces
    rows = [
        (term * (line == 0), *(cells.get((fit, term), ("",) * 3)[line] for fit in stats.index))
        for term in dict.fromkeys(map(str, frame["term"]))
        for line in range(3 if biased else 2)
    ]
    lines: list[tuple[str, ...]] = []
    for label in stats:  # on as many lines as the longest value needs
        broken = [wrap(tables.clean(value), FACT) for value in stats[label]]
        lines += zip_longest([str(label)], *broken, fillvalue="")
    columns = (tables.TableColumn("", "left", "term"), *heads)
    breaks = (len(rows),) if lines else ()
    grid = tables.TableGrid("Estimates by fit", columns, (*rows, *lines), frame, breaks=breaks)
    bias = ", maximum bias from clipping in braces" if biased else ""
    below = BELOW[statistic].format(level=tables.confidence(alpha), bias=bias)
    legend = tables.Prose((f"Notes: {' '.join([f'{below}.', *notes])}",))
    blocks = (tables.Rule("="), grid, tables.Rule("="), legend)
    worst: Kind = "none" if "none" in kinds else "published" if "published" in kinds else "proven"
    return Comparison(tables.Table(title, blocks, tables.ALERTS[worst]), frame, stats, alpha)
