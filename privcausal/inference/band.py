"""Spread of an effect's error under a prior that does not hope for few terms.

An estimate may lean on a prior under which most coefficients are negligible. Where moments say
little, such a prior's own posterior is narrow around what it believes. Bands take the posterior
under a public reference prior N(0, R) of plausible effects instead. With its mean m and covariance
V, the error of any estimate c has the second moment V + (c - m)(c - m)'.
"""

from __future__ import annotations

import numpy as np

from privcausal.inference.additive import Moments, noise_cov, positive_part
from privcausal.typing import Matrix, Vector


def spread(moments: Moments, reference: Matrix, estimate: Vector) -> Matrix:
    """V + (c - m)(c - m)', shape (p, p), for the prior covariance `reference` (p, p)."""
    gram = positive_part(moments.gram)
    error = moments.noise_var * gram + noise_cov(moments, estimate)
    lead = gram @ reference
    gain = np.linalg.solve(error + lead @ gram.T, lead).T
    gap = estimate - gain @ moments.cross
    cov = reference - gain @ lead
    return np.asarray(0.5 * (cov + cov.T) + np.outer(gap, gap))
