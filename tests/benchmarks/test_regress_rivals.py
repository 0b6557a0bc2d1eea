"""Private gradient descent: its gradients have their stated limit, and it finds least squares."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from regress import Law, Rng
from regress_rivals import Rows, _clip, _path, descent, rows_of

BOUNDS = {"y": (-4, 4), "a": (-2, 2), "b": (0, 1)}


def draw(n: int, rng: Rng) -> pd.DataFrame:
    a, b = rng.uniform(-2, 2, n), rng.integers(2, size=n)
    return pd.DataFrame({"y": 0.5 * a - b + rng.uniform(-1, 1, n), "a": a, "b": b})


LAW = Law("y ~ a + b", BOUNDS, draw)


def table(n: int) -> Rows:
    return rows_of(LAW, draw(n, np.random.default_rng(0)))


def test_a_row_moves_the_sum_of_gradients_by_no_more_than_the_clip() -> None:
    rows = table(50)
    n, d = rows.x.shape
    far = rows._replace(y=rows.y * 100)
    for clip in (0.01, _clip(LAW, d)):
        first = _path(far, clip, np.zeros((1, d)))[0] * n * d / 1.8
        for k in range(n):
            rest = far._replace(x=np.delete(rows.x, k, axis=0), y=np.delete(far.y, k))
            moved = first - _path(rest, clip, np.zeros((1, d)))[0] * (n - 1) * d / 1.8
            assert np.linalg.norm(moved) <= clip * (1 + 1e-9)


def test_only_an_outcome_of_two_values_has_the_wide_clip() -> None:
    binary = Law("y ~ a + b", {**BOUNDS, "y": [0, 1]}, draw)
    assert (_clip(LAW, 4), _clip(binary, 4)) == (0.4, 2.0)


def test_with_little_noise_descent_is_near_least_squares_and_its_interval_holds() -> None:
    rows = table(1000)
    slopes, half = descent(rows, 100.0, 0)
    known = np.linalg.lstsq(rows.x, rows.y, rcond=None)[0][1:] * rows.units
    assert slopes == pytest.approx(known, abs=0.03)
    assert (np.abs(slopes - [0.5, -1.0]) < half).all()
    assert (half < 0.2).all()
