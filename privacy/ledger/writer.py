"""The one way to change a ledger, inside one transaction that no other writer shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.chain import Head, Record, RecordKind, chained
from parley.privacy.ledger.errors import LedgerConflict
from parley.privacy.ledger.store import Reader, account_of_row, key_of_row, record_of_row
from parley.privacy.ledger.tables import ACCOUNTS, CHECKPOINTS, HEAD, RECORDS, VERSION

__all__ = ["Writer"]

_LATEST = (
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
_ADD_RECORD, _ADD_ACCOUNT = sa.insert(RECORDS), sa.insert(ACCOUNTS)
_SET_ACCOUNT = sa.update(ACCOUNTS).where(
    ACCOUNTS.c.name == sa.bindparam("of_name"), ACCOUNTS.c.unit == sa.bindparam("of_unit")
)
_SET_HEAD = sa.update(HEAD).where(HEAD.c.id == 1)
_UPSERTS = {
    name: insert.on_conflict_do_update(
        index_elements=["run_id"],
        set_={name: insert.excluded[name] for name in ("index", "digest", "data")},
    )
    for name, insert in (
        ("sqlite", sqlite.insert(CHECKPOINTS)),
        ("postgresql", postgresql.insert(CHECKPOINTS)),
    )
}


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger.

    Raises:
        LedgerCorrupt: the accounts are not those that the chain vouches for.
    """

    def __init__(self, connection: sa.Connection) -> None:
        super().__init__(connection, lock=True)
        self._before = self.head
        rows = self.rows()
        self._vouched(rows)
        self._stored = {key_of_row(row): row for row in rows} if self.version == VERSION else {}
        self._read: dict[BudgetKey, Account] = {}

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
        row = self._connection.execute(_LATEST, release).one_or_none()
        return None if row is None else record_of_row(row)

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
        key, row = account.key, account.row()
        stored, self._stored[key], self._read[key] = self._stored.get(key), row, account
        record = chained(
            self.head,
            kind=kind,
            key=key,
            body={**body, "accounts": digest(self._stored.values())},
            run_id=run_id,
            index=index,
            reservation=reservation,
        )
        self._connection.execute(_ADD_RECORD, vars(record))
        if stored is None:
            self._connection.execute(_ADD_ACCOUNT, row)
        elif stored != row:
            changed = {name: text for name, text in row.items() if stored[name] != text}
            named = {"of_name": key.dataset, "of_unit": str(key.unit)}
            self._connection.execute(_SET_ACCOUNT, {**named, **changed})
        self.head = Head(records=record.position, hash=record.hash)
        return record

    def seal(self, body: Mapping[str, Any]) -> None:
        """Appends the record that vouches for the accounts as a migration, just now, left them."""
        self.version = VERSION
        self._stored = {key_of_row(row): row for row in self.rows()}
        self._read = {}
        account = next(map(self.account, self._stored), None)
        if account is not None:  # Without a budget the chain is empty.
            self.append(RecordKind.SEAL, account=account, body=body)
            self.finish()

    def set_checkpoint(self, row: Mapping[str, Any]) -> None:
        """Replaces the run's checkpoint: run_id, index, digest, data."""
        self._connection.execute(_UPSERTS[self._connection.dialect.name], row)

    def finish(self) -> bool:
        """Stores the new head; whether there is anything to commit."""
        if self.head == self._before:
            return False
        self._connection.execute(_SET_HEAD, vars(self.head))
        return True
