"""Verdicts follow from distances in standard errors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import printed
import pytest

LINE = printed.Line("Table 1", "an error", 2.0, 2.1, 0.1, 10, 20, "none", reason="why")
PATTERN = replace(LINE, printed=math.nan, level=2.0, claim="above")


def test_a_number_is_reproduced_within_its_limit() -> None:
    assert replace(LINE, measured=2.25).verdict == printed.REPRODUCED
    assert replace(LINE, measured=2.27).verdict == printed.DIFFERS
    assert replace(LINE, measured=1.73).verdict == printed.DIFFERS
    assert LINE.distance == pytest.approx(1)
    assert LINE.cause == ""
    assert replace(LINE, measured=3.0).cause == "why"


def test_a_bound_differs_only_beyond_it() -> None:
    assert replace(LINE, claim="at most", measured=0.0).verdict == printed.REPRODUCED
    assert replace(LINE, claim="at most", measured=2.3).verdict == printed.DIFFERS
    assert replace(LINE, claim="at least", measured=9.0).verdict == printed.REPRODUCED
    assert replace(LINE, claim="at least", measured=1.7).verdict == printed.DIFFERS


def test_a_pattern_must_be_shown() -> None:
    assert replace(PATTERN, measured=2.3).verdict == printed.REPRODUCED
    assert replace(PATTERN, measured=1.7).verdict == printed.DIFFERS
    for measured in (1.8, 2.2):
        line = replace(PATTERN, measured=measured, reason="")
        assert line.verdict == printed.MISSING
        assert "do not settle" in line.cause
    assert replace(PATTERN, claim="below", measured=1.7).verdict == printed.REPRODUCED
    # without noise nothing is left to chance
    assert replace(PATTERN, measured=2.0, error=0.0).verdict == printed.DIFFERS


def test_what_was_not_run_or_has_no_error_is_missing() -> None:
    assert replace(LINE, measured=math.nan).verdict == printed.MISSING
    assert replace(LINE, error=math.nan).verdict == printed.MISSING
    with pytest.raises(ValueError, match="no reason"):
        replace(LINE, error=math.nan, reason="")


def test_exact_numbers_are_compared_exactly() -> None:
    exact = replace(LINE, error=0.0)
    assert exact.verdict == printed.DIFFERS
    assert replace(exact, measured=2.0 + 1e-12).verdict == printed.REPRODUCED


def test_lines_together_show_a_gap_that_each_of_them_hides() -> None:
    """A tenth is half a standard error of each line, and .0001 for 14 lines on one side."""
    noise = np.linspace(-0.04, 0.04, 14)
    lines = [
        replace(LINE, log=True, error=0.2, group="MSE", measured=2 * math.exp(gap + e))
        for gap in (0.1, 0.0)
        for e in noise
    ]
    lines[14:] = [replace(line, item="Table 2") for line in lines[14:]]
    assert {line.verdict for line in lines} == {printed.REPRODUCED}
    gap, none = printed.pooled([*lines, replace(LINE, group="MSE", error=math.nan)])
    assert (gap.lines, gap.above, gap.verdict) == (14, 14, "gap")
    assert gap.sign == pytest.approx(2 * 0.5**14) and gap.wilcoxon == pytest.approx(2 * 0.5**14)
    assert gap.middle == pytest.approx(math.exp(0.1))
    assert (none.above, none.verdict) == (7, "none seen")
    assert not printed.pooled(lines[:5])


def test_logarithms_of_ratios() -> None:
    line = replace(LINE, log=True, measured=2.0 * math.exp(0.25))
    assert line.distance == pytest.approx(2.5)


def test_errors_of_shares_and_means() -> None:
    assert printed.share_error(0.5, 100, 0.5, 100) == pytest.approx(math.sqrt(0.5) / 10)
    assert printed.share_error(0.0, 500, 0.01, 500) > 0
    mean, error = printed.mean_error([1.0, 2.0, 3.0])
    assert (mean, error) == pytest.approx((2, 1 / math.sqrt(3)))
    assert np.isnan(printed.mean_error([1.0, 2.0])[1])


def test_rows_of_one_version_of_the_code() -> None:
    rows = pd.DataFrame({"method": ["a", "a", "a", "b"], "code": ["1", "2", "2", "1"], "x": 1.0})
    assert printed.one_version(rows)["code"].tolist() == ["2", "2", "1"]


def test_lines_are_stored_with_their_verdict(tmp_path: Path) -> None:
    printed.write(tmp_path, [LINE, PATTERN])
    table = printed.read(tmp_path)
    assert table["verdict"].tolist() == [LINE.verdict, PATTERN.verdict]
    assert table["printed"].isna().tolist() == [False, True]
    assert table["distance"].tolist() == pytest.approx([LINE.distance, PATTERN.distance])
