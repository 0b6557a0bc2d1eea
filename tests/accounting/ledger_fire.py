"""A ledger under fire: kills, races and failing disks, as often as asked for.

Each function returns how many faults were survived, and raises AssertionError at the first that was
not: a charge that was answered is on the disk, at most one that was not is there too, and the file
is whole.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pkgutil
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

import privcausal as pc
from privcausal.accounting import Charge, Cost, Ledger, rho_of
from privcausal.errors import BudgetError, LedgerError
from privcausal.vault import exit as vault_exit
from privcausal.vault import noise, passes

CAP = rho_of(2, 1e-5)


def start(work: Callable[[Any], None]) -> tuple[int, int]:
    """Run `work(report)` in a forked child; returns (pid, end to read its one-byte reports)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.close(reader)
        work(lambda: os.write(writer, b"x"))
    except BaseException:
        os._exit(1)
    os._exit(0)


def finish(child: tuple[int, int]) -> tuple[int, bool]:
    """The number of reports of a child, and whether it ended without an error."""
    pid, reader = child
    with os.fdopen(reader, "rb") as pipe:
        reports = len(pipe.read())
    _, status = os.waitpid(pid, 0)
    return reports, status == 0


class Gate:
    """A start line: children wait in `wait` until the parent calls `open`."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def wait(self) -> None:
        os.close(self.writer)
        os.read(self.reader, 1)

    def open(self) -> None:
        os.close(self.writer)
        os.close(self.reader)


def charge(rho: int = 1, gdp: bool = False, **fields: Any) -> Charge:
    text = {"stage": "effect", "query": "sums", "mechanism": "discrete Gaussian"}
    numbers: dict[str, Any] = {"sensitivity": 1.5, "noise_sd": 12.25, "neighbors": "substitute"}
    return Charge(**text | numbers | fields, cost=Cost(rho, gdp=gdp))


@contextlib.contextmanager
def _ledger() -> Iterator[tuple[Ledger, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        yield Ledger(path, "study", 2), path


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- kills -------------------------------------------------------------------------------------


def killed_at_every_step(kills: int | None = None) -> int:
    """kill -9 at call number k of a charge, for each k or for `kills` of them spread evenly.

    Calls are those of Python and of C below it: every statement of SQLite, write and rename. What
    was charged before stays, the killed charge is there whole or not at all, the next one works.
    """
    steps = min(_steps() for _ in range(3))  # of the first there are more, as nothing is cached
    kills = steps if kills is None else kills
    for kill in range(kills):
        with _ledger() as (ledger, path):
            ledger.charge("first", [charge(1), charge(2)])

            def spend(report: Any, ledger: Ledger = ledger, step: int = 1 + kill) -> None:
                _count(1 + (step - 1) * steps // kills)
                ledger.charge("killed", [charge(1), charge(2)])
                report()

            assert finish(start(spend)) == (0, False)
            left = list(Ledger.open(path).history["run"])
            assert left in (["first"] * 2, ["first"] * 2 + ["killed"] * 2)
            Ledger.open(path).charge("next", [charge(3)])
            Ledger.open(path).verify()
    return kills


def _count(until: int) -> list[int]:
    """Count calls from here on, and die at number `until` (never at 0)."""
    seen = [0]

    def step(_frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            seen[0] += 1
            if seen[0] == until:
                _die()

    sys.setprofile(step)
    return seen


def _steps() -> int:
    """Calls of a second charge."""
    with _ledger() as (ledger, _):
        ledger.charge("first", [charge(1), charge(2)])
        seen = _count(0)
        try:
            ledger.charge("killed", [charge(1), charge(2)])
        finally:
            sys.setprofile(None)
        return seen[0] - 2  # the last are those of ending the count


PLACES = ("before the rows are read", "before noise is drawn", "after noise is drawn")


def killed_within_a_fit(place: str, kills: int) -> int:
    """A fit that dies once it is charged stays charged, once; its name is not charged again."""
    rows = pd.DataFrame({"Y": [0.1, 0.9] * 1200, "T": [0, 0, 1, 1] * 600})
    owner, name = {
        PLACES[0]: (passes.Passes, "_assign"),
        PLACES[1]: (noise, "_sampler"),
        PLACES[2]: (vault_exit, "Release"),
    }[place]

    def call(ledger: Ledger) -> Any:
        return pc.private("Y ~ T", rows, bounds={"Y": (0, 1)}, eps=0.01, ledger=ledger)

    with _ledger() as (ledger, path):
        call(ledger)
        for kill in range(kills):

            def fit(report: Any) -> None:
                setattr(owner, name, _die)
                call(ledger)
                report()

            assert finish(start(fit)) == (0, False)
            assert ledger.fits == 2 + kill
        Ledger.open(path).verify()
    return kills


# -- races -------------------------------------------------------------------------------------


def processes_to_an_exact_cap(rounds: int, processes: int = 8) -> int:
    """All start at once and ask for twice what the cap holds: exactly the cap is answered."""
    price = CAP // 60
    for _ in range(rounds):
        with _ledger() as (ledger, path):
            gate = Gate()

            def spend(report: Any, name: int, ledger: Ledger = ledger, gate: Gate = gate) -> None:
                gate.wait()
                for k in range(120 // processes):
                    with contextlib.suppress(BudgetError):
                        ledger.charge(f"{name}-{k}", [charge(price)])
                        report()

            children = [
                start(lambda report, name=name, spend=spend: spend(report, name))
                for name in range(processes)
            ]
            gate.open()
            ends = [finish(child) for child in children]
            assert all(clean for _, clean in ends)
            assert sum(reports for reports, _ in ends) == ledger.fits == 60
            Ledger.open(path).verify()
    return rounds


# -- disks -------------------------------------------------------------------------------------


def full_disk(sizes: Iterable[int]) -> int:
    """No file may grow beyond a size: sooner or later a charge is refused, and none is lost."""
    import resource

    tried = 0
    for size in sizes:
        with _ledger() as (_, path):

            def spend(report: Any, path: Path = path, size: int = size) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                ledger = Ledger.open(path)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                with contextlib.suppress(LedgerError):
                    for k in range(60):
                        ledger.charge(f"{k}", [charge(query="q" * 2000)])
                        report()

            answered, clean = finish(start(spend))
            assert clean, "what stopped it was no LedgerError"
            assert answered <= Ledger.open(path).fits <= answered + 1 < 60
            Ledger.open(path).verify()
        tried += 1
    return tried


def failing_writes() -> int:
    """Each call by which the head is read and written fails once: "no space left on device"."""
    # the head is opened before the commit and after it, then its draft and its folder
    calls = {"os.open": 4, "os.fsync": 2, "pathlib.Path.replace": 1}
    places = [(name, earlier) for name, times in calls.items() for earlier in range(times)]
    for name, earlier in places:
        with _ledger() as (ledger, path):
            ledger.charge("first", [charge()])
            full = OSError(28, "No space left on device")
            with _failing(name, earlier, full), contextlib.suppress(LedgerError):
                ledger.charge("second", [charge()])
                raise AssertionError(f"a charge was answered though {name} failed")
            assert 1 <= ledger.fits <= 2
            assert not list(path.parent.glob("*.new"))
            ledger.charge("third", [charge()])
            Ledger.open(path).verify()
    return len(places)


@contextlib.contextmanager
def _failing(name: str, earlier: int, error: Exception) -> Iterator[None]:
    """A function that fails once, after so many calls that do not."""
    real, made = pkgutil.resolve_name(name), iter(range(earlier + 1))

    def call(*args: Any, **options: Any) -> Any:
        if next(made, None) == earlier:
            raise error
        return real(*args, **options)

    with mock.patch(name, call):
        yield


# -- damage and other names --------------------------------------------------------------------


def damaged_bytes(flips: int) -> int:
    """One byte is another: the ledger is refused, or answers what it answered before."""
    rng, noticed = random.Random(22), 0
    with _ledger() as (ledger, path):
        for run in "abc":
            ledger.charge(run, [charge(10), charge(20)])
        whole, history = path.read_bytes(), ledger.history
        for _ in range(flips):
            place = rng.randrange(len(whole))
            other = bytes([whole[place] ^ rng.randrange(1, 256)])
            path.write_bytes(whole[:place] + other + whole[place + 1 :])
            try:
                # a byte that no table uses may change unseen; what is answered may not
                assert Ledger.open(path).history.equals(history)
            except LedgerError:
                noticed += 1
            for side in path.parent.glob("study.db-*"):
                side.unlink()
        assert noticed > 0  # no chance in it: the seed and the layout of the pages are fixed
        path.write_bytes(whole)
        Ledger.open(path).verify()
    return flips


def cut_short(lengths: int) -> int:
    """A file that lost its end is refused at every length."""
    with _ledger() as (ledger, path):
        ledger.charge("first", [charge(10, gdp=True)])  # so that no table ends in zeros
        whole = path.read_bytes()
        for k in range(lengths):
            path.write_bytes(whole[: len(whole) * k // lengths])
            with contextlib.suppress(LedgerError):
                Ledger.open(path)
                raise AssertionError(f"a ledger cut to {k} parts of {lengths} was opened")
            for side in path.parent.glob("study.db-*"):
                side.unlink()
    return lengths


def other_paths() -> int:
    """One file by a link, a relative path and a winding one is one budget; by a hard link none."""
    with _ledger() as (ledger, path), contextlib.chdir(path.parent):
        Path("folder").mkdir()
        Path("folder/link.db").symlink_to(path)
        names = ("folder/link.db", "study.db", "folder/../study.db")
        for name in names:
            Ledger.open(name).charge(name, [charge()])
        assert ledger.fits == len(names)
        os.link("study.db", "second.db")
        with contextlib.suppress(LedgerError):
            Ledger.open("second.db")
            raise AssertionError("a hard link was opened")
    return len(names) + 1


def clock_back() -> int:
    """Days go back: charges count as before, in the order in which they came."""

    class Past(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Past:
            return cls(1999, 12, 31, tzinfo=tz)

    with _ledger() as (ledger, path):
        ledger.charge("first", [charge()])
        with mock.patch("privcausal.accounting.store.datetime", Past):
            ledger.charge("second", [charge()])
        assert list(ledger.history["run"]) == ["first", "second"]
        Ledger.open(path).verify()
    return 1
