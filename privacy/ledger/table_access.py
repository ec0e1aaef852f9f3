"""Read and write a ledger's tables, inside one transaction.

Writers are serialised before they read anything else: on SQLite by BEGIN IMMEDIATE, on PostgreSQL
by SELECT … FOR UPDATE on the head row. So what a writer reads stays true until it commits.

An attacker who can edit the tables can write anything into a row. So no decision about a budget
uses a value that the chain does not vouch for. The head must be the hash of the last record, that
record must contain the digest of all accounts as they are stored, and a record that a step relies
on must lead to the head hash by hash. Each check costs the same for any length of the log (the
last: as much as was recorded since).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import (
    BudgetAccount,
    DigestPiece,
    Digests,
    KnownRows,
    digest_accounts,
)
from parley.privacy.ledger.account_transitions import apply_record
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_schema import (
    ACCOUNTS,
    CHECKPOINTS,
    HEAD,
    READABLE_VERSIONS,
    RECORDS,
    ROWS,
    VERSION,
    build_select,
    check_version,
)
from parley.privacy.ledger.hash_chain import (
    GENESIS,
    ChainHead,
    LedgerRecord,
    RecordKind,
    build_record,
)
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.recorded_entries import StoredCheckpoint, parse_entry

if TYPE_CHECKING:
    from parley.privacy.ledger.run_charges import RunCharges

_HEAD = build_select(HEAD, "WHERE id = 1")
_ANY_RELEASE = f'SELECT 1 FROM {RECORDS} WHERE run_id = ? AND "index" IS NOT NULL LIMIT 1'  # noqa: S608 - a name of ours
LATEST = build_select(
    RECORDS,
    'WHERE run_id = ? AND "index" = ? AND dataset = ? AND unit = ? ORDER BY position DESC LIMIT 1',
)
"""Query for the last record about a release, which is found by its index."""
_CHECKPOINT = build_select(CHECKPOINTS, "WHERE run_id = ?")
_PIECES = f"SELECT block, digests FROM {ROWS} WHERE name = ? ORDER BY number"  # noqa: S608 - a name of ours
_NAMES = f"SELECT DISTINCT name, key FROM {ROWS}"  # noqa: S608 - a name of ours

_Row = dict[str, str]
Readings: TypeAlias = deque[tuple[str, KnownRows | None]]


class LedgerReader:
    """One consistent view of a ledger, inside the transaction of `connection`.

    Raises:
        LedgerCorrupt: the stored data cannot be read.
        NotALedger: it was replaced by a ledger of another version.
    """

    def __init__(
        self,
        connection: DatabaseConnection,
        place: str,
        *,
        lock: bool = False,
        accepted: Collection[int] = READABLE_VERSIONS,
    ) -> None:
        self.connection = connection
        self._verify_command = f"`parley ledger verify {quote(place)}`"
        locked = lock and connection.postgresql
        rows = list(connection.fetch_rows(f"{_HEAD} FOR UPDATE" if locked else _HEAD))
        records, end = (rows[0]["records"], rows[0]["hash"]) if rows else (None, None)
        if not (isinstance(records, int) and isinstance(end, str)):
            raise LedgerCorrupt("Expected a head record in the ledger, it is missing or damaged.")
        self.head = ChainHead(records=records, hash=end)
        self.version: int = rows[0]["version"]
        check_version(self.version, place, accepted)

    def load_since(self, position: int) -> list[LedgerRecord]:
        """Return all records from `position` to the head, each of which leads to it hash by hash.

        Raises:
            LedgerCorrupt: they do not, or there is none: one was edited, removed or added.
        """
        # The record before `position` is read for its hash.
        records = list(self._iterate("position >= ?", position - 1))
        head = ChainHead(records=position - 1, hash=GENESIS)
        if position > 1 and records:
            head = ChainHead(records=records[0].position, hash=records.pop(0).hash)
        for record in records:
            if not record.is_successor_of(head):
                break
            head = ChainHead(records=record.position, hash=record.hash)
        if position < 1 or not records or records[-1].position != head.records or head != self.head:
            raise LedgerCorrupt(
                f"Expected records {position} to {self.head.records} to be those that the ledger's "
                "head vouches for: some were edited, removed or added. Nothing was recorded; "
                f"{self._verify_command} shows where."
            )
        return records

    def _iterate(self, condition: str, *values: object) -> Iterator[LedgerRecord]:
        query = build_select(RECORDS, f"WHERE {condition} ORDER BY position")
        return (LedgerRecord(**row) for row in self.connection.fetch_rows(query, *values))

    def iterate_records(self, run_id: str | None = None) -> Iterator[LedgerRecord]:
        """Yield all records, or those of a run, in order."""
        return self._iterate("true") if run_id is None else self._iterate("run_id = ?", run_id)

    def count_charges(self, run_id: str, seen: RunCharges | None) -> RunCharges:
        """Return how often a run was charged; after `seen`, only newer records are read.

        Args:
            seen: an earlier result. It is used if the log still contains its head.
        """
        from parley.privacy.ledger.run_charges import RunCharges  # noqa: PLC0415 - spares its code for a ledger that is no party's

        if seen is None or seen.run_id != run_id or not self.has_head(seen.head):
            start = RunCharges(run_id=run_id, head=ChainHead(records=0, hash=GENESIS))
            return start.with_records(self.iterate_records(run_id), self.head)
        newer = self._iterate("position > ?", seen.head.records)
        return seen.with_records((each for each in newer if each.run_id == run_id), self.head)

    def has_entries(self, run_id: str) -> bool:
        """Return whether the run ever reserved a release."""
        return any(True for _ in self.connection.fetch_rows(_ANY_RELEASE, run_id))

    def iterate_release(self, run_id: str, dataset: str, index: int) -> Iterator[LedgerRecord]:
        """Yield all records about a release on a data set in order."""
        condition = 'run_id = ? AND dataset = ? AND "index" = ?'
        return self._iterate(condition, run_id, dataset, index)

    def iterate_decisions(self, run_id: str | None) -> Iterator[LedgerRecord]:
        """Yield records that include an owner's decisions: a run's about no release, or all."""
        if run_id is None:
            return self.iterate_records()
        return self._iterate('run_id = ? AND "index" IS NULL', run_id)

    def has_head(self, head: ChainHead) -> bool:
        """Return whether the log is that of `head`, or continues from it."""
        if head == self.head:
            return True
        return [each.hash for each in self._iterate("position = ?", head.records)] == [head.hash]

    def load_accounts(self, *, verified: bool = True) -> dict[BudgetKey, BudgetAccount]:
        """Return all accounts, ordered by data, then by unit.

        Args:
            verified: require that the end of the chain vouches for them; else take the rows
                unchecked.

        Raises:
            LedgerCorrupt: it does not, because a row was edited; or a row cannot be read.
        """
        rows, units = self._load_rows(verified=verified), list(Unit)
        order = sorted(rows, key=lambda key: (key.dataset, units.index(key.unit)))
        return {key: _parse_account(rows[key]) for key in order}

    def _load_rows(self, *, verified: bool) -> dict[BudgetKey, _Row]:
        """Return all accounts' rows; if `verified`, the last record must contain their digest."""
        rows: list[_Row] = list(self.connection.fetch_rows(build_select(ACCOUNTS)))
        if verified:
            last = self.load_since(self.head.records)[0].parse_body() if self.head.records else {}
            try:
                found = digest_accounts(rows)
            except TypeError:  # SQLite stores any type, so an edited row may contain bytes.
                found = ""
            if last.get("accounts", digest_accounts(())) != found:
                raise LedgerCorrupt(
                    "Expected the totals of all budgets as in the ledger's last record, got other "
                    "totals: the table was edited. Nothing was recorded; "
                    f"{self._verify_command} shows which."
                )
        return {_parse_key(row): row for row in rows}

    def load_checkpoint(self, run_id: str) -> StoredCheckpoint | None:
        """Return the last checkpoint of a run."""
        found = [StoredCheckpoint(**row) for row in self.connection.fetch_rows(_CHECKPOINT, run_id)]
        return found[0] if found else None

    def iterate_checkpoints(self) -> Iterator[StoredCheckpoint]:
        """Yield the last checkpoint of every run."""
        for row in self.connection.fetch_rows(build_select(CHECKPOINTS)):
            yield StoredCheckpoint(**row)

    def iterate_pieces(self, name: str) -> Iterator[DigestPiece]:
        """Yield the digests of a data set's rows, piece by piece."""
        return (DigestPiece(**row) for row in self.connection.fetch_rows(_PIECES, name))

    def summarise_rows(self) -> dict[str, KnownRows]:
        """Return the summary of the stored rows of every data set."""
        named = list(self.connection.fetch_rows(_NAMES))
        if not named:
            return {}
        from parley.privacy.ledger.record_digests import summarise_pieces  # noqa: PLC0415 - spares its code for data without digests of rows

        return {
            each["name"]: summarise_pieces(each["key"], self.iterate_pieces(each["name"]))
            for each in named
        }


class LedgerWriter(LedgerReader):
    """A view with exclusive write access, and the only way to change a ledger's content.

    Attributes:
        accounts: all accounts that the end of the chain vouches for.
        initial_head: the end of the log before the transaction.
        key_path: path of the key for row digests.
        readings: blocks that this process read recently, with the rows that were all known then.
            They are not in the log, which would grow with every choice of blocks, uncharged.
    """

    def __init__(
        self, connection: DatabaseConnection, place: str, key_path: Path, readings: Readings
    ) -> None:
        super().__init__(connection, place, lock=True, accepted=(VERSION,))
        self.key_path, self.readings = key_path, readings
        self.initial_head, self._account_rows = self.head, self._load_rows(verified=True)
        self.accounts = {key: _parse_account(row) for key, row in self._account_rows.items()}

    def get_accounts(self, name: str) -> dict[Unit, BudgetAccount]:
        """Return the accounts of a data set, by unit; empty if there is none with that name."""
        keys = (BudgetKey(name, unit) for unit in Unit)
        return {key.unit: self.accounts[key] for key in keys if key in self.accounts}

    def find_latest(self, key: BudgetKey, run_id: str, index: int) -> LedgerRecord | None:
        """Return the last record about a release; its kind shows the release's state."""
        named = run_id, index, key.dataset, str(key.unit)
        rows = list(self.connection.fetch_rows(LATEST, *named))
        return LedgerRecord(**rows[0]) if rows else None

    def load_reservation(self, reservation: int | None) -> tuple[LedgerRecord, LedgerRecord | None]:
        """Return the record of a reservation and the one that settled it, verified by the chain.

        Raises:
            LedgerConflict: there is no reservation with that id.
        """
        records: list[LedgerRecord] = []
        # SQLite stores any type, so an edited row may contain text.
        if isinstance(reservation, int) and 1 <= reservation <= self.head.records:
            records = self.load_since(reservation)
        if not records or records[0].kind != RecordKind.RESERVE:
            raise LedgerConflict(f"Expected the id of a reservation, got {reservation}.")
        first, *later = records
        return first, next((each for each in later if each.reservation == reservation), None)

    def settle(
        self, reservation: int, kind: RecordKind, body: Mapping[str, Any]
    ) -> tuple[LedgerRecord, LedgerRecord | None]:
        """Append the settlement of an open reservation; return the result of `load_reservation`."""
        first, settled = self.load_reservation(reservation)
        if settled is None:
            named = {"run_id": first.run_id, "index": first.index, "reservation": reservation}
            self.append(kind, first.key, body, settled_entry=parse_entry(first), **named)
        return first, settled

    def append(
        self,
        kind: RecordKind,
        key: BudgetKey,
        body: Mapping[str, Any],
        *,
        settled_entry: LedgerEntry | None = None,
        **named: Any,
    ) -> LedgerRecord:
        """Append the next record of the chain and store the account that it leads to.

        See `hash_chain.build_record` and `account_transitions.apply_record`. The body gets the
        digest of all accounts after it.
        """
        draft = build_record(self.head, kind, key, body, **named)
        account = apply_record(self.accounts.get(key), draft, settled_entry)
        before, row = self._account_rows.get(key), account.to_row()
        self._account_rows[key], self.accounts[key] = row, account
        vouching = {**body, "accounts": digest_accounts(self._account_rows.values())}
        record = build_record(self.head, kind, key, vouching, **named)
        self.connection.insert(RECORDS, vars(record))
        if before is None:
            self.connection.insert(ACCOUNTS, row)
        elif before != row:
            changed = {name: text for name, text in row.items() if before[name] != text}
            named = {"name": key.dataset, "unit": str(key.unit)}
            self.connection.update(ACCOUNTS, changed, named)
        self.head = ChainHead(records=record.position, hash=record.hash)
        return record

    def add_rows(self, name: str, key: str, new: Mapping[str, Digests]) -> KnownRows:
        """Store more rows of a data set, by block, under a key; return the summary of all rows."""
        from parley.privacy.ledger.record_digests import split_into_pieces, summarise_pieces  # noqa: PLC0415 - likewise

        stored = sum(1 for _ in self.iterate_pieces(name))
        pieces = (piece for each in new.items() for piece in split_into_pieces(*each))
        for number, piece in enumerate(pieces, stored):
            own = {"name": name, "number": number, "key": key, **piece._asdict()}
            self.connection.insert(ROWS, own)
        return summarise_pieces(key, self.iterate_pieces(name))

    def set_checkpoint(self, **row: object) -> None:
        """Replace the run's checkpoint: run_id, index, digest, data."""
        if not self.connection.update(CHECKPOINTS, row, {"run_id": row["run_id"]}):
            self.connection.insert(CHECKPOINTS, row)

    def finish(self) -> bool:
        """Store the new head; return whether there is anything to commit."""
        if self.head == self.initial_head:
            return False
        self.connection.update(HEAD, vars(self.head), {"id": 1})
        return True


def _parse_key(row: _Row) -> BudgetKey:
    try:
        return BudgetKey(row["name"], Unit(row["unit"]))
    except ValueError as error:
        raise LedgerCorrupt(
            f"Expected a unit of privacy in the account of {row['name']!r}, got {row['unit']!r}."
        ) from error


def _parse_account(row: _Row) -> BudgetAccount:
    try:
        return BudgetAccount.from_row(row)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerCorrupt(
            f"Expected budget and totals of data set {row['name']!r}, they can't be read: {error}"
        ) from error
