"""The source papers' simulations: studies with a known truth.

Every function draws a `Study` of `n` rows from the NumPy generator of a `seed`, and raises
`DataError` if n < 1. Seeds are right here and only here: these data are anyone's to know, and
privacy noise is never seeded. All follow one recipe,

    X ~ P_X,   T | X ~ Bernoulli(e(X)),   Y = b(X) + T tau(X) + noise,

with e, b and tau the propensity, baseline and effect, outcome "Y", treatment "T" and covariates
"X1", "X2", ... Drawn coefficients and covariances are stored as constants, with the command that
drew them, so that a new NumPy cannot move a truth.

References
----------
Niu et al. (2022), Differentially private estimation of heterogeneous causal effects.
Nie & Wager (2021), Quasi-oracle estimation of heterogeneous treatment effects.
Oprescu, Syrgkanis & Wu (2019), Orthogonal random forest for causal inference.
Schröder et al. (2025), DP-CATE; Schröder et al. (2025), PrivATE.
Betlei et al. (2021), Differentially private individual treatment effect estimation from
aggregated data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError, DataError
from privcausal.typing import Frame, Mask, Matrix, Vector

if TYPE_CHECKING:
    import pandas as pd

Domain: TypeAlias = tuple[float, float] | list[str]
Setup = Literal["A", "B", "C", "D", "E", "D-code", "E-code"]


@dataclass(frozen=True, eq=False)
class Study:
    """One drawn study and everything that is true about it.

    Attributes
    ----------
    name, formula : str
    bounds : dict
        Column to (low, high) or to levels, for `bounds=`. They come from the law, not the rows.
    ate : float
        The population's average treatment effect.
    frame : pandas.DataFrame
        The rows, shape (n, 2 + p).
    tau, propensity, baseline : Vector
        E[Y(1) - Y(0) | X], P(T = 1 | X) and E[Y(0) | X] of the rows, shape (n,).
    effect : callable
        Frame of covariates to true tau, shape (m,).
    """

    name: str
    formula: str
    bounds: dict[str, Domain]
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


@dataclass(frozen=True)
class TrueEffect:
    """True tau of a frame; a class and no closure, so that it can be pickled."""

    columns: tuple[str, ...]
    surface: Callable[..., Surface]

    def __call__(self, frame: Frame) -> Vector:
        x = (np.asarray(frame[name], dtype=np.float64) for name in self.columns)
        return self.surface(*x).tau


@dataclass(frozen=True)
class _Law:
    """The module's recipe; `x` limits all covariates alike, or each."""

    covariates: Callable[[np.random.Generator, int], Matrix]
    surface: Callable[..., Surface]
    noise: Callable[[np.random.Generator, Matrix], Vector]
    ate: float
    x: tuple[float, float] | list[tuple[float, float]]
    y: tuple[float, float]


# --- drawing ---------------------------------------------------------------------------


def bernoulli(rng: np.random.Generator, e: Vector) -> Mask:
    return rng.uniform(size=len(e)) < e


def _complete(rng: np.random.Generator, e: Vector) -> Mask:
    """Exactly half of the rows treated; a coin decides an odd one."""
    n = len(e)
    return rng.permutation(n) < (n + int(rng.integers(2))) // 2


def _cube(rng: np.random.Generator, n: int, *, p: int, low: float = 0.0) -> Matrix:
    return rng.uniform(low, 1.0, (n, p))


def _gauss(rng: np.random.Generator, n: int, *, root: Matrix) -> Matrix:
    """N(0, L L') for the root L, shape (n, p)."""
    return rng.standard_normal((n, len(root))) @ root.T


def _normal(rng: np.random.Generator, X: Matrix, *, sigma: float = 1.0) -> Vector:
    return sigma * rng.standard_normal(len(X))


def _uniform(rng: np.random.Generator, X: Matrix) -> Vector:
    return rng.uniform(-1.0, 1.0, len(X))


def generator(n: int, seed: int) -> np.random.Generator:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise DataError(f"n={n!r} is not a number of rows; it must be a whole number from 1")
    return np.random.default_rng(seed)


def _draw(
    name: str,
    law: _Law,
    n: int,
    seed: int,
    assign: Callable[[np.random.Generator, Vector], Mask] = bernoulli,
) -> Study:
    """One study from a law: X, then T, then the noise of Y, all from one generator."""
    import pandas as pd

    rng = generator(n, seed)
    X = law.covariates(rng, n)
    truth = law.surface(*X.T)
    T = assign(rng, truth.propensity)
    Y = truth.baseline + T * truth.tau + law.noise(rng, X)
    names = tuple(f"X{j}" for j in range(1, X.shape[1] + 1))
    limits = law.x if isinstance(law.x, list) else [law.x] * len(names)
    columns = dict(zip(names, X.T, strict=True))
    return Study(
        name=name,
        formula=f"Y ~ T | {' + '.join(names)}",
        bounds={"Y": law.y, "T": (0.0, 1.0), **dict(zip(names, limits, strict=True))},
        ate=law.ate,
        frame=pd.DataFrame({"Y": Y, "T": T.astype(np.int64), **columns}),
        effect=TrueEffect(names, law.surface),
        **truth._asdict(),
    )


def _found(laws: Mapping[Any, _Law], key: object, what: str) -> _Law:
    if key not in laws:
        known = ", ".join(map(repr, laws))
        raise CapabilityError(f"{what}={key!r} is unknown; choose one of {known}")
    return laws[key]


def sigmoid(z: Vector) -> Vector:
    """1 / (1 + exp(-z)), written with tanh so that no z overflows."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _hinge(z: Vector) -> Vector:
    return np.maximum(z, 0.0)


def _softplus(z: Vector) -> Vector:
    return np.logaddexp(0.0, z)


# --- Niu et al. (2022) -----------------------------------------------------------------
# Y = b + T tau + noise with b = E[Y(0)|X], as in their table 1. Nie and Wager, from whom A to D
# come, write b + (T - 1/2) tau and halve the b of D.

# The authors' notebook draws m = np.random.RandomState(1).uniform(-1, 1, (12, 12)) and takes
# (m @ m.T)[:6, :6]; the paper only says "a random data generator".
_COVARIANCE = np.array(
    [
        [3.2426, 2.0518, 1.4371, -0.1294, 1.6740, -0.4711],
        [2.0518, 4.3800, 1.8209, 0.1913, 0.8282, -0.0652],
        [1.4371, 1.8209, 5.5328, 0.8708, -0.2447, 0.8849],
        [-0.1294, 0.1913, 0.8708, 4.9741, -0.9175, -1.6082],
        [1.6740, 0.8282, -0.2447, -0.9175, 3.8431, 0.3469],
        [-0.4711, -0.0652, 0.8849, -1.6082, 0.3469, 3.7635],
    ]
)
_CODE_ROOT = np.linalg.cholesky(_COVARIANCE)
# rows scaled to length 1: unit variances, so that one limit of 3.5 fits B to E alike
_ROOT = _CODE_ROOT / np.linalg.norm(_CODE_ROOT, axis=1, keepdims=True)


def _niu_a(*x: Vector) -> Surface:
    x1, x2, x3, x4, x5 = x[:5]
    wave = np.sin(math.pi * x1 * x2)
    baseline = wave + 2.0 * (x3 - 0.5) ** 2 + x4 + 0.5 * x5
    return Surface(np.clip(wave, 0.1, 0.9), baseline, 0.5 * (x1 + x2))


def _niu_b(*x: Vector) -> Surface:
    x1, x2, x3, x4, x5 = x[:5]
    baseline = _hinge(np.maximum(x1 + x2, x3)) + _hinge(x4 + x5)
    return Surface(np.full_like(x1, 0.5), baseline, x1 + _softplus(x2))


def _niu_c(*x: Vector) -> Surface:
    x1, x2, x3 = x[:3]
    return Surface(sigmoid(-x2 - x3), 2.0 * _softplus(x1 + x2 + x3), np.ones_like(x1))


def _niu_d(*x: Vector) -> Surface:
    x1, x2, x3, x4, x5 = x[:5]
    e = 1.0 / (1.0 + np.exp(-x1) + np.exp(-x2))
    first, second = _hinge(x1 + x2 + x3), _hinge(x4 + x5)
    return Surface(e, first + second, first - second)


def _niu_e(*x: Vector) -> Surface:
    x1, x2, x3, x4, x5, x6 = x
    linear = x1 + 2.0 * x2 + 3.0 * x3 + 4.0 * x4 + 5.0 * x5 + 6.0 * x6
    baseline = linear + x1 * x6 + (np.abs(x3) < 0.5)
    return Surface(sigmoid(-x1 - x6), baseline, sigmoid(-x1) - x2 + x3 + x4 + x5 + x6)


def _niu_d_code(*x: Vector) -> Surface:
    baseline = _hinge(x[0] + x[1]) + _hinge(x[3] + x[4])  # no x3 in the notebook
    return _niu_d(*x)._replace(baseline=baseline)


def _niu_e_code(*x: Vector) -> Surface:
    x1, x2, x3, x4, x5, x6 = x
    step = np.where(np.abs(x3) < 0.5, 0.8, 0.2)
    baseline = 0.6 * (x2 + 2.0 * x3 + 3.0 * x4 + 4.0 * x5 + 5.0 * x6) + x1 * x6 + step
    e = np.clip(sigmoid(x1 + x6), 0.1, 0.9)
    return Surface(e, baseline, x2 - x3 + x4 + x5 + x6 + 5.0 * sigmoid(x1))


def _half_binary(rng: np.random.Generator, n: int) -> Matrix:
    """Three Gaussian covariates, and three that say whether theirs exceeded 1, shape (n, 6)."""
    Z = _gauss(rng, n, root=_CODE_ROOT)
    return np.hstack([Z[:, :3], Z[:, 3:] > 1.0])


def _two_noises(rng: np.random.Generator, X: Matrix) -> Vector:
    """Two independent noises, one with standard deviation |1 + x1|."""
    return (1.0 + X[:, 0]) * rng.standard_normal(len(X)) + rng.standard_normal(len(X))


_SIX = partial(_gauss, root=np.eye(6))
_WIDE = (-3.5, 3.5)
# E log(1 + exp(Z)), Z ~ N(0, 1), by Gauss-Hermite quadrature with 200 nodes (100 agree):
# z, w = np.polynomial.hermite_e.hermegauss(200); w @ np.log1p(np.exp(z)) / w.sum()
_MEAN_SOFTPLUS = 0.8060591833474
# E max(N(0, s^2), 0) = s / sqrt(2 pi), with s^2 = 3 and 2
_ATE_D = (math.sqrt(3.0) - math.sqrt(2.0)) / math.sqrt(2.0 * math.pi)
# E expit(X1) = 1/2 by symmetry; an indicator's mean is the tail of N(0, s) beyond 1
_ATE_E_CODE = 2.5 + sum(
    0.5 * math.erfc(1.0 / math.sqrt(s) / math.sqrt(2.0)) for s in np.diag(_COVARIANCE)[3:]
)
_MIXED = [(-7.5, 7.5)] * 3 + [(0.0, 1.0)] * 3
_CORRELATED = partial(_gauss, root=_ROOT)

_NIU: dict[Setup, _Law] = {
    "A": _Law(partial(_cube, p=6), _niu_a, _normal, 0.5, (0.0, 1.0), (-2.5, 6.5)),
    "B": _Law(_SIX, _niu_b, _normal, _MEAN_SOFTPLUS, _WIDE, (-4.0, 9.0)),
    "C": _Law(_SIX, _niu_c, _normal, 1.0, _WIDE, (-3.0, 13.0)),
    "D": _Law(_SIX, _niu_d, _normal, _ATE_D, _WIDE, (-4.0, 9.0)),
    "E": _Law(_CORRELATED, _niu_e, _normal, 0.5, _WIDE, (-40.0, 40.0)),
    "D-code": _Law(_SIX, _niu_d_code, _normal, _ATE_D, _WIDE, (-4.0, 9.0)),
    "E-code": _Law(_half_binary, _niu_e_code, _two_noises, _ATE_E_CODE, _MIXED, (-15.0, 30.0)),
}


def niu(setup: Setup, n: int = 4000, seed: int = 0) -> Study:
    """Setups A to E of Niu et al. (2022, table 1), six covariates, noise N(0, 1).

    Parameters
    ----------
    setup : {"A", "B", "C", "D", "E", "D-code", "E-code"}
        A: uniform covariates, hard baseline. B: trial. C: constant effect 1. D: kinked effect.
        E: correlated covariates, discontinuous baseline. "D-code" and "E-code" are those of the
        authors' public notebook (github.com/FengshiNiu/DP-CATE); others raise `CapabilityError`.

    Notes
    -----
    Compare E with published figures through "E-code". Table 1 leaves Sigma open (ours is the
    notebook's covariance, scaled to unit variances), and the notebook simulates another law: X4 to
    X6 cut to indicators, 5 expit(x1) in the effect, the opposite sign in the propensity,
    heteroscedastic noise. Their S-learner returns a constant, whose error is Var(tau) plus its own
    squared error: published 10.12 (n = 16 000, epsilon = 128), and Var(tau) is 10.14 in the
    notebook's law, 15.5 in table 1 with its covariance. In B the figures are 1.2728 and 1.272.
    The notebook's D leaves x3 out of the baseline, which does not change Var(tau).
    """
    return _draw(f"niu-{setup}", _found(_NIU, setup, "setup"), n, seed)


# --- Schröder et al. (2025): DP-CATE and PrivATE, both after Oprescu et al. (2019) -------


def _threshold(
    *x: Vector, beta: Mapping[int, float], gamma: Mapping[int, float], wave: int | None = None
) -> Surface:
    """T = 1{x'beta >= eta}, eta ~ U(-1, 1), and b = x'gamma; columns are counted from 1.

    So e = (1 + x'beta) / 2, cut to [0.1, 0.9] as PrivATE does. The effect is 1, or
    exp(2 x_1) + 3 sin(4 x_wave) (DP-CATE, eq. 73 and 74).
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
# The first seed from 0 with sum(beta) < 0.8 in dataset 2: overlap then holds without the cut.
_DPCATE_1 = {"beta": {1: 0.0785, 2: 0.0895}, "gamma": {1: 0.8142, 2: 0.0919}}
_DPCATE_2 = {
    "beta": {29: 0.2773, 30: 0.1413, 15: 0.2081, 7: 0.0322, 4: 0.0314, 21: 0.0606},
    "gamma": {29: 0.8844, 30: 0.6798, 15: 0.8492, 7: 0.6444, 4: 0.4065, 21: 0.5166},
}
# E exp(2U) + 3 E sin(4U), U ~ U(0, 1): the same in both datasets
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
    p: int,
    coefficients: Mapping[str, Mapping[int, float]],
    y: tuple[float, float],
    wave: int | None = None,
) -> _Law:
    surface = partial(_threshold, wave=wave, **coefficients)
    ate = 1.0 if wave is None else _ATE_WAVE
    return _Law(partial(_cube, p=p), surface, _uniform, ate, (0.0, 1.0), y)


# Y is bounded: the limits are its range, rounded outwards to whole numbers. theta lies in
# [1, 5.45] in dataset 1 and in [1 + 3 sin 4, e^2 + 3] = [-1.27, 10.39] in dataset 2.
_DPCATE = {
    1: _oprescu(2, _DPCATE_1, (-1.0, 8.0), wave=1),
    2: _oprescu(30, _DPCATE_2, (-3.0, 16.0), wave=2),
}
_PRIVATE = {1: _oprescu(2, _PRIVATE_1, (-1.0, 4.0)), 2: _oprescu(24, _PRIVATE_2, (-1.0, 5.0))}


def dpcate(dataset: Literal[1, 2], n: int = 3000, seed: int = 0) -> Study:
    """Datasets 1 and 2 of DP-CATE (Schröder et al. 2025, supplement G.1, eq. 70 to 74).

    X ~ U(0, 1)^p, p = 2 and 30; T = 1{X'beta >= eta}; Y = theta(X) T + X'gamma + noise; eta and
    noise ~ U(-1, 1). theta = exp(2 X1) + 3 sin(4 X1) and exp(2 X1) + 3 sin(4 X2). The paper draws
    3000 rows and keeps 10 % as a test sample.

    Notes
    -----
    The paper draws beta from U(0, 0.3) and gamma from U(0, 1) on "a support" of unstated size.
    Thirty positive coefficients would treat nearly everyone, so beta and gamma of dataset 2 share
    a support of six, the size that PrivATE states, and propensities stay below 0.88.
    """
    return _draw(f"dpcate-{dataset}", _found(_DPCATE, dataset, "dataset"), n, seed)


def private_ate(dataset: Literal[1, 2], n: int = 3000, seed: int = 0) -> Study:
    """Datasets 1 and 2 of PrivATE (Schröder et al. 2025, supplement C.1.1, eq. 37 to 39).

    X ~ U(0, 1)^p, p = 2 and 24; T = 1{X'beta >= eta}, propensity cut to [0.1, 0.9];
    Y = T + X'gamma + noise; eta and noise ~ U(-1, 1). The effect is 1 for everyone.

    Notes
    -----
    The supplement says p = 24, the main text 25: we take 24. Beta and gamma of dataset 2 have six
    entries each and share three (X4, X6 and X21 confound): the main text says that a subset acts
    as confounders.
    """
    return _draw(f"private-ate-{dataset}", _found(_PRIVATE, dataset, "dataset"), n, seed)


def private_trial(n: int = 1000, seed: int = 0) -> Study:
    """PrivATE's synthetic trial (Schröder et al. 2025, supplement E.1).

    X1 ~ U(0, 1); half of the rows treated by complete randomisation; Y = T + gamma X1 + noise,
    noise ~ U(-1, 1), gamma as for X1 in `private_ate(1)`. The propensity is 0.5 and known.
    """
    return _draw("private-trial", _oprescu(1, _TRIAL, (-1.0, 3.0)), n, seed, assign=_complete)


# --- Betlei et al. (2021) --------------------------------------------------------------


def _sine(x1: Vector) -> Surface:
    return Surface(np.full_like(x1, 0.5), np.zeros_like(x1), np.sin(x1))


def betlei_sine(n: int = 20_000, seed: int = 0, sigma: float = 1.0) -> Study:
    """The sine trial of ADUM (Betlei et al. 2021, section 3.1.1, eq. 4).

    X1 ~ U(-1, 1); T a fair coin; Y = T sin(X1) + N(0, sigma^2), bounded by 1 + 3 sigma on both
    sides. The average effect is 0.

    Parameters
    ----------
    sigma : float
        1 in the paper's figure 1, 0.1 in its figure 2. Its N(0, sigma) is read as a standard
        deviation, since section 2.1 has E[noise^2] = sigma^2. `DataError` if negative.
    """
    if not sigma >= 0.0:
        raise DataError(f"sigma={sigma} is not a standard deviation; it must be at least 0")
    y, noise = 1.0 + 3.0 * sigma, partial(_normal, sigma=sigma)
    law = _Law(partial(_cube, p=1, low=-1.0), _sine, noise, 0.0, (-1.0, 1.0), (-y, y))
    return _draw("betlei-sine", law, n, seed)
