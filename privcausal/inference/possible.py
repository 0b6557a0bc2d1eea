"""Effects that the mean outcome leaves possible.

An outcome between a and b whose mean is near a holds no large effect: where m = E[Y] - a, w = b - a
and the arms have shares s_0 and s_1, E[Y(t)] - a is between 0 and m / s_t, so that

    -m / s_0 <= effect <= m / s_1  and, from the upper end,
    -(w - m) / s_1 <= effect <= (w - m) / s_0.

Both numbers are released with noise. The pair that is possible and nearest to them, in units of
their errors, is never farther from the truth than they are: the set is convex. For rare events it
is much nearer, as the difference of two means is that are each held between a and b.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privcausal.typing import Vector


class Level(NamedTuple):
    """Mean of an outcome that is not cut, above its lower bound, with its standard error."""

    mean: float
    sd: float


def possible(
    effect: float, sd: float, level: Level, shares: tuple[float, float], width: float
) -> float:
    """The effect of the possible pair that is nearest to a noisy effect and mean outcome.

    Parameters
    ----------
    effect, sd : float
        Estimate and its standard error.
    shares : (float, float)
        Of the control and of the treated arm.
    width : float
        Of the outcome's bounds.
    """
    control, treated = shares
    widest = width / (control + treated)
    corners = np.array(
        [[0.0, 0.0], [widest, treated * widest], [0.0, width], [-widest, control * widest]]
    )
    scale = np.array([sd, level.sd])
    point = np.array([effect, level.mean])
    nearest = _nearest(point / scale, corners / scale)
    return effect if nearest is None else float(nearest[0] * sd)


def _nearest(point: Vector, corners: Vector) -> Vector | None:
    """The nearest point of a convex polygon, whose corners (k, 2) go round anticlockwise.

    None for a point inside, which is itself the nearest.
    """
    sides = np.roll(corners, -1, axis=0) - corners
    away = point - corners
    if (sides[:, 0] * away[:, 1] >= sides[:, 1] * away[:, 0]).all():
        return None
    along = np.clip((away * sides).sum(axis=1) / (sides**2).sum(axis=1), 0.0, 1.0)
    found = corners + along[:, None] * sides
    return np.asarray(found[np.argmin(((point - found) ** 2).sum(axis=1))])
