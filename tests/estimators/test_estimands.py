"""The effect on the treated and the overlap-weighted one: laws, limits, truth and words."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from fit_helpers import missed, private
from learners_contract import SPLITS
from textbook import textbook

import privcausal as pc
from privcausal.estimators.nuisances import remainder_weight
from privcausal.features.design import read_points
from privcausal.request.formula import ResultTerm
from privcausal.testing import seeded_noise, zero_noise

FORMULA = "Y ~ T | X1 + X2"
BOUNDS = {"Y": (-3, 5), "X1": (-1, 1), "X2": (0, 1), "P": (0.02, 0.98)}
ESTIMANDS = ("ATE", "ATT", "ATO")
WEIGHTED = ESTIMANDS[1:]


@lru_cache
def study(n: int, seed: int = 0, reach: float = 0.35) -> pd.DataFrame:
    """e = 0.45 + reach X1, and tau = 1 + 0.5 X1 - 0.75 X1^2: all three averages differ."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.uniform(0, 1, n)
    e = 0.45 + reach * x1
    t = (rng.random(n) < e).astype(int)
    y = 0.8 * x1 + 0.3 * x2 + t * tau(x1) + rng.normal(0, 0.3, n)
    return pd.DataFrame({"Y": np.clip(y, -3, 5), "T": t, "X1": x1, "X2": x2, "P": e})


def tau(x1: Any) -> Any:
    return 1 + 0.5 * x1 - 0.75 * x1**2


def truth(estimand: str, reach: float = 0.35) -> float:
    """By quadrature over X1."""
    x = (np.arange(100_000) + 0.5) / 50_000 - 1
    e = 0.45 + reach * x
    weight = {"ATE": np.ones_like(e), "ATT": e, "ATO": e * (1 - e)}[estimand]
    return float(np.average(tau(x), weights=weight))


def fit(estimand: str, data: pd.DataFrame, **options: Any) -> Any:
    options = {"bounds": BOUNDS, "eps": 2.0, **options}
    return private(options.pop("formula", FORMULA), data, estimand=estimand, **options)


# -- without noise -----------------------------------------------------------------------------


def noiseless(estimand: str, data: pd.DataFrame, **options: Any) -> Any:
    with textbook():
        return fit(estimand, data, **options)


class Seen:
    """The study by the fit's own nuisances; propensities cut as the scores cut them."""

    def __init__(self, fitted: Any, data: pd.DataFrame, clip: float) -> None:
        estimate, known = fitted.estimate, fitted.plan.request.propensity
        column = known if isinstance(known, str) else None
        rows, present, _ = read_points(estimate.design, estimate.design.variables, data, column)
        assert present.all()
        self.y, self.t = data["Y"].to_numpy(), data["T"].to_numpy().astype(float)
        self.mu0 = estimate.nuisances.mu0(rows)
        self.eta = estimate.nuisances.outcome(rows)
        self.e = estimate.nuisances.mu0.e(rows)
        self.capped = np.minimum(self.e, 1 - clip)

    def parts(self, estimand: str) -> tuple[Any, Any]:
        """Numerator and denominator of the textbook's estimate, row by row."""
        left = self.t - self.e
        if estimand == "ATO":
            return left * (self.y - self.eta), left**2
        odds = self.capped / (1 - self.capped)
        return (self.t - (1 - self.t) * odds) * (self.y - self.mu0), self.t


@pytest.mark.parametrize(
    "options",
    [
        {"base": "gam"},
        {"base": "linear"},
        {"base": "gam", "propensity": "P"},
        {"base": "linear", "propensity": 0.45},
        {"base": "linear", "neighbors": "add_remove"},
        {"base": "gam", "control": pc.Control(propensity_clip=0.3)},
    ],
    ids=lambda o: " ".join(map(str, o.values())),
)
@pytest.mark.parametrize("estimand", WEIGHTED)
def test_without_noise_it_is_the_textbook_estimate(estimand: str, options: Any) -> None:
    """Doubly robust ATT, and Robinson's slope, also within groups."""
    data = study(1500, reach=0.5)
    fitted = noiseless(estimand, data, groups=["X1 >= 0", "X2 < 0.25"], **options)
    clip = 0.02 if "propensity" in options else options.get("control", pc.Control()).propensity_clip
    top, bottom = Seen(fitted, data, clip).parts(estimand)
    assert fitted.params.index.tolist() == [estimand]
    assert fitted.params[estimand] == pytest.approx(top.sum() / bottom.sum(), abs=1e-6)
    for name, own in {"X1 >= 0": data["X1"] >= 0, "X2 < 0.25": data["X2"] < 0.25}.items():
        expected = top[own].sum() / bottom[own].sum()
        assert fitted.gate.loc[name, "estimate"] == pytest.approx(expected, abs=1e-6), name


def test_the_overlap_estimate_is_least_squares_of_residuals() -> None:
    """The slope of Y - eta on T - e, with its own standard error up to the effect's variation."""
    data = study(3000).assign(Y=lambda d: d["Y"] - d["T"] * (tau(d["X1"]) - 0.5))
    fitted = noiseless("ATO", data, propensity="P")
    at = Seen(fitted, data, 0.02)
    ols = sm.OLS(at.y - at.eta, at.t - at.e).fit(cov_type="HC0")
    assert fitted.params["ATO"] == pytest.approx(ols.params[0], abs=1e-6)
    assert np.sqrt(fitted.estimate.averages.sampling[0, 0]) == pytest.approx(ols.bse[0], rel=0.02)


def test_the_treated_estimate_has_its_influence_functions_error() -> None:
    data = study(3000)
    fitted = noiseless("ATT", data)
    top, bottom = Seen(fitted, data, 0.1).parts("ATT")
    influence = (top - top.sum() / bottom.sum() * bottom) / bottom.mean()
    expected = influence.std() / np.sqrt(len(data))
    assert np.sqrt(fitted.estimate.averages.sampling[0, 0]) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_the_remainders_weight(estimand: str) -> None:
    """With nuisances that are off by d_e and d_y the mean of the score errs by E[w d_e d_b]."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, 400)
    e, d_e, d_y, effect = 0.5 + 0.2 * x, 0.03 * x, 0.2 * x, 0.7
    treated, mean = e + d_e, 1 + x + d_y  # the truth; the fit has e and 1 + x

    class Population:
        def __len__(self) -> int:
            return 400

        def phi(self, _: Any) -> Any:
            return np.c_[np.ones(400), x]

    state: Any = SimpleNamespace(rows=Population(), clip=0.1)
    features: Any = None
    weight = remainder_weight(state, features, lambda _: e, ResultTerm("effect", estimand))
    left = np.array([0.0, 0.03]) @ weight @ np.array([0.0, 0.2 - effect * 0.03])

    # exact means over T and Y given x
    means = {t: mean + (t - treated) * effect for t in (0, 1)}
    arms = {t: 1 + x + (t - e) * effect for t in (0, 1)}
    chance = {0: 1 - treated, 1: treated}
    top, bottom = np.zeros(400), np.zeros(400)
    for t in (0, 1):
        if estimand == "ATE":
            share = (t - e) / (e * (1 - e))
            score, mass = effect + share * (means[t] - arms[t]), np.ones(400)
        elif estimand == "ATT":
            score, mass = (t - e) / (1 - e) * (means[t] - arms[0]), np.full(400, float(t))
        else:
            score, mass = (t - e) * (means[t] - 1 - x), (t - e) ** 2
        top, bottom = top + chance[t] * score, bottom + chance[t] * mass
    assert top.sum() / bottom.sum() - effect == pytest.approx(left, rel=0.03)
    assert abs(left) > 1e-3


# -- the truth ---------------------------------------------------------------------------------


@lru_cache
def large(estimand: str, split: str, neighbors: str, propensity: Any) -> Any:
    return fit(
        estimand, study(20_000), eps=30.0, control=pc.Control(split=split), neighbors=neighbors,
        propensity=propensity, groups=["X1 >= 0", "X1 < 0"], seed=5
    )  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("propensity", [None, "P"])
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_each_finds_its_own_truth(
    estimand: str, split: str, neighbors: str, propensity: Any
) -> None:
    fitted = large(estimand, split, neighbors, propensity)
    assert abs(fitted.params[estimand] - truth(estimand)) < 4 * fitted.bse[estimand]
    assert fitted.bse[estimand] < 0.0125
    gaps = [abs(truth(estimand) - truth(e)) for e in ESTIMANDS if e != estimand]
    assert min(gaps) > 4 * fitted.bse[estimand]  # another's truth is not found
    x = (np.arange(100_000) + 0.5) / 100_000
    for name, at in (("X1 >= 0", x), ("X1 < 0", -x)):
        e = 0.45 + 0.35 * at
        weight = {"ATE": np.ones_like(e), "ATT": e, "ATO": e * (1 - e)}[estimand]
        own = float(np.average(tau(at), weights=weight))
        assert abs(fitted.gate.loc[name, "estimate"] - own) < 4 * fitted.gate.loc[name, "std_error"]
        assert fitted.gate.loc[name, "std_error"] < 0.02


def test_intervals_of_all_terms_together() -> None:
    fitted = large("ATT", "full", "substitute", None)
    alone, together = fitted.conf_int(), fitted.conf_int(simultaneous=True)
    assert together.index.tolist() == ["ATT", "X1 >= 0", "X1 < 0"]
    assert together.loc["ATT", 0] < alone.loc["ATT", 0] < alone.loc["ATT", 1]


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("estimand", WEIGHTED)
def test_intervals_cover(estimand: str) -> None:
    """A 95 % interval covers fewer than 28 of 40 with a chance of 1e-7; the seeds are fixed."""
    fits = (fit(estimand, study(1000, 100 + k), base="linear", eps=1.0, seed=k) for k in range(40))
    assert missed(fits, truth(estimand)) <= 12


@pytest.mark.slow
def test_the_overlap_is_narrower_where_overlap_is_poor() -> None:
    """Nothing is divided by small propensities: neither noise nor the nuisances' errors."""
    data = study(4000, 3, 0.44)
    call = {"eps": 0.5, "control": pc.Control(propensity_clip=0.03)}
    ate, ato = (
        np.median([fit(name, data, seed=seed, **call).bse.iloc[0] for seed in range(5)])
        for name in ("ATE", "ATO")
    )
    assert ato < ate


def test_a_group_without_treated_rows_has_no_effect_on_the_treated() -> None:
    data = study(3000).assign(T=lambda d: d["T"] * (d["X2"] >= 0.5))
    fitted = fit("ATT", data, groups=["X2 < 0.5", "X2 >= 0.5"], seed=1)
    assert fitted.gate["estimate"].isna().tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("only", [0, 1])
@pytest.mark.parametrize("estimand", WEIGHTED)
def test_one_arm_alone_gives_numbers(estimand: str, only: int) -> None:
    for noise in (zero_noise(), seeded_noise(1)):
        with noise:
            fitted = fit(estimand, study(300).assign(T=only))
        assert np.isfinite(fitted.params).all()
        assert (fitted.bse > 0).all()


# -- a trial -----------------------------------------------------------------------------------


def test_without_covariates_all_three_are_the_difference_in_means() -> None:
    data = study(800, reach=0.0)
    found = [fit(estimand, data, formula="Y ~ T", seed=4) for estimand in ESTIMANDS]
    assert found[0].params.iloc[0] == found[1].params.iloc[0] == found[2].params.iloc[0]
    assert found[0].bse.iloc[0] == found[1].bse.iloc[0] == found[2].bse.iloc[0]
    said = [" ".join(str(f.summary(full=True)).split()) for f in found]
    same = "Without covariates, the averages over all, treated, and other weighted rows are equal."
    assert [same in text for text in said] == [False, True, True]


@pytest.mark.parametrize("estimand", WEIGHTED)
def test_one_known_propensity(estimand: str) -> None:
    fitted = fit(estimand, study(20_000, 2, 0.0), eps=5.0, propensity=0.45, seed=6)
    assert abs(fitted.params[estimand] - truth("ATE", 0.0)) < 4 * fitted.bse[estimand]
    assert fitted.bse[estimand] < 0.01
    assert fitted.estimate.averages.remainder[0] == 0


# -- words and refusals ------------------------------------------------------------------------

TITLES = {
    "ATE": "Private Average Treatment Effect\n",
    "ATT": "Private Average Treatment Effect on the Treated\n",
    "ATO": "Private Overlap-Weighted Average Treatment Effect\n",
}
LIMITS = {"ATE": "[0.10, 0.90]", "ATT": "[0.03, 0.90]", "ATO": "[0.03, 0.97]"}


@pytest.mark.slow
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_a_fit_says_what_it_estimates(estimand: str, page_of: Any, reloaded: Any) -> None:
    fitted = fit(estimand, study(500), groups=["X1 >= 0"], seed=1)
    text = str(fitted.summary(full=True))
    assert TITLES[estimand] in text
    assert f"Estimand:                          {estimand}\n" in text
    assert f"clipped to {LIMITS[estimand]}" in text
    assert max(map(len, text.splitlines())) <= 80
    assert fitted.glance()["estimand"].item() == estimand
    again = reloaded(fitted)
    assert again.params.equals(fitted.params)
    assert str(again.summary(full=True)) == text
    assert TITLES[estimand].strip() in page_of(fitted)


@pytest.mark.slow
@pytest.mark.parametrize("formula", [FORMULA, "Y ~ T"])
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_it_can_be_planned(estimand: str, formula: str) -> None:
    plan = pc.plan(formula, n=4000, eps=1.0, bounds=BOUNDS, estimand=estimand, groups=["X1 >= 0"])
    assert plan.terms["term"].tolist() == [estimand, "X1 >= 0"]
    text = str(plan.summary())
    assert f"Plan of a {TITLES[estimand]}" in text
    assert f"Estimand:                          {estimand}\n" in text
    assert 0.02 < plan.table["half-width to"].item() < 1


def test_a_plan_that_finds_nothing_names_its_estimand() -> None:
    plan = pc.plan(FORMULA, n=10, eps=0.01, outcome_sd=1.0, estimand="ATT")
    assert plan.terms["term"].tolist() == ["ATT"]
    assert np.isinf(plan.terms["half-width to"]).all()


# -- rare treatments ---------------------------------------------------------------------------


def rare(n: int = 8000, seed: int = 5) -> pd.DataFrame:
    """Three in a hundred are treated, by a propensity that the default clip would cut for all."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    t = (rng.random(n) < 0.03 * (1 + 0.6 * x)).astype(int)
    return pd.DataFrame({"Y": x + 0.5 * t + rng.normal(0, 0.5, n), "T": t, "X1": x, "X2": 0.5})


def test_the_clip_follows_a_rare_treatment() -> None:
    options: Any = {"bounds": {**BOUNDS, "Y": (-3, 4)}, "eps": 4.0, "formula": "Y ~ T | X1"}
    with seeded_noise(1):
        few, even = fit("ATE", rare(), **options), fit("ATE", study(3000), **options)
    assert even.estimate.clip == 0.1
    assert few.estimate.clip == pytest.approx(0.25 * 0.03, rel=0.3)
    e = few.nuisances["propensity"](rare())
    assert e.mean() == pytest.approx(0.03, abs=0.01)
    assert abs(few.params["ATE"] - 0.5) < 4 * few.bse["ATE"]
    assert f"{few.estimate.clip:.4f}" in str(few.summary(full=True))


def test_a_known_propensity_keeps_its_bounds_where_it_is_a_covariate_too() -> None:
    """Most rows lie in a tenth of them; the others' weights would be wrong."""
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame({"p": np.where(rng.random(n) < 0.01, 0.05, rng.uniform(0.48, 0.52, n))})
    frame["T"] = (rng.random(n) < frame["p"]).astype(int)
    frame["Y"] = rng.random(n)
    bounds = {"Y": (0, 1), "p": (0.02, 0.98)}
    fit = private("Y ~ T | p", frame, bounds=bounds, propensity="p", seed=1)
    known = fit.estimate.propensity
    assert known is not None
    assert (known.lo, known.hi) == (0.02, 0.98)
