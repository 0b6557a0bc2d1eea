"""The summary as text: stored layouts, and 78 columns of ASCII for any names and numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fakes import (
    BUDGET_COLUMNS,
    EFFECT_COLUMNS,
    GATE_COLUMNS,
    ate_view,
    cate_view,
    effects,
    hostile_view,
    uplift_view,
)

from privcausal.report.summary import summarize
from privcausal.report.tables import FitView, Shape, VarianceSource

GOLDEN = Path(__file__).parent / "golden"
VIEWS = {
    "ate": ate_view,
    "cate": cate_view,
    "uplift": uplift_view,
    "hostile": lambda: hostile_view("none"),
    "published": lambda: ate_view(kind="published"),
}


def fits(text: str) -> bool:
    lines = text.split("\n")
    return text.isascii() and all(len(line) <= 78 and line == line.rstrip() for line in lines)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_layout_is_the_stored_one(name: str, full: bool) -> None:
    """PRIVCAUSAL_GOLDEN=1 writes the files anew; read the difference before keeping it."""
    text = str(summarize(VIEWS[name](), full=full)) + "\n"
    file = GOLDEN / (f"{name}.txt" if full else f"{name}_short.txt")
    if os.environ.get("PRIVCAUSAL_GOLDEN"):
        file.write_text(text, encoding="ascii")
    assert text == file.read_text(encoding="ascii")


@pytest.mark.parametrize("name", VIEWS)
def test_text_keeps_to_its_columns(name: str) -> None:
    assert fits(str(summarize(VIEWS[name]())))
    assert fits(str(summarize(VIEWS[name](), full=True)))


def test_the_card_of_an_average_has_what_a_reader_needs() -> None:
    lines = str(summarize(ate_view())).splitlines()
    assert len(lines) <= 22
    assert lines[-2:] == [
        "Privacy: (0.5, 1e-05)-DP, proven, one row replaced.",
        "summary(full=True) has the meaning, the releases, and the assumptions.",
    ]
    full = " ".join(str(summarize(ate_view(), full=True)).split())
    for words in (
        "sampling se 0.0136", "[1] The number of rows, the bounds, and the clipping limits are",
        "[2] Causal reading", "If someone believes 50:50", "Propensity: clipped",
    ):  # fmt: skip
        assert words in full
        assert words not in " ".join(" ".join(lines).split())


def test_every_alert_is_on_the_card_in_full_words() -> None:
    alerts = [f"Problem {i} of these data is serious. Its reason is long." for i in range(4)]
    lines = str(summarize(ate_view(notes=(*alerts, "A note."), serious=4))).splitlines()
    assert [line for line in lines if line.startswith("Alert: ")] == [
        f"Alert: Problem {i} of these data is serious." for i in range(4)
    ]
    assert "A note." not in lines


def test_curves_that_noise_hides_are_only_in_the_full_summary() -> None:
    view = cate_view(variation="Noise hides it.", varies=False)
    assert "Noise hides it." in str(summarize(view))
    assert "income: " not in str(summarize(view))
    assert "income: " in str(summarize(view, full=True))
    assert "income: " in str(summarize(cate_view(variation="It varies.")))


def test_long_formula_wraps_and_is_not_cut() -> None:
    formula = "visit ~ mailed | " + " + ".join(f"covariate_{i}" for i in range(9))
    text = str(summarize(ate_view(left=(("Formula", formula),))))
    assert formula in " ".join(text.split())


def test_a_long_name_goes_on_below() -> None:
    name = "C(a_column_with_a_long_name_indeed)[T.level_nine]"
    summary = summarize(ate_view(effects=effects({name: (0.1, 0.05, 0.0, 0.05, 0.0, 0.2)})))
    lines = [line.split()[0] for line in str(summary).splitlines() if line]
    start = next(i for i, part in enumerate(lines) if part.startswith("C("))
    assert "".join(lines[start : start + 3]).startswith(name)
    assert ".." not in str(summary)
    assert list(summary.tables[1].index) == [name]


def test_tables_are_whole_unrounded_and_copies() -> None:
    view = cate_view()
    summary = summarize(view, full=True)
    head, effect, gate, slopes, source, budget = summary.tables
    assert head.loc["Learner", "value"] == "R / gam"
    pd.testing.assert_frame_equal(pd.concat([effect, slopes]), view.effects)
    pd.testing.assert_frame_equal(gate, view.gates)
    assert source.loc["privacy", "std_error"] == 0.0079
    effect.iloc[0, 0] = 99.0
    budget.iloc[0, 0] = "changed"
    assert summarize(view).tables[1].iloc[0, 0] == 0.0612
    assert summary.tables[5].iloc[0, 0] == "bounds"


def test_repr_is_the_text() -> None:
    assert repr(summarize(ate_view())) == str(summarize(ate_view()))


reals = st.floats(allow_nan=True, allow_infinity=True, width=64)
names = st.text(max_size=60)  # hypothesis likes controls, half pairs and right-to-left here


@st.composite
def views(draw: st.DrawFn) -> FitView:
    terms = draw(st.lists(st.tuples(names, st.tuples(*[reals] * 6)), min_size=1, max_size=4))
    frame = pd.DataFrame(
        [row for _, row in terms],
        index=[name for name, _ in terms],
        columns=list(EFFECT_COLUMNS[:-1]),
    ).assign(mark=draw(st.sampled_from(["dp", "[post]"])))
    groups = draw(st.lists(st.tuples(*[reals] * 6), max_size=2))
    lines = draw(st.lists(st.tuples(names, names, names, reals, reals, reals), max_size=3))
    budget = pd.DataFrame(
        [(a, b, c, "substitute", 1.0, sd, abs(rho), abs(eps), 0.0, 1.0, False)
         for a, b, c, sd, rho, eps in lines],
        columns=list(BUDGET_COLUMNS),
    )  # fmt: skip
    shape = Shape(draw(names), "continuous", (0.0, 1.0), draw(st.tuples(reals, reals)),
                  (0.0, 1.0), (1.0, 2.0), draw(names))  # fmt: skip
    return ate_view(
        title=draw(names),
        left=tuple(draw(st.lists(st.tuples(names, names), max_size=3))),
        effects=frame,
        gates=pd.DataFrame(groups, columns=list(GATE_COLUMNS)),
        budget=budget.astype({"rho": float, "epsilon": float, "noise_sd": float}),
        shapes=(shape,),
        uncertainty=(VarianceSource(draw(names), draw(reals), draw(reals), draw(names)),),
        notes=(draw(names),),
        alpha=draw(st.floats(0.001, 0.999)),
        kind=draw(st.sampled_from(["proven", "none"])),
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(views())
def test_layout_holds_for_any_names_and_numbers(view: FitView) -> None:
    summary = summarize(view)
    assert fits(str(summary))
    summary.as_html().encode("utf-8")
    summary.as_latex().encode("utf-8")
