"""Coverage and widths of several estimands from one charge, against each asked alone.

    python tests/benchmarks/many.py --reps 200     # every cell; prints a line each
    python tests/benchmarks/many.py --quick        # two repetitions of the small cells

Three laws, fixed before anything was run: `mild` (a number, mild confounding), `confounded` (the
same, strongly) and `rare` (an event of 3 %). Five groups, 95 % intervals, seeded test noise. A line
has the coverage of the averages (then of each asked alone), the groups, the ratios (of all rows)
and four contrasts, with the number of intervals; the half-width by that of the same average asked
alone (median over repetitions, then over averages and groups, and the worst of them); and the share
of risk ratios without an upper limit.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

LEVELS = list("abcde")
STRENGTH = {"mild": 0.4, "confounded": 1.0, "rare": 0.4}
CONTRASTS = ("ATT - ATE", "ATE:g[a] - ATE:g[b]", "ATE:g[a | b] - ATE", "0.5*ATE + 0.5*ATO")


def draw(law: str, n: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows, and the propensity, the mean outcomes and the groups behind them."""
    rng = np.random.default_rng([seed, *map(ord, law)])
    x1, x2, group = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n), rng.integers(0, 5, n)
    e = 1 / (1 + np.exp(-STRENGTH[law] * (1.5 * x1 + 0.75 * x2)))
    t = rng.uniform(size=n) < e
    if law == "rare":
        m0 = 0.02 * np.exp(0.8 * x1)
        m1 = m0 * (1.6 + 0.4 * x1)
        y: Any = np.where(rng.uniform(size=n) < np.where(t, m1, m0), "yes", "no")
    else:
        m0 = x1 + 0.5 * x2 + 0.3 * x1 * x2
        m1 = m0 + 1 + 0.5 * x1 + 0.2 * (group == 0)
        y = np.clip(np.where(t, m1, m0) + rng.standard_normal(n), -6, 6)
    frame = pd.DataFrame({"Y": y, "T": t.astype(int), "X1": x1, "X2": x2})
    frame["g"] = np.array(LEVELS)[group]
    return frame, {"e": e, "m0": m0, "m1": m1, "group": group}


def truths(law: str) -> dict[str, float]:
    """All that is asked for, over a million rows."""
    _, known = draw(law, 1_000_000, 7)
    e, tau = known["e"], known["m1"] - known["m0"]
    weights = {"ATE": np.ones_like(e), "ATT": e, "ATO": e * (1 - e)}
    inside = {f":g[{level}]": known["group"] == k for k, level in enumerate(LEVELS)}
    found = {
        name + label: float(np.average(tau[rows], weights=w[rows]))
        for name, w in weights.items()
        for label, rows in {"": slice(None), **inside}.items()
    }
    p0, p1 = float(known["m0"].mean()), float(known["m1"].mean())
    found |= {"E[Y(0)]": p0, "E[Y(1)]": p1, "RR": p1 / p0, "OR": p1 / (1 - p1) / (p0 / (1 - p0))}
    both = known["group"] <= 1
    found["ATT - ATE"] = found["ATT"] - found["ATE"]
    found[CONTRASTS[1]] = found["ATE:g[a]"] - found["ATE:g[b]"]
    found[CONTRASTS[2]] = float(tau[both].mean()) - found["ATE"]
    found[CONTRASTS[3]] = 0.5 * found["ATE"] + 0.5 * found["ATO"]
    return found


def fit(frame: pd.DataFrame, law: str, asked: Any, eps: float) -> Any:
    outcome: Any = ["no", "yes"] if law == "rare" else (-6, 6)
    bounds = {"Y": outcome, "X1": (-1, 1), "X2": (-1, 1), "g": LEVELS}
    return pc.private("Y ~ T | X1 + X2", frame, estimand=asked, eps=eps, bounds=bounds, groups="g")


def cell(law: str, n: int, eps: float, reps: int, truth: dict[str, float]) -> str:
    covered, ratios = defaultdict(list), defaultdict(list)
    for seed in range(reps):
        frame, _ = draw(law, n, 1000 + seed)
        averages = ["ATE", "ATT", "ATO"]
        with seeded_noise(seed):
            found = fit(frame, law, averages + ["RR", "OR"] * (law == "rare"), eps)
        limits = pd.concat(
            [found.tidy().set_index("term"), found.gate, found.contrast(CONTRASTS).frame]
        )
        for name, low, high in zip(
            limits.index, limits["conf_low"], limits["conf_high"], strict=True
        ):
            if name in truth and not np.isnan(low):
                covered[kind(name)].append(low <= truth[name] <= high)
        covered["open"].append(law == "rare" and np.isinf(limits["conf_high"]["RR"]))
        for name in averages:
            with seeded_noise(seed + 10_000):
                alone = fit(frame, law, name, eps)
            own = pd.concat(
                [alone.tidy().set_index("term"), alone.gate.add_prefix(f"{name}:", axis=0)]
            )
            wide = (limits["conf_high"] - limits["conf_low"]) / (own["conf_high"] - own["conf_low"])
            low, high = own.loc[name, ["conf_low", "conf_high"]]
            covered["alone"].append(low <= truth[name] <= high)
            for term, ratio in wide.dropna().items():
                ratios[term].append(ratio)
    shares = " ".join(
        f"{name} {np.mean(covered[name]):.3f} ({len(covered[name])})"
        for name in ("average", "alone", "group", "ratio", "contrast") if covered[name]
    )  # fmt: skip
    medians = [float(np.median(r)) for r in ratios.values()]
    return (
        f"{law:10s} n={n:<6d} eps={eps:<4g} {shares}  width {np.median(medians):.2f} "
        f"worst {max(medians):.2f}  open {np.mean(covered['open']):.2f}"
    )


def kind(name: str) -> str:
    if name in CONTRASTS:
        return "contrast"
    if name in ("RR", "OR"):
        return "ratio"
    return "group" if ":" in name else "average"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reps", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for law in STRENGTH:
        truth = truths(law)
        for n in (5000,) if options.quick else (5000, 50_000):
            for eps in (1.0,) if options.quick else (0.5, 1.0, 4.0):
                print(cell(law, n, eps, 2 if options.quick else options.reps, truth), flush=True)


if __name__ == "__main__":
    main()
