"""Bought bounds are published: rounded, in summary, alerts and file, and reusable as bounds=."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private
from hypothesis import given
from hypothesis import strategies as st

import privcausal as pc
from privcausal.inference.ranges import ZERO_CELL as ZERO
from privcausal.inference.ranges import Window, rounded
from privcausal.request.schema import Interval

STUDY = pc.datasets.clinic(8000)
FORMULA = "recovery ~ programme | age + stage + C(ward)"


def frame() -> pd.DataFrame:
    data = STUDY.frame.assign(stage=(STUDY.frame["age"] // 20).astype(int))
    return data.assign(flag=(data["age"] > 60).astype(int))


def bought(formula: str = FORMULA, **options: Any) -> Any:
    return private(formula, frame(), eps=4, **options, seed=2)


@pytest.mark.slow
def test_they_are_in_the_schema_the_summary_and_the_file(reloaded: Any) -> None:
    fit = bought(bounds={"age": (18, 95)})
    found = fit.schema
    assert list(found) == ["recovery", "programme", "age", "stage", "ward"]
    assert found["age"] == Interval(18, 95)
    assert found["stage"].lo == int(found["stage"].lo)
    assert {"east", "north", "south", "west"} == set(found["ward"].values)
    said = " ".join(str(fit.summary()).split())
    for name in ("recovery", "stage"):
        assert f"{name} [{found[name].lo:g}, {found[name].hi:g}]" in said
    assert " age [" not in said
    assert "ward 4 levels" in said
    assert reloaded(fit).schema == found


@pytest.mark.slow
def test_they_are_bounds_of_the_next_fit() -> None:
    again = bought(bounds=bought().schema)
    assert "bounds" not in again.alerts
    assert "bounds" not in set(again.budget["stage"])
    assert "levels" not in again.alerts


@pytest.mark.parametrize(("rare", "further"), [(0, False), (300, True)])
def test_further_labels_are_a_level_if_there_is_a_sign_of_them(rare: int, further: bool) -> None:
    """300 rows of 3,000 with labels of their own, or none: 8 noise sds; fixed noise."""
    data = frame().assign(ward=lambda d: [f"r{k}" if k < rare else w for k, w in enumerate(d.ward)])
    fit = private(
        "recovery ~ programme | C(ward)", data, eps=4, bounds={"recovery": (0, 100)}, seed=2
    )
    assert fit.schema["ward"].other == further
    assert {"east", "north", "south", "west"} == set(fit.schema["ward"].values)


def test_a_function_of_the_outcome_keeps_the_columns_own_domain() -> None:
    fit = bought("log(recovery) ~ programme", bounds={"recovery": (1, 100)})
    assert fit.schema["recovery"] == Interval(1, 100)


def test_whole_numbers_have_whole_bounds_by_their_type() -> None:
    found = bought("flag ~ programme | stage").schema
    assert found["flag"].lo <= 0  # noise may hide values below
    assert found["flag"].lo == int(found["flag"].lo)
    assert found["flag"].hi == int(found["flag"].hi) >= 1


ENDS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-9)


@given(ENDS, st.floats(1e-3, 1e6), st.booleans())
def test_rounding_cuts_nothing_and_widens_by_two_percent(
    lo: float, width: float, whole: bool
) -> None:
    hi = lo + width
    found = rounded(Interval(lo, hi), whole)
    # no whole number of the interval is lost
    inside = [np.ceil(lo), np.floor(hi)] if whole else [lo, hi]
    assert found.lo <= inside[0] + ZERO
    assert found.hi >= inside[1] - ZERO
    assert found.width <= 1.0201 * width + 3 * ZERO
    if not whole and width > 1:
        assert len(f"{found.lo:.12g}".lstrip("-").replace(".", "").lstrip("0")) <= 10


@pytest.mark.parametrize(
    ("lo", "hi", "whole", "wanted"),
    [
        (-9.5e-07, 4, True, (0, 4)),
        (-9.5e-07, 3.97, False, (0, 3.98)),
        (15.83, 97.2, False, (15.5, 97.5)),
        (15.83, 97.2, True, (16, 97)),
        (0.2, 0.8, True, (0.2, 0.8)),
        (-ZERO, ZERO, False, (-9.6e-07, 9.6e-07)),
        (-ZERO, ZERO, True, (-9.6e-07, 9.6e-07)),
        (-123456, 654321, False, (-125000, 655000)),
    ],
)
def test_ends_are_short(lo: float, hi: float, whole: bool, wanted: tuple[float, float]) -> None:
    found = rounded(Interval(lo, hi), whole)
    assert (found.lo, found.hi) == pytest.approx(wanted)


@pytest.mark.parametrize("kind", [float, int])
def test_a_column_of_zeros_has_bounds(kind: type) -> None:
    rows = frame().assign(zero=np.zeros(len(frame()), kind))
    fit = private("recovery ~ programme | zero", rows, bounds={"recovery": (0, 100)}, seed=2)
    domain = fit.schema["zero"]
    assert isinstance(domain, Interval)
    assert domain.lo <= 0 <= domain.hi


def test_whole_numbers_beyond_an_end_moved_inward_lose_no_more_than_said() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        own = Interval(-rng.uniform(0, 3), rng.uniform(1, 8))
        y = rng.integers(-9, 15, 50).astype(float)
        beyond = np.array([(y < own.lo).sum(), (y > own.hi).sum()])
        lost = np.array([np.maximum(own.lo - y, 0).sum(), np.maximum(y - own.hi, 0).sum()])
        window = Window(own, np.stack([beyond, beyond]), lost / np.maximum(beyond, 1))
        kept = window.moved_to(rounded(own, True))
        more = [
            np.maximum(kept.interval.lo - y, 0).sum(),
            np.maximum(y - kept.interval.hi, 0).sum(),
        ]
        assert (beyond * kept.excess >= np.array(more) - 1e-9).all()
