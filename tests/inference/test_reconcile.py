"""Sums over groups that partition the rows agree with those over all, at the stated covariance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from privcausal.estimators.difference import ArmTotals, agreed, estimate_difference
from privcausal.inference.averages import AverageEstimate, ScoreData, estimate_average
from privcausal.inference.averages import SumsContext as Frame
from privcausal.inference.confounding import Remainder
from privcausal.inference.ranges import Window
from privcausal.inference.reconcile import joint_sampling, reconcile, reconcile_within, upheld
from privcausal.request.factors import Partitions
from privcausal.request.schema import Interval
from privcausal.request.terms import ATE_TERM, Place, ResultTerm

FALSE_ALARM = 1e-6

# all rows; three groups of one column, two of another, one alone
PARTS = Partitions(
    np.array([[1.0, -1, -1, -1, 0, 0, 0], [1.0, 0, 0, 0, -1, -1, 0]]), np.array([True, True])
)
GROUPS = tuple(map(Place, ("a", "b", "c", "u", "v", "alone")))
SIZE = 4000


def members(seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    first, second = rng.choice(3, SIZE, p=[0.5, 0.3, 0.2]), rng.random(SIZE) < 0.4
    return np.c_[np.eye(3)[first], second, ~second, rng.random(SIZE) < 0.5].astype(float)


def exact(g: np.ndarray, *, masses: bool = False, seed: int = 2) -> ScoreData:
    """Sums of scores of mean .3, .6, .9 in the first three groups; of masses near 1, if asked."""
    rng = np.random.default_rng(seed)
    x = g[:, :3] @ [0.3, 0.6, 0.9] + rng.standard_normal(SIZE)
    z = rng.uniform(-1, 1, SIZE)
    a, h = np.c_[np.ones(SIZE), z], np.c_[np.ones(SIZE), g]
    q = rng.uniform(0.8, 1.2, SIZE)
    return ScoreData(
        h.T @ x, h.T @ x**2, z[None] @ x, a.T @ a, float(q.sum()),
        g.T @ q if masses else g.sum(axis=0), np.zeros((0, 0)),
    )  # fmt: skip


def noise(score: float, size: float, square: float, mass: float, groups: int = 6) -> ScoreData:
    one, none = np.ones(1 + groups), np.zeros((0, 0))
    return ScoreData(
        score * one, square * one, np.full(1, score), np.full((2, 2), size), mass, size * one[1:],
        none,
    )  # fmt: skip


def noisy(value: ScoreData, sd: ScoreData, rng: np.random.Generator) -> ScoreData:
    def moved(name: str) -> Any:
        one, spread = getattr(value, name), getattr(sd, name)
        out = one + spread * rng.standard_normal(np.shape(one))
        return np.triu(out) + np.triu(out, 1).T if name == "outer" else out

    names = ("score", "slope", "outer", "mass", "group_size", "square")
    return replace(value, **{name: moved(name) for name in names})


def frame(parts: Partitions | None, **options: Any) -> Frame:
    points = np.c_[np.ones(50), np.linspace(-1, 1, 50)]
    base: dict[str, Any] = {"mass_spread": 1e6, "parts": parts} | options
    return Frame(0.1, float(SIZE), points, np.ones(1), 0.0, Remainder(0, 0), 0.0, **base)


def of_kind(kind: str) -> tuple[ScoreData, Frame]:
    return exact(members(), masses="masses" in kind), frame(PARTS, **KINDS[kind])


def estimate(value: ScoreData, sd: ScoreData, given: Frame) -> AverageEstimate:
    size = float(np.clip(value.outer[0, 0], *given.size_limits))
    given = replace(given, size=size)
    return estimate_average(
        (ATE_TERM, ResultTerm("slope", "z")), GROUPS, value, sd, given, robust=False
    )[0]


SD = noise(30.0, 20.0, 40.0, 25.0)


# -- the algebra ---------------------------------------------------------------------------------


def test_readings_satisfy_the_identities_at_less_variance() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        sd = rng.uniform(0, 2, 7) * (rng.random(7) < 0.8)
        truth = np.r_[10.0, 5, 3, 2, 6, 4, 7]
        found, cov = reconcile(truth + sd * rng.standard_normal(7), sd, PARTS.identities)
        scale = np.abs(found).max()
        free = (PARTS.identities**2 @ sd**2) > 0
        np.testing.assert_allclose((PARTS.identities @ found)[free], 0, atol=1e-10 * scale)
        fall = np.linalg.eigvalsh(np.diag(sd**2) - cov)
        assert fall.min() > -1e-10  # Gauss and Markov: in every direction
        assert np.linalg.eigvalsh(cov).min() > -1e-10


def test_two_readings_of_one_number_are_weighed_by_precision() -> None:
    found, cov = reconcile(np.array([10.0, 13.0]), np.array([1.0, 2.0]), np.array([[1.0, -1]]))
    np.testing.assert_allclose(found, 10 + 3 / 5)
    np.testing.assert_allclose(cov, 4 / 5)


def test_what_has_no_noise_stays() -> None:
    reading = np.array([10.0, 5.1, 3, 2, 6, 4, 7])
    zero = np.zeros(7)
    found, cov = reconcile(reading, zero, PARTS.identities)
    np.testing.assert_array_equal(found, reading)
    np.testing.assert_array_equal(cov, 0)
    found, cov = reconcile(reading, np.r_[0.0, np.ones(6)], PARTS.identities)
    assert found[0] == 10 and found[6] == 7 and (cov[0] == 0).all()
    np.testing.assert_allclose(found[1:4], np.array([5.1, 3, 2]) - 0.1 / 3)


@pytest.mark.slow
def test_covariance_is_that_of_the_errors() -> None:
    """20,000 draws: sum of squared standardised errors is chi-squared with as many df as free."""
    rng = np.random.default_rng(4)
    sd = np.array([3.0, 1, 2, 1, 2, 2, 1])
    truth = np.r_[10.0, 5, 3, 2, 6, 4, 7]
    draws = 20_000
    readings = truth + sd * rng.standard_normal((draws, 7))
    errors = np.array([reconcile(x, sd, PARTS.identities)[0] - truth for x in readings])
    cov = reconcile(truth, sd, PARTS.identities)[1]
    total = np.einsum("ij,jk,ik->", errors, np.linalg.pinv(cov, hermitian=True), errors)
    low, high = chi2(5 * draws).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low < total < high


def test_a_limit_moves_the_others() -> None:
    reading, sd = np.array([12.0, 5, 6]), np.ones(3)
    identity = np.array([[1.0, -1, -1]])
    free = reconcile_within(reading, sd, identity, (0.0, np.inf))
    np.testing.assert_allclose(free[0], reconcile(reading, sd, identity)[0])
    held, cov = reconcile_within(reading, sd, identity, (0.0, 10.0))
    np.testing.assert_allclose(held, [10, 4.5, 5.5])
    np.testing.assert_allclose(cov, free[1])


def test_a_rest_that_is_seen_makes_no_identity() -> None:
    parts = replace(PARTS, certain=np.array([False, True]))
    sd = np.ones(7)
    seen, hidden = np.r_[107.0, 50, 30, 20, 60, 40, 7], np.r_[105.0, 50, 30, 20, 60, 40, 7]
    np.testing.assert_array_equal(upheld(parts, seen, sd, 3.0), PARTS.identities[1:])
    np.testing.assert_array_equal(upheld(parts, hidden, sd, 3.0), PARTS.identities)


def test_sampling_covariance_is_that_of_the_rows() -> None:
    """Means over groups, and over all rows, of independent rows."""
    variance, share = np.array([2.0, 3.0, 1.0]), np.array([0.5, 0.3, 0.2])
    own = variance / (share * 1000)
    whole = np.array([[share @ variance / 1000]])
    found = joint_sampling(whole, own, share, np.array([[1.0, -1, -1, -1]]))
    np.testing.assert_allclose(found[1:, 1:], np.diag(own))
    np.testing.assert_allclose(found[0, 1:], variance / 1000)
    mix = np.r_[1.0, -share]
    assert mix @ found @ mix == pytest.approx(0, abs=1e-12)  # the average is the groups'


def test_sampling_covariance_stays_one_whatever_noise_does_to_its_parts() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        terms = np.cov(rng.standard_normal((2, 4)))
        groups = rng.exponential(10, 6)
        groups[rng.random(6) < 0.2] = np.inf
        found = joint_sampling(terms, groups, rng.uniform(0, 1, 6), PARTS.identities)
        np.testing.assert_array_equal(np.diag(found)[2:], groups)
        seen = np.isfinite(np.diag(found))
        values = np.linalg.eigvalsh(found[np.ix_(seen, seen)])
        assert values.min() > -1e-9 * values.max()


# -- averages of scores --------------------------------------------------------------------------

KINDS = {
    "count": {},
    "public": {"size_limits": (float(SIZE), float(SIZE))},
    "at most": {"size_limits": (1.0, float(SIZE))},
    "masses": {"group_masses": True, "mass_spread": 0.3},
    "masses, cut": {"group_masses": True, "mass_spread": 0.3, "kept": 0.8},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_average_is_that_of_the_groups(kind: str) -> None:
    value, given = of_kind(kind)
    for seed in range(20):
        seen = noisy(value, SD, np.random.default_rng(seed))
        found = estimate(seen, SD, given)
        plain = estimate(seen, SD, replace(given, parts=None))
        assert found.estimate[0] != plain.estimate[0]
        for part in (slice(2, 5), slice(5, 7)):
            # sum of n_g (tau_g - ATE) = 0: shares from the covariance with the average
            share = found.sampling[0, part] / np.diag(found.sampling)[part]
            share /= share.sum()
            assert share @ found.estimate[part] == pytest.approx(found.estimate[0], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_no_variance_rises(kind: str) -> None:
    value, given = of_kind(kind)
    found = estimate(value, SD, given)
    plain = estimate(value, SD, replace(given, parts=None))
    one, other = (np.diag(out.privacy) for out in (found, plain))
    assert (one[:7] <= other[:7] * (1 + 1e-12)).all()
    assert (one[[0, 2, 3, 4, 5, 6]] < 0.85 * other[[0, 2, 3, 4, 5, 6]]).all()
    # a group of no partition: now the noise in the number of rows counts too
    assert one[7] == pytest.approx(other[7], rel=0.02)
    # squares are raised by less noise
    assert (np.diag(found.sampling) <= np.diag(plain.sampling) * (1 + 1e-12)).all()


def have_covariance(errors: Any, cov: Any) -> None:
    """Errors of five estimates, shape (draws, 5): their squares' laws, and no correlation left."""
    draws = len(errors)
    roots = np.linalg.solve(np.linalg.cholesky(cov), errors.T)
    low, high = chi2(draws).ppf([FALSE_ALARM / 20, 1 - FALSE_ALARM / 20]) / draws
    for square in (roots**2).mean(axis=1):
        assert 0.99 * low < square < 1.01 * high
    # normal with sd 1 / sqrt(draws)
    off = (roots @ roots.T / draws)[np.triu_indices(5, 1)]
    assert np.abs(off).max() < 5.6 / np.sqrt(draws)


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["count", "public", "masses"])
@pytest.mark.parametrize("small", [noise(6.0, 4.0, 8.0, 5.0), noise(2.0, 25.0, 8.0, 5.0)])
@pytest.mark.slow
def test_privacy_is_the_joint_covariance_of_the_noise(kind: str, small: ScoreData) -> None:
    """Standardised errors of the average and the groups: mean square 1 in every direction.

    Of 1,500 draws the sum of squares is chi-squared; 1 % of room for the delta method.
    """
    value, given = of_kind(kind)
    given = replace(given, mass_spread=1e6)
    rng = np.random.default_rng(6)
    at, draws = [0, 2, 3, 5, 7], 1500  # two are determined by the others
    truth = estimate(value, noise(0, 0, 0, 0), given)
    cov = estimate(value, small, given).privacy[np.ix_(at, at)]
    errors = np.array(
        [(estimate(noisy(value, small, rng), small, given).estimate - truth.estimate)[at]
         for _ in range(draws)]
    )  # fmt: skip
    have_covariance(errors, cov)


def test_without_noise_nothing_changes() -> None:
    zero = noise(0, 0, 0, 0)
    for kind in KINDS:
        value, given = of_kind(kind)
        found, plain = (estimate(value, zero, f) for f in (given, replace(given, parts=None)))
        np.testing.assert_array_equal(found.estimate, plain.estimate)
        np.testing.assert_allclose(np.diag(found.cov), np.diag(plain.cov), rtol=1e-12)
        assert np.abs(found.privacy).max() == 0


def test_sampling_covariance_of_an_average_with_its_groups() -> None:
    """Within a hundredth of the covariance of row sums that are summed again."""
    g = members()
    found = estimate(exact(g), noise(0, 0, 0, 0), frame(PARTS))
    share = g.mean(axis=0)[:5]
    expected = share * np.diag(found.sampling)[2:7]
    np.testing.assert_allclose(found.sampling[0, 2:7], expected, rtol=0.01)
    assert found.sampling[0, 7] == 0  # alone: what it shares with all rows is not used
    assert found.sampling[2, 3] == 0 and found.sampling[2, 5] > 0
    assert np.linalg.eigvalsh(found.cov).min() > -1e-12


def test_a_group_too_small_to_see_takes_part_and_stays_unseen() -> None:
    g = members()
    g[:, 0] += g[:, 2]
    g[:, 2] = 0.0
    seen = noisy(exact(g), SD, np.random.default_rng(8))
    found, plain = (estimate(seen, SD, frame(p)) for p in (PARTS, None))
    assert np.isnan(found.estimate[4]) and np.isinf(found.cov[4, 4])
    assert (found.sampling[4, :4] == 0).all()
    others = [0, 2, 3, 5, 6]
    assert (np.diag(found.privacy)[others] <= np.diag(plain.privacy)[others]).all()
    assert np.isfinite(found.estimate[others]).all()


def test_a_visible_rest_leaves_everything_as_it_was() -> None:
    g = members()
    g[g[:, 2] == 1, :3] = 0.0  # a fifth of the rows is in none of three groups
    parts = replace(PARTS, identities=PARTS.identities[:1], certain=np.array([False]))
    seen = noisy(exact(g), SD, np.random.default_rng(9))
    found, plain = (estimate(seen, SD, frame(p)) for p in (parts, None))
    np.testing.assert_array_equal(found.estimate, plain.estimate)
    np.testing.assert_array_equal(found.cov, plain.cov)


def test_what_a_hidden_rest_does_is_less_than_the_noise() -> None:
    """A rest at the border of what is seen; the noise of scores is that of counts times a cut."""
    g = members()
    g[np.flatnonzero(g[:, 2] == 1)[:120], :3] = 0.0  # 3 sd of the count of the rest
    value, sd = exact(g), noise(80.0, 20.0, 40.0, 25.0)
    found, plain = (estimate(value, sd, frame(parts)) for parts in (PARTS, None))
    assert value.outer[0, 0] - value.group_size[:3].sum() == 3 * 2 * 20.0
    bias = np.abs(found.estimate - plain.estimate) / np.sqrt(np.diag(found.privacy))
    assert bias[[0, 2, 3, 4]].max() < 0.5


# -- arms of a trial -----------------------------------------------------------------------------


BOUNDS = Interval(-5.0, 9.0)


def arms(seed: int = 10) -> ArmTotals:
    g, rng = members(), np.random.default_rng(seed)
    t = rng.random(SIZE) < 0.4
    y = np.clip(g[:, :3] @ [4.0, 5, 6] + t + rng.standard_normal(SIZE), -5, 9) - BOUNDS.mid
    whole = np.c_[np.ones(SIZE), g]
    own = [whole[t == arm].T for arm in (0, 1)]
    return ArmTotals(
        np.array([own[arm] @ y[t == arm] for arm in (0, 1)]),
        np.array([one.sum(axis=1) for one in own]),
        np.array([own[arm] @ y[t == arm] ** 2 for arm in (0, 1)]),
    )


def arm_noise(total: float, count: float, square: float) -> ArmTotals:
    one = np.ones((2, 7))
    return ArmTotals(total * one, count * one, square * one)


def test_arms_agree_with_their_groups_and_variances_fall() -> None:
    value, sd = arms(), arm_noise(40.0, 12.0, 100.0)
    better, less, joint = agreed(value, sd, PARTS)
    assert joint is not None and better.square is not None
    for sums in (better.total, better.count, better.square):
        np.testing.assert_allclose(PARTS.identities @ sums.T, 0, atol=1e-8)
    found = estimate_difference((ATE_TERM,), GROUPS, better, less, Window(BOUNDS), BOUNDS, joint)
    plain = estimate_difference((ATE_TERM,), GROUPS, value, sd, Window(BOUNDS), BOUNDS)
    assert (np.diag(found.privacy)[:6] < 0.85 * np.diag(plain.privacy)[:6]).all()
    assert found.cov[6, 6] == pytest.approx(plain.cov[6, 6])
    assert found.sampling[0, 1] > 0 and found.privacy[0, 1] > 0
    assert np.linalg.eigvalsh(found.cov).min() > -1e-12


@pytest.mark.slow
def test_noise_of_arms_is_as_stated() -> None:
    """As for scores: 1,500 draws in every direction of the joint covariance."""
    value, sd = arms(), arm_noise(6.0, 8.0, 20.0)
    rng, draws, at = np.random.default_rng(11), 1500, [0, 1, 2, 4, 6]

    def found(seen: ArmTotals) -> AverageEstimate:
        better, less, joint = agreed(seen, sd, PARTS)
        return estimate_difference((ATE_TERM,), GROUPS, better, less, Window(BOUNDS), BOUNDS, joint)

    truth = found(value)
    errors = []
    for _ in range(draws):
        move = rng.standard_normal((3, 2, 7))
        assert value.square is not None
        seen = ArmTotals(
            value.total + 6 * move[0], value.count + 8 * move[1], value.square + 20 * move[2]
        )
        errors.append((found(seen).estimate - truth.estimate)[at])
    have_covariance(np.array(errors), truth.privacy[np.ix_(at, at)])


def test_arms_with_a_visible_rest_stay_as_they_were() -> None:
    value, sd = arms(), arm_noise(40.0, 12.0, 100.0)
    count = value.count.copy()
    count[:, 0] += 200.0
    parts = replace(PARTS, certain=np.array([False, False]))
    assert agreed(replace(value, count=count), sd, parts)[2] is None
    assert agreed(value, sd, parts)[2] is not None
