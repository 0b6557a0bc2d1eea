"""Randomized trials with a known allocation: how wide are private intervals?

    python tests/benchmarks/trials.py --reps 40 --eps 1
    python tests/benchmarks/trials.py --public report --reps 12
    python tests/benchmarks/trials.py --quick

Thirteen laws: normal, skewed, binary and sparse outcomes. Half, a fifth or a tenth of the rows are
treated. Half-widths of `pc.private` with covariates and without are divided by a floor. It spends
the whole budget on one mean of scores with the true outcome model, clipped at the best two points.
With `--public`, trials of 500 to 30,000 rows have outcomes of public data sets, with 50, 33 or 20%
treated, and every second trial has an effect. Half-widths are divided by that of Welch's interval
on the same rows. Rows and noise have seeds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal import accounting
from privcausal.inference.effects import covering
from privcausal.testing import seeded_noise

DELTA, Z = 1e-5, 1.959964
FLOOR_ROWS, FLOOR_CUTS = 400_000, 60


class Drawn(NamedTuple):
    """Covariates, mean outcome by arm, both outcomes, and the bounds of the outcome."""

    x: Any
    means: tuple[Any, Any]
    outcomes: tuple[Any, Any]
    bounds: Any


class Law(NamedTuple):
    draw: Callable[[Any, int], Drawn]
    rows: int
    share: float


def _covariates(rng: Any, n: int, p: int, r2: float) -> tuple[Any, Any]:
    """Columns with standard normal values, and an index of variance `r2`."""
    x = rng.normal(size=(n, p)).clip(-5, 5)
    return x, x.sum(axis=1) * np.sqrt(r2 / p)


def normal(rng: Any, n: int, r2: float = 0.6, p: int = 4) -> Drawn:
    x, index = _covariates(rng, n, p, r2)
    noise = np.sqrt(1 - r2) * rng.normal(size=n)
    y = [(index + tau + noise).clip(-6, 6) for tau in (0.0, 0.2)]
    return Drawn(x, (index, index + 0.2), (y[0], y[1]), (-6, 6))


def skewed(rng: Any, n: int) -> Drawn:
    """Lognormal outcomes: the log has variance .6, half of it by covariates."""
    x, index = _covariates(rng, n, 4, 0.3)
    noise = np.sqrt(0.3) * rng.normal(size=n)
    y = [np.exp(index + tau + noise).clip(0, 40) for tau in (0.0, 0.1)]
    return Drawn(x, (np.exp(index + 0.15), np.exp(index + 0.25)), (y[0], y[1]), (0, 40))


def binary(rng: Any, n: int) -> Drawn:
    x, index = _covariates(rng, n, 4, 1.0)
    p = [1 / (1 + np.exp(0.8 - index - tau)) for tau in (0.0, 0.2)]
    u = rng.random(n)
    return Drawn(x, (p[0], p[1]), (1.0 * (u < p[0]), 1.0 * (u < p[1])), [0, 1])


PRICES, SHARES = (9.0, 19.0, 49.0, 120.0), (0.4, 0.3, 0.2, 0.1)


def spend(rng: Any, n: int) -> Drawn:
    """About 8% buy, at one of four prices, once or several times."""
    x, index = _covariates(rng, n, 3, 0.5)
    p = [np.minimum(0.07 * np.exp(index - 0.25 + tau), 1.0) for tau in (0.0, 0.1)]
    amount = rng.choice(PRICES, n, p=SHARES) * (1 + rng.poisson(0.3, n))
    mean, u = 1.3 * float(np.dot(PRICES, SHARES)), rng.random(n)
    y = [np.where(u < q, amount, 0.0).clip(0, 500) for q in p]
    return Drawn(x, (mean * p[0], mean * p[1]), (y[0], y[1]), (0, 500))


LAWS: dict[str, Law] = {
    "normal, 1,000": Law(normal, 1_000, 0.5),
    "normal, 5,000": Law(normal, 5_000, 0.5),
    "normal, 20,000": Law(normal, 20_000, 0.5),
    "R2 .3, 8 columns": Law(partial(normal, r2=0.3, p=8), 2_000, 0.5),
    "R2 0": Law(partial(normal, r2=0.0), 2_000, 0.5),
    "normal, 20% treated": Law(normal, 5_000, 0.2),
    "normal, 10% treated": Law(normal, 10_000, 0.1),
    "skewed": Law(skewed, 5_000, 0.5),
    "skewed, 20% treated": Law(skewed, 5_000, 0.2),
    "binary": Law(binary, 5_000, 0.5),
    "binary, 10% treated": Law(binary, 5_000, 0.1),
    "spend, 20,000": Law(spend, 20_000, 0.5),
    "spend, 60,000": Law(spend, 60_000, 0.5),
}


def noise_unit(eps: float) -> float:
    """Noise sd of a sum that a row changes by at most 1, for the whole budget."""
    rho = accounting.rho_of(eps, DELTA, gdp=True) / accounting.PICO
    return float(1 / np.sqrt(2 * rho))


@cache
def truth(name: str) -> tuple[Any, float]:
    """Scores with the true outcome model, and the average effect."""
    law, rng = LAWS[name], np.random.default_rng(1)
    drawn = law.draw(rng, FLOOR_ROWS)
    t, e = rng.random(FLOOR_ROWS) < law.share, law.share
    y = np.where(t, drawn.outcomes[1], drawn.outcomes[0])
    model = (1 - e) * drawn.means[1] + e * drawn.means[0]
    effect = float(np.mean(drawn.outcomes[1] - drawn.outcomes[0]))
    return np.sort((t - e) / (e * (1 - e)) * (y - model)), effect


@cache
def floor(name: str, eps: float) -> float:
    """Least half-width: sampling, noise of the whole budget, and the mean that is clipped."""
    scores, _ = truth(name)
    n, total = LAWS[name].rows, len(scores)
    ends = np.r_[np.geomspace(1e-4, 0.4, FLOOR_CUTS)]
    whole, squares = np.r_[0.0, np.cumsum(scores)], np.r_[0.0, np.cumsum(scores**2)]
    best = np.inf
    rank = np.r_[0, (ends * total).astype(int)]
    for i in rank:
        for j in rank:
            if i + j >= total:
                continue
            low, high, top = scores[i], scores[total - 1 - j], total - j
            lost = (low * i - whole[i]) / total, (whole[-1] - whole[top] - high * j) / total
            mean = (whole[top] - whole[i] + i * low + j * high) / total
            square = (squares[top] - squares[i] + i * low**2 + j * high**2) / total
            sd = np.hypot(np.sqrt((square - mean**2) / n), (high - low) * noise_unit(eps) / n)
            half = covering(Z, np.array([sum(lost)]), np.array([sd]))
            best = min(best, float(half[0]))
    return best


def fitted(job: tuple[str, float, float, int]) -> dict[str, Any]:
    """Half-widths of both fits of one trial: law, eps, factor of the bounds' width, and seed."""
    name, eps, wide, seed = job
    law, rng = LAWS[name], np.random.default_rng([2, seed])
    drawn = law.draw(rng, law.rows)
    t = rng.random(law.rows) < law.share
    frame = pd.DataFrame(drawn.x, columns=[f"x{j + 1}" for j in range(drawn.x.shape[1])])
    bounds: dict[str, Any] = dict.fromkeys(frame.columns, (-5 * wide, 5 * wide))
    bounds["Y"] = drawn.bounds
    if isinstance(drawn.bounds, tuple):
        bounds["Y"] = drawn.bounds[0] * wide, drawn.bounds[1] * wide
    found: dict[str, Any] = {"law": name}
    columns = " + ".join(frame.columns)
    frame = frame.assign(Y=np.where(t, drawn.outcomes[1], drawn.outcomes[0]), T=t * 1.0)
    effect = truth(name)[1]
    for kind, formula in (("adjusted", f"Y ~ T | {columns}"), ("plain", "Y ~ T")):
        with warnings.catch_warnings(), seeded_noise(7919 * seed + law.rows):
            warnings.simplefilter("ignore")
            fit = pc.private(
                formula, frame, eps=eps, delta=DELTA, bounds=bounds, propensity=law.share
            )
        low, high = fit.conf_int().iloc[0]
        found[kind], found[f"covers {kind}"] = (high - low) / 2, low <= effect <= high
    return found | {"floor": floor(name, eps)}


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Median half-widths over the floor and over the difference, and coverage, by law."""
    groups = pd.DataFrame(rows).groupby("law", sort=False)
    middle = groups[["adjusted", "plain", "floor"]].median()
    covers = groups[["covers adjusted", "covers plain"]].mean()
    return pd.DataFrame({
        "over floor": middle["adjusted"] / middle["floor"],
        "plain over floor": middle["plain"] / middle["floor"],
        "over plain": middle["adjusted"] / middle["plain"],
        "covers": covers["covers adjusted"], "plain covers": covers["covers plain"],
    })  # fmt: skip


PUBLIC_ROWS, PUBLIC_SHARES = (500, 1_000, 2_000, 8_000, 30_000), (0.5, 1 / 3, 0.2)


def public_trials(half: str, eps: float, reps: int) -> pd.DataFrame:
    """A row for each fit of trials whose outcomes are those of public data sets."""
    import everyday_laws as laws

    found = []
    for name in laws.names("library", half, 0):
        data, bounds = laws.load(name)
        y, own = data.iloc[:, 0].to_numpy(float), bounds.get(data.columns[0], [0, 1])
        low, high = own[0], own[-1]
        more = y + 0.2 * (y - low if low >= 0 else y.std()) if isinstance(own, tuple) else y
        for n, seed in itertools.product(PUBLIC_ROWS, range(reps)):
            rng = np.random.default_rng([seed, n, *name.encode()])
            arms = y, more.clip(low, high) if seed % 2 else y
            t = rng.random(n) < PUBLIC_SHARES[seed % 3]
            drawn = np.where(t, *(arm[rng.integers(0, len(y), n)] for arm in arms[::-1]))
            with warnings.catch_warnings(), seeded_noise(7919 * seed + n):
                warnings.simplefilter("ignore")
                frame = pd.DataFrame({"Y": drawn, "T": t * 1.0})
                fit = pc.private("Y ~ T", frame, eps=eps, delta=DELTA, bounds={"Y": own})
            low_limit, high_limit = fit.conf_int().iloc[0]
            effect = float(arms[1].mean() - y.mean())
            parts = [drawn[t == arm] for arm in (0, 1)]
            welch = Z * float(np.sqrt(sum(p.var(ddof=1) / len(p) for p in parts)))
            found.append({
                "set": name, "rows": n, "over Welch": (high_limit - low_limit) / 2 / welch,
                "covers": low_limit <= effect <= high_limit,
            })  # fmt: skip
    return pd.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--eps", type=float, default=1.0)
    parser.add_argument("--wide", type=float, default=1.0, help="factor of the bounds' width")
    parser.add_argument("--laws", default=";".join(LAWS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--public", choices=("build", "report"), help="outcomes of public data")
    parser.add_argument("--quick", action="store_true", help="one fit of every third law")
    options = parser.parse_args()
    reps = 1 if options.quick else options.reps
    if options.public:
        fits = public_trials(options.public, options.eps, reps)
        for by in ("rows", "set"):
            one = fits.groupby(by, sort=False)
            log = np.log(fits["over Welch"]).groupby(fits[by], sort=False).mean()
            shown = {"over Welch": np.exp(log), "covers": one["covers"].mean(), "fits": one.size()}
            print(pd.DataFrame(shown).round(3).to_string())
        return
    names = options.laws.split(";")[:: 3 if options.quick else 1]
    jobs = [(name, options.eps, options.wide, seed) for name in names for seed in range(reps)]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = table(list(pool.map(fitted, jobs, chunksize=reps)))
    print(found.round(3).to_string())
    ratio = found["over floor"]
    print(f"over floor: geometric mean {np.exp(np.log(ratio).mean()):.3f}, most {ratio.max():.3f}")
    print(f"over plain: most {found['over plain'].max():.3f}")


if __name__ == "__main__":
    main()
