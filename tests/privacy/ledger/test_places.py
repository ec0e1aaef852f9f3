"""Where a ledger may lie, and what goes wrong there: other files, full disks, lost connections."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from ledger_children import commit_and_reserve
from ledgers import ADULT, TENTH, an_entry, connected, messages, tamper, with_parts

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerError, LedgerUnavailable, NotALedger
from parley.privacy.ledger.table_access import LATEST


def test_a_ledger_opened_to_read_refuses_changes(ledger: Ledger, ledger_url: str) -> None:
    ledger.reserve((an_entry(),))
    with Ledger.open(ledger_url, read_only=True) as reader:
        assert reader.verify() == []
        assert reader.get_account("adult", Unit.RECORD).spent.releases == 1
        with pytest.raises(LedgerError, match="read-only"):
            reader.reserve((an_entry(2),))


@pytest.mark.parametrize("how", [{"create": False}, {"read_only": True}])
def test_where_there_is_no_ledger_none_is_made_unless_asked(
    ledger_url: str, how: dict[str, bool]
) -> None:
    for _ in range(2):
        with pytest.raises(NotALedger, match="there is none"):
            Ledger.open(ledger_url, **how)


# What else is different in a ledger of that version; of 8 nobody knows.
VERSIONS = {
    1: ["DROP TABLE parley_ledger_accounts", "CREATE TABLE parley_ledger_datasets (name TEXT)"],
    2: ["ALTER TABLE parley_ledger_records DROP COLUMN unit"],
    3: ["CREATE TABLE parley_ledger_revision (version_num TEXT)"],
    4: ["DROP TABLE parley_ledger_rows", "ALTER TABLE parley_ledger_accounts DROP COLUMN rows"],
    5: ["ALTER TABLE parley_ledger_rows DROP COLUMN block"],
    8: [],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_ledger_of_another_version_is_refused_by_its_number_with_what_to_do(
    ledger_url: str, version: int, read_only: bool
) -> None:
    Ledger.open(ledger_url).close()
    tamper(ledger_url, f"UPDATE parley_ledger_head SET version = {version}", *VERSIONS[version])
    advice = "a newer Parley wrote. Install that" if version > 7 else ".* that wrote it"
    refusal = rf"Expected parley-ledger version 7 at .*, got version {version}.*{advice}"
    for _ in range(2):  # it is left as it is
        with pytest.raises(NotALedger, match=refusal):
            Ledger.open(ledger_url, read_only=read_only)


def test_a_ledger_of_another_version_in_the_place_of_an_open_one_is_refused(
    ledger: Ledger, ledger_url: str
) -> None:
    tamper(ledger_url, "UPDATE parley_ledger_head SET version = 8")
    for step in (ledger.list_accounts, ledger.verify, lambda: ledger.reserve((an_entry(),))):
        with pytest.raises(NotALedger, match="got version 8"):
            step()


def test_a_release_is_searched_for_by_its_number_however_long_its_run_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {LATEST}", [None] * LATEST.count("?"))
        assert "(run_id=? AND dataset=? AND index=?)" in plan.fetchone()[3]


def test_a_new_ledger_waits_for_whoever_reads_its_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(sqlite3.OperationalError, match="locked"):  # no file in WAL mode, for now
        sqlite3.connect(path).execute("PRAGMA journal_mode=WAL")
    leaves = threading.Timer(0.1, reader.close)
    leaves.start()
    with Ledger.open(path) as ledger:
        assert not leaves.is_alive() or leaves.finished.is_set()
        assert ledger.verify() == []


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="was closed"):
        ledger.list_entries()


def test_a_password_is_never_shown(ledger_url: str, tmp_path: Path) -> None:
    if "://" not in ledger_url:
        pytest.skip("a SQLite file has no password")
    url = urlsplit(ledger_url)
    with Ledger.open(ledger_url) as ledger:
        assert str(url.password) not in repr(ledger)
        assert str(url.hostname) in repr(ledger)
    for wrong in ({"password": "hunter2"}, {"port": 1}, {"path": "/hunter2x"}):
        with pytest.raises(LedgerUnavailable, match="The connection to") as refusal:
            Ledger.open(with_parts(ledger_url, **wrong))
        shown = f"{refusal.value!r} {refusal.value.__cause__!r}".replace("/hunter2x", "")
        assert "hunter2" not in shown
        assert str(url.password) not in shown


def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    for url in ("postgresql://u:hunter2@host:port/x", "mysql://u:hunter2@host/x"):
        with pytest.raises(LedgerError, match="Expected") as refusal:
            Ledger.open(url)
        assert "hunter2" not in str(refusal.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerUnavailable, match=r"pip install 'parley\[postgres\]'"):
        Ledger.open("postgresql://u:hunter2@127.0.0.1/x")


def test_a_lost_connection_is_reported_and_the_next_step_connects_again(
    ledger: Ledger, ledger_url: str
) -> None:
    if "://" not in ledger_url:
        pytest.skip("a SQLite file has no connection")
    schema = ledger_url.rpartition("=")[2]
    with connected(ledger_url.partition("?")[0]) as connection:
        # The fixture calls its connections by the schema.
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        assert len(connection.execute(end, (schema,)).fetchall()) == 1
    ledger.reserve((an_entry(),))
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a database " * 100, "another kind"), ("CREATE TABLE other (x)", "with table 'other'")],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(
    tmp_path: Path, content: bytes | str, message: str
) -> None:
    path = tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(content)
        connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(NotALedger, match=message):
            Ledger.open(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "no path"),
        (":memory:", "on disk"),
        ("sqlite://", "no path"),
        ("missing/ledger.sqlite", "directory"),
        (".", "is a directory"),
    ],
)
def test_a_place_that_cannot_hold_a_ledger_is_refused(target: str, message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        Ledger.open(target)


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "50% of ?ε #1.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    with Ledger.open(f"sqlite:///{path}", create=False) as ledger:
        assert [total.budget for total in ledger.list_accounts()] == [ADULT]


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    beyond = path.stat().st_size  # the pages that each table and index begins with
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
        for index in range(1, 11):
            ledger.reserve((an_entry(index),))
    content = bytearray(path.read_bytes())
    content[beyond:] = b"\xff" * (len(content) - beyond)
    path.write_bytes(content)
    with Ledger.open(path) as ledger:
        assert messages(ledger)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root to mount a small file system")
    command = [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_spends_nothing_and_room_again_lets_the_run_go_on(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
        reservation = ledger.reserve((an_entry(1),))[0]
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        head = ledger.get_head()
        for _ in range(3):
            with pytest.raises(LedgerUnavailable, match=r"Cannot write .*ledger.sqlite.*full") as e:
                commit_and_reserve(
                    ledger, reservation.id, outcome={}, checkpoint=b"m" * 99_000, entry=an_entry(2)
                )
            assert "nothing is spent" in str(e.value)
        assert ledger.get_head() == head
        assert ledger.get_account("adult", Unit.RECORD).spent.releases == 1
        ballast.unlink()
        commit_and_reserve(ledger, reservation.id, outcome={}, checkpoint=b"m", entry=an_entry(2))
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        assert ledger.get_account("adult", Unit.RECORD).spent.releases == 2
        assert ledger.verify() == []


def test_a_read_only_file_system_can_be_read_and_is_said_to_be_one(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
    for place in (path, small_disk / "new.sqlite"):
        with pytest.raises(LedgerUnavailable, match=f"at {place} cannot be read and written"):
            Ledger.open(place)


def test_every_step_waits_for_the_disk(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's `synchronous` is 2 (FULL), PostgreSQL's `synchronous_commit` on, at every commit."""
    levels, commit = [], DatabaseConnection.commit

    def noted(self: DatabaseConnection) -> None:
        (row,) = self.fetch_rows(
            "SHOW synchronous_commit" if self.postgresql else "PRAGMA synchronous"
        )
        levels.extend(row.values())
        commit(self)

    monkeypatch.setattr(DatabaseConnection, "commit", noted)
    ledger.hold("run-1", {ADULT.key: ((TENTH, 3),)})
    reservation = ledger.reserve((an_entry(1),))[0]
    next_one = commit_and_reserve(ledger, reservation.id, outcome={}, entry=an_entry(2))
    ledger.void((next_one.id,), "too few")
    ledger.end_hold("run-1")
    assert levels == ["on" if "://" in ledger_url else 2] * 5


def test_a_ledger_whose_write_ahead_log_was_switched_off_is_still_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    with Ledger.open(path) as ledger:
        ledger.reserve((an_entry(),))
        assert not path.with_name("ledger.sqlite-wal").exists()
        assert ledger.get_account("adult", Unit.RECORD).spent.releases == 1
