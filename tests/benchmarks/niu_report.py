"""Tables, verdicts and figures of `niu_study.py`, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

KEYS = ["dataset", "n", "learner", "epsilon"]
MEASURES = ["mse", "bias2", "variance"]
VARIANTS = ("paper", "raw", "smooth")

HEAD = """# Niu et al. (2022) again

Written by `niu_study.py` from the rows in the CSV files beside this page; it goes on where they
end. A ratio is of mean squared errors; below 1 is better. Noise is real. What has no row yet is
left out, and a verdict counts only what both its sides have.

Learner r in paper mode is not the paper's any more. It hands (T - e)^2 to interpret as sample
weights. interpret has always scaled its noise to the largest weight times the range of the target,
here that of (Y - eta) / (T - e). But its first code for DP-EBM (`glassbox/ebm/ebm.py` and
`internal.py` with `DPUtils`) binned without weights and divided noisy weighted sums by noisy counts
of rows; later code, and 0.7.8 which is used here, divides by noisy sums of weights. Weights of
about 0.2 make each step, and the noise in it, about five times as long as they were. The paper's
version of interpret is not known; `counts` is learner r with the first weighting.
"""

CENTRE_VARIANCE = 0.2**2 / 3
"""Of the effect in part `centre`: what a constant effect cannot do without."""


def write(folder: Path, published: Path) -> None:
    """`results.md` and the figures, of whatever parts have rows."""
    sections = [HEAD]
    for name, make in (("table", _table), ("composition", _composition), ("centre", _centre)):
        path = folder / f"{name}.csv"
        if path.exists():
            sections.append(f"## `{name}`\n\n    python tests/benchmarks/niu_study.py {name}\n")
            sections.append(make(pd.read_csv(path), published))
    (folder / "results.md").write_text("\n".join(sections), encoding="utf-8")
    _figures(folder)


# -- tables ----------------------------------------------------------------------------------


def _table(rows: pd.DataFrame, published: Path) -> str:
    grouped = rows.groupby([*KEYS, "variant"])["mse"]
    wide = grouped.mean().unstack("variant")
    number = grouped.size().unstack("variant")
    for name in ("paper", "raw", "smooth", "constant"):
        if name not in wide:
            wide[name], number[name] = np.nan, 0
    printed = pd.read_csv(published).set_index(KEYS)["mse"] if published.exists() else None
    theirs = wide["paper"] * np.nan if printed is None else printed.reindex(wide.index)
    out = pd.DataFrame(
        {
            "pairs": number["paper"].fillna(0).astype(int),
            "published": theirs, "paper": wide["paper"], "raw": wide["raw"],
            "smooth": wide["smooth"], "constant": wide["constant"],
            "paper / published": wide["paper"] / theirs,
            "raw / paper": wide["raw"] / wide["paper"],
            "paper / smooth": wide["paper"] / wide["smooth"],
        }
    )  # fmt: skip
    ours = ("s", "dr")
    near = out.loc[out.index.get_level_values("learner").isin(ours)]
    at_one = near.loc[near.index.get_level_values("epsilon") == 1.0]
    factor = np.exp(np.abs(np.log(near["paper / published"].dropna())))
    raw, smooth = near["raw / paper"].dropna(), at_one["paper / smooth"].dropna()
    every = near["paper / smooth"].dropna()
    verdicts = [
        _verdict(factor, lambda v: v.max() <= 2,
                 "paper mode within a factor of 2 of the published figure (learners s and dr)",
                 lambda v: f"largest factor {v.max():.2f}", _printed(printed, near)),
        _verdict(raw, lambda v: v.max() <= 1.5, "unsmoothed at most 1.5 times paper mode (s, dr)",
                 lambda v: f"largest {v.max():.2f}, geometric mean {_mean(v):.2f}"),
        _verdict(smooth, lambda v: _mean(v) >= 2,
                 "smoothed at least 2 times lower than paper mode, geometric mean at epsilon 1",
                 lambda v: f"{_mean(v):.2f}", 20),
        _verdict(every, lambda v: v.min() >= 1.2,
                 "smoothed at least 1.2 times lower in every cell (s, dr)",
                 lambda v: f"least {v.min():.2f} at {' '.join(map(str, v.idxmin()))}"),
    ]  # fmt: skip
    if paper := _ratios(wide, theirs, "paper"):
        verdicts.append(f"- learner r, paper mode over published: {paper}")
    if counts := _ratios(wide, theirs, "counts"):
        verdicts.append(f"- the same with the weighting that interpret had at first: {counts}")
    return _markdown(out.reset_index()) + "\n\n" + "\n".join(verdicts) + "\n"


def _printed(printed: Any, near: pd.DataFrame) -> int:
    """How many of the cells the paper has a figure for."""
    return len(near) if printed is None else int(printed.reindex(near.index).notna().sum())


def _ratios(wide: Any, theirs: Any, variant: str) -> str:
    """Learner r's errors over the published ones."""
    own = wide.index.get_level_values("learner") == "r"
    if variant not in wide or not (r := (wide[variant] / theirs)[own].dropna()).size:
        return ""
    return f"{r.min():.1f} to {r.max():.1f} times, geometric mean {_mean(r):.1f} ({len(r)} cells)"


def _mean(values: Any) -> float:
    return float(np.exp(np.log(values).mean()))


def _verdict(values: Any, holds: Any, text: str, shown: Any, cells: int = 60) -> str:
    if not len(values):
        return f"- ---- {text}: no rows yet"
    # what some cells hold is no verdict on all; one that fails fails them all
    word = ("PASS" if len(values) >= cells else "----") if holds(values) else "FAIL"
    return f"- {word} {text}: {shown(values)} ({len(values)} of {cells} cells)"


def _composition(rows: pd.DataFrame, _: Path) -> str:
    found = rows.groupby(["dataset", "n", "learner", "split"]).agg(
        fits=("mse", "size"), mse=("mse", "mean"), ate_bias=("ate_error", "mean"),
        ate_width=("width", "mean"), ate_covered=("covered", "mean"),
    )  # fmt: skip
    wide = found["mse"].unstack("split")
    lines = []
    if {"disjoint", "full"} <= set(wide.columns):
        for name, group in (wide["disjoint"] / wide["full"]).dropna().groupby("learner"):
            lines.append(
                f"- learner {name}: disjoint parts have {_mean(group):.2f} times the error of all "
                f"rows with shares of rho (geometric mean of {len(group)} cells)"
            )
    return _markdown(found.reset_index()) + "\n\n" + "\n".join(lines) + "\n"


def _centre(rows: pd.DataFrame, _: Path) -> str:
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
    lines = [_markdown(out.reset_index()), ""]
    if ("s", "paper") in wide.index:
        left = [f"{v:.2g}" for v in wide.loc[("s", "paper")] ** 2 - CENTRE_VARIANCE]
        lines.append(
            "interpret's first residuals are the outcomes themselves, so that what it loses is in "
            "the average effect: its learner s, a constant, has a squared error above Var(tau) of "
            f"{left[0]} in [-1, 1] and {left[-1]} in [99, 101].\n"
        )
    return "\n".join(lines)


def _markdown(frame: pd.DataFrame) -> str:
    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.4g}"
        return str(value)

    lines = [" | ".join(map(str, frame.columns)), " | ".join(["---"] * frame.shape[1])]
    lines += [" | ".join(map(text, row)) for row in frame.itertuples(index=False)]
    return "\n".join(f"| {line} |" for line in lines)


# -- figures ---------------------------------------------------------------------------------


def _figures(folder: Path) -> None:
    """Figure 1: the effect by age. Figure 2: errors by n and epsilon. Figure 3: bias, variance."""
    import matplotlib as mpl

    mpl.use("Agg")
    for name, draw in (("curves", _figure_1), ("voting", _figure_2), ("table", _figure_3)):
        path = folder / f"{name}.csv"
        if path.exists():
            draw(pd.read_csv(path), folder)


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
    learners = _order(rows["learner"], ("s", "dr", "r"))
    figure, axes = _axes(2, len(learners), sharey=True)
    for column, learner in zip(axes.T, learners, strict=True):
        for variant, style in (("paper", "o:"), ("smooth", "o-")):
            own = rows[(rows["learner"] == learner) & (rows["variant"] == variant)]
            mse = own.groupby(["epsilon", "n"])["mse"].mean().unstack("n")
            for k, n in enumerate(mse.columns):
                column[0].loglog(mse.index, mse[n], style, color=f"C{k}", label=f"{variant}, {n}")
            for k, eps in enumerate(mse.index):
                column[1].loglog(mse.columns, mse.loc[eps], style, color=f"C{k}",
                                 label=f"{variant}, {eps:g}")  # fmt: skip
        for axis, by in zip(column, ("epsilon", "n"), strict=True):
            axis.set_title(f"{learner}: MSE by {by}", fontsize=8)
            axis.set_xlabel(by)
            axis.legend(fontsize=5)
    _save(figure, folder / "figure_2.png")


def _figure_3(rows: pd.DataFrame, folder: Path) -> None:
    """The DR-learner; A and B with 16,000 rows, the others with 4,000, as theirs."""
    own = rows[rows["learner"] == "dr"]
    setups, names = sorted(own["dataset"].unique()), _order(own["variant"], VARIANTS)
    if not (setups and names):
        return
    figure, axes = _axes(len(names), len(setups))
    for line, name in zip(axes, names, strict=True):
        for axis, setup in zip(line, setups, strict=True):
            part = own[(own["dataset"] == setup) & (own["variant"] == name)]
            wanted = 16_000 if setup in "AB" else 4000
            part = part[part["n"] == (wanted if (part["n"] == wanted).any() else part["n"].max())]
            means = part.groupby("epsilon")[MEASURES].mean()
            for measure in MEASURES:
                # estimates of bias and variance may come out below zero
                axis.loglog(means.index, means[measure].clip(lower=1e-4), "o-", label=measure)
            axis.set_title(f"{setup}, {name}", fontsize=8)
            axis.set_xlabel("epsilon")
    axes[0, 0].legend(fontsize=7)
    _save(figure, folder / "figure_3.png")


def _order(values: Any, wanted: Sequence[str]) -> list[str]:
    there = set(values)
    return [name for name in wanted if name in there]
