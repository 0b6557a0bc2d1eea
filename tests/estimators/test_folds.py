"""Under cross-fitting, each fold's rows have nuisances of their own, and errors of their own."""

from __future__ import annotations

import numpy as np
import pytest
from fit_helpers import spied
from learners_contract import BOUNDS, FORMULA, study
from textbook import weight_limits

import privcausal as pc
from privcausal.estimators import boosting as boosted
from privcausal.estimators import nuisances
from privcausal.inference.regression import Remainder
from privcausal.testing import seeded_noise


def test_the_mean_of_two_biases_has_the_mean_of_their_means_and_at_most_of_their_sds() -> None:
    found = nuisances.over_folds([Remainder(1.0, 0.5), Remainder(-0.5, 0.1)])
    assert (found.mean, found.sd) == pytest.approx((0.25, 0.3))
    draws = np.random.default_rng(0).standard_normal(50_000)
    # no correlation of the folds' errors gives more than that of 1
    for rho in (-1.0, 0.0, 1.0):
        other = rho * draws + np.sqrt(1 - rho**2) * np.roll(draws, 1)
        mean = 0.5 * (0.5 * draws + 0.1 * other)
        assert mean.std() <= 0.3 * 1.02
    assert nuisances.over_folds([Remainder(0.3, 0.2)]) == Remainder(0.3, 0.2)


@pytest.mark.parametrize("learner", ["private", "r", "dr", "s", "t", "x"])
def test_both_folds_count(learner: str) -> None:
    """What is allowed for is of both folds."""
    call, more = pc.privcate, {"learner": learner}
    if learner == "private":
        call, more = pc.private, {}
    halves = pc.Control(split="crossfit")
    with seeded_noise(3), weight_limits(np.inf), spied(nuisances, "over_folds") as calls:
        fitted = call(
            FORMULA, study(1500), base="linear", eps=1.0, bounds=BOUNDS, control=halves, **more
        )
    (((one, other),), _) = calls[0]
    assert one != other
    mean, sd = 0.5 * (one.mean + other.mean), 0.5 * (one.sd + other.sd)
    assert fitted.estimate.averages.remainder[0] == pytest.approx(np.hypot(mean, sd))


@pytest.mark.slow
def test_both_folds_count_where_they_were_learned_apart() -> None:
    with (
        seeded_noise(3),
        spied(boosted, "unrelated") as shapes,
        spied(nuisances, "remainder") as products,
    ):
        fitted = pc.privcate(
            FORMULA, study(1500), learner="t", base="dpebm", eps=2.0, bounds=BOUNDS,
            control=pc.Control(split="crossfit"),
        )  # fmt: skip
    one, other = (law for _, law in shapes)
    assert one != other
    ((_, beyond),) = products
    allowed, least = fitted.estimate.averages.remainder[0], 0.5 * (one.sd + other.sd)
    assert allowed == pytest.approx(np.hypot(least, beyond.sd), rel=0.2)
    assert allowed >= least
