"""Writes `iv2sls.csv`: two-stage least squares of linearmodels on invented rows.

pip install linearmodels && python tests/reference/iv2sls.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

KINDS = ("two values", "numbers")
HERE = Path(__file__).parent


def rows(kind: str, n: int, seed: int = 0) -> pd.DataFrame:
    """Y, T, its instrument Z and two covariates; the effect is 1.5."""
    rng = np.random.default_rng(seed)
    a, b, u = rng.uniform(-1, 1, n), rng.uniform(0, 1, n), rng.normal(0, 1, n)
    if kind == "numbers":
        z = a + rng.normal(0, 1, n)
        t = 2 + 0.8 * z - b + u + rng.normal(0, 1, n)
    else:
        z = (rng.random(n) < 0.4 + 0.2 * a).astype(int)
        t = (1.5 * z + a + u + rng.normal(0, 1, n) > 0.7).astype(int)
    y = 1.5 * t - a + 2 * b + u + rng.normal(0, 1, n)
    return pd.DataFrame({"Y": y, "T": t, "Z": z, "A": a, "B": b})


CARD = ["exper", "black", "south", "smsa"]


def card() -> pd.DataFrame:
    """Log wage, years of schooling, a college nearby, and controls."""
    from causaldata import close_college

    data = close_college.load_pandas().data
    return data.rename(columns={"lwage": "Y", "educ": "T", "nearc4": "Z"})


def main() -> None:
    from linearmodels.iv import IV2SLS

    found = []
    for kind, data, controls in (
        *((kind, rows(kind, 1500), ["A", "B"]) for kind in KINDS), ("card", card(), CARD)
    ):  # fmt: skip
        exogenous = np.column_stack([np.ones(len(data)), data[controls]])
        fit = IV2SLS(data["Y"], exogenous, data["T"], data["Z"]).fit(cov_type="robust")
        found.append((kind, fit.params["T"], fit.std_errors["T"]))
    table = pd.DataFrame(found, columns=["kind", "estimate", "std_error"])
    table.to_csv(HERE / "iv2sls.csv", index=False)


if __name__ == "__main__":
    main()
