"""The steps that change a ledger, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so that a refusal leaves no
trace even inside a larger transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, Claims, claims_to_json
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget, checked_name
from parley.privacy.ledger.chain import Record, RecordKind, canonical_json
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.replay import STATES, EntryState, entry_of

if TYPE_CHECKING:
    from parley.privacy.ledger.writer import Writer


class Checkpoint(NamedTuple):
    """The model of a run after a release, as bytes."""

    release: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Leave to make one release.

    Attributes:
        id: for `commit` and `void`.
        entry: the release.
        state: RESERVED, or COMMITTED where this very release was made and recorded before.
        resumed: whether it was reserved before, so that nothing was charged now.
        account: of the budget, this release included.
    """

    id: int
    entry: Entry
    state: EntryState
    resumed: bool
    account: Account

    @property
    def spent(self) -> Composition:
        """The budget's composition, this release included."""
        return self.account.spent


def register(writer: Writer, *budgets: DatasetBudget) -> tuple[DatasetBudget, ...]:
    """See `Ledger.register`."""
    data, units = budgets[0], {each.unit for each in budgets}
    same = {(each.name, each.fingerprint, each.contents) for each in budgets}
    if len(same) > 1 or len(units) < len(budgets):
        shown = "; ".join(each.description for each in budgets)
        raise ValueError(f"Expected budgets of one data set, one a unit, got {shown}.")
    known = _same_data(writer, data)
    for budget in budgets:
        if budget.unit in known:
            _check_terms(known[budget.unit], budget)
    if known and not units & known.keys():
        _conflict(next(iter(known.values())), data)
    if known:
        _check_units(data.name, charged=units, registered=known.keys())
        data = next(iter(known.values())).budget
    seen = {fingerprint for each in known.values() for fingerprint in each.fingerprints}
    seen |= {budgets[0].fingerprint, budgets[0].contents}
    for budget in budgets:
        if budget.unit not in known:
            _check_unreleased(known.values(), budget)
    return tuple(
        _opened(writer, replace(budget, name=data.name, fingerprint=data.fingerprint), seen)
        if budget.unit not in known
        else _recognised(writer, known[budget.unit], seen)
        for budget in budgets
    )


def _opened(writer: Writer, budget: DatasetBudget, seen: Iterable[str]) -> DatasetBudget:
    new = Account(budget=budget).recognising(seen)
    body = {"at": now(), "dataset": budget.to_json(), "known": list(new.known)}
    writer.append(RecordKind.REGISTER, account=new, body=body)
    return budget


def _recognised(writer: Writer, account: Account, seen: Iterable[str]) -> DatasetBudget:
    more = account.recognising(seen)
    if more != account:
        body = {"at": now(), "known": list(more.known)}
        writer.append(RecordKind.RECOGNISE, account=more, body=body)
    return account.budget


def _same_data(writer: Writer, asked: DatasetBudget) -> Mapping[Unit, Account]:
    """The accounts of the same data: the same bytes, or the same records saved in another way.

    Raises:
        LedgerConflict: name or bytes are registered as something else.
    """
    named = writer.of_dataset(asked.name)
    name = writer.dataset_known_by(asked.fingerprint, asked.contents)
    if name is None and named:  # the same name, other data
        _conflict(next(iter(named.values())), asked)
    if name is None:
        return {}
    if named and name != asked.name:
        _conflict(next(iter(named.values())), asked)
    known = writer.of_dataset(name)
    first = next(iter(known.values()))
    # The same file under another name is refused: it is a slip, the first name is right.
    if name != asked.name and asked.fingerprint == first.budget.fingerprint:
        _conflict(first, asked)
    return known


def _check_terms(account: Account, asked: DatasetBudget) -> None:
    budget = account.budget
    terms = ("neighbouring", "epsilon", "delta")
    if any(getattr(asked, term) != getattr(budget, term) for term in terms):
        same = asked.fingerprint == budget.fingerprint
        _conflict(
            account, asked, "" if same else " The records are the same, saved in another way."
        )


def _conflict(account: Account, dataset: DatasetBudget, hint: str = "") -> NoReturn:
    raise LedgerConflict(
        f"Expected the data set as it was registered, {account.budget.description}; "
        f"got {dataset.description}.{hint} A budget is fixed when its data set is first "
        "registered; `parley ledger raise` raises it on purpose."
    )


def _check_units(name: str, *, charged: Collection[Unit], registered: Collection[Unit]) -> None:
    """Data with a budget for each unit are charged in all of them, or not at all.

    A release that only the records' budget knows has no party-level bound, and would make the
    parties' ε untrue; one that only the parties' budget knows costs the records something too.

    Raises:
        LedgerConflict: a registered unit is not among those charged.
    """
    missing = [unit for unit in registered if unit not in charged]
    if missing:
        raise LedgerConflict(
            f"Expected every release on data set {name!r} to be charged to its budgets of unit "
            f"{' and '.join(sorted(registered))}, got one for unit {' and '.join(sorted(charged))} "
            "alone: a job on these data needs privacy.unit = 'both'."
        )


def _check_unreleased(known: Iterable[Account], opened: DatasetBudget) -> None:
    """Raises LedgerConflict for one more budget on data of which something was released."""
    for account in known:
        if account.spent.releases:
            raise LedgerConflict(
                f"Expected data of which nothing was released yet, to open {opened.guarantee} "
                f"for it, got {account.spent.releases} releases on {account.key} that no "
                f"{opened.unit}-level bound covers."
            )


def hold(writer: Writer, run_id: str, claims: Mapping[BudgetKey, Claims]) -> None:
    """See `Ledger.hold`. All budgets are examined before anything is appended."""
    checked_name(run_id, "run_id")
    accounts = {key: account_of(writer, key) for key in claims}
    check_room(accounts, run_id, claims)
    for key, own in claims.items():
        after = accounts[key].holding(run_id, own)
        if after != accounts[key]:
            body = {"at": now(), "claims": claims_to_json(after.held.get(run_id, ()))}
            writer.append(RecordKind.HOLD, account=after, run_id=run_id, body=body)


def check_room(
    accounts: Mapping[BudgetKey, Account], run_id: str, claims: Mapping[BudgetKey, Claims]
) -> None:
    """See `Ledger.check_room`."""
    for key, own in claims.items():
        if any(count for _, count in own) and not accounts[key].admits(own, run_id=run_id):
            raise BudgetExceeded.of_run(accounts[key], own, run_id=run_id)


def give_back(writer: Writer, run_id: str) -> None:
    """See `Ledger.give_back`."""
    hold(writer, run_id, dict.fromkeys(writer.held_by(run_id), ()))


def raise_budget(
    writer: Writer, key: BudgetKey, *, epsilon: float | None, delta: float | None, reason: str
) -> DatasetBudget:
    """See `Ledger.raise_budget`."""
    if not reason.strip() or not reason.isprintable():
        raise LedgerConflict(f"Expected a reason in one line for a raised budget, got {reason!r}.")
    account = account_of(writer, key)
    budget = account.budget
    try:
        after = account.raised(
            epsilon=budget.epsilon if epsilon is None else epsilon,
            delta=budget.delta if delta is None else delta,
        )
    except ValueError as error:
        raise LedgerConflict(str(error)) from error
    terms = {"epsilon": after.budget.epsilon, "delta": after.budget.delta}
    body = {"at": now(), "reason": reason, **terms}
    writer.append(RecordKind.RAISE, account=after, body=body)
    return after.budget


def reserve(writer: Writer, *entries: Entry) -> tuple[Reservation, ...]:
    """See `Ledger.reserve`. All entries are examined before the first is appended."""
    examined = [_examined(writer, entry) for entry in entries]
    keys = {entry.key for entry in entries}
    if len(keys) < len(entries):
        raise LedgerConflict(
            f"Expected one entry a budget in one step, got {len(entries)} for {len(keys)}."
        )
    for name in {key.dataset for key in keys}:
        charged = {key.unit for key in keys if key.dataset == name}
        _check_units(name, charged=charged, registered=writer.of_dataset(name).keys())
    return tuple(
        _resumed(writer, account, latest, entry)
        if latest is not None
        else _charged(writer, account, entry)
        for entry, (account, latest) in zip(entries, examined, strict=True)
    )


def _examined(writer: Writer, entry: Entry) -> tuple[Account, Record | None]:
    """The account with the release, and its record where it was reserved before; refuses else."""
    account = account_of(writer, entry.key)
    expected = str(account.budget.neighbouring)
    if entry.facts["neighbouring"] != expected:
        raise LedgerConflict(
            f"Expected neighbouring {expected!r}, which the budget of data set {entry.key} is "
            f"stated in, got {entry.facts['neighbouring']!r}."
        )
    latest = writer.latest(entry.key, entry.run_id, entry.index)
    if latest is not None and latest.kind != RecordKind.VOID:
        _resumed(writer, account, latest, entry)  # Raises where it is another entry.
        return account, latest
    # What is drawn from the run's hold was found to fit when that was made: the sum of what is
    # spent and held stays the same. Another release has only what nobody holds.
    after = account.reserving(entry.run_id, entry.event)
    held = account.draws(entry.run_id, entry.event)
    if not held and not account.budget.admits(after.taken):
        raise BudgetExceeded(requested=entry.event, account=account)
    return after, None


def _charged(writer: Writer, after: Account, entry: Entry) -> Reservation:
    record = writer.append(
        RecordKind.RESERVE,
        account=after,
        run_id=entry.run_id,
        index=entry.index,
        body={"at": now(), "entry": entry.to_json()},
    )
    return Reservation(
        id=record.position,
        entry=entry,
        state=EntryState.RESERVED,
        resumed=False,
        account=after,
    )


def _resumed(writer: Writer, account: Account, latest: Record, entry: Entry) -> Reservation:
    reservation_id = latest.reservation
    if not isinstance(reservation_id, int) or reservation_id < 1:
        raise LedgerCorrupt(f"Expected a reservation behind record {latest.position}, got none.")
    # Nothing is charged for what is found here, so the chain must vouch for it: for the
    # reservation, and that nothing after it gave it back.
    first, *later = writer.since(reservation_id)
    if first.kind != RecordKind.RESERVE or not _same_release(first, latest):
        raise LedgerCorrupt(
            f"Expected a reservation behind record {latest.position}, got a record {first.kind!r} "
            f"of release {first.index} of run {first.run_id!r}."
        )
    settled = settlement(first, later)
    if settled is not None and settled.kind == RecordKind.VOID:
        raise LedgerCorrupt(f"Expected reservation {reservation_id} to be open, it was given back.")
    held = entry_of(first).to_json()
    asked = entry.to_json()
    if canonical_json(held) != canonical_json(asked):
        # Which parts differ is said, their values are in the ledger.
        parts = [
            name for name in asked if canonical_json(held.get(name)) != canonical_json(asked[name])
        ]
        raise LedgerConflict(
            f"Expected release {entry.index} of run {entry.run_id!r} on data set "
            f"{entry.key} as it was reserved, got a change of {' and '.join(parts)}."
        )
    return Reservation(
        id=reservation_id,
        entry=entry,
        state=STATES[RecordKind(first.kind if settled is None else settled.kind)],
        resumed=True,
        account=account,
    )


def _same_release(one: Record, other: Record) -> bool:
    names = ("dataset", "unit", "run_id", "index")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def settlement(reserved: Record, later: Iterable[Record]) -> Record | None:
    """The record that committed or voided a reservation, among those behind it."""
    return next((each for each in later if each.reservation == reserved.position), None)


def account_of(writer: Writer, key: BudgetKey) -> Account:
    """A registered budget's account; `LedgerConflict` if it is unknown."""
    return found(key, {each.key: each for each in writer.of_dataset(key.dataset).values()})


def found(key: BudgetKey, accounts: Mapping[BudgetKey, Account]) -> Account:
    """The account of a registered budget among `accounts`.

    Raises:
        LedgerConflict: there is none.
    """
    if key in accounts:
        return accounts[key]
    units = [str(each.unit) for each in accounts if each.dataset == key.dataset]
    if units:
        raise LedgerConflict(
            f"Expected unit {' or '.join(units)}, in which the budgets of data set "
            f"{key.dataset!r} are stated, got {key.unit}."
        )
    raise LedgerConflict(f"Expected a registered data set, got {key.dataset!r}.")


def now() -> str:
    """UTC, to the millisecond, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
