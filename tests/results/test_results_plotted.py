"""`plot_data`: the numbers of each picture are those that were drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fit_helpers import regress, view_of
from results_fits import BOUNDS, proven_average, study, variant

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def by_cells(modifiers: str, **options: Any) -> Any:
    learner = pc.learners.ADUM(**options)
    formula = f"cost ~ mailed | {modifiers}"
    return pc.privcate(formula, study(), learner=learner, eps=20.0, bounds=BOUNDS)


@pytest.fixture(scope="module")
def cells() -> Any:
    with seeded_noise(3):
        return by_cells("age + ward", cells=4)


def test_shapes_are_drawn_from_their_frame() -> None:
    fit = variant("r on gam")
    frame = fit.plot_data()
    assert list(frame.columns) == ["modifier", "kind", "at", "estimate", "conf_low", "conf_high"]
    assert frame["modifier"].unique().tolist() == ["age", "ward", "smoker"]
    assert (frame["conf_low"] < frame["conf_high"]).all()
    curve = frame[frame["modifier"] == "age"]
    drawn = fit.plot()[0].lines
    assert any(np.array_equal(line.get_ydata(), curve["estimate"]) for line in drawn)
    assert frame[frame["modifier"] == "ward"]["at"].tolist() == ["N", "S", "W"]


@pytest.mark.parametrize("kind", ["coef", "gate"])
def test_forests_are_drawn_from_their_frame(kind: str) -> None:
    fit = variant("r on linear")
    frame = fit.plot_data(kind, alpha=0.2)
    assert list(frame.columns)[:5] == [
        "estimate", "std_error", "max_bias", "conf_low", "conf_high",
    ]  # fmt: skip
    axes = np.ravel(fit.plot(kind, alpha=0.2))
    drawn = [line.get_xdata() for ax in axes for line in ax.lines if line.get_marker() == "o"]
    # slopes have axes of their own, below that of what is in the outcome's unit
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.sort(frame["estimate"]))
    wide = fit.plot_data(kind)
    assert (wide["conf_low"] < frame["conf_low"]).all()


def test_prices_sum_to_what_was_spent() -> None:
    fit = proven_average()
    frame = fit.plot_data("budget")
    assert list(frame.columns) == ["stage", "query", "currency", "price", "share"]
    assert frame["share"].sum() == pytest.approx(1)
    assert set(frame["currency"]) == {"rho"}
    widths = [bar.get_width() for bar in fit.plot("budget").patches]
    assert widths == pytest.approx(frame["price"].tolist())
    assert fit.plot_data().index.tolist() == ["ATE"]


def test_the_gain_of_treating_all_is_the_average_over_cells(cells: Any) -> None:
    frame = cells.plot_data("uplift")
    effect = cells.estimate.effect
    assert len(frame) == len(effect.value) + 1
    assert frame["share"].iloc[-1] == pytest.approx(1)
    assert frame["gain"].iloc[-1] == pytest.approx(effect.share @ effect.value)
    assert (frame["gain"] >= frame["random"] - 1e-12).all()  # the largest come first
    assert frame["gain"].iloc[0] == frame["std_error"].iloc[0] == 0
    best = int(np.argmax(effect.value))
    assert frame["std_error"].iloc[1] == pytest.approx(effect.share[best] * effect.spread[best])
    ax = cells.plot("uplift")
    assert any(np.array_equal(line.get_ydata(), frame["gain"]) for line in ax.lines)


def test_without_noise_the_gain_is_that_of_the_rows() -> None:
    with zero_noise():
        fit = by_cells("ward", cells=3, shrink=False)
    rows = study()[study()["ward"].isin(BOUNDS["ward"])]
    rows = rows.assign(cost=rows["cost"].clip(*BOUNDS["cost"]))
    means = rows.groupby(["ward", "mailed"])["cost"].mean().unstack()
    share = rows["ward"].value_counts(normalize=True)
    gains = ((means[1] - means[0]) * share).sort_values(ascending=False)
    assert fit.plot_data("uplift")["gain"].tolist()[1:] == pytest.approx(
        gains.cumsum().tolist(), rel=1e-3
    )


def test_looks_have_their_numbers_too(cells: Any) -> None:
    with seeded_noise(1):
        overlap = variant("private on linear").overlap(study(), eps=5)
        uplift = cells.uplift(study(), eps=5)
    assert overlap.plot_data().equals(overlap.frame)
    assert uplift.plot_data("qini").equals(uplift.frame("qini"))
    (line,) = [x for x in uplift.plot("qini").lines if x.get_linewidth() == 2]
    assert np.array_equal(line.get_ydata(), uplift.plot_data("qini")["gain"])


@pytest.mark.parametrize("column", ["RR", "first stage", "E[Y(0)"])
def test_a_column_with_the_name_of_another_kind_of_term_is_drawn(column: str) -> None:
    """A slope is told by its kind, not by its name."""
    frame = pc.datasets.clinic(500).frame.rename(columns={"age": column})
    fit = regress(
        f"recovery ~ `{column}`", frame, bounds={"recovery": (0, 100), column: (18, 95)}, seed=1
    )
    drawn = [tick.get_text() for ax in np.ravel(fit.plot("coef")) for tick in ax.get_yticklabels()]
    assert drawn == list(fit.params.index)[1:]  # without the intercept
    assert view_of(fit).effects["mark"].tolist() == ["dp", "dp"]


@pytest.mark.slow
def test_only_slopes_are_called_a_projection(page_of: Any) -> None:
    """The reduced form and first stage of a LATE, and several arms, are no projection."""
    rows = pc.datasets.clinic(1500)
    with seeded_noise(1):
        late = pc.private(
            "recovery ~ programme | age | programme ~ bmi", rows.frame, estimand="LATE", eps=4,
            bounds=rows.bounds,
        )  # fmt: skip
        cate = pc.privcate(rows.formula, rows.frame, eps=4, bounds=rows.bounds)
    said = ["Best linear projection" in page_of(fit) for fit in (late, cate)]
    assert said == [False, True]
