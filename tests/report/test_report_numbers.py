"""Numbers and words: digits that say something, text that cannot break a page."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcausal.report import tables as numbers
from privcausal.report.tables import Shape, ascii_only, clean, cut, odds_sentence, shape_line

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0532, "0.05320"), (1e-6, "1.00e-06"), (-1e-6, "-1.00e-06"), (1e9, "1.00e+09"),
        (123456.7, "123457"), (0.0, "0"), (-0.0, "0"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf"),
        (5e-324, "4.94e-324"), (-1.7e308, "-1.70e+308"),
    ],
)  # fmt: skip
def test_number(value: float, text: str) -> None:
    assert numbers.number(value) == text


@given(st.floats())
def test_number_is_short_and_near(value: float) -> None:
    text = numbers.number(value)
    assert len(text) <= 10
    if math.isfinite(value) and 1e-300 < abs(value) < 1e308:
        assert float(text) == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("values", "spread", "texts"),
    [
        ((0.0532, 0.0224, 0.0093, 0.0971), 0.0224, ("0.0532", "0.0224", "0.0093", "0.0971")),
        ((0.00131, 0.00042), 0.00042, ("0.00131", "0.00042")),
        ((-5.9e-7, 2.1e-7), 2.1e-7, ("-5.9e-07", "2.1e-07")),
        ((1e9, 2e8), 2e8, ("1.0e+09", "2.0e+08")),
        ((12345.6, 120.2), 120.2, ("12346", "120")),
        ((-0.00001, 0.5), 0.5, ("0.000", "0.500")),
        ((NAN, INF, -INF), 0.1, ("nan", "inf", "-inf")),
        ((0.5, NAN), NAN, ("0.5000", "nan")),
        ((0.5, 0.0), 0.0, ("0.5000", "0")),
        ((1e300, 1.0), 1.0, ("1.00e+300", "1.000")),
    ],
)  # fmt: skip
def test_alike(values: tuple[float, ...], spread: float, texts: tuple[str, ...]) -> None:
    assert numbers.alike(values, spread) == texts


@given(st.lists(st.floats(), min_size=1, max_size=4), st.floats())
def test_alike_is_short(values: list[float], spread: float) -> None:
    assert all(len(text) <= 10 for text in numbers.alike(values, spread))


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, "<0.001"), (0.00099, "<0.001"), (0.01755, "0.018"), (1.0, "1.000"),
                    (NAN, "--")],
)  # fmt: skip
def test_p_value(p: float, text: str) -> None:
    assert numbers.p_value_text(p) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (0.001, "<1%"), (0.63, "63%"), (0.999, ">99%"), (1.0, "100%"), (NAN, "nan")],
)
def test_percent(share: float, text: str) -> None:
    assert numbers.share_percent(share) == text


def test_levels_and_limits() -> None:
    heads = [numbers.estimate_heads(alpha) for alpha in (0.05, 0.1)]
    assert [head["conf_low"].head for head in heads] == ["[0.025", "[0.05"]
    assert [head["conf_high"].head for head in heads] == ["0.975]", "0.95]"]
    assert numbers.confidence(0.05) == "95%"
    assert [numbers.point_text(x) for x in (18.0, 0.5, 1200.0, 1e-9)] == [
        "18",
        "0.5",
        "1200",
        "1.00e-09",
    ]


@given(st.text(alphabet=st.characters(), max_size=40))
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)
    assert ascii_only(text).isascii()
    assert ascii_only(text).isprintable()


def test_clean_shows_what_hides() -> None:
    assert clean("a\u202eb\x00c\nd\ud800") == r"a\u202eb\x00c d\ud800"
    assert ascii_only("café ≤ ß 年") == r"cafe <= ss \u5e74"


@given(st.text(max_size=50), st.integers(0, 60))
def test_cut_fits_and_keeps_the_ends(text: str, width: int) -> None:
    short = cut(text, width)
    assert len(short) <= width or short == text
    if len(text) > width >= 5:
        assert (short[0], short[-1]) == (text[0], text[-1])


def test_odds_sentence_is_the_mock_ups() -> None:
    assert odds_sentence(0.5, 1e-5, "substitute") == (
        "If someone believes 50:50 that one person's data were used in place of another's, this "
        "result can move that belief to at most 62.3:37.7, up to a slack of 1e-05 in the "
        "probability of any set of results."
    )
    assert "used at all" in odds_sentence(1.0, 0.0, "add_remove")
    assert "slack" not in odds_sentence(1.0, 0.0, "add_remove")


def test_shape_line() -> None:
    curve = Shape("age", "continuous", (18.0, 95.0), (0.0105, 0.11), (0.0, 0.1), (0.1, 0.2), "band")
    ends = "0.011 (band 0.000 to 0.100) at 18", "0.110 (0.100 to 0.200) at 95"
    assert shape_line(curve) == f"{ends[0]}; {ends[1]}."
    gone = Shape("age", "continuous", (1.0,), (NAN,), (NAN,), (NAN,))
    assert shape_line(gone) == "No estimate."
    flat = Shape("age", "continuous", (1.0, 2.0), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0), "band")
    assert shape_line(flat) == "0.50 (band 0.00 to 1.00) at 1; 0.50 (0.00 to 1.00) at 2."


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((-7.0, 5.0, 1.0), ["-7.0", "5.0", "1.0"]),
        ((1.0, 0.2, 1.2), ["1.00", "0.20", "1.20"]),
        ((1.0, 2.1, 2.0), ["1.00", "2.00"]),  # hardly a turn
        ((NAN, 5.0, 1.0), ["nan", "1.000"]),
    ],
)
def test_a_curve_that_turns_is_told_where(values: tuple[float, ...], told: list[str]) -> None:
    grid = (18.0, 60.0, 95.0)
    line = shape_line(Shape("age", "continuous", grid, values, values, values, "band"))
    assert re.findall(r"(\S+) \((?:band )?\1 to \1\) at", line) == told
    assert line.startswith(f"{told[0]} (band ") and line.endswith("at 95.")
