"""The first line of a CSV file: names are public, and a row in their place is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fit_helpers import refused

import privcausal as pc
from privcausal.cli import main
from privcausal.errors import DataError, FormulaError, PrivcausalError

BODY = "0.2,0,Bob,neg\n0.4,1,Carol,neg\n"
PERSON = ("Alice Example", "HIV+")
VALUES = ("", " ", "nan", "TRUE", "1e5", "2021-05-01", "12:30", "$12.50", "HIV+")
WITH_VALUES = ["0.73,1,Alice Example,HIV+", "Y,T,Alice Example,NA", '"Y",T,"-7",HIV+']
WITH_VALUES += [f"Y,T,{value},HIV+" for value in VALUES]


def file(folder: Path, first: str) -> Path:
    place = folder / "rows.csv"
    place.write_text(f"{first}\n{BODY}")
    return place


def told(call: Any) -> str:
    with refused(PrivcausalError, ".") as caught:
        call()
    return f"{caught.value} {caught.value.args}"


@pytest.mark.parametrize("first", WITH_VALUES)
def test_a_first_line_that_may_be_a_row_is_refused_in_one_sentence(
    first: str, tmp_path: Path
) -> None:
    place = file(tmp_path, first)
    bounds = {"Y": (0, 1)}
    sentence = told(lambda: pc.private("Y ~ T", place, bounds=bounds))
    assert sentence == told(lambda: pc.check_data(place, bounds=bounds))
    assert sentence == told(lambda: pc.private("a ~ b", place))
    assert "the first line must contain the column names" in sentence
    assert not any(value in sentence for value in (*PERSON, "73", "-05-", "12", "1e5", "TRUE"))


@pytest.mark.parametrize(
    "first",
    ["Y,T,age (years),x1", "Y,T,5yr survival,Größe", "Y,T,年齢,_x", "Y,T,inf_flag,na_count"],
)
def test_names_are_names(first: str, tmp_path: Path) -> None:
    assert pc.private("Y ~ T", file(tmp_path, first), bounds={"Y": (0, 1), "T": [0, 1]}, eps=50)


@pytest.mark.parametrize("first", ["yes,no,Alice Example,HIV+", "Y,Z,Alice Example,HIV+", "HIV,Y"])
@pytest.mark.parametrize("formula", ["Y ~ T", "HIV ~ T", "Y ~ Z | HIV", "Alice ~ Z | ."])
def test_what_stands_in_it_is_never_quoted(first: str, formula: str, tmp_path: Path) -> None:
    """Not even what is near to a name of the formula, nor where some of its names are there."""
    place = file(tmp_path, first)
    if first == "HIV,Y":
        place.write_text("HIV,Y\n1,0\n")
    sentence = told(lambda: pc.private(formula, place, bounds={"Y": (0, 1)}))
    assert not any(value in sentence for value in (*PERSON, "yes"))
    assert "is not in the first line of the CSV file" in sentence


@pytest.mark.parametrize(
    "options", [{"unit": "id", "max_rows": 1}, {"propensity": "id"}, {"groups": ["id"]}]
)
def test_nor_where_an_option_names_a_column(options: Any, tmp_path: Path) -> None:
    place = file(tmp_path, "Y,T,Alice Example,HIV+")
    bounds = {"Y": (0, 1), "id": (0.2, 0.8) if "propensity" in options else ["a", "b"]}
    with pytest.raises((DataError, FormulaError), match="is not in the first line") as caught:
        pc.private("Y ~ T", place, bounds=bounds, **options)
    assert not any(value in str(caught.value) for value in PERSON)


def test_nor_where_files_differ(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Y,T,Alice Example,HIV+\n" + BODY)
    (tmp_path / "b.csv").write_text("Y,T,name,status\n" + BODY)
    sentence = told(lambda: pc.private("Y ~ T", tmp_path, bounds={"Y": (0, 1)}))
    assert "different column names" in sentence
    assert not any(value in sentence for value in (*PERSON, "name'", "status"))


@pytest.mark.parametrize("first", [WITH_VALUES[0], "yes,no,Alice Example,HIV+"])
def test_nor_by_the_command(first: str, tmp_path: Path, capfd: Any) -> None:
    place = file(tmp_path, first)
    spec = tmp_path / "study.toml"
    spec.write_text('formula = "Y ~ T"\neps = 1\n[bounds]\nY = [0, 1]\n')
    assert main(["fit", str(spec), str(place), "--save", str(tmp_path / "fit.json")]) != 0
    out, err = capfd.readouterr()
    assert "first line" in err
    assert not any(value in out + err for value in PERSON)


def test_names_of_a_frame_are_shown_as_before() -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": [1.0], "T": [1]})
    with pytest.raises(FormulaError, match="Similar columns: 'age'"):
        pc.private("Age ~ T", frame)
