"""Planned half-widths beside those of fits, on data that no default was chosen on.

Run ``python tests/benchmarks/planned.py [--quick]``. A plan is told what a statistician might
know beforehand: the outcome's standard deviation within an arm, the share that covariates explain,
the share treated. Fits are made with seeded noise, on fresh data each.

``--public`` plans the public data sets of `everyday_laws.py` and the regressions of `regress.py`
instead, from bounds alone, from facts, and from the public rows themselves (`like`). It finds the
ends of the ranges (`planner.RANGE_ENDS`) on the building halves: the quantiles of half-widths of
fits over forecasts at the level that holds 80% of a set left out. It counts how many half-widths of
the reporting halves the ranges hold.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

STUDIES: dict[str, Callable[[int, int], pc.datasets.Study]] = {
    "clinic": pc.datasets.clinic,
    "dpcate 1": lambda n, seed: pc.datasets.dpcate(1, n, seed),
    "dpcate 2": lambda n, seed: pc.datasets.dpcate(2, n, seed),
}
ROWS, EPSILONS = (1000, 4000, 16000), (0.25, 1.0, 4.0)
LARGE = 100_000
PUBLIC_EPSILONS, DELTA = (0.5, 1.0, 4.0), 1e-6


def known(study: pc.datasets.Study) -> dict[str, float]:
    """outcome_sd, r2 and treated of the study's law.

    r2 counts what covariates explain alike in both arms: the mean of the arms' regressions.
    """
    y, t = study.formula.split("|")[0].split("~")
    outcome, arm = study.frame[y.strip()], study.frame[t.strip()]
    within = float(outcome.groupby(arm).var().mean())
    alike = float(np.var(study.baseline + 0.5 * study.tau))
    return {"outcome_sd": within**0.5, "r2": alike / within, "treated": float(arm.mean())}


def compare(name: str, repetitions: int) -> pd.DataFrame:
    """A row per n and eps: planned and median realised half-width and their ratios."""
    make = STUDIES[name]
    law = make(LARGE, 0)
    facts = known(law)
    plans = {
        "ratio": pc.plan(law.formula, n=ROWS, eps=EPSILONS, bounds=law.bounds, **facts),
        "ratio, r2 = 0": pc.plan(
            law.formula, n=ROWS, eps=EPSILONS, bounds=law.bounds, outcome_sd=facts["outcome_sd"]
        ),
    }
    rows = []
    for k, (n, eps) in enumerate(plans["ratio"].points):
        fits = [half_widths(make(n, seed + 1), eps, seed) for seed in range(repetitions)]
        real, low, high = np.median(fits), min(fits), max(fits)
        row = {"study": name, "n": n, "eps": eps, "realised": real,
               "low": low / real, "high": high / real}  # fmt: skip
        for label, plan in plans.items():
            row[label] = plan.table["half-width to"][k] / plan.planner.ends[1] / real
        rows.append(row)
    return pd.DataFrame(rows)


def half_widths(study: pc.datasets.Study, eps: float, seed: int) -> float:
    with seeded_noise(seed):
        fit = pc.private(study.formula, study.frame, eps=eps, bounds=study.bounds)
    low, high = fit.conf_int().iloc[0]
    return float(high - low) / 2


Cell = tuple[str, str, bool, dict[str, Any], pd.DataFrame, Callable[[float, int], pd.Series]]
"""Call, name, whether it is of the building half, options of the plan, rows, half-widths."""


def public_effects() -> Iterator[Cell]:
    import everyday_laws as laws
    from everyday import fitted

    for half in ("build", "report"):
        for name in laws.names("library", half, 0):
            one = laws.law("library", name, half)
            (m0, m1), e = one.means, one.e
            within = [
                np.average(near.var(axis=1) + (m - np.average(m, weights=w)) ** 2, weights=w)
                for w, near, m in zip((1 - e, e), one.near, one.means, strict=True)
            ]
            variance = float((1 - e.mean()) * within[0] + e.mean() * within[1])
            explained = min(float(np.var((m0 + m1) / 2)) / variance, 0.9)
            options = {
                "formula": one.formula, "n": len(e), "bounds": one.bounds,
                "treated": float(e.mean()), "outcome_sd": variance**0.5, "r2": explained,
            }  # fmt: skip

            def halves(eps: float, seed: int, one: Any = one) -> pd.Series:
                fit = fitted(one, len(one.e), seed, eps, "private")
                return pd.Series({"ATE": (fit["high"] - fit["low"]) / 2})

            rows = one.draw(len(e), 10**6).frame
            yield "private", name, half == "build", options, rows, halves


def public_regressions() -> Iterator[Cell]:
    import statsmodels.formula.api as smf
    from regress import BUILDING, REPORTING, WHOLE

    for name, table in {**BUILDING, **REPORTING}.items():
        one = table.law()
        whole = one.draw(WHOLE, np.random.default_rng(0))
        outcome, bounds = whole.columns[0], dict(one.bounds)
        options = {
            "formula": one.formula, "n": len(whole), "bounds": bounds,
            "outcome_sd": float(whole[outcome].clip(*bounds[outcome]).std()),
            "r2": float(smf.ols(one.formula, whole).fit().rsquared),
        }  # fmt: skip

        def halves(eps: float, seed: int, one: Any = one) -> pd.Series:
            rows = one.draw(0, np.random.default_rng([seed, int(eps)]))
            with seeded_noise(seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = pc.regress(one.formula, rows, bounds=one.bounds, eps=eps, delta=DELTA)
            limits = fit.conf_int().iloc[1:]
            return (limits.iloc[:, 1] - limits.iloc[:, 0]).fillna(np.inf) / 2

        yield "regress", name, name in BUILDING, options, whole, halves


def public(fits: int) -> pd.DataFrame:
    """A row per fit and term: its half-width over the forecast."""
    lines = []
    for cells in (public_effects(), public_regressions()):
        for call, name, building, options, rows, halves in cells:
            shared = {"eps": PUBLIC_EPSILONS, "delta": DELTA, "learner": call}
            least = {key: options[key] for key in ("formula", "n", "bounds")} | shared
            plans = {
                "bounds": pc.plan(**least),
                "outcome_sd": pc.plan(**options, **shared),
                "like": pc.plan(**least, like=rows),
            }
            half_of = "building" if building else "reporting"
            for eps, k in product(PUBLIC_EPSILONS, range(fits)):
                got = halves(eps, k)
                for told, plan in plans.items():
                    ends = plan.terms[plan.terms["eps"] == eps].set_index("term")["half-width to"]
                    for term, half in got.items():
                        ratio = half / (ends[term] / plan.planner.ends[1])
                        lines.append((call, told, half_of, name, eps, k, term, ratio))
    columns = ["call", "told", "half", "name", "eps", "fit", "term", "ratio"]
    return pd.DataFrame(lines, columns=columns)


def held(found: pd.DataFrame, low: float, high: float) -> float:
    """Share of half-widths in the range, each set with the same weight."""
    return float(found["ratio"].between(low, high).groupby(found["name"]).mean().mean())


def quantiles(found: pd.DataFrame, level: float) -> tuple[float, float]:
    """Quantiles at `level` and 1 - level, each set with the same weight."""
    order = found.sort_values("ratio")
    weights = 1 / order.groupby("name")["ratio"].transform("size").to_numpy()
    at = np.searchsorted(np.cumsum(weights) / weights.sum(), [level, 1 - level - 1e-9])
    low, high = order["ratio"].to_numpy()[at]
    return float(low), float(high)


def ranges(found: pd.DataFrame) -> pd.DataFrame:
    """Ends of each range from the building half, and what it holds on the reporting half."""
    rows = []
    for (call, told), both in found.groupby(["call", "told"], sort=False):
        built, reported = (both[both["half"] == half] for half in ("building", "reporting"))
        for level in np.arange(0.1, 0, -0.005):
            left_out = [
                held(rows_of, *quantiles(built[built["name"] != name], level))
                for name, rows_of in built.groupby("name")
            ]
            if np.mean(left_out) >= 0.8:
                break
        low, high = quantiles(built, level)
        above = 1 - held(reported, 0.0, high)
        rows.append((call, told, low, high, held(reported, low, high), above))
    return pd.DataFrame(rows, columns=["call", "told", "from", "to", "held", "above"])


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    if "--public" in sys.argv:
        print(ranges(public(1 if quick else 4)).round(2).to_string())
        sys.exit()
    repetitions = 1 if quick else 9
    for study in list(STUDIES)[: 1 if quick else None]:
        print(compare(study, repetitions).round(3).to_string(index=False), flush=True)
