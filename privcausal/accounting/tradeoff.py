"""Trade-off functions of f-DP: the joint guarantee of parallel parts of one fit.

f(alpha) is the smallest type II error of any test at level alpha between two neighboring tables
(Dong, Roth and Su 2019). All functions here are symmetric, f(f(alpha)) = alpha. The half with slope
-1 or steeper therefore determines the whole function.

Never above the truth
---------------------
A represented function must not lie above the true one, because it would then claim too much
privacy. Chords of a convex function lie above it, so knots are never points of a curve. A curve is
replaced by finitely many supporting lines. Each line is a proven pair (epsilon_i, delta_i) with
f >= 1 - delta_i - exp(epsilon_i) alpha. The knots are the corners of the maximum of these lines,
which lies below the curve everywhere. From then on, all operations are exact on piecewise-linear
functions, up to float rounding. Knots are moved down by `MARGIN` to cover the rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from privcausal.accounting import price
from privcausal.accounting.price import pico
from privcausal.errors import BudgetError, as_plain, is_number
from privcausal.prices import at_most
from privcausal.typing import Vector

MARGIN = 4e-15
"""About 20 units in the last place. Knots and answers are moved by this much to cover rounding."""

MAX_LOSS = 700.0
"""Privacy losses above this count as certain, because exp(700) is close to the largest float."""


@dataclass(frozen=True, slots=True, eq=False)
class TradeOff:
    """A symmetric, convex, decreasing, piecewise-linear trade-off function on [0, 1].

    Built by `from_dp`, `from_gaussian`, `from_zcdp` and `minimum`.

    Attributes
    ----------
    level : Vector, shape (k,)
        alpha of the knots, increasing from 0 to the point where f(alpha) = alpha.
    power : Vector, shape (k,)
        1 - f at the knots, increasing. Stored instead of f. Near alpha = 0, f is 1 minus an amount
        that, for a small delta, is much smaller than a float near 1 can represent.

    Examples
    --------
    >>> curve = pc.TradeOff.from_gaussian(1.0)
    >>> round(float(curve(0.05)), 3)
    0.74
    """

    level: Vector
    power: Vector

    def __post_init__(self) -> None:
        for name in ("level", "power"):
            knots = np.array(getattr(self, name), dtype=np.float64)
            knots.flags.writeable = False
            object.__setattr__(self, name, knots)
        level, power = self.level, self.power
        half = level.ndim == 1 and level.shape == power.shape and len(level) and level[0] == 0
        if half:
            steps, rises = np.diff(level), np.diff(power)
            half = ((steps > 0) & (rises >= 0)).all() and 0 <= power[0] <= power[-1] <= 1
        if half:
            slopes, diagonal = rises / steps, abs(level[-1] + power[-1] - 1) < 1e-12
            # slopes of 1 - f decrease to at least 1; the slack covers rounding of tiny differences
            half = diagonal and (slopes[1:] <= slopes[:-1] * (1 + 1e-6)).all()
        if not half:
            raise BudgetError("These knots do not define a symmetric convex trade-off function.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TradeOff) and all(
            mine.tobytes() == theirs.tobytes()
            for mine, theirs in ((self.level, other.level), (self.power, other.power))
        )

    def __hash__(self) -> int:
        return hash((self.level.tobytes(), self.power.tobytes()))

    @classmethod
    def from_dp(cls, epsilon: float, delta: float = 0.0) -> Self:
        """max(0, 1 - delta - e^eps alpha, e^-eps (1 - delta - alpha)), exactly (epsilon, delta)-DP.

        `epsilon` in [0, 700], `delta` in [0, 1].

        Examples
        --------
        >>> round(pc.TradeOff.from_dp(1.0, 1e-5).epsilon(1e-5), 9)
        1.0
        """
        epsilon, delta = _need("epsilon", epsilon, 0, MAX_LOSS), _need("delta", delta, 0, 1)
        return cls._from_profile(np.array([epsilon], float), np.array([delta], float))

    @classmethod
    def from_gaussian(cls, mu: float) -> Self:
        """G_mu, the test between N(0, 1) and N(mu, 1), with `mu` from 1e-9 to 30.

        For audits, and for stages that a user declares. Its profile (Balle and Wang 2018) is
        delta(epsilon) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

        Examples
        --------
        >>> round(pc.TradeOff.from_gaussian(1.0).delta(1.0), 4)
        0.1269
        """
        mu = _need("mu", mu, 1e-9, 30)
        epsilon = _losses(mu)
        return cls._from_profile(epsilon, price.gaussian_delta(epsilon, mu))

    @classmethod
    def from_noise(cls, rho: int, releases: int, failing: float = 0.0) -> Self:
        """The vault's discrete Gaussian noise: G_mu at mu^2 / 2 = rho, less its slack.

        Parameters
        ----------
        rho : int
            Total pico-rho; mu from 1e-9 to 30.
        releases : int
            Number of releases, each of at most `price.NUMBERS` numbers.
        failing : float
            An additional delta.
        """
        mu = price.gaussian_mu(rho)
        _need("mu", mu, 1e-9, 30)
        epsilon = _losses(mu)
        delta = np.array([price.delta_of(e, rho, releases) for e in epsilon.tolist()])
        # Far out, only the slack or `failing` remains, and further lines would be rounding error.
        low = delta <= max(1e-6 * failing, 2 * float(delta.min()))
        last = int(np.argmax(low)) + 1 if low.any() else len(delta)
        return cls._from_profile(epsilon[:last], np.minimum(1, delta[:last] + failing))

    @classmethod
    def from_zcdp(cls, rho: float) -> Self:
        """sup over delta of f_(epsilon(delta), delta) for rho-zCDP, `rho` from 1e-12 to 450.

        This is proven for any rho-zCDP mechanism, hence below G_mu at mu = sqrt(2 rho).

        Examples
        --------
        >>> round(pc.TradeOff.from_zcdp(0.1).epsilon(1e-5), 2)
        1.91
        """
        rho = _need("rho", rho, 1e-12, min(450, price.MAX_RHO))
        epsilon = _losses(math.sqrt(2 * rho))
        curve = price.gaussian_profiles().map(price.gaussian_mu(pico(rho)))
        return cls._from_profile(epsilon, np.array([curve.delta(e) for e in epsilon.tolist()]))

    @classmethod
    def minimum(cls, *functions: TradeOff) -> Self:
        """min{f_1, ..., f_k}**, the guarantee of stages on disjoint rows (Niu et al. Theorem 6).

        Valid if the part of a row does not depend on the data: a split by index under
        substitution, or by independent random bits under add_remove.

        Privacy
        -------
        The part of a row is drawn without looking at values. Fix the draw. Neighboring tables then
        differ in one part i, also after each row is transformed by released functions. The other
        stages read the same rows in both tables, so a test between the tables can simulate them.
        It therefore makes at least the errors that f_i allows, hence at least their minimum over i.
        Trade-off functions are convex, so the bound also holds for the convex envelope. Averaging
        over draws does not help the attacker, because the draw does not depend on the table.

        Examples
        --------
        >>> halves = pc.TradeOff.from_dp(1), pc.TradeOff.from_dp(2)
        >>> round(pc.TradeOff.minimum(*halves).epsilon(0), 6)
        2.0
        """
        if not functions:
            raise BudgetError("minimum() requires at least one trade-off function.")
        level = np.concatenate([f.level for f in functions])
        power = np.concatenate([f.power for f in functions])
        # The function with the smallest diagonal value ends the half; later knots are mirrored.
        half = level <= min(f.level[-1] for f in functions)
        level, power = convex_envelope(level[half], -power[half])
        return cls(level, -power)

    @classmethod
    def _from_profile(cls, epsilon: Vector, delta: Vector) -> Self:
        """The maximum of the lines 1 - delta_i - e^epsilon_i alpha and of their mirror images."""
        # other lines carry no information, and their corners are rounding error
        informative = delta < 1 - 1e-9
        if not informative.any():
            return cls(np.zeros(1), np.ones(1))
        # As a function of e^epsilon, delta is convex: a line off the envelope touches nowhere.
        # (e^epsilon - 1 is used because differences of e^epsilon lose digits if epsilon is small.)
        excess, gap = convex_envelope(np.expm1(epsilon[informative]), delta[informative])
        corner = (gap[:-1] - gap[1:]) / np.diff(excess)
        # Each line meets its mirror image on the diagonal f(alpha) = alpha, where the half ends.
        middle = float(((1 - gap) / (2 + excess)).max()) * (1 - MARGIN)
        half = corner < middle
        level = np.concatenate([[0], corner[half][::-1], [middle]])
        inner = (gap[:-1] + corner + excess[:-1] * corner)[half]
        power = np.concatenate([gap[-1:], inner[::-1], [1 - middle]])
        # Lower the knots by a margin, but not the first: its power is a delta as given, and
        # (0, delta) must stay delta.
        lower = np.append(power[:1], np.minimum(1, power[1:] * (1 + MARGIN)))
        power = np.maximum.accumulate(lower)
        power[-1] = 1 - level[-1]
        # If rounding put several knots on one level, keep the lowest.
        last = np.append(np.diff(level) > 0, True)
        return cls(level[last], power[last])

    def __call__(self, alpha: ArrayLike) -> Vector:
        """f(alpha), the least type II error at level `alpha` in [0, 1]; same shape as `alpha`."""
        level = np.asarray(alpha, dtype=np.float64)
        if not ((level >= 0) & (level <= 1)).all():
            raise BudgetError("alpha is the level of a test and must be between 0 and 1.")
        steep = 1 - np.interp(level, self.level, self.power)
        flat = np.interp(1 - level, self.power, self.level, left=0.0)
        beta = np.where(level <= self.level[-1], steep, flat)
        return np.asarray(np.maximum(0, beta - MARGIN), dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """The least delta with (epsilon, delta)-DP: sup over alpha of 1 - f - e^epsilon alpha.

        Examples
        --------
        >>> round(curve.delta(2.0), 4)
        0.0209
        """
        _need("epsilon", epsilon, 0, MAX_LOSS)
        return float(np.clip(self.power - math.exp(epsilon) * self.level, 0, 1).max())

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with (epsilon, delta)-DP; infinite if there is none.

        Examples
        --------
        >>> round(curve.epsilon(1e-5), 2)
        4.38
        """
        _need("delta", delta, 0, 1)
        above = self.power > delta
        with np.errstate(divide="ignore"):
            slopes = np.log(self.power[above] - delta) - np.log(self.level[above])
        return float(max(0.0, slopes.max(initial=0.0))) * (1 + MARGIN)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{at_most(self.epsilon(d))} at delta={d:g}" for d in (1e-6, 1e-5))
        return f"TradeOff(epsilon {pairs})"


def convex_envelope(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """The corners of the greatest convex function below the points (x, y), by increasing x.

    On the knots of piecewise-linear convex functions it is the double conjugate of their minimum.
    """
    hull: list[tuple[float, float]] = []
    order = np.lexsort((y, x))
    for point in zip(x[order].tolist(), y[order].tolist(), strict=True):
        if hull and hull[-1][0] == point[0]:
            continue  # the lowest point at this x came first
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) / (x1 - x0) < (point[1] - y1) / (point[0] - x1):
                break
            hull.pop()
        hull.append(point)
    corners = np.array(hull, dtype=np.float64)
    return corners[:, 0], corners[:, 1]


def _losses(mu: float) -> Vector:
    """A grid of epsilon, evenly spaced in standard deviations of the Gaussian privacy loss.

    It extends to a delta of about 1e-105, or to `MAX_LOSS`. A step of 1/70 sd keeps epsilon(delta)
    within 1e-4 of its value.
    """
    sd = np.linspace(-22, 22, 3001)
    epsilon = mu * (mu / 2 + sd)
    inside = (epsilon > 0) & (epsilon < MAX_LOSS)
    return np.concatenate([[0.0], epsilon[inside]])


def _need(name: str, value: float, low: float, high: float) -> float:
    value = as_plain(value)
    if not is_number(value) or not low <= value <= high:
        raise BudgetError(f"{name} of a trade-off function must be in [{low:g}, {high:g}].")
    return value
