"""The database of a ledger: a SQLite file or a PostgreSQL database, checked when it is opened.

SQLite runs in WAL mode with synchronous=FULL (a commit returns after its fsync), PostgreSQL with
synchronous_commit on. So everything that was reported as recorded survives a kill and a power cut.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_errors import translate_error
from parley.privacy.ledger.database_schema import (
    READABLE_VERSIONS,
    VERSION,
    create_tables,
    has_ledger,
)
from parley.privacy.ledger.database_url import parse_sqlite_path
from parley.privacy.ledger.ledger_errors import LedgerError, LedgerUnavailable, NotALedger
from parley.privacy.ledger.table_access import LedgerReader, LedgerWriter, Readings
from parley.privacy.ledger.untrusted_file import check_files, check_schema

if TYPE_CHECKING:
    from parley.privacy.ledger.read_limits import ReadLimits

_LOCK_TIMEOUT_S = 30.0
_READINGS = 64
_SCHEMA_LOCK = 0x7061726C6579  # "parley": serialises table creation on PostgreSQL


class Database:
    """An open SQLite file or PostgreSQL database.

    Attributes:
        name: its name in messages: the path, or `postgresql://user@host/database`.
        read_only: whether `open_writer` is refused.
        is_new: whether this object created the tables.
        path: the SQLite file; None on PostgreSQL.
        key_path: path of the key for row digests: next to the file, or in the user's own folder.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        create: bool,
        read_only: bool,
        upgrading: bool = False,
    ) -> None:
        self.read_only, self.is_new = read_only, False
        self._accepted = READABLE_VERSIONS if read_only or upgrading else (VERSION,)
        create = create and not read_only
        text = os.fspath(target)
        self._costs: ReadLimits | None = None
        self._idle: list[DatabaseConnection] = []
        self._readings: Readings = deque(maxlen=_READINGS)
        self.path: Path | None = None
        if "://" in text and not text.startswith("sqlite://"):
            from parley.privacy.ledger.postgresql_connection import prepare_postgresql  # noqa: PLC0415 - spares its code for a SQLite file

            server = prepare_postgresql(text, read_only=read_only, lock_timeout_s=_LOCK_TIMEOUT_S)
            self.name, self.key_path = server.name, server.key_path
            self._connect, self._errors = server.connect, server.errors
        else:
            path = _resolve_path(text, create=create)
            self.path, self.name = path, str(path)
            own = path.resolve()  # the target of a link, where the ledger is
            self.key_path = own.with_name(own.name + ".key")
            if read_only:
                from parley.privacy.ledger.read_limits import ReadLimits  # noqa: PLC0415 - spares its code for a ledger that is written

                self._costs = ReadLimits(path)
            address = _build_address(path, "ro" if read_only else "rwc" if create else "rw")
            self._connect = partial(_connect_sqlite, address, self._costs)
            self._errors = (sqlite3.Error,)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    def close(self, *, forked: bool = False) -> None:
        """Close the file or the connections; if forked, leave those of the parent process open."""
        idle, self._idle = self._idle, []
        for each in () if forked else idle:
            each.close()

    @contextlib.contextmanager
    def open_reader(self) -> Iterator[LedgerReader]:
        """Open one consistent view, which never blocks a writer."""
        with self.open_connection() as connection:
            if self._costs is not None:
                self._costs.begin()
            repeatable = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            connection.execute(repeatable if connection.postgresql else "BEGIN")
            yield LedgerReader(connection, self.name)

    @contextlib.contextmanager
    def open_writer(self) -> Iterator[LedgerWriter]:
        """Open a transaction that commits when the block ends, unless it raised."""
        if self.read_only:
            raise LedgerError(f"Expected a ledger opened for writing, {self.name} is read-only.")
        with self.open_connection(lock=True) as connection:
            yield (writer := LedgerWriter(connection, self.name, self.key_path, self._readings))
            if writer.finish():
                connection.commit()

    @contextlib.contextmanager
    def open_connection(self, *, lock: bool = False) -> Iterator[DatabaseConnection]:
        """Open a connection for one caller; database errors in the block become a `LedgerError`.

        One idle connection is kept for the next call; concurrent threads open more.

        Args:
            lock: begin a transaction that keeps other writers out of a SQLite file.
        """
        try:
            connection = self._take_idle_connection() or self._connect()
            try:
                if lock and not connection.postgresql:
                    connection.execute("BEGIN IMMEDIATE")
                yield connection
            finally:
                if self._end_transaction(connection) and not self._idle:
                    self._idle.append(connection)
                else:
                    connection.close()
        except self._errors as error:
            raise translate_error(error, self.name, _LOCK_TIMEOUT_S) from None

    def _take_idle_connection(self) -> DatabaseConnection | None:
        with contextlib.suppress(IndexError):
            connection = self._idle.pop()
            if not connection.postgresql:
                return connection
            with contextlib.suppress(*self._errors):  # the server may have closed it meanwhile
                connection.execute("SELECT 1")
                connection.rollback()
                return connection
            connection.close()
        return None

    def _end_transaction(self, connection: DatabaseConnection) -> bool:
        """Roll back the connection's transaction; return whether that worked."""
        try:
            connection.rollback()
        except self._errors:
            return False
        return True

    def _prepare(self, *, create: bool) -> None:
        """Check that a ledger exists, or create it; concurrent processes create it only once."""
        with self.open_connection() as connection:
            if not connection.postgresql:
                check_schema(connection, self.name)
            if has_ledger(connection, self.name, self._accepted):
                connection.rollback()
                if not (self.read_only or connection.postgresql):
                    connection.execute("BEGIN IMMEDIATE")  # fails if the file is read-only
                return
            if not create:
                raise NotALedger(f"Expected a ledger at {self.name}, there is none.")
            connection.rollback()
            if connection.postgresql:
                connection.execute("SELECT pg_advisory_xact_lock(?)", _SCHEMA_LOCK)
            else:
                _set_wal(connection)
                connection.execute("BEGIN IMMEDIATE")
            if not has_ledger(connection, self.name, self._accepted):
                create_tables(connection)
                connection.commit()
                self.is_new = True


def _build_address(path: Path, mode: str) -> str:
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    if mode == "ro" and not path.with_name(path.name + "-wal").exists():
        with contextlib.suppress(OSError):
            unchanging = os.statvfs(path.parent).f_flag & os.ST_RDONLY
            if unchanging or not os.access(path.parent, os.W_OK):
                # SQLite would create two files next to the ledger to share it with a writer. Here
                # it cannot, and without a -wal file no process has it open for writing.
                address += "&immutable=1"
    return address


def _connect_sqlite(address: str, costs: ReadLimits | None) -> DatabaseConnection:
    connection = sqlite3.connect(
        address,
        uri=True,
        isolation_level=None,  # transactions begin with our BEGIN
        timeout=_LOCK_TIMEOUT_S,
        check_same_thread=False,
    )
    try:
        if costs is not None:  # before any of the file is read
            costs.apply_to(connection)
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return DatabaseConnection(connection)


def _set_wal(connection: DatabaseConnection) -> None:
    """Set WAL mode, which the file stores.

    SQLite does not wait for a lock here, so this function does.
    """
    until = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            # Read to the end: an unfinished statement holds a lock, and then writes fail instead of
            # waiting.
            list(connection.fetch_rows("PRAGMA journal_mode=WAL"))
        except sqlite3.OperationalError:
            connection.rollback()
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _resolve_path(text: str, *, create: bool) -> Path:
    if text.startswith("sqlite://"):
        text = parse_sqlite_path(text)
    if text in ("", ":memory:"):
        raise LedgerError(f"Expected a ledger on disk, got {text or 'no path'}.")
    path = Path(text)
    if path.is_dir():
        raise NotALedger(f"Expected a file for the ledger, {path} is a directory.")
    if not path.parent.is_dir():
        raise LedgerUnavailable(f"Expected a directory for the ledger, {path.parent} is not one.")
    if not create and not path.exists():
        raise NotALedger(f"Expected a ledger at {path}, there is none.")
    check_files(path)
    return path
