"""What can be read from a ledger's tables and written to them, inside one transaction.

Writers are serialised: on SQLite by BEGIN IMMEDIATE, on PostgreSQL by SELECT … FOR UPDATE on the
head row, before anything else is read. So what a writer reads stays true until it commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from privacy.events import Composition
from privacy.ledger_budget import DatasetBudget
from privacy.ledger_chain import Head, Record, RecordKind, canonical_json, chained
from privacy.ledger_errors import LedgerCorrupt
from privacy.ledger_tables import CHECKPOINTS, DATASETS, HEAD, RECORDS

__all__ = ["Account", "Reader", "StoredCheckpoint", "Writer"]

_HEAD = sa.select(HEAD).where(HEAD.c.id == 1)
_LOCKED_HEAD = _HEAD.with_for_update()
_RECORD = sa.select(RECORDS).where(RECORDS.c.position == sa.bindparam("at"))
_RELEASE = sa.select(RECORDS).where(
    RECORDS.c.run_id == sa.bindparam("of_run"),
    RECORDS.c.dataset == sa.bindparam("of_dataset"),
    RECORDS.c.index == sa.bindparam("of_index"),
)
_LATEST = _RELEASE.order_by(RECORDS.c.position.desc()).limit(1)
_SETTLEMENT = _RELEASE.where(
    RECORDS.c.reservation == sa.bindparam("of_reservation"),
    RECORDS.c.position > sa.bindparam("of_reservation"),
)
_DATASET = sa.select(DATASETS).where(DATASETS.c.name == sa.bindparam("called"))
_FINGERPRINT = sa.select(DATASETS).where(DATASETS.c.fingerprint == sa.bindparam("print"))
_CHECKPOINT = sa.select(CHECKPOINTS).where(CHECKPOINTS.c.run_id == sa.bindparam("of_run"))
_SET_HEAD = sa.update(HEAD).where(HEAD.c.id == 1)
_SET_SPENT = sa.update(DATASETS).where(DATASETS.c.name == sa.bindparam("called"))
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
class Account:
    """A registered data set and the composition of all its charged releases."""

    budget: DatasetBudget
    spent: Composition


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

    def record(self, position: int) -> Record | None:
        """The record at `position`."""
        row = self._connection.execute(_RECORD, {"at": position}).one_or_none()
        return None if row is None else _record(row)

    def latest(self, run_id: str, dataset: str, index: int) -> Record | None:
        """The last record about a release; its kind says in which state the release is."""
        key = {"of_run": run_id, "of_dataset": dataset, "of_index": index}
        row = self._connection.execute(_LATEST, key).one_or_none()
        return None if row is None else _record(row)

    def settlement(self, reserved: Record) -> Record | None:
        """The record that committed or voided the reservation."""
        key = {
            "of_run": reserved.run_id,
            "of_dataset": reserved.dataset,
            "of_index": reserved.index,
            "of_reservation": reserved.position,
        }
        row = self._connection.execute(_SETTLEMENT, key).one_or_none()
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

    def account(self, name: str) -> Account | None:
        """A data set and what is spent on it."""
        row = self._connection.execute(_DATASET, {"called": name}).one_or_none()
        return None if row is None else _account(row)

    def account_of_fingerprint(self, fingerprint: str) -> Account | None:
        """The data set with this fingerprint."""
        row = self._connection.execute(_FINGERPRINT, {"print": fingerprint}).one_or_none()
        return None if row is None else _account(row)

    def accounts(self) -> list[Account]:
        """All data sets, by name."""
        query = sa.select(DATASETS).order_by(DATASETS.c.name)
        return [_account(row) for row in self._connection.execute(query)]

    def checkpoint(self, run_id: str) -> StoredCheckpoint | None:
        """The last checkpoint of a run."""
        row = self._connection.execute(_CHECKPOINT, {"of_run": run_id}).one_or_none()
        return None if row is None else StoredCheckpoint(**row._mapping)

    def checkpoints(self) -> Iterator[StoredCheckpoint]:
        """The last checkpoint of every run."""
        for row in self._connection.execute(sa.select(CHECKPOINTS)):
            yield StoredCheckpoint(**row._mapping)


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger."""

    def __init__(self, connection: sa.Connection) -> None:
        super().__init__(connection, lock=True)
        self._before = self.head

    def append(
        self,
        kind: RecordKind,
        *,
        dataset: str,
        body: Mapping[str, Any],
        run_id: str | None = None,
        index: int | None = None,
        reservation: int | None = None,
    ) -> Record:
        """Appends the next record of the chain; see `ledger_chain.Record`."""
        record = chained(
            self.head,
            kind=kind,
            dataset=dataset,
            body=body,
            run_id=run_id,
            index=index,
            reservation=reservation,
        )
        self._connection.execute(_ADD_RECORD, vars(record))
        self.head = Head(records=record.position, hash=record.hash)
        return record

    def add_account(self, budget: DatasetBudget) -> None:
        """A new data set, nothing spent."""
        row = {
            "name": budget.name,
            "fingerprint": budget.fingerprint,
            "budget": canonical_json(budget.to_json()),
            "spent": canonical_json(Composition.empty().to_json()),
        }
        self._connection.execute(_ADD_DATASET, row)

    def set_spent(self, name: str, spent: Composition) -> None:
        """New running totals of a data set."""
        row = {"called": name, "spent": canonical_json(spent.to_json())}
        self._connection.execute(_SET_SPENT, row)

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


def _account(row: sa.Row[Any]) -> Account:
    try:
        return Account(
            budget=DatasetBudget.from_json(json.loads(row.budget)),
            spent=Composition.from_json(json.loads(row.spent)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            f"Expected budget and totals of data set {row.name!r}, they can't be read: {error}"
        ) from error
