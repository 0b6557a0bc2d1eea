"""The pages on papers of the site: the summary, and the list of all lines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from printed import DIFFERS, HERE, LIMIT, MISSING, REPRODUCED, Line, notes, pooled

SITE = HERE.parents[1] / "vignettes" / "reference"
SUMMARY, LIST = SITE / "papers.md", SITE / "papers-lines.md"
VERDICTS = REPRODUCED, DIFFERS, MISSING

Part = tuple[str, str, tuple[str, ...]]
"""What a paper has, our call, and the items of its lines; without items it has no numbers."""

PARTS: dict[str, tuple[Part, ...]] = {
    "Niu": (
        ("Algorithm 1, any k private stages on disjoint rows", "`pc.paper.two_stage`", ()),
        ("Algorithm 2, DP-EBM learners DR, R, and S", "`pc.paper.dpebm`", ()),
        ("Theorem 6, the cost of the whole", "`pc.TradeOff.minimum`", ()),
        ("Table 1, setups A to E", "`pc.datasets.niu`", ("Table 1",)),
        ("Section 5.1.3, estimates of bias and variance", "none", ("Section 5.1.3",)),
        ("Remark 8, splitting saves budget", "`pc.Control(split=...)`", ("Remark 8",)),
        ("Figure 1, effect by age", "`pc.paper.dpebm`", ("Figure 1",)),
        ("Figure 2, MSE by n and ε", "`pc.paper.dpebm`", ("Figure 2",)),
        ("Figure 3, bias and variance", "`pc.paper.dpebm`", ("Figure 3",)),
        ("the authors' other cells", "`pc.paper.dpebm`", ("Repository",)),
    ),
    "DP-CATE": (
        ("Theorem 1, finitely many queries", "`pc.paper.dpcate(queries=...)`", ()),
        ("Theorem 3, the whole function", "`pc.paper.dpcate`", ()),
        ("Theorem 2, rates", "`pc.paper.dpcate(second=\"linear\")`", ("Theorem 2",)),
        ("Corollary 2, kernel regression", "`pc.paper.dpcate(second=\"exact\")`", ("Corollary 2",)),
        ("Supplement B and Figure 9, the DR-learner", "`pc.paper.dpcate(weight=\"one\")`",
         ("Supplement B", "Figure 9")),
        ("Figure 3, dataset 1, finite queries", "`pc.paper.dpcate(queries=...)`", ("Figure 3",)),
        ("Figure 4, dataset 1, functions", "`pc.paper.dpcate`", ("Figure 4",)),
        ("Figure 5, dataset 2", "`pc.paper.dpcate`", ("Figure 5",)),
        ("Lemma 1, sensitivity of the function", "`pc.paper.dpcate`", ("Lemma 1",)),
        ("Supplements D and F, excess risk and rates", "none",
         ("Supplement D", "Supplement F")),
        ("Figures 6 and 7, MIMIC-III and TCGA", "`pc.paper.dpcate`", ("Figure 6", "Figure 7")),
    ),
    "ADUM": (
        ("Algorithm 1, counts and sums by cell", "`pc.paper.adum`", ()),
        ("ε-TM, logistic", "`pc.paper.tm`", ()),
        ("ε-TM, linear", "`pc.paper.tm`", ()),
        ("Proposition 1, bias and variance", "`pc.learners.ADUM`", ("Proposition 1",)),
        ("Corollary 1, bound of the error", "`pc.learners.ADUM(cells=\"bound\")`",
         ("Corollary 1",)),
        ("Figure 1, PEHE by ε", "`pc.paper.adum`", ("Figure 1",)),
        ("Figure 2, PEHE by groups", "`pc.learners.ADUM(cells=...)`", ("Figure 2",)),
        ("Figure 3, AUUC on CRITEO", "`pc.paper.adum(partition=\"kmeans\")`", ("Figure 3",)),
    ),
    "PrivATE": (
        ("Theorems 4.3, 4.5, and 4.6, effect, variance, interval", "`pc.paper.private`", ()),
        ("Table 1, coverage", "`pc.paper.private(base=pc.bases.Sklearn...)`", ("Table 1",)),
        ("Table 2 and Section 5.2, RHC", "`pc.paper.private`", ("Table 2", "Section 5.2")),
        ("Table 3, coverage in a trial", "`pc.paper.private`", ("Table 3",)),
        ("Figure 4, width by ε and n", "`pc.paper.private`", ("Figure 4",)),
        ("Figure 5, utility", "`pc.paper.private`", ("Figure 5",)),
        ("Figure 6, width in a trial", "`pc.paper.private`", ("Figure 6",)),
    ),
}  # fmt: skip


def made(lines: Mapping[str, Sequence[Line]]) -> dict[Path, str]:
    """Both pages with the parts that follow from the lines made again."""
    summary, full = (page.read_text(encoding="utf-8") for page in (SUMMARY, LIST))
    summary = put(summary, "share", share(lines))
    for paper, own in lines.items():
        pieces = parts(paper, own), causes(own), together(own), notes()[paper]
        summary = put(summary, paper, "\n\n".join(filter(None, pieces)))
        full = put(full, paper, listed(own))
    return {SUMMARY: summary, LIST: full}


def put(page: str, name: str, text: str) -> str:
    """The page with the text between the marks of a name replaced."""
    marks = rf"(<!-- made: {re.escape(name)} -->\n).*?(<!-- end -->)"
    page, found = re.subn(marks, lambda m: f"{m[1]}{text}\n{m[2]}", page, flags=re.DOTALL)
    if found != 1:
        raise ValueError(f"no place for {name}")
    return page


def share(lines: Mapping[str, Sequence[Line]]) -> str:
    """Numbers of lines by verdict, of each paper and of all."""
    groups = {**lines, "all": [line for own in lines.values() for line in own]}
    rows = []
    for name, own in groups.items():
        count = Counter(line.verdict for line in own)
        cells = [f"{count[v]} ({count[v] / len(own):.0%})" for v in VERDICTS]
        rows.append([name, str(len(own)), *cells])
    return table(["paper", "lines", "reproduced", "differ", "missing"], rows)


def parts(paper: str, lines: Sequence[Line]) -> str:
    """What the paper has, our call, and the verdicts."""
    named = [item for *_, items in PARTS[paper] for item in items]
    if sorted(named) != sorted({line.item for line in lines}):
        raise ValueError(f"{paper}: the parts do not name every item once")
    rows = []
    for what, call, items in PARTS[paper]:
        count = Counter(line.verdict for line in lines if line.item in items)
        words = [
            f"{count[v]} {'differ' if v == DIFFERS and count[v] > 1 else v}"
            for v in VERDICTS
            if count[v]
        ]
        rows.append([what, call, ", ".join(words) or "tested, no number"])
    return table(["part of the paper", "call", "lines"], rows)


def causes(lines: Sequence[Line]) -> str:
    """Why lines differ or are missing, with their number by item."""
    rows = []
    for verdict in (DIFFERS, MISSING):
        own = [line for line in lines if line.verdict == verdict]
        for cause in dict.fromkeys(line.cause for line in own):
            count = Counter(line.item for line in own if line.cause == cause)
            where = ", ".join(f"{item} ({n})" for item, n in count.items())
            rows.append([verdict, cause, where])
    return table(["verdict", "cause", "lines"], rows)


def together(lines: Sequence[Line]) -> str:
    """Tests of many lines at once, which find a gap that is too small for each line."""
    rows = [
        [
            own.item, own.group, str(own.lines), str(own.above),
            f"{own.middle:.2f} times" if own.log else f"{own.middle:+.3f}",
            f"{own.sign:.2g}", f"{own.wilcoxon:.2g}", own.verdict,
        ]
        for own in pooled(lines)
    ]  # fmt: skip
    head = ["lines together", "of", "lines", "ours above", "median", "p (sign)", "p (Wilcoxon)",
            "verdict"]  # fmt: skip
    return table(head, rows) if rows else ""


def listed(lines: Sequence[Line]) -> str:
    """Every line; causes and commands in tables below."""
    notes = {
        cause: k for k, cause in enumerate(dict.fromkeys(n.cause for n in lines if n.cause), 1)
    }
    rows = [
        [
            line.item, line.says, _printed(line), str(line.printed_runs or "not stated"),
            _number(line.measured), str(line.runs or "none"), _distance(line),
            line.verdict + (f" ({notes[line.cause]})" if line.cause else ""),
        ]
        for line in lines
    ]  # fmt: skip
    head = ["item", "statement", "printed", "runs", "ours", "runs", "distance", "verdict"]
    commands = dict.fromkeys((line.item, f"`{line.command}`") for line in lines)
    return "\n\n".join(
        [
            table(head, rows),
            table(["note", "cause"], [[str(k), cause] for cause, k in notes.items()]),
            table(["item", "made by"], [list(pair) for pair in commands]),
        ]
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _printed(line: Line) -> str:
    """The printed number, or the pattern in its place."""
    if not math.isnan(line.printed):
        sign = {"at most": "≤ ", "at least": "≥ "}.get(line.claim, "")
        return sign + _number(line.printed)
    if math.isnan(line.level):
        return "no number"
    sign = {"above": "> ", "below": "< "}.get(line.claim, "")
    return f"no number: {sign}{_number(line.level)}"


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3g}"


def _distance(line: Line) -> str:
    if math.isnan(line.distance):
        return "none"
    if line.error == 0:
        return "exact"
    return f"{line.distance:+.1f}"


assert LIMIT == 2.6, "the pages print this limit"
