"""Numbers and lists of NumPy, `decimal`, and `fractions` mean what Python's own mean."""

from __future__ import annotations

import datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal.errors import as_plain, is_number
from privcausal.testing import seeded_noise

N = 300


@cache
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"T": rng.integers(0, 2, N), "x": rng.uniform(0, 1, N)})
    frame["v"], frame["days"] = np.arange(N) // 10, rng.exponential(100, N)
    frame["died"], frame["Y"] = rng.integers(0, 2, N), frame["T"] + rng.normal(0, 1, N)
    return frame


def panel() -> pd.DataFrame:
    return rows().assign(u=np.arange(N) // 3, t=1 + np.arange(N) % 3, f=2 * (np.arange(N) // 3 % 2))


BOUNDS: dict[str, Any] = {"Y": (-5, 5), "x": (0, 1)}
OTHER = {"Y": (Decimal(-5), np.int8(5)), "x": (np.array(0.0), Fraction(2, 2))}
CALLS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "private": (
        lambda **o: pc.private("Y ~ T | x", rows(), **o),
        {"eps": 1, "delta": 1e-6, "bounds": BOUNDS, "propensity": 0.5, "groups": ["x >= 0.5"]},
        {
            "eps": np.int64(1), "delta": Decimal("1e-6"), "bounds": OTHER,
            "propensity": np.float32(0.5), "groups": np.array(["x >= 0.5"]),
        },
    ),
    "units": (
        lambda **o: pc.regress("Y ~ x", rows(), bounds=BOUNDS, unit="v", **o),
        {"max_rows": 10, "eps": 2.5}, {"max_rows": np.uint8(10), "eps": Fraction(5, 2)},
    ),
    "clusters": (
        lambda most, shares, clip: pc.private(
            "Y ~ T | x", rows(), bounds=BOUNDS,
            control=pc.Control(
                cluster="v", max_cluster_rows=most, shares=shares, propensity_clip=clip
            ),
        ),
        {"most": 10, "shares": {"nuisance": 0.25}, "clip": 0.125},
        {"most": np.array(10), "shares": {"nuisance": np.float64(0.25)}, "clip": Fraction(1, 8)},
    ),
    "survival": (
        lambda **o: pc.private("Surv(days, died) ~ T", rows(), estimand="RMST", **o),
        {"horizon": 90}, {"horizon": np.int64(90)},
    ),
    "panel": (
        lambda **o: pc.did("Y ~ 1", panel(), unit="u", time="t", cohort="f", **o),
        {"periods": [1, 2, 3], "bounds": BOUNDS | {"f": [0, 2, 3]}},
        {"periods": np.array([1, 2, 3]), "bounds": BOUNDS | {"f": np.array([0, 2, 3])}},
    ),
    "cells": (
        lambda cuts: pc.privcate(
            "Y ~ T | x", rows(), bounds=BOUNDS, learner=pc.learners.ADUM(partition={"x": cuts})
        ),
        {"cuts": (0.25, 0.5)}, {"cuts": (np.float64(0.25), Decimal("0.5"))},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_any_library_give_the_same_fit(name: str, tmp_path: Path) -> None:
    call, own, other = CALLS[name]
    saved = []
    for options in (own, other):
        with seeded_noise(2):
            fit = call(**options)
        fit.save(tmp_path / "fit.json")
        saved.append((tmp_path / "fit.json").read_bytes())
        assert len(fit.conf_int(alpha=np.array(0.1))) == len(fit.conf_int(alpha=Decimal("0.1")))
    assert saved[0] == saved[1]


@pytest.mark.slow
def test_a_plan_and_a_ledger_read_such_numbers(tmp_path: Path) -> None:
    plans = [
        pc.plan("Y ~ T | x", n=n, eps=eps, bounds=BOUNDS, r2=r2, power=power).table
        for n, eps, r2, power in (
            ([500, 1000], [1.0, 2.0], 0.5, 0.75),
            (np.array([500, 1000]), np.array([1, 2]), Fraction(1, 2), np.float32(0.75)),
        )
    ]
    pd.testing.assert_frame_equal(*plans)
    ledger = pc.Ledger(tmp_path / "a.db", "a", eps=Decimal(2), delta=np.float64(1e-5))
    assert (ledger.epsilon, type(ledger.epsilon)) == (2.0, float)
    assert pc.TradeOff.from_dp(np.int64(1), Decimal(0)).epsilon(0) == pc.TradeOff.from_dp(
        1
    ).epsilon(0)


class Code(IntEnum):
    ONE = 1


OTHERS: list[Any] = [
    True, "1", None, 1j, datetime.date(2020, 1, 1), np.datetime64("2020-01-01"),
    np.timedelta64(1, "D"), Code.ONE, np.ones((2, 2)), {1}, pd.Timestamp("2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_other_values_stay_and_are_no_numbers(value: Any) -> None:
    assert as_plain(value) is value
    assert isinstance(value, Code) or not is_number(as_plain(value))


def test_numbers_beyond_floats_do_not_raise() -> None:
    assert as_plain(Fraction(10**400)) == as_plain(Decimal("1e400")) == np.inf
    assert np.isnan(as_plain(Decimal("sNaN")))
    assert as_plain(np.bool_(True)) is True
    assert as_plain({"a": (np.int8(1), [np.array(2)])}) == {"a": (1, [2])}
