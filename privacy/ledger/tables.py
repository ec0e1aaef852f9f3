"""The tables of a ledger, and which version of them it is."""

from __future__ import annotations

import sqlalchemy as sa

from parley.privacy.ledger.chain import GENESIS
from parley.privacy.ledger.errors import NotALedger

FORMAT = "parley-ledger"
VERSION = 6

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
    sa.Column("unit", sa.Text, nullable=False),
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
    sa.Column("rows", sa.Text, nullable=False),
    sa.UniqueConstraint("fingerprint", "unit"),
)
ROWS = sa.Table(
    "parley_ledger_rows",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("block", sa.Text, nullable=False),
    sa.Column("digests", sa.LargeBinary, nullable=False),
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


def is_there(connection: sa.Connection, place: str) -> bool:
    """Whether a ledger's tables are there.

    Raises:
        NotALedger: they are, of another format or version; or a SQLite file holds other tables (a
            PostgreSQL database may).
    """
    # One query, so that a ledger another process makes meanwhile is seen whole or not at all.
    tables = sa.inspect(connection).get_table_names()
    if HEAD.name in tables:
        row = connection.execute(sa.select(HEAD.c.format, HEAD.c.version)).first()
        if row is None or row.format != FORMAT:
            raise NotALedger(f"Expected {FORMAT} at {place}, got no head record of one.")
        check_version(row.version, place)
        return True
    if tables and connection.dialect.name == "sqlite":
        raise NotALedger(f"Expected a ledger at {place}, got a database with {tables[0]!r}.")
    return False


def check_version(version: object, place: str) -> None:
    """Refuses a ledger of another version of the schema.

    Raises:
        NotALedger: it is one, with what to do.
    """
    if version != VERSION:
        raise NotALedger(
            f"Expected {FORMAT} version {VERSION} at {place}, got version {version!r:.40}. The "
            "Parley that wrote it reads it. A new ledger knows nothing of what was spent in this "
            "one: give no data more there than that Parley's `ledger show` says is left."
        )
