"""Data-holder check: which values will be clipped, missing, or undeclared, row by row.

The findings are exact. They cost no budget and are not private, so only the data holder may see
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from privcausal.errors import DataError, Strict
from privcausal.request.schema import OTHER, Domain, Interval, Levels, Schema, label_key
from privcausal.typing import Integers, Mask
from privcausal.vault.batch import RawColumn, reads_labels

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.vault.admission import Source

BANNER = "DO NOT PUBLISH: exact findings about private rows"

SHOWN_ROWS = 5
"""Number of row positions per line of the frame; `Findings.rows` returns all positions."""

MOST_LINES = 60
"""Maximum number of lines printed; `Findings.frame` has all lines."""

NO_PROBLEM = "no problem"

FINDING_COLUMNS = ("column", "type", "problem", "consequence", "rows", "examples")

_MISSING = "is ignored (incomplete row)"
_REFUSED = "the fit stops with an error"


class Finding(NamedTuple):
    """One problem of one column, and the positions (from 0) of the affected rows."""

    column: str
    kind: str
    problem: str
    consequence: str
    # No rows are affected if the problem is one of the whole column.
    positions: Integers = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Strict):
    """Findings of `inspect`, column by column.

    This is the only class in the vault that may be printed. The person who holds the rows must see
    where a typing error is in order to fix it. Therefore the printed text starts and ends with DO
    NOT PUBLISH. No finding enters a result.
    """

    found: tuple[Finding, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One line per problem: column type problem consequence rows examples.

        `rows` is the number of affected rows. `examples` holds the first affected positions, from
        0. A declared column without a problem has the line "no problem". The name of the index is
        the mark of the printed text, so that copies of the frame carry it.
        """
        import pandas as pd

        lines = []
        for f in self.found:
            examples = tuple(f.positions[:SHOWN_ROWS].tolist())
            line = (f.column, f.kind, f.problem, f.consequence, len(f.positions), examples)
            lines.append(line)
        index = pd.RangeIndex(len(lines), name=BANNER)
        return pd.DataFrame(lines, index, columns=list(FINDING_COLUMNS))

    def rows(self, column: str, problem: str) -> Integers:
        """Positions, from 0, of all rows of `column` with this `problem` of `frame`.

        Raises
        ------
        DataError
            If `frame` has no such line. The message lists the column's problems.
        """
        findings = [f for f in self.found if f.column == column]
        for finding in findings:
            if finding.problem == problem:
                return finding.positions
        if findings:
            problems = ", ".join(repr(f.problem) for f in findings[:10])
            raise DataError(
                f"Column {column!r} does not have this problem. Its problems: {problems}."
            )
        raise DataError(f"Column {column!r} is not declared and not in the data.")

    def __str__(self) -> str:
        table = [FINDING_COLUMNS, *(_texts(f) for f in self.found[:MOST_LINES])]
        widths = [max(len(line[i]) for line in table) for i in range(len(FINDING_COLUMNS))]
        lines = (
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in table
        )
        more = len(self.found) - MOST_LINES
        rest = [f"... and {more} more lines; see .frame"] if more > 0 else []
        return "\n".join([BANNER, *lines, *rest, BANNER])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(f'<th scope="col">{name}</th>' for name in FINDING_COLUMNS)
        lines = (
            "".join(f"<td>{escape(cell)}</td>" for cell in _texts(f))
            for f in self.found[:MOST_LINES]
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        more = len(self.found) - MOST_LINES
        rest = f"<p>... and {more} more lines; see .frame</p>" if more > 0 else ""
        banner = f'<p role="note"><strong>{BANNER}</strong></p>'
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{banner}{table}{rest}{banner}</div>"


def inspect(source: Source, schema: Schema, names: Iterable[str]) -> Findings:
    """Compare every row with the declared domains, reading the rows in the same way as a fit.

    Parameters
    ----------
    source : Source
    schema : Schema
        Declared domains. A fit reads a treatment as 0/1 even if an interval (0, 1) was declared.
        Declare it as ``Binary()`` to see which of its rows are incomplete.
    names : iterable of str
        The columns to check.

    Returns
    -------
    Findings
        First the declared columns in the order of the schema, then the undeclared columns.
    """
    names = dict.fromkeys(names)
    findings = []
    for name in (name for name in schema if name in names):
        kind, declared = source.header.kinds.get(name), list[Finding]()
        if kind is None:
            declared.append(Finding(name, "absent", "not in the data", _REFUSED))
        elif kind == "other":
            declared.append(Finding(name, kind, "a type that cannot be read", _REFUSED))
        else:
            domain = schema[name]
            if kind == "text" and isinstance(domain, Interval):
                declared.append(Finding(name, kind, "text with numeric bounds", _REFUSED))
            problems = _problems(source, name, domain, complete=schema.complete)
            for problem, consequence, rows in problems:
                if len(rows):
                    rows.setflags(write=False)
                    declared.append(Finding(name, kind, problem, consequence, rows))
        findings += declared or [Finding(name, str(kind), NO_PROBLEM, "")]
    for name in names:
        if name not in schema:
            kind = source.header.kinds[name]
            other = "levels are estimated privately; a treatment needs two labels"
            consequence = _REFUSED if kind == "other" else _UNDECLARED.get(kind, other)
            findings.append(Finding(name, kind, "not declared", consequence))
    return Findings(tuple(findings))


_UNDECLARED = {
    "bool": "is read as 0/1",
    "numeric": "bounds are estimated privately; a treatment is read as 0/1",
}


# Problems of rows: (problem, consequence in a fit, positions of the rows).

ColumnProblem = tuple[str, str, Integers]


def _problems(
    source: Source, name: str, domain: Domain, *, complete: bool
) -> Iterator[ColumnProblem]:
    kind = source.header.kinds[name]
    column = source.rows.column(name, as_labels=reads_labels(domain, kind))
    absent = _absent(column)
    untyped = source.header.untyped
    if isinstance(domain, Interval) and absent.any() and (kind == "text" or untyped):
        # Text that is not missing may still be unreadable as a number. Units are texts as written.
        written = source.rows.column(name, as_labels="units" if untyped else True)
        unread = absent & ~_absent(written)
        if unread.any():
            assert written.codes is not None
            first = written.labels[written.codes[unread.argmax()]]
            yield f"not a number, first {first!r}", _MISSING, np.flatnonzero(unread)
        absent &= ~unread
    problem = "missing, but declared complete" if complete else "missing"
    yield problem, _MISSING, np.flatnonzero(absent)
    # Values that are present, but not in the domain.
    if isinstance(domain, Interval):
        assert column.numbers is not None
        lo, hi = label_key(domain.lo), label_key(domain.hi)
        yield "infinite", _MISSING, np.flatnonzero(np.isinf(column.numbers))
        finite = np.where(np.isfinite(column.numbers), column.numbers, np.nan)
        # A comparison with NaN is False, so missing values are in neither class.
        yield f"below {lo}", f"becomes {lo}", np.flatnonzero(finite < domain.lo)
        yield f"above {hi}", f"becomes {hi}", np.flatnonzero(finite > domain.hi)
        return
    if isinstance(domain, Levels):
        declared, problem = domain.labels, "undeclared level"
        consequence = f"becomes {OTHER!r}" if domain.other else "belongs to no level"
    else:
        declared, consequence = (*domain.zeros, *domain.ones), _MISSING
        problem = f"neither {domain.zero!r} nor {domain.one!r} but"
    # Each label that occurs, in alphabetical order, and the positions of its rows.
    codes, labels = column.codes, column.labels
    if codes is None:
        assert column.numbers is not None
        values, inverse = np.unique(column.numbers, return_inverse=True)
        # NaN is one value and sorts last, so only its code has no label.
        codes = np.where(np.isnan(column.numbers), -1, inverse)
        labels = tuple(str(label_key(value)) for value in values if not np.isnan(value))
    # Sort once for all labels, because a column of names may have one label per row.
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(labels) + 1))
    for code in sorted(range(len(labels)), key=labels.__getitem__):
        if labels[code] not in declared:
            rows = order[ends[code] : ends[code + 1]]
            yield f"{problem} {labels[code]!r}", consequence, rows


def _absent(column: RawColumn) -> Mask:
    if column.numbers is not None:
        return np.isnan(column.numbers)
    assert column.codes is not None
    return column.codes < 0


# Printed output.


def _texts(finding: Finding) -> Sequence[str]:
    """The six cells of a line. Names and levels are untrusted: control characters are escaped."""
    count = len(finding.positions)
    more = ", ..." if count > SHOWN_ROWS else ""
    examples = ", ".join(map(str, finding.positions[:SHOWN_ROWS])) + more
    cells = (finding.column, finding.kind, finding.problem, finding.consequence)
    texts = (text if text.isprintable() else repr(text) for text in cells)
    short = (text if len(text) <= 60 else f"{text[:57]}..." for text in texts)
    return *short, str(count) if count else "", examples
