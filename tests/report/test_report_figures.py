"""The figures of each kind of fit: what they show, their titles, and labels that fit."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal.report.plots import WIDE, coef_plot
from privcausal.testing import seeded_noise


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@cache
def fitted(kind: str) -> Any:
    rng = np.random.default_rng(3)
    rows = pc.datasets.clinic(2000)
    frame, bounds = rows.frame.copy(), rows.bounds
    one, eps = rng.integers(0, 2, 2000), 8.0
    with warnings.catch_warnings(), seeded_noise(5):
        warnings.simplefilter("ignore")
        if kind == "events":
            waves, first = [2008, 2010, 2012, 2014], rng.choice([0, 2012, 2014], 800)
            y = [rng.uniform(0, 0.5, 800) + 0.3 * ((first > 0) & (first <= t)) for t in waves]
            panel = {"id": np.tile(np.arange(800), 4), "year": np.repeat(waves, 800)}
            panel |= {"law": np.tile(first, 4), "y": np.concatenate(y)}
            at = {"unit": "id", "time": "year", "cohort": "law", "periods": waves}
            own = {"y": (0, 1), "law": [0, 2012, 2014]}
            return pc.did("y ~ 1", pd.DataFrame(panel), **at, eps=eps, bounds=own)
        if kind in ("RMST", "risk"):
            days = rng.exponential(100 + 60 * one).clip(0, 365)
            drug = np.where(one, "new", "old")
            trial = pd.DataFrame({"days": days, "died": days < 365, "drug": drug})
            own = {"days": (0, 365), "drug": ["old", "new"]}
            formula = "Surv(days, died) ~ drug"
            return pc.private(formula, trial, estimand=kind, horizon=180, eps=eps, bounds=own)
        if kind in ("LATE", "weak"):
            frame["offer"] = one
            follows = rng.random(2000) < (0.8 if kind == "LATE" else 0.5)
            frame["programme"] = np.where(follows, one, 1 - one)
            formula = "recovery ~ programme | age | programme ~ offer"
            return pc.private(formula, frame, estimand="LATE", eps=eps, bounds=bounds)
        if kind == "OLS":
            return pc.regress("recovery ~ ward + age + programme", frame, eps=eps, bounds=bounds)
        if kind == "arms":
            frame["arm"] = rng.choice(["none", "low", "high"], 2000)
            bounds = {**bounds, "arm": ["none", "low", "high"]}
            return pc.private("recovery ~ arm", frame, eps=eps, bounds=bounds, groups=["ward"])
        return pc.privcate(rows.formula, frame, eps=eps, bounds=bounds, groups=["ward"])


KINDS = ("events", "RMST", "risk", "LATE", "weak", "OLS", "arms", "CATE")


def pictures(kind: str) -> list[str]:
    lacking = {"gate"} if kind not in ("events", "arms", "CATE") else set()
    return sorted(set(fitted(kind)._kinds) - lacking - {"uplift"})


DRAWN = [(kind, name) for kind in KINDS for name in pictures(kind)]


@pytest.mark.parametrize(("kind", "name"), DRAWN)
def test_every_figure_has_a_title_and_no_dashes(kind: str, name: str) -> None:
    panels = np.ravel(fitted(kind).plot(name))
    assert panels[0].get_title(loc="left")
    for ax in panels:
        assert {line.get_linestyle() for line in ax.lines} <= {"-", "None"}


@pytest.mark.parametrize(("kind", "name"), DRAWN)
def test_labels_fit_into_the_report(kind: str, name: str) -> None:
    """At the width of a report's figure, or of several panels, no text leaves the figure."""
    fit = fitted(kind)
    panels = np.ravel(fit.plot(name))
    figure = panels[0].figure
    if len(panels) == 1:
        figure = plt.figure(figsize=(WIDE, 4), layout="constrained")
        fit.plot(name, ax=figure.add_subplot())
    figure.canvas.draw()
    for ax in figure.axes:
        shown = [ax.xaxis.label, ax._left_title, *ax.texts]  # type: ignore[attr-defined]
        for text in [one for one in shown if one.get_text()]:
            box = text.get_window_extent()
            assert box.x0 >= -3, text.get_text()
            assert box.x1 <= figure.bbox.width + 3, text.get_text()


def report_of(fit: Any, audience: Any = "technical") -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        fit.report(path, audience=audience)
        return path.read_text(encoding="utf-8")


def page(kind: str, audience: Any = "technical") -> str:
    return report_of(fitted(kind), audience)


def section(kind: str) -> str:
    return re.split(r'<section id="s', page(kind))[2]


@pytest.mark.slow
def test_an_event_study_shows_effects_by_time_first_and_cohorts_last() -> None:
    fit, text = fitted("events"), section("events")
    places = [text.index(word) for word in (
        "before treatment are zero", "Effect by time since treatment", "Table: Effects",
        "<h3>Effects by cohort and period", "cohort[2012]",
    )]  # fmt: skip
    assert places == sorted(places)
    assert f"p = {fit.pretrends().pvalue:.3f}" in text
    assert f"differ by {fit.pretrends().drift:.2g} per unit of time" in text
    whole = page("events")
    for words in ("Groups chosen in advance", "A regression of"):
        assert words not in whole
    assert "time since treatment (year)" in text


def test_points_before_treatment_are_hollow_and_a_line_marks_the_treatment() -> None:
    fit = fitted("events")
    ax, frame = fit.plot(), fit.plot_data()
    joint = fit.aggregate("event", simultaneous=True).iloc[:-1]
    assert frame.index.tolist() == ["-4", "-2", "0", "2"]
    assert frame["band_low"].tolist() == joint["conf_low"].tolist()
    dots = {line.get_markerfacecolor(): line for line in ax.lines if line.get_marker() == "o"}
    assert dots["white"].get_xdata().tolist() == [-4, -2]
    (filled,) = [line for face, line in dots.items() if face != "white"]
    assert filled.get_xdata().tolist() == [0, 2]
    assert filled.get_ydata().tolist() == frame["estimate"].tolist()[2:]
    upright = [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1]
    assert -1.0 in upright


@pytest.mark.slow
def test_periods_that_are_no_numbers_are_counted() -> None:
    frame = pd.DataFrame({"id": np.repeat(np.arange(600), 3), "y": 0.5})
    frame["wave"] = np.tile(["one", "two", "three"], 600)
    frame["law"] = np.repeat(np.where(np.arange(600) < 300, "two", "never"), 3)
    bounds = {"y": (0, 1), "law": ["never", "two"]}
    at = {"unit": "id", "time": "wave", "cohort": "law", "periods": ["one", "two", "three"]}
    with seeded_noise(1):
        fit = pc.did("y ~ 1", frame, **at, eps=8, bounds=bounds)
    assert fit.plot().get_xlabel() == "time since treatment (periods)"
    assert "trends cannot be compared" in report_of(fit)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["RMST", "risk"])
def test_survival_shows_both_arms_and_noisy_numbers_at_risk(kind: str) -> None:
    fit = fitted(kind)
    ax, frame, text = fit.plot("survival"), fit.survival(), section(kind)
    words = " ".join(note.get_text() for note in ax.texts)
    for arm in ("old", "new"):
        own = frame[frame["arm"] == arm]
        assert f"At risk (noisy), {arm}:" in words
        assert f"{own['at_risk'].iloc[0]:,.0f}" in words
        assert own["at_risk"].is_monotonic_decreasing
        assert f">{own['at_risk'].iloc[0]:.0f}<" in text
    shades = len(ax.collections)
    assert shades == (3 if kind == "RMST" else 2)  # two bands, and the area between
    assert "not adjusted" in text
    assert "Surv(" not in text


def test_numbers_at_risk_are_those_of_the_rows_without_noise() -> None:
    days = np.repeat([1.0, 2.0, 3.0, 4.0], 100)
    frame = pd.DataFrame({"days": days, "died": 1, "drug": np.arange(400) % 2})
    with warnings.catch_warnings(), pc.testing.zero_noise():
        warnings.simplefilter("ignore")
        fit = pc.private(
            "Surv(days, died) ~ drug", frame, estimand="RMST", horizon=4, bounds={"days": (0, 9)}
        )
    own = fit.survival().groupby("arm")["at_risk"].apply(list)
    assert own.iloc[0] == pytest.approx([200, 200, 150, 100, 50])


@pytest.mark.slow
def test_a_late_shows_its_set_and_the_first_stage() -> None:
    fit, text = fitted("LATE"), section("LATE")
    (part,) = fit.confidence_set()
    assert "confidence set of the LATE" not in text  # one interval, which is in the table
    assert "F statistic of the first stage" in text
    (line,) = fit.plot("set").collections[0].get_segments()
    assert line[:, 0].tolist() == list(part)
    assert fit.plot_data("set").iloc[0].tolist() == [fit.params["LATE"], *part]
    stage = fit.plot_data("first stage")
    assert stage.index.tolist() == ["first stage"]
    assert fit.plot("first stage").get_xlabel() == "effect on programme"


@pytest.mark.slow
def test_a_set_without_limits_ends_in_arrows() -> None:
    ax = fitted("weak").plot("set")
    assert {"<", ">"} & {line.get_marker() for line in ax.lines}
    assert "confidence set of the LATE: any value" in section("weak")


def test_two_half_lines_reach_the_ends_of_the_axes() -> None:
    columns = ["estimate", "conf_low", "conf_high"]
    parts = [(np.nan, -np.inf, -3.0), (7.0, 5.0, np.inf)]
    ax = coef_plot(pd.DataFrame(parts, ["below -3", "above 5"], columns))
    left, right = ax.get_xlim()
    assert right > 7
    drawn = [part.get_segments()[0][:, 0].tolist() for part in ax.collections]
    assert drawn == [[left, -3], [5, right]]
    assert {line.get_marker() for line in ax.lines} >= {"<", ">"}


@pytest.mark.slow
def test_a_regression_shows_slopes_and_a_fitted_line() -> None:
    fit, text = fitted("OLS"), section("OLS")
    names = [tick.get_text() for ax in fit.plot("coef") for tick in ax.get_yticklabels()]
    assert sorted(names) == sorted(set(fit.params.index) - {"Intercept"})
    assert "Intercept" not in fit.plot_data("coef").index
    line = fit.plot_data("line")
    assert [line.index[0], line.index[-1]] == list(pc.datasets.clinic(10).bounds["age"])
    points = pd.DataFrame({"age": line.index, "ward": "east", "programme": 0.0})
    expected = fit.predict(points.assign(programme=fit_middle(fit)))
    np.testing.assert_allclose(line["estimate"], expected["estimate"])
    assert "predicted means over the declared range of age" in text
    assert "<svg" in text


def fit_middle(fit: Any) -> float:
    domain = fit.schema["programme"]
    return (domain.lo + domain.hi) / 2 if isinstance(domain, pc.Interval) else 0.0


@pytest.mark.slow
def test_groups_come_before_curves_and_slopes_come_last() -> None:
    text = section("CATE")
    order = ("Table: Effects", "<h3>Average effect by group", "<h3>Effect by char", "<h3>Slopes")
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert ">age</th>" not in text[: places[1]]
    assert "<h3>Slopes" not in page("CATE", "public")


def test_several_arms_have_a_diamond_each() -> None:
    """The interval of the first arm was drawn beside the name of the last."""
    fit = fitted("arms")
    ax = fit.plot("gate")
    places = dict(zip(ax.get_yticks(), (t.get_text() for t in ax.get_yticklabels()), strict=True))
    for patch in ax.patches:
        corners = patch.get_xy()
        row = fit.ate.loc[places[round(corners[0][1])]]
        assert corners[:, 0].min() == row["conf_low"]
        assert corners[:, 0].max() == row["conf_high"]
    assert len(ax.patches) == 2


def test_overlap_names_the_arms_by_their_labels() -> None:
    rows = pc.datasets.clinic(2000)
    names = np.where(rows.frame["programme"] == 1, "offered", "usual care")
    frame = rows.frame.assign(programme=names)
    bounds = {**rows.bounds, "programme": ["usual care", "offered"]}
    with seeded_noise(1):
        fit = pc.private("recovery ~ programme | age", frame, eps=4, bounds=bounds)
        ax = fit.overlap(frame, eps=4).plot()
    assert {"offered", "usual care (hatched)"} <= {note.get_text() for note in ax.texts}
    assert ax.get_title(loc="left") == "Rows by propensity and arm"


@pytest.mark.slow
def test_labels_replace_columns_in_the_figures(page_of: Any) -> None:
    text = page_of(fitted("RMST"), labels={"days": "Days to death"})
    assert text.count("Days to death") > 2
