"""Averages from sums of scores, cuts of scores, and bounds from histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privcausal.errors import BudgetError
from privcausal.inference import cuts
from privcausal.inference.effects import (
    AverageEstimate,
    Reading,
    ScoreAverage,
    ScoreTotals,
    estimate_averages,
    well_conditioned,
)
from privcausal.inference.ranges import LookCounts, coarse_range, fine_range
from privcausal.inference.regression import Remainder
from privcausal.request.formula import ATE_TERM, Place, ResultTerm
from privcausal.request.schema import Interval

NOTHING, Z = Remainder(0.0, 0.0), ResultTerm("slope", "z")


def exact(value: Any) -> Reading:
    value = np.asarray(value, float)
    return Reading(value, np.zeros(value.shape))


def sums(psi: np.ndarray, a: np.ndarray, g: np.ndarray, centre: float) -> ScoreTotals:
    x, h = psi - centre, np.c_[np.ones(len(psi)), g]
    sizes, outer = h.sum(axis=0), exact(a.T @ a)
    return ScoreTotals(
        exact((h.T @ x)[None]), exact([sizes, sizes]), exact((h.T @ x**2)[:, None, None]),
        exact(a[:, 1:].T @ x), outer, exact((a.T * x**2) @ a), a, np.ones(a.shape[1] - 1),
    )  # fmt: skip


def average(*terms: ResultTerm, centre: float = 0.0, **options: Any) -> ScoreAverage:
    return ScoreAverage(terms or (ATE_TERM,), np.ones(1), 1, centre, 0.0, NOTHING, 0.0, **options)


@pytest.fixture
def study() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    z = rng.uniform(-1, 1, 5000)
    psi = 1.0 + 2.0 * z + rng.standard_normal(5000)
    return psi, np.c_[np.ones(5000), z], (z > 0.5)[:, None].astype(float)


@pytest.mark.parametrize("robust", [False, True])
def test_without_noise_this_is_the_mean_and_least_squares(study: tuple, robust: bool) -> None:
    psi, a, g = study
    asked = [average(ATE_TERM, Z, centre=0.7)]
    out = estimate_averages(asked, (Place("high"),), sums(psi, a, g, 0.7), robust=robust)
    slope = np.linalg.lstsq(a, psi, rcond=None)[0][1]
    group = psi[g[:, 0] == 1]
    np.testing.assert_allclose(out.estimate, [psi.mean(), slope, group.mean()], rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(out.sampling[0, 0]), psi.std() / np.sqrt(5000), rtol=1e-8)
    spread = np.sqrt(np.diag(out.cov))
    assert spread[1] == pytest.approx(1 / np.sqrt(a[:, 1] @ a[:, 1]), rel=0.05)
    assert spread[2] == pytest.approx(group.std() / np.sqrt(len(group)), rel=0.02)


def given(score: Any, square: Any, size: Any, sd: tuple[float, float]) -> ScoreTotals:
    """Sums by place, exact but for the score and mass of all rows."""
    noise = [np.zeros(np.shape(one)) for one in (score, size)]
    noise[0][0], noise[1][1, 0] = sd
    empty, outer = np.zeros((0, 0)), exact([[size[0][0]]])
    return ScoreTotals(
        Reading(np.array([score]), noise[0][None]), Reading(np.array(size), noise[1]),
        exact(np.reshape(square, (-1, 1, 1))), exact([]), outer, exact(empty), np.ones((10, 1)),
        np.zeros(0),
    )  # fmt: skip


def test_noise_enters_by_the_delta_method() -> None:
    sums = given([50.0], [100.0], [[100.0], [100.0]], (3.0, 4.0))
    out = estimate_averages([average(mass_spread=1e9)], (), sums)
    assert out.privacy[0, 0] == pytest.approx((3.0**2 + (0.5 * 4.0) ** 2) / 100.0**2, rel=1e-6)


def one_group(mass: float, mass_sd: float) -> AverageEstimate:
    """1000 rows of mean score 0 and a group of 500, of mean score 0.1 and mean square 1."""
    sizes = [[1000.0, 500.0], [mass, np.nan]]
    sums = given([0.0, 50.0], [1000.0, 500.0], sizes, (0.0, mass_sd))
    return estimate_averages([average(mass_spread=1e9)], (Place("g"),), sums)


def test_a_group_is_divided_by_the_mean_mass_in_its_errors_too() -> None:
    out = one_group(800.0, 0.0)
    assert out.estimate[1] == pytest.approx(0.1 / 0.8)
    assert out.sampling[0, 0] == pytest.approx(1000 / 800**2)
    assert out.sampling[1, 1] == pytest.approx((500 - 0.1**2 * 500) / (0.8 * 500) ** 2)
    assert out.privacy[1, 1] == 0.0
    assert one_group(800.0, 80.0).privacy[1, 1] == pytest.approx((0.125 * 0.1) ** 2, rel=1e-6)


def test_mass_is_pulled_to_its_prior_by_noise() -> None:
    seen, hidden = (
        estimate_averages([average()], (), given([1000.0], [1e3], [[1e3], [1300.0]], (0.0, noise)))
        for noise in (0.0, 1e6)
    )
    assert seen.mass == pytest.approx(1300.0)
    # the noise of the mass is all the noise of this ratio
    sd = np.sqrt(hidden.privacy[0, 0]) * hidden.mass / hidden.estimate[0]
    assert hidden.mass == pytest.approx(1000.0, abs=1e-2) and sd <= 100.0


def test_a_mass_is_never_nothing() -> None:
    sums = given([0.0], [1000.0], [[1000.0], [0.0]], (0.0, 0.0))
    assert estimate_averages([average(mass_spread=0.1)], (), sums).mass == pytest.approx(20.0)


def test_what_a_cut_took_of_the_slope_is_given_back(study: tuple) -> None:
    """Estimate and error grow alike, also in groups that have masses of their own."""
    psi, a, g = study
    att, masses = ResultTerm("effect", "ATT"), {"mass_spread": 0.3, "group_masses": True}
    found = [
        estimate_averages(
            [average(att, centre=0.7, kept=kept, **masses)], (Place("high"),),
            sums(psi, a[:, :1], g, 0.7),
        )
        for kept in (1.0, 0.8)
    ]  # fmt: skip
    whole, less = (out.estimate - 0.7 for out in found)
    np.testing.assert_allclose(less, whole / 0.8, rtol=1e-10)
    grown = found[1].sampling[0, 0] / found[0].sampling[0, 0]
    assert 1.5 < grown < 1 / 0.8**2 + 0.01
    assert found[0].clipping[0] == 0.0
    assert found[1].clipping[0] == pytest.approx(less[0] * 0.2 / 3)


def test_a_group_too_small_to_see_is_nan_with_no_end_of_error(study: tuple) -> None:
    psi, a, g = study
    none = sums(psi, a, np.zeros_like(g), 0.0)
    out = estimate_averages([average(ATE_TERM, Z)], (Place("none"),), none)
    assert np.isnan(out.estimate[2]) and np.isinf(out.cov[2, 2])


def test_well_conditioned_keeps_an_exact_gram_and_mends_a_noisy_one() -> None:
    model = np.array([[10.0, 1.0], [1.0, 5.0]])
    exact = np.array([[10.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(well_conditioned(exact, model, np.zeros((2, 2)))[0], exact)
    broken = np.array([[10.0, 30.0], [30.0, -4.0]])
    mended, _ = well_conditioned(broken, model, np.full((2, 2), 1.0))
    assert (np.linalg.eigvalsh(mended) > 1.0).all()
    drowned, keep = well_conditioned(exact, model, np.full((2, 2), 1e6))
    np.testing.assert_allclose(drowned, model, rtol=1e-6)
    assert keep == 0.0


def test_cut_follows_the_histogram() -> None:
    rng = np.random.default_rng(1)
    score = np.abs(rng.standard_normal(20_000))
    borders = cuts.score_edges(64.0, cuts.SHAPE_OCTAVES)
    counts = np.histogram(score, np.r_[0.0, borders])[0].astype(float)
    sizes = cuts.without_noise_tail(counts, 10.0, borders)
    assert sizes.rms(64.0) == pytest.approx(1.0, abs=0.25)
    assert cuts.threshold_for_effect(sizes, 10.0) < cuts.threshold_for_effect(sizes, 1e-4)
    assert cuts.unseen_bias(sizes, 4.0) < 0.05


def test_what_is_seen_beyond_the_cut_counts_in_full() -> None:
    """Scores of a skewed outcome have one sign there."""
    borders = cuts.score_edges(64.0, cuts.SHAPE_OCTAVES)
    counts = np.zeros(17)
    counts[-3], counts[8] = 100.0, 900.0
    sizes = cuts.without_noise_tail(counts, 0.0, borders)
    assert sizes.excess(10.0) == pytest.approx(0.1 * (0.85 * borders[-3] - 10.0))
    assert cuts.unseen_bias(sizes, 10.0) == pytest.approx(sizes.excess(10.0))


def test_a_tail_that_no_bin_shows_alone_is_told_by_several() -> None:
    """Four bins hide more together than one can."""
    borders = cuts.score_edges(64.0, cuts.SHAPE_OCTAVES)
    counts = np.r_[np.zeros(8), 10_000.0, np.zeros(8)]
    tail = counts.copy()
    tail[9:13] = 60.0
    without, beyond = (cuts.without_noise_tail(c, 100.0, borders) for c in (counts, tail))
    assert np.flatnonzero(beyond.counts)[-1] == np.flatnonzero(without.counts)[-1]
    assert beyond.tail == 240.0
    cut = 4.0 * float(without.rms(64.0))
    bias = [cuts.unseen_bias(sizes, cut) for sizes in (without, beyond)]
    assert bias[1] == pytest.approx(bias[0] * (240 / 10_000) / (150 / 10_000))


def test_bounds_are_found_around_the_data_and_refused_where_all_is_noise() -> None:
    edges = np.array([-16.0, -4.0, -1.0, 1.0, 4.0, 16.0])

    def coarse(counts: list[float], sd: float, public: float | None, **options: Any) -> Interval:
        return coarse_range(LookCounts(np.array(counts), sd, edges), "x", public, **options)

    found = coarse([3.0, -10.0, 900.0, 700.0, -10.0], 20.0, 1600.0)
    assert found == Interval(-1.0, 4.0)
    assert coarse([3.0, -10.0, 900.0, 700.0, -10.0], 20.0, 1700.0) == Interval(-4.0, 4.0)
    assert coarse([0.0, 300.0, 900.0, 700.0, 300.0], 100.0, 2200.0) == Interval(-16.0, 16.0)
    # both signs of one size are found together
    assert coarse([0.0, 90.0, 0.0, 90.0, 0.0], 20.0, 180.0) == Interval(-4.0, 4.0)
    assert coarse([40.0, 40.0, 40.0, 600.0, 40.0], 50.0, 900.0, outcome=True) == Interval(-16, 16)
    with pytest.raises(BudgetError, match="bounds for 'x'"):
        coarse([0.0] * 5, 20.0, None)
    with pytest.raises(BudgetError, match="bounds for 'x'"):
        coarse([0.0, 0.0, 900.0, 0.0, 0.0], 20.0, None, outcome=True)
    counts = np.r_[np.zeros(20), np.full(10, 900.0), np.zeros(34)]
    assert fine_range(counts, 200.0, found, 9000.0) == found, "too many rows might lie beyond"
    fine = fine_range(counts, 2.0, found, 9000.0)
    assert found.lo < fine.lo < 0.6 < 1.3 < fine.hi < found.hi
    thin = np.r_[np.full(60, 20.0), 300.0, np.full(3, 20.0)]
    assert fine_range(thin, 20.0, found, 1560.0) == found, "a pile at one end is not the range"


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("clipping", [0.0, 0.6])
def test_intervals_cover_as_they_say_whatever_the_cut_hides(noise: float, clipping: float) -> None:
    one = np.eye(1)
    found = AverageEstimate(
        (ATE_TERM,), (), np.zeros(1), 0.5 * noise**2 * one, 0.4 * noise**2 * one,
        np.array([clipping]), np.array([np.sqrt(0.1) * noise]), 100.0,
    )  # fmt: skip
    for level in (0.5, 0.8, 0.95, 0.999):
        half = float(found.half_widths(float(norm.ppf(0.5 + level / 2)))[0])
        covered = [
            norm.cdf((half - b) / noise) - norm.cdf((-half - b) / noise)
            for b in np.linspace(0, clipping, 7)
        ]
        assert min(covered) == pytest.approx(level, abs=1e-9)
        assert covered[-1] == min(covered)
