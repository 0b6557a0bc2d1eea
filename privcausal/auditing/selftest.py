"""Self-test on this machine: noise, replay, accounting and ledger.

All rows are invented. If possible, a check also tries a planted fault, because a check that detects
no faults would pass too.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from privcausal import accounting
from privcausal.auditing.audits import CASES, audit_case
from privcausal.errors import LedgerError
from privcausal.testing import drawn_noise
from privcausal.typing import Neighbors

CHECK_LEVEL = 1e-6
"""Approximate probability that a check fails on correct code, for each check that draws noise."""

CHECK_DRAWS = 20_000

# fork starts at once where it is safe; spawn elsewhere
CONTEXT: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")

CAP = accounting.rho_of(2.0, 1e-5, gdp=True)


class Failure(Exception):
    """A check failed; the message is its figure."""


def findings() -> Iterator[tuple[bool, str]]:
    """Run every check in turn: whether it passes, and a line with its subject and its figure."""
    for name, check in CHECKS.items():
        passes = False
        try:
            figure, passes = check(), True
        except Failure as failure:
            figure = str(failure)
        except Exception as error:
            figure = f"stopped by {type(error).__name__}"
        yield passes, f"{'ok  ' if passes else 'FAIL'}  {name:<30} {figure}"


def _need(holds: bool, words: str) -> None:
    if not holds:
        raise Failure(words)


# -- noise -------------------------------------------------------------------------------------


def _law_of_noise() -> str:
    """Test discrete Gaussian and Laplace noise at three scales; scales 10% off must be detected."""
    laws: tuple[Any, ...] = ("gaussian", "laplace")
    for law in laws:
        for scale in (1.0, 30.0, 1e4):
            drawn = drawn_noise(law, scale, CHECK_DRAWS)
            right = _chance(drawn, law, scale) > CHECK_LEVEL
            _need(right, f"{law} noise does not have the scale {scale:g}")
            for off in (0.9, 1.1):
                seen = _chance(drawn, law, off * scale) < CHECK_LEVEL
                _need(seen, f"{law} noise: a scale that is 10% off was not detected")
        again = drawn_noise(law, 1e12, 2_000)
        _need(len(np.unique(again)) > 1_990, f"{law} noise repeats values")
    return f"2 distributions, scales 1 to 1e4, {CHECK_DRAWS} draws each; 10% off is detected"


def _chance(drawn: Any, law: str, scale: float) -> float:
    """Probability of a deviation from `scale` at least as large as seen, if `scale` is right."""
    from scipy.stats import chisquare, gamma

    if law == "laplace" and scale < 10:  # on whole numbers, test the probabilities themselves
        k = np.arange(-60, 61)
        mass = np.exp(-np.abs(k) / scale)
        expected = len(drawn) * mass / mass.sum()
        counts = np.bincount(np.clip(drawn, -60, 60).astype(int) + 60, minlength=121)
        big = expected >= 10
        seen, wanted = (np.append(v[big], v[~big].sum()) for v in (counts.astype(float), expected))
        return float(chisquare(seen, wanted).pvalue)
    size = np.abs(drawn) / scale
    # Sums of squared normal numbers, and of absolute Laplace numbers, have a gamma distribution.
    power, shape = (size**2 / 2, 0.5) if law == "gaussian" else (size, 1.0)
    below = gamma(shape * len(drawn)).cdf(power.sum())
    return float(2 * min(below, 1 - below))


# -- replay and audits -------------------------------------------------------------------------


def _replayed() -> str:
    """Replay every catalog fit under both relations, on neighbors with the first fit's answers."""
    claims, most = 0, 0.0
    every = list(itertools.product(CASES, get_args(Neighbors)))
    for case, relation in every:
        result = audit_case(case, relation, trials=2, level=CHECK_LEVEL)
        _need(result.passes, f"{case}, {relation}: {result.departed or 'a claim is refuted'}")
        claims += len(result.lines)
        most = max(most, *(line.exact / line.claimed for line in result.lines))
    _need(most > 0.99, "no invented pair comes close to its claim")
    return f"{len(every)} fits, {claims} claims: all hold, largest loss {most:.3f} of its claim"


# -- accounting --------------------------------------------------------------------------------


def _known_prices() -> str:
    """Compare with values from the literature, and Gaussian noise with its own exact trade-off."""
    for epsilon, published in ((0.5, 7.67), (1.0, 4.05), (2.0, 2.15)):
        multiplier = accounting.noise_multiplier(accounting.rho_of(epsilon, 1e-5) / accounting.PICO)
        _need(abs(multiplier - published) < 0.005, f"eps {epsilon}: multiplier {multiplier:.3f}")
        exact = accounting.TradeOff.from_gaussian(1 / multiplier).epsilon(1e-5)
        _need(exact <= epsilon <= 1.2 * exact, f"eps {epsilon}: exact value {exact:.3f}")
    twice = accounting.total_epsilon(
        accounting.Events.of([accounting.Cost(rho=accounting.rho_of(1.0, 1e-5))] * 2), 1e-5
    )
    _need(abs(twice - 1.46) < 0.005, f"two fits with eps 1 cost {twice:.3f}")
    pure = accounting.total_epsilon(
        accounting.Events.of([accounting.Cost(epsilon=accounting.PICO // 10)] * 3), 1e-5
    )
    _need(0.2999 < pure <= 0.3, f"three charges of pure epsilon 0.1 cost {pure!r}")
    gaussian = accounting.rho_of(1.0, 1e-5, gdp=True) / accounting.PICO
    _need(abs(gaussian - 0.03593) < 1e-5, f"eps 1 allows rho {gaussian:.5f} of Gaussian noise")
    return "sd 7.67, 4.05, 2.15 at eps 0.5, 1, 2; two fits with eps 1 cost 1.46"


# -- the ledger --------------------------------------------------------------------------------


def _processes_keep_the_cap() -> str:
    """Four processes start together and request twice the ledger's cap."""
    parts, charges = 40, 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        ledger = accounting.Ledger(path, "selftest", 2.0)
        barrier, counts = CONTEXT.Barrier(4), CONTEXT.SimpleQueue()
        arguments = (path, barrier, counts, charges, CAP // parts)
        children = [_child(_spend, (*arguments, k)) for k in range(4)]
        answered = sum(counts.get() for _ in children)
        for child in children:
            child.join()
        _need(answered == ledger.fits == parts, f"{answered} of {parts} charges accepted")
        ledger.verify()
    return f"4 processes, {4 * charges} charges, cap {parts}: {answered} accepted"


def _spend(path: Path, barrier: Any, counts: Any, charges: int, price: int, name: int) -> None:
    ledger = accounting.Ledger.open(path)
    barrier.wait(60)
    answered = 0
    for k in range(charges):
        with contextlib.suppress(accounting.BudgetExhaustedError):
            ledger.charge(f"{name}-{k}", [_charge(price)])
            answered += 1
    counts.put(answered)


def _kills_lose_nothing() -> str:
    """A process is killed at a random time: every charge confirmed to it must be on the disk."""
    kills = 8
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        ledger = accounting.Ledger(path, "selftest", 2.0)
        for number in range(kills):
            before = ledger.fits
            reader, writer = CONTEXT.Pipe(duplex=False)
            child = _child(_spend_on, (path, writer, number))
            writer.close()
            answered = len(reader.recv_bytes())
            time.sleep(0.003 * number)
            child.kill()
            child.join()
            with contextlib.suppress(EOFError):
                while True:
                    answered += len(reader.recv_bytes())
            charged = ledger.fits - before
            _need(answered <= charged <= answered + 1, f"{answered} confirmed, {charged} charged")
        ledger.verify()
    return f"{kills} kills, {charged + before} charges: none lost"


def _spend_on(path: Path, pipe: Any, name: int) -> None:
    ledger = accounting.Ledger.open(path)
    for k in range(100_000):
        ledger.charge(f"{name}-{k}", [_charge(1)])
        pipe.send_bytes(b"x")


def _changes_are_noticed() -> str:
    """A ledger that was changed, truncated, rolled back or lost its head must refuse everything."""
    changes = ("edit", "truncate", "roll back", "lose head", "delete")
    for change in changes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "study.db"
            ledger = accounting.Ledger(path, "selftest", 2.0)
            ledger.charge("first", [_charge(10)])
            if change == "edit":
                with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                    connection.execute("DROP TRIGGER charges_no_UPDATE")
                    connection.execute("UPDATE charges SET rho = 0")
            elif change == "truncate":
                path.write_bytes(path.read_bytes()[:-2_000])
            elif change == "roll back":
                old = shutil.copy2(path, path.with_name("old"))
                ledger.charge("second", [_charge(10)])
                shutil.copy2(old, path)
            else:
                lost = path.with_name(path.name + ".head") if change == "lose head" else path
                lost.unlink()
            with contextlib.suppress(LedgerError):
                accounting.Ledger.open(path)
                raise Failure(f"not detected: {change}")
    return f"{len(changes)} kinds of change and loss: all detected"


def _charge(rho: int) -> accounting.Charge:
    cost = accounting.Cost(rho, gdp=True)
    return accounting.Charge("selftest", "none", "none", "substitute", 1.0, 1.0, cost)


def _child(work: Callable[..., None], arguments: tuple[Any, ...]) -> Any:
    child = CONTEXT.Process(target=work, args=arguments, daemon=True)
    child.start()
    return child


CHECKS: dict[str, Callable[[], str]] = {
    "noise distribution": _law_of_noise,
    "replay on neighbors": _replayed,
    "accounting": _known_prices,
    "ledger: processes share a cap": _processes_keep_the_cap,
    "ledger: processes killed": _kills_lose_nothing,
    "ledger: changes": _changes_are_noticed,
}
