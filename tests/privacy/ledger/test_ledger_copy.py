"""Copies and upgrades of ledgers: complete, verified, and never half made."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ledgers import ADULT, an_entry, connected, messages, tamper
from typer.testing import CliRunner

from parley.client.data.multiset_digest import digest_rows
from parley.commands.ledger import ledger_app
from parley.privacy.ledger import ledger_copy
from parley.privacy.ledger.database import Database
from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_schema import VERSION, build_select
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_copy import copy_ledger, upgrade_ledger
from parley.privacy.ledger.ledger_errors import (
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    LedgerUnavailable,
    NotALedger,
)
from parley.privacy.ledger.replay import LedgerProblem
from parley.privacy.ledger.table_access import LedgerReader

VERSION_6 = Path(__file__).parents[2] / "vectors" / "ledger-version-6.sql"
RECORDS = digest_rows(np.random.default_rng(4).normal(size=(10, 3)), np.zeros(10))
ROWS = RECORDS.digests
B = replace(ADULT, name="b", fingerprint="sha256:b", contents=str(RECORDS), rows=ROWS)


@pytest.fixture(autouse=True)
def _own_user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old" / "ledger.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_6.read_text(encoding="utf-8"))
    return path


def content(url: str | Path) -> dict[str, list[dict[str, object]]]:
    with closing(Database(url, create=False, read_only=True)) as place, place.open_reader() as own:
        tables = ("records", "accounts", "rows", "checkpoints", "head")
        return {
            name: sorted(own.connection.fetch_rows(build_select(f"parley_ledger_{name}")), key=str)
            for name in tables
        }


def test_a_copy_of_a_ledger_in_use_continues_where_the_ledger_was(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    ledger.register(B)
    (permit,) = ledger.reserve((an_entry(),))
    ledger.commit((permit.id,), outcome={"survivors": 5}, checkpoint=b"model")
    ledger.reserve((an_entry(2),))
    copy = tmp_path / "copies" / "ledger.sqlite"
    copy.parent.mkdir()
    assert copy_ledger(ledger_url, copy) == ledger.get_head()  # the ledger is open for writing
    files = ["ledger.sqlite", "ledger.sqlite.key"]
    assert sorted(path.name for path in copy.parent.iterdir()) == files
    assert {stat.S_IMODE(path.stat().st_mode) for path in copy.parent.iterdir()} == {0o600}
    assert content(copy) == content(ledger_url)
    with Ledger.open(copy) as restored:
        assert restored.verify(anchor=ledger.get_head()) == []
        assert restored.count_shared_rows(ROWS[:4]) == {"b": 4}
        assert restored.reserve((an_entry(2),))[0].resumed
        restored.reserve((an_entry(3),))
        with pytest.raises(LedgerCorrupt, match="older copy was put back"):
            ledger.check_contains(restored.get_head())


def test_a_ledger_moves_to_postgresql_and_back(ledger_url: str, tmp_path: Path) -> None:
    if "://" not in ledger_url:
        pytest.skip("needs a PostgreSQL server")
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.register(replace(ADULT, contents=str(RECORDS), rows=ROWS))
        ledger.reserve((an_entry(),))
    copy_ledger(tmp_path / "ledger.sqlite", ledger_url)
    copy_ledger(ledger_url, tmp_path / "back.sqlite")
    assert content(ledger_url) == content(tmp_path / "back.sqlite")
    with Ledger.open(ledger_url) as moved:
        assert moved.count_shared_rows(ROWS) == {"adult": 10}
        assert moved.verify() == []
    with pytest.raises(LedgerConflict, match="there is one with 2 records"):
        copy_ledger(tmp_path / "ledger.sqlite", ledger_url)


def test_a_copy_replaces_nothing_and_leaves_nothing_when_it_fails(
    ledger: Ledger, ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.register(B)
    ledger.reserve((an_entry(),))
    folder = tmp_path / "copies"
    folder.mkdir()
    (folder / "taken").write_text("something else")
    with pytest.raises(LedgerConflict, match=r"no file at .*, got one"):
        copy_ledger(ledger_url, folder / "taken")
    assert (folder / "taken").read_text() == "something else"
    with pytest.raises(LedgerUnavailable, match="No such file"):
        copy_ledger(ledger_url, folder / "missing" / "ledger.sqlite")
    key = folder / "new.sqlite.key"
    key.write_bytes(b"k" * 32)
    with pytest.raises(LedgerConflict, match="got another"):
        copy_ledger(ledger_url, folder / "new.sqlite")
    assert key.read_bytes() == b"k" * 32
    copy_rows = ledger_copy.copy_rows

    def copy_and_lose(reader: LedgerReader, connection: DatabaseConnection) -> None:
        copy_rows(reader, connection)
        connection.execute("DELETE FROM parley_ledger_records WHERE position = 2")

    monkeypatch.setattr(ledger_copy, "copy_rows", copy_and_lose)
    with pytest.raises(LedgerCorrupt, match="record 2 is missing"):
        copy_ledger(ledger_url, folder / "lost.sqlite")
    assert sorted(path.name for path in folder.iterdir()) == ["new.sqlite.key", "taken"]
    tamper(ledger_url, "UPDATE parley_ledger_records SET run_id = 'x' WHERE position = 3")
    with pytest.raises(LedgerCorrupt, match="Record 3"):
        copy_ledger(ledger_url, folder / "edited.sqlite")


def test_an_old_ledger_is_read_and_written_only_after_its_upgrade(old: Path) -> None:
    with Ledger.open(old, read_only=True) as ledger:
        assert ledger.verify() == []
        before = [each.to_json() for each in ledger.list_accounts()]
        head = ledger.get_head()
    with pytest.raises(NotALedger, match=r"version 6, which can be read only\. `parley ledger upg"):
        Ledger.open(old)
    run = CliRunner()
    said = run.invoke(ledger_app, ["upgrade", str(old)])
    assert (said.exit_code, said.output) == (
        0,
        f"Version 6 was copied to {old}.version-6.\nUpgraded and verified.\n"
        f"  {head.records} lines in its log, hash {head.hash}\n",
    )
    with Ledger.open(old) as ledger:
        assert ledger.verify(anchor=head) == []
        assert [each.to_json() for each in ledger.list_accounts()] == before
    again = run.invoke(ledger_app, ["upgrade", str(old)])
    assert "current version" in again.output
    kept = old.with_name("ledger.sqlite.version-6")
    with Ledger.open(kept, read_only=True) as ledger:
        assert ledger.verify(anchor=head) == []
    assert content(kept)["head"][0]["version"] == 6
    assert content(old) == content(kept) | {"head": [content(kept)["head"][0] | {"version": 7}]}


def test_an_upgrade_that_was_killed_after_its_copy_is_repeated(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = old.with_name("ledger.sqlite.version-6")
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseConnection, "update", _fail_after_the_copy(kept))
        with pytest.raises(KeyboardInterrupt):
            upgrade_ledger(old)
    assert kept.exists()
    made = upgrade_ledger(old)
    assert made is not None
    with Ledger.open(old) as ledger:
        assert ledger.get_head() == made.head


def _fail_after_the_copy(kept: Path):
    update = DatabaseConnection.update

    def fail(self, *arguments):
        if kept.exists():
            raise KeyboardInterrupt
        return update(self, *arguments)

    return fail


def test_a_key_that_is_there_is_readable_by_its_owner_only(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    ledger.register(B)
    ledger.reserve((an_entry(),))
    copy_ledger(ledger_url, tmp_path / "first.sqlite")
    key = tmp_path / "second.sqlite.key"
    (tmp_path / "first.sqlite.key").rename(key)
    key.chmod(0o644)
    copy_ledger(ledger_url, tmp_path / "second.sqlite")
    assert key.stat().st_mode & 0o777 == 0o600


def test_an_upgrade_that_fails_leaves_the_old_ledger(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(old, old.with_name("edited.sqlite"))
    tamper(str(old.with_name("edited.sqlite")), "DELETE FROM parley_ledger_accounts")
    with pytest.raises(LedgerCorrupt, match="Expected a sound ledger"):
        upgrade_ledger(old.with_name("edited.sqlite"))
    old.with_name("taken").write_text("")
    with pytest.raises(LedgerConflict, match=r"no file at .*, got one"):
        upgrade_ledger(old, old.with_name("taken"))
    before = content(old)
    find = ledger_copy.find_problems

    def find_afterwards(self: LedgerReader, *given: ChainHead) -> list[LedgerProblem]:
        made = [LedgerProblem(position=0, message="not sound afterwards")]
        # The copy has version 6, too: only the upgraded ledger fails.
        return made if self.version == VERSION else find(self, *given)

    monkeypatch.setattr(ledger_copy, "find_problems", find_afterwards)
    with pytest.raises(LedgerCorrupt, match="not sound afterwards"):
        upgrade_ledger(old)
    monkeypatch.undo()
    assert content(old) == before
    assert sorted(path.name for path in old.parent.iterdir()) == [
        "edited.sqlite",
        "ledger.sqlite",
        "ledger.sqlite.version-6",
        "taken",
    ]


def test_an_old_ledger_on_postgresql_is_upgraded_next_to_a_copy_in_a_file(
    ledger_url: str, old: Path, tmp_path: Path
) -> None:
    if "://" not in ledger_url:
        pytest.skip("needs a PostgreSQL server")
    copy_ledger(old, ledger_url)
    assert content(ledger_url) == content(old)
    with pytest.raises(LedgerError, match="--copy"):
        upgrade_ledger(ledger_url)
    upgrade_ledger(ledger_url, tmp_path / "kept.sqlite")
    assert content(tmp_path / "kept.sqlite") == content(old)
    with Ledger.open(ledger_url) as ledger:
        assert messages(ledger) == []


def test_a_process_that_has_an_old_ledger_open_cannot_write_after_the_upgrade(old: Path) -> None:
    upgrade_ledger(old)
    with Ledger.open(old) as ledger:
        with connected(str(old)) as other:
            other.execute("UPDATE parley_ledger_head SET version = 8")
        with pytest.raises(NotALedger, match="got version 8, which a newer Parley wrote"):
            ledger.reserve((an_entry(),))
