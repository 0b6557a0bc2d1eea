"""Released estimates as pandas frames, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from privcausal.accounting import PICO, Release, epsilon_of
from privcausal.errors import CapabilityError
from privcausal.inference.average import AverageEstimate
from privcausal.learners import Estimate
from privcausal.typing import Matrix

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 20_000
_PUBLIC_SEED = 7_071  # quadrature points of the simultaneous critical value; public


def check_alpha(alpha: float) -> float:
    """`alpha` in (0, 1), or an error."""
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not (number and 0 < alpha < 1):
        raise CapabilityError("alpha must be a number in (0, 1), such as 0.05 for 95 % intervals")
    return float(alpha)


def critical(cov: Matrix, alpha: float, *, simultaneous: bool) -> float:
    """Normal critical value, for each interval or for all of them at once.

    Simultaneous: the 1 - alpha quantile of max |z| under the estimates' joint correlation, so that
    all intervals cover together.
    """
    alpha = check_alpha(alpha)
    single = float(norm.ppf(1 - alpha / 2))
    finite = np.isfinite(np.diag(cov)) & (np.diag(cov) > 0)
    if not simultaneous or finite.sum() < 2:
        return single
    sd = np.sqrt(np.diag(cov)[finite])
    correlation = cov[np.ix_(finite, finite)] / np.outer(sd, sd)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(_PUBLIC_SEED).standard_normal((_DRAWS, len(sd))) @ root.T
    return max(single, float(np.quantile(np.abs(draws).max(axis=1), 1 - alpha)))


def table(found: AverageEstimate, z: float, *, groups: bool) -> pd.DataFrame:
    """estimate std_error conf_low conf_high privacy_share, a row for each term or group."""
    import pandas as pd

    names, at = rows_of(found, groups=groups)
    estimate, half = found.estimate[at], found.half_widths(z)[at]
    variance = np.diag(found.cov)[at]
    se = np.sqrt(variance)
    share, known = np.full(len(variance), np.nan), np.isfinite(variance) & (variance > 0)
    share[known] = np.diag(found.privacy)[at][known] / variance[known]
    return pd.DataFrame(
        {
            "estimate": estimate,
            "std_error": se,
            "conf_low": estimate - half,
            "conf_high": estimate + half,
            "privacy_share": share,
        },
        index=pd.Index(names, name="term"),
    )


def within(frame: pd.DataFrame, reach: float, rows: int) -> pd.DataFrame:
    """The first `rows` with estimates and limits in [-reach, reach], where their truths are known
    to be.

    An interval that lies outside was wrong: it becomes the whole range. So none covers less.
    """
    value, low, high = (frame[c].to_numpy(copy=True) for c in ("estimate", "conf_low", "conf_high"))
    at = slice(rows)
    outside = (low[at] > reach) | (high[at] < -reach)
    low[at] = np.where(outside, -reach, np.clip(low[at], -reach, reach))
    high[at] = np.where(outside, reach, np.clip(high[at], -reach, reach))
    value[at] = np.clip(value[at], -reach, reach)
    return frame.assign(estimate=value, conf_low=low, conf_high=high)


def rows_of(found: AverageEstimate, *, groups: bool) -> tuple[tuple[str, ...], slice]:
    """Names and positions of the terms, or of the groups."""
    m = len(found.terms)
    return (found.groups, slice(m, None)) if groups else (found.terms, slice(0, m))


def budget_frame(estimate: Estimate) -> pd.DataFrame:
    """A line per release; `epsilon` is what the line's rho alone would be at the fit's delta."""
    return budget_lines(estimate.releases, estimate.plan.request.budget.delta)


def budget_lines(releases: Sequence[Release], delta: float) -> pd.DataFrame:
    """A line per release; `epsilon` is what its rho alone would be at `delta`, or its own price.

    The column rho sums to the total. A release from rows of its own, whose query is marked
    (parallel), is charged none: releases from other rows have paid as much. Its epsilon is that of
    its noise.
    """
    import pandas as pd

    lines = []
    for release in releases:
        c = release.charge
        epsilon = c.cost.epsilon / PICO + (epsilon_of(c.alone, delta) if c.alone else 0.0)
        lines.append(
            {
                "stage": c.stage, "query": c.query, "mechanism": c.mechanism,
                "neighbors": c.neighbors, "sensitivity": c.sensitivity, "noise_sd": c.noise_sd,
                "rho": c.cost.rho / PICO, "epsilon": epsilon,
                "delta": c.cost.delta / PICO, "rows": c.rows,
            }
        )  # fmt: skip
    return pd.DataFrame(lines)
