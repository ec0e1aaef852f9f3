"""What can be read from a ledger's tables and written to them, inside one transaction.

Writers are serialised: on SQLite by BEGIN IMMEDIATE, on PostgreSQL by SELECT … FOR UPDATE on the
head row, before anything else is read. So what a writer reads stays true until it commits.

Whoever can edit the tables can write anything into a row; so nothing decides about a budget that
the chain doesn't vouch for. The head must be the hash of the last record, that record must hold the
digest of all accounts as they are stored, and a record that a step relies on must lead to the head
hash by hash. Each costs the same however long the log is (the last: as much as was recorded since).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.chain import GENESIS, Head, Record, RecordKind, chained
from parley.privacy.ledger.errors import LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.replay import Replay, replay
from parley.privacy.ledger.tables import (
    CHECKPOINTS,
    DATASETS,
    DATASETS_1,
    HEAD,
    RECORDS,
    VERSION,
    add_columns,
)
from parley.privacy.ledger.version_1 import spent_of_version_1

__all__ = ["Reader", "StoredCheckpoint", "Writer"]

_HEAD = sa.select(HEAD).where(HEAD.c.id == 1)
_LOCKED_HEAD = _HEAD.with_for_update()
_SINCE = (
    sa.select(RECORDS).where(RECORDS.c.position >= sa.bindparam("at")).order_by(RECORDS.c.position)
)
_RELEASE = sa.select(RECORDS).where(
    RECORDS.c.run_id == sa.bindparam("of_run"),
    RECORDS.c.dataset == sa.bindparam("of_dataset"),
    RECORDS.c.index == sa.bindparam("of_index"),
)
_LATEST = _RELEASE.order_by(RECORDS.c.position.desc()).limit(1)
_ACCOUNTS = sa.select(DATASETS).order_by(DATASETS.c.name)
_ACCOUNTS_1 = sa.select(*DATASETS_1).order_by(DATASETS.c.name)
_CHECKPOINT = sa.select(CHECKPOINTS).where(CHECKPOINTS.c.run_id == sa.bindparam("of_run"))
_SET_HEAD = sa.update(HEAD).where(HEAD.c.id == 1)
_SET_ACCOUNT = sa.update(DATASETS).where(DATASETS.c.name == sa.bindparam("called"))
_ADD_RECORD = sa.insert(RECORDS)
_ADD_DATASET = sa.insert(DATASETS)
_CHECKPOINT_SQLITE = sqlite.insert(CHECKPOINTS)
_CHECKPOINT_POSTGRESQL = postgresql.insert(CHECKPOINTS)
_UPSERTS = {
    "sqlite": _CHECKPOINT_SQLITE.on_conflict_do_update(
        index_elements=["run_id"], set_=dict(_CHECKPOINT_SQLITE.excluded)
    ),
    "postgresql": _CHECKPOINT_POSTGRESQL.on_conflict_do_update(
        index_elements=["run_id"], set_=dict(_CHECKPOINT_POSTGRESQL.excluded)
    ),
}


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


class Reader:
    """One consistent view of a ledger, inside a transaction.

    Raises:
        LedgerCorrupt: what is stored can't be read back.
    """

    def __init__(self, connection: sa.Connection, *, lock: bool = False) -> None:
        self._connection = connection
        row = connection.execute(_LOCKED_HEAD if lock else _HEAD).one_or_none()
        if row is None or not (isinstance(row.records, int) and isinstance(row.hash, str)):
            raise LedgerCorrupt("Expected a head record in the ledger, it is gone or damaged.")
        self.head = Head(records=row.records, hash=row.hash)
        self.version: int = row.version

    def since(self, position: int) -> list[Record]:
        """All records from `position` to the head, each of which leads to it hash by hash.

        Raises:
            LedgerCorrupt: they don't, or there is none: one was edited, removed or added.
        """
        # The one before is read for its hash.
        found = self._connection.execute(_SINCE, {"at": position - 1})
        records = [_record(row) for row in found]
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

    def latest(self, run_id: str, dataset: str, index: int) -> Record | None:
        """The last record about a release; its kind says in which state the release is."""
        key = {"of_run": run_id, "of_dataset": dataset, "of_index": index}
        row = self._connection.execute(_LATEST, key).one_or_none()
        return None if row is None else _record(row)

    def records(self, *, run_id: str | None = None, dataset: str | None = None) -> Iterator[Record]:
        """All records in order, or only those of a run or a data set."""
        query = sa.select(RECORDS).order_by(RECORDS.c.position)
        if run_id is not None:
            query = query.where(RECORDS.c.run_id == run_id)
        if dataset is not None:
            query = query.where(RECORDS.c.dataset == dataset)
        for row in self._connection.execute(query):
            yield _record(row)

    def stored_accounts(self) -> dict[str, Account]:
        """All data sets as their rows say it, by name. Nothing vouches for them."""
        return {name: _account(row) for name, row in self._rows().items()}

    def accounts(self) -> dict[str, Account]:
        """All data sets, by name, as the end of the chain vouches for them.

        Raises:
            LedgerCorrupt: it doesn't: a row was edited. (Of version 1 it can't be told.)
        """
        rows = self._rows()
        if self.version > 1:
            self._vouched(rows)
        return {name: _account(row) for name, row in rows.items()}

    def _rows(self) -> dict[str, dict[str, str]]:
        if self.version > 1:
            return {row.name: dict(row._mapping) for row in self._connection.execute(_ACCOUNTS)}
        return {row.name: self._of_version_1(row) for row in self._connection.execute(_ACCOUNTS_1)}

    def _of_version_1(self, row: Any) -> dict[str, str]:
        logged = self._logged.accounts.get(row.name)
        total = Composition.empty() if logged is None else logged.spent
        try:
            spent = spent_of_version_1(row.spent, total)
        except (ValueError, KeyError, TypeError, RecursionError):
            spent = row.spent  # what can't be read is refused, with its name, where it is read
        return dict(row._mapping) | {"spent": spent}

    @cached_property
    def _logged(self) -> Replay:
        return replay(self.records())

    def _vouched(self, rows: Mapping[str, Mapping[str, str]]) -> str:
        """The digest of the rows, which the last record holds."""
        try:
            found = digest(rows.values())
        except TypeError:  # SQLite stores what it is given: an edited row may hold bytes.
            found = ""
        last = self.since(self.head.records)[0].content() if self.head.records else {}
        if last.get("accounts", digest(())) != found:
            raise LedgerCorrupt(
                "Expected the data sets' totals as the ledger's last record says, got others: the "
                "table was edited. Nothing was recorded; `parley ledger verify` says which."
            )
        return found

    def checkpoint(self, run_id: str) -> StoredCheckpoint | None:
        """The last checkpoint of a run."""
        row = self._connection.execute(_CHECKPOINT, {"of_run": run_id}).one_or_none()
        return None if row is None else StoredCheckpoint(**row._mapping)

    def checkpoints(self) -> Iterator[StoredCheckpoint]:
        """The last checkpoint of every run."""
        for row in self._connection.execute(sa.select(CHECKPOINTS)):
            yield StoredCheckpoint(**row._mapping)


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger.

    Args:
        vouched: a head and the digest of all accounts at it, as this process wrote them.

    Raises:
        LedgerCorrupt: the accounts are not those that the chain vouches for.
    """

    def __init__(self, connection: sa.Connection, vouched: tuple[Head, str] | None = None) -> None:
        super().__init__(connection, lock=True)
        self._before = self.head
        self._stored = self._rows()
        self._read: dict[str, Account] = {}
        if self.version > 1 and vouched != (self.head, _digest_or_none(self._stored)):
            self._vouched(self._stored)

    @property
    def vouched(self) -> tuple[Head, str]:
        """The head, and the digest of all accounts at it."""
        return self.head, digest(self._stored.values())

    def account(self, name: str) -> Account | None:
        """A data set and what is spent on it."""
        if name not in self._read and name in self._stored:
            self._read[name] = _account(self._stored[name])
        return self._read.get(name)

    def account_of_fingerprint(self, *fingerprints: str) -> Account | None:
        """The data set known by one of these.

        Raises:
            LedgerConflict: they are of several.
        """
        wanted = set(fingerprints) - {""}
        accounts = (self.account(name) for name in self._stored)
        found = [each for each in accounts if each is not None and wanted & each.fingerprints]
        if len(found) > 1:
            names = " and ".join(repr(each.budget.name) for each in found)
            raise LedgerConflict(
                f"Expected data of one data set, got the file of one with the records of another: "
                f"{names}."
            )
        return found[0] if found else None

    def held_by(self, run_id: str) -> list[str]:
        """The data sets of whose budgets a run holds something."""
        accounts = ((name, self.account(name)) for name in self._stored)
        return [name for name, each in accounts if each is not None and run_id in each.held]

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

        See `ledger_chain.Record`. The body gets the digest of all accounts after it.
        """
        name, row = account.budget.name, account.row()
        stored = self._stored.get(name)
        self._read[name], self._stored[name] = account, row
        record = chained(
            self.head,
            kind=kind,
            dataset=name,
            body={**body, "accounts": digest(self._stored.values())},
            run_id=run_id,
            index=index,
            reservation=reservation,
        )
        self._connection.execute(_ADD_RECORD, vars(record))
        if stored is None:
            self._connection.execute(_ADD_DATASET, row)
        elif stored != row:
            self._connection.execute(_SET_ACCOUNT, {"called": name, **row})
        self.head = Head(records=record.position, hash=record.hash)
        return record

    def upgrade(self) -> None:
        """Makes the tables of a version 1 ledger, whose log was found sound, those of version 2."""
        rows = self._rows()
        add_columns(self._connection)
        for name, row in rows.items():
            self._connection.execute(_SET_ACCOUNT, {"called": name, "spent": row["spent"]})
        self.version = VERSION
        self._stored = self._rows()

    def set_checkpoint(self, row: Mapping[str, Any]) -> None:
        """Replaces the run's checkpoint: run_id, index, digest, data."""
        self._connection.execute(_UPSERTS[self._connection.dialect.name], row)

    def finish(self) -> bool:
        """Stores the new head; whether there is anything to commit."""
        if self.head == self._before:
            return False
        self._connection.execute(_SET_HEAD, vars(self.head))
        return True


def _record(row: sa.Row[Any]) -> Record:
    return Record(**row._mapping)


def _digest_or_none(rows: Mapping[str, Mapping[str, str]]) -> str | None:
    try:
        return digest(rows.values())
    except TypeError:
        return None


def _account(row: Mapping[str, str]) -> Account:
    try:
        return Account.from_row(row)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerCorrupt(
            f"Expected budget and totals of data set {row['name']!r}, they can't be read: {error}"
        ) from error
