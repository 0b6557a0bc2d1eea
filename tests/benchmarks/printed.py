"""Printed numbers beside measured ones, with verdicts that follow from standard errors.

``python tests/benchmarks/printed.py`` computes every line from stored rows, writes each paper's
``verdicts.csv``, and updates the two pages on papers of the site.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from scipy.stats import binomtest, wilcoxon

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference"
FOLDERS = {"Niu": "niu", "DP-CATE": "dpcate", "ADUM": "adum", "PrivATE": "private"}
"""Paper -> its folder here."""

LIMIT = 2.6
"""Standard errors: two normal means differ by more in one of a hundred cases."""

LEAST_RUNS = 3
"""Fewer runs have no standard error that is worth its name."""

REPRODUCED, DIFFERS, MISSING = "reproduced", "differs", "missing"
Claim = Literal["equal", "at least", "at most", "above", "below"]
NAN = math.nan


@dataclass(frozen=True)
class Line:
    """One number or statement of a paper, and ours.

    Parameters
    ----------
    printed : float
        The printed number; nan if the paper states a pattern without one.
    measured : float
        Ours; nan if it was not run.
    error : float
        Standard error of the difference, from the runs on both sides. 0: both numbers are exact.
    printed_runs, runs : int
        The number of runs on each side; 0 if none is stated.
    claim : str
        "equal": the printed number. "at least" or "at most": a bound, which differs only if it is
        exceeded by `LIMIT` standard errors. "above" or "below": a pattern, which must be shown by
        `LIMIT` standard errors; if neither it nor its contrary is, runs are missing.
    level : float
        What `measured` is compared with; nan: `printed`.
    log : bool
        Compare logarithms, of which `error` is then the standard error.
    reason : str
        Why it differs or is missing.
    group : str
        Lines of an item with the same group are also tested together (`pooled`).
    """

    item: str
    says: str
    printed: float
    measured: float
    error: float
    printed_runs: int
    runs: int
    command: str
    claim: Claim = "equal"
    level: float = NAN
    log: bool = False
    reason: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        if self.verdict != REPRODUCED and not self.cause:
            raise ValueError(f"{self.item}: {self.says}: {self.verdict}, and no reason is given")

    @property
    def gap(self) -> float:
        """Ours less the printed number or the level, or the logarithm of their ratio."""
        level = self.printed if math.isnan(self.level) else self.level
        return math.log(self.measured / level) if self.log else self.measured - level

    @property
    def distance(self) -> float:
        """How far ours is above the printed number or the level, in standard errors."""
        level = self.printed if math.isnan(self.level) else self.level
        if any(math.isnan(v) for v in (self.measured, self.error, level)):
            return NAN
        gap = self.gap
        if self.error == 0:
            return 0.0 if abs(gap) <= 1e-9 * max(1.0, abs(level)) else math.copysign(math.inf, gap)
        return gap / self.error

    @property
    def verdict(self) -> str:
        """``reproduced``, ``differs`` or ``missing``."""
        z = self.distance
        if math.isnan(z):
            return MISSING
        if self.claim in ("above", "below"):
            right = z if self.claim == "above" else -z
            if right >= LIMIT:
                return REPRODUCED
            return DIFFERS if right <= -LIMIT or self.error == 0 else MISSING
        wrong = {"equal": abs(z), "at most": z, "at least": -z}[self.claim]
        return REPRODUCED if wrong <= LIMIT else DIFFERS

    @property
    def cause(self) -> str:
        """Why it is not reproduced; empty if it is."""
        if self.verdict == REPRODUCED:
            return ""
        if self.verdict == MISSING and not math.isnan(self.distance):
            return f"the runs do not settle the sign (within {LIMIT} standard errors of no effect)"
        return self.reason


# -- helpers of the studies ----------------------------------------------------------------------


def one_version(rows: pd.DataFrame, keys: Sequence[str] = ("method",)) -> pd.DataFrame:
    """For each method, the rows by the version of the code that made most of them."""
    counts = rows.groupby([*keys, "code"], sort=False).size().reset_index(name="count")
    best = counts.sort_values("count", kind="stable").drop_duplicates([*keys], keep="last")
    return rows.merge(best[[*keys, "code"]], on=[*keys, "code"]).reset_index(drop=True)


def share_error(ours: float, runs: int, theirs: float, printed_runs: int) -> float:
    """Standard error of a difference of two shares; half a hit at 0 and 1."""
    square = 0.0
    for share, count in ((ours, runs), (theirs, printed_runs)):
        p = min(max(share, 0.5 / count), 1 - 0.5 / count)
        square += p * (1 - p) / count
    return math.sqrt(square)


def mean_error(values: Any) -> tuple[float, float]:
    """A mean and its standard error, which is nan for fewer than `LEAST_RUNS` values."""
    values = pd.Series(values, dtype=float)
    return float(values.mean()), float(values.sem()) if len(values) >= LEAST_RUNS else NAN


# -- lines that are tested together --------------------------------------------------------------

LEAST_LINES = 6
"""Of five lines that all lie on one side, the sign test has p = .06."""


@dataclass(frozen=True)
class Pooled:
    """How the lines of a group lie around their printed numbers.

    Attributes
    ----------
    above : int
        Lines in which ours is above the printed number.
    middle : float
        Median of ours over the printed number, or of the difference if `log` is False.
    sign, wilcoxon : float
        p values of the sign test and of Wilcoxon's signed rank test, as if lines were independent.
    """

    item: str
    group: str
    lines: int
    above: int
    middle: float
    log: bool
    sign: float
    wilcoxon: float

    @property
    def verdict(self) -> str:
        """Whether either test finds a gap at .01, the level of a single line."""
        return "gap" if min(self.sign, self.wilcoxon) < 0.01 else "none seen"


def pooled(lines: Iterable[Line]) -> list[Pooled]:
    """The groups of at least `LEAST_LINES` lines that have a distance, in their order."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.group and not math.isnan(line.distance):
            groups.setdefault((line.item, line.group), []).append(line)
    found = []
    for (item, group), own in groups.items():
        gaps = pd.Series([line.gap for line in own])
        if len(own) < LEAST_LINES:
            continue
        above, log, middle = int((gaps > 0).sum()), own[0].log, float(gaps.median())
        sign = float(binomtest(above, int((gaps != 0).sum())).pvalue)
        found.append(
            Pooled(item, group, len(own), above, math.exp(middle) if log else middle, log, sign,
                   float(wilcoxon(gaps).pvalue))
        )  # fmt: skip
    return found


# -- lines and files -----------------------------------------------------------------------------


def _makers() -> dict[str, Any]:
    """The module that makes each paper's lines."""
    sys.path += [p for p in (str(HERE), str(HERE / "coverage")) if p not in sys.path]
    return {paper: importlib.import_module(f"{folder}_lines") for paper, folder in FOLDERS.items()}


@cache
def computed() -> dict[str, tuple[Line, ...]]:
    """Every paper's lines, from the rows that are stored."""
    return {paper: tuple(maker.stored()) for paper, maker in _makers().items()}


def notes() -> dict[str, str]:
    """What is said of a paper's lines together."""
    return {paper: m.note() if hasattr(m, "note") else "" for paper, m in _makers().items()}


def write(folder: Path, lines: Iterable[Line]) -> None:
    """Store lines, in their order, with their distance and verdict."""
    rows = [
        asdict(n) | {"distance": n.distance, "verdict": n.verdict, "cause": n.cause} for n in lines
    ]
    pd.DataFrame(rows).to_csv(folder / "verdicts.csv", index=False, float_format="%.6g")


def read(folder: Path) -> pd.DataFrame:
    """The table of lines that is stored."""
    texts = {f.name: str for f in fields(Line) if f.type not in ("float", "int", "bool")}
    return pd.read_csv(
        folder / "verdicts.csv",
        dtype=texts,
        keep_default_na=False,
        na_values={f.name: [""] for f in fields(Line) if f.type == "float"} | {"distance": [""]},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check the pages, write nothing")
    options = parser.parse_args()
    import papers_page

    for paper, lines in computed().items():
        if not options.quick:
            write(HERE / FOLDERS[paper], lines)
    for file, text in papers_page.made(computed()).items():
        if options.quick:
            assert text == file.read_text(encoding="utf-8"), "run tests/benchmarks/printed.py"
        else:
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    # lines are of the class in the module `printed`, which is not `__main__`
    import printed

    printed.main()
