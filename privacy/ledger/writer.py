"""The one way to change a ledger, inside one transaction that no other writer shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.chain import Head, Record, RecordKind, chained
from parley.privacy.ledger.errors import LedgerConflict
from parley.privacy.ledger.prepared import Prepared
from parley.privacy.ledger.store import Reader, account_of_row, key_of_row
from parley.privacy.ledger.tables import ACCOUNTS, CHECKPOINTS, HEAD, RECORDS, VERSION

__all__ = ["Left", "Writer"]

_LATEST = Prepared(
    sa.select(RECORDS)
    .where(
        RECORDS.c.run_id == sa.bindparam("of_run"),
        RECORDS.c.index == sa.bindparam("of_index"),
        # Said apart from the rest, so that the index is searched for the release, not for the run.
        RECORDS.c.dataset.in_([sa.bindparam("of_dataset"), sa.bindparam("formerly")]),
        sa.or_(
            sa.and_(
                RECORDS.c.dataset == sa.bindparam("of_dataset"),
                RECORDS.c.unit == sa.bindparam("of_unit"),
            ),
            sa.and_(RECORDS.c.dataset == sa.bindparam("formerly"), RECORDS.c.unit.is_(None)),
        ),
    )
    .order_by(RECORDS.c.position.desc())
    .limit(1)
)
_SET_HEAD = Prepared(sa.update(HEAD).where(HEAD.c.id == 1), ("records", "hash"))
# What names a row is not set again: its indexes would be written anew.
_SET_ACCOUNT = Prepared(
    sa.update(ACCOUNTS).where(
        ACCOUNTS.c.name == sa.bindparam("called"), ACCOUNTS.c.unit == sa.bindparam("of_unit")
    ),
    ["budget", "spent", "held", "known", "formerly"],
)
_ADD_RECORD = Prepared(sa.insert(RECORDS), RECORDS.c.keys())
_ADD_ACCOUNT = Prepared(sa.insert(ACCOUNTS), ACCOUNTS.c.keys())
_UPSERTS = {
    name: Prepared(
        insert.on_conflict_do_update(
            index_elements=["run_id"],
            set_={name: insert.excluded[name] for name in ("index", "digest", "data")},
        ),
        CHECKPOINTS.c.keys(),
    )
    for name, insert in (
        ("sqlite", sqlite.insert(CHECKPOINTS)),
        ("postgresql", postgresql.insert(CHECKPOINTS)),
    )
}


@dataclass(frozen=True, kw_only=True)
class Left:
    """A ledger as a writer left it, for the next writer of the same process.

    Attributes:
        changes: `_changes` then; None where the database doesn't count them.
        head: the end of the chain.
        rows: of all accounts, by budget; `digest` is theirs.
        accounts: those that were read.
        records: the last ones of the chain.
    """

    changes: int | None
    head: Head
    rows: Mapping[BudgetKey, Mapping[str, str]]
    digest: str
    accounts: Mapping[BudgetKey, Account]
    records: tuple[Record, ...]


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger.

    Where no other connection changed anything since the last writer of this one, what that wrote
    is what is there, and is not read again: the writer behind it goes on from memory.

    Args:
        left: what the last writer of this connection left.

    Raises:
        LedgerCorrupt: the accounts are not those that the chain vouches for.
    """

    def __init__(self, connection: sa.Connection, left: Left | None = None) -> None:
        self._changes = _changes(connection)
        same = left is not None and left.changes == self._changes is not None
        super().__init__(connection, lock=True, known=left.head if same and left else None)
        self._before = self.head
        self._read: dict[BudgetKey, Account] = {}
        self._records: list[Record] = []
        self._unwritten, self._new = 0, dict[BudgetKey, bool]()
        if same and left is not None:
            self._stored, self._read = dict(left.rows), dict(left.accounts)
            self._digested: str | None = left.digest
            self._records = list(left.records)
            return
        rows = self.rows()
        self._digested = self._digest(rows)
        if left is None or (left.head, left.digest) != (self.head, self._digested):
            self._vouched(rows)
        self._stored = {key_of_row(row): row for row in rows} if self.version == VERSION else {}

    @property
    def left(self) -> Left:
        """What the next writer may go on from, once this one's transaction is committed."""
        return Left(
            changes=self._changes,
            head=self.head,
            rows=self._stored,
            digest=self._digest_of_stored(),
            accounts=self._read,
            records=tuple(self._records),
        )

    def _digest_of_stored(self) -> str:
        if self._digested is None:
            self._digested = digest(self._stored.values())
        return self._digested

    def since(self, position: int) -> list[Record]:
        """See `Reader.since`; what this process appended last is not read again."""
        known = [each for each in self._records if each.position >= position]
        if known and known[0].position == position:
            return known
        self._write()
        return super().since(position)

    def account(self, key: BudgetKey) -> Account | None:
        """A budget and what is spent of it."""
        if key not in self._read and key in self._stored:
            self._read[key] = account_of_row(self._stored[key])
        return self._read.get(key)

    def of_dataset(self, name: str) -> dict[Unit, Account]:
        """The accounts of a data set, by unit; empty where there is none of that name."""
        found = {unit: self.account(BudgetKey(name, unit)) for unit in Unit}
        return {unit: account for unit, account in found.items() if account is not None}

    def dataset_known_by(self, *fingerprints: str) -> str | None:
        """The name of the data set that is known by one of these.

        Raises:
            LedgerConflict: they are of several.
        """
        wanted = set(fingerprints) - {""}
        accounts = (self.account(key) for key in self._stored)
        found = {each.key.dataset for each in accounts if each and wanted & each.fingerprints}
        if len(found) > 1:
            names = " and ".join(repr(name) for name in sorted(found))
            raise LedgerConflict(
                f"Expected data of one data set, got the file of one with the records of another: "
                f"{names}."
            )
        return found.pop() if found else None

    def latest(self, account: Account, run_id: str, index: int) -> Record | None:
        """The last record about a release; its kind says in which state the release is."""
        key = account.key
        release = {
            "of_run": run_id,
            "of_dataset": key.dataset,
            "of_unit": str(key.unit),
            "of_index": index,
            "formerly": account.formerly,
        }
        for record in reversed(self._records[len(self._records) - self._unwritten :]):
            if (record.run_id, record.index) == (run_id, index) and self.key_of(record) == key:
                return record
        row = _LATEST.run(self._connection, release).fetchone()
        return None if row is None else Record(**dict(zip(RECORDS.c.keys(), row, strict=True)))

    def held_by(self, run_id: str) -> list[BudgetKey]:
        """The budgets of which a run holds something."""
        accounts = ((key, self.account(key)) for key in self._stored)
        return [key for key, each in accounts if each is not None and run_id in each.held]

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
        key = account.key
        if self._read.get(key) is not account:
            row, stored = account.row(), self._stored.get(key)
            self._read[key], self._stored[key] = account, row
            if row != stored:
                self._digested = None
                self._new.setdefault(key, stored is None)
        record = chained(
            self.head,
            kind=kind,
            key=key,
            body={**body, "accounts": self._digest_of_stored()},
            run_id=run_id,
            index=index,
            reservation=reservation,
        )
        self._records.append(record)
        self._unwritten += 1
        self.head = Head(records=record.position, hash=record.hash)
        return record

    def _write(self) -> None:
        """Writes the records and accounts that are not in the tables yet."""
        if self._unwritten:
            added = [vars(each) for each in self._records[-self._unwritten :]]
            _ADD_RECORD.run(self._connection, *added)
        for key, new in self._new.items():
            row = self._stored[key]
            if new:
                _ADD_ACCOUNT.run(self._connection, row)
            else:
                named = {"called": key.dataset, "of_unit": str(key.unit)}
                _SET_ACCOUNT.run(self._connection, {**named, **row})
        # What came before this transaction is of no more use: what was reserved there is settled.
        self._records = self._records[-self._unwritten :] if self._unwritten else self._records
        self._unwritten, self._new = 0, {}

    def seal(self, body: Mapping[str, Any]) -> None:
        """Appends the record that vouches for the accounts as a migration, just now, left them."""
        self.version = VERSION
        self._read, self._digested = {}, None
        self._stored = {key_of_row(row): row for row in self.rows()}
        account = next(map(self.account, self._stored), None)
        if account is not None:  # Without a budget the chain is empty.
            self.append(RecordKind.SEAL, account=account, body=body)
            self.finish()

    def set_checkpoint(self, row: Mapping[str, Any]) -> None:
        """Replaces the run's checkpoint: run_id, index, digest, data."""
        _UPSERTS[self._connection.dialect.name].run(self._connection, row)

    def finish(self) -> bool:
        """Stores the new head; whether there is anything to commit."""
        if self.head == self._before:
            return False
        self._write()
        _SET_HEAD.run(self._connection, vars(self.head))
        return True


def _changes(connection: sa.Connection) -> int | None:
    """A number that any other connection's commit changes; None where the database has none."""
    if connection.dialect.name != "sqlite":
        return None
    changes: int = connection.connection.execute("PRAGMA data_version").fetchone()[0]
    return changes
