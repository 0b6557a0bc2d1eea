"""Stata, SPSS and R files: the numbers of memory to the bit; labels count only where declared."""

from __future__ import annotations

import builtins
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyreadr
import pyreadstat
import pytest
from fit_helpers import refused
from vault_helpers import saved

import privcausal as pc
from privcausal import cli
from privcausal.errors import CapabilityError, DataError, SchemaError
from privcausal.vault.admission import open_source

N = 700
CANARY = 77310.4142
SEX = {1: "male", 2: "female", 8: "female", 9: "refused"}
ARM = {0: "usual", 1: "new"}
FORMULA = "y ~ arm | x + C(sex) | C(ward)"
NUMBERS: dict[str, Any] = {"y": (-2, 3), "x": (0, 9)}
CODES = {**NUMBERS, "arm": (0, 1), "sex": ["1", "2"], "ward": ["n", "s"]}
WORDS = {**NUMBERS, "arm": ["usual", "new"], "sex": ["male", "female"], "ward": ["n", "s"]}
SUFFIXES = ("dta", "sav", "rds")


def study() -> pd.DataFrame:
    """Codes; sex 9 is what SPSS calls missing. Without the first rows nothing is missing."""
    rng = np.random.default_rng(1)
    columns = {"y": rng.normal(0, 1, N), "arm": rng.integers(0, 2, N), "x": rng.integers(0, 10, N)}
    columns["sex"] = rng.choice([1, 2, 8], N)
    columns["ward"] = rng.choice(["n", "s", "new"], N).astype(object)
    columns["day"] = pd.Timestamp("2020-01-01")
    frame = pd.DataFrame(columns).astype({"x": "Int32", "arm": "Int32", "sex": "Int32"})
    frame.loc[0, "x"] = frame.loc[1, "arm"] = frame.loc[2, "y"] = frame.loc[3, "sex"] = pd.NA
    frame.loc[4, "ward"], frame.loc[5, "y"], frame.loc[6, "sex"] = "", CANARY, 9
    return frame


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    """As whoever reads it with labels in a data frame would have it."""
    return frame.assign(arm=frame["arm"].map(ARM), sex=frame["sex"].map({**SEX, 9: None}))


def written(folder: Path, suffix: str, frame: pd.DataFrame, *, labels: bool = True) -> Path:
    path = folder / f"study.{suffix}"
    options: dict[str, Any] = {}
    if labels:
        options = {"variable_value_labels": {"sex": SEX, "arm": ARM, "x": {9: "nine or more"}}}
    if suffix == "sav":
        pyreadstat.write_sav(frame, path, missing_ranges={"sex": [9]}, **options)
    elif suffix == "dta":
        # Stata's missing value .a, with a label of its own
        texts = {code: text for code, text in SEX.items() if code != 9} | {"a": "refused"}
        if labels:
            options["variable_value_labels"]["sex"] = texts
        coded = frame.astype({"sex": object})
        coded.loc[coded["sex"] == 9, "sex"] = "a"
        pyreadstat.write_dta(coded, path, missing_user_values={"sex": ["a"]}, **options)
    else:
        frame = frame.astype({"day": "datetime64[ns]"})  # the unit of dates that pyreadr writes
        pyreadr.write_rds(str(path), worded(frame) if labels else frame)
    return path


def document(table: Any, folder: Path, bounds: Any, formula: str = FORMULA) -> bytes:
    return saved(folder, pc.privcate, formula, table, bounds=bounds)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["dta", "sav"])
def test_labels_count_only_where_declared(suffix: str, tmp_path: Path) -> None:
    plain = study().replace({"ward": {"": None}})
    plain["sex"] = plain["sex"].mask(plain["sex"] == 9)
    for labels in (False, True):
        path = written(tmp_path, suffix, study(), labels=labels)
        assert document(path, tmp_path, CODES) == document(plain, tmp_path, CODES)
    declared = pc.declare_labels(path, ["arm", "sex"], {**NUMBERS, "ward": ["n", "s"]})
    assert declared.columns == pc.Schema(WORDS).columns
    for bounds in (declared, WORDS):  # by hand is as well
        assert document(str(path), tmp_path, bounds) == document(worded(plain), tmp_path, bounds)


R = """
df <- read.csv("study.csv", na.strings = "NA")
df$sex <- factor(df$sex, levels = c("male", "female", "refused"))
df$arm <- df$arm == 1L
df$day <- as.Date("2020-01-01")
saveRDS(df, "study.rds")
saveRDS(list(df, df), "list.rds"); saveRDS(df$y, "vector.rds")
saveRDS(data.frame(y = I(list(1, 2))), "nested.rds")
"""


@pytest.fixture
def r_files(tmp_path: Path, needs: Callable[..., str]) -> Path:
    """Files that R itself wrote, from the study as text."""
    frame = worded(study()).assign(arm=study()["arm"])
    frame.to_csv(tmp_path / "study.csv", index=False, na_rep="NA")
    subprocess.run([needs("Rscript"), "-e", R], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


@pytest.mark.slow
def test_r_has_truth_values_integers_and_factors(r_files: Path) -> None:
    """Whose missing values a data frame made by reticulate or pyreadr reads as values or types."""
    same = worded(study()).assign(arm=study()["arm"].astype("boolean"))
    bounds = {**WORDS, "arm": [False, True]}
    assert document(r_files / "study.rds", r_files, bounds) == document(same, r_files, bounds)
    declared = pc.declare_labels(r_files / "study.rds", "sex")
    assert declared["sex"].labels == ("male", "female", "refused")
    with open_source(r_files / "study.rds") as source:
        assert list(source.header.kinds.values()) == [
            "numeric", "bool", "numeric", "text", "text", "other"
        ]  # fmt: skip
    for name in ("list", "vector", "nested"):
        words = rf"{name}.rds is not a complete .rds file. It must contain one data fr"
        with pytest.raises(DataError, match=words):
            pc.private("y ~ arm", r_files / f"{name}.rds")


@pytest.mark.slow
def test_rds_of_pyreadr(tmp_path: Path) -> None:
    frame = worded(study())
    path = written(tmp_path, "rds", study())
    assert document(path, tmp_path, WORDS) == document(frame, tmp_path, WORDS)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_type_depends_on_the_rows(suffix: str, tmp_path: Path) -> None:
    kinds = []
    for frame in (study(), study()[7:], study()[:7]):
        with open_source(written(tmp_path, suffix, frame)) as source:
            kinds.append(source.header)
    assert kinds[0] == kinds[1] == kinds[2]
    if suffix == "rds":
        return  # pyreadr writes dates as texts; R's own are above
    with pytest.raises(DataError, match="Column 'day' has a type that cannot be read"):
        pc.private("y ~ arm | day", tmp_path / f"study.{suffix}")


def test_labels_are_read_without_the_rows(tmp_path: Path, monkeypatch: Any) -> None:
    """Of a file that was cut off within its rows, too."""
    path = written(tmp_path, "sav", study())
    path.write_bytes(path.read_bytes()[:-400])
    assert pc.declare_labels(path, "sex")["sex"].labels == ("male", "female")
    with pytest.raises(DataError, match=r"study.sav is not a complete .sav file.$"):
        pc.private("y ~ arm", path)


WRONG: list[tuple[Any, Any, str]] = [
    ("study.dta", "y", "Column 'y' has no labels in study.dta. Columns with labels: "),
    ("study.dta", ["sex", "age"], "Column 'age' has no labels"),
    ("study.csv", "sex", "study.csv has no labels. Files with labels end in .dta, .sav"),
    ("gone.sav", "sex", "File 'gone.sav' does not exist"),
    ("cut.dta", "sex", "cut.dta is not a complete .dta file"),
    ("text.sav", "sex", "text.sav is not a complete .sav file"),
    ("text.rds", "y", "text.rds is not a complete .rds file. It must contain one data frame of"),
    (5, "sex", "The path of a file must be text, not a value of type int"),
]


@pytest.mark.parametrize(("name", "columns", "words"), WRONG)
def test_wrong_files(name: Any, columns: Any, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    error = SchemaError if words.startswith("Column") else DataError
    monkeypatch.chdir(tmp_path)
    whole = written(tmp_path, "dta", study()).read_bytes()
    Path("cut.dta").write_bytes(whole[: len(whole) // 2])
    for suffix in SUFFIXES:
        Path(f"text.{suffix}").write_text(f"y\n{CANARY}\n" * N)
    calls = [lambda: pc.declare_labels(name, columns)]
    if error is DataError and name not in ("study.csv", 5):
        calls.append(lambda: pc.private("y ~ arm", name))
    for call in calls:
        with refused(error, ".", CANARY, N) as caught:
            call()
        assert str(caught.value).startswith(words)
        assert len(str(caught.value)) < 240


@pytest.mark.parametrize(("suffix", "package"), [("sav", "pyreadstat"), ("rds", "pyreadr")])
def test_an_absent_package_is_named(
    suffix: str, package: str, tmp_path: Path, monkeypatch: Any
) -> None:
    path = written(tmp_path, suffix, study())
    whole = builtins.__import__

    def lacking(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return whole(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    words = rf"require {package}: pip install 'privcausal\[files]'"
    with pytest.raises(CapabilityError, match=words):
        pc.private("y ~ arm", path)


@pytest.mark.slow
def test_undeclared_labels_say_nothing(tmp_path: Path, capsys: Any, recwarn: Any) -> None:
    """A row of a label that was not declared is one of none of the levels, as everywhere."""
    path = written(tmp_path, "dta", study())
    bounds = {**WORDS, "sex": ["female"]}
    assert document(path, tmp_path, bounds, "y ~ arm | x") == document(
        worded(study()).replace({"ward": {"": None}}), tmp_path, bounds, "y ~ arm | x"
    )
    pc.private("y ~ arm | C(sex)", path, bounds={**bounds, "sex": ["female", "divers"]})
    told = [str(each.message) for each in recwarn] + list(capsys.readouterr())
    assert not any("refused" in words or "male" in words.split() for words in told)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_on_the_command_line(suffix: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, suffix, study())
    Path("spec.toml").write_text(
        'formula = "y ~ arm | sex"\ntask = "private"\n[bounds]\ny = [-2, 3]\n'
        'arm = ["usual", "new"]\nsex = ["male", "female"]\n'
    )
    assert cli.main(["fit", "spec.toml", f"study.{suffix}", "--save", "fit.json"]) == 0
    assert "new vs. usual" in capsys.readouterr().out
