"""What an interval allows for is told wherever it is shown."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, view_of

import privcausal as pc
from privcausal.estimators.base import average_doubts
from privcausal.inference.effects import AverageEstimate
from privcausal.request.formula import ResultTerm


@pytest.mark.slow
def test_what_the_bound_of_cut_scores_rests_on_is_printed(tmp_path: Any) -> None:
    data = pc.datasets.private_trial(3000, seed=3).frame
    fitted = private("Y ~ T | X1", data, bounds={"Y": (-40, 40), "X1": (0, 1)}, seed=1)
    assert fitted.estimate.averages.clipping[0] > 0
    said = "Noise can hide a few extreme contributions of single rows."
    assert said in " ".join(str(fitted.summary(full=True)).split())
    path = tmp_path / "report.html"
    fitted.report(path)
    assert said in path.read_text()
    assert said in " ".join(view_of(fitted).methods)
    plain = private("Y ~ T", data, bounds={"Y": (-40, 40)}, seed=1)
    shown = " ".join(str(plain.summary(full=True)).split())
    assert said.replace("contributions of single rows", "outcomes") in shown


@pytest.mark.parametrize("formula", ["Y ~ T", "Y ~ T | X1"])
def test_without_a_condition_intervals_are_wider_and_say_so(formula: str, reloaded: Any) -> None:
    data = pc.datasets.private_trial(3000, seed=3).frame
    bounds = {"Y": (-400, 400), "X1": (0, 1)}
    fits = {}
    for tails in ("fitted", "any"):
        fits[tails] = private(formula, data, bounds=bounds, control=pc.Control(tails=tails), seed=1)
    low, high = (float(np.diff(fits[t].conf_int())[0, 0]) for t in ("fitted", "any"))
    assert high > 1.5 * low
    again = reloaded(fits["any"])
    for fitted in (fits["any"], again):
        text = " ".join(str(fitted.summary(full=True)).split())
        assert "Noise can hide" not in text
        said = "makes no assumption about tails" in text
        assert said == (fitted.estimate.averages.clipping[0] > 0)


@pytest.mark.parametrize("split", ["full", "crossfit", "disjoint"])
def test_a_stage_that_was_not_needed_is_listed_with_what_it_was_charged(split: str) -> None:
    """An undeclared bool has no range to look at, nor sizes; rho sums to what the fit cost."""
    rng = np.random.default_rng(4)
    data = pd.DataFrame(
        {"y": rng.random(500) < 0.4, "t": np.arange(500) % 2, "x": rng.choice(["a", "b"], 500)}
    )
    bounds, control = {"x": ["a", "b"]}, pc.Control(split=split)
    fitted = private("y ~ t | C(x)", data, eps=1.0, bounds=bounds, control=control, seed=1)
    budget = fitted.budget
    assert list(budget["mechanism"]).count("not used") == 2
    assert budget["rho"].sum() == pytest.approx(fitted.plan.rho / 1e12, abs=1e-12)
    assert str(fitted.summary(full=True)).count("not used") == 2


def test_a_stage_that_was_not_needed_is_parallel_as_it_was_planned(tmp_path: Any) -> None:
    """An undeclared bool has no range to look at on either half; the ledger says which is free."""
    rng = np.random.default_rng(5)
    y = rng.random(400) < 0.4
    data = pd.DataFrame({"y": y, "t": np.arange(400) % 2, "x": rng.random(400)})
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=2)
    fitted = pc.privcate(
        "y ~ t | x", data, bounds={"x": (0, 1)}, control=pc.Control(split="disjoint"), ledger=ledger
    )
    budget, history = fitted.budget, ledger.history
    assert set(budget["parallel"][budget["mechanism"] == "not used"]) == {False, True}
    planned = history["query"].str.endswith("(parallel)").groupby(history["stage"]).sum()
    assert budget.groupby("stage")["parallel"].sum().to_dict() == planned.to_dict()


@pytest.mark.parametrize("estimand", ["ATE", "ATT"])
def test_no_effect_is_larger_than_the_outcome_allows(estimand: Any) -> None:
    """With a hundredth of a budget the noise is far beyond it; intervals say all that is known."""
    data = pd.DataFrame(
        {"y": [0.0, 5.0] * 1100, "t": [*[0] * 43, 1] * 50, "x": np.linspace(0, 1, 2200)}
    )
    for seed in (8, 10, 11):
        fitted = private(
            "y ~ t | x", data, eps=1e-2, bounds={"y": (0, 5), "x": (0, 1)}, groups=["x >= 0.5"],
            estimand=estimand, propensity=0.03, seed=seed
        )  # fmt: skip
        assert abs(fitted.estimate.averages.estimate[0]) > 5
        rows = pd.concat([fitted.ate, fitted.gate]).drop(
            columns=["std_error", "max_bias", "se_sampling"]
        )
        assert (rows.abs().fillna(0) <= 5).all(axis=None)
        assert fitted.params.iloc[0] == fitted.ate["estimate"].iloc[0]
        limits = fitted.tidy().iloc[0]
        assert (limits["conf_low"], limits["conf_high"]) == (-5, 5)


def test_where_nothing_is_cut_nothing_is_said() -> None:
    data = pc.datasets.private_trial(3000, seed=3).frame.assign(Y=lambda d: d["Y"] > 1)
    fitted = private("Y ~ T | X1", data, bounds={"X1": (0, 1)}, propensity=0.5, seed=1)
    assert fitted.estimate.averages.clipping[0] == 0
    shown = " ".join(f"{fitted.summary(full=True)} {view_of(fitted).methods}".split())
    assert "Noise can hide" not in shown


def test_the_plain_difference_is_estimated_if_the_effect_is_large() -> None:
    """Cov(e, E[Y | x]) also holds the effect times Var(e), which is no confounding."""
    study = pc.datasets.clinic(5000)
    plain = study.frame.groupby("programme")["recovery"].mean().diff().iloc[-1]
    fit = private(study.formula, study.frame, bounds=study.bounds, eps=4, seed=2)
    assert fit.params["ATE"] - plain > 1.5
    assert fit.estimate.averages.unadjusted == pytest.approx(plain, abs=0.4)
    assert "Adjustment for covariates moved the estimate from about 4." in str(fit.summary())


def test_a_plain_difference_that_two_estimates_do_not_share_is_not_shown() -> None:
    """Few treated rows, unlike all others: a quarter of the difference would be missing."""
    rng, treated = np.random.default_rng(0), np.arange(30_000) < 400
    base = np.where(treated, rng.gamma(0.3, 6, 30_000), rng.gamma(2.2, 7, 30_000).clip(max=26))
    hidden = treated & (rng.random((2, 30_000)) < 0.7)
    a, b = (np.where(hidden, 0, base + 2 * rng.normal(size=(2, 30_000)))).clip(0, 30)
    y = (0.42 * a + 0.45 * b + 1.5 * treated + 4 * rng.normal(size=30_000) + 2).clip(0, 30)
    data = pd.DataFrame({"Y": y, "T": treated * 1, "a": a, "b": b})
    limits = {"Y": (0, 30), "T": [0, 1], "a": (0, 30), "b": (0, 30)}
    fit = private("Y ~ T | a + b", data, bounds=limits, eps=10, seed=1)
    shown = str(fit.summary())
    assert "moved the estimate" not in shown
    assert "of the covariates' confounding" in shown
    assert "Poor overlap: these data hardly show the ATE" in shown


def test_poor_overlap_of_the_treated_is_told_for_the_att_too() -> None:
    """Its score divides by 1 - e, which is small for most of the treated rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 8000)
    t = rng.random(8000) < 1 / (1 + np.exp(-5 * x - 1))
    y = (x + t * (1 + x) + 0.3 * rng.normal(size=8000)).clip(-3, 4)
    data, limits = pd.DataFrame({"Y": y, "T": t * 1, "X": x}), {"Y": (-3, 4), "X": (-1, 1)}
    for estimand in ("ATT", "ATO"):
        fit = private("Y ~ T | X", data, bounds=limits, eps=4, estimand=estimand, seed=1)
        shown = " ".join(fit.alerts.get("overlap", "").split())
        assert ("these data hardly show the ATT" in shown) == (estimand == "ATT")
        assert ("of the treated rows have a propensity above 0.9" in shown) == (estimand == "ATT")


@pytest.mark.slow
def test_the_error_from_sampling_is_that_of_a_fit_without_noise() -> None:
    """Within a fifth, for noise changes the weights, and beside the whole in every output."""
    study = pc.datasets.clinic(5000)
    known = private(study.formula, study.frame, bounds=study.bounds, exact=True).ate["se_sampling"]
    for seed in range(3):
        fit = private(study.formula, study.frame, bounds=study.bounds, eps=0.8, seed=seed)
        row = fit.ate.iloc[0]
        assert row["se_sampling"] == pytest.approx(known.iloc[0], rel=0.2)
        assert row["std_error"] > 1.3 * row["se_sampling"]
    told = re.compile(r"(\d\.\d{3}) \(at most (\d\.\d{3}) from sampling alone")
    view, shown = view_of(fit), fit.summary(full=True)
    whole, alone = map(float, told.search(view.headline[1]).groups())  # type: ignore[union-attr]
    assert (whole, alone) == pytest.approx((row["std_error"], row["se_sampling"]), abs=6e-4)
    for text in (str(shown), shown.as_latex(), shown.as_markdown(), shown.as_html()):
        found = re.search(r"sampling\W+se (\d\.\d{3})", re.sub("<[^>]*>", " ", text))
        assert float(found[1]) == pytest.approx(row["se_sampling"], abs=6e-4)  # type: ignore[index]


@pytest.mark.parametrize(("clipping", "remainder"), [(1.0, 0.1), (0.1, 2.0), (0.1, 0.1)])
def test_notes_name_the_allowance_and_the_estimand(clipping: float, remainder: float) -> None:
    one = np.ones((1, 1))
    found = AverageEstimate(
        (ResultTerm("effect", "ATT"),), (), np.zeros(1), one, 0 * one, np.array([clipping]),
        np.array([remainder]), 9.0,
    )  # fmt: skip
    alerts, doubts = average_doubts(found)
    notes = [*doubts, *alerts.values()]
    assert [("Clipping" in note, "confounding" in note) for note in notes] == (
        [(True, False)] if clipping == 1 else [(False, True)] if remainder == 2 else []
    )
    assert all("the ATT" in note for note in notes)


@pytest.mark.parametrize(
    ("shift", "says"),
    [
        (-30, "lowers recovery by "),
        (30, "raises recovery by "),
        (0, "do not show whether programme raises or lowers recovery on average."),
    ],
)
def test_the_headline_gives_a_direction_only_where_the_interval_has_one(
    shift: float, says: str
) -> None:
    rng = np.random.default_rng(4)
    arm = rng.integers(0, 2, 2000)
    frame = pd.DataFrame({"programme": arm, "recovery": 50 + shift * arm + rng.normal(0, 5, 2000)})
    fit = private("recovery ~ programme", frame, eps=1, bounds={"recovery": (0, 100)}, seed=3)
    low, high = fit.conf_int().iloc[0]
    assert (low * high > 0) == bool(shift)
    first, second, _ = view_of(fit).headline
    assert says in first
    assert ("The estimate is" in second) == (not shift)
    assert "-" not in first


@pytest.mark.parametrize(
    ("formula", "options", "ends"),
    [
        ("Y ~ T", {}, ""),
        ("Y ~ T | X", {"propensity": 0.5}, ""),
        ("Y ~ T | X", {}, ", if the covariates include all common causes of treatment and outcome"),
        ("Y ~ T | X | T ~ Z", {"estimand": "LATE"}, " and acts only through the treatment"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("effect", [0, 5])
def test_an_effect_is_claimed_with_its_assumption(
    formula: str, options: dict[str, Any], ends: str, effect: float
) -> None:
    """In the sentence of the effect; if it has no direction, in the sentence of its interval."""
    rng = np.random.default_rng(8)
    x, z = rng.random(4000), rng.integers(0, 2, 4000)
    arm = np.where(rng.random(4000) < 0.9, z, 1 - z)
    frame = pd.DataFrame({"T": arm, "Z": z, "X": x, "Y": 5 + x + effect * arm})
    fit = private(formula, frame, eps=4, bounds={"Y": (0, 12), "X": (0, 1)}, **options, seed=2)
    first, second = view_of(fit).headline[:2]
    claim = first if effect else second.split(". ")[0] + "."
    assert ("raises Y by" in first) == bool(effect)
    assert claim.endswith(f"{ends}.")
    assert (" if " in claim) == bool(ends)
