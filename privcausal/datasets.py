"""Simulated studies with known effects, and readers of public files.

The package includes none of these files. A reader takes the path of a file, and warns if the file
is not the public one (`criteo` does not compare). The identifier is that of `git hash-object FILE`.

Age, severity and recovery of the clinic are beta-binomial. Their values are bounded whole numbers
(or tenths) with exact means. No value is rounded or clipped, and the ATE has a closed form.

Examples
--------
>>> study = pc.datasets.clinic(500)
>>> study.frame.shape
(500, 6)
"""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from privcausal.errors import CapabilityError, DataError, PrivcausalWarning
from privcausal.request.schema import Binary
from privcausal.typing import Frame, Matrix, Vector

if TYPE_CHECKING:
    import pandas as pd

# The source papers' simulations: studies with a known truth.
#
# Every function draws a `Study` of `n` rows from the NumPy generator of a `seed`. It raises
# `DataError` if n < 1. These data are public, so a seed is safe; privacy noise has none.
# All studies follow the model
#
#     X ~ P_X,   T | X ~ Bernoulli(e(X)),   Y = b(X) + T tau(X) + noise
#
# with propensity e, baseline b and effect tau. The columns are "Y", "T", "X1", "X2", ... Drawn
# coefficients and covariances are stored as constants, next to the command that drew them. A new
# NumPy version therefore cannot change the truth.
#
# References:
# Niu et al. (2022), Differentially private estimation of heterogeneous causal effects.
# Nie & Wager (2021), Quasi-oracle estimation of heterogeneous treatment effects.
# Oprescu, Syrgkanis & Wu (2019), Orthogonal random forest for causal inference.
# Schröder et al. (2025), DP-CATE; Schröder et al. (2025), PrivATE.
# Betlei et al. (2021), Differentially private individual treatment effect estimation from
# aggregated data.

SimulatedDomain: TypeAlias = tuple[float, float] | list[str]
Setup = Literal["A", "B", "C", "D", "E", "D-code", "E-code"]
Setting = TypeVar("Setting")


@dataclass(frozen=True, eq=False)
class Study:
    """One simulated study with its true functions and its true average effect.

    Attributes
    ----------
    name, formula : str
    bounds : dict
        Column to (low, high) or to levels, for `bounds=`. They do not depend on the drawn rows.
    ate : float
        Population average treatment effect.
    frame : pandas.DataFrame
        The rows, shape (n, 2 + p).
    tau, propensity, baseline : Vector
        E[Y(1) - Y(0) | X], P(T = 1 | X) and E[Y(0) | X] of the rows, shape (n,).
    effect : callable
        Takes a frame of m rows of covariates and returns their true tau, shape (m,).
    """

    name: str
    formula: str
    bounds: dict[str, SimulatedDomain]
    ate: float
    frame: pd.DataFrame = field(repr=False)
    tau: Vector = field(repr=False)
    propensity: Vector = field(repr=False)
    baseline: Vector = field(repr=False)
    effect: Callable[[Frame], Vector] = field(repr=False)


class Surface(NamedTuple):
    """The three true functions at the same points, each of shape (n,)."""

    propensity: Vector
    baseline: Vector
    tau: Vector


def _true_effect(columns: tuple[str, ...], surface: Callable[..., Surface], frame: Frame) -> Vector:
    """True tau of a frame. A partial function can be pickled; a closure cannot."""
    return surface(*(np.asarray(frame[name], dtype=np.float64) for name in columns)).tau


def generator(n: int, seed: int) -> np.random.Generator:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise DataError(
            f"n={n!r} is not a valid number of rows. It must be a whole number of at least 1."
        )
    return np.random.default_rng(seed)


def _draw(
    name: str,
    rng: np.random.Generator,
    X: Matrix,
    surface: Callable[..., Surface],
    noise: Callable[[], Any],
    *,
    ate: float,
    x: Sequence[tuple[float, float]],
    y: tuple[float, float],
    halved: bool = False,
) -> Study:
    """Draw T, then the noise of Y, from the generator that drew X; `x` and `y` are bounds."""
    import pandas as pd

    n = len(X)
    truth = surface(*X.T)
    if halved:  # exactly half of the rows; if n is odd, a random bit decides on the last row
        T = rng.permutation(n) < (n + int(rng.integers(2))) // 2
    else:
        T = rng.uniform(size=n) < truth.propensity
    Y = truth.baseline + T * truth.tau + noise()
    names = tuple(f"X{j}" for j in range(1, X.shape[1] + 1))
    columns = dict(zip(names, X.T, strict=True))
    return Study(
        name=name,
        formula=f"Y ~ T | {' + '.join(names)}",
        bounds={"Y": y, "T": (0.0, 1.0), **dict(zip(names, x, strict=True))},
        ate=ate,
        frame=pd.DataFrame({"Y": Y, "T": T.astype(np.int64), **columns}),
        effect=partial(_true_effect, names, surface),
        **truth._asdict(),
    )


def _chosen(setups: Mapping[Any, Setting], key: object, argument: str) -> Setting:
    if key not in setups:
        choices = ", ".join(map(repr, setups))
        raise CapabilityError(f"{argument}={key!r} is unknown. Choose one of {choices}.")
    return setups[key]


def sigmoid(z: Vector) -> Vector:
    """1 / (1 + exp(-z)), written with tanh to avoid overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


# --- Niu et al. (2022) -----------------------------------------------------------------
# Y = b + T tau + noise with b = E[Y(0)|X], as in their table 1. Setups A to D come from Nie and
# Wager, who write b + (T - 1/2) tau and halve the b of D.

# The authors' notebook draws m = np.random.RandomState(1).uniform(-1, 1, (12, 12)) and takes
# (m @ m.T)[:6, :6]. The paper says only "a random data generator".
_COVARIANCE = np.array([
    [3.2426, 2.0518, 1.4371, -0.1294, 1.6740, -0.4711],
    [2.0518, 4.3800, 1.8209, 0.1913, 0.8282, -0.0652],
    [1.4371, 1.8209, 5.5328, 0.8708, -0.2447, 0.8849],
    [-0.1294, 0.1913, 0.8708, 4.9741, -0.9175, -1.6082],
    [1.6740, 0.8282, -0.2447, -0.9175, 3.8431, 0.3469],
    [-0.4711, -0.0652, 0.8849, -1.6082, 0.3469, 3.7635],
])  # fmt: skip
_CODE_ROOT = np.linalg.cholesky(_COVARIANCE)
# Rows are scaled to length 1. All variances are 1, and the limit 3.5 fits B to E.
_ROOT = _CODE_ROOT / np.linalg.norm(_CODE_ROOT, axis=1, keepdims=True)


def _niu(setup: Setup, *x: Vector) -> Surface:
    x1, x2, x3, x4, x5, x6 = x
    zero, pair = np.zeros_like(x1), x4 + x5
    match setup:
        case "A":
            wave = np.sin(math.pi * x1 * x2)
            baseline = wave + 2.0 * (x3 - 0.5) ** 2 + x4 + 0.5 * x5
            return Surface(np.clip(wave, 0.1, 0.9), baseline, 0.5 * (x1 + x2))
        case "B":
            baseline = np.maximum(np.maximum(x1 + x2, x3), 0.0) + np.maximum(pair, 0.0)
            return Surface(zero + 0.5, baseline, x1 + np.logaddexp(0.0, x2))
        case "C":
            return Surface(sigmoid(-x2 - x3), 2.0 * np.logaddexp(0.0, x1 + x2 + x3), zero + 1.0)
        case "D" | "D-code":
            e = 1.0 / (1.0 + np.exp(-x1) + np.exp(-x2))
            first, second = np.maximum(x1 + x2 + x3, 0.0), np.maximum(pair, 0.0)
            # the notebook omits x3
            base = first if setup == "D" else np.maximum(x1 + x2, 0.0)
            return Surface(e, base + second, first - second)
        case "E":
            linear = x1 + 2.0 * x2 + 3.0 * x3 + 4.0 * x4 + 5.0 * x5 + 6.0 * x6
            baseline = linear + x1 * x6 + (np.abs(x3) < 0.5)
            return Surface(sigmoid(-x1 - x6), baseline, sigmoid(-x1) - x2 + x3 + x4 + x5 + x6)
        case "E-code":
            step = np.where(np.abs(x3) < 0.5, 0.8, 0.2)
            linear = 0.6 * (x2 + 2.0 * x3 + 3.0 * x4 + 4.0 * x5 + 5.0 * x6)
            e = np.clip(sigmoid(x1 + x6), 0.1, 0.9)
            effect = x2 - x3 + x4 + x5 + x6 + 5.0 * sigmoid(x1)
            return Surface(e, linear + x1 * x6 + step, effect)


_WIDE = (-3.5, 3.5)
# E log(1 + exp(Z)), Z ~ N(0, 1), by Gauss-Hermite quadrature with 200 nodes (100 agree):
# z, w = np.polynomial.hermite_e.hermegauss(200); w @ np.log1p(np.exp(z)) / w.sum()
_MEAN_SOFTPLUS = 0.8060591833474
# E max(N(0, s^2), 0) = s / sqrt(2 pi), with s^2 = 3 and 2.
_ATE_D = (math.sqrt(3.0) - math.sqrt(2.0)) / math.sqrt(2.0 * math.pi)
# E expit(X1) = 1/2 by symmetry; the mean of an indicator is the tail of N(0, s) beyond 1.
_ATE_E_CODE = 2.5 + sum(
    0.5 * math.erfc(1.0 / math.sqrt(s) / math.sqrt(2.0)) for s in np.diag(_COVARIANCE)[3:]
)

# Average effect, bounds of each covariate, and bounds of the outcome
_NIU: dict[Setup, tuple[float, list[tuple[float, float]], tuple[float, float]]] = {
    "A": (0.5, [(0.0, 1.0)] * 6, (-2.5, 6.5)),
    "B": (_MEAN_SOFTPLUS, [_WIDE] * 6, (-4.0, 9.0)),
    "C": (1.0, [_WIDE] * 6, (-3.0, 13.0)),
    "D": (_ATE_D, [_WIDE] * 6, (-4.0, 9.0)),
    "E": (0.5, [_WIDE] * 6, (-40.0, 40.0)),
    "D-code": (_ATE_D, [_WIDE] * 6, (-4.0, 9.0)),
    "E-code": (_ATE_E_CODE, [(-7.5, 7.5)] * 3 + [(0.0, 1.0)] * 3, (-15.0, 30.0)),
}


def niu(setup: Setup, n: int = 4000, seed: int = 0) -> Study:
    """Draw setup A, B, C, D or E of Niu et al. (2022, table 1): six covariates, noise N(0, 1).

    Parameters
    ----------
    setup : {"A", "B", "C", "D", "E", "D-code", "E-code"}
        A: uniform covariates, hard baseline. B: trial. C: constant effect 1. D: kinked effect.
        E: correlated covariates, discontinuous baseline. "D-code" and "E-code" are the versions
        in the authors' public notebook (github.com/FengshiNiu/DP-CATE). Any other value raises
        `CapabilityError`.

    Notes
    -----
    Use "E-code" to compare with the published figures for E, because the notebook differs from
    table 1. Table 1 does not state Sigma; "E" uses the notebook's covariance, scaled to unit
    variances. The notebook replaces X4 to X6 by indicators and has 5 expit(x1) in the effect. It
    also has the opposite sign in the propensity, and heteroscedastic noise.

    The authors' S-learner returns a constant. Its error is Var(tau) plus the squared error of the
    constant. The published error is 10.12 (n = 16,000, epsilon = 128). Var(tau) is 10.14 in the
    notebook's version, and 15.5 in table 1 with the notebook's covariance. In B, the published
    error is 1.2728 and Var(tau) is 1.272. The notebook's D omits x3 from the baseline, which does
    not change Var(tau).
    """
    ate, x, y = _chosen(_NIU, setup, "setup")
    rng = generator(n, seed)
    if setup == "A":
        X = rng.uniform(0.0, 1.0, (n, 6))
    else:  # N(0, L L') for the root L
        root = {"E": _ROOT, "E-code": _CODE_ROOT}.get(setup, np.eye(6))
        X = rng.standard_normal((n, 6)) @ root.T
    spread, common = np.ones(n), 0.0  # standard deviations of two noises
    if setup == "E-code":
        X, spread, common = np.hstack([X[:, :3], X[:, 3:] > 1.0]), 1.0 + X[:, 0], 1.0
    return _draw(
        f"niu-{setup}",
        rng,
        X,
        partial(_niu, setup),
        lambda: spread * rng.standard_normal(n) + common * rng.standard_normal(n),
        ate=ate,
        x=x,
        y=y,
    )


# --- Schröder et al. (2025): DP-CATE and PrivATE, both after Oprescu et al. (2019) -------


def _threshold(
    *x: Vector, beta: Mapping[int, float], gamma: Mapping[int, float], wave: int | None = None
) -> Surface:
    """Surface of T = 1{x'beta >= eta}, eta ~ U(-1, 1), b = x'gamma; columns are counted from 1.

    The propensity is e = (1 + x'beta) / 2, clipped to [0.1, 0.9] as in PrivATE. The effect is 1,
    or exp(2 x_1) + 3 sin(4 x_wave) (DP-CATE, eq. 73 and 74).
    """
    zero = np.zeros_like(x[0])
    toward, baseline = (
        sum((weight * x[j - 1] for j, weight in weights.items()), zero) for weights in (beta, gamma)
    )
    e = np.clip(0.5 * (1.0 + toward), 0.1, 0.9)
    if wave is None:
        return Surface(e, baseline, np.ones_like(zero))
    return Surface(e, baseline, np.exp(2.0 * x[0]) + 3.0 * np.sin(4.0 * x[wave - 1]))


# dpcate: rng = np.random.default_rng(2); rng.uniform(0, .3, 2); rng.uniform(0, 1, 2);
# support = rng.permutation(30)[:6] + 1; rng.uniform(0, .3, 6); rng.uniform(0, 1, 6).
# Seed 2 is the first with sum(beta) < 0.8 in dataset 2, so clipping does not change e.
_DPCATE_1 = {"beta": {1: 0.0785, 2: 0.0895}, "gamma": {1: 0.8142, 2: 0.0919}}
_DPCATE_2 = {
    "beta": {29: 0.2773, 30: 0.1413, 15: 0.2081, 7: 0.0322, 4: 0.0314, 21: 0.0606},
    "gamma": {29: 0.8844, 30: 0.6798, 15: 0.8492, 7: 0.6444, 4: 0.4065, 21: 0.5166},
}
# E exp(2U) + 3 E sin(4U), U ~ U(0, 1), equal in both datasets.
_ATE_WAVE = (math.exp(2.0) - 1.0) / 2.0 + 3.0 * (1.0 - math.cos(4.0)) / 4.0

# private_ate: rng = np.random.default_rng(3); rng.uniform(0, .3, 2); rng.uniform(0, 1, 2);
# i = rng.permutation(24)[:6]; rng.uniform(0, .3, 6); j = rng.permutation(24)[:6]; j[:3] = i[:3];
# rng.uniform(0, 1, 6); i + 1 and j + 1 are the supports of beta and gamma.
_PRIVATE_1 = {"beta": {1: 0.0257, 2: 0.0710}, "gamma": {1: 0.8013, 2: 0.5822}}
_PRIVATE_2 = {
    "beta": {4: 0.0942, 5: 0.1414, 6: 0.2920, 18: 0.2675, 19: 0.1755, 21: 0.0895},
    "gamma": {4: 0.8498, 6: 0.8785, 14: 0.1463, 16: 0.3939, 21: 0.1023, 24: 0.4797},
}
_TRIAL = {"beta": {}, "gamma": {1: 0.8013}}


def _oprescu(
    name: str,
    n: int,
    seed: int,
    p: int,
    coefficients: Mapping[str, Mapping[int, float]],
    y: tuple[float, float],
    wave: int | None = None,
    halved: bool = False,
) -> Study:
    """Draw p uniform covariates, T of `_threshold`, and noise ~ U(-1, 1)."""
    rng, ate = generator(n, seed), 1.0 if wave is None else _ATE_WAVE
    X, noise = rng.uniform(0.0, 1.0, (n, p)), partial(rng.uniform, -1.0, 1.0, n)
    surface = partial(_threshold, wave=wave, **coefficients)
    return _draw(name, rng, X, surface, noise, ate=ate, x=[(0.0, 1.0)] * p, y=y, halved=halved)


# Y is bounded. The limits are its range, rounded outward to whole numbers. theta lies in
# [1, 5.45] in dataset 1 and in [1 + 3 sin 4, e^2 + 3] = [-1.27, 10.39] in dataset 2.
_DPCATE = {1: (2, _DPCATE_1, (-1.0, 8.0), 1), 2: (30, _DPCATE_2, (-3.0, 16.0), 2)}
_PRIVATE = {1: (2, _PRIVATE_1, (-1.0, 4.0)), 2: (24, _PRIVATE_2, (-1.0, 5.0))}


def dpcate(dataset: Literal[1, 2], n: int = 3000, seed: int = 0) -> Study:
    """Draw dataset 1 or 2 of DP-CATE (Schröder et al. 2025, supplement G.1, eq. 70 to 74).

    X ~ U(0, 1)^p, p = 2 and 30; T = 1{X'beta >= eta}; Y = theta(X) T + X'gamma + noise; eta and
    noise ~ U(-1, 1). theta = exp(2 X1) + 3 sin(4 X1) and exp(2 X1) + 3 sin(4 X2). The paper draws
    3,000 rows and keeps 10% as a test sample.

    Notes
    -----
    The paper draws beta from U(0, 0.3) and gamma from U(0, 1) on "a support" of unstated size.
    Thirty positive coefficients would treat nearly all rows. Here, beta and gamma of dataset 2
    share a support of six, the size stated by PrivATE. Propensities stay below 0.88.
    """
    return _oprescu(f"dpcate-{dataset}", n, seed, *_chosen(_DPCATE, dataset, "dataset"))


def private_ate(dataset: Literal[1, 2], n: int = 3000, seed: int = 0) -> Study:
    """Draw dataset 1 or 2 of PrivATE (Schröder et al. 2025, supplement C.1.1, eq. 37 to 39).

    X ~ U(0, 1)^p, p = 2 and 24; T = 1{X'beta >= eta}, propensity clipped to [0.1, 0.9];
    Y = T + X'gamma + noise; eta and noise ~ U(-1, 1). The effect is 1 for all rows.

    Notes
    -----
    The supplement says p = 24 and the main text says 25; this function uses 24. In dataset 2, beta
    and gamma have six entries each and share three, so X4, X6 and X21 confound. The main text says
    that a subset of the covariates acts as confounders.
    """
    return _oprescu(f"private-ate-{dataset}", n, seed, *_chosen(_PRIVATE, dataset, "dataset"))


def private_trial(n: int = 1000, seed: int = 0) -> Study:
    """Draw PrivATE's synthetic trial (Schröder et al. 2025, supplement E.1).

    X1 ~ U(0, 1). Half of the rows are treated by complete randomization. Y = T + gamma X1 + noise,
    noise ~ U(-1, 1), with the gamma of X1 in `private_ate(1)`. The known propensity is 0.5.
    """
    return _oprescu("private-trial", n, seed, 1, _TRIAL, (-1.0, 3.0), halved=True)


def _sine(x1: Vector) -> Surface:
    return Surface(np.full_like(x1, 0.5), np.zeros_like(x1), np.sin(x1))


def betlei_sine(n: int = 20_000, seed: int = 0, sigma: float = 1.0) -> Study:
    """Draw the sine trial of ADUM (Betlei et al. 2021, section 3.1.1, eq. 4).

    X1 ~ U(-1, 1); T ~ Bernoulli(1/2); Y = T sin(X1) + N(0, sigma^2). The bounds of Y are
    -(1 + 3 sigma) and 1 + 3 sigma. The average effect is 0.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise: 1 in the paper's figure 1, 0.1 in its figure 2. The paper
        writes N(0, sigma), but section 2.1 has E[noise^2] = sigma^2. A negative value raises
        `DataError`.
    """
    if not sigma >= 0.0:
        raise DataError(f"sigma={sigma} is not a standard deviation. It must be at least 0.")
    y, rng = 1.0 + 3.0 * sigma, generator(n, seed)
    X, noise = rng.uniform(-1.0, 1.0, (n, 1)), partial(rng.normal, 0.0, sigma, n)
    return _draw("betlei-sine", rng, X, _sine, noise, ate=0.0, x=[(-1.0, 1.0)], y=(-y, y))


__all__ = [
    "Study", "Trial", "betlei_sine", "clinic", "clinic_effect", "criteo", "dpcate", "niu",
    "private_ate", "private_trial", "voting",
]  # fmt: skip

_WARDS = ("east", "north", "south", "west")  # must be sorted for the search in _ward_codes
_WARD_SHARE: Vector = np.array([0.30, 0.25, 0.25, 0.20])
_WARD_EFFECT: Vector = np.array([0.0, 2.0, -1.0, 1.0])  # points of recovery
_WARD_BASE: Vector = np.array([0.0, -2.0, 1.5, 0.5])  # points of recovery
_WARD_LOGIT: Vector = np.array([0.0, 0.5, -0.3, 0.2])
_AGE_MEAN, _AGE_SPREAD = 0.55, 5.0  # mean of (age - 18) / 77; sum of the two beta parameters
_SICK_LOW, _SICK_RISE = 0.25, 0.40  # mean severity / 10 at age 18; its increase up to age 95


def _beta_binomial(
    rng: np.random.Generator, mean: Vector, spread: float, steps: int
) -> NDArray[np.int64]:
    """Whole numbers in [0, steps] with mean steps * mean; the variance falls with spread."""
    chance = rng.beta(spread * mean, spread * (1.0 - mean))
    return rng.binomial(steps, chance).astype(np.int64)


def _ward_codes(ward: Any) -> NDArray[np.int64]:
    names = np.asarray(ward, dtype=np.str_)
    if not np.isin(names, _WARDS).all():
        raise DataError(f"Column 'ward' may contain only {', '.join(_WARDS)}.")
    return np.searchsorted(_WARDS, names).astype(np.int64)


def clinic_effect(frame: Frame) -> Vector:
    """Return the true effect of the program, in points of recovery, shape (n,).

    The effect is 8 + (severity - 4.5) - 4 ((age - 55) / 25)^2 + (2 north, -1 south, 1 west). The
    program helps severe cases more, and harms some of the oldest patients.

    Parameters
    ----------
    frame : Frame
        Columns "age" (years), "severity" and "ward"; another ward raises `DataError`.
    """
    age = np.asarray(frame["age"], dtype=np.float64)
    severity = np.asarray(frame["severity"], dtype=np.float64)
    bend: Vector = 4.0 * ((age - 55.0) / 25.0) ** 2
    return 8.0 + (severity - 4.5) - bend + _WARD_EFFECT[_ward_codes(frame["ward"])]


def _clinic_surface(columns: Mapping[str, NDArray[Any]]) -> Surface:
    """Severe cases and the young are treated more; severity, age and weight lower recovery."""
    years, ward = (columns["age"] - 60.0) / 20.0, _ward_codes(columns["ward"])
    sick, weight = columns["severity"] - 4.5, np.tanh((columns["bmi"] - 28.0) / 8.0)
    logit = 0.5 * sick - 0.8 * years + 0.4 * weight + _WARD_LOGIT[ward]
    baseline = 55.0 - 2.6 * sick - 6.0 * years - 5.0 * weight + _WARD_BASE[ward]
    # A smooth map to (0.1, 0.9): clipping at the default propensity_clip then adds no bias.
    return Surface(0.1 + 0.8 * sigmoid(logit), baseline, clinic_effect(columns))


def clinic(n: int = 5000, seed: int = 0) -> Study:
    """Draw patients of a simulated rehabilitation program that was not randomized.

    Severe cases and younger patients enter the program more often. Severe cases recover less
    without it, so the simple difference of means is much too small. The effect is
    `clinic_effect`, and its average has a closed form.

    Returns
    -------
    Study
        Outcome "recovery" (points, 0 to 100), treatment "programme" (0 or 1), modifiers "age"
        (years, 18 to 95), "severity" (0 to 10) and "ward" (east, north, south, west), control
        "bmi" (15 to 50). Propensities lie between 0.1 and 0.9.
    """
    import pandas as pd

    rng = generator(n, seed)
    # Draw age, severity (increasing in age), bmi and ward (independent of age and severity).
    years = _beta_binomial(rng, np.full(n, _AGE_MEAN), _AGE_SPREAD, 77)
    sick = _beta_binomial(rng, _SICK_LOW + _SICK_RISE * years.astype(float) / 77.0, 6.0, 100)
    columns = {
        "age": 18 + years,
        "severity": sick / 10.0,
        "bmi": np.round(15.0 + 35.0 * rng.beta(3.5, 6.0, n), 1),
        "ward": np.array(_WARDS, dtype=object)[rng.choice(4, size=n, p=_WARD_SHARE)],
    }
    truth = _clinic_surface(columns)
    treated = rng.uniform(size=n) < truth.propensity
    mean = (truth.baseline + treated * truth.tau) / 100.0
    recovery = _beta_binomial(rng, mean, 20.0, 1000) / 10.0
    outcome = {"recovery": recovery, "programme": treated.astype(np.int64)}
    # The average of `clinic_effect`, from the moments of its columns. A beta-binomial variable has
    # mean N m and variance N m (1 - m) (s + N) / (s + 1). Mean severity is linear in age.
    m, s, N = _AGE_MEAN, _AGE_SPREAD, 77.0
    age = 18.0 + N * m
    age_variance = N * m * (1.0 - m) * (s + N) / (s + 1.0)
    severity = 10.0 * (_SICK_LOW + _SICK_RISE * m)
    bend = 4.0 * (age_variance + (age - 55.0) ** 2) / 25.0**2
    ate = 8.0 + (severity - 4.5) - bend + float(_WARD_SHARE @ _WARD_EFFECT)
    bounds: dict[str, SimulatedDomain] = {
        "recovery": (0.0, 100.0), "programme": (0.0, 1.0), "age": (18.0, 95.0),
        "severity": (0.0, 10.0), "bmi": (15.0, 50.0), "ward": list(_WARDS),
    }  # fmt: skip
    return Study(
        name="clinic",
        formula="recovery ~ programme | age + severity + C(ward) | bmi",
        bounds=bounds,
        ate=ate,
        frame=pd.DataFrame({**outcome, **columns}),
        effect=clinic_effect,
        **truth._asdict(),
    )


_VOTERS: dict[str, SimulatedDomain] = {
    "persons": (1.0, 2.0), "newreg": (0.0, 1.0), "vote98": (0.0, 1.0), "vote00": (0.0, 1.0),
    "age": (18.0, 100.0), "female": (0.0, 1.0),
}  # fmt: skip
_VOTING_BLOB = "a1b4db2af830"
"""First digits of the identifier of the public file in git."""

_PLACES = ("state", "county", "competiv", "st_sen", "st_hse")


def _spiked(frame: Frame) -> Vector:
    """-VOTE00 / (2 + 100 / AGE), shape (n,); ages are clipped to their domain."""
    age = np.clip(np.asarray(frame["age"], dtype=np.float64), 18.0, 100.0)
    return -np.asarray(frame["vote00"], dtype=np.float64) / (2.0 + 100.0 / age)


def voting(path: str | Path, seed: int = 0) -> Study:
    """Read the voting data of Niu et al. (2022, section 5.1.2) and add a known effect.

    Arceneaux, Gerber and Green (2006) had people called before the vote of 2002. Nie and Wager
    (2021) drew three untreated people for two treated ones. Their sample has 59,264 treated and
    88,896 untreated rows with 11 covariates. The file is
    ``experiments_for_paper/section2_example/data_clean.csv`` of github.com/xnie/rlearner, from
    which the authors' notebook reads it. The complete experiment is Mobilization in
    github.com/gsbDBI/ExperimentData.

    The calls had almost no effect, so both papers add tau = -VOTE00 / (2 + 100 / AGE). With
    probability -tau, a person's outcomes become Y(0) = 1 and Y(1) = 0. Otherwise, the outcomes are
    unchanged.

    Parameters
    ----------
    path : str or Path
        CSV with a header: Y (voted in 2002), W (to be called), persons, state, county, competiv,
        st_sen, st_hse, newreg, vote98, vote00, age, female, in any order. The package does not
        include the file.
    seed : int
        Seed of the random bits that choose which outcomes change.

    Returns
    -------
    Study
        All rows. `bounds` of state, county, competiv, st_sen and st_hse are the ranges of the
        codes in the public file; the other bounds are declared. Treatment was randomized within
        state and competitiveness, and `propensity` is the treated share in each such cell.
        `baseline` is unknown (NaN).

    Raises
    ------
    DataError
        A column is missing, or holds a value that is not allowed.
    """
    import pandas as pd

    columns = ["Y", "W", *_VOTERS, *_PLACES]
    content = Path(path).read_bytes()
    frame = pd.read_csv(io.BytesIO(content))
    if missing := [column for column in columns if column not in frame]:
        raise DataError(f"The voting file lacks these columns: {', '.join(missing)}.")
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if not blob.startswith(_VOTING_BLOB):
        text = f"{Path(path).name} is not the public voting file, so numbers may differ from print."
        warnings.warn(text, PrivcausalWarning, stacklevel=2)
    frame = frame[columns].dropna().reset_index(drop=True)
    for name in ("Y", "W", "vote00"):
        if not frame[name].isin([0, 1]).all():
            raise DataError(f"Column {name!r} of the voting file may contain only 0 and 1.")
    tau, rng = _spiked(frame), np.random.default_rng(seed)
    flipped = rng.random(len(frame)) < -tau
    frame["Y"] = np.where(flipped, 1 - frame["W"], frame["Y"]).astype(np.int64)
    places: dict[str, SimulatedDomain] = {
        name: (float(frame[name].min()), float(frame[name].max())) for name in _PLACES
    }
    return Study(
        name="voting",
        formula=f"Y ~ W | {' + '.join(columns[2:])}",
        bounds={"Y": (0.0, 1.0), "W": (0.0, 1.0), **_VOTERS, **places},
        ate=float(tau.mean()),
        frame=frame,
        tau=tau,
        propensity=frame.groupby(["state", "competiv"])["W"].transform("mean").to_numpy(np.float64),
        baseline=np.full(len(frame), np.nan),
        effect=_spiked,
    )


class Trial(NamedTuple):
    """Rows of a real trial, with a formula and declared domains. The true effect is unknown."""

    formula: str
    frame: Any
    bounds: Mapping[str, Any]


_CRITEO: dict[str, tuple[float, float]] = {
    "f0": (12, 27), "f1": (10, 17), "f2": (8, 10), "f3": (-9, 5), "f4": (10, 22), "f5": (-10, 5),
    "f6": (-32, 1), "f7": (4, 12), "f8": (3, 4), "f9": (13, 76), "f10": (5, 7), "f11": (-2, 0),
}  # fmt: skip
_CRITEO_BINARY = ("treatment", "conversion", "visit", "exposure")


def criteo(path: str | Path) -> Trial:
    """Read CRITEO-UPLIFT v2.1 (Diemert et al. 2018) from CSV (also ``.gz``) or Parquet.

    The domains are whole numbers that were chosen without the file, so they are public. Values
    outside of them are clipped. No domain is computed from the rows at `path`. The features have no
    units.

    Returns
    -------
    Trial
        Outcome "visit", treatment "treatment" (0 or 1, 85% treated), modifiers "f0" to "f11" as
        float32. The file has 13,979,592 rows, which take 0.7 GB. The frame also has "conversion"
        and "exposure", which are measured after treatment.

    Raises
    ------
    DataError
        The file lacks one of these columns.
    """
    import pandas as pd

    file, columns = Path(path), [*_CRITEO, *_CRITEO_BINARY]
    kinds = dict.fromkeys(_CRITEO, "float32") | dict.fromkeys(_CRITEO_BINARY, "int8")
    try:
        if file.suffix == ".parquet":
            frame = pd.read_parquet(file, columns=columns).astype(kinds)
        else:
            frame = pd.read_csv(file, usecols=columns, dtype=kinds)[columns]
    except (ValueError, KeyError):  # messages of these errors may quote values of rows
        raise DataError(
            f"This is not a CRITEO-UPLIFT v2.1 file, which has the columns {', '.join(columns)}."
        ) from None
    bounds = {**_CRITEO, **dict.fromkeys(_CRITEO_BINARY, Binary())}
    return Trial(f"visit ~ treatment | {' + '.join(_CRITEO)}", frame, bounds)
