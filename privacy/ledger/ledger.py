"""The ledger: every release is reserved before it is made, and refused beyond the budget.

A ledger holds budgets: a total (ε, δ) for a data set and a unit of privacy. A release is reserved
(charged) first, made, then committed with what came of it; a reservation that led to no release may
be voided. All releases on a data set, of all runs, are composed: that total is checked and changed
in the same transaction, so that concurrent processes can't overspend together, and a kill at any
point leaves either all of a step or nothing. A reserved release counts as spent until it is voided.

Release `(run_id, dataset, unit, index)` is charged once: the same entry reserved again, as after a
crash, is the same reservation; a different entry under that name is a `LedgerConflict`.

    >>> import tempfile
    >>> from parley.privacy.accounting.privacy_events import Pure
    >>> from parley.privacy.accounting.threat_model import Neighbouring, Unit
    >>> from parley.privacy.ledger.budget import DatasetBudget
    >>> budget = DatasetBudget(
    ...     name="adult", fingerprint="sha256:0c4a", epsilon=1.0, delta=0.0,
    ...     unit=Unit.RECORD, neighbouring=Neighbouring.REPLACE_ONE,
    ... )
    >>> entry = Entry(
    ...     run_id="r1", dataset="adult", party="server", index=1,
    ...     event=Pure(epsilon=0.75),
    ...     facts={
    ...         "mechanism": "output-perturbation", "unit": "record", "neighbouring": "replace-one",
    ...         "norm": "l1", "sensitivity": 0.5, "noise_law": "laplace-l1",
    ...         "noise_parameter": 0.67, "accountant": "parley", "accountant_version": "0.1",
    ...     },
    ... )
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(folder + "/ledger.sqlite") as led:
    ...     _ = led.register(budget)
    ...     reservation, = led.reserve([entry])
    ...     led.commit([reservation.id], outcome={"survivors": 5})
    ...     led.remaining("adult", Unit.RECORD).epsilon, led.verify()
    (0.25, [])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger import owner_actions, registration, reservations
from parley.privacy.ledger.approvals import Decision, decided
from parley.privacy.ledger.budget import BudgetKey, Remaining
from parley.privacy.ledger.database import Place
from parley.privacy.ledger.hash_chain import Head, RecordKind
from parley.privacy.ledger.ledger_entry import Entry
from parley.privacy.ledger.ledger_errors import LedgerCorrupt, LedgerError
from parley.privacy.ledger.recorded_entries import RecordedEntry, recorded_entries
from parley.privacy.ledger.release_permit import Reservation, granted
from parley.privacy.ledger.replay import Problem, problems
from parley.privacy.ledger.reservations import Checkpoint

if TYPE_CHECKING:
    from parley.privacy.accounting.threat_model import Unit
    from parley.privacy.ledger.account import Account, Claims
    from parley.privacy.ledger.block_composition import Blocks
    from parley.privacy.ledger.table_access import RunLog, Writer

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_one_transaction(
    step: Callable[Concatenate[Writer, _P], _T],
) -> Callable[Concatenate[Ledger, _P], _T]:
    """A method that takes a step of `registering` or `steps`, durable when it returns."""

    @wraps(step)
    def method(ledger: Ledger, /, *given: _P.args, **named: _P.kwargs) -> _T:
        with ledger._place.writing() as writer:
            return step(writer, *given, **named)

    return method


class Ledger:
    """An open ledger; `Ledger.open` makes one. A context manager.

    Every method is one transaction. All raise `LedgerUnavailable` where the disk is full or the
    place can't be reached, read or written.
    """

    def __init__(self, place: Place) -> None:
        self._open: Place | None = place
        self._seen: RunLog | None = None
        self._name = place.name

    @classmethod
    def open(
        cls, url_or_path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False
    ) -> Self:
        """Opens the ledger at a path (SQLite) or a `postgresql://` URL.

        Args:
            create: make one if there is none (never with `read_only`).
            read_only: refuse every change, and need no right to make one.

        Raises:
            NotALedger: nothing is there, something else, or another schema version.
        """
        return cls(Place(url_or_path, create=create, read_only=read_only))

    def close(self, *, forked: bool = False) -> None:
        """Closes the file or connection; `forked`: one of the parent process is only let go."""
        if self._open is not None:
            self._open.close(forked=forked)
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._name!r})"

    @property
    def _place(self) -> Place:
        if self._open is None:
            raise LedgerError(f"Expected an open ledger, {self._name} was closed.")
        return self._open

    register = _in_one_transaction(registration.register)
    raise_budget = _in_one_transaction(owner_actions.raise_budget)
    decide = _in_one_transaction(owner_actions.decide)
    hold = _in_one_transaction(reservations.hold)
    give_back = _in_one_transaction(reservations.give_back)
    commit = _in_one_transaction(reservations.commit)
    void = _in_one_transaction(reservations.void)

    def reserve(self, entries: Sequence[Entry]) -> tuple[Reservation, ...]:
        """Charges a release before it is made, or finds it charged; see `reservations.reserve`."""
        with self._place.writing() as writer:
            return granted(writer, entries, reservations.reserve(writer, entries))

    def commit_and_reserve(
        self,
        reservation_ids: Sequence[int],
        *,
        outcome: Mapping[str, Any],
        entries: Sequence[Entry],
        checkpoint: bytes | None = None,
    ) -> tuple[Reservation, ...]:
        """`commit`, then `reserve` of the next release, in one transaction.

        Where a reservation is refused, none is made, and the commit is kept: that release was made.

        Raises:
            BudgetExceeded, LedgerConflict: as the two would.
        """
        with self._place.writing() as writer:
            reservations.commit(writer, reservation_ids, outcome=outcome, checkpoint=checkpoint)
            try:
                return granted(writer, entries, reservations.reserve(writer, entries))
            except LedgerError as error:
                refusal = error
        raise refusal

    def check_room(
        self, run_id: str, claims: Mapping[BudgetKey, Claims], blocks: Blocks = ()
    ) -> None:
        """Whether `hold` would be granted now, by what it raises; nothing is set aside."""
        with self._place.reading() as reader:
            reservations.check_room(reader.accounts(), run_id, claims, blocks)

    def sharing(self, rows: NDArray[np.uint64]) -> dict[str, int]:
        """How many of `[N, 3]` rows (`parley.client.data.content_digest`) each data set has had."""
        with self._place.reading() as reader:
            return owner_actions.sharing(reader.accounts(), reader.rows, self._place.key_path, rows)

    def moved(self, name: str, rows: NDArray[np.uint64]) -> int:
        """How many of them the data set charged in another block than they are in now."""
        with self._place.reading() as reader:
            known = reader.accounts()
            return owner_actions.moved_in(known, reader.rows, self._place.key_path, name, rows)

    def raises(self) -> tuple[dict[str, Any], ...]:
        """Every time that a budget was raised: dataset, unit, at, epsilon, delta, reason."""
        names = ("at", "epsilon", "delta", "reason")
        with self._place.reading() as reader:
            return tuple(
                {"dataset": each.dataset, "unit": each.unit}
                | {name: each.content()[name] for name in names}
                for each in reader.records()
                if each.kind == RecordKind.RAISE
            )

    def decisions(self, run_id: str | None = None) -> tuple[Decision, ...]:
        """What the owner of the data said yes or no to, of a run or of all, in order."""
        with self._place.reading() as reader:
            records = list(reader.records()) if run_id is None else reader.records_of(run_id)
            return decided(records)

    def entries(self, run_id: str | None = None) -> tuple[RecordedEntry, ...]:
        """All entries, or those of a run, in the order they were reserved."""
        with self._place.reading() as reader:
            if run_id is None:
                return tuple(recorded_entries(reader.records()).values())
            # A run asks for its entries round after round: only the new ones are read.
            self._seen = seen = reader.entries_of(run_id, self._seen)
        return tuple(seen.entries.values())

    def totals(self) -> tuple[Account, ...]:
        """Every budget and what is spent of it, by data and unit."""
        with self._place.reading() as reader:
            return tuple(reader.accounts().values())

    def spent(self, dataset: str, unit: Unit) -> Composition:
        """All charged releases on a data set, for one unit; `LedgerConflict` if unknown."""
        return self._account(dataset, unit).spent

    def remaining(self, dataset: str, unit: Unit) -> Remaining:
        """What is left for one unit, that no run holds; `LedgerConflict` if unknown."""
        return self._account(dataset, unit).remaining

    def _account(self, dataset: str, unit: Unit) -> Account:
        with self._place.reading() as reader:
            return registration.found(BudgetKey(dataset, unit), reader.accounts())

    def checkpoint(self, run_id: str) -> Checkpoint | None:
        """The last checkpoint of a run, and the release it came from.

        Raises:
            LedgerCorrupt: the bytes are not those that were committed.
        """
        with self._place.reading() as reader:
            stored = reader.checkpoint(run_id)
        if stored is None:
            return None
        if not stored.sound:
            raise LedgerCorrupt(
                f"Expected the checkpoint of {run_id!r} with digest {stored.digest}, as it was "
                "committed, got other bytes."
            )
        return Checkpoint(stored.index, stored.data)

    def head(self) -> Head:
        """The end of the log. Kept elsewhere, it lets `verify` see a log that was rewritten."""
        with self._place.reading() as reader:
            return reader.head

    def last_seen(self) -> float:
        """Return when the last record was written, in seconds since 1970; 0 without any."""
        with self._place.reading() as reader:
            records = reader.since(reader.head.records) if reader.head.records else []
        said = [record.content().get("at") for record in records]
        return max((datetime.fromisoformat(at).timestamp() for at in said if at), default=0.0)

    def check_contains(self, head: Head | None) -> None:
        """Check that the log still contains `head`, without walking over it.

        Raises:
            LedgerCorrupt: it does not: an older copy was put back, or the log was rewritten.
        """
        if head is None:
            return
        with self._place.reading() as reader:
            if not reader.contains(head):
                raise LedgerCorrupt(
                    f"Expected record {head.records} of the ledger {self._name} to be the one that "
                    "was kept elsewhere, it is not: an older copy was put back, or the log was "
                    "rewritten. Put the newer one back; what was released since is in no other."
                )

    def check(self, *, anchor: Head | None = None) -> None:
        """Verifies the ledger, once, for whoever is about to begin a run.

        From here on the chain's end vouches for every total that a reservation is checked
        against; that this end itself adds up is what only a walk over the whole log can say.

        Raises:
            LedgerCorrupt: it doesn't, or something else was edited that a budget rests on.
        """
        wrong = [each for each in self.verify(anchor=anchor) if not each.of_checkpoint]
        if wrong:
            raise LedgerCorrupt(
                f"Expected a sound ledger at {self._name}, got: {wrong[0]} Nothing was charged; "
                f"`parley ledger verify` lists all ({len(wrong)})."
            )

    def verify(self, *, anchor: Head | None = None) -> list[Problem]:
        """Everything that is wrong with the ledger; an empty list if it is sound.

        Walks the whole log, recomputes hashes and totals, and compares them with what is stored.

        Args:
            anchor: a `head()` of an earlier time that the log must still contain.
        """
        try:
            with self._place.reading() as reader:
                return problems(
                    reader.records(),
                    head=reader.head,
                    accounts=reader.accounts(vouched=False),
                    rows=reader.known_rows(),
                    checkpoints=reader.checkpoints(),
                    anchor=anchor,
                )
        except LedgerCorrupt as damage:
            return [Problem(position=0, message=str(damage))]
