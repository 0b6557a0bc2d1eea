"""Cluster-robust intervals: coverage and width, by assignment and epsilon.

    python tests/benchmarks/clusters.py --reps 200
    python tests/benchmarks/clusters.py --quick

Two laws: treatment assigned by cluster, and by row within clusters. There are 200 clusters of 5 to
20 rows, and the correlation within clusters is 0.15. Effects differ between clusters. Half-widths
are divided by those of statsmodels on the same rows, with cov_type="cluster". The last columns have
the intervals of fits that treat rows as independent. Rows and noise have seeds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privcausal as pc
from privcausal.testing import seeded_noise

EPSILONS, EFFECT, MOST = (0.5, 1.0, 4.0), 0.3, 20
BOUNDS = {"Y": (-6, 6), "X": (-4, 4)}
FORMULAS = {"trial": "Y ~ T", "adjusted": "Y ~ T | X", "regression": "Y ~ T + X", "did": "Y ~ T"}


def rows(law: str, seed: int, clusters: int) -> pd.DataFrame:
    rng = np.random.default_rng([31, seed])
    own = np.repeat(np.arange(clusters), rng.integers(5, MOST + 1, clusters))
    n, level = len(own), rng.normal(size=clusters)[own]
    t = (rng.random(clusters)[own] if law == "by cluster" else rng.random(n)) < 0.5
    x = (0.4 * rng.normal(size=clusters)[own] + 0.9 * rng.normal(size=n)).clip(-4, 4)
    tau = EFFECT + 0.2 * rng.normal(size=clusters)[own]
    y = tau * t + 0.5 * x + np.sqrt(0.15) * level + np.sqrt(0.85) * rng.normal(size=n)
    return pd.DataFrame({"Y": y.clip(-6, 6), "T": 1.0 * t, "X": x, "village": own})


def fitted(law: str, kind: str, eps: float, seed: int, clusters: int) -> dict[str, Any]:
    """Both intervals of one draw, and that of statsmodels."""
    frame, formula = rows(law, seed, clusters), FORMULAS[kind]
    found: dict[str, Any] = {"law": law, "kind": kind, "eps": eps}
    bounds = BOUNDS | ({"T": (0, 1)} if kind == "regression" else {})
    call: Any = pc.regress if kind == "regression" else pc.private
    table = frame
    if kind == "did":  # each row is a unit, and its outcome the change from a first period
        call = partial(pc.did, unit="unit", time="year", periods=(1, 2))
        table = frame.assign(unit=np.arange(len(frame)), year=2)
        first = np.random.default_rng([32, seed]).normal(size=len(frame)).clip(-4, 4)
        frame = frame.assign(Y=frame["Y"] - first)
        table = pd.concat([table.assign(T=0.0, year=1, Y=first), table])
    robust = pc.Control(cluster="village", max_cluster_rows=MOST)
    for name, control in (("clustered", robust), ("independent", pc.Control())):
        with warnings.catch_warnings(), seeded_noise(7919 * seed + round(10 * eps)):
            warnings.simplefilter("ignore")
            fit = call(formula, table, eps=eps, bounds=bounds, control=control)
        low, high = fit.conf_int().iloc[1 if kind == "regression" else 0]
        found |= {name: (high - low) / 2, f"covers {name}": low <= EFFECT <= high}
    ols = smf.ols(formula.replace("|", "+"), frame).fit(
        cov_type="cluster", cov_kwds={"groups": frame["village"]}, use_t=True
    )
    low, high = ols.conf_int().loc["T"]
    return found | {"public": (high - low) / 2, "covers public": low <= EFFECT <= high}


def draws(kinds: list[str], reps: int, clusters: int) -> Iterator[dict[str, Any]]:
    for law, kind, eps in itertools.product(("by cluster", "by row"), kinds, EPSILONS):
        for seed in range(reps):
            yield fitted(law, kind, eps, seed, clusters)


def table(found: list[dict[str, Any]]) -> pd.DataFrame:
    groups = pd.DataFrame(found).groupby(["law", "kind", "eps"], sort=False)
    middle = groups[["clustered", "independent", "public"]].median()
    covers = groups[["covers clustered", "covers independent", "covers public"]].mean()
    return pd.DataFrame({
        "half-width": middle["clustered"], "over public": middle["clustered"] / middle["public"],
        "covers": covers["covers clustered"], "public covers": covers["covers public"],
        "independent over public": middle["independent"] / middle["public"],
        "independent covers": covers["covers independent"],
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=200)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--kinds", default="trial,adjusted,regression,did")
    parser.add_argument("--quick", action="store_true", help="two fits of each law")
    options = parser.parse_args()
    reps = 2 if options.quick else options.reps
    found = list(draws(options.kinds.split(","), reps, options.clusters))
    print(table(found).round(3).to_string())


if __name__ == "__main__":
    main()
