"""What a new user gets wrong, and the answer: read it as a table of calls and messages.

Each is answered in at most three lines that say what to write, and none is charged.
"""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc

MISTAKES: list[tuple[str, str]] = [
    (
        'private(df, "Y ~ T | age")',
        "private takes the formula first, then the data: write private('Y ~ T | X', data)",
    ),
    (
        'private("Y ~ T | age")',
        "private needs data: write private(formula, data)",
    ),
    (
        'private("Y", df, bounds=bounds)',
        "the outcome and ~ are missing; write Y ~ T | X1 + X2",
    ),
    (
        'private("Y ~ T + age", df, bounds=bounds)',
        "the treatment must be one column name; write covariates after a bar, Y ~ T | X1 + X2",
    ),
    (
        'private("Y ~ T | age + wards", df, bounds=bounds)',
        "column 'wards' is not in the data, which have 'ward', ...",
    ),
    (
        'private("y ~ T | age", df, bounds=bounds)',
        "column 'y' is not in the data, which have 'Y', 'T', 'age', 'ward', 'arm', "
        "'id', 'date', 'post'",
    ),
    (
        'private("Y ~ T | age | ward | T", df, bounds=bounds)',
        "there is more than one ~ or two |; write Y ~ T | X1 + X2 | W",
    ),
    (
        'private("Y ~ arm | age", df, bounds=bounds)',
        "treatment 'arm' holds text; declare its two labels, the reference first: "
        "bounds={'arm': ['control', 'treated']}",
    ),
    (
        'private("Y ~ age | T", df, bounds=bounds)',
        "treatment 'age' must be binary, and has the bounds of a number. If 'Y' is the "
        "treatment, write age ~ Y.",
    ),
    (
        'private("Y ~ T | date", df, bounds=bounds)',
        "column 'date' has a type that cannot be read; convert it first, dates to a "
        "number such as days since the first of January",
    ),
    (
        'private("Y ~ T | C(ward", df, bounds=bounds)',
        "the bracket of '(ward' is never closed; write )",
    ),
    (
        'private("Y ~ T | age", "study.csv", bounds=bounds)',
        "there is no file 'study.csv'",
    ),
    (
        'private("Y ~ T | age", df.to_numpy(), bounds=bounds)',
        "data of type ndarray cannot be read; pass a pandas, polars or pyarrow data "
        "frame, or a dict of equally long arrays",
    ),
    (
        'private("Y ~ T | age", df, bounds)',
        "private takes formula and data by position, and all else by name: write "
        "bounds=..., eps=...",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": [0, 1], "age": [18, 95]})',
        "bounds['age']: the list [18, 95] could be an interval or two labels; write "
        "(18, 95) for the interval, ['18', '95'] for the labels",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "age": (95, 18)})',
        "bounds['age']: (95, 18) is reversed; write (18, 95)",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "Age": (18, 95)})',
        "bounds has 'Age', which is no column of the data, and nothing for 'age'; is "
        "that the same? Without its bounds they would be bought",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "age": 95})',
        "bounds['age']: a value of type int is no domain; write (lo, hi) for numbers or"
        " ['a', 'b'] for labels",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": 1, "age": (18, 95)})',
        "bounds['Y']: a value of type int is no domain; write (lo, hi) for numbers or "
        "['a', 'b'] for labels",
    ),
    (
        'private("Y ~ T | ward", df, bounds={"Y": (0, 1), "ward": (1, 3)})',
        "column 'ward' holds text but has numeric bounds; convert the column to "
        "numbers, or declare its levels: bounds={'ward': ['a', 'b']}",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, eps=0)',
        "eps must be a finite number above 0, got 0; write eps=1.0",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, level=0.9)',
        "private has no level=; the fit has all levels: write fit.conf_int(alpha=0.05)",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, epsilon=1)',
        "private has no epsilon=; write eps=1.0",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, delta=1)',
        "delta must be a number in (0, 1), got 1; write delta=1e-5",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, estimand="CATE")',
        "estimand='CATE' is no average effect: write pc.privcate(formula, data), or one"
        " of 'ATE', 'ATT', 'ATO', 'PLR', 'LATE'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, estimand="ate")',
        "estimand='ate' is unknown; choose one of 'ATE', 'ATT', 'ATO', 'PLR', 'LATE', 'RR', 'OR'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, learner="dr")',
        "private has no learner=; write pc.privcate(..., learner=...); base= says what "
        "nuisances are learned by",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, base="forest")',
        "base 'forest' is unknown; choose one of 'gam', 'linear'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, base="dpebm")',
        "base 'dpebm' learns effects that depend on covariates: take it in "
        "privcate(...), whose result has the average effect too. Here write base='gam' "
        "or base='linear'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, weights="age")',
        "private has no weights=; write pc.regress(..., weights='w'): only a regression"
        " takes weights of rows",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, cluster="id")',
        "private has no cluster=; write unit='person', max_rows=5: privacy and "
        "intervals are then of units",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, seed=1)',
        "private has no seed=; leave it out: noise of a known seed protects nobody. For"
        " tests: pc.testing.seeded_noise",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, alpha=0.1)',
        "private has no alpha=; the fit has all levels: write fit.conf_int(alpha=0.05)",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, groups="age")',
        "group 'age' is numeric: write a comparison such as 'age >= 65', or, if it is "
        "0/1, declare that: bounds={'age': [0, 1]}",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, groups=["ward == z"])',
        "group 'ward == z': unknown level; declared are a, b, c",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, unit="person")',
        "column 'person' is not in the data; they have 'Y', 'T', 'age', 'ward', 'arm', "
        "'id', 'date', 'post'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, max_rows=3)',
        "max_rows needs unit=: name the column that tells whose row it is",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, propensity=50)',
        "propensity must be a number in (0, 1) or the name of a column, and at least "
        "1e-06 from the ends",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, control={"split": "crossfit"})',
        "control takes a pc.Control, such as pc.Control(split='crossfit')",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, split="crossfit")',
        "private has no split=; write control=pc.Control(split=...)",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, neighbors="replace")',
        "neighbors='replace' is unknown; choose one of 'substitute', 'add_remove'",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, neighbours="substitute")',
        "private has no neighbours=; did you mean neighbors=?",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, learner="causal_forest")',
        "learner 'causal_forest' is unknown; choose one of 'r', 'dr', 's', 't', 'x', "
        "'adum', 'tm', 'dpcate', 'auto'",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, learner=pc.learners.S)',
        "learner=pc.learners.S is a class: call it, learner=pc.learners.S()",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, estimand="ATT")',
        "privcate has no estimand=; write pc.private(..., estimand='ATT'); privcate has"
        " the CATE, did the ATT",
    ),
    (
        'privcate("Y ~ T | age", df, learner="adum", bounds={"Y": (0, 1)})',
        "learner 'adum' in pure epsilon buys no bounds: declare those of 'age', such as"
        " bounds={'age': (18, 95), 'region': ['a', 'b']}, or fit with "
        "pc.learners.ADUM(noise='gaussian')",
    ),
    (
        'privcate("Y ~ T | age", df, learner="tm", bounds={"Y": (0, 1)})',
        "learner 'tm', in pure epsilon, buys no bounds: declare those of 'age', such as"
        " bounds={'age': (18, 95), 'region': ['a', 'b']}; or write learner='s', "
        "base='linear', which does",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, num_trees=500)',
        "privcate has no num_trees=; write base='gam', which has no trees",
    ),
    (
        'regress("Y ~ age | ward", df, bounds=bounds)',
        "a regression has no bar: write Y ~ X1 + X2",
    ),
    (
        'regress("Y ~ age", df, bounds=bounds, weights="w")',
        "weights= is the name of a column with declared bounds that are not negative, "
        "such as bounds={'weight': (0, 5000)}",
    ),
    (
        'regress("Y ~ age", df, bounds=bounds, vcov="hetero")',
        "regress has no vcov=; write control=pc.Control(cov_type='HC0')",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id")',
        "did needs time: write did(formula, data, unit=..., time=...)",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id", time="post")',
        "say which two periods of 'post' are compared, before then after: periods=(2018, 2019)",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id", time="post", periods=(0, 1), estimand="ATT")',
        "did has no estimand=; write pc.private(..., estimand='ATT'); privcate has the "
        "CATE, did the ATT",
    ),
    (
        'pc.plan("Y ~ T | age", df, n=1000, bounds=bounds)',
        "plan takes formula by position, and all else by name: it takes no data",
    ),
    (
        'pc.plan("Y ~ T | age", n=1000, eps=1, width=0.1, bounds=bounds)',
        "width= finds eps for a given n, or n for a given eps. Give only one of n= and eps=.",
    ),
    (
        'pc.Ledger("study.db", eps=1)',
        "Ledger needs dataset: write Ledger(path, dataset, eps)",
    ),
    (
        'pc.private("Y ~ T | age", df, bounds=bounds, ledger="study.db")',
        "ledger= takes a Ledger, not a value of type str; write "
        "ledger=pc.Ledger('study.db', 'study', eps=2)",
    ),
    (
        "fit.conf_int(level=0.9)",
        "conf_int has no level=; write alpha=0.05 for 95% intervals",
    ),
    (
        "fit.conf_int(95)",
        "alpha must be a number in (0, 1), for example 0.05 for 95% intervals.",
    ),
    (
        'fit.report("report.docx")',
        "a report is HTML, and 'report.docx' does not end in .html; write "
        "fit.summary().to_word('report.docx')",
    ),
    (
        'fit.plot("effect")',
        "plot(kind='effect') requires a fit of pc.privcate. Choices: 'coef', 'gate', 'budget'.",
    ),
    (
        'fit.contrast("ward[a] - ward[b]")',
        "'ward[a]' was not released. It requires another fit, at an additional cost: "
        "pc.private(..., eps=1, groups=['ward']).",
    ),
    (
        "fit.predict(df)",
        "'AteResult' object has no attribute 'predict': for effects at new points, use pc.privcate",
    ),
    (
        "cate.predict()",
        "predict() requires new data, for example fit.predict({'age': [40, 60]}).",
    ),
    (
        'cate.predict({"ward": ["a"]})',
        "column 'age' is needed for prediction and not in the new data",
    ),
    (
        "cate.predict(np.array([[40.0]]))",
        "data of type ndarray cannot be read; pass a pandas, polars or pyarrow data "
        "frame, or a dict of equally long arrays",
    ),
    (
        "fit.coef",
        "'AteResult' object has no attribute 'coef': see params",
    ),
    (
        "pc.compare([fit], level=0.9)",
        "compare has no level=; write alpha=0.05 for 95% intervals",
    ),
    (
        'pc.load("fit.json")',
        "File 'fit.json' does not exist.",
    ),
]


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    rng, n = np.random.default_rng(0), 200
    df = pd.DataFrame(
        {
            "Y": rng.random(n),
            "T": rng.integers(0, 2, n),
            "age": rng.uniform(18, 95, n),
            "ward": rng.choice(["a", "b", "c"], n),
            "arm": rng.choice(["no", "yes"], n),
            "id": np.arange(n) // 2,
            "date": pd.Timestamp("2020-01-01"),
            "post": np.arange(n) % 2,
        }
    )
    bounds = {"Y": (0, 1), "age": (18, 95), "ward": ["a", "b", "c"]}
    fit = pc.private("Y ~ T | age", df, bounds=bounds)
    cate = pc.privcate("Y ~ T | age", df, bounds=bounds)
    return {"pc": pc, "np": np, "df": df, "bounds": bounds, "fit": fit, "cate": cate}


@pytest.mark.parametrize(("call", "answer"), MISTAKES)
def test_a_mistake_is_answered_by_what_to_write(
    call: str, answer: str, study: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = pc.Ledger("watched.db", "study", eps=100)
    names = ("private", "privcate", "regress", "did")
    charged = {name: partial(getattr(pc, name), ledger=ledger) for name in names}
    with pytest.raises((pc.PrivcausalError, AttributeError)) as refused:
        eval(call, study | charged)
    assert str(refused.value) == answer
    assert len(textwrap.wrap(answer, 80)) <= 3
    assert ledger.fits == 0


def test_there_are_forty_of_them() -> None:
    assert len({call for call, _ in MISTAKES}) >= 40
