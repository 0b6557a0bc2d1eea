"""Self-test on this machine: noise, replay, audits, accounting and ledger.

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from privcausal import accounting, api
from privcausal.auditing.bounds import epsilon_bound, mu_bound
from privcausal.auditing.front import CASES, audit_case
from privcausal.errors import LedgerError
from privcausal.prices import at_least, at_most
from privcausal.testing import drawn_noise
from privcausal.typing import Neighbors

CHECK_LEVEL = 1e-6
"""Approximate probability that a check fails on correct code, for each check that draws noise."""

CHECK_DRAWS = 20_000

CAP = accounting.rho_of(2.0, 1e-5, gdp=True)


@dataclass(frozen=True)
class SelfCheck:
    """One check: its subject, its outcome, and whether it passes."""

    check: str
    figure: str
    holds: bool

    def __str__(self) -> str:
        return f"{'ok  ' if self.holds else 'FAIL'}  {self.check:<30} {self.figure}"


class Failure(Exception):
    """A check failed; the message is its figure."""


def findings() -> Iterator[SelfCheck]:
    """Run every check in turn; about 40 seconds in all on one core."""
    for name, check in CHECKS.items():
        try:
            yield SelfCheck(name, check(), True)
        except Failure as failure:
            yield SelfCheck(name, str(failure), False)
        except Exception as error:
            yield SelfCheck(name, f"stopped by {type(error).__name__}", False)


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


def _audited_noise(law: Any, bound: Callable[..., float]) -> str:
    """Audit noise on one number, claimed 1: the bound is near 1, and above 1 for narrow noise."""
    step, narrow = 1000, 1.25

    def lower_bound(by: float) -> float:
        draws = [drawn_noise(law, step / by, CHECK_DRAWS).astype(np.float64) for _ in range(2)]
        return bound(draws[0], draws[1] + step, CHECK_LEVEL)

    right, wrong = lower_bound(1.0), lower_bound(narrow)
    _need(right <= 1, f"claimed 1, bound {right:.3f}: REFUTED")
    _need(right >= 0.7, f"claimed 1, bound {right:.3f}: the audit is too weak")
    _need(wrong > 1, f"noise {narrow} times too narrow was not detected")
    least, refuted = at_least(right, 3), at_least(wrong, 3)
    return f"claimed 1, bound {least}; for noise {narrow} times too narrow, {refuted}"


def _audited_fit() -> str:
    result = audit_case("trial", "substitute", trials=4_000, level=CHECK_LEVEL)
    whole = result.lines[-2]
    words = f"claimed mu {at_most(whole.claimed)}, bound {at_least(whole.bound)}"
    _need(result.passes, f"{words}: REFUTED")
    _need(whole.bound > 0.6 * whole.claimed, f"{words}: the audit is too weak")
    return words


def _no_value_is_shown() -> str:
    """A label and a number of a single row must not occur in any release."""
    rows = 60
    # Twelve digits: among the 10^5 digits of noise in these texts they occur with chance 10^-7.
    label, number = "CANARY_ZQX", 773104142689.5
    data = {
        "Y": np.arange(rows) / rows, "T": np.arange(rows) % 2,
        "X": np.append(np.arange(rows - 1) / rows, number),
        "G": np.array(["a", "b"] * (rows // 2 - 1) + ["a", label], object),
    }  # fmt: skip
    bounds = {"Y": (0, 1), "X": (0, 1), "G": ["a", "b"]}
    fit = api.privcate("Y ~ T | X + C(G)", data, bounds=bounds, base="linear")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        fit.save(path)
        saved = path.read_text(encoding="utf-8")
    texts = [saved, repr(fit), str(fit.summary()), fit.summary().as_html(), str(fit.plan)]
    count = sum(sign in text for text in texts for sign in (label, "773104142689"))
    _need(count == 0, f"{count} of {2 * len(texts)} found")
    return f"2 canaries in {len(texts)} outputs: 0 found"


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
        ledger, context = accounting.Ledger(path, "selftest", 2.0), _context()
        barrier, counts = context.Barrier(4), context.SimpleQueue()
        arguments = (path, barrier, counts, charges, CAP // parts)
        children = [_child(context, _spend, (*arguments, k)) for k in range(4)]
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
        ledger, context = accounting.Ledger(path, "selftest", 2.0), _context()
        for number in range(kills):
            before = ledger.fits
            reader, writer = context.Pipe(duplex=False)
            child = _child(context, _spend_on, (path, writer, number))
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


def _context() -> Any:
    """Context of child processes: fork, which starts at once, where it is safe; spawn elsewhere."""
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _child(context: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> Any:
    child = context.Process(target=work, args=arguments, daemon=True)
    child.start()
    return child


CHECKS: dict[str, Callable[[], str]] = {
    "noise distribution": _law_of_noise,
    "replay on neighbors": _replayed,
    "audit of Laplace noise": partial(_audited_noise, "laplace", epsilon_bound),
    "audit of Gaussian noise": partial(_audited_noise, "gaussian", mu_bound),
    "audit of a fit": _audited_fit,
    "no row values in outputs": _no_value_is_shown,
    "accounting": _known_prices,
    "ledger: processes share a cap": _processes_keep_the_cap,
    "ledger: processes killed": _kills_lose_nothing,
    "ledger: changes": _changes_are_noticed,
}
