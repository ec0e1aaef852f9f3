"""Where a ledger is: a SQLite file or a PostgreSQL database, opened, checked, in transactions.

SQLite runs in WAL mode with synchronous=FULL (a commit returns after its fsync), PostgreSQL with
synchronous_commit on: what was reported as recorded survives a kill and a power cut.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_errors import translate_error
from parley.privacy.ledger.database_schema import create_tables, has_ledger
from parley.privacy.ledger.database_url import (
    format_safe_url,
    parse_postgresql_url,
    parse_sqlite_path,
)
from parley.privacy.ledger.ledger_errors import LedgerError, LedgerUnavailable, NotALedger
from parley.privacy.ledger.table_access import LedgerReader, LedgerWriter, Readings
from parley.privacy.ledger.untrusted_file import ReadLimits, check_files, check_schema

_LOCK_TIMEOUT_S = 30.0
_READINGS = 64
_SCHEMA_LOCK = 0x7061726C6579  # "parley": serialises the creation of tables on PostgreSQL


class Database:
    """An open SQLite file or PostgreSQL database.

    Attributes:
        name: how messages call it: the path, or `postgresql://user@host/database`.
        read_only: whether `open_writer` is refused.
        key_path: of the key that rows are digested under: beside the file, or in the user's own
            folder.
    """

    def __init__(self, target: str | os.PathLike[str], *, create: bool, read_only: bool) -> None:
        self.read_only = read_only
        create = create and not read_only
        url = _parse_postgresql_url(target)
        self._costs: ReadLimits | None = None
        self._idle: list[DatabaseConnection] = []
        self._readings: Readings = deque(maxlen=_READINGS)
        if url is not None:
            self.name = format_safe_url(url)
            self.key_path = _get_user_folder() / "ledger.key"
            self._connect, self._errors = _prepare_postgresql(url, read_only=read_only)
        else:
            path = _resolve_path(target, create=create)
            self.name = str(path)
            own = path.resolve()  # of a link: where the ledger is
            self.key_path = own.with_name(own.name + ".key")
            self._costs = ReadLimits(path) if read_only else None
            address = _build_address(path, "ro" if read_only else "rwc" if create else "rw")
            self._connect = partial(_connect_sqlite, address, self._costs)
            self._errors = (sqlite3.Error,)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    def close(self, *, forked: bool = False) -> None:
        """Closes the file or the connection; one of the process that forked this stays open."""
        idle, self._idle = self._idle, []
        for each in () if forked else idle:
            each.close()

    @contextlib.contextmanager
    def open_reader(self) -> Iterator[LedgerReader]:
        """One consistent view; nothing in it blocks a writer."""
        with self._open_connection() as connection:
            if self._costs is not None:
                self._costs.begin()
            repeatable = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            connection.execute(repeatable if connection.postgresql else "BEGIN")
            yield LedgerReader(connection, self.name)

    @contextlib.contextmanager
    def open_writer(self) -> Iterator[LedgerWriter]:
        """A transaction that commits when the block ends, unless it raised."""
        if self.read_only:
            raise LedgerError(f"Expected a ledger opened for writing, {self.name} is read-only.")
        with self._open_connection() as connection:
            if not connection.postgresql:
                connection.execute("BEGIN IMMEDIATE")
            yield (writer := LedgerWriter(connection, self.name, self.key_path, self._readings))
            if writer.finish():
                connection.commit()

    @contextlib.contextmanager
    def _open_connection(self) -> Iterator[DatabaseConnection]:
        """A connection of the caller's alone; what fails in the block leaves it as a `LedgerError`.

        One is kept for the next: threads that come together open more.
        """
        try:
            connection = self._take_idle_connection() or self._connect()
            try:
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
            with contextlib.suppress(*self._errors):  # a server may have gone meanwhile
                connection.execute("SELECT 1")
                connection.rollback()
                return connection
            connection.close()
        return None

    def _end_transaction(self, connection: DatabaseConnection) -> bool:
        """Whether its transaction could be ended."""
        try:
            connection.rollback()
        except self._errors:
            return False
        return True

    def _prepare(self, *, create: bool) -> None:
        """Checks that a ledger is there, or makes one, once, however many processes try."""
        with self._open_connection() as connection:
            if not connection.postgresql:
                check_schema(connection, self.name)
            if has_ledger(connection, self.name):
                connection.rollback()
                if not (self.read_only or connection.postgresql):
                    connection.execute("BEGIN IMMEDIATE")  # refused where read-only
                return
            if not create:
                raise NotALedger(f"Expected a ledger at {self.name}, there is none.")
            connection.rollback()
            if connection.postgresql:
                connection.execute("SELECT pg_advisory_xact_lock(?)", _SCHEMA_LOCK)
            else:
                _set_wal(connection)
                connection.execute("BEGIN IMMEDIATE")
            if not has_ledger(connection, self.name):
                create_tables(connection)
                connection.commit()


def _build_address(path: Path, mode: str) -> str:
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    if mode == "ro" and not path.with_name(path.name + "-wal").exists():
        with contextlib.suppress(OSError):
            unchanging = os.statvfs(path.parent).f_flag & os.ST_RDONLY
            if unchanging or not os.access(path.parent, os.W_OK):
                # SQLite would put two files beside the ledger to share it with a writer. Here it
                # can't, and without a -wal file nobody has it open to write.
                address += "&immutable=1"
    return address


def _connect_sqlite(address: str, costs: ReadLimits | None) -> DatabaseConnection:
    connection = sqlite3.connect(
        address,
        uri=True,
        isolation_level=None,  # transactions begin where we say BEGIN
        timeout=_LOCK_TIMEOUT_S,
        check_same_thread=False,
    )
    try:
        if costs is not None:  # before anything of the file is looked at
            costs.apply_to(connection)
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return DatabaseConnection(connection)


def _prepare_postgresql(
    url: str, *, read_only: bool
) -> tuple[Callable[[], DatabaseConnection], tuple[type[Exception], ...]]:
    """What connects, and what it raises."""
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise LedgerUnavailable(
            "Expected psycopg for a ledger on PostgreSQL, it is not installed: "
            "pip install 'parley[postgres]'"
        ) from error
    settings = [f"SET lock_timeout = '{_LOCK_TIMEOUT_S:.0f}s'", "SET synchronous_commit = on"]
    if read_only:
        settings.append("SET default_transaction_read_only = on")

    def connect() -> DatabaseConnection:
        own = psycopg.connect(url)
        connection = DatabaseConnection(own)
        for setting in settings:
            connection.execute(setting)
        connection.commit()
        own.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    return connect, (psycopg.Error,)


def _set_wal(connection: DatabaseConnection) -> None:
    """WAL mode is kept in the file. SQLite doesn't wait for a lock here, so that we do."""
    until = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            # Read to its end: a statement that is not over holds a lock, with which no write waits.
            list(connection.fetch_rows("PRAGMA journal_mode=WAL"))
        except sqlite3.OperationalError:
            connection.rollback()
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _parse_postgresql_url(target: str | os.PathLike[str]) -> str | None:
    """The URL of a PostgreSQL database, or `None` for a path."""
    text = os.fspath(target)
    if "://" not in text or text.startswith("sqlite://"):
        return None
    try:
        return parse_postgresql_url(text)
    except ValueError as error:
        raise LedgerError(str(error)) from None


def _get_user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "parley"


def _resolve_path(target: str | os.PathLike[str], *, create: bool) -> Path:
    text = os.fspath(target)
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
