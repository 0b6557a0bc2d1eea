"""Released numbers as frames and curves: estimates with intervals, costs, and plot data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from privcausal import accounting
from privcausal.errors import CapabilityError, Strict, is_number
from privcausal.estimators import Estimate
from privcausal.features.design import Rows
from privcausal.inference import effects
from privcausal.inference.cells import CellEffect
from privcausal.inference.population import Population
from privcausal.report.tables import Shape
from privcausal.request import partition
from privcausal.request.schema import Interval, Levels, level_names
from privcausal.typing import Mask, Matrix, Vector

_DRAWS = 20_000
_PUBLIC_SEED = 7_071  # Public seed of the quadrature points for the simultaneous critical value.


def check_alpha(alpha: float) -> float:
    """`alpha` if it is in (0, 1); otherwise raises an error."""
    if not (is_number(alpha) and 0 < alpha < 1):
        raise CapabilityError(
            "alpha must be a number in (0, 1), for example 0.05 for 95% intervals."
        )
    return float(alpha)


def quantile(alpha: float) -> float:
    """Normal quantile for limits at level 1 - alpha."""
    return float(norm.ppf(1 - check_alpha(alpha) / 2))


def critical(cov: Matrix, alpha: float, *, simultaneous: bool) -> float:
    """Normal critical value, for each interval alone or for all intervals together.

    Simultaneous: the 1 - alpha quantile of max |z| under the joint correlation of the estimates.
    All intervals then cover together.
    """
    single = quantile(alpha)
    finite = np.isfinite(np.diag(cov)) & (np.diag(cov) > 0)
    if not simultaneous or finite.sum() < 2:
        return single
    sd = np.sqrt(np.diag(cov)[finite])
    correlation = cov[np.ix_(finite, finite)] / np.outer(sd, sd)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(_PUBLIC_SEED).standard_normal((_DRAWS, len(sd))) @ root.T
    return max(single, float(np.quantile(np.abs(draws).max(axis=1), 1 - alpha)))


def with_limits(
    estimate: Vector, spread: Vector, z: float, name: str = "estimate"
) -> dict[str, Vector]:
    """Columns estimate (or `name`) std_error conf_low conf_high."""
    low, high = estimate - z * spread, estimate + z * spread
    return {name: estimate, "std_error": spread, "conf_low": low, "conf_high": high}


def within_reach(frame: pd.DataFrame, least: Vector | float, most: Vector | float) -> pd.DataFrame:
    """Restrict estimates and limits to their known ranges; `least` is NaN for an unknown range.

    An interval entirely outside its range cannot contain the true value. It is replaced by the
    whole range, as is the interval of a missing estimate. Coverage therefore never decreases. Such
    an interval rejects no effect.
    """
    value, low, high = (frame[c].to_numpy(float) for c in ("estimate", "conf_low", "conf_high"))
    bounded = ~np.isnan(least)
    outside = bounded & ((low > most) | (high < least) | np.isnan(value))
    value, low, high = (np.where(bounded, np.clip(x, least, most), x) for x in (value, low, high))
    low, high = np.where(outside, least, low), np.where(outside, most, high)
    unknown = outside & ~np.isnan(value)
    p = {"p_value": frame["p_value"].where(~unknown, 1.0)} if "p_value" in frame else {}
    return frame.assign(estimate=value, conf_low=low, conf_high=high, **p)


def budget_lines(releases: Sequence[accounting.Release], delta: float) -> pd.DataFrame:
    """Privacy costs, one line per release.

    `epsilon` is the epsilon of the release's rho alone at `delta`, or its own cost in epsilon. The
    column rho sums to the total. A parallel release uses rows of its own. It is charged nothing,
    because releases from other rows have paid the same amount. Its epsilon is the epsilon of its
    noise. If it is priced in (epsilon, delta), the columns show this price, and its rho is nan.
    """
    lines = []
    for release in releases:
        charge = release.charge
        in_rho = 0.0
        if charge.alone:
            in_rho = accounting.epsilon_of(charge.alone, delta, charge.cost.gdp)
        cost = charge.price or charge.cost
        rho = charge.cost.rho / accounting.PICO if charge.price is None else np.nan
        names = ("stage", "query", "mechanism", "neighbors", "sensitivity", "noise_sd")
        line = {name: getattr(charge, name) for name in names} | {"rho": rho}
        line["epsilon"] = cost.epsilon / accounting.PICO + in_rho
        line["delta"] = cost.delta / accounting.PICO
        lines.append(line | {"rows": charge.rows, "parallel": charge.parallel})
    return pd.DataFrame(lines)


def gain_frame(effect: CellEffect, z: float) -> pd.DataFrame:
    """share gain std_error conf_low conf_high random: treating cells, largest effect first.

    The gain that a fit by cells expects from its own ranking. It is the sum of the cells' effects
    times their shares of the rows, and its spread comes from their joint distribution. Shrunken
    effects are posterior means, so ranking by them does not bias the gain upward. With
    ``shrink=False`` the gain looks larger than it is; `uplift` on other rows would show the
    difference.
    """
    order = np.argsort(-effect.value, kind="stable")
    weights = effect.share[order]
    gain = np.r_[0.0, np.cumsum(weights * effect.value[order])]
    parts = np.cumsum(weights[:, None] * effect.root[order], axis=0)
    spread = np.r_[0.0, np.linalg.norm(parts, axis=1)]
    share = np.r_[0.0, np.cumsum(weights)]
    curve = with_limits(gain, spread, z, "gain")
    return pd.DataFrame({"share": share} | curve | {"random": share * gain[-1]})


# -- the effect along each modifier ----------------------------------------------------------------

CURVE_GRID, SAMPLE = 41, 200


def shapes_of(estimate: Estimate, z: float, level: float) -> tuple[Shape, ...]:
    """One curve per modifier, with the band of the averaged effect; none if there are no bands.

    The average is over the synthetic population, or over the noisy counts of cells.
    """
    effect, population = estimate.effect, estimate.population
    if effect is None or isinstance(effect, effects.ArmPolynomials):
        return ()
    if isinstance(effect, CellEffect):
        if not isinstance(effect.partition, partition.Product):
            return ()
        axes = effect.partition.axes
        sizes = [axis.size for axis in axes]
        parts = np.unravel_index(np.arange(effect.partition.size), sizes)
        shapes = []
        for axis, part in zip(axes, parts, strict=True):
            weights = (part == np.arange(axis.size)[:, None]) * (effect.share + 1e-12)
            weights = weights / weights.sum(axis=1, keepdims=True)
            value = weights @ effect.value
            spread = np.sqrt(((weights @ effect.root) ** 2).sum(axis=1))
            indices = np.arange(axis.size)
            grid: list[float] | list[str]
            if axis.labels:
                kind, grid = "levels", list(axis.labels)
            else:
                # Draw each part from its lower to its upper end.
                kind, indices = "continuous", np.repeat(indices, 2)
                grid = np.repeat(axis.ends, 2)[1:-1].tolist()
            shapes.append(
                Shape(
                    name=axis.name,
                    kind=kind,  # type: ignore[arg-type]  # the two literals
                    grid=grid,
                    estimate=value[indices].tolist(),
                    conf_low=(value - z * spread)[indices].tolist(),
                    conf_high=(value + z * spread)[indices].tolist(),
                    interval_label=f"{level:g}% interval by cell",
                )
            )
        return tuple(shapes)
    rows = population.rows(estimate.propensity)
    variables = estimate.plan.request.formula.effect_variables
    return tuple(_shape(effect, population, rows, name, z, level) for name in variables)


def _shape(
    effect: effects.Effect, population: Population, rows: Rows, name: str, z: float, level: float
) -> Shape:
    """The mean effect over a sample of the rows at each point of a modifier, and its band."""
    domain = population.schema[name]
    if isinstance(domain, Interval):
        points = np.linspace(domain.lo, domain.hi, CURVE_GRID)
        grid: list[float] | list[str] = points.tolist()
    else:
        grid = list(level_names(domain))
        points = np.arange(len(grid), dtype=np.int64 if isinstance(domain, Levels) else np.float64)
    m, size = len(points), min(SAMPLE, len(rows))
    frame: dict[str, Any] = {v: np.tile(x[:size], m) for v, x in rows.frame.items()}
    frame[name] = np.repeat(points, size)
    propensity = None if rows.propensity is None else np.tile(rows.propensity[:size], m)
    crossed = Rows(frame, m * size, propensity)
    mean = effect(crossed).reshape(m, size).mean(axis=1)
    variance = np.zeros(m) if effect.pieces else np.full(m, np.nan)  # The variance is unknown.
    for piece in effect.pieces:
        phi = crossed.phi(piece.additive.features)
        if piece.weight is not None:
            phi = phi * piece.weight(crossed)[:, None]
        average = phi.reshape(m, size, -1).mean(axis=1)
        variance += np.einsum("ij,jk,ik->i", average, piece.cov, average)
    sd = np.sqrt(np.maximum(variance, 0.0))
    return Shape(
        name=name,
        kind="continuous" if isinstance(domain, Interval) else "levels",
        grid=grid,
        estimate=mean.tolist(),
        conf_low=np.clip(mean - z * sd, -effect.reach, effect.reach).tolist(),
        conf_high=np.clip(mean + z * sd, -effect.reach, effect.reach).tolist(),
        interval_label=f"approximate {level:g}% band" if effect.pieces else "no band",
    )


# -- by cells ----------------------------------------------------------------------------------


def cell_table(effect: CellEffect, z: float) -> pd.DataFrame:
    """treated control estimate std_error conf_low conf_high, one row per cell; counts are noisy."""
    counts = {"treated": effect.count[:, 1], "control": effect.count[:, 0]}
    return pd.DataFrame(
        counts | with_limits(effect.value, effect.spread, z),
        index=pd.Index(effect.partition.labels, name="cell"),
    )


@dataclass(frozen=True, eq=False)
class Prediction(Strict):
    """Estimates at new points, under the names of statsmodels.

    `frame` is `predict` as a function of alpha. Rows without a value are not `present`, (n, 1).
    Single outcomes have no limits, because the distribution of residuals was not released.
    """

    present: Mask
    frame: Callable[[float], pd.DataFrame]

    predicted_mean = property(lambda self: self.summary_frame()["mean"].to_numpy())
    se_mean = property(lambda self: self.summary_frame()["mean_se"].to_numpy())

    def at(self, alpha: float) -> pd.DataFrame:
        """As `predict` returns it."""
        frame = self.frame(alpha)
        frame[~self.present[:, 0]] = np.nan
        return frame

    def conf_int(self, alpha: float = 0.05) -> Matrix:
        """Limits of the mean, shape (n, 2)."""
        return self.summary_frame(alpha).to_numpy()[:, 2:]

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """mean mean_se mean_ci_lower mean_ci_upper, index of the new data."""
        frame = self.at(alpha)[["estimate", "std_error", "conf_low", "conf_high"]]
        return frame.set_axis(["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"], axis=1)
