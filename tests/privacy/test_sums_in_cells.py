"""`from_cells`: what one row moves is within what is stated, whatever sums were rounded to."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privcausal as pc
from privcausal import testing
from privcausal.errors import DataError
from privcausal.vault.sources.cell_table import MOST_COUNT, MOST_ROUNDING

RELATIONS: tuple[Any, ...] = ("substitute", "add_remove")
LEARNERS = (pc.learners.ADUM(release="ends"), pc.learners.ADUM(release="count_sum"))
FAR = [(1.7e9, 1.7e9 + 3600), (1e6, 1e6 + 1), (1e6, 1e6 + 0.002), (-1e9, -1e9 + 5)]
NEAR = [(0, 1), (0.0, 1 + 2.0**-40), (18, 95), (-3, 7.7), (2000, 2030), (0, 1e-9), (99, 100)]


def asked(lines: Any, outcome: Any, recorded: Any = None, **options: Any) -> Any:
    """What the noise source is shown of a table with these columns."""
    frame = lines if not isinstance(lines, dict) else pd.DataFrame(lines)
    with testing.recorded(1, recorded) as record:
        pc.from_cells(frame, ["a", "b"], outcome=outcome, eps=1.0, **options)
    return record.calls


def share(one: Any, two: Any) -> Fraction:
    """What was moved over what was stated, in exact numbers."""
    first, second = (calls[0] for calls in (one, two))
    assert np.array_equal(first.query.weights, np.rint(first.query.weights))
    moved = sum(
        abs(int(x) - int(y)) * int(w)
        for x, y, w in zip(first.exact, second.exact, first.query.weights, strict=True)
    )
    return Fraction(moved) / Fraction(first.query.sensitivity)


def lines(count: int, total: Any, column: str = "sum") -> dict[str, Any]:
    return {"cell": ["a"], "arm": [1], "count": [count], column: [total]}


def pair(outcome: Any, count: int, others: Fraction) -> tuple[float, float]:
    """Sums of `count` - 1 rows and one at either bound, each rounded once."""
    lo, hi = map(Fraction, outcome)
    assert (count - 1) * lo <= others <= (count - 1) * hi
    return float(others + lo), float(others + hi)


@pytest.mark.parametrize("learner", LEARNERS, ids=["ends", "count and sum"])
def test_a_rounded_sum_can_move_by_more_than_its_rows(learner: Any) -> None:
    """Both errors on one side: 2^-22 of a range of one, which noise for exact sums forgets."""
    hi, count = 1 + 2.0**-40, 2**31
    others = Fraction(2**30) + Fraction(math.ulp(2.0**30)) / 2 - Fraction(2) ** -41
    low, high = pair((0, hi), count, others)
    assert high - low > Fraction(hi)
    one = asked(lines(count, low), (0.0, hi), learner=learner)
    two = asked(lines(count, high), (0.0, hi), one, learner=learner)
    exact = asked(lines(count, 2**30), (0.0, hi), learner=learner)
    assert share(one, two) <= 1
    if learner.release == "ends":  # where a row moves sums alone, by all that is stated
        assert share(one, two) * Fraction(one[0].query.sensitivity) > Fraction(
            exact[0].query.sensitivity
        )


@pytest.mark.slow
@given(
    outcome=st.sampled_from(NEAR),
    count=st.sampled_from([1, 2, 3, 1000, 10**6, 10**8, 2**31]),
    part=st.fractions(0, 1),
    tie=st.integers(-2, 2),
    relation=st.sampled_from(RELATIONS),
    learner=st.sampled_from(LEARNERS),
)
@settings(max_examples=170, deadline=None)
def test_no_row_moves_a_rounded_sum_of_many_tables(
    outcome: Any, count: int, part: Fraction, tie: int, relation: Any, learner: Any
) -> None:
    lo, hi = map(Fraction, outcome)
    others = (count - 1) * (lo + (hi - lo) * part)
    # near a tie of the rounding: that is where errors add up
    grid = Fraction(math.ulp(float(others)))
    near = (others // grid) * grid + grid / 2 + tie * (hi - lo) / 2**50
    if (count - 1) * lo <= near <= (count - 1) * hi:
        others = near
    low, high = pair(outcome, count, others)
    options = {"neighbors": relation, "learner": learner}
    before = lines(count - 1, float(others)) if relation == "add_remove" else lines(count, low)
    one = asked(before, outcome, **options)
    for total in (low, high):
        assert share(one, asked(lines(count, total), outcome, one, **options)) <= 1


@pytest.mark.parametrize("outcome", FAR)
@pytest.mark.parametrize("count", [1, 10**9])
def test_floats_without_the_digits_are_refused_whatever_they_are(outcome: Any, count: int) -> None:
    """From bounds and types alone: how many rows there are is private."""
    with pytest.raises(DataError, match="too coarse for the contribution of one row") as caught:
        asked(lines(count, count * outcome[0]), outcome)
    assert "integers or decimals" in str(caught.value)
    assert "fit.plan.sql()" in str(caught.value)


@pytest.mark.parametrize("outcome", NEAR)
def test_noise_grows_by_a_thousandth_at_most(outcome: Any) -> None:
    rounded = asked(lines(1, float(outcome[0])), outcome)[0].query.sensitivity
    exact = asked(lines(1, 0, "steps"), outcome)[0].query.sensitivity
    assert 1 < rounded / exact <= 1 + MOST_ROUNDING
    if outcome == (0, 1):
        assert rounded / exact < 1 + 2e-6


def as_integers(count: int, total: Fraction) -> Any:
    return pd.DataFrame(lines(count, int(total)))


def as_decimals(count: int, total: Fraction) -> Any:
    whole = Decimal(total.numerator) / Decimal(total.denominator)
    kind = pa.decimal128(38, 6)
    return pl.from_arrow(
        pa.table({**lines(count, 0), "sum": pa.array([whole], kind)})  # type: ignore[dict-item]
    )


@pytest.mark.parametrize("made", [as_integers, as_decimals])
@pytest.mark.parametrize("outcome", [(1.7e9, 1.7e9 + 3600), (1e6, 1e6 + 1), (-(2.0**31), 5)])
@pytest.mark.parametrize("learner", LEARNERS, ids=["ends", "count and sum"])
def test_exact_sums_are_taken_to_the_step(made: Any, outcome: Any, learner: Any) -> None:
    lo, hi = map(Fraction, outcome)
    count = 10**8
    others = (count - 1) * lo + (hi - lo) * 12345
    one = asked(made(count, others + lo), outcome, learner=learner)
    two = asked(made(count, others + hi), outcome, one, learner=learner)
    stepwise = asked(lines(1, 0, "steps"), outcome, learner=learner)
    assert one[0].query.sensitivity == stepwise[0].query.sensitivity
    assert share(one, two) == (1 if learner.release == "ends" else Fraction(1, 2))


def test_steps_are_read_to_the_unit() -> None:
    """As floats the sums of 2^31 rows would be multiples of 256."""
    most = 2**61
    one = asked(lines(2**31, most - 1, "steps"), (0, 1), learner=LEARNERS[1])
    two = asked(lines(2**31, most - 2, "steps"), (0, 1), one, learner=LEARNERS[1])
    assert np.abs(one[0].exact - two[0].exact).sum() == 1
    with pytest.raises(DataError, match="'steps' of the table of cells has floats"):
        asked(lines(2, 3.0, "steps"), (0, 1))


@pytest.mark.parametrize("column", ["count", "sum"])
def test_short_floats_are_refused(column: str) -> None:
    frame = pd.DataFrame(lines(3, 1.0)).astype({column: np.float32})
    with pytest.raises(DataError, match=f"{column!r} of the table of cells has 32-bit floats"):
        asked(frame, (0, 1))


@pytest.mark.slow
def test_sums_that_are_right_are_never_refused() -> None:
    """All rows at one bound, at every size: the check of the bounds leaves room for rounding."""
    for outcome in NEAR:
        for count in (1, 3, 10**5 + 7, int(MOST_COUNT)):
            for bound in map(Fraction, outcome):
                asked(lines(count, float(bound * count)), outcome)


def test_the_claim_tells_what_it_takes_for_granted() -> None:
    fit = pc.from_cells(pd.DataFrame(lines(3, 1.0)), ["a"], outcome=(0, 1))
    assert (
        "sums are exact (a 64-bit floating-point sum may be the exact sum rounded once)"
        in fit.guarantee.statement
    )
