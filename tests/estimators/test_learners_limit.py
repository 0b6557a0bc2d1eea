"""Without noise the learners are the textbook's, computed here again by NumPy and statsmodels."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from learners_contract import BOUNDS, FORMULA, GROUPS, study
from textbook import textbook

import privcausal as pc
from privcausal.estimators import S
from privcausal.features.design import read_points
from privcausal.features.functions import ArmMean
from privcausal.testing import zero_noise

SIZE = 2000
GRID = 5e-5
"""Five times what rounding to 2^-16 moves a coefficient over 2,000 rows at a condition of 30."""


@lru_cache
def noiseless(learner: Any, base: str = "linear") -> Any:
    call: Any = pc.private if learner == "private" else partial(pc.privcate, learner=learner)
    with textbook():
        return call(FORMULA, study(SIZE), base=base, eps=2.0, bounds=BOUNDS, groups=GROUPS)


class Rows:
    """The study's rows as the fit's own public functions see them."""

    def __init__(self, fitted: Any, data: pd.DataFrame) -> None:
        estimate = fitted.estimate
        design = estimate.design
        self.rows, present, _ = read_points(design, design.variables, data)
        assert present.all()
        self.fitted = fitted
        self.y, self.t = data["Y"].to_numpy(), data["T"].to_numpy().astype(float)
        self.mu0, self.mu1 = (
            f(self.rows) for f in (estimate.nuisances.mu0, estimate.nuisances.mu1)
        )
        self.e = estimate.nuisances.propensity(self.rows)

    @property
    def aipw(self) -> Any:
        treated = self.t * (self.y - self.mu1) / self.e
        control = (1 - self.t) * (self.y - self.mu0) / (1 - self.e)
        return self.mu1 - self.mu0 + treated - control

    @property
    def balance(self) -> Any:
        return (self.t - self.e) ** 2 / (self.e * (1 - self.e))

    @property
    def centre(self) -> float:
        """The mean effect in the released population, before a constant moved it to the average."""
        estimate = self.fitted.estimate
        tau: Any = self.arm.tau
        if estimate.effect is not None:
            pieces = (
                replace(piece, additive=replace(piece.additive, offset=0.0))
                for piece in estimate.effect.pieces
            )
            tau = replace(estimate.effect, pieces=tuple(pieces))
        return float(np.mean(tau(estimate.population.rows())))

    @property
    def arm(self) -> ArmMean:
        """mu_0 = eta - e tau, which names the mean outcome, the softer e and the first tau."""
        found = self.fitted.estimate.nuisances.mu0
        assert isinstance(found, ArmMean)
        return found


def row_weights(features: Any, phi: Any) -> Any:
    """w = min(1, (C / ||phi||)^2); some are below one, or the test would not see them."""
    w = np.minimum(1, (features.cut / np.linalg.norm(phi, axis=1)) ** 2)
    assert (w < 1).any()
    return w


@pytest.mark.parametrize("learner", ["r", "s", "t"])
def test_the_effect_is_weighted_least_squares_of_residuals(learner: str) -> None:
    """min sum w ((Y - eta) - (T - e) tau(x))^2, as a regression of (Y - eta) / (T - e)."""
    fitted = noiseless(learner)
    at = Rows(fitted, study(SIZE))
    found = fitted.estimate.effect.pieces[0]
    additive = found.additive
    phi = at.rows.phi(additive.features)
    residual = at.t - at.arm.e(at.rows)
    ratio = (at.y - at.arm.eta(at.rows)) / residual
    weights = row_weights(additive.features, phi) * residual**2
    textbook = sm.WLS(ratio, phi, weights=weights).fit().params
    assert additive.coef == pytest.approx(textbook, abs=GRID)


def test_s_without_interactions_has_one_constant() -> None:
    fitted = noiseless(S(interactions=False))
    at = Rows(fitted, study(SIZE))
    residual = at.t - at.arm.e(at.rows)
    features = fitted.estimate.effect.pieces[0].additive.features
    weights = row_weights(features, at.rows.phi(features)) * residual**2
    ratio = (at.y - at.arm.eta(at.rows)) / residual
    found = fitted.predict(study(SIZE))["estimate"]
    assert found.nunique() == 1
    assert found.iloc[0] == pytest.approx(np.average(ratio, weights=weights), abs=GRID)


def test_dr_is_weighted_least_squares_of_the_score() -> None:
    """The score minus the first pass is regressed, and the first pass added back."""
    fitted = noiseless("dr")
    at = Rows(fitted, study(SIZE))
    additive, first = fitted.estimate.effect.pieces[0].additive, at.arm.tau
    phi = at.rows.phi(additive.features)
    weights = row_weights(additive.features, phi)
    textbook = sm.WLS(at.aipw, phi, weights=weights).fit().params
    assert first.pieces[0].additive.coef != pytest.approx(textbook, abs=2 * GRID)
    assert additive.coef == pytest.approx(textbook, abs=2 * GRID)  # of wider scores


@pytest.mark.parametrize("learner", ["private", "r", "dr", "t", "x"])
@pytest.mark.parametrize("base", ["gam", "linear"])
def test_average_is_the_aipw_mean(learner: str, base: str) -> None:
    """centre + mean(psi - centre) / mean((T - e)^2 / (e (1 - e))), exact to 2^-30 of bounds."""
    fitted = noiseless(learner, base)
    at = Rows(fitted, study(SIZE))
    expected = at.centre + (at.aipw - at.centre).mean() / at.balance.mean()
    assert fitted.params["ATE"] == pytest.approx(expected, abs=1e-6)
    assert expected == pytest.approx(at.aipw.mean(), abs=0.02)


@pytest.mark.parametrize("base", ["gam", "linear"])
def test_group_effects_are_group_means(base: str) -> None:
    """centre + mean of the group's scores, over the balance of all rows."""
    fitted, data = noiseless("private", base), study(SIZE)
    at = Rows(fitted, data)
    score = at.aipw - at.centre
    groups = {f"G[{g}]": data["G"] == g for g in "abc"} | {"X1 >= 0": data["X1"] >= 0}
    assert list(fitted.gate.index) == list(groups)
    for name, member in groups.items():
        mean = at.centre + score[member].mean() / at.balance.mean()
        assert fitted.gate.loc[name, "estimate"] == pytest.approx(mean, abs=1e-6), name


def test_best_linear_projection_is_least_squares_of_the_score() -> None:
    fitted, data = noiseless("r"), study(SIZE)
    at = Rows(fitted, data)
    x = np.column_stack([np.ones(SIZE), data["X1"], data["G"] == "b", data["G"] == "c"])
    expected = sm.OLS(at.aipw, x.astype(float)).fit().params[1:]
    assert list(fitted.blp.index) == ["X1", "C(G)[T.b]", "C(G)[T.c]"]
    assert fitted.blp["estimate"].to_numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["private", "r", "x"])
@pytest.mark.parametrize("base", ["gam", "linear"])
def test_missing_rows_are_as_good_as_dropped(learner: str, base: str) -> None:
    data = study(600).copy()
    for start, name in enumerate(["Y", "X1", "X2", "T"]):
        data[name] = data[name].astype(float)
        data.loc[start::17, name] = np.nan
    data["G"] = data["G"].astype(object)
    data.loc[5::23, "G"] = None
    call = {"base": base, "eps": 50.0, "bounds": BOUNDS, "groups": GROUPS}
    with zero_noise():
        if learner == "private":
            one, other = (pc.private(FORMULA, d, **call) for d in (data, data.dropna()))
        else:
            one, other = (
                pc.privcate(FORMULA, d, learner=learner, **call) for d in (data, data.dropna())
            )
    pd.testing.assert_series_equal(one.params, other.params, rtol=1e-12)
    pd.testing.assert_frame_equal(one.gate, other.gate, rtol=1e-12)
    if learner != "private":
        points = study(50, seed=3)
        pd.testing.assert_frame_equal(one.predict(points), other.predict(points), rtol=1e-9)
