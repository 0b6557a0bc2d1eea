"""A new learner needs a file of its own and a row of the registry: results know it by itself.

A new estimand needs its class, its score and mass, and its name. A new block of the report is one
method of a result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal import estimators as learners
from privcausal.estimators import R
from privcausal.estimators.base import CateLearner, reported_nuisances
from privcausal.estimators.base import EffectFit as Learnt
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import (
    ESTIMANDS,
    Description,
    Estimate,
    Score,
    ScoreParts,
    Tilted,
)
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.nuisances import NUISANCE_STEPS, fit_nuisances, nuisance_of
from privcausal.features.functions import Additive
from privcausal.inference.effects import Effect, Piece
from privcausal.report.tables import Check
from privcausal.request import request
from privcausal.request.request import Plan
from privcausal.results import AteResult
from privcausal.testing import seeded_noise, zero_noise
from privcausal.typing import Vector
from privcausal.vault import OfTreatment, ResidualProduct, Transform

STUDY = pc.datasets.clinic(1000, 3)


@dataclass(frozen=True)
class Nought(CateLearner):
    """Takes every effect to be zero, give or take a tenth."""

    name: ClassVar[str] = "nought"
    title: ClassVar[str] = "nought-learner"
    bands: ClassVar[str] = "Bands are a tenth wide, whatever the rows are."
    steps: ClassVar[tuple[Step, ...]] = NUISANCE_STEPS

    def learn(self, state: FitState) -> Learnt:
        state, partials, doubt = fit_nuisances(state)
        features = state.effect_features
        law = np.diag(np.r_[0.01, np.zeros(features.size - 1)])
        zero = Additive(features, np.zeros(features.size))
        effect = Effect((Piece(zero, law),), 2 * state.outcome.bound)
        found = tuple(nuisance_of(p, effect, state.outcome) for p in partials)
        return Learnt(state, effect, found, reported_nuisances(partials, found), doubt, partials)

    @classmethod
    def method(cls, title: str, plan: Plan) -> str:
        return f"The {title} says that nothing has an effect (base {plan.base!r})."

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        return replace(super().describe(estimate), notes=("Nought was learned of the effect.",))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(learners.LEARNERS, "nought", Nought())


@pytest.fixture
def fit(registered: None) -> Any:
    with seeded_noise(5):
        return pc.privcate(STUDY.formula, STUDY.frame, bounds=STUDY.bounds, learner="nought")


def words(text: Any) -> str:
    return " ".join(str(text).split())


@pytest.mark.slow
def test_its_fit_shows_what_it_says_of_itself(fit: Any, tmp_path: Any) -> None:
    text = words(fit.summary(full=True))
    assert "Estimator: nought-learner" in text
    assert "Bands are a tenth wide, whatever the rows are." in text
    assert "Nought was learned of the effect." in text
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "The nought-learner says that nothing has an effect" in page
    assert "No unmeasured confounding" in page
    assert "learner=&#39;nought&#39;" in page or "learner='nought'" in page
    (moved,) = set(fit.predict(STUDY.frame.head(3))["estimate"])  # the average moves a constant
    assert abs(moved - fit.params["ATE"]) < fit.bse["ATE"] + fit.max_bias["ATE"]


@pytest.mark.slow
def test_its_fit_comes_back_from_a_file_whole(fit: Any, tmp_path: Any) -> None:
    fit.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
    assert str(again.summary()) == str(fit.summary())
    assert again._view().methods == fit._view().methods


@pytest.mark.slow
def test_it_can_be_planned(registered: None) -> None:
    plan = pc.plan(STUDY.formula, bounds=STUDY.bounds, n=2000, learner="nought")
    assert "Estimator: nought-learner" in words(plan.summary())
    assert np.isfinite(plan.table["half-width to"]).all()


def test_a_learner_without_a_name_here_is_described_as_most_are(fit: Any) -> None:
    """As a file of it is, where its module was not imported."""
    plan = replace(fit.estimate.plan, learner="elsewhere")
    said = learners.describe(replace(fit.estimate, plan=plan))
    assert said.title == "elsewhere"
    assert said.assumptions == R.describe(fit.estimate).assumptions
    assert said.methods[0].startswith("The estimator was elsewhere with base 'gam'.")


# -- an estimand ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odds:
    """A score or mass times e / (1 - e), for e <= 1 - clip."""

    base: Any
    clip: float

    @property
    def bound(self) -> float:
        return float(self.base.bound * (1 - self.clip) / self.clip)

    def at(self, rows: Any, t: Any, y: Any) -> Vector:
        e = np.minimum(self.base.e(rows), 1 - self.clip)
        return np.asarray(self.base.at(rows, t, y) * e / (1 - e))

    def __call__(self, batch: Any) -> Vector:
        e = np.minimum(self.base.e(batch.rows), 1 - self.clip)
        return np.asarray(self.base(batch) * e / (1 - e))


@dataclass(frozen=True)
class Sure(Tilted):
    """E[e^2 tau] / E[e^2], the effect in those who are sure to be treated, for a known e.

    An error of e would have a first-order effect on this score.
    """

    by_rest = True

    def tilt(self, e: Vector) -> Vector:
        return e**2

    def bias_weight(self, e: Vector, clip: float) -> Vector:
        e = np.minimum(e, 1 - clip)
        return np.asarray(e / (1 - e) / np.mean(e**2))

    def score(self, k: ScoreParts, centre: float, scale: float) -> Score:
        score = ResidualProduct(k.e, k.eta, k.outcome, k.soft_clip, centre, scale=scale)
        return Odds(score, k.clip)

    def mass(self, k: ScoreParts, scale: float) -> Transform:
        return Odds(OfTreatment("overlap", k.e, k.soft_clip, scale), k.clip)


def test_an_estimand_is_a_class_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate for tau = 1 + X, given the propensity, and its parts in results."""
    monkeypatch.setattr(request, "AVERAGES", (*request.AVERAGES, "sure"))
    monkeypatch.setitem(ESTIMANDS, "sure", Sure("effect on the sure", "Private Effect on the Sure"))
    rng, n = np.random.default_rng(8), 20_000
    x = rng.uniform(-1, 1, n)
    e = 0.5 + 0.3 * x
    t = (rng.random(n) < e) * 1.0
    y = x + t * (1 + x) + rng.normal(0, 0.3, n)
    data = pd.DataFrame({"Y": y, "T": t, "X": x, "e": e})
    bounds = {"Y": (-5, 5), "X": (-1, 1), "e": (0.2, 0.8)}
    with zero_noise():
        found = pc.private("Y ~ T | X", data, bounds=bounds, propensity="e", estimand="sure")  # type: ignore[arg-type]
    truth = float(np.average(1 + x, weights=e**2))
    assert found.params["sure"] == pytest.approx(truth, abs=4 * float(found.bse["sure"]))
    assert "Private Effect on the Sure" in words(found.summary())
    assert (found.params["sure"] - 1) > 3 * float(found.bse["sure"])  # the ATE is 1


# -- a block of the report -----------------------------------------------------------------------


@pytest.mark.parametrize("plot", [None, lambda ax: ax.plot([0, 1])], ids=["table", "plot"])
def test_a_block_of_the_report_is_a_method(plot: Any, tmp_path: Any, monkeypatch: Any) -> None:
    frame = pd.DataFrame({"patients": [12.0]}, index=["needed to treat"])
    block = Check("Number needed to treat", "One in twelve patients benefits.", frame, plot)
    monkeypatch.setattr(AteResult, "_figures", lambda *_: (block,))
    with seeded_noise(5):
        fit = pc.private(STUDY.formula, STUDY.frame, bounds=STUDY.bounds)
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "<p>One in twelve patients benefits.</p>" in page
    assert "needed to treat</th>" in page
    assert ("Number needed to treat.</figcaption>" in page) == (plot is not None)
