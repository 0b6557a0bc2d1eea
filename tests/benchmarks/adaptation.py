"""What an adjusted estimate can gain by leaning on the plain difference of the arms.

    python tests/benchmarks/adaptation.py [--quick]

The difference D is N(tau + b, 1) for confounding b. The adjusted estimate A is N(tau, r^2). We
assume the case most favorable to leaning on D: without confounding, D is efficient. Then X = D - A
is N(b, s^2) with s^2 = r^2 - 1, and is independent of the error of D. Every estimate that moves
with tau is D - g(X). Without confounding, its squared error is 1 + E[g(X)^2]. For every b, an
interval around it with half-width h may miss in at most 5 % of repetitions.

For multipliers l_b >= 0, the squared error of each such estimate is at least

    1 + min_g { E_0[g^2] + sum_b l_b (P_b(miss) - 0.05) },

because the sum is at most 0 for its own g. For each X = x, the minimum is over one number g(x). The
multipliers are improved by exponentiated gradient steps, and the largest value is printed as a
root: a lower bound on the RMSE without confounding, relative to that of D. Fewer b (a grid) only
make the bound smaller.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

RATIOS, PRICES = (1.2, 1.4, 1.7, 2.0), (1.0, 1.05, 1.1, 1.2, 1.4)
FARTHEST, STEP, ROUNDS, LEVEL = 7.0, 0.125, 3000, 0.05
"""Largest b and grid step in units of s, steps of the multipliers, and the share of misses."""


def least_rmse(ratio: float, price: float, rounds: int = ROUNDS) -> float:
    """Lower bound on the RMSE without confounding, over the difference's.

    Parameters
    ----------
    ratio : float
        r, the sd of the adjusted estimate over the sd of the difference.
    price : float
        Half-width of the interval, over 1.96 r.
    rounds : int
        Steps of the multipliers; every number of steps gives a valid bound.
    """
    s, half = np.sqrt(ratio**2 - 1), price * norm.isf(LEVEL / 2) * ratio
    b = np.arange(0.0, FARTHEST + STEP, STEP)
    x = np.arange(-FARTHEST - 5, FARTHEST + 5 + STEP, STEP)
    g = x[np.abs(x) <= FARTHEST + 3]
    miss = _miss(s * (g[:, None] - b), half), _miss(s * (g[:, None] + b), half)
    # b and -b have the same multiplier
    one, two = norm.pdf(x - b[:, None]) * STEP / 2, norm.pdf(x + b[:, None]) * STEP / 2
    squares, multipliers, best = (s * g[:, None]) ** 2 * 2 * one[0], np.full(len(b), 0.1), 0.0
    for turn in range(rounds):
        loss = squares + (miss[0] * multipliers) @ one + (miss[1] * multipliers) @ two
        at = loss.argmin(axis=0)
        best = max(best, float(loss.min(axis=0).sum() - LEVEL * multipliers.sum()))
        share = (miss[0][at].T * one).sum(axis=1) + (miss[1][at].T * two).sum(axis=1)
        pace = 30.0 / np.sqrt(1 + turn)
        multipliers = np.clip(multipliers * np.exp(pace * (share - LEVEL)), 1e-9, 1e4)
    return float(np.sqrt(1 + best))


def _miss(shift: np.ndarray, half: float) -> np.ndarray:
    return np.asarray(norm.sf(half - shift) + norm.cdf(-half - shift))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Bound on the gain from the plain difference.")
    parser.add_argument("--quick", action="store_true", help="few steps")
    rounds = 50 if parser.parse_args(argv).quick else ROUNDS
    print("least RMSE without confounding, over the difference's, by price in width")
    print("sd over the difference's  " + "  ".join(f"{price:5.2f}" for price in PRICES))
    for ratio in RATIOS:
        row = "  ".join(f"{least_rmse(ratio, price, rounds):5.2f}" for price in PRICES)
        print(f"{ratio:24.1f}  {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
