"""Groups, projection, effects by modifier and the average of one printed table say one thing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, privcate, view_of

import privcausal as pc
from privcausal.inference import effects as average

BOUNDS: dict[str, Any] = {
    "Y": (-4, 8), "age": (20, 80), "sex": ["F", "M"], "ward": ["a", "b", "c"]
}  # fmt: skip
LEARNERS = ("r", "dr", "s", "t", "x", "dpcate")
FAR = 4.5
"""Standard errors of a difference: one in 700 of some 200 normal ones; the noise is seeded."""


@lru_cache
def study(n: int, seed: int, more: float) -> pd.DataFrame:
    """Effect .3, and `more` beyond it for M; treatment and outcome both depend on age."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(20, 80, n), rng.choice(["F", "M"], n, p=[0.45, 0.55])
    t = (rng.random(n) < 0.35 + 0.3 * (age - 20) / 60) * 1
    y = 1 + 0.02 * age + t * (0.3 + more * (sex == "M")) + rng.normal(0, 1, n)
    ward = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame({"Y": np.clip(y, -4, 8), "T": t, "age": age, "sex": sex, "ward": ward})


def fitted(learner: str, n: int, seed: int, more: float, eps: float) -> Any:
    kernel = learner == "dpcate"
    formula = "Y ~ T | age | C(sex)" if kernel else "Y ~ T | C(sex) + age"
    return privcate(
        formula, study(n, seed, more), learner=learner, base="kernel" if kernel else "gam",
        eps=eps, bounds=BOUNDS, groups=["sex", "ward"], seed=seed
    )  # fmt: skip


def of(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame[[str(name).startswith(f"{column}[") for name in frame.index]]


def differences(fit: Any) -> dict[str, tuple[float, float]]:
    """What is said twice in the printed table: the difference, and its standard error at most."""
    view = view_of(fit)
    found: dict[str, tuple[float, float]] = {}

    def told(name: str, one: tuple[float, float], two: tuple[float, float]) -> None:
        found[name] = one[0] - two[0], float(np.hypot(one[1], two[1]))

    ate = view.effects.iloc[0]
    rows = fit.estimate.population.rows()
    tau, sd = fit.estimate.effect(rows), fit.estimate.effect.sd(rows)
    told("average of tau", (tau.mean(), sd.mean()), (ate["estimate"], ate["std_error"]))
    sex = of(view.gates, "sex")
    for shape in view.shapes:
        if shape.name != "sex":
            continue
        half = (np.array(shape.conf_high) - np.array(shape.conf_low)) / 3.92
        for label, value, spread in zip(shape.grid, shape.estimate, half, strict=True):
            group = sex.loc[f"sex[{label}]"]
            told(f"tau of {label}", (value, spread), (group["estimate"], group["std_error"]))
    slopes = view.effects.filter(like="C(sex)", axis=0)
    if len(slopes):
        gap = sex["estimate"].iloc[1] - sex["estimate"].iloc[0]
        slope = slopes.iloc[0]
        told("slope", (slope["estimate"], slope["std_error"]),
             (gap, float(np.hypot(*sex["std_error"]))))  # fmt: skip
    return found


def between(fit: Any) -> bool:
    """Whether the average lies between the groups of each column that partitions the rows."""
    ate, gate = fit.params.iloc[0], fit.gate["estimate"]
    parts = [of(gate.to_frame(), column)["estimate"] for column in ("sex", "ward")]
    return all(part.min() <= ate <= part.max() for part in parts if len(part))


@pytest.mark.slow
@pytest.mark.parametrize("more", [0.0, 0.6])
@pytest.mark.parametrize("learner", LEARNERS)
def test_what_is_said_twice_differs_by_noise_at_most(learner: str, more: float) -> None:
    for seed, (n, eps) in enumerate([(4000, 0.5), (12_000, 1.0)]):
        fit = fitted(learner, n, seed, more, eps)
        assert between(fit)
        for name, (gap, error) in differences(fit).items():
            assert abs(gap) <= FAR * error, (name, n, eps)


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_without_noise_to_speak_of_they_agree(learner: str) -> None:
    """Within a third of the difference between the groups, which all of them find."""
    fit = fitted(learner, 20_000, 1, 0.6, 100.0)
    assert fit.params.iloc[0] == pytest.approx(0.63, abs=0.1)
    assert all(abs(gap) < 0.2 for gap, _ in differences(fit).values()), differences(fit)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATO"])
@pytest.mark.parametrize(
    ("formula", "split"),
    [("Y ~ T | age", "full"), ("Y ~ T | age", "crossfit"), ("Y ~ T | age", "disjoint"),
     ("Y ~ T", "full")],
)  # fmt: skip
def test_an_average_lies_between_its_groups(estimand: str, formula: str, split: Any) -> None:
    for seed in range(3):
        fit = private(
            formula, study(3000, seed, 0.0), estimand=estimand, eps=0.5, bounds=BOUNDS,
            groups=["sex"], control=pc.Control(split=split), seed=seed
        )  # fmt: skip
        assert fit.gate["estimate"].notna().all()
        assert between(fit)


def test_groups_that_were_not_reconciled_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Males and females below the average of both, as it was before."""
    monkeypatch.setattr(average, "upheld", lambda *_: np.zeros((0, 6)))
    assert not all(between(fitted("r", 4000, seed, 0.0, 0.5)) for seed in range(6))
