"""Where a ledger is: a SQLite file or a PostgreSQL database, opened, checked, in transactions.

SQLite runs in WAL mode with synchronous=FULL (a commit returns after its fsync), PostgreSQL with
synchronous_commit on: what was reported as recorded survives a kill and a power cut.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from parley.privacy.ledger.address import postgresql_url, shown, sqlite_path
from parley.privacy.ledger.errors import LedgerError, LedgerUnavailable, NotALedger
from parley.privacy.ledger.failures import translated
from parley.privacy.ledger.foreign import Costs, check_files, check_schema
from parley.privacy.ledger.store import Reader, Writer
from parley.privacy.ledger.tables import create as create_tables
from parley.privacy.ledger.tables import is_there

if TYPE_CHECKING:
    import psycopg


_LOCK_TIMEOUT_S = 30.0
_SCHEMA_LOCK = 0x7061726C6579  # "parley": serialises the creation of tables on PostgreSQL


class Place:
    """An open SQLite file or PostgreSQL database.

    Attributes:
        name: how messages call it: the path, or `postgresql://user@host/database`.
        read_only: whether `writing` is refused.
        key_path: of the key that rows are digested under: beside the file, or in the user's own
            folder.
    """

    def __init__(self, target: str | os.PathLike[str], *, create: bool, read_only: bool) -> None:
        self.read_only = read_only
        create = create and not read_only
        url = _postgresql_url(target)
        self._costs: Costs | None = None
        if url is not None:
            self.name = shown(url)
            self.key_path = _user_folder() / "ledger.key"
            self._engine = self._postgresql(url)
        else:
            path = _path(target, create=create)
            self.name = str(path)
            self.key_path = path.with_name(path.name + ".key")
            self._costs = Costs(path) if read_only else None
            self._engine = self._sqlite(path, create=create)
        try:
            self._prepare(create=create)
        except BaseException:
            self._engine.dispose()
            raise

    def close(self, *, forked: bool = False) -> None:
        """Closes the file or the connection; one of the process that forked this stays open."""
        self._engine.dispose(close=not forked)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reader]:
        """One consistent view; nothing in it blocks a writer."""
        with self._connected() as connection:
            if self._costs is not None:
                self._costs.begin()
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            else:
                connection.exec_driver_sql("BEGIN")
            yield Reader(connection, self.name)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writer]:
        """A transaction that commits when the block ends, unless it raised."""
        if self.read_only:
            raise LedgerError(f"Expected a ledger opened for writing, {self.name} is read-only.")
        with self._connected() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield (writer := Writer(connection, self.name, self.key_path))
            if writer.finish():
                connection.commit()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        """A connection; what fails in the block leaves it as a `LedgerError`."""
        try:
            with self._engine.connect() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            raise translated(error, self.name, _LOCK_TIMEOUT_S) from None

    def _sqlite(self, path: Path, *, create: bool) -> sa.Engine:
        mode = "ro" if self.read_only else "rwc" if create else "rw"
        address = f"file:{quote(str(path.absolute()))}?mode={mode}"
        if self.read_only and not path.with_name(path.name + "-wal").exists():
            with contextlib.suppress(OSError):
                if os.statvfs(path.parent).f_flag & os.ST_RDONLY or not os.access(
                    path.parent, os.W_OK
                ):
                    # SQLite would put two files beside the ledger to share it with a writer. Here
                    # it can't, and without a -wal file nobody has it open to write.
                    address += "&immutable=1"

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                address,
                uri=True,
                isolation_level=None,  # transactions begin where we say BEGIN
                timeout=_LOCK_TIMEOUT_S,
                check_same_thread=False,
            )
            try:
                if self._costs is not None:  # before anything of the file is looked at
                    self._costs.bound(connection)
                connection.execute("PRAGMA trusted_schema=OFF")
                connection.execute("PRAGMA synchronous=FULL")
            except sqlite3.Error:
                connection.close()
                raise
            return connection

        return sa.create_engine(
            "sqlite://",
            creator=connect,
            poolclass=sa.QueuePool,
            pool_size=1,
            hide_parameters=True,
        )

    def _postgresql(self, url: sa.URL) -> sa.Engine:
        try:
            engine = sa.create_engine(
                url,
                isolation_level="READ COMMITTED",
                pool_size=1,
                pool_pre_ping=True,
                hide_parameters=True,
            )
        except ModuleNotFoundError as error:
            raise LedgerUnavailable(
                "Expected psycopg for a ledger on PostgreSQL, it is not installed: "
                "pip install 'parley[postgres]'"
            ) from error
        settings = [f"SET lock_timeout = '{_LOCK_TIMEOUT_S:.0f}s'", "SET synchronous_commit = on"]
        if self.read_only:
            settings.append("SET default_transaction_read_only = on")

        @sa.event.listens_for(engine, "connect")
        def configure(connection: psycopg.Connection, _: object) -> None:
            for setting in settings:
                connection.execute(setting)
            connection.commit()

        return engine

    def _prepare(self, *, create: bool) -> None:
        """Checks that a ledger is there, or makes one, once, however many processes try."""
        with self._connected() as connection:
            postgresql = connection.dialect.name == "postgresql"
            if not postgresql:
                check_schema(connection, self.name)
            if is_there(connection, self.name):
                connection.rollback()
                if not (self.read_only or postgresql):
                    connection.exec_driver_sql("BEGIN IMMEDIATE")  # refused where read-only
                return
            if not create:
                raise NotALedger(f"Expected a ledger at {self.name}, there is none.")
            connection.rollback()
            if postgresql:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
            else:
                _set_wal(connection)
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            if not is_there(connection, self.name):
                create_tables(connection)
                connection.commit()


def _set_wal(connection: sa.Connection) -> None:
    """WAL mode is kept in the file. SQLite doesn't wait for a lock here, so that we do."""
    while_locked = Retrying(
        retry=retry_if_exception_type(sa.exc.OperationalError),
        wait=wait_fixed(0.01),
        stop=stop_after_delay(_LOCK_TIMEOUT_S),
        before_sleep=lambda _: connection.rollback(),
        reraise=True,
    )
    # Its answer is read: a statement that is not over holds a lock, with which no write can wait.
    while_locked(lambda: connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar())


def _postgresql_url(target: str | os.PathLike[str]) -> sa.URL | None:
    """The URL of a PostgreSQL database, or `None` for a path."""
    text = os.fspath(target)
    if "://" not in text or text.startswith("sqlite://"):
        return None
    try:
        return postgresql_url(text)
    except ValueError as error:
        raise LedgerError(str(error)) from None


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "parley"


def _path(target: str | os.PathLike[str], *, create: bool) -> Path:
    text = os.fspath(target)
    if text.startswith("sqlite://"):
        text = sqlite_path(text)
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
