"""Wrong calls: each is refused in its own words before anything is spent, and quotes no row.

And what must never be refused: whatever the rows hold. A value outside its bounds, a level nobody
declared, no treated row, one row only: each gives a result, because a refusal would tell of it.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import sqlite3
import textwrap
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pytest
from text_type import TEXT
from wrong_calls import (
    BOUNDS,
    CANARY,
    FORMULA,
    RARE,
    Case,
    N,
    _study,
    ate,
    bounds,
    cate,
    families,
    study,
    tried,
)

import privcausal as pc
from privcausal import testing
from privcausal.accounting import store
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    DataError,
    FormulaError,
    LedgerError,
    PrivcausalWarning,
    SchemaError,
)

BUDGET: dict[str, Case] = {
    **{
        f"eps {eps!r}": (cate(eps=eps), BudgetError, "eps must be a finite number above 0")
        for eps in (0, 0.0, -1, -1e-300, np.nan, np.inf, -np.inf, "1", None, True, [1.0], 1 + 0j)
    },
    **{
        f"delta {delta!r}": (ate(delta=delta), BudgetError, r"delta must be a number in \(0, 1\)")
        for delta in (0, 1, 1.5, -1e-5, np.nan, np.inf, "1e-5", None, False)
    },
    "eps too small to count": (ate(eps=1e-9), BudgetError, "epsilon must be a number from"),
    "shares above one": (
        cate(control=pc.Control(shares={"nuisance": 0.7, "effect": 0.6})),
        BudgetError,
        "shares must sum to 1",
    ),
    "shares below one": (
        cate(
            control=pc.Control(
                shares={"bounds": 0.1, "nuisance": 0.1, "effect": 0.1, "average": 0.1}
            )
        ),
        BudgetError,
        "shares must sum to 1",
    ),
    "a share of text": (
        cate(control=pc.Control(shares={"effect": "half"})),
        BudgetError,
        "number from 0 to 1",
    ),
    "a negative share": (
        cate(control=pc.Control(shares={"effect": -0.1})),
        BudgetError,
        "number from 0 to 1",
    ),
    "a share of nan": (
        cate(control=pc.Control(shares={"effect": np.nan})),
        BudgetError,
        "number from 0 to 1",
    ),
    "an unknown share": (
        cate(control=pc.Control(shares={"tea": 0.1})),
        BudgetError,
        "shares= cannot contain 'tea'. The shares of this fit are 'nuisance', 'effect', "
        "'average'.$",
    ),
    "a share that private has not": (
        ate(control=pc.Control(shares={"averages": 0.1})),
        BudgetError,
        "shares= cannot contain 'averages'. The shares of this fit are 'nuisance', 'effect'.$",
    ),
    "no share for all there is": (
        ate("Y ~ T", control=pc.Control(shares={"effect": 0})),
        BudgetError,
        "shares must leave a budget for this fit, which uses only 'effect'.$",
    ),
    "shares as a list": (
        cate(control=pc.Control(shares=[0.5, 0.5])),
        BudgetError,
        "shares= must be a dict",
    ),
    "max_rows without unit": (cate(max_rows=2), BudgetError, "max_rows= requires unit="),
    **{
        f"max_rows {k!r}": (cate(unit="pid", max_rows=k), BudgetError, "whole number from 1")
        for k in (0, -1, 1.5, "2", True, 10**6)
    },
}

SCHEMA: dict[str, Case] = {
    "reversed": (ate(bounds=bounds(X1=(10, 0))), SchemaError, r"must come first\. Write \(0, 10\)"),
    "equal": (ate(bounds=bounds(X1=(1, 1))), SchemaError, "Both bounds"),
    "infinite": (ate(bounds=bounds(X1=(0, np.inf))), SchemaError, "must be finite"),
    "nan": (ate(bounds=bounds(X1=(np.nan, 1))), SchemaError, "must be finite"),
    "too wide": (ate(bounds=bounds(X1=(-1e30, 1e30))), SchemaError, "wider"),
    "too narrow": (ate(bounds=bounds(X1=(0, 1e-200))), SchemaError, "too narrow"),
    "three ends": (ate(bounds=bounds(X1=(0, 1, 2))), SchemaError, "pair"),
    "dates": (
        ate(bounds=bounds(X1=(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)))),
        SchemaError,
        "convert dates to numbers",
    ),
    "numbers for texts": (
        ate(data=study(G=pd.Series(["a", "b"] * (N // 2), dtype=TEXT)), bounds=bounds(G=[0, 1])),
        SchemaError,
        "contains text, but its declared labels are numbers",
    ),
    "texts for numbers": (
        ate(bounds=bounds(T=["no", "yes"])),
        SchemaError,
        "contains numbers, but its declared",
    ),
    "units without a number of rows": (
        ate(unit="pid"),
        BudgetError,
        r"Write unit='pid', max_rows=5",
    ),
    "text ends": (ate(bounds=bounds(X1=("0", "1"))), SchemaError, "The bounds are text"),
    "one number": (ate(bounds=bounds(X1=5)), SchemaError, "A domain must be"),
    "an ambiguous list": (ate(bounds=bounds(X1=[0, 10])), SchemaError, "interval or two labels"),
    "a list of bounds": (ate(bounds=[(0, 1)]), SchemaError, "must be a dict"),
    "no label": (ate(bounds=bounds(G=[])), SchemaError, "No level"),
    "labels alike": (ate(bounds=bounds(G=["1", 1])), SchemaError, "have the same text"),
    "a missing label": (ate(bounds=bounds(G=["a", None])), SchemaError, "missing"),
    "one label of treatment": (
        ate("Y ~ arm | X1", bounds=bounds(arm=["no"])),
        SchemaError,
        "must be binary",
    ),
    "three labels of treatment": (
        cate("Y ~ arm | X1", bounds=bounds(arm=["no", "yes", "maybe"])),
        SchemaError,
        "must be binary",
    ),
    "a range of treatment": (ate(bounds=bounds(T=(0, 2))), SchemaError, "must be binary"),
    "text treatment": (ate("Y ~ arm | X1"), SchemaError, "Declare its two labels"),
    "text outcome": (ate("arm ~ T | X1"), SchemaError, "Declare its two labels"),
    "three labels of outcome": (
        ate("G ~ T | X1", bounds=bounds(G=["a", "b", "c"])),
        SchemaError,
        "two labels",
    ),
    "text with numeric bounds": (
        ate(data=study().astype({"G": TEXT}), bounds=bounds(G=(0, 1))),
        SchemaError,
        "contains text",
    ),
    "numbers of a text outcome": (
        ate("arm ~ T | X1", study().astype({"arm": TEXT}), bounds=bounds(arm=(0, 1))),
        SchemaError,
        "contains text",
    ),
    **{
        f"propensity {p!r}": (ate(propensity=p), SchemaError, "propensity must be a number in")
        for p in (0, 1, 1.2, -0.1, np.nan, np.inf, True, [0.5])
    },
    "propensity column undeclared": (ate(propensity="P"), SchemaError, "requires declared bounds"),
    "propensity column too wide": (
        ate(propensity="P", bounds=bounds(P=(0, 0.9))),
        SchemaError,
        r"must be inside \(0, 1\)",
    ),
    "propensity column above one": (
        ate(propensity="P", bounds=bounds(P=(0.1, 1))),
        SchemaError,
        r"must be inside \(0, 1\)",
    ),
    "unit in the formula": (
        ate(unit="G", max_rows=2),
        SchemaError,
        "cannot also be in the formula",
    ),
    "log without bounds": (cate("Y ~ T | log(P)"), SchemaError, "Declare bounds within"),
    "levels of numbers": (
        cate("Y ~ T | C(X1)"),
        SchemaError,
        r"C\(X1\) requires levels, but 'X1' has numeric bounds. Declare its levels",
    ),
    "levels of numbers in a product": (
        ate("Y ~ T | G:C(X1)"),
        SchemaError,
        r"C\(X1\) requires levels",
    ),
    "a split of a difference in means": (
        ate("Y ~ T", control=pc.Control(split="crossfit")),
        CapabilityError,
        "no nuisance models",
    ),
    "a reference nobody declared": (
        cate("Y ~ T | C(G, ref='z')"),
        SchemaError,
        "not a declared level",
    ),
}

GROUPS: dict[str, Case] = {
    "numeric group": (cate(groups=["X1"]), SchemaError, "X1 >= 65"),
    "undeclared level": (cate(groups=["G == z"]), SchemaError, "undeclared level"),
    "order of levels": (cate(groups=["G >= a"]), SchemaError, "compare with a number"),
    "number for a level": (cate(groups=["G >= 5"]), SchemaError, "use == or !="),
    "undeclared column": (cate(groups=["P >= 0.5"]), SchemaError, "declared domain"),
    "no such column": (cate(groups=["nope"]), DataError, "not in the data"),
    "half a comparison": (cate(groups=["X1 >="]), SchemaError, "must have the form"),
    "text for a number": (cate(groups=["X1 >= old"]), SchemaError, "compare with a number"),
    "infinite": (cate(groups=["X1 >= inf"]), SchemaError, "finite"),
    "a number": (cate(groups=[5]), SchemaError, "column names or comparisons"),
    "empty": (cate(groups=[""]), SchemaError, "column names or comparisons"),
    "no list": (cate(groups=5), CapabilityError, "a list of column names"),
}

UNKNOWN: dict[str, Case] = {
    "learner": (cate(learner="z"), CapabilityError, "Learner 'z' is unknown. Choose one of 'r'"),
    "learner of another type": (cate(learner=5), CapabilityError, "Learner of type int"),
    "class that takes arguments": (
        cate(learner=pc.learners.TwoStage),
        CapabilityError,
        r"Call it: learner=pc.learners.TwoStage\(...\).$",
    ),
    "base of one learner": (
        cate(learner="dpcate", base=pc.bases.Kernel),
        CapabilityError,
        r"Call it: base=pc.bases.Kernel\(\).$",
    ),
    "class of a base in the other's place": (
        cate(learner=pc.bases.DPEBM),
        CapabilityError,
        r"Call it: base=pc.bases.DPEBM\(\).$",
    ),
    "base for a learner": (
        cate(learner=pc.bases.Gam()),
        CapabilityError,
        r"is a base, not a learner. Write base=pc.bases.Gam\(",
    ),
    "learner for a base": (
        cate(base=pc.learners.S()),
        CapabilityError,
        r"is a learner, not a base. Write learner=pc.learners.S\(",
    ),
    "a class of neither": (cate(learner=dict), CapabilityError, "Learner of type type"),
    "a class that cannot be called": (
        cate(base=pc.bases.Base),
        CapabilityError,
        "is unknown. Choose",
    ),
    "base": (ate(base="forest"), CapabilityError, "Base 'forest' is unknown. Choose one of 'gam'"),
    "base of another type": (ate(base=None), CapabilityError, "Base of type NoneType"),
    "estimand": (
        ate(estimand="MEAN"),
        CapabilityError,
        "estimand='MEAN' is unknown. Choose one of 'ATE', 'ATT', 'ATO'",
    ),
    "estimand of another type": (ate(estimand=5), CapabilityError, "a name or a list of names"),
    "estimand None": (ate(estimand=None), CapabilityError, "a name or a list of names"),
    "estimands that are none": (ate(estimand=[]), CapabilityError, "estimand"),
    "estimand by covariates": (ate(estimand="CATE"), CapabilityError, "is not an average effect"),
    "an estimand the paper does not know": (
        lambda ledger: pc.paper.private("Y ~ T | X1", {}, estimand="ATO", ledger=ledger),
        CapabilityError,
        r"private\(\) has no argument estimand=",
    ),
    "neighbors": (ate(neighbors="swap"), CapabilityError, "'substitute', 'add_remove'"),
    "an option that moved": (
        ate(split="disjoint"),
        CapabilityError,
        r"Write control=pc.Control\(split=...\)\.$",
    ),
    "a mode that moved": (cate(mode="paper"), CapabilityError, "pc.paper, which has a function"),
    "control of another type": (ate(control={"split": "full"}), CapabilityError, "pc.Control"),
    "column": (ate("Y ~ T | X7"), FormulaError, "Column 'X7' is not in the data"),
    "outcome": (ate("Z ~ T | X1"), FormulaError, "Column 'Z' is not in the data"),
    "treatment": (ate("Y ~ Z | X1"), FormulaError, "Column 'Z' is not in the data"),
    "unit": (ate(unit="person", max_rows=2), DataError, "'person' is not in the data"),
    "propensity column": (
        ate(propensity="Q", bounds=bounds(Q=(0.1, 0.9))),
        DataError,
        "'Q' is not in the data",
    ),
}

local_secret = "a local variable"

FORMULAS: dict[str, Case] = {
    "no treatment": (ate("Y"), FormulaError, "start with an outcome and ~"),
    "nothing after ~": (ate("Y ~ "), FormulaError, "treatment is missing"),
    "nothing before ~": (ate(" ~ T | X1"), FormulaError, "outcome is missing"),
    "empty": (ate(""), FormulaError, "start with an outcome"),
    "no text": (ate(5), FormulaError, "A formula must be text"),  # type: ignore[arg-type]
    "two outcomes": (ate("Y + X1 ~ T"), FormulaError, "one column name"),
    "two treatments": (ate("Y ~ T + X1"), FormulaError, "one column name"),
    "outcome on the right": (ate("Y ~ T | X1 + Y"), FormulaError, "also on the right"),
    "outcome in a function": (ate("Y ~ T | log(Y + 1)"), FormulaError, "also on the right"),
    "outcome among controls": (ate("Y ~ T | X1 | Y"), FormulaError, "also on the right"),
    "treatment on the right": (ate("Y ~ T | X1:T"), FormulaError, "among the covariates"),
    "itself": (ate("Y ~ Y | X1"), FormulaError, "both outcome and treatment"),
    "a call": (ate("Y ~ T | __import__('os').getcwd()"), FormulaError, "."),
    "an attribute": (ate("Y ~ T | X1.__class__"), FormulaError, "."),
    "a subscript": (ate("Y ~ T | I(X1[0])"), FormulaError, "Subscripts"),
    "braces": (ate("Y ~ T | {local_secret}"), FormulaError, "never run"),
    "a local variable": (ate("Y ~ T | local_secret"), FormulaError, "not in the data"),
    "a local variable in I": (ate("Y ~ T | I(X1 * local_secret)"), FormulaError, "not in the data"),
    "a lambda": (ate("Y ~ T | (lambda: 1)()"), FormulaError, "."),
    "a lag": (ate("Y ~ T | lag(X1, 1)"), FormulaError, "values of its own row only"),
    "numpy's pole": (ate("Y ~ T | np.log(X1)"), FormulaError, "not finite everywhere"),
    "numpy's sort": (ate("Y ~ T | np.sort(X1)"), FormulaError, "could use other rows"),
    "no intercept": (ate("Y ~ T | X1 - 1"), FormulaError, "intercept cannot be removed"),
    "four parts": (ate("Y ~ T | X1 | G | P"), FormulaError, "one ~ and at most two"),
    "division by zero": (ate("Y ~ T | I(X1 / 0)"), FormulaError, "divides by zero"),
    "a bracket": (ate("Y ~ T | log(X1"), FormulaError, "is not closed"),
    "10,000 levels": (
        ate(bounds=bounds(G=[f"level {k}" for k in range(10_000)])),
        CapabilityError,
        "more than 1,000 columns",
    ),
    "a product of many levels": (
        cate(
            "Y ~ T | C(G)*C(arm)",
            bounds=bounds(G=[*map(str, range(40))], arm=[*map(str, range(40))]),
        ),
        CapabilityError,
        "more than 1,000 columns",
    ),
    "too many terms": (ate("Y ~ T | (X1 + P + G)**9"), FormulaError, "."),
    "a smooth of levels": (ate("Y ~ T | s(G)", bounds={"Y": (0, 1)}), SchemaError, "text"),
}

DATA: dict[str, Case] = {
    "empty": (ate(data=_study().iloc[:0]), DataError, "no rows"),
    "a list": (ate(data=[[1.0, 2.0]]), DataError, "cannot be read"),
    "an array": (ate(data=np.ones((3, 3))), DataError, "cannot be read"),
    "None": (ate(data=5), DataError, "cannot be read"),
    "a path": (ate(data="data.csv"), DataError, "does not exist"),
    "ragged": (ate(data={"Y": np.ones(2), "T": np.ones(1)}), DataError, "of equal length"),
    "two dimensions": (
        ate(data={"Y": np.ones((2, 2)), "T": np.ones(2)}),
        DataError,
        "one-dimensional",
    ),
    "a number as column": (
        ate(data={"Y": 5, "T": 1}),
        DataError,
        "has no data type. Pass np.array",
    ),
    # the values of a list would decide its type, and one row could change that
    "lists": (ate(data={"Y": [0.5, 1], "T": [0, 1]}), DataError, "has no data type. Pass np.array"),
    "a column twice": (
        ate(data=pd.concat([_study(), _study()[["X1"]]], axis=1)),
        DataError,
        "'X1' appears twice",
    ),
    "a number as name": (ate(data=_study().rename(columns={"X1": 1})), DataError, "must be text"),
    "a number as key": (ate(data={1: [1.0], "T": [1]}), DataError, "must be text"),
    "two levels of names": (
        ate(data=pd.concat({"a": _study()}, axis=1)),
        DataError,
        "must be text",
    ),
    "dates": (ate("Y ~ T | day"), DataError, "cannot be read. Convert"),
    "dates as unit": (ate(unit="day", max_rows=2), DataError, "cannot be read. Convert"),
    "complex numbers": (
        ate("Y ~ T | Z", data=_study().assign(Z=1j)),
        DataError,
        "cannot be read. Convert",
    ),
    "a unit that is no name": (ate(unit=5), BudgetError, "name of a column"),
}

CODED = {"T": _study()["T"].to_numpy() + 1}
WIDE = {f"Z{i}": np.arange(N) for i in range(4)}  # beside P, and the text of G


def moved(first: Any, second: Any, **options: Any) -> Callable[[Any], Any]:
    """A call with these arguments by position."""
    return lambda ledger: pc.private(first, second, ledger=ledger, **options)


MISTAKES: dict[str, Case] = {
    **{
        f"bounds of {key}": (
            ate("Y ~ T | X1", bounds={key: (0, 1), "X1": (0, 10)}),
            SchemaError,
            f"'{key}', which is not in the data, but none for 'Y'",
        )
        for key in ("y", "YY", "outcome", "X")
    },
    "bounds of a label": (
        ate(bounds={"Y": (0, 1), "X1": (0, 10), "Ward": ["a", "b"]}),
        SchemaError,
        "'Ward', which is not in the data, but none for 'G'. Correct the key",
    ),
    "the nearest of two": (
        ate("Y ~ T | X1 + P", bounds={"Y": (0, 1), "x_1": (0, 10)}),
        SchemaError,
        "'x_1', which is not in the data, but none for 'X1'",
    ),
    "bounds of a treatment": (
        ate(bounds=bounds(t=["no", "yes"])),
        SchemaError,
        "'t', which is not in the data, but none for 'T'",
    ),
    "a dot of many": (
        ate("Y ~ T | .", study(**WIDE).drop(columns=["day", "arm", "pid"]), bounds={"Y": (0, 1)}),
        SchemaError,
        "'.' includes 7 columns without a declared domain .'X1', 'G', 'P', 'Z0', 'Z1', ...",
    ),
    "a dot of dates": (ate("Y ~ T | ."), DataError, "'day' has a type .* days since"),
    "data first": (
        moved(study(), FORMULA),
        CapabilityError,
        "the formula first and the data second",
    ),
    "a path first": (
        moved("rows.csv", FORMULA),
        CapabilityError,
        "formula first and the data second",
    ),
    "data first by name": (
        lambda ledger: pc.privcate(data=FORMULA, formula=study(), ledger=ledger),
        CapabilityError,
        r"privcate\('Y ~ T \| X', data\)",
    ),
    "bounds by position": (
        lambda ledger: pc.private(FORMULA, study(), BOUNDS, ledger=ledger),
        CapabilityError,
        "accepts only formula and data by position",
    ),
    "data and bounds": (
        moved(FORMULA, BOUNDS, bounds=study()),
        SchemaError,
        "bounds= must be a dict",
    ),
    "data of a plan": (
        lambda ledger: pc.plan(FORMULA, study()),
        CapabilityError,
        "accepts only formula by position",
    ),
    "levels of a number, bounds of a text": (
        ate(bounds=bounds(X1=[0, 10], G=(0, 1))),
        SchemaError,
        r"Write \(0, 10\) for an interval",
    ),
    **{
        f"a 0/1 group {name}": (
            ate(formula, bounds=declared, groups=["B"], data=study(B=_study()["T"])),
            SchemaError,
            r"bounds=\{'B': \[0, 1\]\}",
        )
        for name, formula, declared in (
            ("undeclared", FORMULA, BOUNDS),
            ("to be bought", "Y ~ T | X1 + B", BOUNDS),
            ("of an interval", "Y ~ T | X1 + B", BOUNDS | {"B": (0, 1)}),
        )
    },
    "treatment 1 or 2": (
        ate(data=study(**CODED), bounds=bounds(T=(1, 2))),
        SchemaError,
        r"the reference first: bounds=\{'T': \['1', '2'\]\}",
    ),
    "treatment [1, 2]": (
        ate(data=study(**CODED), bounds=bounds(T=[1, 2])),
        SchemaError,
        r"\['1', '2'\] for two labels",
    ),
}

CASES: dict[str, Case] = {
    f"{kind}: {name}": case
    for kind, cases in (
        ("budget", BUDGET),
        ("schema", SCHEMA),
        ("groups", GROUPS),
        ("unknown", UNKNOWN),
        ("formula", FORMULAS),
        ("data", DATA),
        ("mistakes", MISTAKES),
        *families(),
    )
    for name, case in cases.items()
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pc.Ledger(tmp_path_factory.mktemp("ledger") / "study.db", "study", eps=5)


def test_the_catalogue_is_long() -> None:
    """Wrong calls of every kind, each once; and its messages say something."""
    assert len(CASES) >= 600
    kinds = {name.partition(":")[0]: 0 for name in CASES}
    for name, (_, _, message) in CASES.items():
        kinds[name.partition(":")[0]] += 1
        assert message
    assert len(kinds) == 21
    assert min(kinds.values()) >= 10


@pytest.mark.parametrize("name", CASES)
def test_wrong_calls_are_refused_before_anything_is_spent(name: str, ledger: Any) -> None:
    found = tried(CASES[name], ledger)
    _, kind, message = CASES[name]
    assert isinstance(found.error, kind)
    assert re.search(message, str(found.error))
    assert found.charged == 0
    assert found.seconds < 10
    assert not found.shows_a_row
    assert "Traceback" not in found.said
    assert found.is_as_stated(CASES[name])
    if not name.startswith("command"):  # where argparse prints the usage above
        assert len(textwrap.wrap(str(found.error), 80)) <= 3


def told_first(formula: str, data: Any, tmp_path: Path, **options: Any) -> list[str]:
    """Warnings of a fit that a ledger refuses: they came before anything was charged."""
    ledger = pc.Ledger(tmp_path / "small.db", "study", eps=0.1)
    with (
        pytest.warns(PrivcausalWarning) as seen,
        pytest.raises(BudgetError, match="Not enough budget"),
    ):
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
    options = {"bounds": {"Y": (0, 1)}}
    said = [
        told_first("Y ~ T | .", pd.concat([frame] * 20).reset_index(drop=True), tmp_path, **options)
        for frame in (
            one.drop(columns=["day", "arm", "pid"])
            for one in (study(), study(Y=1.0, T=0, X1=3.0, P=0.0, G="z"))
        )
    ]
    assert said[0] == said[1]
    assert len(said[0]) == 2
    assert all(len(textwrap.wrap(text, 80)) <= 3 for text in said[0])


def test_a_formula_that_is_infinite_on_its_bounds_is_refused_first(ledger: Any) -> None:
    before = len(ledger.history)
    with pytest.raises(FormulaError, match="not finite everywhere"):
        cate("Y ~ T | log(X1)")(ledger)
    assert len(ledger.history) == before


@pytest.mark.parametrize("name", ["effect", "nuisance"])
def test_a_stage_without_a_share_is_refused_first(name: str, ledger: Any) -> None:
    """A fit needs its nuisances and its effect."""
    before = len(ledger.history)
    for call in (
        cate(control=pc.Control(shares={name: 0})),
        ate(control=pc.Control(shares={name: 0})),
    ):
        with pytest.raises(BudgetError):
            call(ledger)
    assert len(ledger.history) == before


def test_a_right_call_is_charged(ledger: Any) -> None:
    """So that the ledger above was one that would have been."""
    before = len(ledger.history)
    cate(eps=0.5)(ledger)
    assert len(ledger.history) > before


# -- ledgers ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


def test_a_ledger_at_another_delta(path: Path) -> None:
    ledger = pc.Ledger(path, "study", eps=5, delta=1e-6)
    with pytest.raises(LedgerError, match="the ledger uses delta=1e-06"):
        ate()(ledger)
    assert ledger.history.empty


@pytest.mark.slow
def test_an_exhausted_ledger(path: Path) -> None:
    ledger = pc.Ledger(path, "study", eps=1)
    ate(eps=0.9)(ledger)
    before = ledger.history
    with pytest.raises(BudgetError, match=r"(?s)in ledger 'study'.*No budget was"):
        ate(eps=0.9)(ledger)
    assert ledger.history.equals(before)


def test_a_locked_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.2)
    ledger = pc.Ledger(path, "study", eps=5)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked"):
            ate()(ledger)
    assert ledger.history.empty


def test_a_read_only_ledger(path: Path) -> None:
    ledger = pc.Ledger(path, "study", eps=5)
    path.chmod(0o444)
    with pytest.raises(LedgerError, match="read-only"):
        ate()(ledger)
    path.chmod(0o644)
    assert ledger.history.empty


@pytest.mark.parametrize("damage", ["zeros", "text", "cut", "gone", "head gone"])
def test_a_damaged_ledger(path: Path, damage: str) -> None:
    ledger = pc.Ledger(path, "study", eps=5)
    ate(eps=0.5)(ledger)
    head = path.with_name(path.name + ".head")
    content = path.read_bytes()
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    if damage == "zeros":
        path.write_bytes(bytes(len(content)))
    elif damage == "text":
        path.write_text("this is no ledger " * 500)
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "gone":
        path.unlink()
    else:
        head.unlink()
    with pytest.raises(LedgerError):
        ate(eps=0.5)(ledger)


def test_something_that_is_no_ledger() -> None:
    for wrong in ("study.db", 5, {"eps": 1}):
        with pytest.raises(LedgerError, match="must be a Ledger"):
            ate()(wrong)


# -- what must never be refused --------------------------------------------------------------

ONE: dict[str, Any] = {"Y": 0.5, "T": 1, "X1": 5.0, "G": "a"}


def column(name: str, *values: Any) -> Callable[[pd.DataFrame], Any]:
    """The study with the first values of a column replaced."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        made = list(frame[name])
        made[: len(values)] = values[: len(made)]
        return frame.assign(**{name: made})

    return change


def whole(**columns: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame.assign(**columns)


def polars(frame: pd.DataFrame) -> Any:
    import polars as pl

    return pl.from_pandas(frame)


def pyarrow(frame: pd.DataFrame) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(frame)


def decimals(frame: pd.DataFrame) -> Any:
    made = [None if np.isnan(v) else Decimal(repr(float(v))) for v in frame["X1"]]
    return frame.assign(X1=pd.Series(made, dtype=object, index=frame.index))


def arrow_decimals(frame: pd.DataFrame) -> Any:
    import pyarrow as pa

    values = [Decimal(f"{v:.3f}") for v in frame["X1"].clip(0, 10)]
    return pyarrow(frame).set_column(2, "X1", pa.array(values, pa.decimal128(10, 3)))


def polars_decimals(frame: pd.DataFrame) -> Any:
    import polars as pl

    return polars(frame).with_columns(pl.col("X1").clip(0, 10).cast(pl.Decimal(10, 3)))


def mixed(frame: pd.DataFrame) -> Any:
    values = [True, 1, "1", 2.5, None, b"a", Decimal("1.5"), float("nan"), ("a",), ["a"], object()]
    made = (values * len(frame))[: len(frame)]
    return frame.assign(
        G=pd.Series(made, dtype=object, index=frame.index),
        X1=pd.Series(made, dtype=object, index=frame.index),
        T=pd.Series([True, 0, 1.0, False] * len(frame), dtype=object).iloc[: len(frame)].values,
    )


def mixed_numbers(frame: pd.DataFrame) -> Any:
    return frame.assign(X1=pd.Series([1, 2.5, "3", None] * len(frame), dtype=object)[: len(frame)])


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
    "mixed numbers": mixed_numbers,
    "decimals": decimals,
    "decimals in polars": polars_decimals,
    "decimals in pyarrow": arrow_decimals,
    "polars": polars,
    "pyarrow": pyarrow,
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
        with testing.seeded_noise(seed):
            fit = cate(formula, usable(n), learner="s", control=pc.Control(split=split), eps=eps)(
                None
            )
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
    ("name", "value"),
    [
        ("cov_type", "HC2"),
        ("cov_type", "HC3"),
        ("cov_type", "hetero"),
        ("split", "half"),
        ("tails", "none"),
        *(("propensity_clip", c) for c in (0, 0.5, 0.7, -0.1, np.nan, "0.1", None)),
    ],
)
def test_a_detail_is_refused_where_it_is_written(name: str, value: Any) -> None:
    with pytest.raises(pc.PrivcausalError, match=name):
        pc.Control(**{name: value})


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
