"""Fits beside those of pyfixest, and in the tables of maketables: the packages themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import statsmodels.formula.api as smf
from results_fits import proven, proven_average, study, variant

import privcausal as pc
from privcausal.errors import CapabilityError

pytestmark = pytest.mark.extra("test")

FORMULA = "cost ~ mailed + age | ward"


@pytest.fixture(scope="module")
def fixed() -> Any:
    """Fixed effects, of rows whose ward is one of three: the one of a single row is dropped."""
    pyfixest = pytest.importorskip("pyfixest")
    rows = study()[study()["ward"].isin(["N", "S", "W"])]
    return pyfixest.feols(FORMULA, rows, vcov="HC1")


@pytest.fixture(scope="module")
def mixed(fixed: Any) -> Any:
    ols = smf.ols("cost ~ mailed + age", study()).fit()
    return pc.compare({"AIPW": proven_average(), "R": proven(), "OLS": ols, "feols": fixed})


@pytest.mark.slow
def test_pyfixest_fits_are_read_whole(mixed: Any, fixed: Any) -> None:
    rows = mixed.frame[mixed.frame["fit"] == "feols"].set_index("term")
    table = fixed.tidy()
    pairs = {
        "estimate": "Estimate", "std_error": "Std. Error", "statistic": "t value",
        "p_value": "Pr(>|t|)", "conf_low": "2.5%", "conf_high": "97.5%",
    }  # fmt: skip
    assert rows.index.tolist() == table.index.tolist() == ["mailed", "age"]
    for ours, theirs in pairs.items():
        assert rows[ours].to_numpy() == pytest.approx(table[theirs].to_numpy(), rel=1e-12)
    facts = mixed.stats.loc["feols"]
    assert facts["n"] == f"{fixed._N}"
    assert facts[["Outcome", "Estimator", "Fixed effects", "Guarantee"]].tolist() == [
        "cost", "Feols", "ward", "none"
    ]  # fmt: skip
    at_ninety = pc.compare([fixed], alpha=0.1).frame[["conf_low", "conf_high"]].to_numpy()
    assert at_ninety == pytest.approx(fixed.confint(alpha=0.1).to_numpy(), rel=1e-12)


def test_several_models_of_one_call_are_given_one_by_one() -> None:
    pyfixest = pytest.importorskip("pyfixest")
    both = pyfixest.feols("cost ~ sw(mailed, age)", study())
    with pytest.raises(CapabilityError, match=r"several models. Pass \*fit\.to_list\(\)"):
        pc.compare([both])
    made = pc.compare([proven(), *both.to_list()])
    assert made.stats["Estimator"].tolist()[1:] == ["Feols", "Feols"]


def test_text_html_and_markdown_of_a_mixed_table(mixed: Any, fixed: Any) -> None:
    ate = proven_average().ate.iloc[0]
    wanted = [ate["estimate"], ate["std_error"], fixed.coef()["mailed"]]
    for text in (mixed.as_text(), mixed.as_html(), mixed.as_markdown(), mixed.as_latex()):
        plain = " ".join(text.split())
        assert "No privacy guarantee covers OLS, feols" in plain
        shown = [float(number) for number in re.findall(r"\d+\.\d+", plain)]
        assert all(min(abs(x - number) for x in shown) < 0.03 * number for number in wanted)
    assert max(map(len, mixed.as_text().split("\n"))) <= 78


def test_latex_of_a_mixed_table_is_compiled(mixed: Any, compiled: Callable[..., Path]) -> None:
    compiled(mixed.as_latex(label="tab:mixed"), "See Table \\ref{tab:mixed}.")


def test_word_document_of_a_mixed_table(mixed: Any, tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    mixed.to_word(tmp_path / "table.docx")
    (grid,) = docx.Document(str(tmp_path / "table.docx")).tables
    assert [cell.text for cell in grid.rows[0].cells][1:] == ["AIPW", "R", "OLS", "feols"]
    assert "Guarantee" in [row.cells[0].text for row in grid.rows]


# -- maketables ------------------------------------------------------------------------------


def cells(table: pd.DataFrame) -> dict[str, list[str]]:
    """Rows of an `ETable` frame by their own name."""
    return {str(index[-1]): row.astype(str).tolist() for index, row in table.iterrows()}


@pytest.mark.slow
def test_maketables_takes_fits_beside_others(fixed: Any, tmp_path: Path) -> None:
    maketables = pytest.importorskip("maketables")
    fits = [proven_average().to_maketables(), proven().to_maketables(), fixed]
    made = maketables.ETable(fits)
    rows = cells(made.df)
    effect = proven_average().params["ATE"]
    assert rows["ATE"][0].startswith(f"{effect:.3f}")
    assert f"({proven_average().bse['ATE']:.3f})" in rows["ATE"][0]
    assert rows["mailed"][2].startswith(f"{fixed.coef()['mailed']:.3f}")
    assert rows["Observations"] == ["900", "900", f"{fixed._N}"]
    assert rows["Guarantee"][:2] == ["proven", "proven"]
    assert rows["Epsilon"][:2] == ["20", "20"]
    assert "Guarantee & proven & proven" in made.make(type="tex")
    assert "proven" in made.make(type="gt").as_raw_html()
    docx = pytest.importorskip("docx")
    made.save(type="docx", file_name=str(tmp_path / "table.docx"))
    (grid,) = docx.Document(str(tmp_path / "table.docx")).tables
    assert any("proven" in cell.text for row in grid.rows for cell in row.cells)


@pytest.mark.slow
def test_maketables_never_takes_a_test_fit_for_a_private_one() -> None:
    """Handed over as it is, a fit is read by its statsmodels attributes, without a guarantee."""
    maketables = pytest.importorskip("maketables")
    assert "NOT PRIVATE" in maketables.ETable([variant("disjoint").to_maketables()]).df.to_string()
    assert "NOT PRIVATE" in maketables.ETable([variant("disjoint")]).df.to_string()
    assert "NOT PRIVATE" not in maketables.ETable([proven()]).df.to_string()
