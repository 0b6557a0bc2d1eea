"""Statements of DP-CATE (Schroeder et al. 2025) beside what `dpcate_study.py` measured.

The paper draws its errors and prints no number, so that most lines are patterns. Runs are paired:
run k of every method and epsilon has the same data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from printed import HERE, LEAST_RUNS, NAN, Line, mean_error, one_version

COMMAND = "python tests/benchmarks/dpcate_study.py"
KERNEL, NETWORK, FUNCTION = "finite, KR", "finite, NN", "functional"
NORMED = (
    "K(x, x) = (sqrt(2 pi) h)^-q of the printed kernel is 1e-39 for 30 covariates, so the function "
    "and its noise are zero"
)
LEVEL = "the noise is negligible before the largest epsilon, so errors are equal there"
STILL = "the largest epsilon that was run, 256, leaves some of the noise"
FEW = "fewer than three runs"
CLOSED = "the data are not open"
UNLIKE = "without noise the network of Supplement G.3 fits better than the kernel regression"
HIDDEN = "at these n the noise is larger than every other term, so its rate is the only one seen"
FIGURES = (
    ("Figure 3", "dataset 1", (KERNEL, NETWORK), 0),
    ("Figure 4", "dataset 1", (FUNCTION,), 0),
    ("Figure 5", "dataset 2", (KERNEL, NETWORK, FUNCTION), 10),
    ("Figure 9", "dataset 1, DR", (KERNEL, NETWORK, FUNCTION), 0),
)
"""Item, our name, methods, and the number of runs that the paper states."""

RATE = "theorem 2, n = "


def stored(folder: Path = HERE / "dpcate") -> list[Line]:
    """The lines of the rows in a folder."""
    rows = pd.read_csv(folder / "runs.csv", dtype={"code": str})
    return lines(one_version(rows, ["figure", "method"]))


def lines(rows: pd.DataFrame) -> list[Line]:
    """In the paper's order."""
    return [*_falls(rows), *_alike(rows), *_theorem_2(rows)]


def paired(rows: pd.DataFrame, figure: str, method: str) -> pd.DataFrame:
    """Logarithms of PEHE, a row per run and a column per epsilon."""
    part = rows[(rows["figure"] == figure) & (rows["method"] == method)]
    return np.log(part.pivot(index="run", columns="eps", values="pehe")).sort_index(axis=1)


def _ratio(gaps: pd.Series) -> tuple[float, float]:
    """The geometric mean of paired ratios, and the standard error of its logarithm."""
    mean, error = mean_error(gaps.dropna())
    return math.exp(mean), error


def _falls(rows: pd.DataFrame) -> Iterator[Line]:
    """The error falls in every step of epsilon, and comes to that without noise."""
    for item, figure, methods, printed_runs in FIGURES:
        for method in methods:
            logs = paired(rows, figure, method)
            runs, epsilons = len(logs), [eps for eps in logs if eps < np.inf]
            still = bool((logs[epsilons].max(axis=1) - logs[epsilons].min(axis=1)).max() < 1e-4)
            steps = [(a, b, *_ratio(logs[b] - logs[a])) for a, b in pairwise(epsilons)]
            first, last, ratio, error = max(steps, key=_least_fall)
            yield Line(
                item, f"{method}, {figure}: PEHE falls in every step of eps; ratio in the least "
                f"clear one, {first:g} to {last:g}, below 1", NAN, ratio, 0.0 if still else error,
                printed_runs, runs, COMMAND, claim="below", level=1, log=True,
                reason=NORMED if still else FEW if runs < LEAST_RUNS else LEVEL,
            )  # fmt: skip
            top = epsilons[-1]
            ratio, error = _ratio(logs[top] - logs[np.inf])
            if not still:
                yield Line(
                    item, f"{method}, {figure}: PEHE comes to that without noise; ratio at eps "
                    f"{top:g}", NAN, ratio, error, printed_runs, runs, COMMAND, level=1, log=True,
                    reason=FEW if runs < LEAST_RUNS else STILL,
                )  # fmt: skip


def _least_fall(step: tuple[float, float, float, float]) -> float:
    """Standard errors by which the error rises in a step, or the ratio if there is no error."""
    _, _, ratio, error = step
    return math.log(ratio) / error if error > 0 else ratio


def _alike(rows: pd.DataFrame) -> Iterator[Line]:
    """Base learners, and the DR-learner, side by side."""
    for item, figure, says, printed_runs in (
        ("Figure 3", "dataset 1", "predictions of KR and NN are almost identical", 0),
        ("Figure 5", "dataset 2", "findings are robust across base learners", 10),
    ):
        network, kernel = paired(rows, figure, NETWORK), paired(rows, figure, KERNEL)
        gaps = (network[np.inf] - kernel[np.inf]).dropna()  # with noise, both are mostly noise
        ratio, error = _ratio(gaps)
        yield Line(
            item, f"{says}: PEHE of NN over that of KR without noise, {figure}", NAN, ratio, error,
            printed_runs, len(gaps), COMMAND, level=1, log=True,
            reason=FEW if len(gaps) < LEAST_RUNS else UNLIKE,
        )  # fmt: skip
    gaps = (paired(rows, "dataset 1, DR", KERNEL) - paired(rows, "dataset 1", KERNEL))[1.0]
    ratio, error = _ratio(gaps)
    yield Line(
        "Supplement B", "the DR-learner needs more noise: its PEHE over the R-learner's at eps 1, "
        "KR, above 1", NAN, ratio, error, 0, len(gaps.dropna()), COMMAND, claim="above", level=1,
        log=True, reason="its noise was smaller here",
    )  # fmt: skip
    exact, basis = (paired(rows, "dataset 1", m)[np.inf] for m in ("finite, exact KR", KERNEL))
    gaps = (exact - basis).dropna()
    ratio, error = _ratio(gaps)
    yield Line(
        "Corollary 2", "kernel regression on the kernel itself over our basis: PEHE without noise, "
        "ratio", NAN, ratio, error, 0, len(gaps), COMMAND, level=1, log=True,
        reason="the basis approximates the kernel",
    )  # fmt: skip
    for item, what in (("Figure 6", "MIMIC-III"), ("Figure 7", "TCGA")):
        yield Line(item, f"predictions on {what} become less noisy", NAN, NAN, NAN, 0, 0, "none",
                   reason=CLOSED)  # fmt: skip


def slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Theorem 2: slope of the log squared distance on log n, a row per run."""
    part = rows[rows["figure"].str.startswith(RATE)]
    part = part.assign(n=part["figure"].str.removeprefix(RATE).astype(float))
    logs = 2 * np.log(part.pivot(index=["method", "run"], columns="n", values="pehe"))
    x = np.log(logs.columns.to_numpy(float))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return (logs @ x).unstack("method")


def _theorem_2(rows: pd.DataFrame) -> Iterator[Line]:
    found = slopes(rows)
    if found.empty:
        return
    mean, error = mean_error(found["noise"])
    yield Line(
        "Theorem 2", "the noise adds o(1/n): slope of log squared distance on log n, below -1", NAN,
        mean, error, 0, len(found), COMMAND, claim="below", level=-1, reason="it falls more slowly",
    )  # fmt: skip
    mean, error = mean_error(found["known"])
    yield Line(
        "Theorem 2", "the rate of the oracle, with the true nuisances: slope of log squared "
        "distance on log n", -1, mean, error, 0, len(found), COMMAND,
        reason="the slope over four sizes differs from the asymptotic one",
    )  # fmt: skip
    mean, _ = mean_error(found["private"])
    yield Line(
        "Theorem 2", "private nuisances keep the oracle's rate: slope of log squared distance on "
        "log n", -1, mean, NAN, 0, len(found), COMMAND, reason=HIDDEN,
    )  # fmt: skip
