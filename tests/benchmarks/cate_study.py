"""Errors and intervals of `privcate` beside the learners of Niu et al. (2022).

    python tests/benchmarks/cate_study.py --repetitions 10 --epsilons 1 --sizes 4000,16000
    python tests/benchmarks/cate_study.py --quick
    python tests/benchmarks/cate_study.py --show

Every repetition is a row of `cate/rows.parquet`, appended when it is done; what is there is not run
again. A row names the code it is of (a digest of what a fit's numbers follow from, comments and
docstrings aside): rows of other code are left out, and run again. Two fits on tables of their own
give an error by their method: MSE = (m_1 + m_2) / 2,
squared bias 2 m_avg - MSE and variance 2 (MSE - m_avg), m_avg being the error of the mean of both
predictions. Noise is real. `cate/results.md` holds the tables, and the log of what was ever scored.

Setups A to E are the paper's, with its bounds; E is the law of its notebook, from which its figures
come. "harbour", "orchard" and "canyon" took no part in choosing a default. GOTV is a voting trial
with the paper's spiked effect (parts of the paper's own data are not public: other rows).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent / "lab"))

import generators
import numpy as np
import pandas as pd
from code_digest import code_digest
from generators import Law, bell
from study_rows import appending, read_rows

import privcausal as pc

HERE = Path(__file__).parent / "cate"
SHARED = Path(__file__).parents[3] / "shared"
REFERENCE = Path(__file__).parents[1] / "reference"
GOTV, PUBLISHED = SHARED / "data" / "gotv.parquet", REFERENCE / "niu2022_table.csv"

TEST_ROWS, TEST_SEED = 20_000, 77_000_003
FIRST_SEED = {"score": 15_000_000, "quick": 0}
"""Data seeds: none of them was seen while a default was chosen."""

PAPER = {"A": "A", "B": "B", "C": "C", "D": "D", "E": "E-code"}


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _common(rng: np.random.Generator, n: int) -> Any:
    """Six covariates, each pair correlated by 0.4."""
    own = np.sqrt(0.6) * rng.standard_normal((n, 6))
    return np.clip(own + np.sqrt(0.4) * rng.standard_normal((n, 1)), -3, 3)


def _harbour(x: Any) -> Any:
    return _expit(0.6 * x[0] - 0.4 * x[1]), 2 * np.tanh(x[0]) + x[2], 1 + x[1] - 0.5 * x[3]


def _orchard(x: Any) -> Any:
    return 0.2 + 0.6 * x[0] * x[1], 3 * x[0] * x[1] + x[2], 2 * x[0] + (x[3] > 0.5)


def _canyon(x: Any) -> Any:
    z = x[0] + x[1] + x[2]
    return _expit(0.4 * z), z**2 / 3, np.log1p(np.exp(x[0] + x[3]))


OWN = {
    "harbour": Law(_common, _harbour, 1.0, (-8, 10), (-3, 3)),
    "orchard": Law(lambda rng, n: rng.uniform(0, 1, (n, 5)), _orchard, 0.7, (-2.5, 9), (0, 1)),
    "canyon": Law(bell(8), _canyon, 1.0, (-5, 20), (-3, 3)),
}  # fmt: skip
generators.LAWS.update(OWN)

SETUPS = (*PAPER, *OWN, "GOTV")
SIZES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
LEARNERS = ("r", "dr", "auto")
THEIRS = ("paper s", "paper r", "paper dr")
COLUMNS = [
    "data", "n", "eps", "method", "repetition", "mse", "bias2", "variance", "seconds", "blp_in",
    "blp", "gate_in", "gate", "band_in", "band_truth", "worst_slope", "code",
]  # fmt: skip
KEYS, TEXTS = COLUMNS[:5], ("data", "method", "code")

LEARNING = ("averages", "base", "bases", "nuisances", "meta", "first_stages")
INFERRING = ("cuts", "effects", "population", "priors", "ranges", "regression")


@lru_cache(maxsize=1)
def code() -> str:
    """Digest of the modules that numbers of `privcate` follow from, without their docstrings."""
    package = Path(pc.__file__).parent
    files = [package / "estimators" / f"{name}.py" for name in LEARNING]
    files += [package / "inference" / f"{name}.py" for name in INFERRING]
    return code_digest(files)


def draw(data: str, n: int, seed: int) -> Any:
    if data == "GOTV":
        return turnout(GOTV, n, seed)
    if data in PAPER:
        return pc.datasets.niu(PAPER[data], n, seed)  # type: ignore[arg-type]
    return generators.draw(data, n, seed)


@lru_cache
def turnout(path: Path, n: int, seed: int) -> Any:
    """The turnout trial with the paper's spiked effect -VOTE00 / (2 + 100 / AGE), n rows of it."""
    whole = pd.read_parquet(path)
    rng = np.random.default_rng(seed)
    rows = whole.iloc[rng.permutation(len(whole))[:n]].reset_index(drop=True)
    tau = -rows["g2000"].astype(float) / (2 + 100 / rows["age"].clip(lower=18))
    flipped = rng.random(n) < -tau
    outcome = np.where(flipped, 1 - rows["neighbors"], rows["voted"]).astype(float)
    past = ["g2000", "g2002", "p2000", "p2002", "p2004"]
    names = ["age", "hh_size", *past]
    frame = rows[names].astype(float).assign(Y=outcome, T=rows["neighbors"].astype(int))
    bounds = {"Y": (0, 1), "age": (18, 100), "hh_size": (1, 8), **dict.fromkeys(past, (0, 1))}
    return type(
        "Study", (), {
            "frame": frame, "formula": f"Y ~ T | {' + '.join(names)}", "bounds": bounds,
            "tau": tau.to_numpy(),
        },
    )  # fmt: skip


def options(method: str) -> dict[str, Any]:
    """What `privcate` is told: nothing but the learner, which all cells share."""
    if method.startswith("paper "):
        return {"learner": method.split()[1], "call": pc.paper.dpebm}
    return {"learner": method}


# -- one repetition ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """A large test sample with tau, and its best linear projection on the modifiers."""

    study: Any
    slopes: pd.Series
    groups: dict[str, float]


@lru_cache(maxsize=4)
def truth(data: str) -> Truth:
    study = draw(data, TEST_ROWS, TEST_SEED)
    names = [name for name in study.frame if name not in ("Y", "T")]
    x = study.frame[names].to_numpy(float)
    coef = np.linalg.lstsq(np.c_[np.ones(len(x)), x], study.tau, rcond=None)[0]
    first = study.frame[names[0]].to_numpy(float)
    middle = sum(study.bounds[names[0]]) / 2
    groups = {
        f"{names[0]} >= {middle:g}": float(study.tau[first >= middle].mean()),
        f"{names[0]} < {middle:g}": float(study.tau[first < middle].mean()),
    }
    values = np.r_[study.tau.mean(), coef[1:]]
    return Truth(study, pd.Series(values, index=["ATE", *names]), groups)


def fitted(data: str, n: int, eps: float, method: str, seed: int, groups: Sequence[str]) -> Any:
    """The fit and its seconds."""
    study, chosen = draw(data, n, seed), options(method)
    if not method.startswith("paper"):
        chosen["groups"] = list(groups)
    start = time.perf_counter()
    run = chosen.pop("call", pc.privcate)
    fit = run(study.formula, study.frame, eps=eps, bounds=study.bounds, **chosen)
    return fit, time.perf_counter() - start


def one(data: str, n: int, eps: float, method: str, repetition: int, seed: int) -> list[Any]:
    """A row of the file: two fits' errors, and what their intervals held."""
    known = truth(data)
    tau = known.study.tau
    pair = [fitted(data, n, eps, method, seed + k, tuple(known.groups)) for k in (0, 1)]
    shown = [fit.predict(known.study.frame) for fit, _ in pair]
    first, second = (table["estimate"].to_numpy() for table in shown)
    mse = (float(np.mean((first - tau) ** 2)) + float(np.mean((second - tau) ** 2))) / 2
    both = float(np.mean(((first + second) / 2 - tau) ** 2))
    held = [_held(fit, table, known) for (fit, _), table in zip(pair, shown, strict=True)]
    if method.startswith("paper"):
        held = [[np.nan] * 7]
    numbers = [mse, 2 * both - mse, 2 * (mse - both), np.mean([s for _, s in pair])]
    intervals = np.sum(held, axis=0)
    intervals[4:6] /= len(held)
    worst = np.max([h[6] for h in held])
    return [data, n, f"{eps:g}", method, repetition,
            *(f"{v:.6g}" for v in (*numbers, *intervals[:6], worst)), code()]  # fmt: skip


def _held(fit: Any, table: pd.DataFrame, known: Truth) -> list[float]:
    """Slopes inside and their number, groups, shares of points in bands, worst slope in sds."""
    if fit.estimate.averages is None:
        return [np.nan] * 7
    limits, slopes = fit.conf_int(), known.slopes
    at = [name for name in slopes.index if name in limits.index]
    inside = [limits.loc[name, 0] <= slopes[name] <= limits.loc[name, 1] for name in at]
    away = [abs(fit.params[name] - slopes[name]) / fit.bse[name] for name in at]
    gate = fit.conf_int(simultaneous=True)
    groups = [
        gate.loc[name, 0] <= value <= gate.loc[name, 1]
        for name, value in known.groups.items()
        if name in gate.index and np.isfinite(gate.loc[name, 0])
    ]
    low, high = table["conf_low"].to_numpy(), table["conf_high"].to_numpy()
    aim = projection(fit, known.study)
    covered = np.mean((low <= aim) & (aim <= high))
    true = np.mean((low <= known.study.tau) & (known.study.tau <= high))
    return [sum(inside), len(at), sum(groups), len(groups), covered, true, max(away)]


def projection(fit: Any, study: Any) -> Any:
    """The least-squares projection of tau on the effect's own features over the test sample."""
    from privcausal.features.design import read_points

    needed = fit.estimate.plan.request.formula.effect_variables
    rows, _, _ = read_points(fit.estimate.design, needed, study.frame, None)
    phi = np.hstack([rows.phi(p.additive.features) for p in fit.estimate.effect.pieces])
    return phi @ np.linalg.lstsq(phi, study.tau, rcond=None)[0]


# -- rows ----------------------------------------------------------------------------------------


Cell = tuple[str, int, float, str]


def grid(setups: Sequence[str], sizes: Sequence[int], epsilons: Sequence[float],
         methods: Sequence[str]) -> list[Cell]:  # fmt: skip
    return list(itertools.product(setups, sizes, epsilons, methods))


def tasks(cells: Sequence[Cell], repetitions: int, done: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """What the rows lack, a repetition of every cell in turn: early rows tell of all cells."""
    have = {
        (d, int(n), float(e), m, int(r)) for d, n, e, m, r in done[KEYS].itertuples(index=False)
    }
    for repetition in range(repetitions):
        for cell in cells:
            if (*cell, repetition) not in have:
                yield (*cell, repetition)


def read(file: Path) -> pd.DataFrame:
    """The rows of a file that are of this code."""
    frame = read_rows(file, COLUMNS, TEXTS)
    return frame[frame["code"] == code()].drop_duplicates(KEYS, ignore_index=True)


def run(cells: Sequence[Cell], repetitions: int, file: Path, first_seed: int) -> None:
    """Append what the file lacks, row by row."""
    done = read(file)
    with appending(file, COLUMNS, TEXTS) as append:
        for data, n, eps, method, repetition in tasks(cells, repetitions, done):
            place = SETUPS.index(data) * len(SIZES) + SIZES.index(n)
            seed = first_seed + 10_000 * place + 2 * repetition
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                append([one(data, n, eps, method, repetition, seed)])


# -- tables --------------------------------------------------------------------------------------


def errors(rows: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """A line per cell: mean, median, largest MSE, its standard error and parts, and ratios."""
    found = []
    best = published.groupby(["dataset", "n", "epsilon"])["mse"].min()
    constant = published[published["learner"] == "s"].set_index(["dataset", "n", "epsilon"])["mse"]
    for (data, n, eps, method), part in rows.groupby(KEYS[:4], sort=False):
        mse, key = part["mse"], (data, int(n), float(eps))
        beside = rows[(rows["data"] == data) & (rows["n"] == n) & (rows["eps"] == eps)]
        theirs = beside[beside["method"].isin(THEIRS)].groupby("method")["mse"].mean()
        sd = float(mse.std()) if len(mse) > 1 else np.nan
        line = {
            "data": data, "n": int(n), "eps": eps, "method": method, "reps": len(part),
            "mse": mse.mean(), "se": sd / np.sqrt(len(mse)), "median": mse.median(),
            "max": mse.max(), "bias2": part["bias2"].mean(), "variance": part["variance"].mean(),
            "published / ours": best.get(key, np.nan) / mse.mean(),
            "published s / ours": constant.get(key, np.nan) / mse.mean(),
            "run here / ours": theirs.min() / mse.mean() if len(theirs) == 3 else np.nan,
            "seconds": part["seconds"].mean(),
        }  # fmt: skip
        found.append(line)
    return pd.DataFrame(found)


def intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per cell: coverage at 95 % of slopes and averages, groups together, and bands."""
    own = rows[~rows["method"].isin(THEIRS)]
    found = []
    for (data, n, eps, method), part in own.groupby(KEYS[:4], sort=False):
        total = part[["blp_in", "blp", "gate_in", "gate"]].sum()
        found.append(
            {
                "data": data, "n": int(n), "eps": eps, "method": method, "fits": 2 * len(part),
                "BLP (ATE and slopes)": total["blp_in"] / max(total["blp"], 1),
                "GATE (simultaneous)": total["gate_in"] / max(total["gate"], 1),
                "band (projection, average over x)": part["band_in"].mean(),
                "band (tau itself)": part["band_truth"].mean(),
            }
        )  # fmt: skip
    return pd.DataFrame(found)


def geometric(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Geometric mean and least ratio over cells, by method, eps and whether n is 1000."""
    judged = table["n"].isin(JUDGED) & table[column].notna()
    kept = table[judged].assign(large=lambda t: t["n"] >= 4000)
    grouped = kept.groupby(["method", "eps", "large"])[column]
    return pd.DataFrame(
        {
            "cells": grouped.size(),
            "geometric mean": grouped.apply(lambda v: float(np.exp(np.log(v).mean()))),
            "least": grouped.min(),
        }
    ).reset_index()


JUDGED = (1000, 4000, 16_000)
"""Sizes whose cells enter the means of ratios; others have a few repetitions, for the plots."""

WANTED = 3.0
"""Ratio to the best published learner that a cell of 4,000 rows or more should reach."""

LEAST_BAND = 0.9
"""Share of points that a band should hold."""


def failing(errors_: pd.DataFrame, held: pd.DataFrame) -> pd.DataFrame:
    """Cells that lose: to the published S-learner, the wanted ratio, or the bands' coverage."""
    cells = errors_.merge(held, on=KEYS[:4])
    large = cells["n"] >= 4000
    band = cells["band (projection, average over x)"]
    reasons = {
        "worse than the published S-learner": cells["published s / ours"] < 1,
        f"less than {WANTED:g} times below the best published": large
        & (cells["published / ours"] < WANTED),
        f"band holds less than {LEAST_BAND:.0%}": band < LEAST_BAND,
    }
    found = [
        cells[lost][[*KEYS[:4], "reps", "published / ours", band.name]].assign(cell=reason)
        for reason, lost in reasons.items()
    ]
    return pd.concat(found)


def tables(rows: pd.DataFrame) -> str:
    """What `results.md` shows."""
    published = (
        pd.read_csv(PUBLISHED) if PUBLISHED.exists() else
        pd.DataFrame(columns=["dataset", "n", "epsilon", "learner", "mse"])
    )  # fmt: skip
    table = errors(rows, published)
    paper = table[table["data"].isin(PAPER)]
    unseen = table[table["data"].isin(OWN)]
    shown = [
        ("Ratios to the best published learner, A to E, n = 1,000, 4,000 and 16,000",
         geometric(paper, "published / ours")),
        ("Ratios to the best of interpret's learners run here, setups of our own",
         geometric(unseen, "run here / ours")),
        ("Cells that lose", failing(table, intervals(rows))),
        ("Errors", table.sort_values(["eps", "method", "data", "n"])),
        ("Coverage at 95 %", intervals(rows).sort_values(["eps", "method", "data", "n"])),
    ]  # fmt: skip
    return "\n".join(f"\n## {title}\n\n{_markdown(frame)}" for title, frame in shown)


def _markdown(table: pd.DataFrame) -> str:
    def text(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = [list(table.columns), ["---"] * len(table.columns)]
    lines += [[text(v) for v in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


HEAD = """# Conditional effects: errors, intervals, seconds

Written by `cate_study.py` from `rows.parquet` beside it; noise is real. Ratios above 1 are in
our favour. Which configurations were ever scored on A to E stands in `log.md`.
"""


COLOURS = {
    "r": "#0072B2", "dr": "#E69F00", "auto": "#009E73",
    "paper s": "#999999", "paper r": "#CC79A7", "paper dr": "#D55E00",
}  # fmt: skip
"""Okabe and Ito's; the learners of the paper are dashed: as printed for A to E, else run here."""


def figures(rows: pd.DataFrame, published: pd.DataFrame, folder: Path) -> None:
    """Their Figures 2 and 3: errors and squared bias by n and by epsilon."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    printed = published.rename(columns={"dataset": "data", "epsilon": "eps"})
    printed = printed.assign(method="paper " + printed["learner"])
    table = pd.concat([errors(rows, published), printed[["data", "n", "eps", "method", "mse"]]])
    setups = [data for data in SETUPS if (rows["data"] == data).any()]
    for axis_name, held, value in (("n", "eps", 1.0), ("eps", "n", 16_000)):
        figure, axes = plt.subplots(3, 3, figsize=(9, 7.5))
        for axis, data in zip(axes.flat, setups, strict=False):
            here = table[(table["data"] == data) & (table[held] == value)]
            for method, colour in COLOURS.items():
                line = here[here["method"] == method].sort_values(axis_name)
                style = "--" if method in THEIRS else "-"
                axis.loglog(line[axis_name], line["mse"], "o" + style, color=colour, markersize=3)
                bias = line[line["bias2"] > 0]
                axis.loglog(bias[axis_name], bias["bias2"], ":", color=colour, linewidth=0.8)
            axis.set_title(data, fontsize=9)
            axis.tick_params(labelsize=7)
            axis.minorticks_off()
            axis.set_xlabel(axis_name, fontsize=8)
        for axis in axes.flat[len(setups) :]:
            axis.set_axis_off()
        lines = [
            plt.Line2D([], [], color=colour, linestyle="--" if method in THEIRS else "-")
            for method, colour in COLOURS.items()
        ]
        figure.legend(lines, list(COLOURS), ncol=6, loc="upper center", fontsize=8, frameon=False)
        figure.supylabel("mean squared error; dotted: squared bias", fontsize=9)
        figure.tight_layout(rect=(0.02, 0, 1, 0.96))
        figure.savefig(folder / f"errors_by_{axis_name}.png", dpi=110)
        plt.close(figure)


def main(arguments: Sequence[str]) -> int:
    reader = argparse.ArgumentParser(description="Errors and intervals of conditional effects.")
    reader.add_argument("--repetitions", type=int, default=100)
    reader.add_argument("--setups", default=",".join(SETUPS))
    reader.add_argument("--sizes", default=",".join(map(str, SIZES)))
    reader.add_argument("--epsilons", default=",".join(f"{eps:g}" for eps in EPSILONS))
    reader.add_argument("--methods", default=",".join((*LEARNERS, *THEIRS)))
    reader.add_argument("--quick", action="store_true", help="one small cell, nothing stored")
    reader.add_argument("--show", action="store_true", help="run nothing: tables from the rows")
    reader.add_argument("--figures", action="store_true", help="plots beside the rows")
    given = reader.parse_args(arguments)
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.parquet"
            run(grid(["A"], [1000], [1.0], ["r", "dr", "paper s"]), 1, file, FIRST_SEED["quick"])
            print(tables(read(file)))
            return 0
    file = HERE / "rows.parquet"
    setups = [d for d in given.setups.split(",") if d != "GOTV" or GOTV.exists()]
    sizes, epsilons = map(int, given.sizes.split(",")), map(float, given.epsilons.split(","))
    cells = grid(setups, list(sizes), list(epsilons), given.methods.split(","))
    HERE.mkdir(exist_ok=True)
    if not given.show:
        run(cells, given.repetitions, file, FIRST_SEED["score"])
    rows = read(file)
    if rows.empty:
        print("no rows of this code yet")
        return 0
    text = tables(rows)
    (HERE / "results.md").write_text(HEAD + text, "utf-8")
    print(text)
    if given.figures:
        figures(rows, pd.read_csv(PUBLISHED), HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
