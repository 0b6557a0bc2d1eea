"""A ledger in words, in Python and on the command line."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private
from results_fits import BOUNDS, study
from scipy.stats import norm

import privcausal as pc
from privcausal import cli
from privcausal.results.guarantee import ledger_summary
from privcausal.results.view import view_of


@pytest.fixture
def ledger(tmp_path: Any) -> Any:
    made = pc.Ledger(tmp_path / "study.db", "a study of costs", eps=3)
    for _ in range(2):
        pc.private("cost ~ mailed", study(), bounds=BOUNDS, ledger=made)
    pc.privcate("cost ~ mailed | age", study(), learner="adum", eps=0.5, bounds=BOUNDS, ledger=made)
    return made


def test_the_best_attack_is_that_on_gaussian_noise() -> None:
    """Never less than between N(0, 1) and N(mu, 1), and no more than the slack above."""
    fit = pc.private("cost ~ mailed", study(), bounds=BOUNDS, eps=1)
    curve, mu = view_of(fit, (), 0.05).attack, np.sqrt(2 * fit.guarantee.rho)
    alarms, power = curve["false_alarms"].to_numpy(), curve["power"].to_numpy()
    exact = norm.cdf(norm.ppf(alarms) + mu)
    assert (power >= exact - 1e-12).all()
    assert (power <= exact + 1e-4).all()
    text = " ".join(str(fit.summary(full=True)).split())
    said = float(re.search(r"probability at most ([0-9.]+)%", text)[1])
    assert 0 <= said / 100 - norm.cdf(mu / 2) < 2e-3
    fit = private("cost ~ mailed", study(), bounds=BOUNDS, eps=1, exact=True)
    assert view_of(fit, (), 0.05).attack is None


@pytest.mark.slow
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
    assert runs["pure"].tolist() == [0, 0, 0.5]
    assert runs["epsilon"].tolist() == pytest.approx([1, 1, 0.5], abs=1e-4)


@pytest.mark.slow
def test_each_run_says_what_it_asked(ledger: Any) -> None:
    fit = pc.private("cost ~ mailed | age", study(), eps=0.25, bounds=BOUNDS, ledger=ledger)
    fit.balance(study(), eps=0.1, ledger=ledger)
    asked = ledger.runs["question"].tolist()
    assert asked[0] == asked[1] == "private('cost ~ mailed')"
    assert asked[2] == "privcate('cost ~ mailed | age', learner='adum')"
    assert asked[3] == "private('cost ~ mailed | age')"
    assert asked[4] == "fit.balance of 'cost ~ mailed | age'"
    assert set(ledger.history["question"]) == set(asked)
    text = str(ledger_summary(ledger))
    for run, words in zip(ledger.runs["run"], asked, strict=True):
        assert re.fullmatch("[0-9a-f]{16}", run)
        assert f"{run[:8]}: {words}" in text


def test_an_empty_ledger_and_a_pure_one(tmp_path: Any) -> None:
    text = str(ledger_summary(pc.Ledger(tmp_path / "new.db", "new", eps=1, delta=0)))
    assert "1-DP (pure)" in text
    assert "in 0 runs" in text


def test_the_command(ledger: Any, tmp_path: Any, capsys: Any) -> None:
    path = str(tmp_path / "study.db")
    assert cli.main(["ledger", path]) == cli.FINE
    out, err = capsys.readouterr()
    assert out.rstrip("\n") == str(ledger_summary(ledger))
    assert err == ""
    assert cli.main(["ledger", path, "--csv"]) == cli.FINE
    out, err = capsys.readouterr()
    assert len(pd.read_csv(StringIO(out))) == len(ledger.history)
    assert "is intact" in err


def test_a_file_that_is_no_ledger(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "no.db"
    path.write_text("not a ledger")
    assert cli.main(["ledger", str(path)]) == cli.WRONG_INPUT
    assert "LedgerError" in capsys.readouterr().err
    assert cli.main(["ledger", str(tmp_path / "absent.db")]) == cli.WRONG_INPUT
    assert "absent.db is missing" in capsys.readouterr().err


def test_a_paid_fit_outlives_its_ledger(tmp_path: Any, monkeypatch: Any) -> None:
    """Nothing that only prints may lose a result that was charged."""
    ledger = pc.Ledger(tmp_path / "study.db", "a study", eps=3)

    def unreadable(self: pc.Ledger) -> None:
        raise pc.errors.LedgerError("study.db is missing.")

    monkeypatch.setattr(pc.Ledger, "remaining", property(unreadable))
    fit = pc.private("cost ~ mailed", study(), bounds=BOUNDS, ledger=ledger)
    assert "was charged, and cannot be read now" in " ".join(str(fit.summary(full=True)).split())
