"""What a result prints, draws and writes: plain, the same each time, and without rows."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from fit_helpers import made_again, privcate, regress
from results_fits import VARIANTS, proven, proven_average, study, variant

import privcausal as pc
from privcausal.accounting import epsilon_of
from privcausal.accounting.price import pico
from privcausal.report.tables import price_frame

BOTH = ["r on gam", "private on linear"]


@pytest.fixture(params=BOTH)
def fitted(request: pytest.FixtureRequest) -> Any:
    return variant(request.param)


@pytest.fixture(autouse=True)
def _close() -> Any:
    yield
    plt.close("all")


# -- summary ---------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_summary_is_narrow_ascii_and_marked(name: str) -> None:
    text = variant(name).summary().as_text()
    assert text.isascii()
    assert max(map(len, text.split("\n"))) <= 80
    lines = text.split("\n")
    assert "NOT PRIVATE" in lines[0]
    assert "NOT PRIVATE" in lines[-1]


@pytest.mark.parametrize("make", [proven, proven_average])
def test_a_proven_summary_says_all_that_matters(make: Any) -> None:
    fit = make()
    text = str(fit.summary(full=True))
    assert "NOT PRIVATE" not in text
    for words in (
        "Observations:", "are public inputs", "Bounds:", "declared", "Neighboring data:",
        "one row replaced", "clipped to", "Estimand:", "Nuisance models:", "Privacy budget",
        "proven", "Privacy: (20, 1e-05)-DP",
    ):  # fmt: skip
        assert words in " ".join(text.split()), words
    short = str(fit.summary())
    for words in ("Budget: ", "Privacy: (20, 1e-05)-DP, proven, one row replaced."):
        assert words in short, words


def test_units_and_private_sizes_are_said() -> None:
    assert "Units:" in str(variant("units").summary())
    assert re.search(r"Observations: +\d+ \(noise sd ", str(variant("add_remove").summary()))
    assert "Bounds were estimated privately" in str(variant("bought bounds").summary())
    assert "some estimated privately" in str(variant("bought bounds").summary(full=True))


def test_summary_in_three_formats(fitted: Any) -> None:
    summary = fitted.summary(alpha=0.1)
    assert str(summary) == summary.as_text() == repr(summary)
    assert str(fitted) == str(fitted.summary())
    assert "[0.05" in str(summary)
    latex, page = summary.as_latex(), summary.as_html()
    assert latex.count("\\begin{") == latex.count("\\end{") > 0
    assert "<table" in page
    assert fitted._repr_html_() == fitted.summary().as_html()
    for term in fitted.params.index:
        assert term.split("[")[0] in page
    assert len(summary.tables) >= 3


def test_without_averages_the_summary_stands() -> None:
    text = str(variant("no averages").summary())
    assert "Effect by modifier" in text
    assert "p-value" not in text


# -- plots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coef", "gate", "budget"])
def test_axes_in_axes_out(fitted: Any, kind: str) -> None:
    _, ax = plt.subplots()
    assert fitted.plot(kind, ax=ax) is ax
    assert len(ax.lines) + len(ax.collections) + len(ax.patches) > 0
    assert fitted.plot(kind=kind) is not ax


def test_effect_has_a_panel_per_modifier() -> None:
    panels = variant("r on gam").plot()
    assert [panel.get_title(loc="left") for panel in panels] == [
        f"Effect by {name}" for name in ("age", "ward", "smoker")
    ]
    _, axes = plt.subplots(1, 3)
    assert list(variant("t on linear").plot(ax=axes)) == list(axes)


def test_default_kind_of_an_average_is_its_coefficients() -> None:
    assert variant("private on gam").plot().get_xlabel() == "effect on cost"


# -- report ----------------------------------------------------------------------------------


# -- frozen, and free of rows ----------------------------------------------------------------


def test_results_are_frozen(fitted: Any) -> None:
    for name in ("estimate", "call", "ledger_line", "params", "something"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            setattr(fitted, name, None)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        fitted.estimate.real = True
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        del fitted.estimate


@pytest.mark.slow
def test_call_reproduces_the_fit() -> None:
    names = "constant effect", "units", "propensity column", "complete", "robust covariance"
    for name in (*names, "on the treated", "in the overlap"):
        fitted = variant(name)
        again = made_again(fitted, study(), seed=11)
        assert again.params.equals(fitted.params), name
        assert again.call == fitted.call


@pytest.mark.slow
def test_a_level_with_half_a_character_is_spelt_out(tmp_path: Any) -> None:
    """A lone surrogate, as files read with errors="surrogateescape" hold, fits in no file."""
    data = study().head(400).copy()
    data["ward"] = pd.Series(["N", "S\udc80"] * 200, data.index, dtype=object)
    fit = privcate("cost ~ mailed | C(ward)", data, eps=40, bounds={"cost": (0, 20)}, seed=1)
    assert "C(ward)[T.S\\udc80]" in fit.blp.index
    fit.report(tmp_path / "fit.html")
    fit.save(tmp_path / "fit.json")
    assert "\\udc80" in (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert pc.load(tmp_path / "fit.json").params.equals(fit.params)
    effect = fit.predict(data.head(4))["estimate"]
    assert effect.iloc[0] == effect.iloc[2] != effect.iloc[1] == effect.iloc[3]


def test_releases_in_parallel_show_their_own_price() -> None:
    """Their rho is not charged, so the column sums to the total; their epsilon is their own."""
    fit = variant("disjoint")
    budget = fit.budget
    free = budget["parallel"]
    assert free.tolist() == (budget["stage"] != "nuisance").tolist()
    own = (budget["sensitivity"] / budget["noise_sd"]) ** 2 / 2
    assert (budget["rho"][free] < 1e-9).all()  # what the halves differ by, in rounding
    assert budget["rho"].sum() == pytest.approx(fit.guarantee.rho, rel=1e-12)
    assert own[free].sum() == pytest.approx(fit.guarantee.rho, rel=1e-6)
    alone = [epsilon_of(pico(rho), fit.guarantee.delta, gdp=True) for rho in own]
    assert budget["epsilon"].tolist() == pytest.approx(alone, rel=1e-6)
    text = str(fit.summary(full=True))
    assert "Noise: discrete Gaussian." in text
    shown = [line.split()[-2] for line in text.splitlines() if re.match(r"[1-9]\d* \w", line)]
    shown = shown[1:]  # bounds were declared
    assert [rho.startswith("(") for rho in shown] == free.tolist()
    assert sum(float(rho.strip("()")) for rho in shown) == pytest.approx(2 * own[free].sum(), 0.01)
    assert "in brackets are not charged again" in " ".join(text.split())
    assert price_frame(budget)["price"].to_numpy() == pytest.approx(own, rel=1e-9)
    charged = variant("r on linear").budget  # one price in two currencies: rho and its epsilon
    assert price_frame(charged)["price"].tolist() == charged["rho"].tolist()


def test_a_call_of_a_logarithm_has_the_bounds_of_its_column() -> None:
    """Not those of the logarithm, at which it is not defined."""
    amounts = np.random.default_rng(0).uniform(0.2, 5, 500)
    bounds = {"Y": (0.2, 5.0)}
    fit = regress("np.log(Y) ~ 1", pd.DataFrame({"Y": amounts}), bounds=bounds, eps=4, seed=1)
    assert f"bounds={bounds}" in fit.call
