"""Wrong calls are refused for nothing and quote no row; no rows are ever refused."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from text_type import TEXT
from wrong_calls import (
    BOUNDS,
    CANARY,
    CASES,
    FIRST,
    FORMULA,
    RARE,
    N,
    _study,
    ate,
    cate,
    study,
    tried,
)

import privcausal as pc
from privcausal import testing
from privcausal.errors import BudgetError, DataError, PrivcausalWarning, SchemaError


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pc.Ledger(tmp_path_factory.mktemp("ledger") / "study.db", "study", eps=5)


def test_the_catalogue_is_long() -> None:
    """Wrong calls of every kind, each once; and its messages say something."""
    assert len(CASES) >= 800
    assert len(FIRST) >= 40
    kinds = {name.partition(":")[0]: 0 for name in CASES}
    for name, case in CASES.items():
        kinds[name.partition(":")[0]] += 1
        assert case.words
    assert len(kinds) == 25
    assert min(kinds.values()) >= 10


@pytest.mark.parametrize("name", CASES)
def test_wrong_calls_are_refused_before_anything_is_spent(name: str, ledger: Any) -> None:
    found = tried(CASES[name], ledger)
    assert isinstance(found.error, CASES[name].error)
    assert re.search(CASES[name].words, str(found.error))
    assert found.charged == 0
    assert found.seconds < 10
    assert not found.shows_a_row
    assert "Traceback" not in found.said
    assert found.is_as_stated(CASES[name])
    if not name.startswith("command"):  # where argparse prints the usage above
        assert len(textwrap.wrap(str(found.error), 80)) <= 3


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    """What a new user has at hand."""
    rng, n = np.random.default_rng(0), 200
    columns = {"Y": rng.random(n), "T": rng.integers(0, 2, n), "age": rng.uniform(18, 95, n)}
    columns["ward"] = pd.array(rng.choice(["a", "b", "c"], n), TEXT)
    columns |= {"arm": rng.choice(["no", "yes"], n), "id": np.arange(n) // 2}
    df = pd.DataFrame(columns | {"date": pd.Timestamp("2020-01-01"), "post": np.arange(n) % 2})
    bounds = {"Y": (0, 1), "age": (18, 95), "ward": ["a", "b", "c"]}
    fit = pc.private("Y ~ T | age", df, bounds=bounds)
    cate = pc.privcate("Y ~ T | age", df, bounds=bounds)
    return {"pc": pc, "np": np, "df": df, "bounds": bounds, "fit": fit, "cate": cate}


@pytest.mark.parametrize("call", FIRST)
def test_a_first_mistake_is_answered_by_what_to_write(
    call: str, first: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In at most three lines, and for nothing."""
    monkeypatch.chdir(tmp_path)
    ledger = pc.Ledger("watched.db", "study", eps=100)
    names = ("private", "privcate", "regress", "did")
    charged = {name: partial(getattr(pc, name), ledger=ledger) for name in names}
    with pytest.raises((pc.PrivcausalError, AttributeError)) as refused:
        eval(call, first | charged)
    assert str(refused.value) == FIRST[call]
    assert len(textwrap.wrap(FIRST[call], 80)) <= 3
    assert ledger.fits == 0


def told_first(formula: str, data: Any, tmp_path: Path, **options: Any) -> list[str]:
    """Warnings of a fit that a ledger refuses: they came before anything was charged."""
    ledger = pc.Ledger(tmp_path / "small.db", "study", eps=0.1)
    too_much = pytest.raises(BudgetError, match="Not enough budget")
    with pytest.warns(PrivcausalWarning) as seen, too_much:
        pc.private(formula, data, ledger=ledger, **options)
    assert ledger.history.empty
    assert all(warning.filename == __file__ for warning in seen)
    return [str(warning.message) for warning in seen]


@pytest.mark.slow
def test_the_price_of_levels_is_told_before_it_is_charged(tmp_path: Path) -> None:
    bounds = {"Y": (0, 1), "X1": (0, 10)}
    (said,) = told_first(FORMULA, study(), tmp_path, bounds=bounds)
    with testing.seeded_noise(1):
        plan = pc.private(FORMULA, study(X1=1.0, Y=0.5), eps=50, bounds=bounds).plan
    share = plan.stage("bounds: levels of G").rho / plan.rho
    told = f"The levels of 'G' will be estimated privately, at {share:.1%} of the budget and 1e-06"
    assert said.startswith(told)


@pytest.mark.slow
def test_a_dot_names_what_it_takes(tmp_path: Path) -> None:
    frame = study().drop(columns=["day", "arm", "pid", "P"])
    (said,) = told_first("Y ~ T | .", frame, tmp_path, bounds=BOUNDS)
    assert said == "'.' expands to 2 columns: 'X1', 'G'."


@pytest.mark.slow
def test_what_is_told_first_is_the_same_for_all_rows(tmp_path: Path) -> None:
    """Of column names, types and the call: rows have no part in it."""
    said = []
    for frame in (study(), study(Y=1.0, T=0, X1=3.0, P=0.0, G="z")):
        rows = pd.concat([frame.drop(columns=["day", "arm", "pid"])] * 20, ignore_index=True)
        said.append(told_first("Y ~ T | .", rows, tmp_path, bounds={"Y": (0, 1)}))
    assert said[0] == said[1]
    assert len(said[0]) == 2
    assert all(len(textwrap.wrap(text, 80)) <= 3 for text in said[0])


def test_a_right_call_is_charged(ledger: Any) -> None:
    """So that the ledger above was one that would have been."""
    before = len(ledger.history)
    cate(eps=0.5)(ledger)
    assert len(ledger.history) > before


# -- what must never be refused --------------------------------------------------------------


def column(name: str, *values: Any) -> Callable[[pd.DataFrame], Any]:
    """The study with the first values of a column replaced."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        made = list(frame[name])
        made[: len(values)] = values[: len(made)]
        return frame.assign(**{name: made})

    return change


def whole(**columns: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame.assign(**columns)


def decimals(frame: pd.DataFrame) -> Any:
    made = [None if np.isnan(v) else Decimal(repr(float(v))) for v in frame["X1"]]
    return frame.assign(X1=pd.Series(made, dtype=object, index=frame.index))


def arrow_decimals(frame: pd.DataFrame) -> Any:
    values = [Decimal(f"{v:.3f}") for v in frame["X1"].clip(0, 10)]
    return pa.Table.from_pandas(frame).set_column(2, "X1", pa.array(values, pa.decimal128(10, 3)))


def mixed(frame: pd.DataFrame) -> Any:
    values = [True, 1, "1", 2.5, None, b"a", Decimal("1.5"), float("nan"), ("a",), ["a"], object()]
    made = (values * len(frame))[: len(frame)]
    return frame.assign(
        G=pd.Series(made, dtype=object, index=frame.index),
        X1=pd.Series(made, dtype=object, index=frame.index),
        T=pd.Series([True, 0, 1.0, False] * len(frame), dtype=object).iloc[: len(frame)].values,
    )


HALF = "float16" if hasattr(nw, "Float16") else "float32"  # as narwhals can read it

ANYTHING: dict[str, Callable[[pd.DataFrame], Any]] = {
    "as it is": lambda frame: frame,
    "outside its bounds": column("X1", -1e9, CANARY, 11),
    "outcome outside its bounds": column("Y", -5.0, 1e9),
    "undeclared level": column("G", RARE, "z", ""),
    "No level": column("G", None, np.nan),
    "treatment that is no treatment": column("T", 2, -1, 0.5),
    "all treated": whole(T=1),
    "none treated": whole(T=0),
    "all treatments strange": whole(T=7.5),
    "all outcomes equal": whole(Y=0.25),
    "all outcomes at a bound": whole(Y=1),
    "outcomes missing": whole(Y=np.nan),
    "treatments missing": whole(T=np.nan),
    "covariate missing": whole(X1=np.nan),
    "levels missing": whole(G=pd.Series(np.nan, dtype="str")),
    "constant columns": whole(X1=5.0, G="a"),
    "infinite": column("X1", np.inf, -np.inf),
    "huge": column("X1", 1e308, -1e308, np.finfo(float).max),
    "all huge": whole(Y=1e308, X1=-1e308),
    "subnormal": column("X1", 5e-324, -5e-324, 2.2e-308),
    "negative zero": column("X1", -0.0),
    "large integers": whole(X1=2**63 - 1, T=np.int8(1)),
    "unsigned": lambda frame: frame.assign(T=frame["T"].astype("uint8")),
    "float32": lambda frame: frame.astype({"X1": "float32", "Y": HALF}),
    "bool": lambda frame: frame.assign(T=frame["T"] == 1, Y=frame["Y"] > 0.5),
    "nullable": lambda frame: column("T", None, 1, 0)(frame).astype({"T": "Int64"}),
    "nullable bool": lambda frame: frame.assign(
        T=pd.array([None, True, False, *[True] * len(frame)][: len(frame)], dtype="boolean")
    ),
    "nullable float": lambda frame: frame.convert_dtypes(),
    "arrow-backed": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "category": lambda frame: frame.astype({"G": "category"}),
    "numeric category": lambda frame: frame.assign(G=pd.Categorical([3] * len(frame))),
    "mixed objects": mixed,
    "mixed numbers": lambda frame: frame.assign(
        X1=pd.Series([1, 2.5, "3", None] * len(frame), dtype=object)[: len(frame)]
    ),
    "decimals": decimals,
    "decimals in polars": lambda frame: pl.from_pandas(frame).with_columns(
        pl.col("X1").clip(0, 10).cast(pl.Decimal(10, 3))
    ),
    "decimals in pyarrow": arrow_decimals,
    "polars": pl.from_pandas,
    "pyarrow": pa.Table.from_pandas,
    "dict of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "dict of series": lambda frame: {name: frame[name] for name in frame},
    "index twice": lambda frame: frame.set_index(np.zeros(len(frame))),
    "two levels of index": lambda frame: frame.set_index([frame.index, frame["Y"]]),
}


OWN_BOUNDS = {"mixed objects": {"T": pc.Binary(), "G": ["1", "True", "a"]}}


def usable(n: int) -> pd.DataFrame:
    rows = _study().drop(index=7)[["Y", "T", "X1", "G"]].reset_index(drop=True)
    return rows.head(n)


@pytest.mark.sample(5)
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), N - 1])
@pytest.mark.parametrize("call", [pc.privcate, pc.private])
@pytest.mark.parametrize("name", ANYTHING)
def test_no_value_of_a_row_is_refused(name: str, call: Any, n: int) -> None:
    data, domains = ANYTHING[name](usable(n)), BOUNDS | OWN_BOUNDS.get(name, {})
    with warnings.catch_warnings(), testing.seeded_noise(n):
        warnings.simplefilter("error")  # what a row could cause would tell of it
        warnings.simplefilter("ignore", pc.PrivcausalWarning)  # of released numbers
        fit = call(FORMULA, data, bounds=domains, eps=1.0 if n > 1 else 200.0)
    assert isinstance(float(fit.params.iloc[0]), float)  # finite, or NaN
    assert str(fit.summary())
    if call is pc.privcate:
        points = pd.DataFrame({"X1": [0.0, 10.0], "G": ["a", "a"]})
        assert len(fit.predict(points)) == 2


@pytest.mark.slow
@pytest.mark.sample(11)
@pytest.mark.parametrize("split", ["full", "disjoint", "crossfit"])
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "auto", "private"])
def test_hardly_any_rows(learner: str, neighbors: Any, split: Any) -> None:
    for n in (1, 2):
        with testing.seeded_noise(n):
            made = ate if learner == "private" else cate
            options = {} if learner == "private" else {"learner": learner}
            data = usable(n)
            options |= {"control": pc.Control(split=split), "eps": 200.0}
            fit = made(data=data, neighbors=neighbors, **options)(None)
        assert str(fit)


def test_no_rows_under_add_remove() -> None:
    """There the number of rows is private, so that none of them is no mistake."""
    with testing.seeded_noise(1):
        fit = ate(data=usable(0), neighbors="add_remove")(None)
    assert str(fit)


@pytest.mark.slow
def test_units_may_be_missing_or_one() -> None:
    for pid in (pd.Series([None] * 9, dtype="str"), "same", pd.Series(range(9))):
        with testing.seeded_noise(1):
            fit = ate(data=usable(9).assign(pid=pid), unit="pid", max_rows=3, eps=200.0)(None)
        assert str(fit)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "levels",
    [
        ["<undeclared>", "a"],
        ["<undeclared>", "<<undeclared>>"],
        ["a]", "[T.a]"],
        ["other", "Other"],
        ["", " "],
        ["`q`", "{z}"],
        ["C(G)", "X1"],
        ["nan", "None"],
        ["1", "True"],
        ["<script>alert(1)</script>", "\\alpha & %s"],
    ],
)
def test_levels_may_be_any_text(levels: list[str], tmp_path: Path) -> None:
    """Bought levels are what the rows hold often enough, whatever that is."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"Y": rng.random(400), "T": [0, 1] * 200, "G": np.repeat(levels, 200)})
    with testing.seeded_noise(1):
        fit = pc.privcate("Y ~ T | C(G)", data, bounds={"Y": (0, 1)}, eps=60.0)
    found = fit.estimate.schema["G"].labels
    assert set(found) == set(levels)
    assert len(fit.blp) == len(found) - 1
    assert len({c.name for c in fit.estimate.design.columns}) == len(found)
    fit.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json").predict(data)
    assert again.equals(fit.predict(data))
    assert "<script>alert" not in fit.summary().as_html()


@pytest.mark.slow
def test_few_rows_and_hardly_any_noise() -> None:
    for seed, n, split, eps, formula in (
        (954756668, 10, "full", 5000.0, "Y ~ T | C(G)*X1"),
        (174623135, 30, "crossfit", 300.0, FORMULA),
        (147626592, 59, "crossfit", 5000.0, "Y ~ T | C(G)*X1"),
    ):
        options = {"learner": "s", "control": pc.Control(split=split), "eps": eps}
        with testing.seeded_noise(seed):
            fit = cate(formula, usable(n), **options)(None)
        assert str(fit)


# -- test noise ------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "private", "difference"])
def test_without_noise_and_without_a_complete_row(learner: str, neighbors: Any) -> None:
    """The textbook has no estimate; with noise there is one, which tells of nothing."""
    data, options = study(Y=np.nan), {"bounds": BOUNDS, "neighbors": neighbors, "eps": 1.0}

    def fit(data: Any) -> Any:
        if learner == "difference":
            return pc.private("Y ~ T", data, **options)
        if learner == "private":
            return pc.private(FORMULA, data, **options)
        return pc.privcate(FORMULA, data, learner=learner, **options)

    tables = [data] if neighbors == "substitute" else [data, data.head(0)]
    for rows in tables:
        with testing.zero_noise(), pytest.raises(DataError, match="No row of the data is complete"):
            fit(rows)
        with testing.seeded_noise(1):
            assert fit(rows).bse.notna().all()


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([False, True] * 50, dtype=object), pd.Series([*map(Decimal, [0, 1])] * 50),
        pd.Series([0, 1] * 50, dtype="category"), pd.Series([False, True] * 50, dtype="category"),
        pd.Series([0.0, 1.0] * 50, dtype="category"),
    ],
    ids=["bools", "decimals", "integers", "truth", "floats"],
)  # fmt: skip
def test_objects_and_categories_of_0_and_1_are_not_called_text(column: pd.Series[Any]) -> None:
    frame = pd.DataFrame({"T": column, "Y": [0.2, 0.8] * 50})
    with pytest.raises(SchemaError, match=r"objects or categories.*, or \[0, 1\] for"):
        pc.private("Y ~ T", frame, eps=1, bounds={"Y": (0, 1)})
    with testing.zero_noise():
        fit = pc.private("Y ~ T", frame, eps=1, bounds={"Y": (0, 1), "T": [0, 1]})
    assert fit.params["ATE"] == pytest.approx(0.6)
