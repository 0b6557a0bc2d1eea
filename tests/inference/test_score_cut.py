"""Cuts of scores, with a bound of what they move the mean by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import expon, lognorm, norm
from scipy.stats import t as student

from privcausal.inference.cuts import SIGNED_HALF_OCTAVES, ArmSizes, Cut, Extremes, score_cut
from privcausal.inference.cuts import score_edges as bins
from privcausal.inference.effects import covering
from privcausal.inference.ranges import Look, outcome_edges, read_look
from privcausal.request.schema import Interval

BOUND, ROWS, NOISE = 400.0, 8000, 25.0
SEEN = Look(Interval(-5.0, 5.0), True, 5.0, False)


def extremes(treated: float, largest: float = BOUND) -> Extremes:
    """A constant propensity; outcomes within half of `largest` x the arm's share."""
    chances = np.tile([[1 - treated], [treated]], 50)
    weights = np.array([[-1.0], [1.0]]) / chances
    return Extremes(largest * chances.min() * np.abs(weights), weights, chances)


def sizes(score: np.ndarray, t: np.ndarray, law: Extremes, seed: int) -> ArmSizes:
    borders = bins(BOUND)
    value = np.abs(score) * law.factors[t]
    counts = np.stack([np.histogram(value[t == a], np.r_[0.0, borders])[0] for a in (0, 1)])
    noise = NOISE * np.random.default_rng(seed).standard_normal(counts.shape)
    return ArmSizes(counts + noise, NOISE, borders, law.factors)


@pytest.mark.slow
@pytest.mark.parametrize("treated", [0.5, 0.1, 0.03])
@pytest.mark.parametrize("law", [norm(), student(4)], ids=["normal", "student"])
def test_what_a_cut_loses_is_within_its_allowance(treated: float, law: object) -> None:
    """Up to a quarter, on average over 20 seeded draws, of the law's mean excess on both sides."""
    rng, at = np.random.default_rng(1), extremes(treated)
    share, lost, allowed = np.array([1 - treated, treated]), [], []
    for seed in range(20):
        t = (rng.random(ROWS) < treated).astype(int)
        score = law.rvs(ROWS, random_state=rng) / share[t]  # type: ignore[attr-defined]
        cut = score_cut(at, 13.0 / ROWS, sizes(score, t, at, seed), SEEN, ROWS)
        x = np.linspace(cut.threshold, BOUND, 200_001)
        # all beyond on one side, as in a skewed outcome
        lost.append(sum(p * np.trapezoid(2 * law.sf(x * p), x) for p in share))  # type: ignore[attr-defined]
        allowed.append(cut.bias)
        assert treated < 0.1 or cut.threshold < 0.7 * at.sizes.max()
    assert np.mean(lost) <= 1.25 * np.mean(allowed)


def signed(score: np.ndarray, t: np.ndarray, law: Extremes, seed: int) -> ArmSizes:
    """As a fit counts scores: by arm and sign."""
    borders = bins(BOUND, SIGNED_HALF_OCTAVES)
    cells = np.r_[-np.inf, -borders[:-1][::-1], 0.0, borders[:-1], np.inf]
    value = score * law.factors[t]
    counts = np.stack([np.histogram(value[t == a], cells)[0] for a in (0, 1)])
    noise = NOISE * np.random.default_rng(seed).standard_normal(counts.shape)
    return ArmSizes.by_sign(counts + noise, NOISE, borders, law.factors, law.weights)


@pytest.mark.slow
@pytest.mark.parametrize("movable", [True, False])
@pytest.mark.parametrize(
    ("law", "least"),
    [(norm(), 0.945), (student(4), 0.94), (expon(-1), 0.94), (lognorm(0.77, -1.34), 0.93)],
    ids=["normal", "student", "exponential", "lognormal"],
)
def test_intervals_with_a_noisy_allowance_cover(law: Any, least: float, *, movable: bool) -> None:
    """Mean coverage over the noise of the counts, from the exact loss by clipping."""
    rng, at, noise = np.random.default_rng(1), extremes(0.5), 8.0 / ROWS
    every = np.sort(law.rvs(200_000, random_state=rng) * rng.choice([-2.0, 2.0], 200_000))
    covers = []
    for seed in range(40):
        t = (rng.random(ROWS) < 0.5).astype(int)
        score = law.rvs(ROWS, random_state=rng) * np.where(t == 1, 2.0, -2.0)
        found = signed(score, t, at, seed)
        cut = score_cut(at, noise, found, SEEN, ROWS, movable=movable)
        assert movable or cut.middle == 0.0
        kept = np.clip(every, cut.middle - cut.threshold, cut.middle + cut.threshold)
        bias, sd = (
            float(np.mean(kept - every)),
            float(np.hypot(kept.std() / ROWS**0.5, noise * cut.threshold)),
        )
        half = covering(1.96, np.array([cut.bias]), np.array([sd]))[0]
        covers.append(norm.cdf((half - bias) / sd) - norm.cdf((-half - bias) / sd))
        assert cut.threshold < BOUND / 5
    assert np.mean(covers) >= least


def test_a_skewed_score_is_clipped_further_out_on_one_side() -> None:
    """Of the treated alone, high outcomes are far out: the upper threshold follows them."""
    rng, at = np.random.default_rng(2), extremes(0.5)
    t = (rng.random(ROWS) < 0.5).astype(int)
    score = np.where(t == 1, 2 * (rng.lognormal(0, 1, ROWS) - 1), -2 * rng.random(ROWS))
    cut = score_cut(at, 8.0 / ROWS, signed(score, t, at, 1), SEEN, ROWS, movable=True)
    assert cut.middle > 1.0


def test_detected_sizes_are_counted_whatever_the_tail() -> None:
    """All scores are at -2 or 2: a smooth tail from smaller sizes on would miss them."""
    rng, at = np.random.default_rng(4), extremes(0.5)
    t = (rng.random(ROWS) < 0.5).astype(int)
    found = signed(2.0 * rng.choice([-1.0, 1.0], ROWS), t, at, 1)
    for noise in (8.0 / ROWS, 100.0 / ROWS):
        cut = score_cut(at, noise, found, SEEN, ROWS)
        assert cut.bias >= 0.5 * max(2.0 - cut.threshold, 0.0)


def test_the_narrowest_cut_has_the_least_half_width() -> None:
    cuts = np.geomspace(1.0, 30.0, 90)
    bias, square = np.tile(0.5 * cuts**-2.0, (2, 1)), np.ones((2, 90))
    found = Cut.narrowest(cuts, bias, square, 0.01, 1e4, centred=True)
    sd = np.sqrt((0.01 * cuts) ** 2 + 2e-4)
    exact = covering(1.96, bias[0], sd)
    assert exact[cuts == found.threshold] == pytest.approx(exact.min(), rel=0.01)
    assert found.rms == pytest.approx(2**0.5)
    moved = Cut.narrowest(cuts, [[1.0], [0.0]] * bias, square, 0.01, 1e4, centred=False)
    assert moved.middle < 0


def test_a_tail_that_no_count_shows_is_as_far_out_as_the_variance_lets_it() -> None:
    """With 300 rows, noise hides all scores."""
    rng, at = np.random.default_rng(3), extremes(0.5)
    t = (rng.random(300) < 0.5).astype(int)
    found = signed(rng.standard_normal(300) * np.where(t == 1, 2.0, -2.0), t, at, 1)
    assert found.reach == 0
    one, ten, none = (
        score_cut(at, 0.1, found, replace(SEEN, variance=v), 300).threshold
        for v in (1.0, 100.0, 0.0)
    )
    assert 2 < one < 40
    assert one < ten <= none == pytest.approx(BOUND, rel=0.5)


def test_both_arms_have_the_same_scale() -> None:
    at = extremes(0.1)
    assert at.factors == pytest.approx([1.0, 1 / 9])
    assert at.units.min() == pytest.approx(1 / 0.9)
    assert at.chances.mean(axis=1) == pytest.approx([0.9, 0.1])


def test_an_arm_too_small_to_see_has_the_tail_of_the_other() -> None:
    """Forty treated rows hide under any noise; their scores are 32 times the controls'."""
    rng, at = np.random.default_rng(2), extremes(0.03, largest=1e4)
    t = (np.arange(1300) < 40).astype(int)
    score = rng.standard_normal(1300) / np.where(t == 1, 0.03, 0.97)
    found = sizes(score, t, at, 1)
    assert found.reach > 1
    cut = score_cut(at, 1.0, found, SEEN, 1300)
    assert np.maximum(np.abs(score) - cut.threshold, 0).mean() <= 2 * cut.bias


def test_without_a_scale_only_what_no_outcome_can_pass_is_cut() -> None:
    at = extremes(0.5, largest=4.0)
    assert score_cut(at, 1e3, None, None, 100.0).threshold < 4.0
    cut = score_cut(at, 1e-3, None, None, 100.0)
    assert (cut.threshold, cut.bias) == (4.0, 0.0)
    nothing = ArmSizes(np.zeros((2, 41)), 10.0, bins(4.0), at.factors)
    core = ArmSizes(np.where(bins(4.0) < 0.1, 1e4, np.zeros((2, 41))), 10.0, bins(4.0), at.factors)
    rare = Look(Interval(0.0, 1.0), False, 0.0, True)
    for seen, first in ((nothing, SEEN), (core, rare)):
        assert score_cut(at, 1e-3, seen, first, 1e4).threshold == 4.0
    assert score_cut(at, 1e-3, core, SEEN, 1e4).threshold < 4.0
    # sparse amounts: what was seen of them is not cut
    sparse = Look(Interval(0.0, 1.0), True, 0.9, True)
    assert score_cut(at, 1e-3, core, sparse, 1e4).threshold >= 0.9 * at.units.min()


def test_the_bound_for_any_outcomes_counts_each_point() -> None:
    at = Extremes(np.array([[1.0, 3.0], [2.0, 8.0]]), np.ones((2, 2)), np.full((2, 2), 0.5))
    lost = at.excess(np.array([2.0, 8.0]), 0.0).sum(axis=0)
    assert lost == pytest.approx(np.array([[0.5 * (0.5 * 1.0 + 0.5 * 6.0), 0.0]] * 2))


def test_no_outcomes_of_a_mean_lose_more_than_those_at_the_ends() -> None:
    rng = np.random.default_rng(8)
    p, means = rng.uniform(0.05, 0.95, 400), rng.uniform(0.001, 0.01, (2, 400))
    chances = np.stack([1 - p, p])
    weights = np.array([[-1.0], [1.0]]) / chances
    ends = weights[:, None] * (np.array([[0.0], [1.0]])[None] - means[:, None])
    at = Extremes(np.abs(ends).max(axis=1), weights, chances, None, ends, means)
    cuts = np.array([0.0, 0.2, 1.0, 4.0, 1e6])
    most = at.excess(cuts, 0.0)
    assert (most[..., -1] == 0.0).all()
    for a in (0.05, 0.5, 5.0):  # beta distributions, from two values to nearly constant
        y = rng.beta(a * means, a * (1 - means), (2000, 2, 400))
        score = weights * (y - means)
        for side, sign in enumerate((-1, 1)):
            over = np.maximum(sign * score[..., None] - cuts, 0.0) * chances[..., None]
            assert (over.mean(axis=(0, 2)) <= 1.01 * most[:, side]).all()
    # the bound is used: with rare events, it is far below that for any outcomes
    local = at.excess(cuts, 0.0, 4.0)
    assert (local <= most).all()
    assert local[1, 1, 3] < 0.5 * np.mean(p * np.maximum(at.sizes[1] - 4.0, 0.0))


def test_an_arm_whose_outcomes_do_not_enter_has_a_law_of_its_own() -> None:
    """For the mean of one arm, the others' scores are small and bounded; they tell of no tail."""
    rng, at = np.random.default_rng(5), extremes(0.3)
    weights = at.weights * np.array([[0.0], [1.0]])
    law = Extremes(at.sizes, weights, at.chances)
    t = (rng.random(ROWS) < 0.3).astype(int)
    score = np.where(t == 1, rng.standard_normal(ROWS) / 0.3, rng.uniform(-0.5, 0.5, ROWS))
    cut = score_cut(law, 40.0 / ROWS, signed(score, t, law, 1), SEEN, ROWS)
    lost = np.maximum(np.abs(score) - cut.threshold, 0).mean() / 2
    assert lost <= 1.5 * cut.bias
    assert cut.threshold > 4


@pytest.mark.parametrize("ratio", [6.0, 10.0])
def test_arms_of_other_scales_have_laws_of_their_own(ratio: float) -> None:
    """A fifth is treated, and their outcomes vary more. One law would clip most of their scores."""
    rng, at = np.random.default_rng(6), extremes(0.2)
    t = (rng.random(ROWS) < 0.2).astype(int)
    score = rng.standard_normal(ROWS) * np.where(t == 1, 5 * ratio, -1.25)
    cut = score_cut(at, 10.0 / ROWS, signed(score, t, at, 1), SEEN, ROWS)
    assert np.maximum(np.abs(score) - cut.threshold, 0).mean() / 2 <= cut.bias
    assert cut.rms == pytest.approx(
        np.sqrt(np.mean(np.clip(score, -cut.threshold, cut.threshold) ** 2)), rel=0.1
    )


def test_squares_are_those_of_the_scores() -> None:
    rng, at = np.random.default_rng(3), extremes(0.2)
    t = (rng.random(100_000) < 0.2).astype(int)
    score = rng.standard_normal(100_000) / np.array([0.8, 0.2])[t]
    _, square = sizes(score, t, at, 1).beyond(100_000)(np.array([1.0, BOUND]))
    assert square[:, 1].sum() == pytest.approx(np.mean(score**2), rel=0.3)
    assert square[:, 0].sum() == pytest.approx(np.mean(np.minimum(score**2, 1.0)), rel=0.3)


# -- a first look at the outcome ---------------------------------------------------------------


def counts(y: np.ndarray, bounds: Interval) -> np.ndarray:
    """As `vault.SizeHistogram` of Y - lo has them."""
    at = np.searchsorted(outcome_edges(bounds), y - bounds.lo, side="left")
    return np.bincount(at, minlength=len(outcome_edges(bounds))).astype(float)


def seen(y: np.ndarray, bounds: Interval, noise_sd: float = 20.0) -> Look:
    exact = counts(y, bounds)
    return read_look(exact + noise_sd * np.sin(np.arange(len(exact)) ** 2.0), noise_sd, bounds)


@pytest.mark.parametrize("loose", [1.0, 5.0, 20.0, 100.0])
def test_the_window_is_where_the_outcome_is(loose: float) -> None:
    y = np.random.default_rng(4).normal(0, 1, 8000)
    bounds = Interval(-4 * loose, 4 * loose)
    found = seen(y.clip(bounds.lo, bounds.hi), bounds)
    assert np.mean((y > found.window.lo) & (y < found.window.hi)) > 0.95
    assert found.window.width < 10
    assert found.scaled
    assert not found.mostly


def test_values_at_zero_and_the_ends_tell_of_no_scale() -> None:
    rng = np.random.default_rng(5)
    for bounds, y in [
        (Interval(0.0, 1.0), (rng.random(8000) < 0.01).astype(float)),
        (Interval(-1.0, 1.0), rng.choice([-1.0, 0.0, 1.0], 8000)),
    ]:
        found = seen(y, bounds)
        assert not found.scaled
        assert found.window == bounds
    # hidden amounts inside the bounds have the law of the scores
    found = seen(np.where(rng.random(8000) < 0.005, 40.0, 0.0), bounds := Interval(-50.0, 500.0))
    assert found.scaled
    assert found.window == bounds


def test_amounts_among_zeros_are_the_scale() -> None:
    rng = np.random.default_rng(6)
    y = np.where(rng.random(20_000) < 0.1, rng.uniform(20, 40, 20_000), 0.0)
    found = seen(y, Interval(0.0, 1000.0))
    assert found.scaled
    assert found.mostly
    assert 40 <= found.reach < 60
    assert found.window.hi == pytest.approx(found.reach)


@pytest.mark.parametrize("heap", [0.3, 0.7, 0.9])
def test_one_price_among_zeros_is_no_scale(heap: float) -> None:
    """Of 580 buyers many pay 29.99; noise hides the others, up to the bound."""
    rng, n = np.random.default_rng(7), 64_000
    bounds, amounts = Interval(0.0, 500.0), np.zeros(n)
    amounts[:580] = np.where(rng.random(580) < heap, 29.99, rng.lognormal(4.6, 0.75, 580))
    found = seen(amounts.clip(0, 500), bounds)
    assert found.mostly
    assert found.reach > 200
    assert found.window.hi < 100, "where means are learned the scale is what is seen"


def test_cells_hold_the_ends_and_zero_alone() -> None:
    bounds = Interval(-3.0, 5.0)
    borders = outcome_edges(bounds)
    assert borders[0] == 0.0
    assert borders[-1] == bounds.width
    assert (np.diff(borders) > 0).all()
    at = np.searchsorted(borders, np.array([-3.0, 0.0, 5.0]) - bounds.lo, side="left")
    near = np.array([-3.0 + 1e-9, -1e-9, 1e-9, 5.0 - 1e-9]) - bounds.lo
    assert not set(at) & set(np.searchsorted(borders, near, side="left"))


def test_the_allowance_covers_a_first_effect_that_is_off() -> None:
    """The scores of an arm then lie on one side: on average over 20 seeded draws, it is enough.

    Without the doubt about that effect it is not.
    """
    rng, at, share = np.random.default_rng(2), extremes(0.1), np.array([0.9, 0.1])
    sign = np.array([-1.0, 1.0])
    lost: dict[float, list[float]] = {0.0: [], 1.0: []}
    allowed: dict[float, list[float]] = {0.0: [], 1.0: []}
    for seed in range(20):
        t = (rng.random(ROWS) < share[1]).astype(int)
        score = sign[t] * (rng.normal(size=ROWS) + ((1 - share) * sign)[t]) / share[t]
        counts = signed(score, t, at, seed)
        for doubt in (0.0, 1.0):
            cut = score_cut(at, 13.0 / ROWS, counts, SEEN, ROWS, movable=True, doubt=doubt)
            clipped = np.clip(score - cut.middle, -cut.threshold, cut.threshold) + cut.middle
            lost[doubt].append(abs((score - clipped).mean()))
            allowed[doubt].append(cut.bias)
    assert np.mean(allowed[1.0]) > np.mean(lost[1.0])
    assert np.mean(allowed[0.0]) < np.mean(lost[0.0])
