"""Learners r, dr and auto where products confound, and slopes whose scores have a pilot."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate, spied
from learners_contract import BOUNDS, FORMULA, GROUPS, study
from textbook import textbook

import privcausal as pc
from privcausal.estimators import base as learners_base
from privcausal.estimators import meta
from privcausal.estimators.averages import average_target
from privcausal.inference import cuts
from privcausal.inference.priors import PRIORS
from privcausal.testing import seeded_noise


@lru_cache
def saddle(n: int = 6000) -> tuple[pd.DataFrame, Any]:
    """Treatment and outcome both rise with X1 X2; the effect is 1 + X3."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (n, 3))
    e = 1 / (1 + np.exp(-2 * x[:, 0] * x[:, 1]))
    t = (rng.random(n) < e).astype(int)
    effect = 1 + x[:, 2]
    y = np.clip(2 * x[:, 0] * x[:, 1] + t * effect + 0.5 * rng.standard_normal(n), -4, 5)
    return pd.DataFrame(x, columns=["X1", "X2", "X3"]).assign(T=t, Y=y), effect


SADDLE: dict[str, Any] = {"Y": (-4, 5), **dict.fromkeys(["X1", "X2", "X3"], (-1, 1))}


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "dr", "auto"])
def test_products_that_confound_are_learned(learner: str) -> None:
    """Additive nuisances leave a bias of 0.15 and more."""
    frame, effect = saddle()
    fit = privcate("Y ~ T | X1 + X2 + X3", frame, learner=learner, eps=8.0, bounds=SADDLE, seed=1)
    found = fit.predict(frame)["estimate"] - effect
    assert abs(float(found.mean())) < 0.08
    assert float(np.mean(found**2)) < 0.02


@pytest.mark.slow
def test_auto_spends_what_r_spends_and_says_what_it_chose() -> None:
    frame, _ = saddle()
    fits = {}
    for learner in ("r", "auto"):
        fits[learner] = privcate(
            "Y ~ T | X1 + X2 + X3", frame, learner=learner, eps=4.0, bounds=SADDLE, seed=2
        )
    stages = [list(fit.budget["rho"]) for fit in fits.values()]
    assert stages[0] == stages[1]
    (note,) = (n for n in fits["auto"].estimate.notes if "marginal likelihood" in n)
    assert note.startswith(("The effect is modeled as linear", "The effect is modeled as smooth"))
    assert not any("marginal likelihood" in n for n in fits["r"].estimate.notes)


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("power", [-30, 30])
@pytest.mark.parametrize("learner", ["r", "dr"])
def test_the_outcomes_unit_changes_nothing(learner: str, power: int) -> None:
    frame, _ = saddle()
    found = []
    for unit in (1.0, 2.0**power):
        bounds = SADDLE | {"Y": (-4 * unit, 5 * unit)}
        fit = privcate(
            "Y ~ T | X1 + X2 + X3", frame.assign(Y=frame["Y"] * unit),
            learner=learner, eps=4.0, bounds=bounds, seed=6
        )  # fmt: skip
        found.append(fit.predict(frame).to_numpy() / unit)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_what_is_not_taken_off_of_the_leftover_is_in_the_band() -> None:
    frame, _ = saddle()
    moments = meta.product_bias_moments
    with spied(meta, "product_bias_moments") as calls, seeded_noise(2):
        pc.privcate("Y ~ T | X1 + X2 + X3", frame, learner="r", eps=2.0, bounds=SADDLE)
    state, laws, features = calls[0][0]
    ((mean, spread),) = laws
    taken, cov = moments(state, laws, features)
    phi = state.rows.phi(features)[: len(mean)]
    lead = (phi * features.weight(phi)[:, None]).T * state.population.count / len(phi)
    np.testing.assert_allclose(taken, PRIORS.product_bias_mean * (lead @ mean))
    # the second moment of the leftover around what is taken off
    second = spread + np.outer(mean, mean)
    whole = lead @ second @ lead.T
    across = np.outer(lead @ mean, taken)
    np.testing.assert_allclose(cov, whole - across - across.T + np.outer(taken, taken), rtol=1e-6)
    assert np.abs(mean).max() > 0
    assert PRIORS.product_bias_mean < 1


@pytest.mark.slow
def test_auto_finds_a_constant() -> None:
    frame, _ = saddle()
    flat = frame.assign(Y=np.clip(frame["Y"] - frame["T"] * frame["X3"], -4, 5))
    fit = privcate("Y ~ T | X1 + X2 + X3", flat, learner="auto", eps=4.0, bounds=SADDLE, seed=3)
    assert float(fit.predict(flat)["estimate"].std()) < 0.1


@pytest.mark.slow
def test_a_pilot_changes_no_slope_without_noise() -> None:
    """Nothing cut and no noise: the projection of the scores, whatever they are centred at."""

    def plain(state: Any, nuisances: Any, centre: float, tau: Any) -> Any:
        return average_target(state, nuisances, centre)

    found = []
    for replaced in (average_target, plain):
        with textbook(), mock.patch.object(learners_base, "average_target", replaced):
            found.append(
                pc.privcate(
                    FORMULA, study(2000), eps=2.0, bounds=BOUNDS, groups=GROUPS, learner="r"
                )
            )
    assert found[0].params.to_numpy() == pytest.approx(found[1].params.to_numpy(), abs=1e-6)
    assert found[0].gate["estimate"].to_numpy() == pytest.approx(
        found[1].gate["estimate"].to_numpy(), abs=1e-9
    )


def test_a_pilot_leaves_scores_with_less_range() -> None:
    """A steep effect whose scores are cut: centred at a constant, the slope is pulled to zero."""
    rng = np.random.default_rng(8)
    n = 6000
    x = rng.uniform(-1, 1, n)
    t = rng.integers(0, 2, n)
    y = 6 * x * t + 0.2 * rng.standard_normal(n)
    frame = pd.DataFrame({"X1": x, "T": t, "Y": np.clip(y, -7, 7)})

    with textbook(cut=2.0):
        fit = pc.privcate(
            "Y ~ T | X1", frame, eps=4.0, bounds={"Y": (-7, 7), "X1": (-1, 1)}, propensity=0.5
        )
    assert fit.blp.loc["X1", "estimate"] == pytest.approx(6, abs=0.15)


def test_a_second_release_changes_nothing_without_noise_and_cuts() -> None:
    """Moments of what an effect leaves, plus G beta, are those of the effect: an identity."""
    with textbook(least_left=1.0), spied(meta, "second_release") as calls:
        pc.privcate(FORMULA, study(2000), eps=2.0, bounds=BOUNDS, learner="r", base="linear")
    (((*_, first, _), (both, _)),) = calls
    assert np.abs(first.cross).max() > 10
    assert both.cross == pytest.approx(first.cross, abs=5e-3)


def steep(n: int = 8000) -> tuple[pd.DataFrame, Any]:
    """An effect that outweighs all else."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, n)
    t = rng.integers(0, 2, n)
    y = 6 * x * t + 0.2 * rng.standard_normal(n)
    return pd.DataFrame({"X1": x, "T": t, "Y": np.clip(y, -7, 7)}), 6 * x


def test_a_second_release_needs_less_range() -> None:
    frame, effect = steep()
    fit = privcate("Y ~ T | X1", frame, bounds={"Y": (-7, 7), "X1": (-1, 1)}, eps=1.0, seed=4)
    first, second = fit.budget[fit.budget["query"].str.startswith("residual product")].to_dict(
        "records"
    )
    sensitivities = [row["noise_sd"] * np.sqrt(row["rho"]) for row in (first, second)]
    assert sensitivities[1] < 0.6 * sensitivities[0]
    found = fit.predict(frame)["estimate"] - effect
    assert float(np.mean(found**2)) < 0.1


def test_what_an_effect_leaves_of_sizes_is_what_is_drawn() -> None:
    """A normal residual and a known propensity: the mean square by arithmetic."""
    rng = np.random.default_rng(3)
    n, e, tau, sigma = 400_000, 0.3, 2.0, 1.0
    t = rng.random(n) < e
    whole = (t - e) * ((t - e) * tau + sigma * rng.standard_normal(n))
    rest = whole - (t - e) ** 2 * tau
    edges = cuts.score_edges(8.0, cuts.SHAPE_OCTAVES)
    counts = np.histogram(np.abs(whole), np.r_[0.0, edges])[0].astype(float)
    law = cuts.AbsHistogram(edges, counts, 0.0)
    left = meta.sizes_left(law, np.full(5, e), np.full(5, tau))  # both are constants
    ratio = left.rms(float(left.edges[-1])) / law.rms(float(law.edges[-1]))
    assert ratio == pytest.approx(np.sqrt(np.mean(rest**2) / np.mean(whole**2)), rel=0.03)
