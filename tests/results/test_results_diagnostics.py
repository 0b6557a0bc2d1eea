"""Bought overlap and balance: what they show, promise and charge."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from results_fits import EPSILON, fit, proven, proven_average, study, variant

import privcausal as pc
from privcausal.accounting import rho_of
from privcausal.errors import BudgetError, DataError, LedgerError
from privcausal.testing import seeded_noise

TERMS = ["age", "C(ward)[T.S]", "C(ward)[T.W]", "smoker", "income"]


@lru_cache
def look(what: str) -> Any:
    """Bought with real noise."""
    return getattr(proven(), what)(study(), eps=1.0)


@pytest.fixture(params=["overlap", "balance"])
def what(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_overlap_has_a_row_per_cell() -> None:
    frame = look("overlap").frame
    assert list(frame.columns) == ["low", "high", "treated", "control", "std_error"]
    assert frame["low"].iloc[1:].tolist() == frame["high"].iloc[:-1].tolist()
    assert (frame["std_error"] > 0).all()
    assert frame["std_error"].nunique() == 1
    total = frame[["treated", "control"]].to_numpy().sum()
    assert abs(total - len(study())) < 6 * 6 * frame["std_error"].iloc[0]
    assert frame.index[0] == "0.10 or less"
    assert frame.index[-1] == "0.90 or more"


def test_balance_has_a_row_per_column() -> None:
    frame = look("balance").frame
    assert [term.split("[T.True")[0] for term in frame.index] == TERMS
    assert list(frame.columns) == ["before", "std_error_before", "after", "std_error_after"]
    assert np.isfinite(frame).all(axis=None)
    assert (frame[["std_error_before", "std_error_after"]] > 0).all(axis=None)


VAGUE = "up to 0.30, so an imbalance of 0.1 would not be detected. Use more budget"
BEYOND = "1 of 2 standardized differences (a) exceed 0.1 by more than 2 noise"


@pytest.mark.parametrize(
    ("noise", "after", "says"),
    [
        ([0.2, 0.3], [0.1, 0.2], VAGUE),
        ([0.2, 0.3], [0.9, 0.2], BEYOND),
        ([0.2, 0.01], [0.1, 0.0], "not be detected in 1 of 2 columns. After weighting, 0 of 2"),
        ([0.01, 0.01], [0.2, 0.0], "up to 0.010. After weighting, 1 of 2 standardized differences"),
    ],
)
def test_balance_says_its_noise_before_it_judges(noise: Any, after: Any, says: str) -> None:
    found = look("balance")
    measured = found.measured._replace(
        terms=("a", "b"), before=np.zeros(2), before_sd=np.ones(2),
        after=np.array(after), after_sd=np.array(noise),
    )  # fmt: skip
    words = replace(found, measured=measured).sentence
    assert says in words
    assert words.startswith("Noise standard deviations are up to")


def test_it_promises_what_was_asked_in_the_columns_of_a_fit(what: str) -> None:
    promise = look(what).guarantee
    (line,) = look(what).budget.to_dict("records")
    assert promise.kind == "proven"
    assert 0.99 < promise.epsilon <= 1.0
    assert promise.delta == 1e-5
    assert "this diagnostic only" in promise.statement
    assert proven().guarantee.epsilon <= EPSILON, "the fit's own price is what it was"
    assert list(look(what).budget.columns) == list(proven().budget.columns)
    assert line["stage"] == what
    assert line["rows"] == 1.0
    assert line["rho"] == pytest.approx(0.5 * (line["sensitivity"] / line["noise_sd"]) ** 2)
    assert line["rho"] == rho_of(1.0, 1e-5, gdp=True) / 1e12, "the whole budget"


def test_text_html_and_words(what: str) -> None:
    found = look(what)
    text = str(found)
    assert text.isascii()
    assert max(map(len, text.split("\n"))) <= 80
    assert "Privacy: (1, 1e-05)-differential privacy, proven" in text
    assert "NOT PRIVATE" not in text
    assert found._repr_html_().startswith("<div")
    assert "(1, 1e-05)-DP, proven" in repr(found)
    check = found.check
    assert check.sentence.endswith("in addition to the fit.")
    assert len(check.frame) == len(found.frame)


def test_axes_in_axes_out(what: str) -> None:
    _, ax = plt.subplots()
    assert look(what).plot(ax) is ax
    assert look(what).plot(ax=ax) is ax
    assert look(what).plot() is not ax
    plt.close("all")


def test_it_is_frozen(what: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        look(what).measured = None


@pytest.mark.parametrize("noisy", [seeded_noise, nullcontext], ids=["test noise", "real"])
def test_looks_at_test_fits_are_not_private(what: str, noisy: Any) -> None:
    """Real noise does not make a test fit private."""
    with noisy(1):
        found = getattr(variant("r on linear"), what)(study(), eps=1.0)
    assert found.measured.kind == "none"
    assert found.guarantee.kind == "none"
    for text in (str(found), repr(found), found._repr_html_(), found.check.sentence):
        assert "NOT PRIVATE" in text
        assert "proven" not in text


def test_test_noise_makes_no_private_look_at_a_real_fit(what: str) -> None:
    fitted = proven()
    with seeded_noise(1):
        found = getattr(fitted, what)(study(), eps=1.0)
    assert found.guarantee.kind == "none"
    assert "NOT PRIVATE" in found.check.sentence


def test_delta_is_the_fits_unless_given(what: str) -> None:
    with seeded_noise(1):
        fitted = fit("r", base="linear", delta=1e-7)
        own, given = (getattr(fitted, what)(study(), eps=1.0, **k) for k in ({}, {"delta": 1e-6}))
    assert own.guarantee.delta == fitted.guarantee.delta == 1e-7
    assert given.guarantee.delta == 1e-6


@pytest.mark.slow
def test_the_report_shows_what_was_bought(page_of: Any) -> None:
    one, other = look("overlap"), look("balance")
    page = page_of(proven(), checks=[one, other])
    assert one.title in page
    assert other.title in page
    assert "No check of overlap or balance was requested" not in page
    assert "No check of overlap" in page_of(proven())


def test_average_effects_and_loaded_fits_look_too(what: str, reloaded: Any) -> None:
    found = getattr(reloaded(proven_average()), what)(study(), eps=1.0)
    assert len(found.frame) == len(look(what).frame)


@pytest.mark.parametrize(
    "name", ["disjoint", "crossfit", "units", "add_remove", "bought bounds", "propensity column"]
)
def test_every_kind_of_fit_can_look(name: str, what: str) -> None:
    with seeded_noise(3):
        found = getattr(variant(name), what)(study(), eps=1.0)
    assert len(found.budget) == 1
    assert found.guarantee.neighbors == variant(name).guarantee.neighbors
    assert found.guarantee.unit == variant(name).guarantee.unit


# -- the ledger ------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Any) -> pc.Ledger:
    return pc.Ledger(tmp_path / "led.db", dataset="study", eps=2.0)


def test_the_ledger_is_charged(what: str, ledger: pc.Ledger) -> None:
    found = getattr(proven(), what)(study(), eps=1.0, ledger=ledger)
    assert len(ledger.history) == 1
    assert ledger.history["stage"].item() == what
    assert ledger.spent.rho == pytest.approx(found.guarantee.rho)
    assert found.ledger_line.startswith("Ledger 'study': ")
    assert found.ledger_line in " ".join(str(found).split())


def test_it_is_charged_before_rows_are_read(what: str, ledger: pc.Ledger, broken: Any) -> None:
    failing = broken("vault.passes.Passes._batch", RuntimeError())
    with failing, pytest.raises(DataError, match="stays spent"):
        getattr(proven(), what)(study(), eps=1.0, ledger=ledger)
    assert len(ledger.history) == 1, "what touched rows stays spent"


def test_what_a_ledger_refuses_is_not_charged(what: str, ledger: pc.Ledger) -> None:
    """More than is left, test noise, and a look at a test fit."""
    look_at, fitted = getattr(proven(), what), variant("r on linear")
    with pytest.raises(BudgetError, match="No budget was spent"):
        look_at(study(), eps=5.0, ledger=ledger)
    with seeded_noise(1), pytest.raises(LedgerError, match="test noise"):
        look_at(study(), eps=1.0, ledger=ledger)
    with pytest.raises(LedgerError, match="No budget was spent"):
        getattr(fitted, what)(study(), eps=1.0, ledger=ledger)
    assert ledger.history.empty


def test_a_ledger_with_the_delta_of_the_fit_needs_no_delta(what: str, tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "own.db", dataset="study", eps=40.0, delta=1e-7)
    fitted = fit("r", base="linear", delta=1e-7, ledger=ledger)
    before = len(ledger.history)
    getattr(fitted, what)(study(), eps=1.0, ledger=ledger)
    assert len(ledger.history) == before + 1


def test_too_little_budget_says_so() -> None:
    with seeded_noise(1):
        found = fit("r", base="linear").balance(study().head(30), eps=0.01)
    assert "too small" in found.sentence
    assert "nan" in str(found)
    assert found.plot() is not None
    plt.close("all")


def published() -> Any:
    """A fit whose propensity is only claimed to be private."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"Y": rng.uniform(size=400), "T": rng.integers(0, 2, 400)})
    data["x"] = rng.uniform(size=400)
    found = pc.paper.private(
        "Y ~ T | x", data, bounds={"Y": (0, 1), "x": (0, 1)}, below_minimum="published", eps=50
    )
    return found, data


@pytest.mark.parametrize("loaded", [False, True])
def test_a_look_is_no_better_than_the_fit(
    what: str, loaded: bool, tmp_path: Any, reloaded: Any
) -> None:
    """Whatever was proven of the look itself, its propensity may hold a row."""
    fit, data = published()
    assert fit.guarantee.kind == "published"
    look_at = getattr(reloaded(fit) if loaded else fit, what)
    found = look_at(data, eps=0.5)
    assert found.guarantee.kind == "published"
    assert "CLAIMED, NOT PROVEN" in str(found)
    for text in (str(found), repr(found), found._repr_html_(), found.check.sentence):
        assert "proven" not in text.replace("NOT PROVEN", "").replace("not proven", "")
    strict = pc.Ledger(tmp_path / "strict.db", "study", eps=9)
    with pytest.raises(LedgerError, match="allow_published=True"):
        look_at(data, eps=0.5, ledger=strict)
    assert strict.fits == 0
    lenient = pc.Ledger(tmp_path / "lenient.db", "study", eps=9, allow_published=True)
    look_at(data, eps=0.5, ledger=lenient)
    assert lenient.spent.kind == "published"
    assert lenient.spent.epsilon == pytest.approx(0.5)
