"""Tables and figures of `niu_study.py`, from rows that today's code made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import niu_methods
import numpy as np
import pandas as pd
from niu_lines import FIGURE_3, KEYS, MEASURES, MOST, WANTED, as_printed, means, split_ratios
from niu_lines import geometric as _mean

VARIANTS = ("paper", "raw", "smooth")

HEAD = """# Niu et al. (2022) again

Written by `niu_study.py` from the rows in the CSV files beside this page; it goes on where they
end. A ratio is of mean squared errors; below 1 is better. Noise is real.

Figures 1 and 2 are on the voting data of Arceneaux, Gerber and Green (2006), which the project does
not ship: `--voting data_clean.csv` runs them on the paper's file (`pc.datasets.voting` says where
it comes from). The file of Gerber, Green and Larimer (2008) beside the repository is of another
experiment and is not used. What is published of Figure 2's grid on setup A stands in for it.

Published errors are those of the authors' repository, means of five experiments. D and E are drawn
as its notebook draws them, not as Table 1 prints them (`pc.datasets.niu`).

`paper` is `pc.paper.dpebm`. Its learner r divides noisy sums by noisy counts of rows, as interpret
did when the paper was written: the warnings in the notebook name line 843 of `glassbox/ebm/ebm.py`,
interpret's first code. `interpret` is the same with the weighting of interpret 0.7.8.

Section 5.1.3 has a test set of 250,000 rows. So have the cells whose column `test rows` says it.
The others have 5,000 rows, whose draw moves an error by about 2 %.
"""

CENTRE_VARIANCE = 0.2**2 / 3
"""Of the effect in part `centre`: what a constant effect cannot do without."""


def write(folder: Path, published: Path) -> None:
    """`results.md` and the figures, of whatever parts have rows."""
    parts, left = {}, 0
    for name in ("errors", "composition", "centre", "voting", "curves"):
        if (folder / f"{name}.csv").exists():
            rows = niu_methods.read(folder / f"{name}.csv")
            mine = niu_methods.of_today(rows)
            left += int((~mine).sum())
            if mine.any():
                parts[name] = rows[mine]
    theirs = pd.read_csv(published).set_index(KEYS)[MEASURES] if published.exists() else None
    sections = [
        HEAD,
        f"Rows made by other code, which are left out (`--fresh` drops them): {left}.",
    ]
    for name, make in (("errors", _errors), ("composition", _composition), ("centre", _centre)):
        if name in parts:
            sections.append(make(parts[name], theirs))
    (folder / "results.md").write_text("\n\n".join(sections), encoding="utf-8")
    _figures(parts, folder)


# -- tables ----------------------------------------------------------------------------------


def _errors(rows: pd.DataFrame, theirs: Any) -> str:
    paper = as_printed(rows)
    found = means(paper, theirs)
    found["test rows"] = paper.groupby(KEYS)["test_rows"].min()
    found["mse / published"] = found["mse"] / found["published mse"]
    few = int((found["pairs"] < found.index.get_level_values("learner").map(WANTED)).sum())
    text = (
        "## Paper mode beside what is published\n\n"
        "    python tests/benchmarks/niu_study.py figure3 figure2 repository\n\n"
        f"{few} of {len(found)} cells have too few pairs of fits to be compared: below "
        f"{', '.join(f'{k} for {learner}' for learner, k in WANTED.items())}.\n\n"
        + _markdown(found.reset_index())
    )
    wide = rows.groupby([*KEYS, "variant"])["mse"].mean().unstack("variant")
    number = rows.groupby([*KEYS, "variant"]).size().unstack("variant")
    if "smooth" not in wide:
        return text
    own = wide[wide["smooth"].notna()].dropna(axis=1, how="all")
    own.insert(0, "pairs", number["smooth"].reindex(own.index).astype(int))
    gain = (own["paper"] / own["smooth"]).dropna()
    return (
        f"{text}\n\n## Our booster beside it\n\n    python tests/benchmarks/niu_study.py own\n\n"
        f"{_markdown(own.reset_index())}\n\n- paper mode has {_mean(gain):.1f} times the error of "
        f"`smooth` (geometric mean of {len(gain)} cells)"
    )


def _composition(rows: pd.DataFrame, _: Any) -> str:
    found = rows.groupby(["dataset", "n", "learner", "variant"]).agg(
        fits=("mse", "size"), mse=("mse", "mean"), ate_bias=("ate_error", "mean"),
        ate_width=("width", "mean"), ate_covered=("covered", "mean"),
    )  # fmt: skip
    found["s.e. of mse"] = rows.groupby(list(found.index.names))["mse"].sem()
    head = "## `composition`\n\n    python tests/benchmarks/niu_study.py composition\n\n"
    text = [
        f"- learner {learner}: disjoint parts have {_mean(ratio):.2f} times the error of all rows "
        f"with shares of rho (geometric mean of {len(ratio)} cells)"
        for learner, ratio in split_ratios(rows).groupby("learner")
    ]
    return head + _markdown(found.reset_index()) + "\n\n" + "\n".join(text)


def _centre(rows: pd.DataFrame, _: Any) -> str:
    """Root mean squared errors, and how often larger they are in [99, 101] than in [-1, 1].

    With the standard error of that ratio, from the spread of squared errors over fits.
    """
    squares = rows.groupby(["learner", "variant", "shift"])["mse"]
    wide = np.sqrt(squares.mean()).unstack("shift")
    out = wide.rename(columns={0.0: "rmse in [-1, 1]", 100.0: "rmse in [99, 101]"})
    out.insert(0, "fits", squares.size().unstack("shift").min(axis=1).astype(int))
    if wide.shape[1] == 2:
        out["ratio"] = wide[100.0] / wide[0.0]
        off = squares.std() / squares.mean() / np.sqrt(squares.size())
        out["s.e. of it"] = 0.5 * out["ratio"] * np.sqrt((off.unstack("shift") ** 2).sum(axis=1))
    text = ["## `centre`\n\n    python tests/benchmarks/niu_study.py centre\n"]
    text.append(_markdown(out.reset_index()))
    if ("s", "paper") in wide.index:
        left = [f"{v:.2g}" for v in wide.loc[("s", "paper")] ** 2 - CENTRE_VARIANCE]
        text.append(
            "\ninterpret's first residuals are the outcomes themselves, so that what it loses is "
            "in the average effect: its learner s, a constant, has a squared error above Var(tau) "
            f"of {left[0]} in [-1, 1] and {left[-1]} in [99, 101]."
        )
    return "\n".join(text)


def _markdown(frame: pd.DataFrame) -> str:
    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.4g}"
        return str(value)

    lines = [" | ".join(map(str, frame.columns)), " | ".join(["---"] * frame.shape[1])]
    lines += [" | ".join(map(text, row)) for row in frame.itertuples(index=False)]
    return "\n".join(f"| {line} |" for line in lines)


# -- figures ---------------------------------------------------------------------------------


def _figures(parts: dict[str, pd.DataFrame], folder: Path) -> None:
    """Figure 1: the effect by age. Figure 2: errors by n and epsilon. Figure 3: bias, variance."""
    import matplotlib as mpl

    mpl.use("Agg")
    if "curves" in parts:
        _figure_1(parts["curves"], folder)
    grids = [parts[name] for name in ("voting", "errors") if name in parts]
    if grids:
        _figure_2(grids[0], folder)
        _figure_3(pd.concat(grids), folder)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _axes(rows: int, columns: int, **options: Any) -> tuple[Any, Any]:
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(2.6 * columns, 2.4 * rows), squeeze=False,
                        **options)  # fmt: skip


def _figure_1(rows: pd.DataFrame, folder: Path) -> None:
    names = _order(rows["variant"], VARIANTS)
    epsilons = sorted(rows["epsilon"].unique())
    figure, axes = _axes(len(names), len(epsilons), sharey="row", sharex=True)
    for line, name in zip(axes, names, strict=True):
        for axis, eps in zip(line, epsilons, strict=True):
            own = rows[(rows["variant"] == name) & (rows["epsilon"] == eps)]
            axis.step(own["age"], own["estimate"], where="mid")
            axis.fill_between(own["age"], own["low"], own["high"], alpha=0.2)
            ages = np.linspace(18, 100, 165)
            axis.plot(ages, -1 / (2 + 100 / ages), "k--", linewidth=0.8)
            axis.set_title(f"{name}, eps = {eps:g}", fontsize=8)
        line[0].set_ylabel("effect")
    for axis in axes[-1]:
        axis.set_xlabel("age")
    _save(figure, folder / "figure_1.png")


def _figure_2(rows: pd.DataFrame, folder: Path) -> None:
    """The paper's learners on one dataset: the voting data where there are rows, or else A."""
    name = "Voting" if (rows["dataset"] == "Voting").any() else "A"
    rows = rows[(rows["dataset"] == name) & (rows["epsilon"] <= MOST)]
    rows = as_printed(rows)
    learners = _order(rows["learner"], ("s", "dr", "r"))
    if not learners:
        return
    figure, axes = _axes(2, len(learners), sharey=True)
    for column, learner in zip(axes.T, learners, strict=True):
        own = rows[rows["learner"] == learner]
        mse = own.groupby(["epsilon", "n"])["mse"].mean().unstack("n")
        for n in mse.columns:
            column[0].loglog(mse.index, mse[n], "o-", label=f"n = {n}")
        for eps in mse.index:
            column[1].loglog(mse.columns, mse.loc[eps], "o-", label=f"eps = {eps:g}")
        for axis, by in zip(column, ("epsilon", "n"), strict=True):
            axis.set_title(f"{name}, {learner}: MSE by {by}", fontsize=8)
            axis.set_xlabel(by)
            axis.legend(fontsize=5)
    _save(figure, folder / "figure_2.png")


def _figure_3(rows: pd.DataFrame, folder: Path) -> None:
    """The paper's DR-learner; A, B and the votes with 16,000 rows, the others with 4,000."""
    own = rows[(rows["learner"] == "dr") & (rows["variant"] == "paper")]
    own = own[own["epsilon"] <= MOST]
    sizes = {name: n for name, n in FIGURE_3.items() if (own["dataset"] == name).any()}
    if not sizes:
        return
    figure, (line,) = _axes(1, len(sizes))
    for axis, (setup, n) in zip(line, sizes.items(), strict=True):
        part = own[(own["dataset"] == setup) & (own["n"] == n)]
        by = part.groupby("epsilon")[MEASURES].mean()
        for measure in MEASURES:
            # estimates of bias and variance may come out below zero
            axis.loglog(by.index, by[measure].clip(lower=1e-4), "o-", label=measure)
        axis.set_title(f"{setup}, n = {n:,}", fontsize=8)
        axis.set_xlabel("epsilon")
    line[0].legend(fontsize=7)
    _save(figure, folder / "figure_3.png")


def _order(values: Any, wanted: Sequence[str]) -> list[str]:
    there = set(values)
    return [name for name in wanted if name in there]
