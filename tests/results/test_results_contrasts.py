"""Later questions to a fit, from what it released."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, privcate

import privcausal as pc


@cache
def fits(*estimands: str) -> Any:
    study = pc.datasets.clinic(3000)
    return private(
        study.formula, study.frame, estimand=list(estimands) or "ATE", eps=4,
        bounds=study.bounds, groups=["ward", "age >= 65"], seed=1
    )  # fmt: skip


def test_a_row_by_itself_is_that_of_the_fit() -> None:
    fit = fits()
    row = fit.contrast("ATE").frame.iloc[0]
    assert row["estimate"] == fit.params["ATE"]
    assert row["std_error"] == pytest.approx(fit.bse["ATE"])
    assert list(row[["conf_low", "conf_high"]]) == pytest.approx(list(fit.conf_int().loc["ATE"]))
    group = fit.contrast("ward[east]").frame.iloc[0]
    assert group["std_error"] == pytest.approx(fit.gate.loc["ward[east]", "std_error"])


def test_levels_whose_labels_have_a_bar_are_no_unions() -> None:
    rng, labels = np.random.default_rng(1), ["e | f", "g", "h"]
    rows = pd.DataFrame({"t": rng.integers(0, 2, 3000), "g": rng.choice(labels, 3000)})
    rows["y"] = rows["t"] + 0.3 * (rows["g"] == "g") * rows["t"] + rng.normal(0, 0.1, 3000)
    fit = privcate(
        "y ~ t | C(g)", rows, eps=4, bounds={"y": (-2, 3), "g": labels}, groups=["g"], seed=1
    )
    gate = fit.gate["estimate"]
    wanted = pytest.approx(gate["g[e | f]"] - gate["g[g]"])
    for text in ("g[e | f] - g[g]", "`g[e | f]` - `g[g]`"):
        assert fit.contrast(text).effect[0] == wanted
    assert -fit.t_test_pairwise("g").frame.loc["g-e | f", "estimate"] == wanted


def test_linear_expressions() -> None:
    fit = fits()
    gate = fit.gate["estimate"]
    told = fit.contrast(
        ["ward[east] - ward[west]", "0.5*ward[east]+0.5 * ward[west]", "(ATE - age >= 65)/2",
         "ward[east] - ward[west] = 1"]
    ).frame  # fmt: skip
    east, west = gate["ward[east]"], gate["ward[west]"]
    expected = [
        east - west, 0.5 * east + 0.5 * west, (fit.params["ATE"] - gate["age >= 65"]) / 2,
        east - west,
    ]  # fmt: skip
    assert told["estimate"].to_numpy() == pytest.approx(expected)
    z = (east - west - 1) / told["std_error"].iloc[3]
    assert told["statistic"].iloc[3] == pytest.approx(z, rel=1e-3)  # hardly a score is cut


def test_a_union_is_weighed_by_released_shares() -> None:
    fit = fits()
    found = fit.estimate.averages
    gate, shares = fit.gate["estimate"], dict(zip(found.names[1:], found.shares, strict=True))
    east, west = shares["ward[east]"], shares["ward[west]"]
    assert 0.1 < east < 0.5
    told = fit.contrast("ward[east | west] - ATE").frame.iloc[0]
    both = (east * gate["ward[east]"] + west * gate["ward[west]"]) / (east + west)
    assert told["estimate"] == pytest.approx(both - fit.params["ATE"])
    whole = fit.contrast("ward[east | north | south | west] - ATE").frame.iloc[0]
    assert whole["estimate"] == pytest.approx(0, abs=1e-9)  # they were made to agree
    assert whole["std_error"] < 0.35 * fit.bse["ATE"] + 2 * found.remainder[0] + 1e-9


@pytest.mark.slow
def test_simultaneous_limits_are_wider() -> None:
    fit = fits("ATE", "ATT", "ATO")
    asked = ["ATT - ATE", "ATE:ward[east] - ATE:ward[west]", "ATO:ward[north]"]
    one, all_ = fit.contrast(asked).frame, fit.contrast(asked, simultaneous=True)
    wide = (all_.frame["conf_high"] - all_.frame["conf_low"]) / (one["conf_high"] - one["conf_low"])
    assert (wide > 1.1).all()
    assert (wide < 1.4).all()
    again = fit.contrast(asked, simultaneous=True).frame
    assert again.equals(all_.frame)  # its quadrature is public
    assert "maximum of |z|" in str(all_)


@pytest.mark.slow
def test_estimands_share_their_noise() -> None:
    fit = fits("ATE", "ATT", "ATO")
    found = fit.estimate.averages
    joint = found.sampling + found.privacy
    assert joint[0, 1] > 0.3 * np.sqrt(joint[0, 0] * joint[1, 1])


def test_formats() -> None:
    told = fits().contrast(["ward[east] - ward[west]", "ATE"])
    assert "at no privacy cost" in str(told)
    assert "NOT PRIVATE" in str(told)
    assert told.as_latex(label="tab:c").count("tab:c") == 1
    assert "<table" in told._repr_html_()
    tidy = told.tidy()
    assert list(tidy) == [c for c in fits().tidy() if c != "alerts"]
    assert tidy["term"].tolist() == ["ward[east] - ward[west]", "ATE"]
    assert tidy["p_value"].to_numpy() == pytest.approx(told.frame["p_value"].to_numpy())


def test_slopes_are_terms_too() -> None:
    study = pc.datasets.clinic(2000)
    fit = privcate(study.formula, study.frame, eps=4, bounds=study.bounds, groups=["ward"], seed=2)
    told = fit.contrast(["10*age", "ward[east | west]"]).frame
    assert told["estimate"].iloc[0] == pytest.approx(10 * fit.blp.loc["age", "estimate"])
