"""Laws on which defaults for conditional effects are chosen, and their scores with seeded noise.

    python tests/benchmarks/effect_laws.py --sizes 1000,4000 --repetitions 6

prints for every law and size the mean and median squared error of tau(x), the bias of its average,
and the share of points whose projection on the basis lies in the band. Data and noise have seeds:
two versions of the code are compared on the same draws. None of the laws is one that `cate_study`
scores.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import generators
import numpy as np
from generators import Law, bell, square

import privcausal as pc
from privcausal.features.design import read_points
from privcausal.testing import seeded_noise


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _unit(p: int) -> Any:
    return lambda rng, n: rng.uniform(0, 1, (n, p))


def _ripple(x: Any) -> Any:
    """A wavy confounded outcome, an additive effect, tight bounds."""
    e = 0.15 + 0.7 * np.sin(1.7 * (x[0] + 0.6 * x[1])) ** 2
    return (
        e,
        np.sin(2.5 * x[0] + 1.5 * x[1]) + x[2] ** 2 + 0.5 * x[4],
        0.2 + 0.6 * x[3] + 0.3 * x[0],
    )


def _still(x: Any) -> Any:
    """A constant effect, strong confounding, wide bounds."""
    ramp = 1.5 * np.logaddexp(0, 1.2 * (x[0] + x[1]))
    return _expit(0.9 * x[0] + 0.7 * x[1]), ramp + 0.5 * x[2], 0 * x[0] + 0.8


def _hush(x: Any) -> Any:
    """A tiny constant effect without noise."""
    return 0.35 + 0.3 * x[0], x[0] + 0.5 * x[1], 0 * x[0] + 0.15


def _fold(x: Any) -> Any:
    """A trial; an effect that is not additive."""
    return 0.5 + 0 * x[0], np.abs(x[2]) + x[3], np.abs(x[0] - x[1])


def _swing(x: Any) -> Any:
    """A large effect, very wide bounds."""
    return _expit(0.8 * x[2]), 3 * x[1] + x[2], 1 + 2.5 * np.maximum(x[0], 0) - x[1]


def _glade(x: Any) -> Any:
    """A smooth additive effect that varies by more than the outcome does otherwise."""
    ramp = np.maximum(x[0] + x[1], 0) + 0.5 * x[2]
    return _expit(0.5 * x[0] - 0.5 * x[3]), ramp, x[0] + 0.5 * x[1] ** 2 - 0.3


def _surge(x: Any) -> Any:
    """An effect that outweighs all else, wide bounds."""
    ramp = 1.5 * np.logaddexp(0, x[0] + x[3])
    return _expit(0.6 * x[1] - 0.4 * x[2]), ramp, 3 * np.sin(x[0]) + 2 * x[1] - 1


def _weave(x: Any) -> Any:
    """Products of covariates in the effect."""
    return 0.3 + 0.4 * x[0], x[0] + x[3] ** 2, 3 * (x[1] - 0.5) * (2 * x[2] - 1) + x[3]


def _breeze(x: Any) -> Any:
    """A small slope in every column."""
    return (
        0.25 + 0.5 * np.abs(x[0] - x[1]),
        2 * np.abs(x[2] - 0.5) + x[3] * x[4],
        0.1 + 0.25 * (x[0] + x[1] + x[2] + x[3] + x[4]),
    )


def _drift(x: Any) -> Any:
    """Three equal slopes of both signs, of which one confounds."""
    e = _expit(x[0] * x[1] + 0.5 * x[2] ** 2 - 0.3)
    return e, np.cos(2 * x[0]) + x[3], 0.4 + 0.2 * (x[0] - x[2] + x[4])


def _current(x: Any) -> Any:
    """Four moderate slopes under much noise."""
    e = _expit(0.6 * np.abs(x[0]) - 0.5)
    return e, np.abs(x[1]) + x[2], 0.5 + 0.3 * (x[0] + x[1] + x[2] + x[3])


def _slant(x: Any) -> Any:
    """Two slopes beside a step that confounds."""
    e = 0.15 + 0.7 * (x[0] + x[1] > 1)
    return e, np.exp(x[0] * x[1]) + x[5], 0.6 * x[2] + 0.6 * x[3] - 0.2


def _terrace(x: Any) -> Any:
    """Small slopes and a small curve, where a product confounds."""
    e = 0.5 + 0.35 * np.sin(3 * x[0] * x[1])
    return e, 1.5 * x[0] * x[1] + x[2], 0.3 + 0.25 * x[0] + 0.2 * x[1] ** 2 + 0.15 * x[3]


EXTRA = {
    "breeze": Law(_unit(5), _breeze, 0.7, (-3, 6), (0, 1)),
    "drift": Law(square(6), _drift, 0.8, (-4, 6), (-1, 1)),
    "current": Law(bell(5, 3.5), _current, 1.5, (-8, 10), (-3.5, 3.5)),
    "slant": Law(_unit(6), _slant, 1.0, (-3, 7), (0, 1)),
    "terrace": Law(square(5), _terrace, 0.6, (-3, 5), (-1, 1)),
    "ripple": Law(_unit(6), _ripple, 0.6, (-3, 5), (0, 1)),
    "still": Law(bell(5, 3.5), _still, 1.0, (-4, 11), (-3.5, 3.5)),
    "hush": Law(_unit(4), _hush, 0.0, (-1, 3), (0, 1)),
    "fold": Law(bell(6, 3.5), _fold, 1.0, (-6, 12), (-3.5, 3.5)),
    "swing": Law(bell(5, 3.5), _swing, 2.0, (-25, 25), (-3.5, 3.5)),
    "surge": Law(bell(5, 3.5), _surge, 1.0, (-30, 30), (-3.5, 3.5)),
    "weave": Law(_unit(5), _weave, 0.5, (-3, 6), (0, 1)),
    "glade": Law(bell(5, 3.5), _glade, 1.0, (-7, 14), (-3.5, 3.5)),
}
NAMES = (*EXTRA, "saddle", "tent", "mount", "steps", "spread", "twist")
TEST_SEED = 99


def score(name: str, n: int, seed: int, learner: str, eps: float) -> tuple[float, float, float]:
    """Squared error of tau(x), bias of its mean, and coverage of the band (projection)."""
    study, test = generators.draw(name, n, 1000 * seed + n), generators.draw(name, 1500, TEST_SEED)
    with seeded_noise(7 * seed + n):
        fit = pc.privcate(study.formula, study.frame, eps=eps, bounds=study.bounds, learner=learner)
    needed = fit.estimate.plan.request.formula.effect_variables
    rows, _, _ = read_points(fit.estimate.design, needed, test.frame, None)
    effect = fit.estimate.effect
    phi = np.hstack([rows.phi(piece.additive.features) for piece in effect.pieces])
    aim = phi @ np.linalg.lstsq(phi, test.tau, rcond=None)[0]
    shown, held = effect(rows), 1.96 * effect.sd(rows)
    error = shown - test.tau
    return float(np.mean(error**2)), float(error.mean()), float(np.mean(np.abs(shown - aim) < held))


def main(arguments: list[str]) -> int:
    reader = argparse.ArgumentParser(description="Errors on laws that defaults are chosen on.")
    reader.add_argument("--sizes", default="1000,4000,16000")
    reader.add_argument("--repetitions", type=int, default=6)
    reader.add_argument("--learner", default="r")
    reader.add_argument("--eps", type=float, default=1.0)
    reader.add_argument("--quick", action="store_true", help="two laws, one repetition")
    given = reader.parse_args(arguments)
    names = NAMES
    if given.quick:
        names, given.sizes, given.repetitions = NAMES[:2], "1000", 1
    generators.LAWS.update(EXTRA)
    print("law n | mse median | bias | band")
    for n in map(int, given.sizes.split(",")):
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [
                    score(name, n, s, given.learner, given.eps) for s in range(given.repetitions)
                ]
            mse, bias, band = map(np.array, zip(*found, strict=True))
            print(f"{name} {n} | {mse.mean():.4g} {np.median(mse):.4g} | {bias.mean():+.3f} | "
                  f"{band.mean():.2f}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
