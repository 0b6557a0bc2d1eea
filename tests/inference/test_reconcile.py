"""Sums over groups that partition the rows agree with those over all, at the stated covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from privcausal.estimators.difference import arm_totals, estimate_difference
from privcausal.inference.effects import (
    AverageEstimate,
    Noisy,
    Reading,
    ScoreAverage,
    ScoreTotals,
    estimate_averages,
    joint_sampling,
    reconciled,
    reconciled_within,
    upheld,
)
from privcausal.inference.ranges import Window
from privcausal.inference.regression import Remainder
from privcausal.request.formula import ATE_TERM, Partitions, Place, ResultTerm
from privcausal.request.schema import Interval

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


Sums = dict[str, Any]
"""Released sums of one average, or the noise sds of their entries."""


def exact(g: np.ndarray, *, masses: bool = False, seed: int = 2) -> Sums:
    """Sums of scores of mean .3, .6, .9 in the first three groups; of masses near 1, if asked."""
    rng = np.random.default_rng(seed)
    x = g[:, :3] @ [0.3, 0.6, 0.9] + rng.standard_normal(SIZE)
    z = rng.uniform(-1, 1, SIZE)
    a, h = np.c_[np.ones(SIZE), z], np.c_[np.ones(SIZE), g]
    q = rng.uniform(0.8, 1.2, SIZE)
    return {
        "score": h.T @ x, "square": h.T @ x**2, "slope": z[None] @ x, "outer": a.T @ a,
        "mass": q.sum(), "group_size": g.T @ q if masses else g.sum(axis=0),
    }  # fmt: skip


def noise(score: float, size: float, square: float, mass: float, groups: int = 6) -> Sums:
    one = np.ones(1 + groups)
    return {
        "score": score * one, "square": square * one, "slope": np.full(1, score),
        "outer": np.full((2, 2), size), "mass": mass, "group_size": size * one[1:],
    }  # fmt: skip


def noisy(value: Sums, sd: Sums, rng: np.random.Generator) -> Sums:
    def moved(name: str) -> Any:
        out = value[name] + sd[name] * rng.standard_normal(np.shape(value[name]))
        return np.triu(out) + np.triu(out, 1).T if name == "outer" else out

    names = ("score", "slope", "outer", "mass", "group_size", "square")
    return {name: moved(name) for name in names}


Known = dict[str, Any]


def frame(parts: Partitions | None, **options: Any) -> Known:
    return {"mass_spread": 1e6, "parts": parts} | options


def of_kind(kind: str) -> tuple[Sums, Known]:
    return exact(members(), masses="masses" in kind), frame(PARTS, **KINDS[kind])


def estimate(value: Sums, sd: Sums, given: Known) -> AverageEstimate:
    known = {name: given[name] for name in ("parts", "limits") if name in given}
    own = {name: one for name, one in given.items() if name not in known}
    read = [
        (
            one["score"][None],
            np.array([np.r_[one["outer"][0, 0], one["group_size"]],
                      np.r_[one["mass"], one["group_size"]]]),
            one["square"][:, None, None], one["slope"], one["outer"], np.zeros((0, 0)),
        )
        for one in (value, sd)
    ]  # fmt: skip
    points = np.c_[np.ones(50), np.linspace(-1, 1, 50)]
    sums = ScoreTotals(*map(Reading, *read), points, np.ones(1), **known)
    terms = ATE_TERM, ResultTerm("slope", "z")
    asked = ScoreAverage(terms, np.ones(1), 1, 0.1, 0.0, Remainder(0, 0), 0.0, **own)
    return estimate_averages([asked], GROUPS, sums)


SD = noise(30.0, 20.0, 40.0, 25.0)


# -- the algebra ---------------------------------------------------------------------------------


def reconcile(reading: Any, sd: Any, identities: Any) -> tuple[Any, Any]:
    """Readings that satisfy the identities, and the covariance of their errors."""
    (one,) = Noisy.inputs(Reading(np.asarray(reading, float), sd))
    found = reconciled(one, identities)
    return found.value, found.cov


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
    (one,) = Noisy.inputs(Reading(reading, sd))
    free = reconciled_within(one, identity, (0.0, np.inf))
    np.testing.assert_allclose(free.value, reconcile(reading, sd, identity)[0])
    held = reconciled_within(one, identity, (0.0, 10.0))
    np.testing.assert_allclose(held.value, [10, 4.5, 5.5])
    np.testing.assert_allclose(held.cov, free.cov)


def test_a_rest_that_is_seen_makes_no_identity() -> None:
    parts = PARTS._replace(certain=np.array([False, True]))
    sd = np.ones(7)
    seen, hidden = np.r_[107.0, 50, 30, 20, 60, 40, 7], np.r_[105.0, 50, 30, 20, 60, 40, 7]
    np.testing.assert_array_equal(upheld(parts, seen, sd, 3.0), PARTS.identities[1:])
    np.testing.assert_array_equal(upheld(parts, hidden, sd, 3.0), PARTS.identities)


def test_sampling_covariance_is_that_of_the_rows() -> None:
    """Means over groups, and over all rows, of independent rows."""
    variance, share = np.array([2.0, 3.0, 1.0]), np.array([0.5, 0.3, 0.2])
    own = variance / (share * 1000)
    whole = np.array([[share @ variance / 1000]])
    identity = np.array([[1.0, -1, -1, -1]])
    found = joint_sampling(whole, own[:, None, None], share[None], identity)
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
        shares = rng.uniform(0, 1, (1, 6))
        found = joint_sampling(terms, groups[:, None, None], shares, PARTS.identities)
        np.testing.assert_array_equal(np.diag(found)[2:], groups)
        seen = np.isfinite(np.diag(found))
        values = np.linalg.eigvalsh(found[np.ix_(seen, seen)])
        assert values.min() > -1e-9 * values.max()


# -- averages of scores --------------------------------------------------------------------------

KINDS = {
    "count": {},
    "public": {"limits": (float(SIZE), float(SIZE))},
    "at most": {"limits": (1.0, float(SIZE))},
    "masses": {"group_masses": True, "mass_spread": 0.3},
    "masses, cut": {"group_masses": True, "mass_spread": 0.3, "kept": 0.8},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_average_is_that_of_the_groups(kind: str) -> None:
    value, given = of_kind(kind)
    for seed in range(20):
        seen = noisy(value, SD, np.random.default_rng(seed))
        found = estimate(seen, SD, given)
        plain = estimate(seen, SD, given | {"parts": None})
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
    plain = estimate(value, SD, given | {"parts": None})
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
def test_privacy_is_the_joint_covariance_of_the_noise(kind: str, small: Sums) -> None:
    """Standardised errors of the average and the groups: mean square 1 in every direction.

    Of 1,500 draws the sum of squares is chi-squared; 1 % of room for the delta method.
    """
    value, given = of_kind(kind)
    given = given | {"mass_spread": 1e6}
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
        found, plain = (estimate(value, zero, f) for f in (given, given | {"parts": None}))
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
    parts = PARTS._replace(identities=PARTS.identities[:1], certain=np.array([False]))
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
    assert value["outer"][0, 0] - value["group_size"][:3].sum() == 3 * 2 * 20.0
    bias = np.abs(found.estimate - plain.estimate) / np.sqrt(np.diag(found.privacy))
    assert bias[[0, 2, 3, 4]].max() < 0.5


# -- arms of a trial -----------------------------------------------------------------------------


BOUNDS = Interval(-5.0, 9.0)


ArmSums = tuple[Any, Any, Any]
"""Totals, counts and squares by arm and place."""


def arms(seed: int = 10) -> ArmSums:
    g, rng = members(), np.random.default_rng(seed)
    t = rng.random(SIZE) < 0.4
    y = np.clip(g[:, :3] @ [4.0, 5, 6] + t + rng.standard_normal(SIZE), -5, 9) - BOUNDS.mid
    whole = np.c_[np.ones(SIZE), g]
    own = [whole[t == arm].T for arm in (0, 1)]
    return (
        np.array([own[arm] @ y[t == arm] for arm in (0, 1)]),
        np.array([one.sum(axis=1) for one in own]),
        np.array([own[arm] @ y[t == arm] ** 2 for arm in (0, 1)]),
    )


def arm_noise(total: float, count: float, square: float) -> ArmSums:
    one = np.ones((2, 7))
    return total * one, count * one, square * one


def compared(value: ArmSums, sd: ArmSums, parts: Partitions | None) -> AverageEstimate:
    totals = arm_totals(value, sd, parts)
    return estimate_difference((ATE_TERM,), GROUPS, *totals, Window(BOUNDS), BOUNDS)


def test_arms_agree_with_their_groups_and_variances_fall() -> None:
    value, sd = arms(), arm_noise(40.0, 12.0, 100.0)
    for arm in arm_totals(value, sd, PARTS)[0]:
        assert arm.square is not None
        for sums in (arm.total, arm.count, arm.square):
            np.testing.assert_allclose(PARTS.identities @ sums.value, 0, atol=1e-8)
    found, plain = compared(value, sd, PARTS), compared(value, sd, None)
    assert (np.diag(found.privacy)[:6] < 0.85 * np.diag(plain.privacy)[:6]).all()
    assert found.cov[6, 6] == pytest.approx(plain.cov[6, 6])
    assert found.sampling[0, 1] > 0 and found.privacy[0, 1] > 0
    assert np.linalg.eigvalsh(found.cov).min() > -1e-12


@pytest.mark.slow
def test_noise_of_arms_is_as_stated() -> None:
    """As for scores: 1,500 draws in every direction of the joint covariance."""
    value, sd = arms(), arm_noise(6.0, 8.0, 20.0)
    rng, draws, at = np.random.default_rng(11), 1500, [0, 1, 2, 4, 6]
    truth = compared(value, sd, PARTS)
    errors = []
    for _ in range(draws):
        move = rng.standard_normal((3, 2, 7))
        seen = value[0] + 6 * move[0], value[1] + 8 * move[1], value[2] + 20 * move[2]
        errors.append((compared(seen, sd, PARTS).estimate - truth.estimate)[at])
    have_covariance(np.array(errors), truth.privacy[np.ix_(at, at)])


def test_arms_with_a_visible_rest_stay_as_they_were() -> None:
    value, sd = arms(), arm_noise(40.0, 12.0, 100.0)
    count = value[1].copy()
    count[:, 0] += 200.0
    parts = PARTS._replace(certain=np.array([False, False]))
    assert not len(arm_totals((value[0], count, value[2]), sd, parts)[1])
    assert len(arm_totals(value, sd, parts)[1])
