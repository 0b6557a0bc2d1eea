"""Coverage and widths of effects of several arms on three laws fixed before any of them was fitted.

Run ``python tests/benchmarks/several.py [--quick] [repetitions]``. Noise is seeded, data are fresh
each time. Beside each half-width stands that of the doubly robust estimate with the true nuisances
and no privacy.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

WHOLE = 2_000_000


class Drawn(NamedTuple):
    """Rows, and the propensity and the mean outcome of each arm at them, shape (n, K)."""

    rows: pd.DataFrame
    e: Any
    mu: Any


class Law(NamedTuple):
    draw: Callable[[int, int], Drawn]
    bounds: dict[str, Any]


def _given(lift: Any, mu: Any, columns: dict[str, Any], rng: Any, *, binary: bool) -> Drawn:
    """Arms by a multinomial logit; outcomes of 0 or 1, or with normal errors of sd 1."""
    e = np.exp(lift)
    e /= e.sum(axis=1, keepdims=True)
    arm = (rng.random(len(e))[:, None] > e.cumsum(axis=1)[:, :-1]).sum(axis=1)
    mean = mu[np.arange(len(e)), arm]
    y = (rng.random(len(e)) < mean).astype(int) if binary else mean + rng.normal(size=len(e))
    return Drawn(pd.DataFrame({"Y": y, "T": np.array(list("klmn"))[arm], **columns}), e, mu)


def linear(n: int, seed: int) -> Drawn:
    """Three arms of 45, 35 and 20 %, linear confounding, constant effects."""
    rng = np.random.default_rng([1, seed])
    a, b = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    lift = np.stack([0 * a, 0.6 * a - 0.2, 0.4 * b - 0.5 * a - 1.0], axis=1)
    mu = (2 * a - b)[:, None] + [0.0, 0.5, -0.3]
    return _given(lift, mu, {"A": a, "B": b}, rng, binary=False)


def varied(n: int, seed: int) -> Drawn:
    """Four arms, curved confounding, effects that vary, loose bounds of the outcome."""
    rng = np.random.default_rng([2, seed])
    a, b, c = rng.uniform(-1, 1, n), rng.normal(0, 1, n).clip(-3, 3), rng.uniform(0, 1, n)
    lift = np.stack([0 * a, a**2, 0.4 * b, 0.6 * c - 0.3 * b], axis=1)
    tau = np.stack([0 * a, 0.5 + a, 0.3 * b, 1 - c], axis=1)
    mu = (2 * a**2 + 0.5 * b)[:, None] + tau
    return _given(lift, mu, {"A": a, "B": b, "C": c}, rng, binary=False)


def rare(n: int, seed: int) -> Drawn:
    """An outcome of about 8 %, and arms of about 60, 30 and 10 %."""
    rng = np.random.default_rng([3, seed])
    a, b = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    lift = np.stack([0 * a, 0.5 * a - 0.7, -0.4 * b - 1.6], axis=1)
    index = -2.8 + 0.8 * a + 0.4 * b
    mu = 1 / (1 + np.exp(-np.stack([index, index + 0.5, index + 0.3 - 0.4 * a], axis=1)))
    return _given(lift, mu, {"A": a, "B": b}, rng, binary=True)


LAWS = {
    "linear": Law(linear, {"Y": (-8, 8), "T": list("klm"), "A": (-1, 1), "B": [0, 1]}),
    "varied": Law(varied, {"Y": (-40, 40), "T": list("klmn"), "A": (-1, 1), "B": (-5, 5),
                           "C": (0, 1)}),
    "rare": Law(rare, {"Y": [0, 1], "T": list("klm"), "A": (-1, 1), "B": [0, 1]}),
}  # fmt: skip
ROWS, EPSILONS = (5000, 50_000), (0.5, 1.0, 4.0)


def best(drawn: Drawn) -> Any:
    """Half-widths of effects by the true nuisances, by arm."""
    labels = np.array(list("klmn"))[: drawn.e.shape[1]]
    own = drawn.rows["T"].to_numpy()[:, None] == labels
    scores = drawn.mu + own * (drawn.rows["Y"].to_numpy()[:, None] - drawn.mu) / drawn.e
    return 1.96 * (scores[:, 1:] - scores[:, :1]).std(axis=0) / np.sqrt(len(scores))


def cell(name: str, n: int, eps: float, repetitions: int) -> dict[str, Any]:
    """Of all effects together: coverage, the least of one, bias, rmse and half-widths."""
    law, errors, halves, plain = LAWS[name], [], [], []
    mu = law.draw(WHOLE, 10**6).mu.mean(axis=0)
    truth = mu[1:] - mu[0]
    covariates = [c for c in law.bounds if c not in "YT"]
    for seed in range(repetitions):
        drawn = law.draw(n, seed)
        with seeded_noise(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = pc.private(
                f"Y ~ T | {' + '.join(covariates)}", drawn.rows, eps=eps, bounds=law.bounds
            )
        errors.append(fit.ate["estimate"].to_numpy() - truth)
        halves.append((fit.ate["conf_high"] - fit.ate["conf_low"]).to_numpy() / 2)
        if seed < 20:
            plain.append(best(drawn))
    error, half = np.array(errors), np.array(halves)
    held = (np.abs(error) <= half).mean(axis=0)
    return {
        "law": name, "n": n, "eps": eps, "reps": repetitions, "coverage": held.mean(),
        "least": held.min(), "bias": np.abs(error.mean(axis=0)).max(),
        "rmse": np.sqrt((error**2).mean()), "half": np.median(half), "plain": np.median(plain),
    }  # fmt: skip


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    if "--quick" in sys.argv:
        WHOLE = 20_000
    repetitions = numbers[0] if numbers else 3 if "--quick" in sys.argv else 200
    for name in LAWS:
        found = [cell(name, n, eps, repetitions) for n in ROWS for eps in EPSILONS]
        print(pd.DataFrame(found).round(4).to_string(index=False), flush=True)
