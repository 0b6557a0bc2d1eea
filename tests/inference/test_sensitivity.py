"""Sensitivity to confounding: the formulas by hand, and a confounder that was left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcausal.inference.effects import largest_bias, robustness_value


def test_the_robustness_value_of_darfur() -> None:
    """Cinelli and Hazlett (2020, Section 5): t = 4.18 on 783 degrees of freedom has 13.9 %."""
    f = 4.18 / np.sqrt(783)
    assert robustness_value(f, 1.0) == pytest.approx(0.139, abs=5e-4)
    # their value for the 95 % interval, 7.6 %: f is less by t / sqrt(df - 1)
    assert robustness_value(f - 1.963 / np.sqrt(782), 1.0) == pytest.approx(0.076, abs=5e-4)


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_a_confounder_of_that_strength_moves_it_that_far(distance: float, scale: float) -> None:
    r = robustness_value(distance, scale)
    assert 0 < r <= 1
    if r < 1 - 1e-9:
        assert largest_bias(scale, r, r) == pytest.approx(distance, rel=1e-4)


def test_limits() -> None:
    assert robustness_value(0.0, 1.0) == robustness_value(-1.0, 1.0) == 0.0
    assert robustness_value(1.0, 0.0) == 1.0
    assert largest_bias(2.0, 0.0, 0.5) == largest_bias(2.0, 0.5, 0.0) == 0.0


def test_the_bound_holds_and_is_reached_in_a_linear_model() -> None:
    """A confounder U of T = U a + v and Y = T + U b + w biases by what the bound says."""
    rng = np.random.default_rng(4)
    n = 400_000
    u, v, w = rng.standard_normal((3, n))
    t = 0.5 * u + v
    y = t + 0.8 * u + w
    short = (t @ y) / (t @ t)
    residual = y - short * t
    influence = t * residual / (t @ t / n)
    scale = float(np.sqrt(influence.var()))
    full = np.linalg.lstsq(np.c_[t, u], y, rcond=None)[0]
    r2_outcome = 1 - (y - np.c_[t, u] @ full).var() / residual.var()
    r2_treatment = 0.25 / 1.25
    bias = abs(short - full[0])
    assert largest_bias(scale, r2_outcome, r2_treatment) == pytest.approx(bias, rel=0.02)
