"""How strong an unmeasured confounder would have to be, from what a fit has released.

With theta = E[Y alpha] of a weight alpha (its Riesz representer) and a regression g, leaving out a
confounder biases theta by at most

    S sqrt(C_Y^2 C_D^2),    S^2 = E[(Y - g)^2] E[alpha^2],

where C_Y^2 is the share of the residual variance of Y that it explains, and C_D^2 = r / (1 - r) for
the share r of the variance of alpha that it would add (Chernozhukov, Cinelli, Newey, Sharma and
Syrgkanis 2022, "Long Story Short", Theorem 2 and Corollary 1). In a linear model of the treatment,
r is the share of its residual variance (Cinelli and Hazlett 2020).

S is not released as such. The score of the estimate is tau(x) - theta + alpha (Y - g), with
n Var = Var(tau) + E[alpha^2 (Y - g)^2]: where the residual variance does not fall with the weight,
that is at least S^2. So S is taken from the sampling variance of the estimate, which is rather too
large than too small: as it counts what effects vary, and is raised by its own noise. A larger S
makes a smaller robustness value.
"""

from __future__ import annotations

import math

from privcausal.errors import CapabilityError


def scale_of(sampling_variance: float, size: float, max_rows: int = 1) -> float:
    """S in units of the outcome, from the variance of an estimate over `size` rows.

    Where up to `max_rows` rows are one unit's, the variance was multiplied by that.
    """
    return math.sqrt(max(sampling_variance, 0.0) * size / max_rows)


def largest_bias(scale: float, r2_outcome: float, r2_treatment: float) -> float:
    """The most that a confounder can move the estimate, S sqrt(C_Y^2 C_D^2).

    Parameters
    ----------
    r2_outcome : float
        Share of the outcome's residual variance that it explains, in [0, 1].
    r2_treatment : float
        The same of the treatment (of the weight's variance), in [0, 1).
    """
    for name, share, open_ in (("outcome", r2_outcome, False), ("treatment", r2_treatment, True)):
        if not (0 <= share <= 1) or (open_ and share == 1):
            end = "[0, 1)" if open_ else "[0, 1]"
            raise CapabilityError(f"r2_{name} is a share in {end}, such as 0.1")
    return scale * math.sqrt(r2_outcome * r2_treatment / (1 - r2_treatment))


def robustness_value(distance: float, scale: float) -> float:
    """The share r of both, outcome and treatment, whose largest bias is `distance`.

    S r / sqrt(1 - r) = distance, so r = (sqrt(f^4 + 4 f^2) - f^2) / 2 with f = distance / S.
    """
    if distance <= 0:
        return 0.0
    if scale <= 0 or not math.isfinite(distance / scale):
        return 1.0
    f = distance / scale
    # 2 / (1 + sqrt(1 + 4 / f^2)): the same without the difference of large numbers
    return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 / f**2))
