"""What is fitted in the studies of average effects: data with their truth and public bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from random_laws import SHAPES, random_law

DATA = Path(__file__).parents[4] / "shared" / "data"
RHC, GOTV = DATA / "rhc.csv", DATA / "gotv.parquet"


@dataclass(frozen=True)
class Draw:
    """Rows, what is public about them, and the effect that an interval should hold."""

    formula: str
    frame: pd.DataFrame
    bounds: Mapping[str, Any]
    truth: float
    propensity: float | None = None

    @property
    def arms(self) -> str:
        """The formula without covariates: the difference in means."""
        return self.formula.split("|")[0].strip()


def _of(study: Any, propensity: float | None = None) -> Draw:
    return Draw(study.formula, study.frame, study.bounds, study.ate, propensity)


def _private_ate(dataset: Any) -> Callable[[int, int], Draw]:
    def draw(n: int, seed: int) -> Draw:
        import privcausal as pc

        return _of(pc.datasets.private_ate(dataset, n, seed))

    return draw


def _trial(n: int, seed: int) -> Draw:
    import privcausal as pc

    return _of(pc.datasets.private_trial(n, seed), 0.5)


def _niu(setup: Any) -> Callable[[int, int], Draw]:
    def draw(n: int, seed: int) -> Draw:
        import privcausal as pc

        return _of(pc.datasets.niu(setup, n, seed))

    return draw


def _law(name: str) -> Callable[[int, int], Draw]:
    def draw(n: int, seed: int) -> Draw:
        import cate_study  # which adds its laws

        return _of(cate_study.generators.draw(name, n, seed))

    return draw


# --- Right Heart Catheterization (Connors et al. 1996) ---------------------------------------

DISEASES = [
    "ARF", "CHF", "COPD", "Cirrhosis", "Colon Cancer", "Coma", "Lung Cancer",
    "MOSF w/Malignancy", "MOSF w/Sepsis",
]  # fmt: skip
PATIENT = "age + aps1 + scoma1 + hrt1 + meanbp1 + surv2md1 + C(cat1)"
PATIENT_BOUNDS = {
    "age": (18, 102), "aps1": (0, 160), "scoma1": (0, 100), "hrt1": (0, 250),
    "meanbp1": (0, 260), "surv2md1": (0, 1), "cat1": DISEASES,
}  # fmt: skip


@lru_cache
def _patients() -> pd.DataFrame:
    frame = pd.read_csv(RHC)
    died = (frame["dthdte"] - frame["sadmdte"] <= 180).astype(int)
    treated = (frame["swang1"] == "RHC").astype(int)
    return frame.assign(dth180=died, rhc=treated)[["dth180", "rhc", *PATIENT_BOUNDS]]


def _rhc(n: int, seed: int) -> Draw:
    """The rows themselves: no truth is known, only widths count."""
    bounds = {"dth180": (0, 1), "rhc": (0, 1), **PATIENT_BOUNDS}
    return Draw(f"dth180 ~ rhc | {PATIENT}", _patients(), bounds, float("nan"))


Law = tuple[Any, Any, Any]


def _units(x: pd.DataFrame) -> dict[str, Any]:
    """Covariates on a common scale; the constants are those of the published table."""
    return {
        "age": (x["age"] - 61) / 17,
        "aps": (x["aps1"] - 55) / 20,
        "coma": x["scoma1"] / 100,
        "heart": (x["hrt1"] - 115) / 41,
        "pressure": (x["meanbp1"] - 78) / 38,
        "survival": (x["surv2md1"] - 0.59) / 0.195,
        "sepsis": (x["cat1"] == "MOSF w/Sepsis") * 1.0,
        "lung": (x["cat1"] == "COPD") * 1.0,
    }


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _smooth(u: Mapping[str, Any]) -> Law:
    """e, baseline and effect: sums of smooth functions of one covariate each."""
    shared = np.tanh(u["aps"]) + 0.7 * np.sin(1.5 * u["pressure"]) - 0.5 * u["survival"]
    e = 0.1 + 0.8 * _expit(0.9 * shared - 0.3 * u["heart"] + 0.6 * u["sepsis"] - 0.8 * u["lung"])
    baseline = 0.1 + 0.6 * _expit(0.9 * shared + 0.4 * u["age"] - 0.5)
    return e, baseline, 0.08 + 0.04 * np.tanh(u["age"])


def _interacting(u: Mapping[str, Any]) -> Law:
    """As `_smooth`, with products of covariates that move treatment and outcome alike."""
    shared = (
        0.5 * np.tanh(u["aps"])
        - 0.9 * np.tanh(u["age"]) * np.tanh(u["survival"])
        + 0.9 * np.tanh(u["pressure"]) * np.tanh(u["heart"])
    )
    e = 0.1 + 0.8 * _expit(1.1 * shared + 0.5 * u["sepsis"])
    baseline = 0.1 + 0.6 * _expit(1.1 * shared - 0.4 * u["survival"])
    return e, baseline, 0.08 + 0.04 * np.tanh(u["aps"])


def _simulated(law: Callable[[Mapping[str, Any]], Law]) -> Callable[[int, int], Draw]:
    """RHC's covariates, drawn with replacement: its patients are the population."""

    def draw(n: int, seed: int) -> Draw:
        patients = _patients()
        rng = np.random.default_rng(seed)
        e, baseline, tau = (np.asarray(part) for part in law(_units(patients)))
        at = rng.integers(len(patients), size=n)
        t = rng.random(n) < e[at]
        y = rng.random(n) < baseline[at] + t * tau[at]
        frame = patients[list(PATIENT_BOUNDS)].iloc[at].reset_index(drop=True)
        frame = frame.assign(death=y.astype(int), treated=t.astype(int))
        bounds = {"death": (0, 1), "treated": (0, 1), **PATIENT_BOUNDS}
        return Draw(f"death ~ treated | {PATIENT}", frame, bounds, float(tau.mean()))

    return draw


# --- Get Out the Vote (Gerber, Green and Larimer 2008) ---------------------------------------

VOTES = ["g2000", "g2002", "p2000", "p2002", "p2004"]
GOTV_EFFECT = 0.0813
"""The trial's difference in means, Neighbors against Control."""


@lru_cache
def _voters() -> pd.DataFrame:
    return pd.read_parquet(GOTV)


def _gotv(n: int, seed: int) -> Draw:
    bounds: dict[str, Any] = dict.fromkeys(("voted", "neighbors", *VOTES), (0, 1))
    bounds |= {"age": (18, 110), "hh_size": (1, 8), "sex": ["female", "male"]}
    formula = f"voted ~ neighbors | age + C(sex) + hh_size + {' + '.join(VOTES)}"
    return Draw(formula, _voters(), bounds, GOTV_EFFECT, 1 / 6)


# --- a vote ------------------------------------------------------------------------------------

SHARES = (0.1, 0.3, 0.5)


def _vote(share: float) -> Callable[[int, int], Draw]:
    """A trial in halves with an outcome of 0 or 1, whose scores have few values.

    Untreated, `share` votes, more of them where x is large; the treatment adds .03.
    """

    def draw(n: int, seed: int) -> Draw:
        rng = np.random.default_rng(seed)
        x, t = rng.random(n), rng.random(n) < 0.5
        vote = rng.random(n) < share + 0.15 * (x - 0.5) + 0.03 * t
        frame = pd.DataFrame({"vote": vote.astype(int), "mailed": t.astype(int), "x": x})
        bounds = {"vote": (0, 1), "mailed": (0, 1), "x": (0, 1)}
        return Draw("vote ~ mailed | x", frame, bounds, 0.03, 0.5)

    return draw


def _random(shape: str) -> Callable[[int, int], Draw]:
    def draw(n: int, seed: int) -> Draw:  # the law draws its own size
        del n
        frame, bounds, effect = random_law(shape, seed)
        return Draw(f"Y ~ T | {' + '.join(x for x in bounds if x != 'Y')}", frame, bounds, effect)

    return draw


DRAWS: dict[str, Callable[[int, int], Draw]] = {
    "dataset 1": _private_ate(1),
    "dataset 2": _private_ate(2),
    "trial": _trial,
    **{f"setup {setup}": _niu(setup) for setup in ("A", "B", "C", "D", "E")},
    **{name: _law(name) for name in ("harbour", "orchard", "canyon")},
    "RHC": _rhc,
    "RHC smooth": _simulated(_smooth),
    "RHC interacting": _simulated(_interacting),
    "GOTV": _gotv,
    **{f"random {shape}": _random(shape) for shape in SHAPES},
    **{f"vote of {share:.0%}": _vote(share) for share in SHARES},
}
FILES = {name: RHC for name in DRAWS if name.startswith("RHC")} | {"GOTV": GOTV}


def missing(names: set[str]) -> str | None:
    """The file without which these data cannot be drawn, or None if all are there."""
    absent = {FILES[name].name for name in names if name in FILES and not FILES[name].exists()}
    return f"needs {', '.join(sorted(absent))} in {DATA}, not shipped" if absent else None
