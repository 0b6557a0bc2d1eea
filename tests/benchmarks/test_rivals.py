"""A rival's limits hold for every black box, and without noise it finds the effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import rivals
from rivals import OVERLAP, fold_limits, fold_scores, regressions

HALF, FOLDS = 2.0, 6


def table(n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    t = (rng.random(n) < 0.5 + 0.2 * x[:, 0]).astype(int)
    return x, t, np.clip(0.5 * x[:, 0] + 0.3 * t + rng.normal(0, 0.3, n), -HALF, HALF)


def test_a_replaced_row_moves_mean_and_variance_by_no_more_than_stated() -> None:
    n = 60
    fold = np.arange(n) % FOLDS
    mean_limit, variance_limit = fold_limits(n, FOLDS, HALF)
    for seed in range(200):
        rng = np.random.default_rng([seed, 1])
        one = table(n, seed)
        other = tuple(part.copy() for part in one)
        row = rng.integers(n)
        other[0][row] = rng.choice([-1, 1], 2)
        other[1][row] = 1 - one[1][row]
        other[2][row] = rng.choice([-HALF, HALF])
        a, b = (fold_scores(*rows, fold, HALF, regressions) for rows in (one, other))
        assert abs(a.mean() - b.mean()) <= mean_limit
        assert abs(a.var() - b.var()) <= variance_limit


def test_a_black_box_nearly_reaches_the_limit_and_passes_that_of_the_authors_figures() -> None:
    """All rows are treated with the highest outcome; one row's mark turns its fold's model."""
    n, k = 3000, 100

    def learn(x: Any, t: Any, y: Any) -> Any:
        e, mean = (1 - OVERLAP, HALF) if x.max() > 0 else (OVERLAP, -HALF)
        return lambda rows: tuple(np.full(len(rows), v) for v in (e, mean, mean))

    x, t, y = np.zeros((n, 1)), np.ones(n, int), np.full(n, HALF)
    fold = np.arange(n) % k
    score = fold_scores(x, t, y, fold, HALF, learn).mean()
    x[0] = 1
    moved = abs(score - fold_scores(x, t, y, fold, HALF, learn).mean())
    figures = HALF * (4 / OVERLAP / n + (2 / OVERLAP + 2) / k)
    limit = fold_limits(n, k, HALF)[0]
    theirs = 4 * HALF * (1 + 1 / OVERLAP) * (1 / n + 1 / (k - 1))
    assert figures < moved <= limit < theirs
    assert moved > 0.9 * limit


def test_without_noise_the_rival_is_near_the_effect() -> None:
    x, t, y = table(4000, 0)
    score = fold_scores(x, t, y, np.arange(4000) % 40, HALF, regressions)
    # The seed is fixed; the true effect is 0.3, and five standard errors are 0.055.
    assert abs(score.mean() - 0.3) < 5 * score.std() / 4000**0.5
    frame = pd.DataFrame({"y": y, "t": t, "a": x[:, 0], "b": x[:, 1]})
    study = rivals.Study(lambda seed: drawn, {"y": (-HALF, HALF), "a": (-1, 1), "b": (-1, 1)})
    drawn = rivals.Drawn(frame, 0.3)
    found, low, high = rivals.folds(study, drawn, 100.0, np.random.default_rng(0))
    assert low < found < high
