"""The one way to change a ledger, inside one transaction that no other writer shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.chain import Head, Record, RecordKind, chained
from parley.privacy.ledger.errors import LedgerConflict
from parley.privacy.ledger.store import Reader, account_of_row, record_of_row
from parley.privacy.ledger.tables import ACCOUNTS, CHECKPOINTS, HEAD, RECORDS

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
_ADD_RECORD, _ADD_ACCOUNT = sa.insert(RECORDS), sa.insert(ACCOUNTS)
_SET_ACCOUNT = sa.update(ACCOUNTS).where(
    ACCOUNTS.c.name == sa.bindparam("of_name"), ACCOUNTS.c.unit == sa.bindparam("of_unit")
)
_DROP_CHECKPOINT = sa.delete(CHECKPOINTS).where(CHECKPOINTS.c.run_id == sa.bindparam("of_run"))
_ADD_CHECKPOINT = sa.insert(CHECKPOINTS)
_SET_HEAD = sa.update(HEAD).where(HEAD.c.id == 1)


class Writer(Reader):
    """A view that no other writer shares, and the only way to change a ledger.

    Raises:
        LedgerCorrupt: the accounts are not those that the chain vouches for.
    """

    def __init__(self, connection: sa.Connection, place: str) -> None:
        super().__init__(connection, place, lock=True)
        self._before, self._stored = self.head, self.vouched_rows()
        self._read: dict[BudgetKey, Account] = {}

    def _account(self, key: BudgetKey) -> Account:
        if key not in self._read:
            self._read[key] = account_of_row(self._stored[key])
        return self._read[key]

    def of_dataset(self, name: str) -> dict[Unit, Account]:
        """The accounts of a data set, by unit; empty where there is none of that name."""
        keys = (BudgetKey(name, unit) for unit in Unit)
        return {key.unit: self._account(key) for key in keys if key in self._stored}

    def dataset_known_by(self, *fingerprints: str) -> str | None:
        """The name of the data set that is known by one of these.

        Raises:
            LedgerConflict: they are of several.
        """
        wanted = set(fingerprints) - {""}
        known = (key for key in self._stored if wanted & self._account(key).fingerprints)
        found = {key.dataset for key in known}
        if len(found) > 1:
            names = " and ".join(repr(name) for name in sorted(found))
            raise LedgerConflict(
                f"Expected data of one data set, got the file of one with the records of another: "
                f"{names}."
            )
        return found.pop() if found else None

    def latest(self, key: BudgetKey, run_id: str, index: int) -> Record | None:
        """The last record about a release; its kind says in which state the release is."""
        release = {
            "of_run": run_id,
            "of_dataset": key.dataset,
            "of_unit": str(key.unit),
            "of_index": index,
        }
        row = self._connection.execute(_LATEST, release).one_or_none()
        return None if row is None else record_of_row(row)

    def held_by(self, run_id: str) -> list[BudgetKey]:
        """The budgets of which a run holds something."""
        return [key for key in self._stored if run_id in self._account(key).held]

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

    def set_checkpoint(self, row: Mapping[str, Any]) -> None:
        """Replaces the run's checkpoint: run_id, index, digest, data."""
        self._connection.execute(_DROP_CHECKPOINT, {"of_run": row["run_id"]})
        self._connection.execute(_ADD_CHECKPOINT, row)

    def finish(self) -> bool:
        """Stores the new head; whether there is anything to commit."""
        if self.head == self._before:
            return False
        self._connection.execute(_SET_HEAD, vars(self.head))
        return True
