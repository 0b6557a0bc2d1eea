"""Under cross-fitting, each fold's rows have nuisances of their own, and errors of their own."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from learners_contract import BOUNDS, FORMULA, study
from textbook import weight_limits

import privcausal as pc
from privcausal.estimators import boosting as boosted
from privcausal.estimators import nuisances
from privcausal.inference.confounding import Remainder
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
    laws = []
    one = nuisances._remainder

    def seen(*args: object) -> Remainder:
        laws.append(one(*args))  # type: ignore[arg-type]
        return laws[-1]

    with (
        seeded_noise(3),
        weight_limits(np.inf),
        mock.patch.object(nuisances, "_remainder", seen),
    ):
        call = pc.private if learner == "private" else pc.privcate
        more = {} if learner == "private" else {"learner": learner}
        fitted = call(
            FORMULA,
            study(1500),
            base="linear",
            eps=1.0,
            bounds=BOUNDS,
            control=pc.Control(split="crossfit"),
            **more,
        )
    found = fitted.estimate.averages
    assert len(laws) == 2 and laws[0] != laws[1]
    mean, sd = 0.5 * (laws[0].mean + laws[1].mean), 0.5 * (laws[0].sd + laws[1].sd)
    assert found.remainder[0] == pytest.approx(np.hypot(mean, sd))


@pytest.mark.slow
def test_both_folds_count_where_they_were_learned_apart() -> None:
    laws, products = [], []
    one, other = boosted.unrelated, nuisances.remainder

    def seen(*args: object) -> Remainder:
        laws.append(one(*args))
        return laws[-1]

    def seen_too(*args: object) -> Remainder:
        products.append(other(*args))
        return products[-1]

    with (
        seeded_noise(3),
        mock.patch.object(boosted, "unrelated", seen),
        mock.patch.object(nuisances, "remainder", seen_too),
    ):
        fitted = pc.privcate(
            FORMULA, study(1500), learner="t", base="dpebm", eps=2.0, bounds=BOUNDS,
            control=pc.Control(split="crossfit"),
        )  # fmt: skip
    assert len(laws) == 2 and laws[0] != laws[1]
    allowed = fitted.estimate.averages.remainder[0]
    (beyond,) = products
    shapes = 0.5 * (laws[0].sd + laws[1].sd)
    assert allowed == pytest.approx(np.hypot(shapes, beyond.sd), rel=0.2)
    assert allowed >= shapes
