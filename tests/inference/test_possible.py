"""Effects that the mean outcome leaves possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from privcausal.inference.possible import Level, possible

SHARE = st.floats(0.02, 0.98)
WIDTH = 5.0


def truths(share: float, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Effects and mean outcomes of arms whose means are anywhere in the bounds."""
    control, treated = WIDTH * rng.beta(0.3, 0.3, (2, size))
    return treated - control, share * treated + (1 - share) * control


@given(share=SHARE, seed=st.integers(0, 10**6))
def test_what_is_possible_stays(share: float, seed: int) -> None:
    effects, means = truths(share, np.random.default_rng(seed), 20)
    for effect, mean in zip(effects, means, strict=True):
        found = possible(effect, 0.3, Level(mean, 0.1), (1 - share, share), WIDTH)
        assert found == pytest.approx(effect, abs=1e-9)


@given(
    share=SHARE,
    effect=st.floats(-20, 20),
    mean=st.floats(-10, 15),
    sd=st.floats(0.1, 10),
    mean_sd=st.floats(0.1, 10),
)
def test_it_is_the_nearest_possible_pair(
    share: float, effect: float, mean: float, sd: float, mean_sd: float
) -> None:
    """Against a general minimiser over the arms' means."""

    def away(arms: np.ndarray) -> float:
        control, treated = arms
        level = share * treated + (1 - share) * control
        return float(((treated - control - effect) / sd) ** 2 + ((level - mean) / mean_sd) ** 2)

    tries = [minimize(away, x, bounds=[(0, WIDTH)] * 2) for x in ([1, 1], [0, WIDTH], [WIDTH, 0])]
    control, treated = min(tries, key=lambda t: t.fun).x
    found = possible(effect, sd, Level(mean, mean_sd), (1 - share, share), WIDTH)
    assert found == pytest.approx(treated - control, abs=2e-2)


@pytest.mark.parametrize("share", [0.03, 0.3, 0.5])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_errors_never_grow_and_intervals_hold(share: float, ratio: float) -> None:
    """400 draws for each of 20 truths, seeded: six standard errors are below 1e-6 for all 180."""
    rng = np.random.default_rng(3)
    shares, draws = (1 - share, share), 400
    level_sd = ratio * share
    for effect, mean in zip(*truths(share, rng, 20), strict=True):
        noisy = effect + rng.standard_normal(draws)
        levels = mean + level_sd * rng.standard_normal(draws)
        held = np.array(
            [
                possible(d, 1.0, Level(m, level_sd), shares, WIDTH)
                for d, m in zip(noisy, levels, strict=True)
            ]
        )
        more = (held - effect) ** 2 - (noisy - effect) ** 2
        assert more.mean() <= 6 * more.std() / np.sqrt(draws) + 1e-9
        assert (np.abs(held - effect) < 1.96).mean() > 0.95 - 6 * np.sqrt(0.0475 / draws)


def test_rare_events_gain_most() -> None:
    rng = np.random.default_rng(1)
    found = [
        possible(d, 1.0, Level(m, 0.5), (0.5, 0.5), 100.0)
        for d, m in rng.standard_normal((500, 2)) * [1.0, 0.5]
    ]
    assert np.sqrt(np.mean(np.square(found))) < 0.7
