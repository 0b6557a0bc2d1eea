"""Two hundred cases of the standing hunt; `python tests/privacy/hunt.py` tries 5,000."""

from __future__ import annotations

from collections import Counter

import pytest
from hunt import draw, hunted

CASES, STEP = 200, 20


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("first", range(0, CASES, STEP))
def test_one_row_of_any_table_is_seen_in_its_answers_only(first: int) -> None:
    told = Counter(hunted(number) for number in range(first, first + STEP))
    assert told["fitted"] >= STEP // 5  # most cases are not refused before rows are read


def test_a_case_is_its_number() -> None:
    one, two = draw(7), draw(7)
    assert one.words == two.words
    assert repr(one.one) == repr(two.one)
    assert draw(8).words != one.words
