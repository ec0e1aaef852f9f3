"""Entries as the log contains them: what was reserved, and how it was settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any

from parley.privacy.ledger.hash_chain import LedgerRecord, RecordKind
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerCorrupt

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions that reading an edited record's body may raise."""


class EntryState(StrEnum):
    """State of an entry. Only `VOIDED` costs nothing."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    VOIDED = "voided"


STATES = {
    RecordKind.RESERVE: EntryState.RESERVED,
    RecordKind.COMMIT: EntryState.COMMITTED,
    RecordKind.VOID: EntryState.VOIDED,
}


@dataclass(frozen=True, kw_only=True)
class RecordedEntry:
    """An entry as the ledger stores it.

    Attributes:
        reserved_at, settled_at: UTC, ISO 8601; `settled_at` is when it was committed or voided.
        outcome, reason: the arguments of `commit` and of `void`.
        checkpoint: SHA-256 of the model committed with it.
    """

    reservation_id: int
    entry: LedgerEntry
    state: EntryState
    reserved_at: str
    settled_at: str | None = None
    outcome: dict[str, Any] | None = None
    checkpoint: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return vars(self) | {"entry": self.entry.to_json(), "state": str(self.state)}

    def with_settlement(self, record: LedgerRecord) -> RecordedEntry:
        """Return the entry after a commit or void record."""
        body = record.parse_body()
        return replace(
            self,
            state=STATES[RecordKind(record.kind)],
            settled_at=body["at"],
            outcome=body.get("outcome"),
            checkpoint=body.get("checkpoint"),
            reason=body.get("reason"),
        )


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """The model of run `run_id` after its release `index`, with its SHA-256."""

    run_id: str
    index: int
    digest: str
    data: bytes

    @property
    def is_intact(self) -> bool:
        """Whether the bytes match the digest."""
        # SQLite stores any type, so an edited row may contain text.
        return isinstance(self.data, bytes) and sha256(self.data).hexdigest() == self.digest


def parse_entry(record: LedgerRecord) -> LedgerEntry:
    """Return the entry of a reserve record."""
    entry = LedgerEntry.from_json(record.parse_body()["entry"])
    if entry.key != record.key:
        raise ValueError(f"Expected an entry of {record.key}, got one of {entry.key}.")
    return entry


def parse_reserved_entry(record: LedgerRecord) -> RecordedEntry:
    """Return the recorded entry of a reserve record; see `parse_entry`."""
    return RecordedEntry(
        reservation_id=record.position,
        entry=parse_entry(record),
        state=EntryState.RESERVED,
        reserved_at=record.parse_body()["at"],
    )


@contextmanager
def report_unreadable(record: LedgerRecord) -> Iterator[None]:
    """Raise LedgerCorrupt if the block cannot read the record."""
    try:
        yield
    except UNREADABLE as error:
        raise LedgerCorrupt(
            f"Expected an entry in record {record.position}, it can't be read: "
            "run `parley ledger verify LEDGER`."
        ) from error


def iterate_entries(records: Iterable[LedgerRecord]) -> Iterator[RecordedEntry]:
    """Yield all entries among the records, in the order of their reservation.

    An entry is yielded once it and those before it are settled, or at the end.

    Raises:
        LedgerCorrupt: a record cannot be read.
    """
    entries: dict[int | None, RecordedEntry] = {}
    for record in records:
        with report_unreadable(record):
            if record.kind == RecordKind.RESERVE:
                entries[record.position] = parse_reserved_entry(record)
            elif record.kind in (RecordKind.COMMIT, RecordKind.VOID):
                entries[record.reservation] = entries[record.reservation].with_settlement(record)
        while entries and (first := next(iter(entries.values()))).state is not EntryState.RESERVED:
            yield entries.pop(first.reservation_id)
    yield from entries.values()
