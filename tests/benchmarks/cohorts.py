"""Event studies: coverage and width of 95% intervals, by law and epsilon.

    python tests/benchmarks/cohorts.py --reps 1000
    python tests/benchmarks/cohorts.py --quick

Two laws of 3,000 units in six periods, of which half are never treated. Cohorts start in periods 3,
4, and 5. Effects grow with time since treatment and differ between cohorts. Shocks are normal, with
an autocorrelation of 0.5; or they have Student's t distribution with four degrees of freedom, and
the last cohort, a tenth of the units, has twice their scale. Half-widths are divided by those of
the same fit without noise, which is the estimator of Callaway and Sant'Anna (2021). Rows and noise
have seeds; `--first` sets the first.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise

EPSILONS, PERIODS, STARTS = (0.5, 1.0, 4.0), 6, (0, 3, 4, 5)
SHARES = {"normal": (0.5, 0.2, 0.15, 0.15), "heavy": (0.5, 0.25, 0.15, 0.1)}
CALL: dict[str, Any] = {
    "unit": "id", "time": "period", "cohort": "start", "periods": [1, 2, 3, 4, 5, 6],
    "bounds": {"Y": (-20, 20), "start": list(STARTS)},
}  # fmt: skip
SHOWN = ("ATT(3, 3)", "ATT(5, 6)", "event[-2]", "event[0]", "event[2]", "overall")


def rows(law: str, seed: int, units: int) -> tuple[pd.DataFrame, pd.Series[float]]:
    """A panel, and the true ATT(g, t)."""
    rng = np.random.default_rng([53, seed])
    start = rng.choice(STARTS, units, p=SHARES[law])
    level, trend = rng.normal(0, 3, units), 0.2 * np.arange(PERIODS)
    shocks = rng.normal(size=(units, PERIODS))
    if law == "heavy":
        shocks = rng.standard_t(4, (units, PERIODS)) / np.sqrt(2) * (1 + (start == 5))[:, None]
    else:
        for k in range(1, PERIODS):
            shocks[:, k] = 0.5 * shocks[:, k - 1] + np.sqrt(0.75) * shocks[:, k]
    time = np.arange(1, PERIODS + 1)
    since = np.where(start > 0, time[:, None] - start + 1, 0).T.clip(0)
    y = level[:, None] + trend + shocks + 0.1 * since * (1 + 0.5 * (start == 4))[:, None]
    frame = pd.DataFrame({
        "id": np.repeat(np.arange(units), PERIODS), "period": np.tile(time, units),
        "start": np.repeat(start, PERIODS), "Y": y.ravel().clip(-20, 20),
    })  # fmt: skip
    effect = {
        f"ATT({g}, {t})": 0.1 * max(t - g + 1, 0) * (1.5 if g == 4 else 1.0)
        for g in STARTS[1:] for t in range(2, PERIODS + 1)
    }  # fmt: skip
    return frame, pd.Series(effect)


def truth(effect: pd.Series[float], law: str) -> pd.Series[float]:
    """True effects and averages, with the cohorts' shares."""
    share = dict(zip(STARTS, SHARES[law], strict=True))
    pairs = {name: tuple(map(int, name[4:-1].split(", "))) for name in effect.index}
    places = {"overall": [n for n, (g, t) in pairs.items() if t >= g]}
    for e in (-2, 0, 2):
        places[f"event[{e}]"] = [n for n, (g, t) in pairs.items() if t - g == e]
    for name, of in places.items():
        weights = [share[pairs[n][0]] for n in of]
        effect[name] = float(np.average(effect[of], weights=weights))
    return effect[list(SHOWN)]


def limits(fit: Any, true: pd.Series[float]) -> pd.DataFrame:
    names = list(SHOWN)
    found = pd.concat(
        [fit.conf_int(), fit.gate[["conf_low", "conf_high"]].set_axis([0, 1], axis=1)]
    )
    found = found.loc[names]
    return pd.DataFrame({
        "half": (found[1] - found[0]) / 2, "covers": (found[0] <= true) & (true <= found[1]),
    })  # fmt: skip


def fitted(law: str, seed: int, units: int) -> pd.DataFrame:
    """Intervals of one panel without noise and at each epsilon."""
    frame, effect = rows(law, seed, units)
    true, found = truth(effect, law), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zero_noise():
            public = limits(pc.did("Y ~ 1", frame, eps=1, **CALL), true)
        for eps in EPSILONS:
            with seeded_noise(7919 * seed + round(10 * eps)):
                own = limits(pc.did("Y ~ 1", frame, eps=eps, **CALL), true)
            found.append(own.join(public, rsuffix=" public").assign(law=law, eps=eps))
    return pd.concat(found).rename_axis("effect").reset_index()


def table(found: pd.DataFrame) -> pd.DataFrame:
    groups = found.groupby(["law", "eps", "effect"], sort=False)
    middle, covers = groups[["half", "half public"]].median(), groups[["covers", "covers public"]]
    return pd.DataFrame({
        "half-width": middle["half"], "over public": middle["half"] / middle["half public"],
        **dict(covers.mean().items()),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=1000)
    parser.add_argument("--units", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two panels of each law")
    options = parser.parse_args()
    reps = 2 if options.quick else options.reps
    seeds = range(options.first, options.first + reps)
    found = table(pd.concat([fitted(law, k, options.units) for law in SHARES for k in seeds]))
    print(found.round(3).to_string())
    low = found[found["covers"] < 0.95 - 2 * np.sqrt(0.95 * 0.05 / reps)]
    print(f"\n{len(low)} of {len(found)} cells cover significantly less than 95%:")
    print(low[["covers"]].round(3).to_string() if len(low) else "none")


if __name__ == "__main__":
    main()
