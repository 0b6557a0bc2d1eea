"""The self-test: everything holds here, and each check fails where it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privcausal import auditing, cli
from privcausal.vault import noise

QUICK = [name for name in auditing.SELF_TESTS if name != "replay on neighbors"]


def only(monkeypatch: pytest.MonkeyPatch, name: str, check: Any = None) -> None:
    """One check is left of the self-test."""
    monkeypatch.setattr(auditing, "SELF_TESTS", {name: check or auditing.SELF_TESTS[name]})


def checked(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[bool, str]:
    only(monkeypatch, name)
    (found,) = auditing.selftest()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_it_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holds, line = checked(monkeypatch, name)
    assert holds, line
    assert line.startswith("ok")


@pytest.mark.slow
def test_fits_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: auditing.CASES[name] for name in ("trial", "adum, count and sum")}
    monkeypatch.setattr(auditing, "CASES", cases)
    holds, line = checked(monkeypatch, "replay on neighbors")
    assert holds
    assert "4 fits, 12 claims: all hold" in line


SAMPLER = "vault.noise._sampler"
PLAIN = noise._sampler


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "fault", "name"),
    [
        (SAMPLER, lambda law, scale: PLAIN(law, scale / 1.3), "noise distribution"),
        (SAMPLER, lambda _, scale: lambda e: np.array(e) + scale / 3, "noise distribution"),
        ("accounting.price.within", lambda *_: True, "ledger: processes share a cap"),
        ("accounting.Ledger.charge", lambda *_, **__: None, "ledger: processes killed"),
    ],
    ids=["narrow noise", "one noise", "no cap", "nothing kept"],
)
def test_faults_are_found(step: str, fault: Any, name: str, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"privcausal.{step}", fault)
        holds, line = checked(patch, name)
    assert not holds
    assert line.startswith("FAIL")


def test_the_command_prints_a_line_per_check(monkeypatch: Any, capsys: Any) -> None:
    only(monkeypatch, "ledger: changes")
    assert cli.main(["selftest"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:2] == ["ok", "ledger:"]
    assert out[1] == "All checks passed."


def test_a_failure_is_exit_4_and_quotes_nothing(monkeypatch: Any, capsys: Any) -> None:
    def stop() -> str:
        raise ValueError("CANARY")

    only(monkeypatch, "a check", stop)
    assert cli.main(["selftest"]) == 4
    printed = capsys.readouterr()
    assert "FAIL  a check" in printed.out
    assert "stopped by ValueError" in printed.out
    assert "SOME CHECKS FAILED." in printed.out
    assert "CANARY" not in printed.out + printed.err
