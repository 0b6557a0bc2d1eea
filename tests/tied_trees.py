"""Tables of which one row decides the split of a tree, so that estimated nuisances leak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


class Stump:
    """A regression tree of depth one on 0/1 columns; the first of equal splits wins."""

    def fit(self, x: Any, y: Any) -> Stump:
        splits = []
        for j in range(x.shape[1]):
            sides = [y[x[:, j] == v] for v in (0, 1)]
            low, high = (side.mean() if len(side) else y.mean() for side in sides)
            loss = ((y - np.where(x[:, j] == 1, high, low)) ** 2).sum()
            splits.append((round(loss, 6), j, low, high))
        _, self.column, self.low, self.high = min(splits)
        return self

    def predict(self, x: Any) -> Any:
        return np.where(x[:, self.column] > 0.5, self.high, self.low)


def tied(n: int, first: float) -> pd.DataFrame:
    """Both columns explain Y of the treated but for one row, which decides a mean of 5/8 or 3/8."""
    k = n // 8
    x1, x2 = (
        np.r_[np.tile([0, 0, 1, 1], k), np.ones(4 * k)],
        np.r_[np.tile([0, 1, 0, 1], k), np.zeros(4 * k)],
    )
    t = np.repeat([1.0, 0.0], 4 * k)
    y = np.where(t == 1, (x1 + x2) / 2, 0.0)
    y[1] = first  # at (0, 1)
    return pd.DataFrame({"Y": y, "T": t, "X1": x1, "X2": x2})
