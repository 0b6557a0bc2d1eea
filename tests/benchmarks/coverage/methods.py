"""One fit of each method: an estimate, its error bar and its interval at three levels.

The intervals without privacy, and the naive one, exist here only: the package has neither.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from draws import Draw
from scipy.stats import norm

warnings.filterwarnings("ignore", category=UserWarning, message=".*released numbers")
LEVELS = (0.80, 0.90, 0.95)


class Fit(NamedTuple):
    """What one method said of one draw; `limits` holds (low, high) at each of LEVELS."""

    method: str
    estimate: float
    std_error: float
    limits: tuple[tuple[float, float], ...]
    noted: bool = False


Method = Callable[[Draw, float], Iterator[Fit]]


def _read(method: str, result: Any) -> Fit:
    """From a result of the package, by its public interface."""
    at = result.params.index[0]
    limits = tuple(tuple(result.conf_int(1 - level).loc[at]) for level in LEVELS)
    noted = bool(result.estimate.notes or result.estimate.alerts)
    return Fit(method, float(result.params[at]), float(result.bse[at]), limits, noted)


def _normal(method: str, estimate: float, std_error: float) -> Fit:
    half = [float(norm.ppf(0.5 + level / 2)) * std_error for level in LEVELS]
    return Fit(method, estimate, std_error, tuple((estimate - h, estimate + h) for h in half))


# --- the package -------------------------------------------------------------------------------


def _default(draw: Draw, eps: float) -> Iterator[Fit]:
    import privcausal as pc

    result = pc.private(
        draw.formula, draw.frame, eps=eps, bounds=draw.bounds, propensity=draw.propensity
    )
    yield _read("default", result)


def _estimated(draw: Draw, eps: float) -> Iterator[Fit]:
    import privcausal as pc

    result = pc.private(draw.formula, draw.frame, eps=eps, bounds=draw.bounds)
    yield _read("default, propensity estimated", result)


def _boosted(learner: str) -> Method:
    """The average of a fit on base "dpebm"."""

    def fit(draw: Draw, eps: float) -> Iterator[Fit]:
        import privcausal as pc

        result = pc.privcate(
            draw.formula, draw.frame, eps=eps, bounds=draw.bounds, learner=learner, base="dpebm"
        )
        yield _read(f"boosted {learner}", result)

    return fit


def _remark(effect: float) -> Method:
    """PrivATE with the default's own nuisances, private on one half of the rows (their remark)."""

    def fit(draw: Draw, eps: float) -> Iterator[Fit]:
        import privcausal as pc

        result = pc.paper.private(
            draw.formula, draw.frame, eps=eps, bounds=draw.bounds,
            shares={"effect": effect}, below_minimum="published",
        )  # fmt: skip
        yield _read(f"paper gam {effect:g}", result)

    return fit


def _difference(draw: Draw, eps: float) -> Iterator[Fit]:
    import privcausal as pc

    yield _read("difference", pc.private(draw.arms, draw.frame, eps=eps, bounds=draw.bounds))


def _paper(base: str, effect: float) -> Method:
    """PrivATE as printed, with `effect` of epsilon and delta for the mean.

    The interval without privacy and the naive one (their Table 1) stand beside it: both take the
    variance of the AIPW scores as it is, the naive one around the private estimate.
    """

    def fit(draw: Draw, eps: float) -> Iterator[Fit]:
        found = _printed(draw, eps, base, effect)
        mean, error = aipw(draw, _sklearn(base))
        yield found
        yield _normal(f"standard {base}", mean, error)
        yield _normal(f"naive {base} {effect:g}", found.estimate, error)

    return fit


def _valid_naive(base: str, effect: float) -> Method:
    """The naive interval with a valid variance (Table 2): PrivATE's own, without its noise.

    Its variance is that of the scores and the correction for the noise of the mean. It is not
    private; it stands around the estimate without noise.
    """

    def fit(draw: Draw, eps: float) -> Iterator[Fit]:
        from privcausal.testing import zero_noise

        with zero_noise():
            found = _printed(draw, eps, base, effect)
        yield found._replace(method=f"valid naive {base} {effect:g}")

    return fit


def _printed(draw: Draw, eps: float, base: str, effect: float) -> Fit:
    import privcausal as pc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SGD stops at scikit-learn's 200 steps
        result = pc.paper.private(
            draw.formula, draw.frame, eps=eps, bounds=draw.bounds, base=_sklearn(base),
            shares={"effect": effect}, below_minimum="published",
        )  # fmt: skip
    return _read(f"paper {base} {effect:g}", result)


def _sklearn(base: str) -> Any:
    import privcausal as pc

    return getattr(pc.bases.Sklearn, base)()


REPLICATES, PARTS = 10, 25


def _bootstrap(draw: Draw, eps: float) -> Iterator[Fit]:
    """A normal interval by bootstrapping PrivATE's estimate, each replicate at its part of epsilon.

    Supplement D names the method and gives no details: few replicates are to its advantage.
    """
    import privcausal as pc

    found = []
    for k in range(REPLICATES):
        rows = draw.frame.sample(frac=1.0, replace=True, random_state=k, ignore_index=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = pc.paper.private(
                draw.formula, rows, eps=eps / REPLICATES, delta=1e-5 / REPLICATES,
                bounds=draw.bounds, base=_sklearn("kernel"), shares={"effect": 0.9},
                below_minimum="published",
            )  # fmt: skip
        found.append(float(result.params.iloc[0]))
    yield _normal("bootstrap kernel", float(np.mean(found)), float(np.std(found, ddof=1)))


def _aggregated(draw: Draw, eps: float) -> Iterator[Fit]:
    """Differences in means of disjoint parts, and their mean with noise (Guha and Reiter 2024).

    Subsample and aggregate, in pure epsilon: half of it for the mean of the parts' differences,
    half for the mean of their variances, both within what the outcome's bounds allow. How many
    parts PrivATE's comparison took is not printed.
    """
    (y, t), outcome = arms(draw), draw.arms.split("~")[0].strip()
    low, high = draw.bounds[outcome]
    # a simulation: parts and noise follow from the draw, as the draw does from its seed
    rng = np.random.default_rng(abs(hash(float(y.sum()))))
    part = rng.permutation(len(y)) % PARTS
    groups = [[y[(part == k) & (t == a)] for a in (0, 1)] for k in range(PARTS)]
    differences = np.array([b.mean() - a.mean() for a, b in groups])
    variances = np.array([a.var() / len(a) + b.var() / len(b) for a, b in groups])
    most = (high - low) ** 2 * PARTS / len(y)  # of even arms, all of them at the ends
    reach = 2 * (high - low)
    scales = np.array([reach, most]) / PARTS / (eps / 2)
    noise = rng.laplace(scale=scales)
    mean = float(differences.mean() + noise[0])
    variance = float(np.clip(np.clip(variances, 0, most).mean() + noise[1], 0, most)) / PARTS
    yield _normal("aggregated", mean, float(np.sqrt(variance + 2 * scales[0] ** 2)))


# --- without privacy ---------------------------------------------------------------------------


def design(draw: Draw) -> Any:
    """The covariates on [0, 1] by their bounds and 0/1 for each level, shape (n, p)."""
    columns = []
    for term in draw.formula.split("|")[1].split("+"):
        name = term.strip().removeprefix("C(").removesuffix(")")
        bounds, values = draw.bounds[name], draw.frame[name]
        if isinstance(bounds, list):
            columns += [(values == level).to_numpy(np.float64) for level in bounds]
        else:
            columns.append((np.clip(values, *bounds) - bounds[0]) / (bounds[1] - bounds[0]))
    return np.column_stack(columns)


def arms(draw: Draw) -> tuple[Any, Any]:
    """Outcome, cut to its bounds, and treatment."""
    outcome, treatment = (name.strip() for name in draw.arms.split("~"))
    y = np.clip(draw.frame[outcome].to_numpy(np.float64), *draw.bounds[outcome])
    return y, draw.frame[treatment].to_numpy(np.int64)


def aipw(draw: Draw, base: Any, clip: float = 0.1) -> tuple[float, float]:
    """AIPW mean and its standard error, nuisances by the base on the same rows (the paper's)."""
    from sklearn.base import clone

    x, (y, t), (low, high) = (
        design(draw),
        arms(draw),
        draw.bounds[draw.formula.split("~")[0].strip()],
    )
    e = np.clip(clone(base.propensity).fit(x, t).predict_proba(x)[:, 1], clip, 1 - clip)
    fits = (clone(base.outcome).fit(x[t == a], y[t == a]) for a in (0, 1))
    mu0, mu1 = (np.clip(fit.predict(x), low, high) for fit in fits)
    return _mean(mu1 - mu0 + t * (y - mu1) / e - (1 - t) * (y - mu0) / (1 - e))


def _mean(scores: Any) -> tuple[float, float]:
    return float(scores.mean()), float(scores.std() / np.sqrt(len(scores)))


def _welch(draw: Draw, eps: float) -> Iterator[Fit]:
    y, t = arms(draw)
    means, errors = zip(*(_mean(y[t == a]) for a in (0, 1)), strict=True)
    yield _normal("difference, no privacy", means[1] - means[0], float(np.hypot(*errors)))


def _regression(draw: Draw, eps: float) -> Iterator[Fit]:
    """AIPW with the known propensity and a linear regression in each arm."""
    x, (y, t), e = (
        np.column_stack([np.ones(len(draw.frame)), design(draw)]),
        arms(draw),
        draw.propensity,
    )
    assert e is not None
    mu0, mu1 = (x @ np.linalg.lstsq(x[t == a], y[t == a], rcond=None)[0] for a in (0, 1))
    yield _normal(
        "regression, no privacy",
        *_mean(mu1 - mu0 + t * (y - mu1) / e - (1 - t) * (y - mu0) / (1 - e)),
    )


METHODS: dict[str, Method] = {
    "default": _default,
    "default, propensity estimated": _estimated,
    **{f"boosted {learner}": _boosted(learner) for learner in ("r", "dr", "x")},
    "difference": _difference,
    "difference, no privacy": _welch,
    "regression, no privacy": _regression,
    # the paper's shares: half and half if not said otherwise (supplement C.2), 0.9 in Table 1
    **{
        f"paper {base} {effect:g}": _paper(base, effect)
        for base in ("kernel", "network")
        for effect in (0.5, 0.9)
    },
    **{f"paper gam {effect:g}": _remark(effect) for effect in (0.5, 0.9)},
    "valid naive kernel 0.9": _valid_naive("kernel", 0.9),
    "bootstrap kernel": _bootstrap,
    "aggregated": _aggregated,
}
"""By name; the first fit that a method yields bears it."""


# --- which code made a row ---------------------------------------------------------------------

_TRIED = (
    ("dataset 1", 1000, 0.1), ("dataset 1", 3000, 0.5), ("dataset 2", 1000, 0.5),
    ("setup A", 3000, 0.5), ("setup D", 3000, 1), ("random thresholds", 6000, 2),
    ("vote of 30%", 5000, 1), ("trial", 3000, 1),
)  # fmt: skip
_SLOW, _KNOWN = (("dataset 1", 600, 1), ("trial", 600, 1)), _TRIED[-1:]
"""Data, n and eps of the fits whose numbers tell one version of the code from another."""


@cache
def code(method: str) -> str:
    """What tells rows of this method from those that other code made.

    It is a digest of the numbers that the method gives on small tables, under seeded noise: code
    that is written otherwise and says the same, to three digits, keeps its rows.
    """
    from draws import DRAWS

    from privcausal.testing import seeded_noise

    slow = method.startswith(
        ("paper kernel", "paper network", "valid naive", "boosted", "bootstrap")
    )
    tried = _SLOW if slow else _TRIED
    digest = hashlib.sha256()
    for seed, (data, n, eps) in enumerate(
        _KNOWN if method.startswith(("regression", "aggregated")) else tried
    ):
        with seeded_noise(seed):
            for fit in METHODS[method](DRAWS[data](n, seed), eps):
                found = (fit.estimate, fit.std_error, *np.ravel(fit.limits))
                digest.update(" ".join(f"{number:.3g}" for number in found).encode())
    return digest.hexdigest()[:8]
