"""Intervals and tests for an estimate with a bias of unknown sign, at most a bound."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.stats import ncx2, norm, t

from privcausal.typing import Vector

USUAL_Z = float(norm.isf(0.025))
"""Clipping thresholds minimize the half-widths of 95% intervals."""

FAR_BOUND = 20.0
"""If a bound exceeds this many standard errors, the other tail is too small for floats."""


def p_value(
    estimate: Vector, bound: Vector, sd: Vector, degrees: Vector | float = np.inf
) -> Vector:
    """P(|N(bound, sd^2)| >= |estimate|): the test that `covering` inverts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, far = np.abs(estimate) / sd, bound / sd
        p = np.asarray(norm.sf(ratio - far) + norm.sf(ratio + far))
    return np.asarray(2 * t.sf(norm.isf(p / 2), degrees)) if np.isfinite(degrees).any() else p


def covering(
    z: Vector | float, bound: Vector, sd: Vector, degrees: Vector | float = np.inf
) -> Vector:
    """sd times the quantile of |N(bound / sd, 1)| at the level that `z` has for |N(0, 1)|.

    With finite degrees of freedom, `z` is first replaced by the quantile of Student's t
    distribution at its level.
    """
    z = t.isf(norm.sf(z), degrees) if np.isfinite(degrees).any() else z
    ratio = np.divide(bound, sd, out=np.full_like(sd, np.inf), where=sd > 0)
    far = ratio > FAR_BOUND  # all of the error lies on one side
    folded = np.sqrt(ncx2.isf(2 * norm.sf(z), 1, np.where(far, 0.0, ratio) ** 2))
    critical = np.where(ratio == 0, z, folded)
    return np.where(far, bound + norm.isf(2 * norm.sf(z)) * sd, critical * sd)


BIAS_RATIOS = np.r_[np.linspace(0.0, 5.0, 101), FAR_BOUND]
"""Ratios of bias and standard error at which `folded_quantile` is exact."""


def folded_quantile(ratio: Vector) -> Vector:
    """The 95% quantile of |N(ratio, 1)|, interpolated linearly (`covering`)."""
    beyond = np.maximum(ratio - FAR_BOUND, 0.0)
    return np.asarray(np.interp(ratio, BIAS_RATIOS, _quantiles()) + beyond)


@cache
def _quantiles() -> Vector:
    return covering(USUAL_Z, BIAS_RATIOS, np.ones(len(BIAS_RATIOS)))
