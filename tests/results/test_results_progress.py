"""A bar by stages: their names and their number, on stderr, and nothing of the rows."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from fit_helpers import spied
from results_fits import BOUNDS, CANARY, FORMULA, RARE, study

import privcausal as pc
from privcausal import run
from privcausal.errors import BudgetError
from privcausal.run import stage_bar
from privcausal.vault.sources.memory import Memory


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (pc.privcate, {"base": "linear"}),
        (pc.private, {"base": "linear", "control": pc.Control(split="crossfit")}),
        (pc.privcate, {"learner": "adum"}),
    ],
)
def test_a_bar_follows_the_stages(call: Any, options: Any, capsys: Any) -> None:
    formula = "cost ~ mailed | age" if options.get("learner") == "adum" else FORMULA
    fit = call(formula, study(), bounds=BOUNDS, progress=True, **options)
    out, err = capsys.readouterr()
    assert out == ""
    stages = [stage.name for stage in fit.plan.stages]
    done = re.findall(r"(\d+)/(\d+) stages", err)
    assert done[-1] == (str(len(stages)), str(len(stages)))
    assert [int(n) for n, _ in done] == sorted(int(n) for n, _ in done)
    assert stages[-1] in err
    assert "done" in err.split("\r")[-1]
    assert str(CANARY) not in err
    assert RARE not in err


def test_rounds_of_boosting_are_told(capsys: Any) -> None:
    base = pc.bases.DPEBM(rounds=10)
    fit = pc.privcate(FORMULA, study(), bounds=BOUNDS, base=base, progress=True)
    err = capsys.readouterr().err
    for stage in ("nuisance: propensity", "nuisance: outcome", "effect: boosting"):
        assert stage in [one.name for one in fit.plan.stages]
        told = re.findall(rf"{stage}, (\d+)% of the rounds", err)
        assert [int(n) for n in dict.fromkeys(told)] == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert str(CANARY) not in err
    assert RARE not in err


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_rows_are_counted_for_a_bar_only(neighbors: str) -> None:
    """Counting is a job of its own where rows are far away; private numbers are never counted."""
    asked = []
    for shown in (False, True):
        with spied(Memory, "size") as calls:
            pc.private("cost ~ mailed", study(), bounds=BOUNDS, neighbors=neighbors, progress=shown)
        asked.append(len(calls))
    assert (asked[1] > asked[0]) == (neighbors == "substitute")


def test_by_default_nothing_is_written(capsys: Any) -> None:
    pc.private("cost ~ mailed", study(), bounds=BOUNDS)
    assert capsys.readouterr() == ("", "")


def test_what_is_refused_shows_no_bar(capsys: Any, tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=0.1)
    with pytest.raises(BudgetError):
        pc.private("cost ~ mailed", study(), bounds=BOUNDS, ledger=ledger, progress=True)
    assert capsys.readouterr() == ("", "")


def test_the_clock_goes_on_within_a_long_stage(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "TICK", 0.02)
    with stage_bar(["boosting"], shown=True) as watch:
        assert watch is not None
        time.sleep(0.1)
        assert capsys.readouterr().err == ""  # not before there is something to wait for
        watch("boosting", None, "rows")
        capsys.readouterr()
        for _ in range(100):  # usually a tenth of a second is enough
            time.sleep(0.1)
            drawn = capsys.readouterr().err
            if drawn:
                break
        assert "boosting" in drawn
    assert "privcausal progress" not in [thread.name for thread in threading.enumerate()]


def test_a_failure_leaves_the_bar_where_it_was(capsys: Any) -> None:
    def fail() -> None:
        with stage_bar(["one", "two", "three"], shown=True) as watch:
            watch("one", None, "rows")
            watch("two", 0.5, "rows")
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fail()
    last = capsys.readouterr().err.rstrip().split("\r")[-1]
    assert "two, 50% of the rows" in last
    assert "1/3" in last
