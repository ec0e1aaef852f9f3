"""The five tables of a ledger.

`head` (one row: the end of the chain, and the lock every writer takes), `records` (the log),
`accounts` (budget and running totals of data and unit, so that a reservation costs the same however
long the log is), `checkpoints` (the last model of each run) and `revision` (the version once more,
for Alembic). All but the records follow from the log; `Ledger.verify` holds them to it, and a row
of `accounts` is never believed unless the digest in the log's last record covers it.

Versions 1 and 2 had a table of data sets in place of the accounts, and no unit in a record;
version 1 (Parley 0.1.0) had neither `held` and `known` nor that digest, and none of them a
`revision`. Such a ledger can be read; opened for writing it is brought to version 3 (`migration`).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from parley.privacy.ledger.chain import GENESIS
from parley.privacy.ledger.errors import LedgerCorrupt, NotALedger

__all__ = ["ACCOUNTS", "CHECKPOINTS", "DATASETS", "DATASETS_1", "FORMAT", "HEAD", "METADATA"]
__all__ += ["RECORDS", "REVISION", "VERSION", "create", "records_of", "version_of"]

FORMAT = "parley-ledger"
VERSION = 3
_READABLE = (1, 2, 3)

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
    sa.Column("unit", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("index", sa.BigInteger),
    sa.Column("reservation", sa.BigInteger),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("parley_ledger_releases", "run_id", "dataset", "index", "position"),
)
ACCOUNTS = sa.Table(
    "parley_ledger_accounts",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("unit", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("spent", sa.Text, nullable=False),
    sa.Column("held", sa.Text, nullable=False),
    sa.Column("known", sa.Text, nullable=False),
    sa.Column("formerly", sa.Text, nullable=False),
    sa.UniqueConstraint("fingerprint", "unit"),
)
CHECKPOINTS = sa.Table(
    "parley_ledger_checkpoints",
    METADATA,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("index", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
# As Alembic would make it.
REVISION = sa.Table(
    "parley_ledger_revision",
    METADATA,
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="parley_ledger_revision_pkc"),
)


_OLDER = sa.MetaData()
DATASETS = sa.Table(
    "parley_ledger_datasets",
    _OLDER,
    sa.Column("name", sa.Text, primary_key=True),
    *(sa.Column(name, sa.Text) for name in ("fingerprint", "budget", "spent", "held", "known")),
)
"""What versions 1 (without the last two columns) and 2 had in place of `ACCOUNTS`."""
DATASETS_1 = (DATASETS.c.name, DATASETS.c.fingerprint, DATASETS.c.budget, DATASETS.c.spent)
# One query, so that a migration by another process is seen whole or not at all.
_HEAD_AND_REVISION = sa.select(HEAD, REVISION.c.version_num).select_from(
    HEAD.outerjoin(REVISION, sa.true())
)


def records_of(version: int) -> tuple[sa.ColumnElement[Any], ...]:
    """The columns of a record; versions before 3 had no unit."""
    unit: sa.ColumnElement[Any] = sa.null().label("unit")
    return tuple(unit if c.name == "unit" and version < VERSION else c for c in RECORDS.c)


def create(connection: sa.Connection) -> None:
    """Makes the tables and the head of an empty chain, in the running transaction."""
    METADATA.create_all(connection)
    head = {"id": 1, "format": FORMAT, "version": VERSION, "records": 0, "hash": GENESIS}
    connection.execute(sa.insert(HEAD), head)
    connection.execute(sa.insert(REVISION), {"version_num": str(VERSION)})


def version_of(connection: sa.Connection, place: str) -> int | None:
    """The schema version of the ledger whose tables are there; None where there are none.

    Raises:
        NotALedger: there are, of another format or a schema version that can't be read; or a
            SQLite file holds other tables (a PostgreSQL database may).
        LedgerCorrupt: Alembic's table says another version.
    """
    # One query, so that a ledger another process makes meanwhile is seen whole or not at all.
    tables = sa.inspect(connection).get_table_names()
    if HEAD.name in tables:
        stamped = REVISION.name in tables
        rows = connection.execute(_HEAD_AND_REVISION if stamped else sa.select(HEAD)).all()
        row = rows[0] if rows else None
        if row is None or row.format != FORMAT or row.version not in _READABLE:
            found = "no head record" if row is None else f"{row.format} version {row.version}"
            raise NotALedger(f"Expected {FORMAT} version {VERSION} at {place}, got {found}.")
        version, revisions = int(row.version), [each.version_num for each in rows if stamped]
        if stamped and revisions != [str(version)]:
            found = " and ".join(repr(each) for each in revisions if each is not None) or "none"
            raise LedgerCorrupt(
                f"Expected revision '{version}' in {REVISION.name} of the ledger at {place}, as "
                f"its head says, got {found}. Nothing was changed."
            )
        return version
    if tables and connection.dialect.name == "sqlite":
        raise NotALedger(f"Expected a ledger at {place}, got a database with {tables[0]!r}.")
    return None
