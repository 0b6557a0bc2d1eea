"""Crashes, races, damage and old copies: never under-charged, and closed when in doubt."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import threading
import time

import ledger_fire as fire
import pytest
from ledger_fire import Gate, finish, start

from privcausal.accounting import Ledger, rho_of, store
from privcausal.errors import BudgetError, LedgerError

CAP = rho_of(2, 1e-5)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def copy(path, to):
    """All files of a ledger, for putting them back later."""
    to.mkdir()
    for file in path.parent.glob("study.db*"):
        shutil.copy2(file, to)
    return to


def used(ledger, charge, runs=("a", "b", "c")):
    for run in runs:
        ledger.charge(run, [charge(rho=10), charge(rho=20, gdp=True)])
    return ledger


def refused(path):
    """Whether every way in is closed."""
    with pytest.raises(LedgerError):
        Ledger(path, "rhc", 2)
    with pytest.raises(LedgerError):
        Ledger.open(path)
    return True


def edit(path, *statements, triggers=False):
    """Change the database behind the ledger's back, by default without its triggers."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        if not triggers:
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type='trigger'"
            ):
                connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        if not triggers:
            for statement in store._SCHEMA[3:]:
                connection.execute(statement)


# crashes


@pytest.mark.slow
@needs_fork
def test_killed_at_any_step_never_loses_an_answered_charge():
    """Steps spread over all of a charge; `tests/benchmarks/trust.py` takes every one."""
    assert fire.killed_at_every_step(40) == 40


@needs_fork
@pytest.mark.parametrize("place", fire.PLACES)
def test_killed_within_a_fit(place):
    assert fire.killed_within_a_fit(place, 2) == 2


@pytest.mark.slow
@needs_fork
def test_killed_while_created(tmp_path):
    rng = random.Random(21)
    for kill in range(20):
        path = tmp_path / f"{kill}.db"
        pid, reader = start(lambda report, path=path: Ledger(path, "rhc", 2))
        time.sleep(rng.uniform(0.0, 0.01))
        os.kill(pid, signal.SIGKILL)
        finish((pid, reader))
        assert Ledger(path, "rhc", 2).fits == 0


@needs_fork
@pytest.mark.parametrize("step", ["_check_cap", "_advance_head"])
def test_killed_at_a_step_charges_at_most_once_too_often(ledger, charge, monkeypatch, step):
    used(ledger, charge)
    after = step == "_advance_head"  # the head is written after the commit

    def die(*args):
        os.kill(os.getpid(), signal.SIGKILL)

    def spend(report):
        monkeypatch.setattr(store.Store if after else Ledger, step, die)
        ledger.charge("d", [charge(rho=1)])
        report()

    assert finish(start(spend)) == (0, False)
    assert ledger.fits == 3 + after
    ledger.charge("e", [charge(rho=1)])
    ledger.verify()


@pytest.mark.slow
@needs_fork
def test_a_full_disk_never_answers_without_a_charge():
    assert fire.full_disk(range(6_000, 80_000, 15_000)) == 5


def test_a_disk_that_fails_at_any_write_never_answers_without_a_charge():
    assert fire.failing_writes() == 7


# races


@pytest.mark.slow
@needs_fork
def test_eight_processes_spend_exactly_the_cap():
    assert fire.processes_to_an_exact_cap(1) == 1


@pytest.mark.slow
@needs_fork
def test_eight_processes_create_one_ledger(path, charge):
    gate = Gate()

    def create(report, name):
        gate.wait()
        Ledger(path, "rhc", 2).charge(f"{name}", [charge(rho=1)])
        report()

    children = [start(lambda report, name=name: create(report, name)) for name in range(8)]
    gate.open()
    assert [finish(child) for child in children] == [(1, True)] * 8
    assert Ledger.open(path).fits == 8


@needs_fork
def test_one_run_is_answered_once(ledger, charge):
    gate = Gate()

    def spend(report):
        gate.wait()
        with contextlib.suppress(LedgerError):
            ledger.charge("same", [charge(rho=1)])
            report()

    children = [start(spend) for _ in range(6)]
    gate.open()
    assert sum(finish(child)[0] for child in children) == 1
    assert ledger.fits == 1


@pytest.mark.slow
def test_threads_share_a_ledger(ledger, charge):
    price, line, failures = CAP // 30, threading.Barrier(6), []

    def spend(name):
        line.wait()
        for k in range(8):
            try:
                ledger.charge(f"{name}-{k}", [charge(rho=price)])
            except BudgetError:
                failures.append(name)

    threads = [threading.Thread(target=spend, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.fits == 30
    assert len(failures) == 18


def test_a_locked_ledger_waits_and_then_refuses(ledger, path, charge, limits):
    opened = contextlib.closing(sqlite3.connect(path, isolation_level=None))
    with opened as other, limits(BUSY_SECONDS=0.2):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another process"):
            ledger.charge("a", [charge(rho=1)])
        assert "locked" in repr(ledger)
    ledger.charge("a", [charge(rho=1)])
    assert ledger.fits == 1


# damage, edits and old copies


def test_triggers_block_update_delete_and_replace(ledger, path, charge):
    used(ledger, charge)
    for statement in (
        "UPDATE charges SET rho = 0",
        "UPDATE ledger SET epsilon = 100",
        "DELETE FROM charges WHERE seq = 6",
        "DELETE FROM ledger",
        "INSERT INTO ledger SELECT * FROM ledger",
        "INSERT OR REPLACE INTO charges SELECT * FROM charges WHERE seq = 1",
        "INSERT INTO charges SELECT 9, run || 'x', line, day, published, stage, query, mechanism,"
        " neighbors, sensitivity, noise_sd, rho, epsilon, delta, rows, unit, hash FROM charges"
        " LIMIT 1",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            edit(path, statement, triggers=True)
    ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET rho = 0 WHERE seq = 2",
        "UPDATE charges SET run = 'z' WHERE seq = 6",
        "UPDATE charges SET noise_sd = NULL WHERE seq = 1",
        "UPDATE charges SET unit = 'id (at most 5 rows)'",
        "UPDATE charges SET unit = 'Row' WHERE seq = 6",
        "UPDATE charges SET hash = 'x' WHERE seq = 6",
        "DELETE FROM charges WHERE seq = 6",
        "DELETE FROM charges WHERE seq = 1",
        "DELETE FROM charges",
        "UPDATE ledger SET epsilon = 100",
        "UPDATE ledger SET allow_published = 1",
        "UPDATE ledger SET id = 'x'",
        "DELETE FROM ledger",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 0",
        "INSERT INTO gaussian VALUES (1)",
        "DELETE FROM gaussian",
        "PRAGMA application_id = 0",
        "DROP TABLE charges",
        "DROP TRIGGER charges_no_update",
        "CREATE TABLE more (x)",
    ],
)
def test_an_edit_is_noticed(ledger, path, charge, statement):
    used(ledger, charge)
    if statement.startswith("DROP"):
        edit(path, statement, triggers=True)
    else:
        edit(path, statement)
    assert refused(path)
    for call in (lambda: ledger.charge("d", [charge(rho=1)]), ledger.verify, lambda: ledger.spent):
        with pytest.raises(LedgerError):
            call()
    assert "unusable" in repr(ledger)


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_named(ledger, path, version):
    edit(path, f"PRAGMA user_version = {version}", triggers=True)
    with pytest.raises(LedgerError, match="another version of privcausal"):
        Ledger.open(path)


@pytest.mark.slow
def test_damaged_bytes_change_no_answer():
    assert fire.damaged_bytes(120) == 120


def test_a_file_cut_short_is_refused():
    assert fire.cut_short(20) == 20


def test_a_deleted_file(ledger, path, charge):
    used(ledger, charge)
    path.unlink()
    with pytest.raises(LedgerError, match="was deleted"):
        Ledger(path, "rhc", 2)
    with pytest.raises(LedgerError, match="was deleted"):
        ledger.charge("d", [charge(rho=1)])
    assert not path.exists()


def test_both_files_deleted_under_an_open_ledger(ledger, path, charge):
    used(ledger, charge)
    path.unlink()
    os.unlink(f"{path}.head")
    with pytest.raises(LedgerError, match="is missing"):
        ledger.charge("d", [charge(rho=1)])
    Ledger(path, "rhc", 2)  # a new budget, openly begun anew
    with pytest.raises(LedgerError, match="replaced by another"):
        ledger.charge("d", [charge(rho=1)])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"id": 1, "lines": -1, "hash": ""}', "é"])
def test_a_damaged_head(ledger, path, charge, text):
    used(ledger, charge)
    path.with_name("study.db.head").write_text(text, encoding="utf-8")
    assert refused(path)


def test_a_deleted_head(ledger, path, charge):
    used(ledger, charge)
    os.unlink(f"{path}.head")
    assert refused(path)


def test_an_old_copy_of_the_database(ledger, path, charge, tmp_path):
    used(ledger, charge)
    old = copy(path, tmp_path / "old")
    ledger.charge("d", [charge(rho=1)])
    shutil.copy2(old / "study.db", path)
    with pytest.raises(LedgerError, match="rolled back: charges are missing"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="rolled back"):
        ledger.charge("e", [charge(rho=1)])


def test_an_old_copy_that_was_then_used(ledger, path, charge, tmp_path):
    used(ledger, charge)
    old = copy(path, tmp_path / "old")
    used(ledger, charge, "de")
    # the same length as the honest chain, but another chain
    head = (tmp_path / "study.db.head").read_bytes()
    for file in old.iterdir():
        shutil.copy2(file, tmp_path)
    used(Ledger.open(path), charge, "xyz")
    (tmp_path / "study.db.head").write_bytes(head)
    with pytest.raises(LedgerError, match="rolled back"):
        Ledger.open(path)


def test_a_lost_write_ahead_log(ledger, path, charge, tmp_path):
    used(ledger, charge)
    with contextlib.closing(sqlite3.connect(path)) as reader:
        reader.execute("SELECT count(*) FROM charges").fetchall()  # keeps the log from being merged
        ledger.charge("d", [charge(rho=1)])
        crashed = copy(path, tmp_path / "crashed")
    crashed_path = crashed / "study.db"
    assert (crashed / "study.db-wal").stat().st_size > 0
    whole = copy(crashed_path, tmp_path / "whole") / "study.db"
    assert Ledger.open(whole).fits == 4  # SQLite replays the log
    (crashed / "study.db-wal").unlink()
    with pytest.raises(LedgerError, match="rolled back"):
        Ledger.open(crashed_path)


def test_a_head_that_is_behind_is_a_crash_and_not_a_fraud(ledger, path, charge):
    used(ledger, charge)
    file = path.with_name("study.db.head")
    head = file.read_text()
    ledger.charge("d", [charge(rho=1)])
    file.write_text(head)
    assert Ledger.open(path).fits == 4
    ledger.charge("e", [charge(rho=1)])
    assert file.read_text() != head


def test_swapped_ledgers(tmp_path, charge):
    for name in ("one", "two"):
        used(Ledger(tmp_path / f"{name}.db", "rhc", 2), charge)
    (tmp_path / "one.db").replace(tmp_path / "three.db")
    (tmp_path / "two.db").replace(tmp_path / "one.db")
    with pytest.raises(LedgerError, match="belong to different ledgers"):
        Ledger.open(tmp_path / "one.db")


def test_a_read_only_ledger(ledger, path, charge):
    used(ledger, charge)
    path.chmod(0o444)
    with pytest.raises(LedgerError, match="read-only"):
        Ledger(path, "rhc", 2)
    with pytest.raises(LedgerError, match="read-only"):
        ledger.charge("d", [charge(rho=1)])
    path.chmod(0o644)
    assert ledger.fits == 3


def test_a_hard_link_is_refused(ledger, path, tmp_path, charge):
    os.link(path, tmp_path / "second.db")
    with pytest.raises(LedgerError, match="hard link"):
        Ledger.open(tmp_path / "second.db")
    with pytest.raises(LedgerError, match="hard link"):
        ledger.charge("a", [charge(rho=1)])


def test_a_head_that_cannot_be_written_stops_the_release(ledger, charge, broken):
    used(ledger, charge)
    full = broken("accounting.store.os.fsync", OSError(28, "No space left on device"))
    with full, pytest.raises(LedgerError, match="No results are released"):
        ledger.charge("d", [charge(rho=1)])
    assert ledger.fits == 4  # spent, and not refunded


@pytest.mark.parametrize("kind", ["file", "database"])
def test_what_is_a_stranger_s_is_left_alone(path, kind):
    if kind == "file":
        path.write_text("age,ward\n44,A\n")
    else:
        edit(path, "CREATE TABLE patients (name)", triggers=True)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(path, "rhc", 2)
    assert path.read_bytes() == before
    assert not os.path.exists(f"{path}.head")


def test_an_error_inside_a_charge_spends_nothing(ledger, charge, broken):
    step = "accounting.ledger.Ledger._check_cap"
    with broken(step, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        ledger.charge("a", [charge(rho=1)])
    assert ledger.fits == 0
    ledger.charge("a", [charge(rho=1)])


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_a_link_to_another_ledger_put_in_its_place(tmp_path, charge):
    """Between opening and charging; the other ledger has room, and must not pay."""
    mine, other = Ledger(tmp_path / "mine.db", "rhc", 1), Ledger(tmp_path / "other.db", "rhc", 99)
    for end in ("", ".head"):
        (tmp_path / f"mine.db{end}").rename(tmp_path / f"kept.db{end}")
        os.symlink(tmp_path / f"other.db{end}", tmp_path / f"mine.db{end}")
    with pytest.raises(LedgerError, match="not a file"):
        mine.charge("run", [charge(rho=10)])
    assert other.history.empty


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_a_head_that_is_a_link_is_not_followed(ledger, path, charge, tmp_path):
    used(ledger, charge)
    head = tmp_path / "study.db.head"
    head.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", head)
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(LedgerError, match="its head cannot be read"):
        ledger.charge("d", [charge(rho=1)])
    assert (tmp_path / "elsewhere").read_bytes() == before
    head.unlink()
    os.symlink(tmp_path / "nowhere", head)  # a head that is a link to nothing is no new ledger
    path.unlink()
    assert refused(path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
@pytest.mark.parametrize("name", ["study.db.head.new", "study.db.head.0.new"])
def test_a_link_in_the_place_of_a_draft_leads_nowhere(ledger, charge, tmp_path, name, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.symlink(victim, tmp_path / name)
    ledger.charge("a", [charge(rho=1)])
    with monkeypatch.context() as patch:  # even where the name is guessed
        patch.setattr(store.secrets, "token_hex", lambda size: "0")
        with contextlib.suppress(LedgerError):
            ledger.charge("b", [charge(rho=1)])
    assert victim.read_text() == "precious"
    assert not os.path.islink(tmp_path / "study.db.head")
    ledger.charge("c", [charge(rho=1)])


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_the_files_are_their_owner_s_alone(tmp_path, charge):
    before = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "study.db", "rhc", 2)
        with contextlib.closing(sqlite3.connect(tmp_path / "study.db")) as reader:
            reader.execute("SELECT count(*) FROM charges").fetchall()  # keeps the log there
            ledger.charge("a", [charge(rho=1)])
            found = {p.name: oct(p.stat().st_mode & 0o777) for p in tmp_path.iterdir()}
    finally:
        os.umask(before)
    names = ("study.db", "study.db.head", "study.db-wal", "study.db-shm")
    assert found == dict.fromkeys(names, "0o600")


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_a_ledger_that_two_accounts_share_keeps_its_mode(ledger, path, charge, tmp_path):
    path.chmod(0o640)
    ledger.charge("a", [charge(rho=1)])
    assert (tmp_path / "study.db.head").stat().st_mode & 0o777 == 0o640


def test_the_path_of_a_ledger_is_no_address(tmp_path, charge, monkeypatch):
    """SQLite would read `?mode=memory` in one, and forget the charges."""
    monkeypatch.chdir(tmp_path)
    strange = ("a b?mode=memory.db", "100%41.db", "#x&y=z.db", "é'\".db", "no_suffix")
    addresses = ("x?mode=memory", "file:y.db?mode=memory&cache=shared", "z%3fmode=memory#")
    for name in strange + addresses:
        Ledger(name, "rhc", 1).charge("run", [charge(rho=10)])
        assert (tmp_path / name).stat().st_size > 0
        assert len(Ledger.open(tmp_path / name).history) == 1
