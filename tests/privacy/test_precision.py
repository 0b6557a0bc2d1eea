"""Released numbers stand on a public grid, and their last bits tell nothing of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from replay_helpers import Fit, fit, frame, ordinary
from scipy.stats import beta
from test_noninterference import ASKED, call

from privcausal.accounting.price import FINEST
from privcausal.testing import drawn_again
from privcausal.vault import noise

FALSE_ALARM = 1e-6
DRAWS = 100_000


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "relation"), ASKED)
def test_outputs_are_whole_multiples_of_public_units(kind: str, relation: str) -> None:
    """With real noise: whole steps from the noise source, and nothing else in the releases."""
    eps = 8.0 if kind == "logit" else 2.0  # a logit of so few rows is refused below
    found = fit(call(kind, relation) | {"eps": eps}, frame(ordinary(80, 1)), system=True)
    assert found.calls
    for asked in found.calls:
        assert asked.exact.dtype == np.int64
        finest = FINEST if asked.query.law == "gaussian" else 1.0
        step = np.minimum(
            1.0, 2.0 ** -np.ceil(np.log2(finest / noise.OperatingSystem().sd(asked.query)))
        )
        assert np.array_equal(asked.noisy % step, np.zeros(len(asked.noisy)))
    compared = 0
    for noisy, value in matched(found):
        if kind in ("boosted", "dr") and len(noisy) != len(value):
            continue  # a result holds neither the answers of all rounds nor those of both folds
        assert len(noisy) == len(value)  # every answer left, and nothing else did
        units = np.unique(value[noisy != 0] / noisy[noisy != 0])
        close = np.unique(np.round(units / units[0], 9)) if len(units) else units
        assert len(close) <= 12  # a few public units, and not one for each number
        assert np.array_equal(value[noisy == 0], np.zeros((noisy == 0).sum()))
        compared += 1
    assert compared > 0


def matched(found: Fit) -> list[tuple[Any, Any]]:
    """Integers and released values of each query."""
    whole: dict[str, list[Any]] = {}
    values: dict[str, list[Any]] = {}
    for asked in found.calls:
        whole.setdefault(asked.query.name, []).append(asked.noisy.astype(float))
    for release in found.result.estimate.releases:
        if len(release.value):
            name = release.charge.query
            values.setdefault(name, []).append(release.value)
    assert set(values) <= set(whole)
    return [(np.concatenate(whole[name]), np.concatenate(values[name])) for name in values]


# -- last bits -------------------------------------------------------------------------------


def bounds_of(hits: int, trials: int, level: float) -> tuple[float, float]:
    """Clopper-Pearson, both sides."""
    low = 0.0 if hits == 0 else float(beta.ppf(level / 2, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - level / 2, hits + 1, trials - hits))
    return low, high


def apart(one: Any, two: Any, events: list[Any], level: float) -> float:
    """A lower bound on the largest log ratio of an event's chances on the two sides."""
    each = level / (4 * len(events))
    worst = 0.0
    for event in events:
        a, b = (int(event(x).sum()) for x in (one, two))
        for hits, others in ((a, b), (b, a)):
            low, high = bounds_of(hits, len(one), each)[0], bounds_of(others, len(two), each)[1]
            worst = max(worst, math.log(low / high)) if low > 0 else worst
    return worst


BITS = [lambda x, k=k: np.asarray(x) % 2**k == 0 for k in range(1, 7)]
"""Events on the last bits of a whole number."""


def on_grid_of(power: int) -> Any:
    return lambda x: np.mod(np.asarray(x, float) * 2.0**power, 1) == 0


def small_and_off_grid_of(power: int) -> Any:
    return lambda x: (x > 0) & (x < 0.5) & ~on_grid_of(power)(x)


FLOATS = [*map(on_grid_of, range(44, 57)), *map(small_and_off_grid_of, range(50, 57))]
"""Is a float near one a multiple of 2^-44, ..., 2^-56? Is it below a half, and no multiple?"""


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(("law", "scale"), [("laplace", 1.0), ("laplace", 30.0), ("gaussian", 3.0)])
def test_last_bits_tell_no_more_than_is_paid_for(law: str, scale: float) -> None:
    """x = 0 against x = 1: the chance of each pattern of last bits differs by e^eps at most."""
    query = noise.NoiseQuery("one number", np.ones(1), 1.0, scale, law)  # type: ignore[arg-type]
    one, two = (drawn_again(query, np.array([x]), DRAWS)[:, 0] for x in (0, 1))
    # the discrete Gaussian of scale 3 differs by more than 1 / 3 in its tails only
    paid = 1 / scale
    assert apart(one, two, BITS, FALSE_ALARM) <= paid * 1.05
    # a number of a release: times a public unit that is a power of two or not
    for unit in (2.0**-30, 0.1 / 3):
        released = [draws * unit for draws in (one, two)]
        assert apart(*released, FLOATS, FALSE_ALARM) <= paid * 1.05


def test_float_noise_would_be_found() -> None:
    """The attack's own target: NumPy's Laplace noise on 0 and on 1 at eps = 1."""
    rng = np.random.default_rng(0)
    one, two = (x + rng.laplace(size=DRAWS) for x in (0.0, 1.0))
    assert apart(one, two, FLOATS, FALSE_ALARM) > 3.0


def test_integers_leave_room_for_their_noise() -> None:
    """Far from the end of 64 bits, at the largest table a sum is proven for."""
    for law in ("gaussian", "laplace"):
        query = noise.NoiseQuery("ends", np.ones(1), 1.0, 1e6, law)  # type: ignore[arg-type]
        for end in (2**61, -(2**61)):
            answers = drawn_again(query, np.array([end]), 200)[:, 0]
            assert np.all(np.sign(answers) == np.sign(end))
            assert np.ptp(answers.astype(object)) < 10**8
