"""Plots: axes in and out, meanings in the picture, SVG that repeats to the byte."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report_fakes import HOSTILE, ate_view, attack, cate_view, hostile_view, shapes, uplift_view

from privcausal.errors import DataError
from privcausal.report import plots
from privcausal.report.tables import Shape


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def words(ax: Axes) -> str:
    texts = [ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")]
    return " | ".join([*texts, *(text.get_text() for text in ax.texts)])


def test_effect_plot_makes_a_panel_per_modifier_on_one_scale() -> None:
    panels = plots.effect_plot(shapes())
    assert [ax.get_title(loc="left") for ax in panels] == [
        "Effect by age", "Effect by income", "Effect by region",
    ]  # fmt: skip
    assert len({ax.get_ylim() for ax in panels}) == 1
    assert "approximate 95% band" in words(panels[0])
    assert "bars: 95% interval" in words(panels[2])
    assert [t.get_text() for t in panels[2].get_xticklabels()][:2] == ["North", "South"]


def test_effect_plot_takes_axes() -> None:
    ax = Figure().add_subplot()
    assert plots.effect_plot(shapes()[:1], ax=ax) is ax
    given_ = Figure().subplots(1, 3)
    assert list(plots.effect_plot(shapes(), ax=given_)) == list(given_)
    with pytest.raises(DataError, match="1 axes, but 3 effect curves require 3"):
        plots.effect_plot(shapes(), ax=ax)
    with pytest.raises(DataError, match="no effect curve"):
        plots.effect_plot(())


FOREST = ["estimate", "conf_low", "conf_high", "std_error", "se_sampling"]
CURVE = pd.DataFrame({"share": [0, 0.5, 1], "gain": [0, 0.2, 0.3], "random": [0, 0.15, 0.3],
                      "conf_low": [0, 0.1, 0.2], "conf_high": [0, 0.3, 0.4]})  # fmt: skip
PLAN = pd.DataFrame({"n": 5000, "eps": [0.1, 1.0], "half-width from": [0.1, 0.04],
                     "half-width to": [0.2, 0.05],
                     "sampling": [0.03, 0.03], "planned": [True, False]})  # fmt: skip
UTILITY = pd.DataFrame({"n": 5000, "eps": [0.1, 1.0, 4.0], "weight": 0.5,
                        "utility": [0.3, 0.5, 0.4]})  # fmt: skip
OTHERS = {
    "coef": (plots.coef_plot, (cate_view().effects,), "95% interval"),
    "gate": (plots.gate_plot, (cate_view().gates,), "thick: from sampling alone"),
    "budget": (plots.budget_plot, (cate_view().budget,), "cost (rho)"),
    "uplift": (plots.uplift_plot, (CURVE,), "shaded: 95% band"),
    "attack": (plots.attack_plot, (attack(),), "solid: upper limit; dashed: random guessing"),
    "plan": (plots.plan_plot, (PLAN,), "half-width of the 95% interval"),
    "utility": (plots.utility_plot, (UTILITY,), "precision: noise-free width / planned width"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_axes_in_and_out_and_intervals_explained(name: str) -> None:
    plot, arguments, meaning = OTHERS[name]
    ax = Figure().add_subplot()
    assert plot(*arguments, ax=ax) is ax
    assert plt.get_fignums() == []  # an own axes leaves pyplot alone
    assert meaning in words(ax)
    assert plot(*arguments).figure.number in plt.get_fignums()


def test_alpha_is_in_the_words() -> None:
    assert "90% interval" in words(plots.gate_plot(cate_view().gates, alpha=0.1))


def test_nested_intervals_end_in_the_printed_one() -> None:
    effect, sources = ate_view().effects.iloc[0], ate_view().uncertainty
    bars = plots.nested(effect, sources)
    assert bars.index[0] == "sampling alone: 0.0265 to 0.0799"
    assert bars.iloc[-1].tolist() == [0.0532, 0.0093, 0.0971]
    inner = (bars["conf_high"] - bars["conf_low"]).iloc[0] / (0.0971 - 0.0093)
    assert inner == pytest.approx(0.0136 / np.hypot(0.0136, 0.0178))
    assert plots.nested(effect, ()).index.tolist() == ["all sources: 0.0093 to 0.0971"]


def test_pure_epsilon_is_drawn_in_epsilon() -> None:
    assert "cost (epsilon)" in words(plots.budget_plot(uplift_view().budget))


def test_names_are_drawn_as_they_are() -> None:
    ax = plots.effect_plot([Shape("$\\frac{1}$", "levels", ("$a$", "$b_$"), (1.0, 2.0),
                                   (0.0, 1.0), (2.0, 3.0), "$z")])  # fmt: skip
    ax.figure.canvas.draw()
    assert ax.get_title(loc="left") == "Effect by $\\frac{1}$"


@pytest.mark.slow
def test_gaps_and_infinities_do_not_break_a_plot() -> None:
    odd = (np.nan, np.inf, -np.inf, 1e308)
    for kind in ("continuous", "levels"):
        grid = (1.0, 2.0, 3.0, 4.0) if kind == "continuous" else tuple("abcd")
        plots.effect_plot([Shape("x", kind, grid, odd, odd, odd)]).figure.canvas.draw()
    frame = pd.DataFrame(dict.fromkeys(FOREST, odd))
    plots.gate_plot(frame).figure.canvas.draw()
    plots.coef_plot(frame).figure.canvas.draw()
    lost = frame.assign(std_error=odd, max_bias=odd).iloc[0]
    plots.coef_plot(plots.nested(lost, ate_view().uncertainty)).figure.canvas.draw()


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=50), *[st.floats()] * 5), max_size=4))  # fmt: skip
def test_any_names_and_numbers_can_be_drawn(
    rows: list[tuple[str, float, float, float, float, float]],
) -> None:
    frame = pd.DataFrame([r[1:] for r in rows], index=[r[0] for r in rows], columns=FOREST)
    figure = Figure()
    plots.gate_plot(frame, ax=figure.add_subplot())
    with warnings.catch_warnings(action="ignore"):  # of letters that the fonts lack
        figure.savefig(io.BytesIO(), format="svg")  # in the reader's own style
    picture(partial(plots.gate_plot, frame)).encode("utf-8")


def picture(plot: Callable[..., object], ident: str = "a") -> str:
    return plots.drawn_picture(ident, 'effect of "age" <b>', (3, 2), plot).svg


def svg_of(view_shapes: tuple[Shape, ...], ident: str = "a") -> str:
    return picture(partial(plots.effect_plot, view_shapes[:1]), ident)


def test_svg_repeats_and_carries_no_date_script_or_style_sheet() -> None:
    svg = svg_of(shapes())
    assert svg == svg_of(shapes())
    banned = ["<script", "<style", "<metadata", "<!DOCTYPE", "<?xml", "<!--", "date", "http-equiv"]
    assert not [word for word in banned if word in svg]
    assert svg.startswith('<svg role="img" aria-label="effect of &quot;age&quot; &lt;b&gt;"')
    assert svg.endswith("</svg>")


def test_svg_ids_keep_apart_and_references_hold() -> None:
    first, second = svg_of(shapes(), "a"), svg_of(shapes(), "b")
    ids = [set(re.findall(r'\sid="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    for svg, known in zip((first, second), ids, strict=True):
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
        assert {a or b for a, b in used} <= known


@pytest.mark.parametrize("index", range(3))
def test_svg_escapes_names(index: int) -> None:
    svg = svg_of(hostile_view().shapes[index:])
    assert "<img" not in svg
    assert svg.count("</svg>") == 1
    named = HOSTILE[4].replace("C(", 'url(#x) id="y" href="#z" C(')
    shape = Shape(named, "continuous", (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0))
    assert "url(#x)" in svg_of((shape,))


@pytest.mark.slow
def test_svg_does_not_follow_the_users_style() -> None:
    before = svg_of(shapes())
    from privcausal.report.document import render_report

    page = render_report(cate_view())
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30, "svg.hashsalt": None}):
        assert render_report(cate_view()) == page
        assert mpl.rcParams["font.size"] == 30  # and the user's style is left as it was
    assert svg_of(shapes()) == before


def test_import_is_light() -> None:
    code = (
        "import sys; from privcausal.report import document, plots, summary; "
        "print([m for m in ('pandas', 'matplotlib', 'jinja2', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
