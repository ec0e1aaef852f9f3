"""The four tables of a ledger.

`head` (one row: the end of the chain, and the lock every writer takes), `records` (the log),
`datasets` (budget and running totals, so that a reservation costs the same however long the log
is) and `checkpoints` (the last model of each run). All but the records follow from the log;
`Ledger.verify` holds them to it.
"""

from __future__ import annotations

import sqlalchemy as sa

from privacy.ledger_chain import GENESIS
from privacy.ledger_errors import NotALedger

__all__ = [
    "CHECKPOINTS",
    "DATASETS",
    "FORMAT",
    "HEAD",
    "METADATA",
    "RECORDS",
    "VERSION",
    "create",
    "is_ledger",
]

FORMAT = "parley-ledger"
VERSION = 1

METADATA = sa.MetaData()
HEAD = sa.Table(
    "parley_ledger_head",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
RECORDS = sa.Table(
    "parley_ledger_records",
    METADATA,
    # INTEGER PRIMARY KEY is SQLite's row number: whole numbers only, and no index beside the table.
    sa.Column(
        "position",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("index", sa.BigInteger),
    sa.Column("reservation", sa.BigInteger),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("parley_ledger_releases", "run_id", "dataset", "index", "position"),
)
DATASETS = sa.Table(
    "parley_ledger_datasets",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False, unique=True),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("spent", sa.Text, nullable=False),
)
CHECKPOINTS = sa.Table(
    "parley_ledger_checkpoints",
    METADATA,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("index", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


def create(connection: sa.Connection) -> None:
    """Makes the tables and the head of an empty chain, in the running transaction."""
    METADATA.create_all(connection)
    head = {"id": 1, "format": FORMAT, "version": VERSION, "records": 0, "hash": GENESIS}
    connection.execute(sa.insert(HEAD), head)


def is_ledger(connection: sa.Connection, place: str) -> bool:
    """Whether the ledger's tables are there.

    Raises:
        NotALedger: they are, and of another format or schema version; or a SQLite file holds
            other tables (a PostgreSQL database may).
    """
    # One query, so that a ledger another process makes meanwhile is seen whole or not at all.
    tables = sa.inspect(connection).get_table_names()
    if HEAD.name in tables:
        row = connection.execute(sa.select(HEAD)).one_or_none()
        found = "no head record" if row is None else f"{row.format} version {row.version}"
        if found != f"{FORMAT} version {VERSION}":
            raise NotALedger(f"Expected {FORMAT} version {VERSION} at {place}, got {found}.")
        return True
    if tables and connection.dialect.name == "sqlite":
        raise NotALedger(f"Expected a ledger at {place}, got a database with {tables[0]!r}.")
    return False
