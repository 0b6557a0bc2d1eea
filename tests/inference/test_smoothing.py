"""Noise of boosted shapes: its predicted covariance, and what smoothing makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privcausal.inference.smoothing import (
    Course,
    assemble,
    assemble_arms,
    constant_law,
    propagate,
    smooth,
    smooth_arms,
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
    """The rounds themselves, on exact sums plus noise (ROUNDS, 3)."""
    shape, share = np.zeros(K), weight / weight.sum()
    mass = weight if mass is None else mass
    for own, draw in zip(leaf, noise, strict=True):
        sums = np.bincount(own, mass * (truth - shape), 3) + draw
        step = RATE * (sums / np.bincount(own, weight, 3))[own]
        shape = shape + step - share @ step
    return shape


WEIGHT = np.linspace(10, 40, K)
TRUTH = np.sin(np.linspace(0, 3, K))
TRUTH = TRUTH - WEIGHT @ TRUTH / WEIGHT.sum()


def course(seed: int, sd: float = SD) -> Course:
    leaf = leaves()
    noise = np.random.default_rng(seed).normal(0, sd, (ROUNDS, 3))
    carried, cov = propagate(leaf, WEIGHT, WEIGHT, RATE, sd)
    raw = boosted(leaf, WEIGHT, TRUTH, noise)
    return Course(raw, WEIGHT, WEIGHT, np.linspace(-1, 1, K), carried, cov)


def test_without_noise_the_rounds_end_where_propagation_says() -> None:
    leaf = leaves()
    for mass in (WEIGHT, WEIGHT[::-1], np.where(np.arange(K) < 5, 0.0, WEIGHT)):
        carried, noise = propagate(leaf, WEIGHT, mass, RATE, 0.0)
        ended = boosted(leaf, WEIGHT, TRUTH, np.zeros((ROUNDS, 3)), mass)
        assert ended == pytest.approx(carried @ (mass * TRUTH))
        assert noise == pytest.approx(np.zeros((K, K)))


def test_noise_has_the_predicted_covariance() -> None:
    leaf, rng = leaves(), np.random.default_rng(1)
    carried, cov = propagate(leaf, WEIGHT, WEIGHT, RATE, SD)
    draws = 4000
    shapes = np.array(
        [boosted(leaf, WEIGHT, TRUTH, rng.normal(0, SD, (ROUNDS, 3))) for _ in range(draws)]
    )
    assert shapes.mean(axis=0) == pytest.approx(
        carried @ (WEIGHT * TRUTH), abs=5 * np.sqrt(cov.max() / draws)
    )
    # an entry's sd is at most sqrt(2 / draws) of the largest variance: 6 sd, with 144 entries
    assert np.cov(shapes.T) == pytest.approx(cov, abs=6 * np.sqrt(2 / draws) * cov.max())


def test_smoothing_is_nearer_and_its_band_covers() -> None:
    raw, mended, covered = [], [], []
    for seed in range(60):
        one = course(seed)
        mean, cov = smooth(one, 1.0, 0.0)
        raw.append(((one.raw - TRUTH) ** 2).mean())
        mended.append(((mean - TRUTH) ** 2).mean())
        covered.append((np.abs(mean - TRUTH) < 1.96 * np.sqrt(np.diag(cov))).mean())
    assert np.mean(mended) < 0.6 * np.mean(raw)
    assert 0.85 < np.mean(covered) <= 1.0


def test_no_noise_leaves_the_shape_and_undoes_what_the_rounds_left() -> None:
    one = course(0, sd=1e-4)
    mean, _ = smooth(one, 1.0, 1e-9)
    assert mean == pytest.approx(TRUTH, abs=0.05)
    assert np.abs(one.raw - TRUTH).max() > 0.1  # 60 rounds of 0.05 had not come all the way


def test_bins_that_nobody_is_in_say_nothing() -> None:
    """A column of two values on twelve bins: steps are divided by weights that no bin lacks."""
    leaf, ends = leaves(), np.zeros(K)
    ends[[0, -1]] = 40.0
    weight = np.maximum(ends, 20.0)
    truth = np.linspace(-1, 1, K)
    carried, cov = propagate(leaf, weight, ends, RATE, 0.1)
    raw = boosted(leaf, weight, truth, np.zeros((ROUNDS, 3)), ends)
    one = Course(raw, weight, ends, truth, carried, cov)
    mean, _ = smooth(one, 1.0, 0.01)
    off = abs(mean[-1] - mean[0] - 2.0)
    # read as if the empty bins had been seen to have no effect, the same rounds end elsewhere
    taken = propagate(leaf, weight, weight, RATE, 0.1)[0]
    wrong, _ = smooth(replace(one, mass=weight, carried=taken), 1.0, 0.01)
    assert 3 * off < 0.05 < abs(wrong[-1] - wrong[0] - 2.0)


def test_all_noise_is_flattened() -> None:
    one = course(0)
    flat = replace(one, raw=one.raw * 0.01, noise=one.noise * 1e4)
    mean, cov = smooth(flat, 0.1, 0.0)
    assert np.abs(mean).max() < 0.02
    assert np.diag(cov).min() > 0


def test_levels_have_no_neighbours() -> None:
    one = course(3)
    levels = replace(one, position=None)
    mean, _ = smooth(levels, 1.0, 0.0)
    assert abs(WEIGHT @ mean) / WEIGHT.sum() < 1e-9
    turned = np.random.default_rng(0).permutation(K)
    other = Course(
        one.raw[turned], WEIGHT[turned], WEIGHT[turned], None,
        one.carried[np.ix_(turned, turned)], one.noise[np.ix_(turned, turned)],
    )  # fmt: skip
    assert smooth(other, 1.0, 0.0)[0] == pytest.approx(mean[turned], abs=1e-6)


def test_arms_that_share_their_shape_come_out_equal() -> None:
    first, second = course(1), course(2)
    mean, cov = smooth_arms(first, second, 1.0, 0.0, apart=False)
    assert mean[:K] == pytest.approx(mean[K:])  # both have the same weights here
    assert cov[:K, :K] == pytest.approx(cov[:K, K:], abs=1e-9)
    own = smooth_arms(first, second, 1.0, 0.0, apart=True)[0]
    assert np.abs(own[:K] - own[K:]).max() > 1e-4


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
    one = assemble((9.0, 0.5), shapes)
    assert one.mean.tolist() == [9, 1, 2, 3]
    assert np.diag(one.cov).tolist() == [0.5, 1, 1, 4]
    joint = [(np.array([1.0, 2.0, 5.0, 6.0]), np.arange(16.0).reshape(4, 4))]
    both = assemble_arms([(9.0, 0.5), (8.0, 0.4)], joint)
    assert both.mean.tolist() == [9, 1, 2, 8, 5, 6]
    assert both.cov[1, 4] == 2.0
    assert both.cov[0, 0] == 0.5
