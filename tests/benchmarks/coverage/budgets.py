"""Figures 4 and 5 of PrivATE (Schroeder et al. 2025): its own intervals by budget and by rows.

Dataset 1, the kernel base, 0.9 of the budget for the mean, 10 runs as in the paper; one of eps =
0.5 and n = 3000 is varied at a time. The figure draws half-widths beside those without privacy.

    python tests/benchmarks/coverage/budgets.py --repetitions 10
    python tests/benchmarks/coverage/budgets.py --quick
"""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pandas as pd
from cells import Cell, read, summary
from tables import HERE, Section, Study, Verdict, coverage_table, main, unfinished

REPETITIONS, ROWS, EPS = 10, 3000, 0.5
METHOD = "paper kernel 0.9"
BOOTSTRAP = ("bootstrap kernel",)
GRIDS = {
    "eps": [(ROWS, eps) for eps in (0.1, 0.25, EPS, 1.0, 2.0, 4.0)],
    "n": [(n, EPS) for n in (1000, ROWS, 5000, 10_000)],
}
SETTINGS = list(dict.fromkeys(setting for grid in GRIDS.values() for setting in grid))
CELLS = tuple(
    Cell("dataset 1", n, eps, (METHOD, *(BOOTSTRAP if n == ROWS else ())), 9_200_000 + 1000 * k)
    for k, (n, eps) in enumerate(SETTINGS)
)
FIGURE = HERE.parent / "private" / "figure4.png"
UTILITY = FIGURE.with_name("figure5.png")
WEIGHTS = 0.25, 0.5, 0.75
"""Of privacy in the utility of Figure 5; the rest is that of width."""


def curve(found: pd.DataFrame, along: str, method: str) -> list[float]:
    """Half-widths of a method along one of the grids; of the cells that have run."""
    rows = found[found["method"] == method].set_index(["n", "eps"])["half_width"]
    return [float(rows[setting]) for setting in GRIDS[along] if setting in rows.index]


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    verdicts = unfinished(found, REPETITIONS)
    for along in GRIDS:
        widths = curve(found, along, METHOD)
        falls = all(a > b for a, b in pairwise(widths))
        shown = ", ".join(f"{width:.3f}" for width in widths)
        verdicts.append(Verdict(falls, f"half-widths fall as {along} grows: {shown}"))
    return coverage_table(found), verdicts, []


STUDY = Study(
    "budgets",
    "Figure 4 of PrivATE: widths by budget and rows",
    CELLS,
    REPETITIONS,
    section,
    (CELLS[:2], 1),
)


def utility(found: pd.DataFrame, weight: float) -> pd.DataFrame:
    """Figure 5: by epsilon, the weighted sum of privacy and width, each 0 to 1 over the grid.

    The paper does not say how the two are scaled; here both by logarithms. The naive interval tells
    its variance without noise: it has the privacy of the largest epsilon.
    """
    epsilons = [eps for _, eps in GRIDS["eps"]]
    widths = pd.DataFrame(
        {
            "PrivATE": curve(found, "eps", METHOD),
            "bootstrap": curve(found, "eps", *BOOTSTRAP),
            "naive": curve(found, "eps", f"naive {METHOD.removeprefix('paper ')}"),
        },
        index=epsilons,
    )
    narrow = np.log(widths / widths.to_numpy().max())
    narrow = narrow / narrow.to_numpy().min()
    private = np.log(epsilons[-1] / np.array(epsilons)) / np.log(epsilons[-1] / epsilons[0])
    scores = (1 - weight) * narrow
    for method in ("PrivATE", "bootstrap"):
        scores[method] += weight * private
    return scores


def draw_utility(found: pd.DataFrame) -> None:
    """Write Figure 5."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for ax, weight in zip(axes, WEIGHTS, strict=True):
        utility(found, weight).plot(ax=ax, marker="o", legend=ax is axes[-1])
        ax.set(xscale="log", xlabel="eps", title=f"weight of privacy {weight:g}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("utility")
    axes[-1].legend(frameon=False)
    figure.savefig(UTILITY, dpi=150)
    plt.close(figure)


def draw() -> None:
    """Write the figures from the stored rows."""
    import matplotlib.pyplot as plt

    found = summary(STUDY.ordered(read(STUDY.file)))
    draw_utility(found)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for ax, (along, grid) in zip(axes, GRIDS.items(), strict=True):
        places = [eps if along == "eps" else n for n, eps in grid]
        for method, label in ((METHOD, "PrivATE as printed"), ("standard kernel", "no privacy")):
            ax.plot(places, curve(found, along, method), marker="o", label=label)
        ax.set(xscale="log", yscale="log", xlabel=along)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("half-width (95 %)")
    axes[1].legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    status = main(STUDY)
    if "--quick" not in sys.argv:
        draw()
    sys.exit(status)
