"""A new learner needs a file of its own and a row of the registry: results know it by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import privcausal as pc
from privcausal import estimators as learners
from privcausal.estimators import R
from privcausal.estimators.base import CateLearner, shown
from privcausal.estimators.base import EffectFit as Learnt
from privcausal.estimators.budget import Use
from privcausal.estimators.nuisances import nuisance_of
from privcausal.estimators.orthogonal import NUISANCE_USES, fit_nuisances
from privcausal.estimators.survey import Survey as FitState
from privcausal.estimators.words import Description, Estimate
from privcausal.features.functions import Additive
from privcausal.inference.effects import Effect, Piece
from privcausal.request.plan import Plan
from privcausal.testing import seeded_noise

STUDY = pc.datasets.clinic(1000, 3)


@dataclass(frozen=True)
class Nought(CateLearner):
    """Takes every effect to be zero, give or take a tenth."""

    name: ClassVar[str] = "nought"
    title: ClassVar[str] = "nought-learner"
    bands: ClassVar[str] = "Bands are a tenth wide, whatever the rows are."
    uses: ClassVar[tuple[Use, ...]] = NUISANCE_USES

    def learn(self, state: FitState) -> Learnt:
        known = fit_nuisances(state)
        features = known.state.effect_features
        law = np.diag(np.r_[0.01, np.zeros(features.size - 1)])
        zero = Additive(features, np.zeros(features.size))
        effect = Effect((Piece(zero, law),), 2 * known.state.outcome.bound)
        found = tuple(nuisance_of(p, effect, known.state.outcome) for p in known.partials)
        return Learnt(
            known.state, effect, found, shown(known.partials, found), known.doubt, known.partials
        )

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
    text = words(fit.summary())
    assert "Estimator: nought-learner" in text
    assert "Bands are a tenth wide, whatever the rows are." in text
    assert "Nought was learned of the effect." in text
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "The nought-learner says that nothing has an effect" in page
    assert "No unmeasured confounding" in page
    assert "learner=&#39;nought&#39;" in page or "learner='nought'" in page
    assert (fit.predict(STUDY.frame.head(3))["estimate"] == 0).all()


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
    assert np.isfinite(plan.table["half-width"]).all()


def test_a_learner_without_a_name_here_is_described_as_most_are(fit: Any) -> None:
    """As a file of it is, where its module was not imported."""
    plan = replace(fit.estimate.plan, learner="elsewhere")
    said = learners.describe(replace(fit.estimate, plan=plan))
    assert said.title == "elsewhere"
    assert said.assumptions == R.describe(fit.estimate).assumptions
    assert said.methods[0].startswith("The estimator was elsewhere with base 'gam'.")
