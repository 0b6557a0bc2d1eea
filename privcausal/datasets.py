"""Studies with a known truth (the papers' simulations, votes, an invented clinic); CRITEO's file.

Age, severity and recovery of the clinic are beta-binomial: bounded, whole numbers (or tenths) and
exact means, so that nothing is rounded or cut and the average effect has a closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcausal.errors import DataError
from privcausal.request.schema import Binary
from privcausal.simulations import (
    Domain,
    Study,
    Surface,
    bernoulli,
    betlei_sine,
    dpcate,
    generator,
    niu,
    private_ate,
    private_trial,
    sigmoid,
)
from privcausal.typing import Frame, Vector

__all__ = [
    "Study", "Trial", "betlei_sine", "clinic", "clinic_effect", "criteo", "dpcate", "niu",
    "private_ate", "private_trial", "voting",
]  # fmt: skip

_WARDS = ("east", "north", "south", "west")  # sorted: _ward_codes searches
_WARD_SHARE: Vector = np.array([0.30, 0.25, 0.25, 0.20])
_WARD_EFFECT: Vector = np.array([0.0, 2.0, -1.0, 1.0])  # points of recovery
_WARD_BASE: Vector = np.array([0.0, -2.0, 1.5, 0.5])  # points of recovery
_WARD_LOGIT: Vector = np.array([0.0, 0.5, -0.3, 0.2])
_AGE_MEAN, _AGE_SPREAD = 0.55, 5.0  # of (age - 18) / 77: mean, and the two beta parameters' sum
_SICK_LOW, _SICK_RISE = 0.25, 0.40  # mean severity / 10 at 18, and its rise up to 95


def _beta_binomial(
    rng: np.random.Generator, mean: Vector, spread: float, steps: int
) -> NDArray[np.int64]:
    """Whole numbers in [0, steps] with mean steps * mean; larger spread, smaller variance."""
    chance = rng.beta(spread * mean, spread * (1.0 - mean))
    return rng.binomial(steps, chance).astype(np.int64)


def _ward_codes(ward: Any) -> NDArray[np.int64]:
    names = np.asarray(ward, dtype=np.str_)
    if not np.isin(names, _WARDS).all():
        raise DataError(f"column 'ward' holds another ward than {', '.join(_WARDS)}")
    return np.searchsorted(_WARDS, names).astype(np.int64)


def clinic_effect(frame: Frame) -> Vector:
    """True effect of the programme, in points of recovery, shape (n,).

    8 + (severity - 4.5) - 4 ((age - 55) / 25)^2 + (2 north, -1 south, 1 west): it helps the
    sicker, and harms some of the oldest.

    Parameters
    ----------
    frame : Frame
        Columns "age" (years), "severity" and "ward"; another ward raises `DataError`.
    """
    age = np.asarray(frame["age"], dtype=np.float64)
    severity = np.asarray(frame["severity"], dtype=np.float64)
    bend: Vector = 4.0 * ((age - 55.0) / 25.0) ** 2
    return 8.0 + (severity - 4.5) - bend + _WARD_EFFECT[_ward_codes(frame["ward"])]


def _clinic_ate() -> float:
    """Average of `clinic_effect`, from the moments of its columns.

    With m = 0.55, s = 5 and N = 77, a beta-binomial has mean N m and variance
    N m (1 - m) (s + N) / (s + 1); mean severity is linear in age.
    """
    m, s, N = _AGE_MEAN, _AGE_SPREAD, 77.0
    age = 18.0 + N * m
    age_variance = N * m * (1.0 - m) * (s + N) / (s + 1.0)
    severity = 10.0 * (_SICK_LOW + _SICK_RISE * m)
    bend = 4.0 * (age_variance + (age - 55.0) ** 2) / 25.0**2
    return 8.0 + (severity - 4.5) - bend + float(_WARD_SHARE @ _WARD_EFFECT)


def _clinic_columns(rng: np.random.Generator, n: int) -> dict[str, NDArray[Any]]:
    """Age, severity (rises with age), bmi and ward (independent of both)."""
    years = _beta_binomial(rng, np.full(n, _AGE_MEAN), _AGE_SPREAD, 77)
    sick = _beta_binomial(rng, _SICK_LOW + _SICK_RISE * years.astype(float) / 77.0, 6.0, 100)
    return {
        "age": 18 + years,
        "severity": sick / 10.0,
        "bmi": np.round(15.0 + 35.0 * rng.beta(3.5, 6.0, n), 1),
        "ward": np.array(_WARDS, dtype=object)[rng.choice(4, size=n, p=_WARD_SHARE)],
    }


def _clinic_surface(columns: Mapping[str, NDArray[Any]]) -> Surface:
    """The sicker and the younger are treated more often; sickness, age and weight slow recovery."""
    years, ward = (columns["age"] - 60.0) / 20.0, _ward_codes(columns["ward"])
    sick, weight = columns["severity"] - 4.5, np.tanh((columns["bmi"] - 28.0) / 8.0)
    logit = 0.5 * sick - 0.8 * years + 0.4 * weight + _WARD_LOGIT[ward]
    baseline = 55.0 - 2.6 * sick - 6.0 * years - 5.0 * weight + _WARD_BASE[ward]
    # between 0.1 and 0.9, smoothly: the default propensity_clip then costs no bias
    return Surface(0.1 + 0.8 * sigmoid(logit), baseline, clinic_effect(columns))


def clinic(n: int = 5000, seed: int = 0) -> Study:
    """An invented rehabilitation programme, observed and not randomised.

    The sicker and the younger are sent to the programme more often, and the sicker recover less
    without it, so the plain difference of means is far too small. The programme's effect is
    `clinic_effect`, its average in closed form.

    Returns
    -------
    Study
        Outcome "recovery" (points, 0 to 100), treatment "programme" (0 or 1), modifiers "age"
        (years, 18 to 95), "severity" (0 to 10) and "ward" (east, north, south, west), control
        "bmi" (15 to 50). Propensities lie between 0.1 and 0.9.
    """
    import pandas as pd

    rng = generator(n, seed)
    columns = _clinic_columns(rng, n)
    truth = _clinic_surface(columns)
    treated = bernoulli(rng, truth.propensity)
    mean = (truth.baseline + treated * truth.tau) / 100.0
    outcome = {
        "recovery": _beta_binomial(rng, mean, 20.0, 1000) / 10.0,
        "programme": treated.astype(np.int64),
    }
    bounds: dict[str, Domain] = {
        "recovery": (0.0, 100.0), "programme": (0.0, 1.0), "age": (18.0, 95.0),
        "severity": (0.0, 10.0), "bmi": (15.0, 50.0), "ward": list(_WARDS),
    }  # fmt: skip
    return Study(
        name="clinic",
        formula="recovery ~ programme | age + severity + C(ward) | bmi",
        bounds=bounds,
        ate=_clinic_ate(),
        frame=pd.DataFrame({**outcome, **columns}),
        effect=clinic_effect,
        **truth._asdict(),
    )


_VOTERS: dict[str, Domain] = {
    "persons": (1.0, 2.0), "newreg": (0.0, 1.0), "vote98": (0.0, 1.0), "vote00": (0.0, 1.0),
    "age": (18.0, 100.0), "female": (0.0, 1.0),
}  # fmt: skip
_PLACES = ("state", "county", "competiv", "st_sen", "st_hse")


def _spiked(frame: Frame) -> Vector:
    """-VOTE00 / (2 + 100 / AGE), shape (n,); ages are cut to their domain."""
    age = np.clip(np.asarray(frame["age"], dtype=np.float64), 18.0, 100.0)
    return -np.asarray(frame["vote00"], dtype=np.float64) / (2.0 + 100.0 / age)


def voting(path: str | Path, seed: int = 0) -> Study:
    """The voting data of Niu et al. (2022, section 5.1.2), from the public file, effect spiked in.

    Arceneaux, Gerber and Green (2006) had people called before the vote of 2002. Nie and Wager
    (2021) drew three untreated people for two treated ones: 59,264 and 88,896 rows with 11
    covariates, which are ``experiments_for_paper/section2_example/data_clean.csv`` of
    github.com/xnie/rlearner (the authors' notebook reads it there; the whole experiment is
    Mobilization in github.com/gsbDBI/ExperimentData). Calls did next to nothing, so both papers
    add an effect tau = -VOTE00 / (2 + 100 / AGE): with probability -tau a person's outcomes become
    Y(0) = 1 and Y(1) = 0, and stay as they were otherwise.

    Parameters
    ----------
    path : str or Path
        CSV with a header: Y (voted in 2002), W (to be called), persons, state, county, competiv,
        st_sen, st_hse, newreg, vote98, vote00, age, female; in any order. It is not shipped.
    seed : int
        Of the coins by which outcomes become others.

    Returns
    -------
    Study
        All rows. `bounds` of state, county, competiv, st_sen and st_hse are codes' ranges in the
        file, which is public; the others are declared. `propensity` is the share of treated by
        state and competitiveness, within which treatment was drawn; `baseline` is unknown (NaN).

    Raises
    ------
    DataError
        A column is missing, or holds what it cannot.
    """
    import pandas as pd

    covariates = [*_VOTERS, *_PLACES]
    frame = pd.read_csv(path)
    if missing := [name for name in ("Y", "W", *covariates) if name not in frame]:
        raise DataError(f"the file of votes has no column {', '.join(missing)}")
    frame = frame[["Y", "W", *covariates]].dropna().reset_index(drop=True)
    for name in ("Y", "W", "vote00"):
        if not frame[name].isin([0, 1]).all():
            raise DataError(
                f"column {name!r} of the file of votes holds another value than 0 and 1"
            )
    tau, rng = _spiked(frame), np.random.default_rng(seed)
    flipped = rng.random(len(frame)) < -tau
    frame["Y"] = np.where(flipped, 1 - frame["W"], frame["Y"]).astype(np.int64)
    places: dict[str, Domain] = {
        name: (float(frame[name].min()), float(frame[name].max())) for name in _PLACES
    }
    return Study(
        name="voting",
        formula=f"Y ~ W | {' + '.join(covariates)}",
        bounds={"Y": (0.0, 1.0), "W": (0.0, 1.0), **_VOTERS, **places},
        ate=float(tau.mean()),
        frame=frame,
        tau=tau,
        propensity=frame.groupby(["state", "competiv"])["W"].transform("mean").to_numpy(np.float64),
        baseline=np.full(len(frame), np.nan),
        effect=_spiked,
    )


class Trial(NamedTuple):
    """Rows of a real trial with a formula and declared domains; nobody knows its effects."""

    formula: str
    frame: Any
    bounds: Mapping[str, Any]


_CRITEO: dict[str, tuple[float, float]] = {
    "f0": (12, 27), "f1": (10, 17), "f2": (8, 10), "f3": (-9, 5), "f4": (10, 22), "f5": (-10, 5),
    "f6": (-32, 1), "f7": (4, 12), "f8": (3, 4), "f9": (13, 76), "f10": (5, 7), "f11": (-2, 0),
}  # fmt: skip
_CRITEO_BINARY = ("treatment", "conversion", "visit", "exposure")


def criteo(path: str | Path) -> Trial:
    """CRITEO-UPLIFT v2.1 (Diemert et al. 2018) from its file, CSV (also ``.gz``) or Parquet.

    Domains are whole numbers that were set without the file at hand, so that they are public, and
    values beyond them are cut; nothing is computed from the rows at `path`. The features have no
    units.

    Returns
    -------
    Trial
        Outcome "visit", treatment "treatment" (0 or 1, 85 % treated), modifiers "f0" to "f11" as
        float32; the file has 13,979,592 rows, which take 0.7 GB. Also "conversion" and "exposure",
        which come after treatment.

    Raises
    ------
    DataError
        The file lacks one of these columns.
    """
    import pandas as pd

    file, columns = Path(path), [*_CRITEO, *_CRITEO_BINARY]
    kinds = dict.fromkeys(_CRITEO, "float32") | dict.fromkeys(_CRITEO_BINARY, "int8")
    parquet = file.suffix == ".parquet"
    try:
        frame = (
            pd.read_parquet(file, columns=columns).astype(kinds)
            if parquet
            else pd.read_csv(file, usecols=columns, dtype=kinds)[columns]
        )
    except (ValueError, KeyError):  # texts of these errors may hold values of rows
        raise DataError(f"no file of CRITEO-UPLIFT v2.1: it has {', '.join(columns)}") from None
    bounds = {**_CRITEO, **dict.fromkeys(_CRITEO_BINARY, Binary())}
    return Trial(f"visit ~ treatment | {' + '.join(_CRITEO)}", frame, bounds)
