"""The study of Niu et al.: whose rows count, and what its lines are made of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import niu_lines
import niu_methods
import niu_report
import niu_study
import numpy as np
import pandas as pd
import pytest

CELL = {"dataset": "A", "n": 4000, "learner": "dr", "epsilon": 4.0}


def rows(code: str, mse: float, pairs: int = 10, **cell: Any) -> pd.DataFrame:
    errors = {"mse": mse, "bias2": 0.1 * mse, "variance": 0.9 * mse}
    keys = {**CELL, "variant": "paper", **cell}
    own = {**errors, "test_rows": 5000, "code": code}
    return pd.DataFrame([{**keys, "repetition": k, **own} for k in range(pairs)])


def theirs(mse: float, **cell: Any) -> pd.DataFrame:
    row = pd.DataFrame([{**CELL, **cell, "mse": mse, "bias2": 0.1 * mse, "variance": 0.9 * mse}])
    return row.set_index(niu_lines.KEYS)


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method's code is "today"."""
    monkeypatch.setattr(niu_methods, "code", lambda variant, learner: "today")


@pytest.mark.slow
@pytest.mark.usefixtures("today")
def test_a_row_of_other_code_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "errors.csv"
    pd.concat([rows("today", 0.3), rows("12345678", 9.0)]).to_csv(file, index=False)
    assert niu_methods.of_today(niu_methods.read(file)).sum() == 10
    theirs(0.25).reset_index().to_csv(tmp_path / "published.csv", index=False)
    niu_report.write(tmp_path, tmp_path / "published.csv")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "left out (`--fresh` drops them): 10." in text
    assert "| A | 4000 | dr | 4 | 0.3 | 0.03 | 0.27 | 10 | 0.25 |" in text
    niu_study.fresh(tmp_path)
    assert niu_methods.read(file)["mse"].unique().tolist() == [0.3]


@pytest.mark.usefixtures("today")
def test_a_pair_that_other_code_made_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ran = tmp_path / "errors.csv", []
    made = dict.fromkeys([*niu_lines.MEASURES, "test_rows"], 0.1)
    pd.concat([rows("today", 0.3, 1), rows("12345678", 9.0, 2).iloc[1:]]).to_csv(file, index=False)

    def jobs(_: Any) -> Any:
        for k in range(2):
            keys = {**CELL, "variant": "paper", "repetition": k}
            yield keys, lambda k=k: ran.append(k) or [made]

    monkeypatch.setitem(niu_study.PARTS, "figure2", ("errors", jobs))
    options = type("Options", (), {"out": tmp_path, "end": math.inf})
    for _ in range(2):
        niu_study.resume("figure2", options)  # type: ignore[arg-type]
    assert ran == [1]
    assert niu_methods.read(file)["code"].tolist() == ["today", "12345678", "today"]


@pytest.mark.slow
def test_code_tells_weightings_apart() -> None:
    """The digest is of numbers: the same twice, and another for another method."""
    first = niu_methods.code("paper", "r")
    niu_methods.code.cache_clear()
    assert niu_methods.code("paper", "r") == first != niu_methods.code("interpret", "r")


def spread(mse: float, pairs: int = 10, **cell: Any) -> pd.DataFrame:
    """Pairs whose errors differ by a tenth."""
    parts = [rows("today", mse * f, 1, **cell) for f in np.linspace(0.9, 1.1, pairs)]
    return pd.concat([p.assign(repetition=k) for k, p in enumerate(parts)])


def test_lines_take_cells_with_ten_pairs() -> None:
    def figure_2(pairs: int, mse: float = 0.26) -> Any:
        found = niu_lines.lines({"errors": spread(mse, pairs)}, theirs(0.25))
        return next(n for n in found if n.says == "MSE, A, n 4,000, learner dr, eps 4")

    assert (figure_2(10).printed, figure_2(10).measured) == pytest.approx((0.25, 0.26))
    assert (figure_2(10).printed_runs, figure_2(10).runs) == (25, 20)
    assert figure_2(10).verdict == "reproduced"
    assert figure_2(10, 0.5).verdict == "differs"
    assert figure_2(9).verdict == "missing"


def test_lines_of_the_s_learner_have_a_column_per_arm() -> None:
    one, two = spread(0.5, learner="s"), spread(0.1, pairs=4, learner="s").assign(variant="arms")
    found = niu_lines.lines({"errors": pd.concat([one, two])}, theirs(0.1, learner="s"))
    line = next(n for n in found if n.says == "MSE, A, n 4,000, learner s, eps 4")
    assert (line.measured, line.runs) == (pytest.approx(0.1), 8)


def test_a_cell_far_below_the_print_is_not_hidden_by_the_others() -> None:
    sizes = (500, 1000, 2000)
    ours = pd.concat([spread(0.25 if n > 500 else 0.05, n=n) for n in sizes])
    found = niu_lines.lines({"errors": ours}, pd.concat([theirs(0.25, n=n) for n in sizes]))
    words = [n.verdict for n in found if n.says.startswith("MSE, A, n")]
    assert words == ["differs", "reproduced", "reproduced"]


def test_the_variance_is_mse_less_bias_and_not_as_printed() -> None:
    """Section 5.1.3, for Figure 3: predictions with bias 2 and variance 9, by two fits each."""
    first, second = 2 + 3 * np.random.default_rng(0).standard_normal((2, 200_000))
    mse = ((first**2 + second**2) / 2).mean()
    bias2 = 2 * (((first + second) / 2) ** 2).mean() - mse
    assert bias2 == pytest.approx(4, abs=0.2)
    assert mse - bias2 == pytest.approx(9, abs=0.2)
    assert 2 * mse - bias2 == pytest.approx(22, abs=0.4)  # the printed Var = 2 MSE - Bias


def test_growth_is_of_ratios() -> None:
    cells = [("C", 4000), ("A", 16_000)]
    both = [
        [made(mse, dataset=d, n=n, epsilon=eps) for made in (spread, theirs)]
        for d, n in cells
        for eps, mse in ((1.0, 12.0), (16.0, 1.0))
    ]
    found = niu_lines.lines(
        {"errors": pd.concat([own for own, _ in both])}, pd.concat([told for _, told in both])
    )
    grown = [line for line in found if "from eps 16 to 1" in line.says]
    assert [round(line.measured, 6) for line in grown] == [12.0] * 7
    assert [line.printed for line in grown] == pytest.approx([12, 10, 12, 2, 10, 12, 2])
    assert [line.verdict for line in grown if line.printed == 2] == ["differs"] * 2


def test_without_the_voting_file_its_figures_are_missing() -> None:
    none = theirs(0.25).iloc[:0]
    found = niu_lines.lines({}, none)
    votes = [line for line in found if "Voting" in line.says or line.item == "Figure 1"]
    assert len(votes) == 5
    assert {line.verdict for line in votes} == {"missing"}


def test_training_rows_of_votes_keep_the_arms_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = np.random.default_rng(0), 3000
    names = ("persons", "newreg", "vote98", "vote00", "female", "state", "county", "competiv",
             "st_sen", "st_hse", "Y")  # fmt: skip
    frame = pd.DataFrame({name: rng.integers(0, 2, n) for name in names})
    frame.assign(age=rng.integers(18, 90, n), W=np.arange(n) % 5 < 2).astype(int).to_csv(
        tmp_path / "votes.csv", index=False
    )
    monkeypatch.setattr(niu_study, "POOL", 2000)
    train, test = (niu_study.voters(tmp_path / "votes.csv", n, 3) for n in (500, None))
    assert (len(train.frame), train.frame["W"].sum(), len(test.frame)) == (500, 200, 1000)
    assert train.tau == pytest.approx(train.effect(train.frame))
