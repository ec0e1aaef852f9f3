"""What is read from a ledger's tables and written to them, inside one transaction.

Writers are serialised: on SQLite by BEGIN IMMEDIATE, on PostgreSQL by SELECT … FOR UPDATE on the
head row, before anything else is read. So what a writer reads stays true until it commits.

Whoever can edit the tables can write anything into a row; so nothing decides about a budget that
the chain doesn't vouch for. The head must be the hash of the last record, that record must hold the
digest of all accounts as they are stored, and a record that a step relies on must lead to the head
hash by hash. Each costs the same however long the log is (the last: as much as was recorded since).

Also here: the tables of a ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, KnownRows, digest
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.chain import GENESIS, Head, Record, RecordKind, chained
from parley.privacy.ledger.errors import LedgerCorrupt, NotALedger
from parley.privacy.ledger.replay import RecordedEntry, StoredCheckpoint, recorded_entries
from parley.privacy.ledger.rows import Digests, Piece, in_pieces, summary

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


_HEAD = sa.select(HEAD).where(HEAD.c.id == 1)
_RECORDS = sa.select(RECORDS).order_by(RECORDS.c.position)
_SINCE = _RECORDS.where(RECORDS.c.position >= sa.bindparam("at"))
_OF_RUN = _RECORDS.where(
    RECORDS.c.run_id == sa.bindparam("of_run"), RECORDS.c.position > sa.bindparam("after")
)
_LATEST = (
    sa.select(RECORDS)
    .where(
        RECORDS.c.run_id == sa.bindparam("of_run"),
        RECORDS.c.index == sa.bindparam("of_index"),
        RECORDS.c.dataset == sa.bindparam("of_dataset"),
        RECORDS.c.unit == sa.bindparam("of_unit"),
    )
    .order_by(RECORDS.c.position.desc())
    .limit(1)
)
_ACCOUNTS, _NEW_RECORD = sa.select(ACCOUNTS), sa.insert(RECORDS)
_SET_HEAD = sa.update(HEAD).where(HEAD.c.id == 1)
_SET_ACCOUNT = sa.update(ACCOUNTS).where(
    ACCOUNTS.c.name == sa.bindparam("of_name"), ACCOUNTS.c.unit == sa.bindparam("of_unit")
)
_OF_CHECKPOINT = CHECKPOINTS.c.run_id == sa.bindparam("of_run")
_SET_CHECKPOINT = sa.update(CHECKPOINTS).where(_OF_CHECKPOINT)

_Row = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The entries of a run, by reservation, as the log had them when it ended with `head`."""

    run_id: str
    head: Head
    entries: Mapping[int | None, RecordedEntry]


class Reader:
    """One consistent view of a ledger, inside a transaction.

    Raises:
        LedgerCorrupt: what is stored can't be read back.
        NotALedger: another version of a ledger was put in its place.
    """

    def __init__(self, connection: sa.Connection, place: str, *, lock: bool = False) -> None:
        self._connection = connection
        row = connection.execute(_HEAD.with_for_update() if lock else _HEAD).one_or_none()
        if row is None or not (isinstance(row.records, int) and isinstance(row.hash, str)):
            raise LedgerCorrupt("Expected a head record in the ledger, it is gone or damaged.")
        self.head = Head(records=row.records, hash=row.hash)
        check_version(row.version, place)

    def since(self, position: int) -> list[Record]:
        """All records from `position` to the head, each of which leads to it hash by hash.

        Raises:
            LedgerCorrupt: they don't, or there is none: one was edited, removed or added.
        """
        # The one before is read for its hash.
        records = self._records(_SINCE, at=position - 1)
        head = Head(records=position - 1, hash=GENESIS)
        if position > 1 and records:
            head = Head(records=records[0].position, hash=records.pop(0).hash)
        for record in records:
            if not record.follows(head):
                break
            head = Head(records=record.position, hash=record.hash)
        if position < 1 or not records or records[-1].position != head.records or head != self.head:
            raise LedgerCorrupt(
                f"Expected records {position} to {self.head.records} to be those that the ledger's "
                "head vouches for, they were edited, removed or added to. Nothing was recorded; "
                "`parley ledger verify` says where."
            )
        return records

    def _records(self, query: sa.Select[Any], **bound: object) -> list[Record]:
        return [Record(**row._mapping) for row in self._connection.execute(query, bound)]

    def records(self) -> Iterator[Record]:
        """All records in order."""
        return (Record(**row._mapping) for row in self._connection.execute(_RECORDS))

    def entries_of(self, run_id: str, seen: RunLog | None) -> RunLog:
        """The entries of a run; of those that were seen, only what came since is read.

        Args:
            seen: what this gave before. It counts if the log still has the head of that time.
        """
        if seen is None or seen.run_id != run_id or not self._contains(seen.head):
            seen = RunLog(run_id=run_id, head=Head(records=0, hash=GENESIS), entries={})
        records = self._records(_OF_RUN, of_run=run_id, after=seen.head.records)
        entries = recorded_entries(records, seen.entries)
        return RunLog(run_id=run_id, head=self.head, entries=entries)

    def records_of(self, run_id: str) -> list[Record]:
        """All records of a run, in order."""
        return self._records(_OF_RUN, of_run=run_id, after=0)

    def _contains(self, head: Head) -> bool:
        """Whether the log is that of `head`, or goes on from it."""
        if head == self.head:
            return True
        query = sa.select(RECORDS.c.hash).where(RECORDS.c.position == head.records)
        return self._connection.execute(query).scalar_one_or_none() == head.hash

    def accounts(self, *, vouched: bool = True) -> dict[BudgetKey, Account]:
        """All accounts, by data, then by unit.

        Args:
            vouched: as the end of the chain vouches for them; else as their rows say it.

        Raises:
            LedgerCorrupt: it doesn't: a row was edited; or a row can't be read.
        """
        rows, units = self._rows(vouched=vouched), list(Unit)
        order = sorted(rows, key=lambda key: (key.dataset, units.index(key.unit)))
        return {key: _account_of(rows[key]) for key in order}

    def _rows(self, *, vouched: bool) -> dict[BudgetKey, _Row]:
        """The rows of all accounts; vouched for where the last record holds their digest."""
        rows: list[_Row] = [dict(row._mapping) for row in self._connection.execute(_ACCOUNTS)]
        if vouched:
            last = self.since(self.head.records)[0].content() if self.head.records else {}
            try:
                found = digest(rows)
            except TypeError:  # SQLite stores what it is given: an edited row may hold bytes.
                found = ""
            if last.get("accounts", digest(())) != found:
                raise LedgerCorrupt(
                    "Expected the totals of all budgets as the ledger's last record says, got "
                    "others: the table was edited. Nothing was recorded; `parley ledger verify` "
                    "says which."
                )
        return {_key_of(row): row for row in rows}

    def checkpoint(self, run_id: str) -> StoredCheckpoint | None:
        """The last checkpoint of a run."""
        query = sa.select(CHECKPOINTS).where(_OF_CHECKPOINT)
        row = self._connection.execute(query, {"of_run": run_id}).one_or_none()
        return None if row is None else StoredCheckpoint(**row._mapping)

    def checkpoints(self) -> Iterator[StoredCheckpoint]:
        """The last checkpoint of every run."""
        for row in self._connection.execute(sa.select(CHECKPOINTS)):
            yield StoredCheckpoint(**row._mapping)

    def rows(self, name: str) -> Iterator[Piece]:
        """The digests of a data set's rows, piece by piece."""
        query = sa.select(ROWS.c.block, ROWS.c.digests).where(ROWS.c.name == name)
        return (Piece(*row) for row in self._connection.execute(query.order_by(ROWS.c.number)))

    def known_rows(self) -> dict[str, KnownRows]:
        """What is stored of the rows of every data set."""
        named = self._connection.execute(sa.select(ROWS.c.name, ROWS.c.key).distinct()).all()
        return {each.name: summary(each.key, self.rows(each.name)) for each in named}


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger.

    Attributes:
        stored: all accounts, as the end of the chain vouches for them.
        key_path: of the key that rows are digested under.
    """

    def __init__(self, connection: sa.Connection, place: str, key_path: Path) -> None:
        super().__init__(connection, place, lock=True)
        self.key_path = key_path
        self._before, self._texts = self.head, self._rows(vouched=True)
        self.stored = {key: _account_of(row) for key, row in self._texts.items()}

    def of_dataset(self, name: str) -> dict[Unit, Account]:
        """The accounts of a data set, by unit; empty where there is none of that name."""
        keys = (BudgetKey(name, unit) for unit in Unit)
        return {key.unit: self.stored[key] for key in keys if key in self.stored}

    def latest(self, key: BudgetKey, run_id: str, index: int) -> Record | None:
        """The last record about a release; its kind says in which state the release is."""
        release = {"of_run": run_id, "of_index": index}
        found = self._records(_LATEST, of_dataset=key.dataset, of_unit=str(key.unit), **release)
        return found[0] if found else None

    def append(
        self,
        kind: RecordKind,
        *,
        account: Account,
        body: Mapping[str, Any],
        run_id: str | None = None,
        index: int | None = None,
        reservation: int | None = None,
    ) -> Record:
        """Appends the next record of the chain and stores the account that it leads to.

        See `chain.Record`. The body gets the digest of all accounts after it.
        """
        key, row = account.key, account.row()
        before, self._texts[key], self.stored[key] = self._texts.get(key), row, account
        record = chained(
            self.head,
            kind=kind,
            key=key,
            body={**body, "accounts": digest(self._texts.values())},
            run_id=run_id,
            index=index,
            reservation=reservation,
        )
        self._connection.execute(_NEW_RECORD, vars(record))
        if before is None:
            self._connection.execute(sa.insert(ACCOUNTS), row)
        elif before != row:
            changed = {name: text for name, text in row.items() if before[name] != text}
            named = {"of_name": key.dataset, "of_unit": str(key.unit)}
            self._connection.execute(_SET_ACCOUNT, {**named, **changed})
        self.head = Head(records=record.position, hash=record.hash)
        return record

    def add_rows(self, name: str, key: str, new: Mapping[str, Digests]) -> KnownRows:
        """Stores more rows of a data set, by block, under a key; what is known of all of them."""
        stored = sum(1 for _ in self.rows(name))
        pieces = (piece for block, digests in new.items() for piece in in_pieces(block, digests))
        for number, piece in enumerate(pieces, stored):
            own = {"name": name, "number": number, "key": key, **piece._asdict()}
            self._connection.execute(sa.insert(ROWS), own)
        return summary(key, self.rows(name))

    def set_checkpoint(self, **row: object) -> None:
        """Replaces the run's checkpoint: run_id, index, digest, data."""
        if not self._connection.execute(_SET_CHECKPOINT, {**row, "of_run": row["run_id"]}).rowcount:
            self._connection.execute(sa.insert(CHECKPOINTS), row)

    def finish(self) -> bool:
        """Stores the new head; whether there is anything to commit."""
        if self.head == self._before:
            return False
        self._connection.execute(_SET_HEAD, vars(self.head))
        return True


def _key_of(row: _Row) -> BudgetKey:
    try:
        return BudgetKey(row["name"], Unit(row["unit"]))
    except ValueError as error:
        raise LedgerCorrupt(
            f"Expected a unit of privacy in the account of {row['name']!r}, got {row['unit']!r}."
        ) from error


def _account_of(row: _Row) -> Account:
    try:
        return Account.from_row(row)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerCorrupt(
            f"Expected budget and totals of data set {row['name']!r}, they can't be read: {error}"
        ) from error
