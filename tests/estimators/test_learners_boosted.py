"""The learners on base "dpebm" keep the contract, and find what the textbook finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate
from learners_contract import BOUNDS, FORMULA, SPLITS, TRUE_ATE, Contract, fit, study, tau

import privcausal as pc
from privcausal.estimators import S

QUICK = pc.bases.DPEBM(rounds=40, learning_rate=0.1)
RAW = pc.bases.DPEBM(rounds=40, learning_rate=0.1, smooth=False)


NO_AVERAGE = pc.Control(shares={"average": 0})
NAMES: tuple[Any, ...] = ("r", "dr", "s", "t", "x")
EXACT = pc.bases.DPEBM(rounds=300, learning_rate=0.05, smooth=False)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("learner", "base"), [*((name, QUICK) for name in (*NAMES, S(interactions=False))), ("dr", RAW)]
)
class TestEveryLearner(Contract):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("learner", NAMES)
def test_without_noise_the_effect_is_found(learner: Any) -> None:
    """Many rounds, no noise, no smoothing: what is left is sampling and the width of bins."""
    found = fit(learner, EXACT, study(6000, 1), control=NO_AVERAGE, exact=True)
    new = study(400, seed=9)
    gap = found.predict(new)["estimate"] - tau(new["X1"], new["G"])
    assert np.abs(gap).mean() < 0.06
    assert np.corrcoef(found.predict(new)["estimate"], tau(new["X1"], new["G"]))[0, 1] > 0.9


@pytest.mark.slow
def test_the_constant_effect_is_one_number() -> None:
    found = fit(S(interactions=False), EXACT, study(6000, 1), control=NO_AVERAGE, exact=True)
    effect = found.predict(study(50, seed=2))["estimate"]
    assert np.ptp(effect) < 1e-9
    assert effect.iloc[0] == pytest.approx(TRUE_ATE, abs=0.03)


@pytest.mark.slow
def test_overlap_weights_make_no_effect_of_a_mean_that_is_not_additive() -> None:
    """Arms of different covariates, a kinked mean of a sum, and no effect at all, in 8000 rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (8000, 2))
    z = x.sum(axis=1)
    t = rng.random(8000) < 1 / (1 + np.exp(-1.5 * z))
    y = np.maximum(z, 0) + 0.1 * rng.standard_normal(8000)
    data = pd.DataFrame({"A": x[:, 0], "B": x[:, 1], "T": t * 1, "Y": np.clip(y, -1, 3)})
    bounds = {"A": (-1, 1), "B": (-1, 1), "Y": (-1, 3)}
    size = {}
    for learner in ("s", "t"):
        found = privcate(
            "Y ~ T | A + B", data, learner=learner, base=QUICK, eps=5.0, bounds=bounds,
            control=NO_AVERAGE, exact=True
        )  # fmt: skip
        size[learner] = float((found.predict(data)["estimate"] ** 2).mean())
    assert size["s"] < 0.2 * size["t"]
    assert size["s"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["s", "t"])
def test_controls_that_confound_are_adjusted_for(learner: str) -> None:
    """A column that drives treatment and outcome but is no modifier of the effect; no noise."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (2, 8000))
    t = (rng.random(8000) < 1 / (1 + np.exp(-2 * w))).astype(int)
    y = np.clip(2 * w + t * (0.5 + 0.5 * x) + 0.5 * rng.standard_normal(8000), -5, 5)
    frame = pd.DataFrame({"X": x, "W": w, "T": t, "Y": y})
    bounds = {"Y": (-5, 5), "X": (-1, 1), "W": (-1, 1)}
    found = privcate(
        "Y ~ T | X | W", frame, learner=learner, base=QUICK, eps=1, bounds=bounds,
        control=NO_AVERAGE, exact=True
    )  # fmt: skip
    gap = found.predict(frame)["estimate"] - (0.5 + 0.5 * x)
    assert abs(gap.mean()) < 0.1  # without adjustment it is 1.1


@pytest.mark.slow
def test_the_mean_of_an_s_learner_has_not_the_noise_of_its_shapes() -> None:
    """A confounder, and noise of which each arm's shapes and constant have as much as the mean."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (4000, 3))
    t = (rng.random(4000) < 0.5 + 0.4 * x[:, 0]).astype(int)
    y = np.clip(x[:, 0] + x[:, 1] + x[:, 2] + 0.3 * t + rng.standard_normal(4000), -6, 6)
    frame = pd.DataFrame(x, columns=["X1", "X2", "X3"]).assign(T=t, Y=y)
    bounds = {"Y": (-6, 6), "X1": (-1, 1), "X2": (-1, 1), "X3": (-1, 1)}
    means = []
    for seed in range(6):
        found = privcate(
            "Y ~ T | X1 + X2 + X3", frame, learner="s", base="dpebm", eps=0.7, bounds=bounds,
            control=NO_AVERAGE, seed=seed
        )  # fmt: skip
        means.append(float(found.predict(frame)["estimate"].mean()))
    # 0.07; the shapes' own mean is off by 0.14
    assert np.sqrt(np.mean((np.array(means) - 0.3) ** 2)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "dr", "t"])
def test_shapes_smoothed_are_nearer_to_the_truth(learner: str) -> None:
    """At a budget where noise is what is wrong: the mean error of seeds, by a wide margin."""
    errors = []
    for smooth in (True, False):
        base = pc.bases.DPEBM(rounds=60, learning_rate=0.05, smooth=smooth)
        found = []
        for seed in range(3):
            one = fit(learner, base, study(3000, seed), eps=0.7, control=NO_AVERAGE, seed=seed)
            new = study(400, seed=9)
            gap = one.predict(new)["estimate"] - tau(new["X1"], new["G"])
            found.append(float((gap**2).mean()))
        errors.append(np.mean(found))
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "dr", "s"])
def test_where_the_outcome_lies_does_not_matter(learner: str) -> None:
    """The same outcome in [-1, 1] and in [99, 101]: the same shapes but for the floats."""
    data = study(800, 2)
    low = data.assign(Y=np.clip(data["Y"] - 0.5, -1, 1))
    effects = []
    for shift in (0.0, 100.0):
        one = fit(
            learner, QUICK, low.assign(Y=low["Y"] + shift),
            control=NO_AVERAGE,
            bounds=BOUNDS | {"Y": (shift - 1, shift + 1)}, seed=1
        )  # fmt: skip
        effects.append(one.predict(data)["estimate"].to_numpy())
    assert effects[1] == pytest.approx(effects[0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["s", "t", "x", "r", "dr"])
def test_confounding_by_a_product_is_found(learner: Any) -> None:
    """Of which shapes of single columns see nothing: the difference of means errs by 0.18."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-1, 1, (2, 20_000))
    e = 0.5 + 0.4 * a * b
    t = rng.random(20_000) < e
    data = pd.DataFrame({"A": a, "B": b, "T": t, "Y": np.clip(a * b + 0.5 * t, -1, 2)})
    found = privcate(
        "Y ~ T | A + B", data, learner=learner, base=QUICK, eps=1.0,
        bounds={"A": (-1, 1), "B": (-1, 1), "Y": (-1, 2)}, exact=True
    )  # fmt: skip
    plain = data["Y"][t].mean() - data["Y"][~t].mean()
    assert plain - 0.5 > 0.15
    assert found.params["ATE"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_averages_cover_and_all_is_released() -> None:
    found = fit("dr", QUICK, study(4000, 1), groups=["G"], seed=3)
    limits = found.conf_int(alpha=1e-6).loc["ATE"]
    assert limits[0] < TRUE_ATE < limits[1] < limits[0] + 0.2
    assert list(found.nuisances) == ["propensity", "outcome", "mu0", "mu1"]
    new = study(30, seed=4)
    assert found.nuisances["propensity"](new).between(0.1, 0.9).all()
    assert found.nuisances["mu1"](new).between(-2, 3).all()
    assert "300" not in found.budget["query"].iloc[1]  # 40 rounds were asked for
    assert found.budget["query"].str.contains("40 rounds").sum() == 3


def test_interpret_shows_the_same_shapes() -> None:
    pytest.importorskip("interpret")
    found = fit("r", QUICK, study(2000), seed=3)
    booster = found.to_interpret()
    new = study(200, seed=4)
    columns = booster.feature_names_in_
    ours = found.predict(new)["estimate"]
    assert booster.predict(new[columns]) == pytest.approx(ours.to_numpy(), abs=1e-9)
    shown = booster.explain_global().data(0)
    assert len(shown["scores"]) > 1


@pytest.mark.slow
def test_it_draws_and_reports(page_of: Any) -> None:

    found = fit("dr", QUICK, study(500), seed=3)
    assert found.plot("effect") is not None
    assert "boosting" in page_of(found).lower()


@pytest.mark.slow
def test_a_plan_rehearses_it() -> None:
    plan = pc.plan(FORMULA, n=2000, eps=1.0, learner="dr", base=QUICK, bounds=BOUNDS)
    assert 0 < plan.table["half-width to"].iloc[0] < 5
    assert plan.passes > 3 * 40


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("split", ["disjoint", "crossfit"])
def test_too_few_rows_for_a_split_are_refused(split: str, unspent: pc.Ledger) -> None:
    control = pc.Control(split=split)
    with pytest.raises(pc.DataError, match="at least 20"):
        fit("r", QUICK, study(39), control=control, ledger=unspent)
    fit("r", QUICK, study(39), control=control, neighbors="add_remove")  # n is private


@pytest.mark.sample(3)
@pytest.mark.parametrize("learner", NAMES)
@pytest.mark.parametrize("data", ["all treated", "constant outcome", "one bin", "missing"])
def test_degenerate_tables_are_fitted(data: str, learner: str) -> None:
    table = pd.DataFrame(study(80))
    changed = {
        "all treated": {"T": 1},
        "constant outcome": {"Y": 3.0},
        "one bin": {"X1": 0.0, "X2": 5.0, "G": "a"},
        "missing": {"Y": np.nan},
    }[data]
    found = fit(learner, QUICK, table.assign(**changed), eps=0.5)
    assert np.isfinite(found.predict(study(5, 1))["estimate"]).all()
