"""What every learner owes, on every base and split; and a study small enough to fit often."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, privcate

import privcausal as pc
from privcausal.accounting import PICO
from privcausal.testing import seeded_noise

SPLITS = ("full", "disjoint", "crossfit")
FORMULA = "Y ~ T | X1 + C(G) | X2"
BOUNDS = {"Y": (-2, 3), "X1": (-1, 1), "X2": (0, 10), "G": ["a", "b", "c"]}
GROUPS = ["G", "X1 >= 0"]
SMALL = 300


@lru_cache
def study(n: int = SMALL, seed: int = 0) -> pd.DataFrame:
    """A linear study: tau(x) = 0.5 + 0.2 X1 + 0.2 [G = b], whose mean is 0.5 + 0.2 / 3."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.uniform(0, 10, n)
    g = rng.choice(["a", "b", "c"], n)
    t = (rng.random(n) < 0.5 + 0.2 * x1 + 0.01 * (x2 - 5)).astype(int)
    mean = 0.3 * x1 + 0.04 * x2 + 0.2 * (g == "c")
    y = mean + t * tau(x1, g) + rng.normal(0, 0.15, n)
    return pd.DataFrame({"Y": np.clip(y, -2, 3), "T": t, "X1": x1, "X2": x2, "G": g})


def tau(x1: Any, g: Any) -> Any:
    return 0.5 + 0.2 * x1 + 0.2 * (np.asarray(g) == "b")


TRUE_ATE = 0.5 + 0.2 / 3


def fit(learner: Any, base: Any, data: pd.DataFrame, **options: Any) -> Any:
    """`private` or `privcate` on the study, by the learner's name or option object."""
    options = {"base": base, "eps": 2.0, "bounds": BOUNDS, **options}
    if learner in ("private", "difference"):
        return private("Y ~ T" if learner == "difference" else FORMULA, data, **options)
    return privcate(FORMULA, data, learner=learner, **options)


@lru_cache
def quiet_fit(learner: Any, base: Any, split: str) -> Any:
    """A fit of the small study with seeded noise; any but ours on released numbers is an error."""
    with warnings.catch_warnings(), seeded_noise(7):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", pc.PrivcausalWarning)  # of released numbers
        return fit(learner, base, study(), control=pc.Control(split=split), groups=GROUPS)


class Contract:
    """Inherit, and parametrise `learner`, `base` and `split`."""

    @pytest.fixture
    def fitted(self, learner: Any, base: Any, split: str) -> Any:
        return quiet_fit(learner, base, split)

    def test_fits_without_a_warning(self, fitted: Any) -> None:
        assert np.isfinite(fitted.params).all()
        assert (fitted.bse > 0).all()
        assert list(fitted.gate.index) == ["G[a]", "G[b]", "G[c]", "X1 >= 0"]
        assert fitted.guarantee.kind == "none"

    def test_spends_what_was_planned_and_no_more(self, fitted: Any) -> None:
        plan = fitted.plan
        spent = sum(release.charge.cost.rho for release in fitted.estimate.releases)
        assert spent == plan.rho <= plan.rho_cap
        assert plan.rho > 0.99 * plan.rho_cap
        assert fitted.guarantee.epsilon <= 2.0

    def test_budget_lines_are_the_stages_of_the_plan(self, fitted: Any) -> None:
        stages, lines = fitted.plan.stages, fitted.budget
        planned = [(s.name.partition(":")[0], s.charged / PICO, s.rows) for s in stages]
        shown = lines[["stage", "rho", "rows"]].itertuples(index=False, name=None)
        assert sorted(shown) == sorted(planned)
        assert list(dict.fromkeys(lines["stage"])) == list(dict.fromkeys(p[0] for p in planned))

    def test_noise_is_that_of_the_planned_rho(self, fitted: Any) -> None:
        """rho = (Delta / sigma)^2 / 2 of each line is that of its stage, whatever is charged."""
        lines = fitted.budget
        bought = sorted(0.5 * (lines["sensitivity"] / lines["noise_sd"]) ** 2)
        assert bought == pytest.approx(sorted(s.rho / PICO for s in fitted.plan.stages), rel=1e-9)

    @pytest.mark.sample(2)
    def test_batch_size_does_not_matter(
        self, fitted: Any, learner: Any, base: Any, split: str, limits: Any, tmp_path: Any
    ) -> None:
        control = pc.Control(split=split)
        with limits(BATCH=97):
            again = fit(learner, base, study(), control=control, groups=GROUPS, seed=7)
        fitted.save(tmp_path / "one.json")
        again.save(tmp_path / "other.json")
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()
