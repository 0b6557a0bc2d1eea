"""Names for readers: one dict of labels, in every output; forest plots; a paragraph to paste."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import privcausal as pc
from privcausal.report.tables import relabelled
from privcausal.testing import seeded_noise

STUDY = pc.datasets.clinic(2000)
LABELS = {
    "ward": "Hospital ward", "age": "Age (years)", "recovery": "Recovery in points",
    "programme": "Rehabilitation", "severity": "Severity",
}  # fmt: skip


@lru_cache
def fits() -> tuple[Any, Any]:
    with seeded_noise(5):
        one = pc.private(STUDY.formula, STUDY.frame, eps=4, bounds=STUDY.bounds)
        two = pc.privcate(
            STUDY.formula, STUDY.frame, eps=4, bounds=STUDY.bounds, groups=["ward", "age >= 65"]
        )
    return one, two


@pytest.mark.parametrize(
    ("term", "shown"),
    [
        ("age", "Age (years)"),
        ("C(ward)[T.north]", "Hospital ward: north"),
        ("C(ward, contr.sum)[north]", "Hospital ward: north"),
        ("ward[north]", "Hospital ward: north"),
        ("age >= 65", "Age (years) >= 65"),
        ("age:C(ward)[T.north]", "Age (years):Hospital ward: north"),
        ("log(age)", "log(Age (years))"),
        ("passage", "passage"),
        ("age_2", "age_2"),
        ("ATE", "ATE"),
    ],
)
def test_terms_are_named_by_whole_columns(term: str, shown: str) -> None:
    assert relabelled(term, LABELS) == shown


@pytest.mark.slow
def test_every_output_has_them_and_the_formula_stays(page_of: Any) -> None:
    _, fit = fits()
    page = page_of(fit, labels=LABELS)
    summary = fit.summary(full=True, labels=LABELS)
    table = pc.compare({"one": fit}, groups=True, labels=LABELS)
    for text in (str(summary), summary.as_latex(), summary.as_html(), page, str(table)):
        flat = " ".join(text.split())
        assert "Hospital ward: north" in flat
        assert "Recovery in points" in flat
        assert "C(ward)[T." not in flat.replace("C(ward) |", "")
    assert "recovery ~ programme" in str(summary)
    assert "C(ward)[T.north]" in str(fit.summary(full=True))
    for kind in ("coef", "gate", "effect"):
        made = np.ravel(fit.plot(kind, labels=LABELS))
        words = [t.get_text() for ax in made for t in (*ax.get_yticklabels(), *ax.texts)]
        words += [ax.get_title(loc="left") + ax.get_title() for ax in made]
        assert any("Hospital ward" in w.replace("\n", " ") for w in words), kind
        plt.close("all")


def test_coefficients_of_one_unit_share_an_axis() -> None:
    axes = fits()[1].plot("coef")
    names = [[t.get_text() for t in ax.get_yticklabels()] for ax in axes]
    assert names[0][0] == "ATE"
    assert all("ward" in name for name in names[0][1:])
    assert names[1:] == [["age"], ["severity"]]
    plt.close("all")
    figure, ax = plt.subplots()
    assert fits()[1].plot("coef", ax=ax) is ax
    plt.close(figure)
    assert fits()[0].plot("coef").get_xlabel() == "effect on recovery"
    plt.close("all")


def test_forest_plots_have_the_overall_effect_and_the_specifications() -> None:
    one, two = fits()
    ax = two.plot("gate")
    assert ax.get_yticklabels()[-1].get_text() == "ATE"
    corners = ax.patches[-1].get_xy()
    limits = two.ate.iloc[0]
    assert corners[:, 0].min() == pytest.approx(limits["conf_low"])
    assert corners[:, 0].max() == pytest.approx(limits["conf_high"])
    made = pc.compare({"AIPW": one, "R": two})
    ax = made.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["AIPW", "R"]
    assert len([note for note in ax.texts if "[" in note.get_text()]) == 2
    plt.close("all")


def test_budget_names_are_whole() -> None:
    fit = fits()[1]
    ax = fit.plot("budget")
    shown = [t.get_text().replace("\n", " ") for t in ax.get_yticklabels()]
    assert shown == [f"{s}: {q}" for s, q in fit.budget[["stage", "query"]].itertuples(False)]
    plt.close("all")


def test_the_paragraph_of_methods_cites_what_it_uses() -> None:
    one, two = fits()
    assert "Robins" in one.methods
    assert "Nie, X." in two.methods
    assert "Nie, X." not in one.methods
    assert "NOT PRIVATE" in one.methods  # noise of a test
    real = pc.private("recovery ~ programme", STUDY.frame, eps=1, bounds=STUDY.bounds).methods
    assert "Neyman" in real
    assert "(1, 1e-05)-differential privacy" in real
    assert "Canonne" in real
    assert f"privcausal {pc.__version__}" in real


def test_facts_of_a_comparison_are_whole() -> None:
    one, two = fits()
    trial = pc.private("recovery ~ programme", STUDY.frame, eps=1, bounds=STUDY.bounds)
    text = str(pc.compare([one, two, trial], labels=LABELS))
    assert ".." not in text
    assert {"AIPW", "R-learner", "difference"} <= set(text.split())
