"""What can be read from a ledger's tables and written to them, inside one transaction.

Writers are serialised: on SQLite by BEGIN IMMEDIATE, on PostgreSQL by SELECT … FOR UPDATE on the
head row, before anything else is read. So what a writer reads stays true until it commits.

Whoever can edit the tables can write anything into a row; so nothing decides about a budget that
the chain doesn't vouch for. The head must be the hash of the last record, that record must hold the
digest of all accounts as they are stored, and a record that a step relies on must lead to the head
hash by hash. Each costs the same however long the log is (the last: as much as was recorded since).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.chain import GENESIS, Head, Record
from parley.privacy.ledger.errors import LedgerCorrupt
from parley.privacy.ledger.replay import RecordedEntry, recorded_entries
from parley.privacy.ledger.tables import ACCOUNTS, CHECKPOINTS, HEAD, RECORDS, check_version

_HEAD = sa.select(HEAD).where(HEAD.c.id == 1)
_LOCKED_HEAD = _HEAD.with_for_update()
_RECORDS = sa.select(RECORDS).order_by(RECORDS.c.position)
_SINCE = _RECORDS.where(RECORDS.c.position >= sa.bindparam("at"))
_OF_RUN = _RECORDS.where(
    RECORDS.c.run_id == sa.bindparam("of_run"), RECORDS.c.position > sa.bindparam("after")
)
_HASH = sa.select(RECORDS.c.hash).where(RECORDS.c.position == sa.bindparam("at"))
_ACCOUNTS = sa.select(ACCOUNTS)
_CHECKPOINT = sa.select(CHECKPOINTS).where(CHECKPOINTS.c.run_id == sa.bindparam("of_run"))


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """A model as the run with `run_id` had it after its release `index`, with its SHA-256."""

    run_id: str
    index: int
    digest: str
    data: bytes

    @property
    def sound(self) -> bool:
        """Whether the bytes are those the digest was made of."""
        # SQLite stores what it is given: an edited row may hold text.
        return isinstance(self.data, bytes) and sha256(self.data).hexdigest() == self.digest


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The entries of a run, by reservation, as the log had them when it ended with `head`."""

    run_id: str
    head: Head
    entries: Mapping[int | None, RecordedEntry]


class Reader:
    """One consistent view of a ledger, inside a transaction.

    Args:
        place: how messages call it.
        lock: keep writers out.

    Raises:
        LedgerCorrupt: what is stored can't be read back.
        NotALedger: another version of a ledger was put in its place.
    """

    def __init__(self, connection: sa.Connection, place: str, *, lock: bool = False) -> None:
        self._connection = connection
        row = connection.execute(_LOCKED_HEAD if lock else _HEAD).one_or_none()
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
        found = self._connection.execute(_SINCE, {"at": position - 1})
        records = [record_of_row(row) for row in found]
        head = Head(records=position - 1, hash=GENESIS)
        if position > 1 and records:
            head = Head(records=records[0].position, hash=records.pop(0).hash)
        for record in records:
            if record.follows(head):
                head = Head(records=record.position, hash=record.hash)
            else:
                break
        if position < 1 or not records or records[-1].position != head.records or head != self.head:
            raise LedgerCorrupt(
                f"Expected records {position} to {self.head.records} to be those that the ledger's "
                "head vouches for, they were edited, removed or added to. Nothing was recorded; "
                "`parley ledger verify` says where."
            )
        return records

    def records(self) -> Iterator[Record]:
        """All records in order."""
        for row in self._connection.execute(_RECORDS):
            yield record_of_row(row)

    def entries(self) -> tuple[RecordedEntry, ...]:
        """All entries, in the order of their reservation."""
        return tuple(recorded_entries(self.records()).values())

    def entries_of(self, run_id: str, seen: RunLog | None) -> RunLog:
        """The entries of a run; of those that were seen, only what came since is read.

        Args:
            run_id: the run.
            seen: what this gave before. It counts if the log still has the head of that time.
        """
        if seen is None or seen.run_id != run_id or not self._contains(seen.head):
            seen = RunLog(run_id=run_id, head=Head(records=0, hash=GENESIS), entries={})
        wanted = {"of_run": run_id, "after": seen.head.records}
        records = (record_of_row(row) for row in self._connection.execute(_OF_RUN, wanted))
        entries = recorded_entries(records, seen.entries)
        return RunLog(run_id=run_id, head=self.head, entries=entries)

    def _contains(self, head: Head) -> bool:
        """Whether the log is that of `head`, or goes on from it."""
        if head.records in (0, self.head.records):
            return head.records == 0 or head == self.head
        row = self._connection.execute(_HASH, {"at": head.records}).one_or_none()
        return row is not None and row.hash == head.hash

    def stored_accounts(self) -> dict[BudgetKey, Account]:
        """All accounts as their rows say it. Nothing vouches for them."""
        return {key_of_row(row): account_of_row(row) for row in self._rows()}

    def accounts(self) -> dict[BudgetKey, Account]:
        """All accounts as the end of the chain vouches for them, by data, then by unit.

        Raises:
            LedgerCorrupt: it doesn't: a row was edited.
        """
        rows, units = self.vouched_rows(), list(Unit)
        order = sorted(rows, key=lambda key: (key.dataset, units.index(key.unit)))
        return {key: account_of_row(rows[key]) for key in order}

    def vouched_rows(self) -> dict[BudgetKey, dict[str, str]]:
        """The rows of all accounts, of which the last record holds the digest.

        Raises:
            LedgerCorrupt: it doesn't: a row was edited.
        """
        rows = self._rows()
        last = self.since(self.head.records)[0].content() if self.head.records else {}
        if last.get("accounts", digest(())) != _digest(rows):
            raise LedgerCorrupt(
                "Expected the totals of all budgets as the ledger's last record says, got others: "
                "the table was edited. Nothing was recorded; `parley ledger verify` says which."
            )
        return {key_of_row(row): row for row in rows}

    def _rows(self) -> list[dict[str, str]]:
        return [dict(row._mapping) for row in self._connection.execute(_ACCOUNTS)]

    def checkpoint(self, run_id: str) -> StoredCheckpoint | None:
        """The last checkpoint of a run."""
        row = self._connection.execute(_CHECKPOINT, {"of_run": run_id}).one_or_none()
        return None if row is None else StoredCheckpoint(**row._mapping)

    def checkpoints(self) -> Iterator[StoredCheckpoint]:
        """The last checkpoint of every run."""
        for row in self._connection.execute(sa.select(CHECKPOINTS)):
            yield StoredCheckpoint(**row._mapping)


def _digest(rows: Iterable[Mapping[str, str]]) -> str:
    """Of the rows; "" where they hold what no ledger wrote."""
    try:
        return digest(rows)
    except TypeError:  # SQLite stores what it is given: an edited row may hold bytes.
        return ""


def record_of_row(row: sa.Row[Any]) -> Record:
    """A record as its row has it."""
    return Record(**row._mapping)


def key_of_row(row: Mapping[str, str]) -> BudgetKey:
    """Which budget a row is of.

    Raises:
        LedgerCorrupt: no unit of privacy.
    """
    try:
        return BudgetKey(row["name"], Unit(row["unit"]))
    except ValueError as error:
        raise LedgerCorrupt(
            f"Expected a unit of privacy in the account of {row['name']!r}, got {row['unit']!r}."
        ) from error


def account_of_row(row: Mapping[str, str]) -> Account:
    """A budget and its totals from their row.

    Raises:
        LedgerCorrupt: it can't be read.
    """
    try:
        return Account.from_row(row)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerCorrupt(
            f"Expected budget and totals of data set {row['name']!r}, they can't be read: {error}"
        ) from error
