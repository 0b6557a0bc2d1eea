"""A bar by stages: their names and their number, on stderr, and nothing of the rows."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from results_fits import BOUNDS, CANARY, FORMULA, RARE, study

import privcausal as pc
from privcausal.errors import BudgetError
from privcausal.results import progress
from privcausal.results.progress import stage_bar


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (pc.privcate, {"base": "linear"}),
        (pc.private, {"base": "linear", "split": "crossfit"}),
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


def test_by_default_nothing_is_written(capsys: Any) -> None:
    pc.private("cost ~ mailed", study(), bounds=BOUNDS)
    assert capsys.readouterr() == ("", "")


def test_what_is_refused_shows_no_bar(capsys: Any, tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=0.1)
    with pytest.raises(BudgetError):
        pc.private("cost ~ mailed", study(), bounds=BOUNDS, ledger=ledger, progress=True)
    assert capsys.readouterr() == ("", "")


def test_the_clock_goes_on_within_a_long_stage(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "TICK", 0.02)
    with stage_bar(["boosting"], shown=True) as watch:
        assert watch is not None
        time.sleep(0.1)
        assert capsys.readouterr().err == ""  # not before there is something to wait for
        watch("boosting", None)
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
            watch("one", None)
            watch("two", 0.5)
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fail()
    last = capsys.readouterr().err.rstrip().split("\r")[-1]
    assert "two, 50% of the rows" in last
    assert "1/3" in last
