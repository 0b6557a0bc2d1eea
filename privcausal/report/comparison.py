"""Several fits in one table: a column each, a term's number above its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from privcausal.report import latex, numbers
from privcausal.report.summary import Summary
from privcausal.report.table import Column, Grid, Prose, Rule, Table
from privcausal.report.words import ALERTS, clean, cut
from privcausal.typing import Kind

if TYPE_CHECKING:
    import pandas as pd

Statistic: TypeAlias = Literal["std_error", "conf_int", "p_value"]

TIDY = ("term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high")

BELOW: dict[str, str] = {
    "std_error": "Standard errors in parentheses",
    "conf_int": "{level} confidence intervals in brackets",
    "p_value": "p values in parentheses",
}

FACT = 16
"""Characters of a fact about a fit (a column's name); `Comparison.stats` has it whole."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One fit of a comparison.

    Attributes
    ----------
    name : str
        Head of its column; untrusted text.
    terms : DataFrame
        A row per term, columns `TIDY`.
    facts : mapping
        What is said of the fit as a whole, by label: text, ready to print.
    kind : {"proven", "published", "none"} or None
        Of its guarantee; None for a fit that another package made.
    """

    name: str
    terms: pd.DataFrame
    facts: Mapping[str, str]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Summary):
    """One table of several fits, which prints itself.

    Attributes
    ----------
    frame : DataFrame
        A row per fit and term, unrounded: fit term estimate std_error statistic p_value conf_low
        conf_high.
    stats : DataFrame
        A row per fit: what stands below the estimates, as text.
    """

    frame: pd.DataFrame
    stats: pd.DataFrame

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """A floating `table` for a document that loads booktabs.

        Parameters
        ----------
        caption : str, optional
            Plain text; the title unless given.
        label : str
            For ``\\ref``, put there as it is.
        """
        title = self.table.title if caption is None else caption
        return latex.render_float(self.table, title, label)

    @property
    def tables(self) -> list[pd.DataFrame]:
        """`frame` and `stats`."""
        return [self.frame.copy(), self.stats.copy()]


def compared(
    entries: Sequence[Entry], title: str, statistic: Statistic, alpha: float, notes: Sequence[str]
) -> Comparison:
    """The comparison of `entries`: terms as they first appear, facts as the fullest has them."""
    import pandas as pd

    frame = pd.concat([e.terms.assign(fit=e.name) for e in entries], ignore_index=True)
    frame = frame[["fit", *TIDY]]
    fullest = sorted(entries, key=lambda entry: -len(entry.facts))
    labels = list(dict.fromkeys(label for entry in fullest for label in entry.facts))
    stats = pd.DataFrame(
        {label: [entry.facts.get(label, "") for entry in entries] for label in labels},
        index=pd.Index([entry.name for entry in entries], name="fit"),
    )
    grid = _grid(entries, statistic, labels, frame)
    said = " ".join([f"{BELOW[statistic].format(level=numbers.level(alpha))}.", *notes])
    blocks = (Rule("="), grid, Rule("="), Prose((f"Notes: {said}",)))
    return Comparison(Table(title, blocks, _alert(entries)), frame, stats)


def _alert(entries: Sequence[Entry]) -> str:
    """What its worst column would say of itself."""
    kinds = {entry.kind for entry in entries}
    return ALERTS["none" if "none" in kinds else "published" if "published" in kinds else "proven"]


def _grid(
    entries: Sequence[Entry], statistic: Statistic, labels: Sequence[str], frame: pd.DataFrame
) -> Grid:
    columns = (
        Column("", "left", "term"),
        *(Column(clean(entry.name), "center") for entry in entries),
    )
    cells = [_cells(entry.terms, statistic) for entry in entries]
    terms = list(dict.fromkeys(str(term) for term in frame["term"]))
    rows = [
        (name, *(column.get(term, ("", ""))[line] for column in cells))
        for term in terms
        for line, name in enumerate((term, ""))
    ]
    facts = [
        (label, *(cut(clean(entry.facts.get(label, "")), FACT) for entry in entries))
        for label in labels
    ]
    return Grid(
        "Estimates by fit", columns, (*rows, *facts), frame, breaks=(len(rows),) if facts else ()
    )


def _cells(terms: pd.DataFrame, statistic: Statistic) -> dict[str, tuple[str, str]]:
    """The estimate of each term, and what stands below it."""
    found = {}
    for row in terms.to_dict("records"):
        spread, p = float(row["std_error"]), float(row["p_value"])
        values = [float(row[name]) for name in ("estimate", "conf_low", "conf_high")]
        estimate, error, low, high = numbers.alike([values[0], spread, *values[1:]], spread)
        below = {
            "std_error": f"({error})",
            "conf_int": f"[{low}, {high}]",
            "p_value": f"({numbers.p_value(p)})",
        }
        found[str(row["term"])] = (estimate, below[statistic])
    return found
