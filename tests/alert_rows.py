"""Rows that raise an alert, for the tests of alerts and of warnings."""

from __future__ import annotations

import numpy as np
import pandas as pd


def ruled() -> pd.DataFrame:
    """A threshold on a sum of two columns confounds."""
    rng = np.random.default_rng(8)
    x, z = rng.uniform(-1, 1, (2, 4000))
    high = x + z > 0
    t = (rng.uniform(size=4000) < np.where(high, 0.8, 0.2)).astype(int)
    y = np.clip(high + rng.normal(0, 0.2, 4000), -1, 2)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "Z": z})
