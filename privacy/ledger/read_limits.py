"""Limits on what reading an untrusted SQLite file may cost.

A page that is its own child contains endless stored rows, and a value of a gigabyte fits into a
page that is its own continuation. So `ReadLimits` bounds one transaction, in steps of SQLite's
machine and in bytes: no more than fits into the file several times over.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any, TypeVar

from parley.privacy.ledger.ledger_errors import LedgerCorrupt

_MIN_BYTES = 1 << 22
_ROW_BYTES = 64  # bytes in addition to its values
_STEPS_PER_CALL = 10_000
_MAX_READS = 4  # maximum number of times that a ledger is read in one transaction
_MAX_HOLES = 1000  # SQLite writes none
_Row = TypeVar("_Row", bound=tuple[Any, ...])


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
