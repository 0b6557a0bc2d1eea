"""EconML's LinearDML with histogram boosting, which is not private: CPU seconds of one fit.

``python tests/benchmarks/linear_dml.py 16000 6`` prints them. A script of its own, because EconML
asks for packages that privcausal does not: ``speed.py --econml PYTHON`` runs it by the interpreter
of an environment that has EconML. Two folds, one thread more or less as scikit-learn likes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def study(n: int, p: int, seed: int = 1) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """A smooth study: formula, `p` uniform covariates in float32, bounds."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (n, p)).astype(np.float32)
    t = rng.random(n) < 0.2 + 0.6 * x[:, 0]
    y = np.sin(3 * x[:, 1]) + x[:, 0] + t * (x[:, 2] - 0.3) + rng.normal(0, 0.5, n)
    names = [f"x{j}" for j in range(p)]
    frame = pd.DataFrame(x, columns=names).assign(t=t.astype(np.int8), y=y.astype(np.float32))
    bounds: dict[str, Any] = {"y": (-2, 4), "t": (0, 1), **dict.fromkeys(names, (0, 1))}
    return f"y ~ t | {' + '.join(names)}", frame, bounds


def fit(n: int, p: int) -> None:
    """Propensity and mean outcome by boosting, cross-fitted on two folds; a linear effect."""
    from econml.dml import LinearDML
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    _, frame, _ = study(n, p)
    model = LinearDML(
        model_y=HistGradientBoostingRegressor(),
        model_t=HistGradientBoostingClassifier(),
        discrete_treatment=True,
        cv=2,
    )
    x = frame[[f"x{j}" for j in range(p)]].to_numpy(np.float64)
    model.fit(frame["y"].to_numpy(), frame["t"].to_numpy(), X=x)


def main() -> None:
    # the folder `coverage` beside this file is not the package that EconML's numba looks for
    sys.path[:] = [
        p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent
    ]
    n, p = map(int, sys.argv[1:] or (2_000, 3))
    fit(2_000, p)  # imports
    start = time.process_time()
    fit(n, p)
    print(time.process_time() - start)


if __name__ == "__main__":
    if "--quick" not in sys.argv:
        main()
