"""Private linear regressions of others beside `pc.regress`, on the data sets of `regress.py`.

``python tests/benchmarks/regress_rivals.py`` prints the table in `regress_rivals.txt`; ``--quick``
makes one fit of one data set. Every method has the same declared bounds, the same (eps, 1e-5), and
neighbors that add or remove a row (diffprivlib: pure eps, and neighbors that replace a row). Rows
are drawn with replacement, and least squares on all rows is the truth. Errors and half-widths are
relative to those of least squares without privacy, and refer to slopes.

BinAgg is the authors' code (``pip install git+https://github.com/shuronglin/binagg``, MIT), and
diffprivlib 0.6.6 needs scikit-learn before 1.8. A package that cannot be imported is left out.
Gradient descent is the algorithm DP-GD of Brown, Dvijotham, Evans, Liu, Smith and Thakurta (ICML
2024, arXiv 2402.13531). The paper's text was not at hand: we wrote it from its abstract and from a
public script of its first author, which has the descent and intervals from checkpoints.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm
from regress import WHOLE, YES_NO, Law, public
from rivals import noise_sd
from scipy.stats import t as student

import privcausal as pc
from privcausal.testing import seeded_noise

EPSILONS, DELTA, FITS = (1.0, 4.0), 1e-5, 40
Z = 1.96
STEPS, BLOCKS = 3000, 5
"""Of gradient descent: its estimate averages all blocks of steps but the first."""


class Rows(NamedTuple):
    """A table, and its columns on [-1, 1] by their bounds: x has a first column of ones."""

    frame: pd.DataFrame
    law: Law
    x: Any
    y: Any
    units: Any
    """Natural slope per slope on these columns, shape (p,)."""


Found = tuple[Any, Any]
"""Slopes and half-widths, shape (p,) each; a method without intervals has None."""


def rows_of(law: Law, frame: pd.DataFrame) -> Rows:
    ends = np.array([law.bounds[name] for name in law.bounds], dtype=float)
    middle, half = ends.mean(axis=1), np.diff(ends, axis=1)[:, 0] / 2
    unit = ((frame[list(law.bounds)].to_numpy() - middle) / half).clip(-1, 1)
    x = np.column_stack([np.ones(len(unit)), unit[:, 1:]])
    return Rows(frame, law, x, unit[:, 0], half[0] / half[1:])


def regress(rows: Rows, eps: float, seed: int) -> Found:
    law = rows.law
    with seeded_noise(seed):
        fit = pc.regress(
            law.formula, rows.frame, bounds=law.bounds, eps=eps, delta=DELTA, neighbors="add_remove"
        )
    limits = fit.conf_int().loc[list(law.bounds)[1:]].to_numpy()
    return fit.params[list(law.bounds)[1:]].to_numpy(), np.diff(limits, axis=1)[:, 0] / 2


def _sums(rows: Rows, eps: float, seed: int) -> tuple[Found, Found]:
    """Least squares from X'X, X'y and y'y with Gaussian noise: naive intervals, and corrected ones.

    A row z = (x, y) has |z|^2 <= k, so that z z' has a norm of at most k. A ridge lifts the least
    eigenvalue of X'X to the noise sd of an entry; dp-statsmodels lifts it to 1e-6, which loses more
    here. Naive intervals take the noisy sums for the true ones. The others add the variance that
    noise gives to the coefficients, as dp-statsmodels does.
    """
    z = np.column_stack([rows.x, rows.y])
    n, k = z.shape
    sd = noise_sd(eps, k)
    noise = np.triu(np.random.default_rng(seed).normal(0, sd, (k, k)))
    gram = z.T @ z + noise + np.triu(noise, 1).T
    xx, xy = gram[:-1, :-1], gram[:-1, -1]
    lift = max(sd - np.linalg.eigvalsh(xx)[0], 0.0)
    inverse = np.linalg.inv(xx + lift * np.eye(k - 1))
    beta = inverse @ xy
    sampling = max(gram[-1, -1] - xy @ beta, 0.0) / (n - k + 1) * inverse.diagonal()
    noisy = sd**2 * (1 + beta @ beta) * (inverse @ inverse).diagonal()
    slopes = beta[1:] * rows.units
    naive, whole = (Z * np.sqrt(v[1:]) * rows.units for v in (sampling, sampling + noisy))
    return (slopes, naive), (slopes, whole)


def _clip(law: Law, d: int) -> float:
    """Largest norm of a row's gradient: sqrt(d) times a residual's scale, as in their script.

    An outcome of two values has residuals near 1, and others are taken to have smaller ones.
    """
    outcome = next(iter(law.bounds.values()))
    return float((1.0 if outcome == YES_NO else 0.2) * np.sqrt(d))


def _path(rows: Rows, clip: float, noise: Any) -> Any:
    """The iterates of gradient descent from 0, shape as that of `noise`.

    The gradient of a row is x times its residual, so that clipping it clips the residual. The
    number of rows, which scales the steps, is taken as public.
    """
    n, d = rows.x.shape
    limit = clip / np.linalg.norm(rows.x, axis=1)
    path = np.zeros((len(noise) + 1, d))
    for k, added in enumerate(noise):
        residuals = (rows.y - rows.x @ path[k]).clip(-limit, limit)
        path[k + 1] = path[k] + 1.8 / (n * d) * (rows.x.T @ residuals + added)
    return path[1:]


def descent(rows: Rows, eps: float, seed: int) -> Found:
    """DP-GD: least squares by gradient descent on all rows, with clipped gradients and noise.

    Gaussian noise of T steps costs as much as one release of sqrt(T) times the sensitivity. |x|^2
    is at most d, so that steps below 2 / d converge. The script averages checkpoints, and their
    spread gives the interval. We average all iterates after the first block, which has a lower
    RMSE, and take the spread of the blocks' means (t). Of some that were tried on the building
    sets, steps, clip and burn-in have the least RMSE, and the number of blocks the best coverage.
    The interval of the script is for least squares on the drawn rows. To reach the truth, we add
    the sampling variance of least squares without privacy, in favor of this method. That the clip
    of .2 biases some slopes by several standard errors is not in the interval.
    """
    d = rows.x.shape[1]
    clip = _clip(rows.law, d)
    sd = noise_sd(eps, clip * np.sqrt(STEPS))
    path = _path(rows, clip, np.random.default_rng(seed).normal(0, sd, (STEPS, d)))
    means = path.reshape(BLOCKS, -1, d).mean(axis=1)[1:]
    spread = student.ppf(0.975, len(means) - 1) * means.std(axis=0, ddof=1) / np.sqrt(len(means))
    half = np.hypot(spread, Z * sm.OLS(rows.y, rows.x).fit().bse)
    return means.mean(axis=0)[1:] * rows.units, half[1:] * rows.units


def on_coefficients(rows: Rows, eps: float, seed: int) -> Found:
    """DPrivStats 0.1 (Bijalwan 2026): least squares with noise on the coefficients.

    Its sensitivity is C D / lambda for |x| <= C, the width D of y, and the least eigenvalue of
    X'X, times 3 where x is private. The eigenvalue is that of the rows, without noise, and the
    factor is a heuristic, so the guarantee is not proven. Variances of sampling and noise add up.
    """
    n, d = rows.x.shape
    gram = rows.x.T @ rows.x
    sd = noise_sd(eps, 3 * np.sqrt(d) * 2 / np.linalg.eigvalsh(gram)[0])
    inverse = np.linalg.inv(gram)
    beta = inverse @ rows.x.T @ rows.y + np.random.default_rng(seed).normal(0, sd, d)
    sampling = np.sum((rows.y - rows.x @ beta) ** 2) / (n - d) * inverse.diagonal()
    return beta[1:] * rows.units, Z * np.sqrt(sampling + sd**2)[1:] * rows.units


def adassp(rows: Rows, eps: float, seed: int) -> Found:
    """AdaSSP (Wang 2018, algorithm 2): ridge whose penalty follows from a noisy eigenvalue."""
    rng, d, failure = np.random.default_rng(seed), rows.x.shape[1], 0.05
    norm2, log = float(d), np.log(6 / DELTA)  # |x|^2 <= d, |y| <= 1
    noise = np.sqrt(log) / (eps / 3)
    gram = rows.x.T @ rows.x
    least = np.linalg.eigvalsh(gram)[0] + noise * norm2 * rng.normal() - log / (eps / 3) * norm2
    z = np.triu(rng.normal(size=(d, d)))
    gram += noise * norm2 * (z + np.triu(z, 1).T)
    cross = rows.x.T @ rows.y + noise * np.sqrt(norm2) * rng.normal(size=d)
    far = np.sqrt(d * log * np.log(2 * d**2 / failure)) * norm2 / (eps / 3)
    ridge = max(0.0, far - max(least, 0.0))
    return np.linalg.solve(gram + ridge * np.eye(d), cross)[1:] * rows.units, None


def binagg(rows: Rows, eps: float, seed: int) -> Found:
    """BinAgg (Lin, Slavkovic and Bhoomireddy, AISTATS 2026), with its defaults."""
    package = importlib.import_module("binagg")
    mu = importlib.import_module("binagg.privacy").mu_from_eps_delta(eps, DELTA)
    ends = [(1.0, 1.0), *[(-1.0, 1.0)] * (rows.x.shape[1] - 1)]
    found = package.dp_linear_regression(rows.x, rows.y, ends, (-1, 1), mu, random_state=seed)
    return found.coefficients[1:] * rows.units, Z * found.standard_errors[1:] * rows.units


def diffprivlib(rows: Rows, eps: float, seed: int) -> Found:
    models = importlib.import_module("diffprivlib.models")
    one = np.ones(rows.x.shape[1] - 1)
    fit = models.LinearRegression(
        epsilon=eps, bounds_X=(-one, one), bounds_y=(-1, 1), random_state=seed
    )
    return fit.fit(rows.x[:, 1:], rows.y).coef_ * rows.units, None


METHODS: dict[str, Callable[[Rows, float, int], Found]] = {
    "regress": regress,
    "sums, naive": lambda *asked: _sums(*asked)[0],
    "sums, corrected": lambda *asked: _sums(*asked)[1],
    "BinAgg": binagg,
    "gradient descent": descent,
    "DPrivStats": on_coefficients,
    "AdaSSP": adassp,
    "diffprivlib": diffprivlib,
}
PACKAGES = {"BinAgg": "binagg", "diffprivlib": "diffprivlib.models"}


def usable() -> list[str]:
    found = []
    for name in METHODS:
        try:
            importlib.import_module(PACKAGES.get(name, "privcausal"))
            found.append(name)
        except ImportError:
            print(f"no {name}: {PACKAGES[name]} cannot be imported")
    return found


def cell(law: Law, eps: float, fits: int, methods: list[str]) -> pd.DataFrame:
    """By method: median over slopes of the RMSE, coverage, and median half-width, over OLS's."""
    whole = rows_of(law, law.draw(WHOLE, np.random.default_rng(1)))
    truth = np.asarray(sm.OLS(whole.y, whole.x).fit().params)[1:] * whole.units
    errors, covered, widths = (defaultdict[str, list[Any]](list) for _ in range(3))
    for seed in range(fits):
        rng = np.random.default_rng([seed, int(10 * eps)])
        rows = rows_of(law, law.draw(len(whole.frame), rng))
        known = np.asarray(sm.OLS(rows.y, rows.x).fit().bse)[1:] * rows.units
        for name in methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                slopes, half = METHODS[name](rows, eps, seed)
            errors[name].append((slopes - truth) / known)
            if half is not None:
                half = np.where(np.isfinite(half), half, np.inf)  # no interval: none is wider
                covered[name].append(np.abs(slopes - truth) <= half)
                widths[name].append(half / (Z * known))
    return pd.DataFrame({
        "rmse": {m: np.median(np.sqrt(np.mean(np.square(errors[m]), axis=0))) for m in methods},
        "cover": {m: np.mean(covered[m]) for m in covered},
        "width": {m: np.median(widths[m]) for m in widths},
    })  # fmt: skip


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """By eps and method, over data sets: medians, least coverage, and cells of least RMSE."""
    best = found.groupby(["eps", "data"])["rmse"].transform("min") == found["rmse"]
    by = found.assign(best=best).groupby(["eps", "method"], sort=False)
    return by.agg(
        sets=("data", "count"),
        rmse=("rmse", "median"),
        cover=("cover", "mean"),
        least=("cover", "min"),
        width=("width", "median"),
        best=("best", "sum"),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fit of one data set")
    parser.add_argument("--fits", type=int, default=FITS)
    chosen = parser.parse_args()
    methods, laws = usable(), public()
    if chosen.quick:
        laws, EPSILONS, chosen.fits = dict(list(laws.items())[:1]), (1.0,), 1
    lines: list[dict[str, Any]] = []
    print(f"{'data':32}{'eps':4} {'method':16}{'rmse':>10}{'cover':>7}{'width':>7}")
    for eps in EPSILONS:
        for data, law in laws.items():
            for method, (rmse, cover, width) in cell(law, eps, chosen.fits, methods).iterrows():
                lines.append({"data": data, "eps": eps, "method": method, "rmse": rmse})
                lines[-1] |= {"cover": cover, "width": width}
                end = f"{rmse:10.2f}{cover:7.2f}{width:7.2f}".replace("nan", "  -")
                print(f"{data:32}{eps:<4g} {method:16}{end}", flush=True)
    if lines:
        whole = pd.DataFrame(lines)
        best = whole.loc[whole.groupby(["eps", "data"], sort=False)["rmse"].idxmin()]
        print("\nall data sets\n", summary(whole).round(2).to_string(), sep="")
        if len(rest := whole[~whole["data"].str.contains("building")]):
            print("\nwithout those that chose constants of regress\n", end="")
            print(summary(rest).round(2).to_string())
        for row in best[best["method"] != "regress"].itertuples():
            print(f"lost to {row.method}: {row.data}, eps {row.eps:g}")
