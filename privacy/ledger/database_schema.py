"""The tables of a ledger and their version."""

from __future__ import annotations

from collections.abc import Collection
from shlex import quote
from typing import Final

from parley.privacy.ledger.database_connection import DatabaseConnection, quote_names
from parley.privacy.ledger.hash_chain import GENESIS
from parley.privacy.ledger.ledger_errors import NotALedger

FORMAT: Final = "parley-ledger"
VERSION: Final = 7
"""Version of Parley 1.0. A later version of the schema keeps opening it."""
READABLE_VERSIONS: Final = (6, VERSION)
"""Versions that can be read. Only a ledger of `VERSION` is written to.

Version 6, from before Parley 1.0, has the same tables, and accounts without certificates, which
keep their old rules. `ledger_copy.upgrade_ledger` makes it `VERSION`.
"""

HEAD: Final = "parley_ledger_head"
RECORDS: Final = "parley_ledger_records"
ACCOUNTS: Final = "parley_ledger_accounts"
ROWS: Final = "parley_ledger_rows"
CHECKPOINTS: Final = "parley_ledger_checkpoints"
INDEX: Final = "parley_ledger_releases"

_TABLES = {
    HEAD: "id INTEGER PRIMARY KEY, format TEXT NOT NULL, version INTEGER NOT NULL, "
    "records BIGINT NOT NULL, hash TEXT NOT NULL",
    RECORDS: "position BIGINT PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "unit TEXT NOT NULL, run_id TEXT, index BIGINT, reservation BIGINT, body TEXT NOT NULL, "
    "hash TEXT NOT NULL",
    ACCOUNTS: "name TEXT NOT NULL, unit TEXT NOT NULL, fingerprint TEXT NOT NULL, budget TEXT NOT "
    "NULL, spent TEXT NOT NULL, held TEXT NOT NULL, known TEXT NOT NULL, rows TEXT NOT NULL",
    ROWS: "name TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, block TEXT NOT NULL, "
    "digests BYTEA NOT NULL",
    CHECKPOINTS: "run_id TEXT PRIMARY KEY NOT NULL, index BIGINT NOT NULL, digest TEXT NOT NULL, "
    "data BYTEA NOT NULL",
}
"""Columns with their types, as PostgreSQL names them."""
_KEYS = {
    ACCOUNTS: ", PRIMARY KEY (name, unit), UNIQUE (fingerprint, unit)",
    ROWS: ", PRIMARY KEY (name, number)",
}
COLUMNS: Final = {
    table: [column.split()[0] for column in columns.split(", ")]
    for table, columns in _TABLES.items()
}


def create_tables(connection: DatabaseConnection) -> None:
    """Create the tables and the head of an empty chain, in the running transaction."""
    for table, columns in _TABLES.items():
        each = columns.replace("index ", '"index" ')
        if not connection.postgresql:
            # INTEGER PRIMARY KEY is SQLite's row number: only integers, and no index next to the
            # table.
            each = each.replace("BIGINT", "INTEGER").replace("BYTEA", "BLOB")
        connection.execute(f"CREATE TABLE {table} ({each}{_KEYS.get(table, '')})")
    releases = 'run_id, dataset, "index", position'
    connection.execute(f"CREATE INDEX {INDEX} ON {RECORDS} ({releases})")
    head = {"id": 1, "format": FORMAT, "version": VERSION, "records": 0, "hash": GENESIS}
    connection.insert(HEAD, head)


def build_select(table: str, rest: str = "") -> str:
    """Return a statement that selects all columns of a table; `rest` selects the rows."""
    return f"SELECT {quote_names(COLUMNS[table])} FROM {table} {rest}"  # noqa: S608 - names of ours


_LIST_SQLITE_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
)
_LIST_POSTGRESQL_TABLES = (
    "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()"
)


def has_ledger(
    connection: DatabaseConnection, place: str, accepted: Collection[int] = READABLE_VERSIONS
) -> bool:
    """Return whether the tables of a ledger exist.

    Args:
        accepted: versions of the schema that the caller can use.

    Raises:
        NotALedger: they have another format or version, or a SQLite file contains other tables (a
            PostgreSQL database may).
    """
    # One query, so that a ledger that another process creates is seen completely or not at all.
    query = _LIST_POSTGRESQL_TABLES if connection.postgresql else _LIST_SQLITE_TABLES
    tables = [row["name"] for row in connection.fetch_rows(query)]
    if HEAD in tables:
        rows = list(connection.fetch_rows(build_select(HEAD)))
        if not rows or rows[0]["format"] != FORMAT:
            raise NotALedger(f"Expected {FORMAT} at {place}, got a table without its head record.")
        check_version(rows[0]["version"], place, accepted)
        return True
    if tables and not connection.postgresql:
        raise NotALedger(f"Expected a ledger at {place}, got one with table {min(tables)!r}.")
    return False


def check_version(
    version: object, place: str, accepted: Collection[int] = READABLE_VERSIONS
) -> None:
    """Raise if the ledger has another version of the schema than those accepted.

    Raises:
        NotALedger: the version is another; the message explains what to do.
    """
    if version in accepted:
        return
    expected = f"Expected {FORMAT} version {VERSION} at {place}, got version {version!r:.40}"
    if isinstance(version, int) and version > VERSION:
        raise NotALedger(
            f"{expected}, which a newer Parley wrote. Install that version here. Nothing was "
            "changed."
        )
    if version in READABLE_VERSIONS:
        raise NotALedger(
            f"{expected}, which can be read only. `parley ledger upgrade {quote(place)}` makes it "
            f"version {VERSION} and keeps a copy. Nothing was changed."
        )
    raise NotALedger(
        f"{expected}. Use the version of Parley that wrote it. A new ledger does not know what was "
        "spent in this one: give each data set at most the budget that `ledger show` of that "
        "version shows as left."
    )
