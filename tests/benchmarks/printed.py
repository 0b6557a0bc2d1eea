"""What a paper prints beside what is measured here, with a verdict that follows from both.

Each study of a paper writes its `Line`s to ``verdicts.csv`` in its folder;
``python tests/benchmarks/printed.py`` puts them into ``tests/papers.md``.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
PAGE = HERE.parent / "papers.md"
FOLDERS = {"Niu": "niu", "DP-CATE": "dpcate", "ADUM": "adum", "PrivATE": "private"}
"""What the heading of a paper's section holds -> its folder here."""


@dataclass(frozen=True)
class Line:
    """One number (or one statement) of a paper, and ours.

    `least` and `most` bound the ratio of measured to printed within which it is reproduced. Where
    the paper prints no number, `printed` is nan, `says` is its statement, and they bound what
    is measured. `reason` is one sentence, for what is not reproduced or never run.
    """

    item: str
    says: str
    printed: float
    measured: float
    least: float
    most: float
    command: str
    reason: str = ""

    def __post_init__(self) -> None:
        if self.verdict != "reproduced" and not self.reason:
            raise ValueError(f"{self.item}: {self.says}: {self.verdict}, and no reason is given")

    @property
    def verdict(self) -> str:
        """``reproduced``, ``not reproduced`` or ``not run``."""
        if math.isnan(self.measured):
            return "not run"
        ratio = self.measured / (1.0 if math.isnan(self.printed) else self.printed)
        return "reproduced" if self.least <= ratio <= self.most else "not reproduced"


def write(folder: Path, lines: Iterable[Line]) -> None:
    """Store a study's lines, in their order."""
    pd.DataFrame([asdict(line) for line in lines]).to_csv(folder / "verdicts.csv", index=False)


def read(folder: Path) -> list[Line]:
    """The lines that a study stored; none if it has not run."""
    file = folder / "verdicts.csv"
    if not file.exists():
        return []
    texts = {f.name: str for f in fields(Line) if f.type == "str"}
    table = pd.read_csv(
        file, dtype=texts, keep_default_na=False, na_values={"printed": [""], "measured": [""]}
    )
    return [Line(**row) for row in table.to_dict("records")]


def page(text: str) -> str:
    """The page with each paper's table of measured numbers made again."""
    for paper, folder in FOLDERS.items():
        rows = [_row(line) for line in read(HERE / folder)]
        head = ["| item | says | printed | measured | verdict | made by |", "| --- " * 6 + "|"]
        table = "\n".join([*head, *rows])
        marks = rf"(<!-- measured: {re.escape(paper)} -->\n).*?(\n<!-- end -->)"
        text, found = re.subn(marks, lambda m, t=table: m[1] + t + m[2], text, flags=re.S)
        if found != 1:
            raise ValueError(f"no place for the numbers of {paper}")
    return text


def _row(line: Line) -> str:
    verdict = line.verdict
    if verdict != "reproduced":
        verdict += f": {line.reason}"
    cells = (
        line.item,
        line.says,
        _number(line.printed),
        _number(line.measured),
        verdict,
        f"`{line.command}`",
    )
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check the page, write nothing")
    options = parser.parse_args()
    made = page(PAGE.read_text(encoding="utf-8"))
    if options.quick:
        assert made == PAGE.read_text(encoding="utf-8"), "run python tests/benchmarks/printed.py"
    else:
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
