"""A file that calls itself a ledger is held to what a ledger is before a row of it is read."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import ADULT, an_entry

from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerCorrupt, LedgerError, NotALedger

RECORDS = "parley_ledger_records"
ROWS = "SELECT 1 position, '' kind, '' dataset, '' unit, '' run_id, 1 \"index\", 1 reservation,"
FORGED = {
    "a view in a table's place": f"""
        ALTER TABLE {RECORDS} RENAME TO kept; DROP INDEX parley_ledger_releases;
        CREATE VIEW {RECORDS} AS {ROWS} '' body, '' hash""",
    "another view": "CREATE VIEW more AS SELECT 1",
    "a trigger": f"CREATE TRIGGER t AFTER INSERT ON {RECORDS} BEGIN DELETE FROM {RECORDS}; END",
    "a virtual table": "CREATE VIRTUAL TABLE parley_ledger_datasets USING fts5(name)",
    "a computed column": f"ALTER TABLE {RECORDS} ADD COLUMN more TEXT AS (hex(zeroblob(9)))",
    "a column more": f"ALTER TABLE {RECORDS} ADD COLUMN more TEXT",
    "a column less": "ALTER TABLE parley_ledger_checkpoints DROP COLUMN data",
    "a table more": "CREATE TABLE more (x)",
    "an index more": f"CREATE INDEX more ON {RECORDS} (abs(position))",
}


def made(path: Path, releases: int = 3) -> Path:
    with Ledger.open(path) as ledger:
        ledger.register(replace(ADULT, epsilon=1000.0))
        for index in range(1, releases + 1):
            (reserved,) = ledger.reserve([an_entry(index)])
            ledger.commit([reserved.id], outcome={}, checkpoint=b"theta" * 50)
    return path


@pytest.mark.parametrize("script", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("read_only", [True, False])
def test_what_is_no_table_of_a_ledgers_columns_is_refused_before_a_row_is_read(
    tmp_path: Path, script: str, read_only: bool
) -> None:
    path = made(tmp_path / "ledger.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    with pytest.raises(NotALedger, match="Expected the tables of a ledger"):
        Ledger.open(path, create=False, read_only=read_only)


@pytest.mark.parametrize("end", ["", "-wal", "-journal"])
@pytest.mark.parametrize("kind", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_pipe_or_a_device_is_no_ledger_and_nothing_waits_for_it(
    tmp_path: Path, end: str, kind: Callable[[Path], None]
) -> None:
    path = made(tmp_path / "ledger.sqlite")
    place = path.with_name(path.name + end)
    place.unlink(missing_ok=True)
    kind(place)
    with pytest.raises(NotALedger, match="Expected a regular file"):
        Ledger.open(path, create=False, read_only=True)


def test_pages_that_are_each_others_children_end_where_the_file_ends(tmp_path: Path) -> None:
    """300 to the power of 15 rows, stored in 16 pages."""
    path = made(tmp_path / "ledger.sqlite", releases=1)
    rewire(path, lambda size: interior_pages(size, levels=15))
    with (
        Ledger.open(path, create=False, read_only=True) as ledger,
        pytest.raises(LedgerCorrupt, match=r"out of it|sound database"),
    ):
        ledger.list_entries()


def test_values_that_share_their_pages_are_no_more_than_the_file_holds(tmp_path: Path) -> None:
    """A value of half a gigabyte whose pages are one page that is its own continuation."""
    path = made(tmp_path / "ledger.sqlite", releases=1)
    rewire(path, endless_value)
    with Ledger.open(path, create=False, read_only=True) as ledger:
        assert "too big" in ledger.verify()[0].message


def test_a_genuine_ledger_is_read_as_before_however_small(tmp_path: Path) -> None:
    path = made(tmp_path / "ledger.sqlite", releases=40)
    with Ledger.open(path, create=False, read_only=True) as ledger:
        for _ in range(50):  # the bound is of one transaction
            assert not ledger.verify()
        assert len(ledger.list_entries()) == 40


def test_a_hundred_gigabytes_of_holes_are_not_room_for_more(tmp_path: Path) -> None:
    path = made(tmp_path / "ledger.sqlite", releases=1)
    rewire(path, lambda size: interior_pages(size, levels=15))
    os.truncate(path, 100 << 30)
    with (
        pytest.raises(LedgerError, match=r"out of it|sound database"),
        Ledger.open(path, create=False, read_only=True) as ledger,
    ):
        ledger.list_entries()


def rewire(path: Path, pages: Callable[[int], tuple[bytes, list[bytes]]]) -> None:
    """Replaces the root page of the records, and appends pages; `pages` is told how many are."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (root,) = connection.execute(query, (RECORDS,)).fetchone()
    content = bytearray(path.read_bytes())
    count = len(content) // 4096
    kept = bytes(content[(root - 1) * 4096 : root * 4096])
    first, appended = pages(count)
    content[(root - 1) * 4096 : root * 4096] = first or kept
    for page in appended:
        content += page or kept
    struct.pack_into(">I", content, 28, len(content) // 4096)
    path.write_bytes(content)


def interior(child: int, cells: int = 300) -> bytes:
    """An interior page all of whose children are one page."""
    page = bytearray(4096)
    start = 4096 - 5 * cells
    struct.pack_into(">BHHHBI", page, 0, 5, 0, cells, start, 0, child)
    for cell in range(cells):
        at = start + 5 * cell
        struct.pack_into(">H", page, 12 + 2 * cell, at)
        struct.pack_into(">IB", page, at, child, 1)
    return bytes(page)


def interior_pages(count: int, *, levels: int) -> tuple[bytes, list[bytes]]:
    """A root, `levels` pages below it, and the leaf that was there."""
    below = [interior(count + level + 1) for level in range(1, levels + 1)]
    return interior(count + 1), [*below, b""]


def varint(value: int) -> bytes:
    found = [value & 127]
    while value := value >> 7:
        found.append(value & 127 | 128)
    return bytes(reversed(found))


def endless_value(count: int) -> tuple[bytes, list[bytes]]:
    """A leaf with one row whose body goes on in the page that is appended, again and again."""
    length = 1 << 29
    types = b"".join(varint(each) for each in (0, 13, 13, 0, 0, 0, 0, 13 + 2 * length, 13))
    head = bytes([len(types) + 1]) + types
    payload = head + b"a" * 4096
    total = len(head) + length
    usable = 4096
    least = (usable - 12) * 32 // 255 - 23
    local = least + (total - least) % (usable - 4)
    local = local if local <= usable - 35 else least
    cell = varint(total) + varint(1) + payload[:local] + struct.pack(">I", count + 1)
    page = bytearray(4096)
    start = 4096 - len(cell)
    struct.pack_into(">BHHHB", page, 0, 13, 0, 1, start, 0)
    struct.pack_into(">H", page, 8, start)
    page[start:] = cell
    more = struct.pack(">I", count + 1) + b"a" * 4092
    return bytes(page), [more]


def test_records_that_are_no_json_or_nest_without_end_are_named_by_their_number(
    tmp_path: Path,
) -> None:
    path = made(tmp_path / "ledger.sqlite", releases=1)
    for body in ("[" * 100_000, "{}", "[]", '{"entry": ' + "9" * 5000 + "}"):
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE {RECORDS} SET body = ? WHERE position = 2", (body,))
        with Ledger.open(path, create=False, read_only=True) as ledger:
            assert ledger.verify()
            with pytest.raises(LedgerCorrupt, match="record 2"):
                ledger.list_entries()
