"""`fit.sensitivity()`: robustness values of released numbers, in words, table and picture."""

from __future__ import annotations

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fit_helpers import private
from results_fits import proven_average, variant

import privcausal as pc
from privcausal.testing import seeded_noise


def test_it_is_that_of_the_released_numbers() -> None:
    fit = proven_average()
    found = fit.sensitivity()
    low, high = fit.conf_int().loc["ATE"]
    assert (found.conf_low, found.conf_high) == (low, high)
    averages = fit.estimate.averages
    assert found.scale == pytest.approx(np.sqrt(averages.sampling[0, 0] * averages.size))
    value = found.robustness["interval"]
    toward = low if found.estimate > 0 else -high
    assert found.bounds(value, value)["bias"] == pytest.approx(max(toward, 0.0), rel=1e-6)
    assert found.robustness["interval"] < found.robustness["estimate"]
    lower = fit.sensitivity(alpha=0.01).robustness
    assert lower["interval"] < value
    assert lower["estimate"] == found.robustness["estimate"]


@pytest.mark.slow
@pytest.mark.parametrize("call", [pc.private, pc.privcate])
def test_strong_products_have_a_wider_interval(call: Any, reloaded: Any) -> None:
    data = pc.datasets.clinic(2000)
    with seeded_noise(1):
        fit = call(data.formula, data.frame, bounds=data.bounds)
    found = fit.sensitivity()
    assert found.strong_low < found.conf_low < found.conf_high < found.strong_high
    assert "twice as strong as in most public data sets" in " ".join(str(found.summary()).split())
    assert reloaded(fit).sensitivity() == found
    with seeded_noise(1):
        trial = call("recovery ~ programme | age", data.frame, bounds=data.bounds, propensity=0.5)
    assert np.isnan(trial.sensitivity().strong_low)
    assert "as strong as" not in str(trial.sensitivity().summary())


def test_without_noise_the_scale_is_the_textbooks() -> None:
    """S^2 = E[(Y - g)^2] E[1 / (e (1 - e))] where e and the residual variance are constant."""
    rng = np.random.default_rng(1)
    n = 4000
    x, t = rng.uniform(0, 1, n), (rng.random(n) < 0.5).astype(int)
    y = np.clip(5 + 2 * x + t + rng.normal(0, 1, n), 0, 10)
    fit = private(
        "y ~ t | x", {"y": y, "t": t, "x": x}, bounds={"y": (0, 10), "x": (0, 1)}, exact=True
    )
    assert fit.sensitivity().scale == pytest.approx(1.0 * np.sqrt(4.0), rel=0.1)


def test_an_interval_over_zero_has_no_robustness() -> None:
    found = dataclasses.replace(
        proven_average().sensitivity(), estimate=1, conf_low=-1, conf_high=3
    )
    assert found.robustness["interval"] == 0
    assert found.sentence.startswith("The interval already includes zero")
    below = dataclasses.replace(found, estimate=-2.0, conf_low=-3.0, conf_high=-1.0)
    above = dataclasses.replace(found, estimate=2.0, conf_low=1.0, conf_high=3.0)
    assert below.robustness.equals(above.robustness)


@pytest.mark.parametrize(
    "name", ["private on gam", "r on gam", "units", "on the treated", "add_remove"]
)
def test_text_html_and_picture(name: str) -> None:
    found = variant(name).sensitivity()
    text = str(found)
    assert text.isascii()
    assert max(map(len, text.split("\n"))) <= 78
    assert "NOT PRIVATE" in text  # a test fit's numbers are no more private here
    assert found._repr_html_().startswith("<div")
    assert found.summary().as_latex().count("\\begin{") > 0
    frame = found.plot_data()
    assert (frame["high"].diff().dropna() >= 0).all()
    ax = plt.figure().add_subplot()
    assert found.plot(ax) is ax
    ax.figure.canvas.draw()
    plt.close("all")


def test_units_have_the_scale_of_rows() -> None:
    found = variant("units")
    averages = found.estimate.averages
    half = np.sqrt(averages.sampling[0, 0] * averages.size / 2)
    assert found.sensitivity().scale == pytest.approx(half)


@pytest.mark.slow
def test_the_report_has_the_sentence(page_of: Any) -> None:
    fit = proven_average()
    assert fit.sensitivity().sentence in page_of(fit, audience="public")
    trial = variant("propensity number")
    assert "An unmeasured confounder" not in page_of(trial)
    assert "randomized" in str(trial.sensitivity())
