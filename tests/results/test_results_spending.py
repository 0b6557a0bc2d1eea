"""A ledger in words, in Python and on the command line."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pandas as pd
import pytest
from results_fits import BOUNDS, study

import privcausal as pc
from privcausal import cli
from privcausal.results.guarantee import ledger_summary


@pytest.fixture
def ledger(tmp_path: Any) -> Any:
    made = pc.Ledger(tmp_path / "study.db", "a study of costs", eps=3)
    for _ in range(2):
        pc.private("cost ~ mailed", study(), bounds=BOUNDS, ledger=made)
    pc.privcate("cost ~ mailed | age", study(), learner="adum", eps=0.5, bounds=BOUNDS, ledger=made)
    return made


def test_a_line_for_each_run(ledger: Any) -> None:
    found = ledger_summary(ledger)
    text = str(found)
    assert text.isascii() and max(map(len, text.split("\n"))) <= 78
    assert "a study of costs" in text
    assert f"eps {ledger.remaining.epsilon:.4g}" in text
    assert f"Spent: ({ledger.spent.epsilon:.4g}, 1e-05)-DP in 3 runs." in text
    runs = found.tables[-1]
    assert runs.index.tolist() == ledger.history["run"].unique().tolist()
    assert runs["rho"].sum() == pytest.approx(ledger.spent.rho)
    assert runs["epsilon"].tolist() == [0, 0, 0.5]


def test_an_empty_ledger_and_a_pure_one(tmp_path: Any) -> None:
    text = str(ledger_summary(pc.Ledger(tmp_path / "new.db", "new", eps=1, delta=0)))
    assert "1-DP (pure)" in text
    assert "in 0 runs" in text


def test_the_command(ledger: Any, capsys: Any) -> None:
    path = str(ledger._store.path)
    assert cli.main(["ledger", path]) == cli.FINE
    out, err = capsys.readouterr()
    assert out.rstrip("\n") == str(ledger_summary(ledger))
    assert err == ""
    assert cli.main(["ledger", path, "--csv"]) == cli.FINE
    out, err = capsys.readouterr()
    assert len(pd.read_csv(StringIO(out))) == len(ledger.history)
    assert "is whole" in err


def test_a_file_that_is_no_ledger(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "no.db"
    path.write_text("not a ledger")
    assert cli.main(["ledger", str(path)]) == cli.WRONG_INPUT
    assert "LedgerError" in capsys.readouterr().err
    assert cli.main(["ledger", str(tmp_path / "absent.db")]) == cli.WRONG_INPUT
    assert "absent.db is missing" in capsys.readouterr().err
