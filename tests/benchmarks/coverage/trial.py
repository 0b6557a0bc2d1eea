"""Table 3 of PrivATE (Schroeder et al. 2025, supplement E): its trial, n = 1000, eps = 0.5.

Their intervals beside our default with the known propensity, the private difference in means, and
what there is without privacy. The paper's own difference in means is that of Guha and Reiter
("aggregated" here); its width is in a figure only, "significantly wider" than PrivATE's.

    python tests/benchmarks/coverage/trial.py --repetitions 1000
    python tests/benchmarks/coverage/trial.py --quick
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from cells import Cell, read, summary
from tables import HERE, NOMINAL, Section, Study, Verdict, below, main, unfinished

REPETITIONS, ROWS, EPS, THEIRS = 1000, 1000, 0.5, 100
"""The standard errors they print are those of 100 repetitions."""

PRINTED = {
    "aggregated": (0.820, 0.920, 0.950),
    "paper kernel 0.9": (0.780, 0.900, 0.940),
    "paper network 0.9": (0.880, 0.890, 0.970),
}
METHODS = (
    "default", "difference", "default, propensity estimated", "paper kernel 0.9",
    "paper network 0.9", "difference, no privacy", "regression, no privacy", "aggregated",
)  # fmt: skip
CELLS = (Cell("trial", ROWS, EPS, METHODS, 600_000),)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    lines = []
    for row in found.to_dict("records"):
        printed = PRINTED.get(row["method"])
        line = {"method": row["method"], "reps": row["repetitions"]}
        for k, (level, nominal) in enumerate(NOMINAL.items()):
            z = below(row[level], nominal, row["repetitions"])
            beside = f" / {printed[k]:.3f}" if printed else ""
            line[f"{level[2:]} %"] = f"{row[level]:.3f} ({z:+.1f}){beside}"
        line |= {"half-width": f"{row['half_width']:.4f}", "bias": f"{row['bias']:+.4f}",
                 "sd": f"{row['sd']:.4f}", "noted": f"{row['noted']:.0%}"}  # fmt: skip
        lines.append(line)
    return pd.DataFrame(lines), [*unfinished(found, REPETITIONS), *_verdicts(found)], [
        "ours (distance from nominal in standard errors) / printed; `aggregated` is the difference "
        "in means of Guha and Reiter",
        "paper mode here estimates the propensity, as the supplement says ('the implementation "
        "remained the same')",
    ]  # fmt: skip


def _verdicts(found: pd.DataFrame) -> list[Verdict]:
    rows = {row["method"]: row for row in found.to_dict("records")}
    verdicts = []
    for method in ("default", "difference"):
        if method not in rows:
            continue
        row = rows[method]
        away = [below(row[level], p, row["repetitions"]) for level, p in NOMINAL.items()]
        shown = ", ".join(f"{z:+.1f}" for z in away)
        text = f"{method}: {shown} standard errors from nominal, none more than 3 below"
        verdicts.append(Verdict(min(away) >= -3, text))
    for method in ("paper kernel 0.9", "paper network 0.9"):
        if method in rows:
            verdicts.append(_agrees(rows[method], method))
        if method in rows and "default" in rows:
            verdicts.append(_wider(rows, method))
    return verdicts


def _wider(rows: dict[str, dict[str, float]], method: str) -> Verdict:
    ratio = rows[method]["half_width"] / rows["default"]["half_width"]
    return Verdict(ratio > 1, f"{method} is {ratio:.1f} times as wide as the default")


def _agrees(row: dict[str, float], method: str) -> Verdict:
    away = [
        (row[level] - there)
        / float(np.sqrt(there * (1 - there) / THEIRS + p * (1 - p) / row["repetitions"]))
        for (level, p), there in zip(NOMINAL.items(), PRINTED[method], strict=True)
    ]
    shown = ", ".join(f"{z:+.1f}" for z in away)
    text = f"{method}: {shown} standard errors from the printed coverages, within 2"
    return Verdict(max(map(abs, away)) <= 2, text)


STUDY = Study(
    "trial",
    "Table 3 of PrivATE: its trial",
    CELLS,
    REPETITIONS,
    section,
    (CELLS, 10),
)

FIGURE = HERE.parent / "private" / "figure6.png"


def draw() -> None:
    """Write Figure 6 from the stored rows: the intervals of ten runs."""
    import matplotlib.pyplot as plt

    rows = STUDY.ordered(read(STUDY.file))
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    shown = {"paper network 0.9": "PrivATE as printed", "aggregated": "Guha and Reiter"}
    for ax, (method, label) in zip(axes, shown.items(), strict=True):
        ten = rows[rows["method"] == method].head(10)
        ax.errorbar(range(1, len(ten) + 1), ten["estimate"], ten["half_width"], fmt="o", capsize=3)
        ax.axhline(ten["truth"].iloc[0], linestyle="--", color="grey")
        ax.set(title=label, xlabel="run")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("95 % interval (dashed: truth)")
    figure.savefig(FIGURE, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    status = main(STUDY)
    if "--quick" not in sys.argv:
        draw()
    sys.exit(status)
