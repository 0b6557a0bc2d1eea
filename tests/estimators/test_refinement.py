"""The second release of learner r: what it is laid out by, and products of modifiers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate, spied
from textbook import textbook

import privcausal as pc
from privcausal.estimators import meta
from privcausal.estimators.bases import Gam
from privcausal.features.functions import Interactions
from privcausal.inference.effects import Effect

BOUNDS = {"Y": (-4, 6), "X1": (0, 1), "X2": (0, 1), "X3": (0, 1), "G": ["a", "b"]}
FORMULA = "Y ~ T | X1 + X2 + X3 + C(G)"

SINGLE = 1e-6
"""Products are made as floats of 32 bits."""


def tau(frame: pd.DataFrame) -> Any:
    return 4 * (frame["X1"] - 0.5) * (frame["X2"] - 0.5) * 2 + frame["X3"]


@lru_cache
def study(n: int, product: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.uniform(0, 1, (n, 3)), columns=["X1", "X2", "X3"])
    frame["G"] = rng.choice(["a", "b"], n)
    frame["T"] = (rng.random(n) < 0.3 + 0.4 * frame["X1"]).astype(int)
    effect = tau(frame) if product else frame["X3"]
    frame["Y"] = np.clip(frame["X2"] + frame["T"] * effect + 0.4 * rng.standard_normal(n), -4, 6)
    return frame


@lru_cache
def fitted(n: int, product: bool = True, **options: Any) -> Any:
    return privcate(FORMULA, study(n, product), bounds=BOUNDS, eps=1.0, **options, seed=6)


def products(fit: Any) -> list[Any]:
    pieces = fit.estimate.effect.pieces
    return [piece for piece in pieces if isinstance(piece.additive.features, Interactions)]


def mean_square(fit: Any, n: int = 16_000) -> float:
    frame = study(n)
    return float(np.mean((fit.predict(frame)["estimate"] - tau(frame)) ** 2))


@pytest.mark.slow
def test_a_product_is_found_and_named() -> None:
    fit = fitted(16_000)
    (piece,) = products(fit)
    sizes = dict(zip(piece.additive.features.names, piece.additive.coef, strict=True))
    assert max(sizes, key=lambda name: abs(sizes[name])) == "X1:X2"
    assert sizes["X1:X2"] == pytest.approx(8 / 12, abs=0.1)  # 8 sd(X1) sd(X2)
    assert mean_square(fit) < 0.03
    assert "X1:X2 (sd 0." in " ".join(fit.summary(full=True).as_text().split())


def test_without_interactions_there_are_none() -> None:
    fit = fitted(16_000, base=Gam(interactions=False))
    assert products(fit) == []
    assert mean_square(fit) > 0.3  # (8/12)^2 is what is not additive


@pytest.mark.slow
def test_products_that_are_not_there_are_left_out() -> None:
    fit = fitted(16_000, product=False)
    assert products(fit) == []
    assert "products of modifiers" not in " ".join(fit.summary(full=True).as_text().split())


@pytest.mark.slow
def test_a_small_study_is_not_asked_for_products() -> None:
    """Their noise would hide them: the release has the additive features only."""
    sizes = fitted(500).budget["query"].str.extract(r"residual product, p = (\d+)")[0].dropna()
    assert sizes.tolist() == ["12", "12"]
    sizes = fitted(16_000).budget["query"].str.extract(r"residual product, p = (\d+)")[0].dropna()
    assert sizes.tolist() == ["12", "18"]


@pytest.mark.slow
def test_a_saved_effect_has_its_products(reloaded: Any) -> None:
    fit = fitted(16_000)
    again = reloaded(fit)
    frame = study(16_000).head(100)
    pd.testing.assert_frame_equal(fit.predict(frame), again.predict(frame), check_exact=True)


def test_the_booster_has_them_as_pairs() -> None:
    fit = fitted(16_000)
    made = fit.to_interpret()
    assert "X1 & X2" in made.term_names_
    frame = study(16_000).head(3000)
    expected = fit.predict(frame)["estimate"].to_numpy()
    assert made.predict(frame[made.feature_names_in_]) == pytest.approx(expected, abs=SINGLE)
    pair = made.term_scores_[made.term_names_.index("X1 & X2")]
    weight = made.bin_weights_[made.term_names_.index("X1 & X2")]
    assert pair.shape == weight.shape == (258, 258)
    assert (pair * weight).sum() == pytest.approx(0, abs=1e-6 * weight.sum())


@pytest.mark.slow
def test_without_noise_both_releases_say_the_same() -> None:
    """Whatever the layout: moments of what an effect leaves, plus G beta, per stretch."""
    priors = {"least_left": 1.0, "rescaled_norm_quantile": 1.0}
    with textbook(**priors), spied(meta, "second_release") as calls:
        pc.privcate(FORMULA, study(16_000), bounds=BOUNDS, eps=1.0)
    (((*_, first, _), (second, _)),) = calls
    size = np.abs(first.cross).max()
    # (T - e)^2 was replaced by e (1 - e) in G, and the Gram shrunk: near, not equal
    assert second.cross == pytest.approx(first.cross, abs=0.05 * size)


@pytest.mark.slow
def test_where_moments_speak_of_nothing_no_product_is_believed() -> None:
    """12 trials without any product, whose mean square would be .44."""
    found = []
    for seed in range(12):
        fit = privcate(FORMULA, study(4000, False), bounds=BOUNDS, eps=1.0, seed=100 + seed)
        found.append(sum(float(p.additive.coef @ p.additive.coef) for p in products(fit)))
    assert np.mean(found) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modifiers", "names"),
    [
        ("X2 + log(X1 + 1)", {"X2:log(X1 + 1)"}),
        ("X1 + X2 + I(X1**2)", {"X1:X2", "X2:I(X1 ** 2)"}),
        ("C(G) + X1 + X2", {"C(G):X1", "C(G):X2", "X1:X2"}),
    ],
)
def test_terms_of_any_kind_have_products_and_become_pairs(modifiers: str, names: set[str]) -> None:
    """Of two modifiers each, levels but the last; the booster is right in the middle of bins."""
    fit = privcate(f"Y ~ T | {modifiers} | X3", study(16_000), bounds=BOUNDS, eps=4.0, seed=8)
    (piece,) = products(fit)
    assert set(piece.additive.features.names) == names
    made = fit.to_interpret()
    grid = (np.arange(256) + 0.5) / 256
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"X1": rng.choice(grid, 500), "X2": rng.choice(grid, 500)})
    frame["G"] = rng.choice(["a", "b"], 500)
    expected = fit.predict(frame)["estimate"].to_numpy()
    assert made.predict(frame[made.feature_names_in_]) == pytest.approx(expected, abs=SINGLE)


def test_bands_stay_where_an_effect_can_be() -> None:
    fit, frame = fitted(500), study(500)
    with mock.patch.object(Effect, "sd", lambda _, rows: np.full(len(rows), 100.0)):
        found = fit.predict(frame)
    assert (found["conf_high"] == 10).all()
    assert (found["conf_low"] == -10).all()
