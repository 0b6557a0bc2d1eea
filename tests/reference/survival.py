"""Writes `survival.csv`: Kaplan-Meier estimates of lifelines by arm.

pip install lifelines && python tests/reference/survival.py

The invented rows have ties of events and censorings. The heart transplants are those of statsmodels
(Miller 1976), with the arms age <= 48 and age > 48.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
HORIZONS = {"invented": 60, "heart": 365}


def rows(name: str) -> pd.DataFrame:
    """The columns days, died, and T."""
    if name == "heart":
        import statsmodels.api as sm

        data = sm.datasets.heart.load_pandas().data
        frame = {"days": data["survival"], "died": data["censors"], "T": 1.0 * (data["age"] > 48)}
        return pd.DataFrame(frame)
    rng = np.random.default_rng(0)
    t = 1.0 * (rng.random(300) < 0.5)
    died, lost = rng.exponential(40 + 20 * t), rng.uniform(0, 90, 300)
    days = np.ceil(np.minimum(died, lost))
    return pd.DataFrame({"days": days, "died": 1.0 * (died <= lost), "T": t})


def main() -> None:
    from lifelines import KaplanMeierFitter
    from lifelines.utils import restricted_mean_survival_time

    lines = []
    for name, horizon in HORIZONS.items():
        for arm, own in rows(name).groupby("T"):
            curve = KaplanMeierFitter().fit(own["days"], own["died"])
            lines.append({
                "data": name, "arm": arm, "horizon": horizon,
                "rmst": restricted_mean_survival_time(curve, t=horizon),
                "risk": 1 - float(curve.predict(horizon)),
                "half": float(curve.predict(horizon // 2)),
            })  # fmt: skip
    pd.DataFrame(lines).to_csv(HERE / "survival.csv", index=False)


if __name__ == "__main__":
    main()
