"""The ledger's file: an append-only, hash-chained SQLite database, and its head in a second file.

The files are protected against these events:

- *A crash at any time.* The mode is WAL with ``synchronous=FULL``. A commit that returned is on
  the disk. A commit that did not return is stored completely or not at all. SQLite repairs the
  file at the next opening.
- *An edit or damage.* Every line holds a hash of itself and of the line before. The first line's
  hash includes the header's hash. All hashes are recomputed whenever the file is read. Triggers
  refuse UPDATE and DELETE, and the schema is compared with the one in this module.
- *An old copy put back, or the file deleted.* ``<path>.head`` holds the length of the chain and
  its last hash. It is written after the commit. After a crash between the two, the head is
  *behind*, at a prefix of the chain, which is accepted. A head *ahead* of the database proves that
  charges were lost, and then every operation is refused. The head is written under the database's
  write lock, from the current content of the database, so a slower process cannot move it back.
- *An old copy of both files.* This module cannot detect it, and there is no protection.
- *Other accounts of the machine.* Only the owner has access to a new ledger (mode 0600). Its head
  takes the mode of the database, as do the write-ahead log and index that SQLite creates. The path
  is resolved once, when the ledger is opened. If a link later replaces one of the files, it is
  refused. A draft of the head is a new file with an unpredictable name. Anyone with write access
  to the folder can still replace the files, so only the owner should have it.

Every operation opens its own connection. Connections are never shared between threads, or with a
child process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from privcausal.accounting.price import PARALLEL, Charge, Cost
from privcausal.errors import BudgetError, LedgerError

# Contents of a ledger: its header, and one line per charge, as plain values for SQLite.

_LARGEST = 2**63 - 1
"""The largest integer in SQLite, much larger than any cap."""


LONGEST = 1000
"""Maximum length of a stored question, in characters."""


def run_name(question: str) -> str:
    """A new name of a run: random digits, followed by the public question that it answers."""
    printable = "".join(c if c.isprintable() else " " for c in question)
    return f"{secrets.token_hex(8)}: {printable[:LONGEST]}"


def question_of(run: str) -> tuple[str, str]:
    """Split a run's name into the name alone and the question, which is empty if there is none."""
    match = re.fullmatch("([0-9a-f]{16}): (.*)", run)
    return (match[1], match[2]) if match else (run, "")


def lines_of(run: str, charges: Sequence[Charge], published: bool) -> list[dict[str, Any]]:
    """The lines to store for one run, without their position in the chain."""
    if not isinstance(run, str) or not run.strip() or not run.isprintable():
        raise LedgerError("The name of a run must be a nonempty, printable string.")
    if not charges or not all(isinstance(charge, Charge) for charge in charges):
        raise LedgerError("A run requires at least one Charge.")
    # the day only: finer times reveal information about the data
    day = datetime.now(UTC).date().isoformat()
    lines = []
    for number, charge in enumerate(charges):
        cost = charge.cost
        if max(cost.rho, cost.epsilon, cost.delta) > _LARGEST:
            raise BudgetError("A charge exceeds the largest possible budget.")
        line = {
            "run": run,
            "line": number,
            "day": day,
            "published": int(published),
            "stage": _text(charge.stage),
            "query": _text(f"{charge.query} {PARALLEL}" if charge.parallel else charge.query),
            "mechanism": _text(charge.mechanism),
            "neighbors": charge.neighbors,
            "sensitivity": _real(charge.sensitivity),
            "noise_sd": _real(charge.noise_sd),
            "rho": cost.rho,
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "rows": _real(charge.rows),
            "unit": _text(charge.unit),
            "gaussian": cost.gdp,
        }
        lines.append(line)
    return lines


def _real(value: float) -> float | None:
    """Convert to the value that SQLite returns: NaN becomes NULL, and zero loses its sign."""
    return None if math.isnan(value) else float(value) + 0.0


def _text(text: str) -> str:
    """Make a text valid UTF-8: queries contain column names, which may hold any characters."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


BUSY_SECONDS = 30.0
"""Maximum wait, in seconds, while another process holds the file."""

STORE_VERSION = 2
"""Version of the tables below, stored as ``user_version``. Other versions are refused."""

_APPLICATION_ID = 0x70727663  # "prvc": distinguishes our files from other SQLite databases

_HEADER = ("id", "dataset", "epsilon", "delta", "allow_published")
_LINE = (
    "run", "line", "day", "published", "stage", "query", "mechanism", "neighbors",
    "sensitivity", "noise_sd", "rho", "epsilon", "delta", "rows", "unit",
)  # fmt: skip

_SCHEMA = (
    "CREATE TABLE ledger (id TEXT NOT NULL, dataset TEXT NOT NULL, epsilon REAL NOT NULL,"
    " delta REAL NOT NULL, allow_published INTEGER NOT NULL) STRICT",
    # sensitivity and noise_sd may be unknown (NULL); the price may not
    "CREATE TABLE charges (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, line INTEGER NOT NULL,"
    " day TEXT NOT NULL, published INTEGER NOT NULL, stage TEXT NOT NULL, query TEXT NOT NULL,"
    " mechanism TEXT NOT NULL, neighbors TEXT NOT NULL, sensitivity REAL, noise_sd REAL,"
    " rho INTEGER NOT NULL CHECK (rho >= 0), epsilon INTEGER NOT NULL CHECK (epsilon >= 0),"
    " delta INTEGER NOT NULL CHECK (delta >= 0), rows REAL NOT NULL, unit TEXT NOT NULL,"
    " hash TEXT NOT NULL, UNIQUE (run, line)) STRICT",
    # charges with rho of Gaussian noise; the hash of such a line includes this fact
    "CREATE TABLE gaussian (seq INTEGER PRIMARY KEY) STRICT",
    *(
        f"CREATE TRIGGER {table}_no_{action} BEFORE {action} ON {table}"
        " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
        for table in ("ledger", "charges", "gaussian")
        for action in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE deletes without running the triggers above
    "CREATE TRIGGER ledger_once BEFORE INSERT ON ledger WHEN EXISTS (SELECT 1 FROM ledger)"
    " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER charges_in_order BEFORE INSERT ON charges"
    " WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM charges) OR EXISTS"
    " (SELECT 1 FROM charges WHERE run = NEW.run AND line = NEW.line)"
    " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER gaussian_in_order BEFORE INSERT ON gaussian"
    " WHEN NEW.seq IS NOT (SELECT max(seq) FROM charges)"
    " OR EXISTS (SELECT 1 FROM gaussian WHERE seq = NEW.seq)"
    " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
)

_CAUSES = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or not a ledger",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: disk error",
}

_OWNER = 0o600
"""Mode of a new ledger; the accompanying files take the current mode of the database."""

_CREATING = threading.Lock()
# a child must not inherit the lock from a thread that it does not have
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_CREATING.acquire,
        after_in_parent=_CREATING.release,
        after_in_child=_CREATING.release,
    )


class Book(NamedTuple):
    """The content of the file at one moment, with the chain already recomputed."""

    header: dict[str, Any]  # ``id dataset epsilon delta allow_published``
    # One per charge, in the order of spending. Amounts are in pico-units. Each line also says
    # whether its rho is of Gaussian noise.
    lines: tuple[dict[str, Any], ...]
    hashes: tuple[str, ...]  # The header's hash, then the hash of every line

    @property
    def costs(self) -> list[Cost]:
        """The cost of each line."""
        return [Cost(x["rho"], x["epsilon"], x["delta"], x["gaussian"]) for x in self.lines]


class Store:
    """The two files of one ledger. Every failure is a `LedgerError`; no repair is attempted."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise LedgerError("The path of a ledger must be a string or a path.")
        text = os.fspath(path)
        if not text or text.startswith(":memory:") or "\0" in text:
            raise LedgerError("A ledger must be stored in a file. Pass the path of a file.")
        # a single real path, so that two links to one file are one ledger
        self.path = Path(os.path.realpath(text))
        if not self.path.parent.is_dir():
            raise LedgerError(f"The folder of {self.path.name} does not exist.")
        self.head = self.path.with_name(self.path.name + ".head")
        self._header: dict[str, Any] | None = None  # set by `open`

    def create(self, header: dict[str, Any]) -> None:
        """Create the ledger if it does not exist; safe to call from many processes at once."""
        with self._refusing():
            # Check the head first. It is written last, so a head alone means a deleted database.
            if os.path.lexists(self.head):
                return
            # Create an empty file, which SQLite accepts as a new database, unless the path exists.
            # SQLite itself would make the file readable for everyone, and would follow a link.
            # Closing a file removes all locks of this process on it, including SQLite's locks.
            # Therefore the file must not be in use by another thread in between.
            with _CREATING, suppress(FileExistsError):
                _opened(self.path, "x").close()
            self._check_file()
            with self._connect() as connection:
                if not _tables(connection):  # other databases are left unchanged
                    if _rows(connection, "PRAGMA journal_mode = WAL") != [("wal",)]:
                        raise LedgerError(
                            "This file system does not support ledgers (no write-ahead log)."
                        )
                    _rows(connection, "BEGIN IMMEDIATE")
                    if not _tables(connection):  # no other process created them first
                        for statement in _SCHEMA:
                            connection.execute(statement)
                        marks = ", ".join("?" * len(_HEADER))
                        values = [header[name] for name in _HEADER]
                        connection.execute(f"INSERT INTO ledger VALUES ({marks})", values)
                        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                        connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
                    connection.execute("COMMIT")
                self._advance_head(connection)

    def open(self) -> dict[str, Any]:
        """The header, after checking the whole file."""
        header = self.read().header
        self.check_pages()
        self._header = header
        return header

    def read(self) -> Book:
        """The whole book, checked against the head."""
        with self._refusing(), self._transaction() as (_, book):
            return book

    def append(self, decide: Callable[[Book], Sequence[dict[str, Any]]]) -> None:
        """Append the lines that `decide` returns for the book; if it raises, append no line.

        They are on the disk when this returns. Other processes cannot write in between.
        """
        marks = ", ".join("?" * (len(_LINE) + 2))
        command = f"INSERT INTO charges (seq, hash, {', '.join(_LINE)}) VALUES ({marks})"
        with self._refusing(), self._transaction() as (connection, book):
            last = book.hashes[-1]
            for seq, line in enumerate(decide(book), start=len(book.hashes)):
                fields = [line[name] for name in _LINE]
                last = _digest(last, fields, line["gaussian"])
                connection.execute(command, [seq, last, *fields])
                if line["gaussian"]:
                    connection.execute("INSERT INTO gaussian VALUES (?)", [seq])
            connection.execute("COMMIT")
            self._advance_head(connection)

    def check_pages(self) -> None:
        """SQLite's own check of every page and index."""
        with self._refusing(), self._connect() as connection:
            problems = connection.execute("PRAGMA integrity_check").fetchall()
        if problems != [("ok",)]:
            raise LedgerError(f"{self.path.name} is damaged.")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Convert every failure of the files to a `LedgerError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The low byte is SQLite's primary result code; extended codes add detail above it.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            cause = _CAUSES.get(code, "cannot be used and may be damaged")
            raise LedgerError(f"{self.path.name} {cause}. No results are released.") from error
        except OSError as error:
            raise LedgerError(
                f"{self.path.name} or its head cannot be read or written. No results are released."
            ) from error

    def _check_file(self) -> None:
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            status = None
        if status is None:
            there = os.path.lexists(self.head)
            lost = "was deleted, but its head still exists" if there else "is missing"
            raise LedgerError(f"{self.path.name} {lost}. Restore it before spending any budget.")
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{self.path.name} is not a file.")
        # Check the mode bits, not os.access: root may write even to a file set read-only.
        if not status.st_mode & stat.S_IWUSR:
            raise LedgerError(f"{self.path.name} is read-only, so it cannot be charged.")
        if status.st_nlink > 1:
            # Two names would have two write-ahead logs and two heads for one budget.
            raise LedgerError(f"{self.path.name} is a hard link. A ledger must have a single name.")

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, Book]]:
        """The checked book under the write lock, so that head and database stay consistent."""
        self._check_file()
        with self._connect() as connection:
            _rows(connection, "BEGIN IMMEDIATE")
            yield connection, self._checked_book(connection)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A new connection; uncommitted changes are rolled back at the end."""
        address = f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()

    def _checked_book(self, connection: sqlite3.Connection) -> Book:
        """The book, or a `LedgerError` if the chain or the head shows a change."""
        book = _read_book(connection, self.path.name)
        head: dict[str, Any] | None = None
        try:
            with _opened(self.head, "r") as file:
                content = json.loads(file.read())
            if type(content["lines"]) is not int or content["lines"] < 0:
                raise ValueError("not a length")
            ledger, last = str(content["id"]), str(content["hash"])
            head = {"id": ledger, "lines": content["lines"], "hash": last}
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError):
            raise LedgerError(f"{self.head.name} is damaged.") from None
        if head is None and book.lines:
            # An unused ledger may lack its head, after a crash during creation.
            raise LedgerError(f"{self.head.name} is missing. Move a ledger together with its head.")
        if head is not None and head["id"] != book.header["id"]:
            raise LedgerError(f"{self.path.name} and {self.head.name} belong to different ledgers.")
        if head is not None and book.hashes[head["lines"] :][:1] != (head["hash"],):
            raise LedgerError(f"{self.path.name} was rolled back: charges are missing.")
        if self._header is not None and book.header != self._header:
            raise LedgerError(f"{self.path.name} was replaced by another ledger.")
        return book

    def _advance_head(self, connection: sqlite3.Connection) -> None:
        """Write the head from the committed chain, under the write lock and never backwards.

        A crash leaves either the old head or the new one.
        """
        _rows(connection, "BEGIN IMMEDIATE")
        book = self._checked_book(connection)
        head = {"id": book.header["id"], "lines": len(book.lines), "hash": book.hashes[-1]}
        # Two accounts that share the database also share the head.
        access = stat.S_IMODE(self.path.stat().st_mode) & 0o666
        # The name is unpredictable: a planted file or link would be detected, but would block us.
        draft = self.head.with_name(f"{self.head.name}.{secrets.token_hex(8)}.new")
        try:
            with _opened(draft, "x", access) as file:
                file.write(json.dumps(head))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.head)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if os.name == "posix":
            folder = os.open(self.head.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        connection.execute("ROLLBACK")


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    return [sql for (sql,) in _rows(connection, query)]


def _read_book(connection: sqlite3.Connection, name: str) -> Book:
    """The content of all tables, or a `LedgerError` if a stored hash is not the recomputed one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID:
        raise LedgerError(f"{name} is not a ledger.")
    if version != STORE_VERSION:
        raise LedgerError(
            f"{name} was created by another version of privcausal. Charge it with that version."
        )
    if sorted(_tables(connection)) != sorted(_SCHEMA):
        raise LedgerError(f"{name} was changed: its tables or triggers differ from a ledger's.")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        raise LedgerError(f"{name} was changed: it has no write-ahead log.")
    headers = connection.execute(f"SELECT {', '.join(_HEADER)} FROM ledger").fetchall()
    rows = connection.execute(
        f"SELECT seq, hash, {', '.join(_LINE)} FROM charges ORDER BY seq"
    ).fetchall()
    if len(headers) != 1:
        raise LedgerError(f"{name} is damaged: it has no header.")
    gaussian = {seq for (seq,) in connection.execute("SELECT seq FROM gaussian")}
    hashes = [_digest("", headers[0])]
    for expected, (seq, digest, *fields) in enumerate(rows, start=1):
        hashes.append(_digest(hashes[-1], fields, seq in gaussian))
        if seq != expected or digest != hashes[-1]:
            raise LedgerError(f"{name} was changed or is damaged at line {expected}.")
    if gaussian - {seq for seq, *_ in rows}:
        raise LedgerError(f"{name} was changed: it refers to charges that do not exist.")
    header = dict(zip(_HEADER, headers[0], strict=True))
    lines = tuple(
        dict(zip(_LINE, fields, strict=True), gaussian=seq in gaussian) for seq, _, *fields in rows
    )
    return Book(header, lines, tuple(hashes))


def _digest(previous: str, fields: Sequence[Any], gaussian: bool = False) -> str:
    if gaussian:
        fields = [*fields, "gaussian"]
    # `repr` handles types that only a damaged file can hold
    text = json.dumps([previous, *fields], separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _rows(connection: sqlite3.Connection, query: str) -> list[Any]:
    """Repeat a query while the file is busy: in WAL mode, some waits skip SQLite's own timeout."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _opened(path: Path, mode: str, access: int = _OWNER) -> IO[str]:
    """Open the file itself, never the target of a link in its place."""
    no_link = getattr(os, "O_NOFOLLOW", 0)  # does not exist on Windows
    return open(
        path,
        mode,
        encoding="ascii",
        opener=lambda name, flags: os.open(name, flags | no_link, access),
    )
