"""The self-test: everything holds here, and each check fails where it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privcausal import auditing, cli
from privcausal.accounting import Ledger, ledger
from privcausal.vault import noise

QUICK = [name for name in auditing.SELF_TESTS if name != "replay on neighbors"]


def only(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[bool, str]:
    monkeypatch.setattr(auditing, "SELF_TESTS", {name: auditing.SELF_TESTS[name]})
    (found,) = auditing.selftest()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_it_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holds, line = only(monkeypatch, name)
    assert holds, line
    assert line.startswith("ok")


@pytest.mark.slow
def test_fits_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: auditing.CASES[name] for name in ("trial", "adum, count and sum")}
    monkeypatch.setattr(auditing, "CASES", cases)
    holds, line = only(monkeypatch, "replay on neighbors")
    assert holds
    assert "4 fits, 12 claims: all hold" in line


def narrow(patch: Any) -> None:
    plain = noise._sampler
    patch.setattr(noise, "_sampler", lambda law, scale: plain(law, scale / 1.3))


def repeated(patch: Any) -> None:
    patch.setattr(noise, "_sampler", lambda _, scale: lambda exact: np.array(exact) + scale / 3)


def no_cap(patch: Any) -> None:
    patch.setattr(ledger.price, "within", lambda *_: True)


def nothing_kept(patch: Any) -> None:
    patch.setattr(Ledger, "charge", lambda *_, **__: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (narrow, "noise distribution"),
        (repeated, "noise distribution"),
        (no_cap, "ledger: processes share a cap"),
        (nothing_kept, "ledger: processes killed"),
    ],
)
def test_faults_are_found(fault: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        holds, line = only(monkeypatch, name)
    assert not holds
    assert line.startswith("FAIL")


def test_the_command_prints_a_line_per_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        auditing, "SELF_TESTS", {"ledger: changes": auditing.SELF_TESTS["ledger: changes"]}
    )
    assert cli.main(["selftest"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:2] == ["ok", "ledger:"]
    assert out[1] == "All checks passed."


def test_a_failure_is_exit_4_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> str:
        raise ValueError("CANARY")

    monkeypatch.setattr(auditing, "SELF_TESTS", {"a check": stop})
    assert cli.main(["selftest"]) == 4
    printed = capsys.readouterr()
    assert "FAIL  a check" in printed.out
    assert "stopped by ValueError" in printed.out
    assert "SOME CHECKS FAILED." in printed.out
    assert "CANARY" not in printed.out + printed.err
