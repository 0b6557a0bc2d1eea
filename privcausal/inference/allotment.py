"""How much of a norm each entry of a noisy vector is worth, before it is asked for."""

from __future__ import annotations

import numpy as np

from privcausal.typing import Vector

FAR = 1e9
"""Noise that hides all that there is: by how much more makes no difference."""


def allotted(variance: Vector, noise: float) -> Vector:
    """Squared sizes u^2 of unit sum of least sum V S / (S + u^2 V), shape (p,).

    A coefficient of prior variance V is read with noise of variance S / u^2, which leaves the
    posterior variance V S / (S + u^2 V). The least sum has u^2 = (L - S / V)+, L the level at which
    the sizes sum to one (water-filling: Cover and Thomas 2006, Section 9.4).

    Parameters
    ----------
    variance : Vector
        V, shape (p,), each positive.
    noise : float
        S, the noise variance of an entry that has all of the norm.
    """
    price = noise / variance
    price = price - max(float(price.min()) - FAR, 0.0)  # floats could not tell 1 + price from price
    order = np.sort(price)
    levels = (1 + np.cumsum(order)) / np.arange(1, len(order) + 1)
    return np.asarray(np.maximum(levels[int(np.flatnonzero(levels > order)[-1])] - price, 0.0))
