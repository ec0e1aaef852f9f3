"""Check an untrusted SQLite file: it must be a ledger before any of its rows is read.

A database is a program. A view in place of a table computes endless rows. A page that is its own
child contains endless stored rows. A value of a gigabyte fits into a page that is its own
continuation. So only a regular file is opened, and its schema must be a ledger's, table by table
and column by column. If the file is only read, `ReadLimits` bounds one transaction, in steps of
SQLite's machine and in bytes: no more than fits into the file several times over.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any, TypeVar

from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_schema import COLUMNS, HEAD, INDEX, build_select, check_version
from parley.privacy.ledger.ledger_errors import LedgerCorrupt, NotALedger

_COMPANION_SUFFIXES = ("-wal", "-shm", "-journal")
_MIN_BYTES = 1 << 22
_ROW_BYTES = 64  # bytes in addition to its values
_STEPS_PER_CALL = 10_000
_MAX_READS = 4  # maximum number of times that a ledger is read in one transaction
_MAX_HOLES = 1000  # SQLite writes none

_INDEXES = {INDEX} | {f"sqlite_autoindex_{name}_{n}" for name in COLUMNS for n in (1, 2)}

_Row = TypeVar("_Row", bound=tuple[Any, ...])


def check_files(path: Path) -> None:
    """Check that a ledger and SQLite's files next to it are files: no pipe, no device, no link.

    Raises:
        NotALedger: one of them is something else.
    """
    if path.exists() and not path.is_file():
        raise NotALedger(f"Expected a regular file for the ledger, {path} is not one.")
    for beside in (path.with_name(path.name + end) for end in _COMPANION_SUFFIXES):
        try:
            kind = beside.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(kind):
            raise NotALedger(f"Expected a regular file next to the ledger, {beside} is not one.")


def check_schema(connection: DatabaseConnection, place: str) -> None:
    """Check that a SQLite file with a ledger's head contains a ledger's tables, and nothing else.

    Raises:
        NotALedger: it contains a view, a trigger, a virtual table, a computed column or another
            table, or a ledger of another version.
    """
    query = "SELECT type, name, rootpage FROM sqlite_schema"
    stored = [tuple(row.values()) for row in connection.fetch_rows(query)]
    if HEAD not in {name for _, name, _ in stored}:
        return  # `has_ledger` reports what it is
    # A virtual table has no page here.
    tables = {name for kind, name, root in stored if kind == "table" and root}
    _check_columns(connection, tables & {HEAD}, {HEAD}, place)
    head = next(connection.fetch_rows(build_select(HEAD, "LIMIT 1")), {})
    check_version(head.get("version"), place)
    known = {"table": tables & COLUMNS.keys(), "index": _INDEXES}
    for kind, name, _ in stored:
        if name not in known.get(kind, ()):
            raise NotALedger(
                f"Expected the tables of a ledger at {place}, got a {kind} {name!r:.80}, too."
            )
    _check_columns(connection, tables, set(COLUMNS), place)


def _check_columns(
    connection: DatabaseConnection, tables: set[str], expected: set[str], place: str
) -> None:
    found = {}
    for name in tables:
        columns = connection.fetch_rows(f"PRAGMA table_xinfo({name})")
        # A computed column does not contain stored values.
        found[name] = {each["name"] if each["hidden"] == 0 else None for each in columns}
    if found != {name: set(COLUMNS[name]) for name in expected}:
        raise NotALedger(
            f"Expected the tables of a ledger at {place}, with their columns and no others, got "
            f"{', '.join(sorted(found)) or 'none'}: another program made or changed them."
        )


class ReadLimits:
    """Limits on what reading a file may cost in one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.begin()

    def begin(self) -> None:
        """Reset the counts at the beginning of a transaction."""
        self._steps = self._bytes = 0
        self._limit = _MAX_READS * _measure_size(self._path) + _MIN_BYTES

    def apply_to(self, connection: sqlite3.Connection) -> None:
        """Count everything that the connection does, and interrupt it if it exceeds the limit."""
        connection.set_progress_handler(self._count_steps, _STEPS_PER_CALL)
        connection.row_factory = self._read
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(self._limit, 10**9))
        for pragma in ("query_only=ON", "cell_size_check=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    def _count_steps(self) -> bool:
        self._steps += _STEPS_PER_CALL
        return self._steps > self._limit

    def _read(self, _: sqlite3.Cursor, row: _Row) -> _Row:
        self._bytes += _ROW_BYTES + sum(len(each) for each in row if isinstance(each, str | bytes))
        if self._bytes > self._limit:
            raise LedgerCorrupt(
                f"Expected at most the {_measure_size(self._path)} bytes of {self._path}, got more "
                "out of it: its pages refer to each other."
            )
        return row


def _measure_size(path: Path) -> int:
    """Return the bytes of a file and its log, without holes that were never written."""
    total = 0
    for each in (path, path.with_name(path.name + "-wal")):
        with contextlib.suppress(FileNotFoundError), each.open("rb", buffering=0) as file:
            total += _measure_written(file.fileno())
    return total


def _measure_written(file: int) -> int:
    end = total = 0
    for _ in range(_MAX_HOLES):
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError:  # no data after that
            break
        end = os.lseek(file, begin, os.SEEK_HOLE)
        total += end - begin
    return total
