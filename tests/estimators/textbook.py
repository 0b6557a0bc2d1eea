"""Fits without noise, cuts and limits, which are the textbook's estimators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from privcausal.estimators import averages, slopes
from privcausal.inference import cuts
from privcausal.inference.cuts import AbsHistogram, Cut, Extremes
from privcausal.inference.priors import PRIORS
from privcausal.testing import zero_noise


@contextmanager
def textbook(cut: float | None = None, **priors: float) -> Iterator[None]:
    """No noise, and no row is cut or limited, or all scores are cut at `cut`."""

    def threshold(extremes: Extremes, *_: Any, **__: Any) -> Cut:
        return Cut(4 * float(extremes.sizes.max()) if cut is None else cut, 0.0)

    def at_the_bound(sizes: AbsHistogram, *_: Any, **__: Any) -> float:
        return float(sizes.edges[-1])

    with (
        zero_noise(),
        weight_limits(np.inf),
        mock.patch.object(averages, "score_cut", threshold),
        mock.patch.object(slopes, "score_cut", threshold),
        mock.patch.object(cuts, "threshold_for_effect", at_the_bound),
        mock.patch.dict(PRIORS.__dict__, priors),
    ):
        yield


def weight_limits(*factors: float) -> AbstractContextManager[Any]:
    """Rows weigh at most one of these multiples of their weight in a difference of means."""
    return mock.patch.object(averages, "FACTORS", factors)
