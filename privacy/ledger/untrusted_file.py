"""Check an untrusted SQLite file: it must be a ledger before any of its rows is read.

A database is a program. A view in place of a table computes endless rows. So only a regular file is
opened, and its schema must be a ledger's, table by table and column by column. If the file is only
read, `parley.privacy.ledger.read_limits` bounds what that costs.
"""

from __future__ import annotations

import stat
from pathlib import Path

from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_schema import COLUMNS, HEAD, INDEX, build_select, check_version
from parley.privacy.ledger.ledger_errors import NotALedger

_COMPANION_SUFFIXES = ("-wal", "-shm", "-journal")

_INDEXES = {INDEX} | {f"sqlite_autoindex_{name}_{n}" for name in COLUMNS for n in (1, 2)}


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
