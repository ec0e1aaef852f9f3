"""The ledger: every release is reserved before it is made, and refused beyond the budget.

A ledger contains budgets: a total (ε, δ) for a data set and a unit of privacy. A release is first
reserved (charged), then made, then committed with its outcome. A reservation that led to no release
may be voided. All releases on a data set, of all runs, are composed. That total is checked and
changed in the same transaction, so concurrent processes cannot overspend together. A kill at any
point leaves either a whole step or none of it. A reserved release counts as spent until it is
voided.

Release `(run_id, dataset, unit, index)` is charged once. If the same entry is reserved again, as
after a crash, the result is the same reservation; a different entry under that name is a
`LedgerConflict`.

    >>> import tempfile
    >>> from parley.privacy.accounting.privacy_events import Pure
    >>> from parley.privacy.accounting.threat_model import Neighbouring, Unit
    >>> from parley.privacy.ledger.budget import DatasetBudget
    >>> budget = DatasetBudget(
    ...     name="adult", fingerprint="sha256:0c4a", epsilon=1.0, delta=0.0,
    ...     unit=Unit.RECORD, neighbouring=Neighbouring.REPLACE_ONE,
    ... )
    >>> entry = LedgerEntry(
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
    ...     led.get_account("adult", Unit.RECORD).remaining, led.verify()
    (0.25, [])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from parley.module_loading.plugin_table import load_attribute
from parley.privacy.ledger import registration, reservations
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.database import Database
from parley.privacy.ledger.hash_chain import ChainHead, RecordKind
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerCorrupt, LedgerError
from parley.privacy.ledger.recorded_entries import RecordedEntry, iterate_entries
from parley.privacy.ledger.release_permit import ReleasePermit, grant_permits
from parley.privacy.ledger.reservations import Checkpoint

if TYPE_CHECKING:
    from parley.privacy.accounting.privacy_events import PrivacyEvent
    from parley.privacy.accounting.threat_model import Unit
    from parley.privacy.ledger import owner_actions
    from parley.privacy.ledger.account import BudgetAccount, Claims
    from parley.privacy.ledger.approvals import OwnerDecision
    from parley.privacy.ledger.block_composition import Blocks
    from parley.privacy.ledger.replay import LedgerProblem
    from parley.privacy.ledger.run_charges import RunCharges
    from parley.privacy.ledger.table_access import LedgerWriter

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _run_in_transaction(
    step: Callable[Concatenate[LedgerWriter, _P], _T],
) -> Callable[Concatenate[Ledger, _P], _T]:
    """Return a method that runs a step of `registration` or `reservations`.

    The step is durable when the method returns.
    """

    @wraps(step)
    def method(ledger: Ledger, /, *given: _P.args, **named: _P.kwargs) -> _T:
        with ledger._database.open_writer() as writer:
            return step(writer, *given, **named)

    return method


_ACTIONS = "parley.privacy.ledger.owner_actions"
"""An owner's actions, which a run does not import."""


def _run_owner_action(name: str) -> Callable[..., Any]:
    """Return a method that runs a step of `owner_actions` in one transaction."""

    def method(ledger: Ledger, /, *given: Any, **named: Any) -> Any:
        with ledger._database.open_writer() as writer:
            return load_attribute(f"{_ACTIONS}:{name}")(writer, *given, **named)

    return method


class Ledger:
    """An open ledger, created by `Ledger.open`. It is a context manager.

    Every method is one transaction. All raise `LedgerUnavailable` if the disk is full or the
    database cannot be reached, read or written.
    """

    def __init__(self, place: Database) -> None:
        self._open: Database | None = place
        self._charges: RunCharges | None = None
        self._name = place.name

    @classmethod
    def open(
        cls, url_or_path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False
    ) -> Self:
        """Open the ledger at a path (SQLite) or a `postgresql://` URL.

        Args:
            create: create a ledger if there is none (never with `read_only`).
            read_only: refuse every change; no right to write is needed.

        Raises:
            NotALedger: there is no ledger, another kind of file, or another schema version.
        """
        return cls(Database(url_or_path, create=create, read_only=read_only))

    def close(self, *, forked: bool = False) -> None:
        """Close the file or connection; with `forked`, leave the parent's connections open."""
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
    def _database(self) -> Database:
        if self._open is None:
            raise LedgerError(f"Expected an open ledger, {self._name} was closed.")
        return self._open

    register = _run_in_transaction(registration.register)
    hold = _run_in_transaction(reservations.hold)
    end_hold = _run_in_transaction(reservations.end_hold)
    commit = _run_in_transaction(reservations.commit)
    void = _run_in_transaction(reservations.void)

    def reserve(self, entries: Sequence[LedgerEntry]) -> tuple[ReleasePermit, ...]:
        """Charge a release before it is made, or find its charge; see `reservations.reserve`."""
        with self._database.open_writer() as writer:
            return grant_permits(writer, entries, reservations.reserve(writer, entries))

    def commit_and_reserve(
        self,
        reservation_ids: Sequence[int],
        *,
        outcome: Mapping[str, Any],
        entries: Sequence[LedgerEntry],
        checkpoint: bytes | None = None,
    ) -> tuple[ReleasePermit, ...]:
        """Run `commit`, then `reserve` for the next release, in one transaction.

        If a reservation is refused, none is made, and the commit is kept, because that release was
        made.

        Raises:
            BudgetExceeded, LedgerConflict: as `commit` and `reserve` would.
        """
        with self._database.open_writer() as writer:
            reservations.commit(writer, reservation_ids, outcome=outcome, checkpoint=checkpoint)
            try:
                return grant_permits(writer, entries, reservations.reserve(writer, entries))
            except LedgerError as error:
                refusal = error
        raise refusal

    def check_hold(
        self, run_id: str, claims: Mapping[BudgetKey, Claims], blocks: Blocks = ()
    ) -> None:
        """Raise what `hold` would raise now, without setting anything aside."""
        with self._database.open_reader() as reader:
            reservations.check_hold(reader.load_accounts(), run_id, claims, blocks)

    if TYPE_CHECKING:
        raise_budget = _run_in_transaction(owner_actions.raise_budget)
        decide = _run_in_transaction(owner_actions.decide)
    else:
        raise_budget = _run_owner_action("raise_budget")
        decide = _run_owner_action("decide")

    def count_shared_rows(self, rows: NDArray[np.uint64]) -> dict[str, int]:
        """Return how many of `[N, 3]` rows each data set has had, by name.

        Rows are those of `parley.client.data.multiset_digest`.
        """
        count = load_attribute(f"{_ACTIONS}:count_shared_rows")
        with self._database.open_reader() as reader:
            return dict(count(reader, self._database.key_path, rows))

    def count_moved_rows(self, name: str, rows: NDArray[np.uint64]) -> int:
        """Return how many rows the data set charged in another block than the current one."""
        count = load_attribute(f"{_ACTIONS}:count_moved_rows")
        with self._database.open_reader() as reader:
            return int(count(reader, self._database.key_path, name, rows))

    def list_raises(self) -> tuple[dict[str, Any], ...]:
        """Return every raise of a budget: dataset, unit, at, epsilon, delta, reason."""
        names = ("at", "epsilon", "delta", "reason")
        with self._database.open_reader() as reader:
            return tuple(
                {"dataset": each.dataset, "unit": each.unit}
                | {name: each.parse_body()[name] for name in names}
                for each in reader.iterate_records()
                if each.kind == RecordKind.RAISE
            )

    def list_decisions(self, run_id: str | None = None) -> tuple[OwnerDecision, ...]:
        """Return the owner's decisions on a run's proposals, or on all, in order."""
        with self._database.open_reader() as reader:
            records = reader.iterate_decisions(run_id)
            return tuple(load_attribute(f"{_ACTIONS}:list_decisions")(records))

    def list_entries(self, run_id: str | None = None) -> tuple[RecordedEntry, ...]:
        """Return all entries, or those of a run, in the order of their reservation."""
        return tuple(self.iterate_entries(run_id))

    def iterate_entries(self, run_id: str | None = None) -> Iterator[RecordedEntry]:
        """Yield what `list_entries` returns, without keeping a long run's entries in memory."""
        with self._database.open_reader() as reader:
            yield from iterate_entries(reader.iterate_records(run_id))

    def has_entries(self, run_id: str) -> bool:
        """Return whether the run ever reserved a release."""
        with self._database.open_reader() as reader:
            return reader.has_entries(run_id)

    def list_release(self, run_id: str, dataset: str, index: int) -> tuple[RecordedEntry, ...]:
        """Return the entries of one release on a data set, in the order of their reservation."""
        with self._database.open_reader() as reader:
            return tuple(iterate_entries(reader.iterate_release(run_id, dataset, index)))

    def count_charges(self, run_id: str, dataset: str) -> dict[Unit, dict[PrivacyEvent, int]]:
        """Return a run's releases on a data set that were not voided: unit → event → number.

        Only records that are newer than the last call's are read.
        """
        with self._database.open_reader() as reader:
            # Another thread may count another run's charges meanwhile.
            self._charges = charges = reader.count_charges(run_id, self._charges)
        counts: dict[Unit, dict[PrivacyEvent, int]] = {}
        for (key, event), count in charges.counts.items():
            if key.dataset == dataset:
                counts.setdefault(key.unit, {})[event] = count
        return counts

    def list_accounts(self) -> tuple[BudgetAccount, ...]:
        """Return every budget with its spending, by data and unit."""
        with self._database.open_reader() as reader:
            return tuple(reader.load_accounts().values())

    def get_account(self, dataset: str, unit: Unit) -> BudgetAccount:
        """Return the account of a data set for one unit; raise LedgerConflict if there is none."""
        with self._database.open_reader() as reader:
            return registration.get_account(BudgetKey(dataset, unit), reader.load_accounts())

    def get_checkpoint(self, run_id: str) -> Checkpoint | None:
        """Return the last checkpoint of a run, and the release it came from.

        Raises:
            LedgerCorrupt: the bytes are not those that were committed.
        """
        with self._database.open_reader() as reader:
            stored = reader.load_checkpoint(run_id)
        if stored is None:
            return None
        if not stored.is_intact:
            raise LedgerCorrupt(
                f"Expected the checkpoint of {run_id!r} with the committed digest {stored.digest}, "
                "got other bytes."
            )
        return Checkpoint(stored.index, stored.data)

    def get_head(self) -> ChainHead:
        """Return the end of the log. Stored elsewhere, it lets `verify` detect a rewritten log."""
        with self._database.open_reader() as reader:
            return reader.head

    def get_last_write_time(self) -> float:
        """Return when the last record was written, in seconds since 1970; 0 if there is none."""
        with self._database.open_reader() as reader:
            records = reader.load_since(reader.head.records) if reader.head.records else []
        said = [record.parse_body().get("at") for record in records]
        return max((datetime.fromisoformat(at).timestamp() for at in said if at), default=0.0)

    def check_contains(self, head: ChainHead | None) -> None:
        """Check that the log still contains `head`, without reading all of it.

        Raises:
            LedgerCorrupt: it does not: an older copy was put back, or the log was rewritten.
        """
        if head is None:
            return
        with self._database.open_reader() as reader:
            if not reader.has_head(head):
                raise LedgerCorrupt(
                    f"Expected record {head.records} of the ledger {self._name} to be the one that "
                    "was stored elsewhere, it is not: an older copy was put back, or the log was "
                    "rewritten. Restore the newest copy: only that one contains the later releases."
                )

    def check(self, *, anchor: ChainHead | None = None) -> None:
        """Verify the ledger once, before a run begins.

        From then on the chain's end vouches for every total that a reservation is checked against.
        Only a walk over the whole log can show that this end itself is right.

        Raises:
            LedgerCorrupt: it is not right, or something else that a budget depends on was edited.
        """
        if anchor is None and self._database.is_new and not self.get_head().records:
            return  # there is no log to walk, and the first writer finds an edited account
        from parley.privacy.ledger.replay import check_sound  # noqa: PLC0415 - spares its code for a run with a new ledger

        check_sound(self.verify(anchor=anchor), self._name)

    def verify(self, *, anchor: ChainHead | None = None) -> list[LedgerProblem]:
        """Return all problems of the ledger; an empty list if it is sound.

        It walks the whole log, recomputes hashes and totals, and compares them with what is stored.

        Args:
            anchor: an earlier result of `get_head` that the log must still contain.
        """
        from parley.privacy.ledger.replay import LedgerProblem, find_problems  # noqa: PLC0415 - as in `check`

        try:
            with self._database.open_reader() as reader:
                return find_problems(reader, anchor)
        except LedgerCorrupt as damage:
            return [LedgerProblem(position=0, message=str(damage))]
