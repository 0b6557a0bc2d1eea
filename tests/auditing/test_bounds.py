"""Lower bounds of mu and epsilon: right as often as stated, near the truth, and able to see."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from privcausal.auditing import epsilon_bound, mu_bound
from privcausal.errors import CapabilityError
from privcausal.testing import drawn_again
from privcausal.vault.noise import Query

STEPS = 64
"""Whole steps to a unit, as in the vault, where the noise spreads over many."""


@pytest.mark.parametrize("measure", ["mu", "epsilon"])
def test_the_bound_is_above_the_truth_no_more_often_than_stated(measure: str) -> None:
    rng, level, repeats, wrong = np.random.default_rng(3), 0.05, 400, 0
    for _ in range(repeats):
        if measure == "mu":
            wrong += mu_bound(rng.normal(0, 1, 300), rng.normal(0.5, 1, 300), level) > 0.5
        else:
            one, two = rng.laplace(0, 2, 300), rng.laplace(1, 2, 300)
            wrong += epsilon_bound(one, two, level) > 0.5
    assert wrong <= binom.ppf(1 - 1e-6, repeats, level)


def test_equal_laws_show_nothing() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, 2000))
    assert mu_bound(*draws, 1e-6) == 0.0
    assert epsilon_bound(*draws, 1e-6) == 0.0
    assert mu_bound(np.zeros(10), np.zeros(10), 0.1) == 0.0


def test_laws_that_never_meet_are_bounded_by_the_trials() -> None:
    """With no error in n trials the bound is that of Clopper and Pearson, in closed form."""
    n, level = 1000, 1e-3
    most = 1 - (level / 2) ** (1 / n)
    apart = np.zeros(n), np.ones(n)
    assert mu_bound(*apart, level, cut=0.5) == pytest.approx(2 * norm.isf(most))
    assert epsilon_bound(*apart, level, cut=0.5) == pytest.approx(np.log((1 - most) / most))
    half = 1 - (level / 2) ** (2 / n)  # a cut that is looked for costs half of the draws
    assert mu_bound(*apart, level) == pytest.approx(2 * norm.isf(half))
    assert epsilon_bound(*apart, level, delta=1.0 - 1e-9) == 0.0


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_power_on_one_number(law: str) -> None:
    """50,000 draws of OpenDP's noise at epsilon = 1: near the claim; noise too narrow is caught.

    Expected of Laplace noise 0.95, and of mu = 0.268 0.22; noise 1.25 (Laplace) and 1.5 times too
    narrow shows 1.20 and 0.35. The assertions are 5 standard deviations from these, and a false
    alarm on the right noise has the chance 1e-6 (of the stated 1e-3, here also 1e-6 is tried).
    """
    claim = 1.0 if law == "laplace" else 0.268
    bound = epsilon_bound if law == "laplace" else mu_bound

    def drawn(narrower: float) -> list[np.ndarray]:
        scale = STEPS / claim / narrower
        query = Query("test", np.ones(1), float(STEPS), scale, law)
        return [drawn_again(query, np.array([e], np.int64), 50_000)[:, 0] for e in (0, STEPS)]

    one, two = drawn(1.0)
    assert bound(one, two, 1e-6) <= claim
    assert bound(one, two, 1e-3) > {"laplace": 0.9, "gaussian": 0.16}[law]
    narrow = drawn({"laplace": 1.25, "gaussian": 1.5}[law])
    assert bound(*narrow, 1e-3) > claim


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": 0.0}, "level"),
        ({"level": 1.0}, "level"),
        ({"level": 0.1, "delta": 1.0}, "delta"),
    ],
)
def test_wrong_options(options: dict[str, float], words: str) -> None:
    with pytest.raises(CapabilityError, match=words):
        epsilon_bound(np.zeros(4), np.ones(4), **options)


def test_one_trial_is_too_few() -> None:
    with pytest.raises(CapabilityError, match="two trials"):
        mu_bound(np.zeros(1), np.ones(1), 0.1)
