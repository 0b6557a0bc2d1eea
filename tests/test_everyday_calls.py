"""Random calls on the data that people have: each is refused in words, or gives a whole fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import privcausal as pc
from privcausal.request.schema import Interval
from privcausal.testing import seeded_noise, zero_noise

Rng = np.random.Generator
Law = tuple[Callable[[Rng, Any], Any], Any]
"""Values from a standard normal number, and their declared domain."""

COVARIATES: dict[str, Law] = {
    "normal": (lambda _, z: z, (-4, 4)),
    "skewed": (lambda _, z: np.exp(z), (0, 20)),
    "0/1": (lambda _, z: (z > 0) * 1, (0, 1)),
    "rare": (lambda _, z: (z > 2) * 1, (0, 1)),
    "count": (lambda rng, z: rng.poisson(np.exp(np.minimum(z, 2))), (0, 15)),
    "labels": (lambda rng, z: rng.choice(list("abcd"), len(z)), list("abcd")),
    "constant": (lambda _, z: np.ones(len(z)), (0, 2)),
    "tiny": (lambda _, z: z * 1e-6, (-4e-6, 4e-6)),
    "negative": (lambda _, z: -np.exp(z), (-8, 0)),
    "sparse": (lambda rng, z: np.where(rng.random(len(z)) < 0.8, 0.0, np.exp(z)), (0, 1000)),
    "far from zero": (lambda _, z: 100 + z, (0, 1000)),
}

OUTCOMES: dict[str, Law] = {
    "normal": (lambda _, z: z, (-8, 8)),
    "0/1": (lambda _, z: (z > 0) * 1, (0, 1)),
    "rare": (lambda _, z: (z > 2.5) * 1, (0, 1)),
    "labels": (lambda _, z: np.where(z > 0, "yes", "no"), ["no", "yes"]),
    "count": (lambda rng, z: rng.poisson(np.exp(np.clip(z, -3, 2))), (0, 30)),
    "cost": (lambda _, z: np.exp(np.clip(z, -6, 6)), (0, 500)),
    "loss": (lambda _, z: -np.exp(np.clip(z, -6, 3)), (-30, 0)),
    "percent": (lambda _, z: np.clip(50 + 10 * z, 0, 100), (0, 100)),
    "likert": (lambda _, z: np.clip(np.round(3 + z), 1, 5), (1, 5)),
    "constant": (lambda _, z: np.full(len(z), 3.0), (0, 5)),
    "sparse": (lambda rng, z: np.where(rng.random(len(z)) < 0.95, 0.0, np.exp(z)), (0, 1000)),
    "large": (lambda _, z: z * 1e8, (-1e9, 1e9)),
    "loose": (lambda _, z: z, (-1000, 1000)),
    "far from zero": (lambda _, z: 1e5 + z, (1e5 - 8, 1e5 + 8)),
}


def study(rng: Rng, outcome: str) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
    """A table, its domains, and the names of its covariates; some domains are not declared."""
    n = int(rng.choice([20, 60, 200, 600, 2000]))
    frame, bounds = pd.DataFrame(index=range(n)), dict[str, Any]()
    shift = np.zeros(n)
    for j, kind in enumerate(rng.choice(list(COVARIATES), rng.integers(1, 5))):
        z, (make, domain) = rng.normal(size=n), COVARIATES[kind]
        frame[f"X{j}"], bounds[f"X{j}"] = make(rng, z), domain
        shift = shift + 0.5 * z
    share = rng.choice([0.5, 0.33, 0.1, 0.03])
    chance = 1 / (1 + np.exp(-np.log(share / (1 - share)) - rng.choice([0, 0.5]) * shift))
    frame["T"] = (rng.random(n) < chance).astype(rng.choice([int, float, bool]))
    make, bounds["Y"] = OUTCOMES[outcome]
    frame["Y"] = make(rng, shift + rng.choice([0, 1]) * frame["T"] + rng.normal(size=n))
    if rng.random() < 0.2 and pd.api.types.is_float_dtype(frame["Y"]):
        frame.loc[rng.random(n) < 0.05, "Y"] = np.nan
    covariates = list(bounds)[:-1]
    return frame, {k: v for k, v in bounds.items() if rng.random() > 0.04}, covariates


CALLS = ("average", "average", "privcate", "regress", "trial", "slope", "late", "arms")


def drawn(seed: int) -> tuple[Callable[..., Any], str, pd.DataFrame, dict[str, Any]]:
    """A random call; every kind of call meets every kind of outcome."""
    rng, outcomes = np.random.default_rng([seed, 2]), list(OUTCOMES)
    call = CALLS[(seed + seed // len(outcomes)) % len(CALLS)]
    frame, bounds, covariates = study(rng, outcomes[seed % len(outcomes)])
    options: dict[str, Any] = {"bounds": bounds, "eps": float(rng.choice([0.1, 0.5, 1, 4, 10]))}
    options["neighbors"] = str(rng.choice(["substitute", "add_remove"], p=[0.85, 0.15]))
    rest = " + ".join(covariates)
    match call:
        case "regress":
            return pc.regress, f"Y ~ T + {rest}", frame, options
        case "privcate":
            learner = str(rng.choice(["r", "dr", "s", "t", "x", "adum"]))
            return pc.privcate, f"Y ~ T | {rest}", frame, options | {"learner": learner}
        case "trial":
            return pc.private, "Y ~ T", frame, options
        case "slope":
            frame["D"], bounds["D"] = rng.uniform(0, 5, len(frame)), (0, 5)
            return pc.private, f"Y ~ D | {rest}", frame, options | {"estimand": "PLR"}
        case "late":
            told = rng.random(len(frame)) < 0.7
            frame["Z"] = np.where(told, frame["T"], 1 - frame["T"])
            return pc.private, f"Y ~ T | {rest} | T ~ Z", frame, options | {"estimand": "LATE"}
        case "arms":
            frame["A"], bounds["A"] = rng.choice(list("pqr"), len(frame)), list("pqr")
            return pc.private, f"Y ~ A | {rest}", frame, options
    labels = [name for name in covariates if isinstance(bounds.get(name), list)]
    several = rng.random() < 0.3
    estimand = ["ATE", "ATT", "ATO"] if several else str(rng.choice(["ATE", "ATT", "ATO"]))
    options |= {"groups": labels[:1], "estimand": estimand}
    options["propensity"] = None if rng.random() < 0.8 else 0.5
    return pc.private, f"Y ~ T | {rest}", frame, options


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "seed", [*range(112), *(pytest.param(s, marks=pytest.mark.slow) for s in range(112, 560))]
)
def test_a_call_is_refused_or_whole(seed: int, tmp_path: Path) -> None:
    try:
        with seeded_noise(seed):  # shows any other error as it is
            call, formula, frame, options = drawn(seed)
            fit = call(formula, frame, **options)
    except pc.PrivcausalError:
        return
    assert str(fit.summary(full=True))
    found = fit.estimate.averages
    if found is not None:
        assert (np.diag(found.privacy) >= 0).all() and (np.diag(found.sampling) >= 0).all()
        late = fit.plan.request.estimand == "LATE"  # several instruments may contradict each other
        assert late or not fit.conf_int().isna().any(axis=None)
    if seed % 5 == 0:
        fit.save(tmp_path / "fit.json")
        assert str(pc.load(tmp_path / "fit.json").summary()) == str(fit.summary())


def twin(fit: Any, formula: str, frame: pd.DataFrame) -> Any:
    """The fit of statsmodels on the values within the bounds; Neyman's errors for a trial."""
    rows = frame.assign(T=frame["T"].astype(float))
    for name in fit.schema:
        if isinstance(domain := fit.schema[name], Interval):
            rows[name] = rows[name].astype(float).clip(domain.lo, domain.hi)
    if rows["Y"].isin(["no", "yes"]).all():
        rows["Y"] = (rows["Y"] == "yes") * 1.0
    return smf.ols(formula, rows).fit(cov_type="HC2" if formula == "Y ~ T" else "nonrobust")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "seed", [*range(0, 112, 2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(112, 560))]
)
def test_without_noise_a_call_is_refused_or_exact(seed: int) -> None:
    call, formula, frame, options = drawn(seed)
    try:
        with zero_noise():
            fit = call(formula, frame, **options)
    except pc.PrivcausalError:
        return
    assert str(fit.summary(full=True))
    late = options.get("estimand") == "LATE"  # several instruments may contradict each other
    numbers = fit.params, fit.bse, *(() if late else (fit.conf_int(),))
    assert not any(np.isnan(v.to_numpy(float)).any() for v in numbers)
    arms = frame.dropna()["T"].value_counts()
    if "|" in formula or len(arms) < 2 or arms.min() < 2:  # no twin, or no variance of an arm
        return
    known, names = twin(fit, formula, frame), ["T" if v == "ATE" else v for v in fit.params.index]
    errors = known.bse[names].to_numpy()
    if known.rsquared > 1 - 1e-9 or np.ptp(known.model.endog) == 0:  # errors are rounding only
        columns = known.model.data.xnames
        size = np.abs(known.model.exog).max(axis=0)[[columns.index(v) for v in names]]
        errors = 1e-4 * np.abs(known.model.endog).max() / size
        assert (fit.bse <= errors).all()
    else:
        np.testing.assert_allclose(fit.bse, errors, rtol=0.01)
    assert (np.abs(fit.params.to_numpy() - known.params[names]) <= 0.05 * errors).all()
