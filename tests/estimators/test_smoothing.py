"""Noise of boosted shapes: its predicted covariance, and what smoothing makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privcausal.estimators.boosting import (
    Totals,
    assemble,
    constant_law,
    propagate,
    smooth,
    smooth_arms,
    totals,
)

K, ROUNDS, RATE, SD = 12, 60, 0.05, 3.0


def leaves() -> Any:
    rng = np.random.default_rng(0)
    return np.array(
        [
            np.searchsorted(np.sort(rng.permutation(K - 1)[:2]) + 1, np.arange(K), side="right")
            for _ in range(ROUNDS)
        ]
    )


def boosted(leaf: Any, weight: Any, truth: Any, noise: Any, mass: Any = None) -> Any:
    """The shapes before each round and at the end, on exact sums plus noise (ROUNDS, 3)."""
    path, share = [np.zeros(K)], weight / weight.sum()
    mass = weight if mass is None else mass
    for own, draw in zip(leaf, noise, strict=True):
        sums = np.bincount(own, mass * (truth - path[-1]), 3) + draw
        step = RATE * (sums / np.bincount(own, weight, 3))[own]
        path.append(path[-1] + step - share @ step)
    return np.array(path)


WEIGHT = np.linspace(10, 40, K)
TRUTH = np.sin(np.linspace(0, 3, K))
TRUTH = TRUTH - WEIGHT @ TRUTH / WEIGHT.sum()
PLACE = np.linspace(-1, 1, K)


def run(
    leaf: Any, weight: Any, truth: Any, noise: Any, sd: float, mass: Any = None, place: Any = PLACE
) -> tuple[SimpleNamespace, Totals]:
    """Raw and smoothable shapes of one boosting."""
    mass = weight if mass is None else mass
    path = boosted(leaf, weight, truth, noise, mass)
    sums = [
        np.bincount(own, mass * (truth - before), 3) + draw
        for own, before, draw in zip(leaf, path, noise, strict=False)
    ]
    carried, _ = propagate(leaf, weight, mass, RATE, sd)
    found = totals(leaf, np.array(sums), path[:-1], mass, sd, place)
    return SimpleNamespace(raw=path[-1], carried=carried), found


def drawn(seed: int, sd: float = SD, truth: Any = None) -> tuple[SimpleNamespace, Totals]:
    noise = np.random.default_rng(seed).normal(0, sd, (ROUNDS, 3))
    return run(leaves(), WEIGHT, TRUTH if truth is None else truth, noise, sd)


def test_without_noise_the_rounds_end_where_propagation_says() -> None:
    leaf = leaves()
    for mass in (WEIGHT, WEIGHT[::-1], np.where(np.arange(K) < 5, 0.0, WEIGHT)):
        carried, noise = propagate(leaf, WEIGHT, mass, RATE, 0.0)
        ended = boosted(leaf, WEIGHT, TRUTH, np.zeros((ROUNDS, 3)), mass)[-1]
        assert ended == pytest.approx(carried @ (mass * TRUTH))
        assert noise == pytest.approx(np.zeros((K, K)))


@pytest.mark.slow
def test_noise_has_the_predicted_covariance() -> None:
    leaf, rng = leaves(), np.random.default_rng(1)
    carried, cov = propagate(leaf, WEIGHT, WEIGHT, RATE, SD)
    draws = 4000
    shapes = np.array(
        [boosted(leaf, WEIGHT, TRUTH, rng.normal(0, SD, (ROUNDS, 3)))[-1] for _ in range(draws)]
    )
    assert shapes.mean(axis=0) == pytest.approx(
        carried @ (WEIGHT * TRUTH), abs=5 * np.sqrt(cov.max() / draws)
    )
    # an entry's sd is at most sqrt(2 / draws) of the largest variance: 6 sd, with 144 entries
    assert np.cov(shapes.T) == pytest.approx(cov, abs=6 * np.sqrt(2 / draws) * cov.max())


@pytest.mark.slow
def test_totals_have_the_predicted_error() -> None:
    """And none of the constant that the rounds start from."""
    draws = 800
    found = [drawn(seed)[1] for seed in range(draws)]
    error = np.array([one.value for one in found]) - WEIGHT * TRUTH
    noise = found[0].noise
    assert np.abs(error.mean(axis=0)).max() < 5.5 * np.sqrt(np.diag(noise).max() / draws)
    # an entry's sd is at most sqrt(2 / draws) of the largest variance: 6 sd, with 144 entries
    assert np.cov(error.T) == pytest.approx(
        noise, abs=6 * np.sqrt(2 / draws) * np.diag(noise).max()
    )
    assert np.abs(found[0].free.T @ WEIGHT).max() < 1e-9


@pytest.mark.slow
def test_all_rounds_say_more_than_the_last_shape() -> None:
    """Of the shape's slope, where the noise is what is wrong."""
    slope = PLACE * WEIGHT / (WEIGHT @ PLACE**2)
    last, every = [], []
    for seed in range(200):
        one, found = drawn(seed, truth=np.zeros(K))
        carried = slope @ (one.carried * WEIGHT) @ PLACE
        last.append(slope @ one.raw / carried)
        every.append(slope @ found.value / (slope @ (WEIGHT * PLACE)))
    # a ratio of two independent-like variances of 200 draws is right to 30 %, 3 sd
    assert np.var(every) < 0.8 * np.var(last)


@pytest.mark.slow
def test_smoothing_is_nearer_and_its_band_covers() -> None:
    raw, mended, covered = [], [], []
    for seed in range(60):
        one, found = drawn(seed)
        mean, cov = smooth(found, 1.0, 0.0)
        raw.append(((one.raw - TRUTH) ** 2).mean())
        mended.append(((mean - TRUTH) ** 2).mean())
        covered.append((np.abs(mean - TRUTH) < 1.96 * np.sqrt(np.diag(cov))).mean())
    assert np.mean(mended) < 0.5 * np.mean(raw)
    assert 0.85 < np.mean(covered) <= 1.0


def test_no_noise_leaves_the_shape_and_undoes_what_the_rounds_left() -> None:
    one, found = drawn(0, sd=1e-4)
    mean, _ = smooth(found, 1.0, 1e-9)
    assert mean == pytest.approx(TRUTH, abs=0.01)
    assert np.abs(one.raw - TRUTH).max() > 0.1  # 60 rounds of 0.05 had not come all the way


def test_few_rounds_say_nothing_of_some_directions() -> None:
    """Eight rounds of three leaves cannot tell forty bins apart."""
    rng, size = np.random.default_rng(0), 40
    leaf = np.sort(rng.integers(0, 3, (10, size)), axis=1)
    place, mass = np.linspace(-1, 1, size), np.full(size, 10.0)
    sums = np.array([np.bincount(own, mass * place, 3) for own in leaf])
    found = totals(leaf, sums, np.zeros((10, size)), mass, 0.0, place)
    assert found.free.shape[1] < 20
    mean, cov = smooth(found, 1.0, 1e-6)
    assert mean == pytest.approx(place, abs=0.05)
    assert np.isfinite(cov).all()


def test_bins_that_nobody_is_in_say_nothing() -> None:
    """A column of two values on twelve bins: steps are divided by weights that no bin lacks."""
    ends, leaf, truth = np.zeros(K), leaves(), np.linspace(-1, 1, K)
    ends[[0, -1]] = 40.0
    weight = np.maximum(ends, 20.0)
    before = boosted(leaf, weight, truth, np.zeros((ROUNDS, 3)), ends)[:-1]
    rounds = zip(leaf, before, strict=True)
    sums = np.array([np.bincount(own, ends * (truth - shape), 3) for own, shape in rounds])
    # read as if the empty bins had been seen to have no effect, the same rounds end elsewhere
    off, wrong = (
        abs(np.ptp(smooth(totals(leaf, sums, before, mass, 0.1, truth), 1.0, 0.01)[0]) - 2.0)
        for mass in (ends, weight)
    )
    assert 3 * off < 0.03 < wrong


def test_all_noise_is_flattened() -> None:
    found = drawn(0)[1]
    flat = found._replace(value=found.value * 0.01, noise=found.noise * 1e4)
    mean, cov = smooth(flat, 0.1, 0.0)
    assert np.abs(mean).max() < 0.02
    assert np.diag(cov).min() > 0


def test_levels_have_no_neighbours() -> None:
    levels = drawn(3)[1]._replace(position=None)
    mean, _ = smooth(levels, 1.0, 0.0)
    assert abs(WEIGHT @ mean) / WEIGHT.sum() < 1e-9
    turned = np.random.default_rng(0).permutation(K)
    other = Totals(
        levels.value[turned], levels.noise[np.ix_(turned, turned)], levels.free[turned],
        WEIGHT[turned], None,
    )  # fmt: skip
    assert smooth(other, 1.0, 0.0)[0] == pytest.approx(mean[turned], abs=1e-6)


def test_arms_that_share_their_shape_come_out_equal() -> None:
    first, second = drawn(1)[1], drawn(2)[1]
    mean, cov = smooth_arms(first, second, 1.0, 0.0, apart=False)
    assert mean[:K] == pytest.approx(mean[K:])  # both have the same weights here
    assert cov[:K, :K] == pytest.approx(cov[:K, K:], abs=1e-9)
    own = smooth_arms(first, second, 1.0, 0.0, apart=True)[0]
    assert np.abs(own[:K] - own[K:]).max() > 1e-4


@pytest.mark.slow
def test_arms_differ_only_where_the_rounds_say_so() -> None:
    """The same shape in both arms: noise alone makes no effect. Twice the shape: it is found."""
    spurious, found = [], []
    for seed in range(20):
        first = drawn(2 * seed, sd=20 * SD)[1]
        for truth, into in ((TRUTH, spurious), (4 * TRUTH, found)):
            second = drawn(2 * seed + 1, sd=20 * SD, truth=truth)[1]
            both = smooth_arms(first, second, 1.0, 0.0, apart=True)[0]
            into.append(float(((both[K:] - both[:K]) ** 2).mean()))
    alone = np.mean([((drawn(s, 20 * SD)[1].value / WEIGHT - TRUTH) ** 2).mean() for s in range(9)])
    assert np.mean(spurious) < 0.05 * alone
    assert np.mean(found) > 10 * np.mean(spurious)


def test_the_constant() -> None:
    """c <- c + r (mean + noise / w - c): its limit, and its variance over draws."""
    rng, rate, rounds, sd, weight = np.random.default_rng(0), 0.1, 40, 5.0, 100.0
    ends = []
    for _ in range(4000):
        value = 0.0
        for draw in rng.normal(0, sd, rounds):
            value += rate * (2.0 + draw / weight - value)
        ends.append(value)
    raw, whole, variance = constant_law(float(np.mean(ends)), rate, rounds, sd, weight, 0.0)
    assert raw < 2.0
    assert whole == pytest.approx(2.0, abs=0.01)
    assert np.var(ends) == pytest.approx(variance, rel=0.15)


def test_assembling() -> None:
    shapes = [(np.array([1.0, 2.0]), np.eye(2)), (np.array([3.0]), np.full((1, 1), 4.0))]
    one = assemble([(9.0, 0.5)], shapes)
    assert one.mean.tolist() == [9, 1, 2, 3]
    assert np.diag(one.cov).tolist() == [0.5, 1, 1, 4]
    joint = [(np.array([1.0, 2.0, 5.0, 6.0]), np.arange(16.0).reshape(4, 4))]
    both = assemble([(9.0, 0.5), (8.0, 0.4)], joint)
    assert both.mean.tolist() == [9, 1, 2, 8, 5, 6]
    assert both.cov[1, 4] == 2.0
    assert both.cov[0, 0] == 0.5
