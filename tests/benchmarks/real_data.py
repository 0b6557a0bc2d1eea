"""The README's table: intervals on a simulated trial and two real data sets.

``python tests/benchmarks/real_data.py`` reads ``../shared/data`` and prints medians of 20
fits each. Without privacy: least squares with robust errors in the simulated trial, of whose
outcome four covariates explain 60 %; Welch's interval in the real one; in the cohort AIPW with five
folds, a logistic regression for the propensity, cut to [0.1, 0.9], and linear ones for the outcome.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privcausal as pc

sys.path.insert(0, str(Path(__file__).parents[1]))

from test_real_data import BOUNDS, FORMULA, GOTV, RHC, patients

EPSILONS = (0.1, 0.5, 1.0, 2.0)


def welch(frame: pd.DataFrame) -> tuple[float, float]:
    """Estimate and half-width of the 95 % interval."""
    one, zero = (frame.loc[frame["neighbors"] == arm, "voted"] for arm in (1, 0))
    error = np.sqrt(one.var() / len(one) + zero.var() / len(zero))
    return float(one.mean() - zero.mean()), 1.96 * float(error)


def aipw(frame: pd.DataFrame) -> tuple[float, float]:
    """Estimate and half-width of the 95 % interval."""
    from formulaic import model_matrix
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.preprocessing import scale

    x = scale(np.asarray(model_matrix(FORMULA.partition("|")[2], frame), float)[:, 1:])
    t, y = frame["rhc"].to_numpy(), frame["dth180"].to_numpy()
    fold, score = np.arange(len(y)) % 5, np.empty(len(y))
    for k in range(5):
        out, rest = fold == k, fold != k
        e = LogisticRegression(max_iter=1000).fit(x[rest], t[rest]).predict_proba(x[out])[:, 1]
        e = np.clip(e, 0.1, 0.9)
        arms = (rest & (t == a) for a in (0, 1))
        m0, m1 = (LinearRegression().fit(x[arm], y[arm]).predict(x[out]) for arm in arms)
        rest_of = np.where(t[out] == 1, (y[out] - m1) / e, -(y[out] - m0) / (1 - e))
        score[out] = m1 - m0 + rest_of
    return float(score.mean()), 1.96 * float(score.std() / np.sqrt(len(y)))


def simulated() -> tuple[pd.DataFrame, tuple[float, float]]:
    rng = np.random.default_rng(1)
    x, t = rng.normal(size=(5000, 4)).clip(-4, 4), rng.integers(0, 2, 5000)
    y = x @ np.full(4, 0.6) + 0.3 * t + rng.normal(0, 0.96**0.5, 5000)
    frame = pd.DataFrame(np.c_[x, t, y], columns=list("abcdty"))
    fit = smf.ols("y ~ t + a + b + c + d", frame).fit(cov_type="HC1")
    return frame, (float(fit.params["t"]), 1.96 * float(fit.bse["t"]))


def line(
    name: str, formula: str, frame: Any, bounds: Any, plain: Any, fits: int, **options: Any
) -> str:
    cells = [f"{plain[0]:+.3f} ± {plain[1]:.4f}"]
    for eps in EPSILONS:
        found = [
            pc.private(formula, frame, eps=eps, bounds=bounds, **options).ate.iloc[0]
            for _ in range(fits)
        ]
        half = np.median([(f["conf_high"] - f["conf_low"]) / 2 for f in found])
        cells.append(f"± {half:.4f}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fit each")
    fits = 1 if parser.parse_args().quick else 20
    print(f"| data | no privacy | {' | '.join(f'ε = {eps:g}' for eps in EPSILONS)} |")
    print("| --- " * (2 + len(EPSILONS)) + "|")
    bounds = {**dict.fromkeys("abcd", (-5, 5)), "y": (-10, 10)}
    made, plain = simulated()
    name, formula = "simulated trial, 5,000 rows", "y ~ t | a + b + c + d"
    print(line(name, formula, made, bounds, plain, fits, propensity=0.5))
    if not (GOTV.exists() and RHC.exists()):
        print(f"needs {GOTV.name} and {RHC.name} in {RHC.parent}")
        return
    votes, rows = pd.read_parquet(GOTV), patients()
    trial, binary = "voted ~ neighbors", {"voted": (0, 1)}
    print(line(f"trial, {len(votes):,} voters", trial, votes, binary, welch(votes), fits))
    name = f"cohort, {len(rows):,} patients"
    print(line(name, FORMULA, rows, BOUNDS, aipw(rows), fits))


if __name__ == "__main__":
    main()
