"""What a result says where nearly everyone is in one arm, as far as released numbers show it."""

from __future__ import annotations

import numpy as np

from privcausal.learners import Estimate
from privcausal.report.numbers import percent

MOST = 0.5
"""Share of the released population whose propensity is cut at one end, above which it is said."""


def note(estimate: Estimate) -> str:
    """A sentence; empty where both arms are there, the propensity is known, or none was released.

    Post-processing: the released propensity on the released population.
    """
    request = estimate.plan.request
    if estimate.nuisances is None or request.propensity is not None:
        return ""
    rows = estimate.population.rows(estimate.known)
    clip, propensity = request.clip, estimate.nuisances.propensity(rows)
    low, high = np.mean(propensity <= clip + 1e-9), np.mean(propensity >= 1 - clip - 1e-9)
    share = max(float(low), float(high))
    if share <= MOST:
        return ""
    what = "untreated" if low > high else "treated"
    return (
        f"For {percent(share)} of the rows the propensity is at the clip (from released numbers): "
        f"nearly all seem {what}, so that there is hardly anyone to compare with, and intervals "
        "can cover less than they say. Is the treatment coded 0 and 1?"
    )
