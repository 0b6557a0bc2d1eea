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
from text_type import TEXT

import privcausal as pc

MISTAKES: list[tuple[str, str]] = [
    (
        'private(df, "Y ~ T | age")',
        "private() expects the formula first and the data second. Write private('Y ~ T | "
        "X', data).",
    ),
    (
        'private("Y ~ T | age")',
        "private() requires the argument data. Write private(formula, data).",
    ),
    (
        'private("Y", df, bounds=bounds)',
        "The formula must start with an outcome and ~. Write 'Y ~ T | X1 + X2'.",
    ),
    (
        'private("Y ~ T + age", df, bounds=bounds)',
        "The treatment must be one column name. Write covariates after a bar: 'Y ~ T | X1 + X2'.",
    ),
    (
        'private("Y ~ T | age + wards", df, bounds=bounds)',
        "Column 'wards' is not in the data. Similar columns: 'ward'.",
    ),
    (
        'private("y ~ T | age", df, bounds=bounds)',
        "Column 'y' is not in the data. Columns of the data: 'Y', 'T', 'age', 'ward', "
        "'arm', 'id', 'date', 'post'.",
    ),
    (
        'private("Y ~ T | age | ward | T", df, bounds=bounds)',
        "The formula must have one ~ and at most two |. Write 'Y ~ T | X1 + X2 | W'.",
    ),
    (
        'private("Y ~ arm | age", df, bounds=bounds)',
        "Treatment 'arm' contains text, objects or categories. Declare its two labels, the "
        "reference first: bounds={'arm': ['control', 'treated']}, or [0, 1] for numbers.",
    ),
    (
        'private("Y ~ age | T", df, bounds=bounds)',
        "Treatment 'age' must be binary, but it has numeric bounds. If 'Y' is the "
        "treatment, write age ~ Y. For a slope, use estimand='PLR'.",
    ),
    (
        'private("Y ~ T | date", df, bounds=bounds)',
        "Column 'date' has a type that cannot be read. Convert it to numbers or labels first, "
        "for example a date to days since January 1.",
    ),
    (
        'private("Y ~ T | C(ward", df, bounds=bounds)',
        "The parenthesis in '(ward' is not closed.",
    ),
    (
        'private("Y ~ T | age", "study.csv", bounds=bounds)',
        "File 'study.csv' does not exist.",
    ),
    (
        'private("Y ~ T | age", df.to_numpy(), bounds=bounds)',
        "Data of type ndarray cannot be read. Pass a pandas, polars or pyarrow data frame, "
        "or a dict of arrays of equal length.",
    ),
    (
        'private("Y ~ T | age", df, bounds)',
        "private() accepts only formula and data by position. Pass the other arguments by "
        "name: bounds=..., eps=...",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": [0, 1], "age": [18, 95]})',
        "bounds['age']: The list [18, 95] could be an interval or two labels. Write (18, "
        "95) for an interval, or ['18', '95'] for two labels.",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "age": (95, 18)})',
        "bounds['age']: The lower bound must come first. Write (18, 95), not (95, 18).",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "Age": (18, 95)})',
        "bounds= has an entry for 'Age', which is not in the data, but none for 'age'. "
        "Rename the key if both are the same column. Otherwise, remove it.",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": (0, 1), "age": 95})',
        "bounds['age']: A domain must be (lo, hi) for numbers or ['a', 'b'] for labels, not "
        "a value of type int.",
    ),
    (
        'private("Y ~ T | age", df, bounds={"Y": 1, "age": (18, 95)})',
        "bounds['Y']: A domain must be (lo, hi) for numbers or ['a', 'b'] for labels, not a "
        "value of type int.",
    ),
    (
        'private("Y ~ T | ward", df, bounds={"Y": (0, 1), "ward": (1, 3)})',
        "Column 'ward' contains text but has numeric bounds. Convert the column to "
        "numbers, or declare its levels: bounds={'ward': ['a', 'b']}.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, eps=0)',
        "eps must be a finite number above 0, not 0. Write eps=1.0.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, level=0.9)',
        "private() has no argument level=. Choose the level after the fit: "
        "fit.conf_int(alpha=0.05).",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, epsilon=1)',
        "private() has no argument epsilon=. Write eps=1.0.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, delta=1)',
        "delta must be a number in (0, 1), not 1. Write delta=1e-5.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, estimand="CATE")',
        "estimand='CATE' is not an average effect. Use pc.privcate(formula, data), or "
        "choose one of 'ATE', 'ATT', 'ATO', 'PLR', 'LATE', 'RMST', 'risk'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, estimand="ate")',
        "estimand='ate' is unknown. Write 'ATE'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, estimand=["ATE", "Rr"])',
        "estimand='Rr' is unknown. Write 'RR'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, neighbors="Substitute")',
        "neighbors='Substitute' is unknown. Write 'substitute'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, learner="dr")',
        "private() has no argument learner=. Write pc.privcate(..., learner=...). base= "
        "selects the nuisance models.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, base="forest")',
        "Base 'forest' is unknown. Choose one of 'gam', 'linear'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, base="dpebm")',
        "base='dpebm' estimates effects that vary with covariates. Use it in "
        "privcate(...), whose result includes the average effect. Here, use base='gam' "
        "or base='linear'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, sample_weight="age")',
        "private() has no argument sample_weight=. Write weights='w', the name of a column with "
        "declared bounds.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, cluster="id")',
        "private() has no argument cluster=. For cluster-robust standard errors, write "
        "control=pc.Control(cluster='village', max_cluster_rows=20). To protect all rows of a "
        "person, write unit='person', max_rows=5.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, seed=1)',
        "private() has no argument seed=. Privacy noise cannot be seeded. For tests, use "
        "pc.testing.seeded_noise().",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, n_jobs=4)',
        "private() has no argument n_jobs=. The number of threads is chosen automatically.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, cv=5)',
        "private() has no argument cv=. For cross-fitting over two folds, write "
        "control=pc.Control(split='crossfit').",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, alpha=0.1)',
        "private() has no argument alpha=. Choose the level after the fit: "
        "fit.conf_int(alpha=0.05).",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, groups="age")',
        "Group 'age' is numeric. Write a comparison such as 'age >= 65'. If the column is "
        "0/1, declare bounds={'age': [0, 1]}.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, groups=["ward == z"])',
        "Group 'ward == z' uses an undeclared level. Declared levels: a, b, c.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, unit="person", max_rows=3)',
        "Column 'person' is not in the data. Columns of the data: 'Y', 'T', 'age', 'ward', "
        "'arm', 'id', 'date', 'post'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, max_rows=3)',
        "max_rows= requires unit=. Name the column that identifies the unit: unit='id'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, propensity=50)',
        "propensity must be a number in (0, 1) or the name of a column. A number must be at "
        "least 1e-06 from 0 and 1.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, control={"split": "crossfit"})',
        "control= must be a pc.Control, for example pc.Control(split='crossfit').",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, split="crossfit")',
        "private() has no argument split=. Write control=pc.Control(split=...).",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, neighbors="replace")',
        "neighbors='replace' is unknown. Choose one of 'substitute', 'add_remove'.",
    ),
    (
        'private("Y ~ T | age", df, bounds=bounds, neighbours="substitute")',
        "private() has no argument neighbours=. Write neighbors= instead.",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, learner="causal_forest")',
        "Learner 'causal_forest' is unknown. Choose one of 'r', 'dr', 's', 't', 'x', "
        "'adum', 'tm', 'dpcate', 'auto'.",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, learner=pc.learners.S)',
        "learner=pc.learners.S is a class. Call it: learner=pc.learners.S().",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, estimand="ATT")',
        "privcate() has no argument estimand=. For an average effect, use pc.private(..., "
        "estimand='ATT'). privcate() estimates the CATE, and did() the ATT.",
    ),
    (
        'privcate("Y ~ T | age", df, learner="adum", bounds={"Y": (0, 1)})',
        "Learner 'adum' with Laplace noise cannot estimate bounds. Declare the bounds of "
        "'age', for example bounds={'age': (18, 95), 'region': ['a', 'b']}, or use "
        "pc.learners.ADUM(noise='gaussian').",
    ),
    (
        'privcate("Y ~ T | age", df, learner="tm", bounds={"Y": (0, 1)})',
        "Learner 'tm' cannot estimate bounds. Declare the bounds of 'age', for example "
        "bounds={'age': (18, 95), 'region': ['a', 'b']}, or use learner='s' with "
        "base='linear'.",
    ),
    (
        'privcate("Y ~ T | age", df, bounds=bounds, num_trees=500)',
        "privcate() has no argument num_trees=. Use base='gam', which has no trees.",
    ),
    (
        'regress("Y ~ age | ward", df, bounds=bounds)',
        "A regression formula has no bar. Write 'Y ~ X1 + X2'.",
    ),
    (
        'regress("Y ~ age", df, bounds=bounds, weights="w")',
        "weights= must be the name of a column with nonnegative declared bounds, for "
        "example bounds={'weight': (0, 5000)}.",
    ),
    (
        'regress("Y ~ age", df, bounds=bounds, vcov="hetero")',
        "regress() has no argument vcov=. Write control=pc.Control(cov_type='HC0').",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id")',
        "did() requires the argument time. Write did(formula, data, unit=..., time=...).",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id", time="post")',
        "did() compares two periods of 'post'. Name them, the earlier one first: "
        "periods=(2018, 2019).",
    ),
    (
        'did("Y ~ T", df, bounds=bounds, unit="id", time="post", periods=(0, 1), estimand="ATT")',
        "did() has no argument estimand=. For an average effect, use pc.private(..., "
        "estimand='ATT'). privcate() estimates the CATE, and did() the ATT.",
    ),
    (
        'pc.plan("Y ~ T | age", df, n=1000, bounds=bounds)',
        "plan() accepts only formula by position. It does not use data.",
    ),
    (
        'pc.plan("Y ~ T | age", n=1000, eps=1, width=0.1, bounds=bounds)',
        "width= finds eps for a given n, or n for a given eps. Give only one of n= and eps=.",
    ),
    (
        'pc.Ledger("study.db", eps=1)',
        "Ledger() requires the argument dataset. Write Ledger(path, dataset, eps).",
    ),
    (
        'pc.private("Y ~ T | age", df, bounds=bounds, ledger="study.db")',
        "ledger= must be a Ledger, not a value of type str. Write "
        "ledger=pc.Ledger('study.db', 'study', eps=2).",
    ),
    (
        "fit.conf_int(level=0.9)",
        "conf_int() has no argument level=. Write alpha=0.05 for 95% intervals.",
    ),
    (
        "fit.conf_int(95)",
        "alpha must be a number in (0, 1), for example 0.05 for 95% intervals.",
    ),
    (
        'fit.report("report.docx")',
        "A report is an HTML file, but 'report.docx' does not end in .html. Write "
        "fit.summary().to_word('report.docx').",
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
        "Column 'age' is required for prediction, but the new data do not have it.",
    ),
    (
        "cate.predict(np.array([[40.0]]))",
        "Data of type ndarray cannot be read. Pass a pandas, polars or pyarrow data frame, "
        "or a dict of arrays of equal length.",
    ),
    (
        "fit.coef",
        "'AteResult' object has no attribute 'coef': see params",
    ),
    (
        "pc.compare([fit], level=0.9)",
        "compare() has no argument level=. Write alpha=0.05 for 95% intervals.",
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
            "ward": pd.array(rng.choice(["a", "b", "c"], n), TEXT),
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
