"""Linear regression: standard errors beside those without privacy, and coverage.

``python tests/benchmarks/regress.py`` runs three laws that nothing was chosen on, and the wages of
the Current Population Survey where ``../shared/data`` has them; ``--building`` the laws by which
shares of the budget were chosen; ``--quick`` two fits a cell. Wages are drawn with replacement from
the file, whose own least squares is the truth; that of a law is least squares on two million rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privcausal as pc
from privcausal.testing import seeded_noise

CPS = Path(__file__).parents[3] / "shared" / "data" / "cps_asec_2024_wages.csv"
EPSILONS = (0.5, 1.0, 4.0)
ROWS = (5_000, 50_000)
WHOLE = 2_000_000

Rng = np.random.Generator


class Law(NamedTuple):
    formula: str
    bounds: dict[str, Any]
    draw: Callable[[int, Rng], pd.DataFrame]
    cov_type: str = "nonrobust"


def _normal(n: int, rng: Rng) -> pd.DataFrame:
    x = rng.multivariate_normal(np.zeros(4), 0.5 * np.eye(4) + 0.5, size=n)
    y = x @ [1, 0.5, -0.5, 0] + 1.5 * rng.normal(size=n)
    return pd.DataFrame(np.c_[x, y], columns=list("abcdy"))


def _skewed(n: int, rng: Rng) -> pd.DataFrame:
    a, b = rng.gamma(2, 1, n), rng.uniform(0, 1, n)
    k = rng.choice(list("uvwz"), n, p=[0.5, 0.3, 0.15, 0.05])
    y = 2 * a + 3 * b + (k == "w") + rng.gamma(1, 3, n)
    return pd.DataFrame({"a": a, "b": b, "k": k, "y": y})


def _rare(n: int, rng: Rng) -> pd.DataFrame:
    x = rng.normal(size=(n, 6))
    chance = 1 / (1 + np.exp(2 - x @ [0.5, 0.3, 0, 0, -0.3, 0.2]))
    frame = pd.DataFrame(x, columns=list("abcdef"))
    return frame.assign(y=(rng.uniform(size=n) < chance).astype(float))


BUILDING = {
    "normal": Law("y ~ a + b + c + d", {**dict.fromkeys("abcd", (-5, 5)), "y": (-12, 12)}, _normal),
    "skewed": Law(
        "y ~ a + b + C(k)", {"a": (0, 20), "b": (0, 1), "k": list("uvwz"), "y": (0, 80)}, _skewed
    ),
    "0/1": Law(
        "y ~ a + b + c + d + e + f", {**dict.fromkeys("abcdef", (-6, 6)), "y": (0, 1)}, _rare
    ),
}


def _curved(n: int, rng: Rng) -> pd.DataFrame:
    """The mean is no line, and residuals vary with it."""
    age, years = rng.uniform(18, 90, n), rng.poisson(6, n).clip(0, 25)
    mean = np.exp(0.02 * age) + 0.3 * years
    return pd.DataFrame({"age": age, "years": years, "y": mean * rng.lognormal(-0.08, 0.4, n)})


def _loose(n: int, rng: Rng) -> pd.DataFrame:
    """Declared bounds are five times too wide."""
    x, site = rng.normal(size=n), rng.choice(6, n)
    z = 0.7 * x + rng.standard_t(6, size=n)
    y = 2 + x - 0.5 * z + 0.3 * site + rng.standard_t(5, size=n)
    return pd.DataFrame({"x": x, "z": z, "site": [f"s{k}" for k in site], "y": y})


def _counts(n: int, rng: Rng) -> pd.DataFrame:
    old, poor = rng.uniform(size=n) < 0.3, rng.uniform(size=n) < 0.1
    score = rng.beta(2, 5, n)
    y = rng.poisson(np.exp(-1 + 0.8 * old + 0.5 * poor + score)).clip(0, 30)
    return pd.DataFrame({"old": old, "poor": poor, "score": score, "y": y})


REPORTING = {
    "curved": Law(
        "y ~ age + years", {"age": (18, 90), "years": (0, 25), "y": (0, 40)}, _curved, "HC0"
    ),
    "loose": Law(
        "y ~ x + z + C(site)",
        {"x": (-20, 20), "z": (-40, 40), "site": [f"s{k}" for k in range(6)], "y": (-60, 60)},
        _loose,
    ),
    "counts": Law("y ~ old + poor + score", {"score": (0, 1), "y": (0, 30)}, _counts, "HC0"),
}


def _wages() -> dict[str, Law]:
    if not CPS.exists():
        print(f"no wages: there is no file {CPS.name} in ../shared/data")
        return {}
    frame = pd.read_csv(CPS).assign(log_wage=lambda d: d["log_wage"].clip(5, 15))
    bounds = {"log_wage": (5, 15), "educ_years": (0, 22), "experience": (0, 60), "female": (0, 1)}

    def draw(n: int, rng: Rng) -> pd.DataFrame:
        if n == WHOLE:
            return frame
        return frame.iloc[rng.integers(len(frame), size=n)].reset_index(drop=True)

    formula = "log_wage ~ educ_years + experience + I(experience ** 2) + female"
    return {"wages": Law(formula, bounds, draw, "HC0")}


def cell(law: Law, n: int, eps: float, fits: int, truth: Any) -> dict[str, float]:
    """Median ratio of standard errors, coverage, and how often a conclusion differs."""
    ratios, covered, seen, differs = [], [], [], []
    for k in range(fits):
        rng = np.random.default_rng([n, int(10 * eps), k])
        rows = law.draw(n, rng)
        plain = smf.ols(law.formula, rows.astype({c: float for c in rows if rows[c].dtype == bool}))
        known = plain.fit(cov_type=law.cov_type)
        order = {term: place for place, term in enumerate(known.params.index)}
        control = pc.Control(cov_type=law.cov_type)
        with seeded_noise(k), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = pc.regress(law.formula, rows, bounds=law.bounds, eps=eps, control=control)
        at = [order[term] for term in fit.params.index]  # factors come first there
        limits = fit.conf_int().to_numpy()
        told = np.isfinite(limits).all(axis=1)
        ratios.append(np.where(told, fit.bse.to_numpy() / known.bse.to_numpy()[at], np.inf))
        inside = (limits[:, 0] <= truth[at]) & (truth[at] <= limits[:, 1])
        covered.append(np.where(told, inside, np.nan))
        seen.append(told)
        own, other = limits[:, 0] * limits[:, 1] > 0, known.pvalues.to_numpy()[at] < 0.05
        sign = np.sign(fit.params.to_numpy()) != np.sign(known.params.to_numpy()[at])
        differs.append((own != other) | (own & sign))
    return {
        "se ratio": float(np.median(ratios)),
        "largest": float(np.median(ratios, axis=0).max()),
        "cover": float(np.nanmean(covered)),
        "least cover": float(np.nanmin(np.nanmean(covered, axis=0))),
        "estimated": float(np.mean(seen)),
        "differs": float(np.mean(differs)),
    }


def run(laws: dict[str, Law], fits: int) -> pd.DataFrame:
    lines = []
    for name, law in laws.items():
        whole = law.draw(WHOLE, np.random.default_rng(1))
        whole = whole.astype({c: float for c in whole if whole[c].dtype == bool})
        truth = smf.ols(law.formula, whole).fit().params.to_numpy()
        cells = [(n, eps) for n in ROWS for eps in EPSILONS]
        if name == "wages":
            cells = [(len(whole), eps) for eps in (1.0, 10.0)]
        for n, eps in cells:
            lines.append({"law": name, "n": n, "eps": eps} | cell(law, n, eps, fits, truth))
    return pd.DataFrame(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--building", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fits", type=int, default=200)
    chosen = parser.parse_args()
    if chosen.quick:
        WHOLE, ROWS = 20_000, (5_000,)
    tried = BUILDING if chosen.building else {**REPORTING, **_wages()}
    print(run(tried, 2 if chosen.quick else chosen.fits).round(3).to_string(index=False))
