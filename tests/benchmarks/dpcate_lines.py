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
STILL = (
    "not known: at eps 4096 the kernel regression has come to its error without noise, the network "
    "on 30 covariates has not"
)
WORSE = (
    "on 30 covariates the network of Supplement G.3 fits worse than the kernel regression without "
    "noise; the paper prints no errors"
)
FEW = "fewer than three runs; ten runs of the network take about 20 minutes and need PyTorch"
MOST = 256
"""Falls are compared up to this epsilon; from it on most errors are those without noise."""
CLOSED = "the data are not open"
BETTER = "without noise the network of Supplement G.3 fits better than the kernel regression"
HIDDEN = "at these n the noise is larger than every other term, so its rate is the only one seen"
SQUARE = (
    "a misprint: by Eqs. 25 and 26 the factor is gamma squared, so the bound fails if gamma > 1"
)
ROOT = (
    "an error of Lemma 1: by its proof (Eq. 64) the exponent is q/2, so the noise of Eq. 19 is too "
    "small if sqrt(2 pi) h > 1"
)
ORDER = "an error: at equality the rate is n^(-1/4) itself, so a strict order is required"
CITED = (
    "a rate of another paper for convex losses; a study over n, m and eps would take about two "
    "hours"
)
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
    return [*_falls(rows), *_alike(rows), *_theorem_2(rows), *_supplement_d(), *_supplement_f()]


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
            runs, epsilons = len(logs), [eps for eps in logs if eps <= MOST]
            still = bool((logs[epsilons].max(axis=1) - logs[epsilons].min(axis=1)).max() < 1e-4)
            steps = [(a, b, *_ratio(logs[b] - logs[a])) for a, b in pairwise(epsilons)]
            first, last, ratio, error = max(steps, key=_least_fall)
            yield Line(
                item, f"{method}, {figure}: PEHE falls in every step of eps to {MOST}; ratio in "
                f"the least clear one, {first:g} to {last:g}, below 1", NAN, ratio,
                0.0 if still else error, printed_runs, runs, COMMAND, claim="below", level=1,
                log=True, reason=NORMED if still else FEW if runs < LEAST_RUNS else LEVEL,
            )  # fmt: skip
            top = max(eps for eps in logs if eps < np.inf)
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
            reason=FEW if len(gaps) < LEAST_RUNS else BETTER if ratio < 1 else WORSE,
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


def excess_risk(away: float, r: float) -> float:
    """Eq. 24 at one point: E (away + r U)^2 - away^2 for a standard normal U, by quadrature."""
    u, weight = np.polynomial.hermite_e.hermegauss(20)
    return float(((away + r * u) ** 2 - away**2) @ weight / math.sqrt(2 * math.pi))


def noise_scales(n: float, eps: float, delta: float, gamma: float = 2.0) -> tuple[float, float]:
    """r of Eq. 26, and of Eq. 28 over sup rho L (sqrt(2 pi) h)^-q / lambda."""
    finite = gamma * 5 * math.sqrt(2 * math.log(n) * math.log(2 / delta)) / (eps * n)
    return finite, 4 * math.sqrt(2 * math.log(2 / delta)) / (n * eps)


def _exact(item: str, says: str, printed: float, measured: float, reason: str = "") -> Line:
    """A formula at numbers of ours, without runs."""
    return Line(item, says, printed, round(measured, 9), 0, 0, 0, "none",
                reason=reason or "the formula does not follow")  # fmt: skip


def _supplement_d() -> Iterator[Line]:
    """Excess risk: each formula over the one that follows from the equations before it."""
    n, eps, delta, gamma, h, q, ridge = 1000.0, 1.0, 1e-5, 2.0, 0.3, 2, 0.01
    r, functional = noise_scales(n, eps, delta, gamma)
    item, log = "Supplement D", math.log(2 / delta)
    yield _exact(
        item, "Eqs. 23 to 25: the excess risk is r^2 E U^2; ratio by quadrature", 1,
        excess_risk(0.7, r) / r**2,
    )  # fmt: skip
    eq_27 = gamma * 50 * math.log(n) * log / (eps * n) ** 2
    yield _exact(item, "Eq. 27 over r^2 of Eq. 26 at gamma = 2", 1, eq_27 / r**2, SQUARE)
    yield _exact(item, "Eq. 27 with gamma^2 over r^2 of Eq. 26", 1, gamma * eq_27 / r**2)
    root = math.sqrt(2 * math.pi) * h
    x = np.random.default_rng(0).uniform(-1, 1, (5, q))
    kernel = root**-q * np.exp(-((x[:, None] - x) ** 2).sum(axis=2) / (2 * h**2))
    yield _exact(item, "Eq. 29: E K(X, X) over (sqrt(2 pi) h)^-q", 1,
                 float(np.diag(kernel).mean()) * root**q)  # fmt: skip
    r = functional * root**-q / ridge
    eq_30 = 32 * log / (root ** (3 * q) * (ridge * n * eps) ** 2)
    yield _exact(item, "Eq. 30 over r^2 of Eq. 28 times Eq. 29", 1, eq_30 / (r**2 * root**-q))
    yield _exact(
        item, "Eqs. 27 and 30 are o(1/n): n times the bounds at n = 1e12, to three digits", 0,
        round(1e12 * sum(scale**2 for scale in noise_scales(1e12, eps, delta)), 3),
    )  # fmt: skip
    yield _exact("Lemma 1", "Eq. 17 over Eq. 64 at h = 1, q = 2", 1,
                 1 / math.sqrt(2 * math.pi), ROOT)  # fmt: skip


def _supplement_f() -> Iterator[Line]:
    """Rates of private nuisances, at equality in the conditions on m."""
    n, eps, log = 1e8, 2.0, math.log(1e5)
    says = "Eq. 62: DP-SGD's error is of order sqrt(m) / (n eps)"
    yield Line("Supplement F", says, NAN, NAN, NAN, 0, 0, "none", reason=CITED)
    first = math.sqrt(math.sqrt(n**3) * eps**2) / (n * eps)
    m = n * eps**2 * (n**0.25 - 1) ** 2 / log
    second = 1 / math.sqrt(n) + math.sqrt(m * log) / (n * eps)
    for says, rate in (("Eq. 62: m <= sqrt(n^3) eps^2", first), ("Eq. 63", second)):
        yield _exact("Supplement F", f"{says} gives o(n^-1/4): limit of the rate over n^-1/4", 0,
                     rate * n**0.25, ORDER)  # fmt: skip


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
