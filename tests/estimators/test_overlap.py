"""How much one row may weigh in an average effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private
from textbook import weight_limits

from privcausal.estimators import averages, nuisances
from privcausal.features.functions import Additive
from privcausal.inference.regression import Remainder
from privcausal.request.formula import ATE_TERM

BOUNDS = {"Y": (-8.0, 8.0), "T": (0.0, 1.0), "X": (-2.0, 2.0)}


def study(n: int, pull: float, seed: int = 1) -> pd.DataFrame:
    """Effect 1; treatment leans on X by `pull`, and so does the outcome."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n)
    t = (rng.random(n) < 1 / (1 + np.exp(-pull * x))).astype(float)
    y = np.clip(t + 1.5 * x + rng.standard_normal(n), -8, 8)
    return pd.DataFrame({"Y": y, "T": t, "X": x})


def fitted(frame: pd.DataFrame, eps: float, seed: int = 1, **options: Any) -> Any:
    return private("Y ~ T | X", frame, eps=eps, bounds=BOUNDS, **options, seed=seed)


def test_a_known_propensity_has_no_limit() -> None:
    fit = fitted(study(3000, 0.0), 1, propensity=0.5)
    assert np.isinf(fit.estimate.averages.weight)


def test_noise_asks_for_even_weights_and_confounding_for_its_own() -> None:
    little = fitted(study(1500, 0.0), 0.3).estimate.averages
    plenty = fitted(study(60_000, 1.2), 60).estimate.averages
    assert little.weight < 2
    assert plenty.weight > little.weight
    assert abs(plenty.estimate[0] - 1) < 4 * np.sqrt(plenty.cov[0, 0])


def test_what_a_limit_leaves_out_is_in_the_interval() -> None:
    """Rows weighed as in a difference of means: the law grows, and the truth stays inside."""
    frame = study(20_000, 1.2)
    free = fitted(frame, 2).estimate.averages
    with weight_limits(1.0):
        held = fitted(frame, 2).estimate.averages
    assert held.weight == 1
    assert held.remainder[0] > 1.5 * free.remainder[0]
    assert held.privacy[0, 0] < free.privacy[0, 0]
    assert abs(held.estimate[0] - 1) < held.half_widths(3.0)[0]


@pytest.mark.slow
def test_the_least_predicted_error_is_chosen() -> None:
    """Of all limits, each tried alone under the same noise, but for what the histogram adds."""
    frame, errors = study(4000, 0.5), {}
    chosen = fitted(frame, 1).estimate.averages
    for factor in averages.FACTORS:
        with weight_limits(factor):
            errors[factor] = fitted(frame, 1).estimate.averages.sd[0]
    assert chosen.weight in errors
    assert chosen.sd[0] <= 1.1 * min(errors.values())
    assert max(errors.values()) > 1.1 * min(errors.values()), "or the choice would not matter"


@pytest.mark.parametrize("limit", [0.5, 0.4])
def test_an_error_of_the_effect_moves_the_mean_score_as_stated(limit: float) -> None:
    """All else is right: outcomes have the means eta + (t - f) tau, and the score limits f to e."""
    x = np.linspace(-1, 1, 4001)
    f, e = 0.5 + 0.3 * x, np.full(4001, limit)
    tau, used = 1 + 0.8 * x + x**2, np.full(4001, 0.4)
    none = np.zeros((1, 1))
    pair = SimpleNamespace(
        remainder=lambda *_: Remainder(0.0, 0.0),
        slopes=(none[0], none[0]),
        e=SimpleNamespace(gram=none),
    )

    class Limited(Additive):
        def __call__(self, _: Any) -> Any:
            return e if np.isfinite(self.lo) else f

    part = nuisances.FoldFit(Limited(None, none[0], lo=0.1), *[None] * 2, pair)  # type: ignore[arg-type]
    law: Any = SimpleNamespace(mean_sd=lambda _, lost: np.mean(lost * (tau - used)))
    rows = SimpleNamespace(kept=lambda *_: None, keep=lambda _, value: value)
    state: Any = SimpleNamespace(rows=rows, features=None, clip=0.1)
    parts = {"_averaged": lambda *_: (none, none[0]), "_move": lambda *_: none}
    with mock.patch.multiple(nuisances, **parts):
        stated = nuisances.remainder(state, [part], ATE_TERM, law)
    left = f * (1 - f) * (tau - used)  # of the treated and of the controls
    estimate = np.mean(used + left / e + left / (1 - e))
    assert stated.sd == pytest.approx(abs(estimate - tau.mean()))


@pytest.mark.slow
def test_the_report_says_how_much_a_row_weighs(page_of: Any, reloaded: Any) -> None:
    fit = fitted(study(1500, 0.0), 0.3)
    assert np.isfinite(fit.estimate.averages.weight)
    assert "difference in means" in page_of(fit)
    again = reloaded(fit)
    assert again.estimate.averages.weight == fit.estimate.averages.weight
