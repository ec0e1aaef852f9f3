"""Connect to the PostgreSQL database of a ledger."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.ledger_errors import LedgerError, LedgerUnavailable
from parley.privacy.ledger.postgresql_url import format_safe_url, parse_postgresql_url


class PostgresqlServer(NamedTuple):
    """A server with a ledger.

    Attributes:
        name: its URL for messages.
        key_path: path of the key for row digests, in the user's own folder.
        connect: opens a connection.
        errors: exceptions that a connection raises.
    """

    name: str
    key_path: Path
    connect: Callable[[], DatabaseConnection]
    errors: tuple[type[Exception], ...]


def prepare_postgresql(url: str, *, read_only: bool, lock_timeout_s: float) -> PostgresqlServer:
    """Return how to connect to the server of a URL.

    Raises:
        LedgerError: the text is no such URL.
        LedgerUnavailable: psycopg is not installed.
    """
    try:
        address = parse_postgresql_url(url)
    except ValueError as error:
        raise LedgerError(str(error)) from None
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise LedgerUnavailable(
            "Expected psycopg for a ledger on PostgreSQL, it is not installed: "
            "pip install 'parley[postgres]'"
        ) from error
    settings = [f"SET lock_timeout = '{lock_timeout_s:.0f}s'", "SET synchronous_commit = on"]
    if read_only:
        settings.append("SET default_transaction_read_only = on")

    def connect() -> DatabaseConnection:
        own = psycopg.connect(address)
        connection = DatabaseConnection(own)
        for setting in settings:
            connection.execute(setting)
        connection.commit()
        own.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    return PostgresqlServer(
        name=format_safe_url(address),
        key_path=_get_user_folder() / "ledger.key",
        connect=connect,
        errors=(psycopg.Error,),
    )


def _get_user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "parley"
