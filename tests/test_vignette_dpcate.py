"""The page on the papers runs, and its experiments on DP-CATE show what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "vignettes" / "explanation" / "where-the-papers-leak.md"


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec("\n".join(blocks), names)
    return names


def test_the_printed_bound_is_passed_by_what_the_page_says(shown: dict[str, Any]) -> None:
    for (q, h), excess in shown["excess"].items():
        assert excess == pytest.approx((np.sqrt(2 * np.pi) * h) ** (q / 2))
        distance, _, right = shown["moved"](q, h)
        assert distance == pytest.approx(right)
    assert shown["excess"][10, 1.0] == pytest.approx(99, abs=1)


def test_the_real_epsilon_where_it_matters(shown: dict[str, Any]) -> None:
    assert shown["real"][10, 1.0] > 20
    assert shown["real"][2, 0.5] < 1  # the theorem's slack hides a small excess


def test_the_second_query_loses_the_effect(shown: dict[str, Any]) -> None:
    assert shown["mean"] == pytest.approx([10.0, 0.0], abs=0.15)


def test_the_repair_leaks_exactly(shown: dict[str, Any]) -> None:
    assert shown["leak"] == pytest.approx(shown["secret"](shown["same"][0]), abs=1e-6)


def test_ours_is_a_function(shown: dict[str, Any]) -> None:
    assert shown["once"].equals(shown["again"])
    assert shown["fit"].guarantee.kind == "proven"
