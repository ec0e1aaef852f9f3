"""The steps that concern a data set and its budgets: registered, recognised, raised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.chain import RecordKind, now
from parley.privacy.ledger.errors import LedgerConflict

if TYPE_CHECKING:
    from parley.privacy.ledger.store import Writer


def register(writer: Writer, *budgets: DatasetBudget) -> tuple[DatasetBudget, ...]:
    """Fixes the budgets of a data set, or finds them fixed to the same; all of them or none.

    Returns:
        The budgets to charge. They are those given, unless `contents` are known under another name
        or from another file: then the data are the same, and so is the budget.

    Raises:
        LedgerConflict: name or fingerprint are registered with something else; the same records
            are, with another budget; data with a budget for each unit are named with one alone; or
            one more is to be opened on data that released something.
        ValueError: of several data sets, or two of one unit.
    """
    data, units = budgets[0], {each.unit for each in budgets}
    same = {(each.name, each.fingerprint, each.contents) for each in budgets}
    if len(same) > 1 or len(units) < len(budgets):
        shown = "; ".join(each.description for each in budgets)
        raise ValueError(f"Expected budgets of one data set, one a unit, got {shown}.")
    known = _same_data(writer, data)
    for budget in budgets:
        if budget.unit in known:
            _check_terms(known[budget.unit], budget)
    if known:
        if not units & known.keys():
            _conflict(next(iter(known.values())), data)
        check_units(data.name, charged=units, registered=known.keys())
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
    """The accounts of the same data: the same bytes, or the same records saved in another way."""
    wanted = {asked.fingerprint, asked.contents} - {""}
    names = {key.dataset for key, own in writer.stored.items() if wanted & own.fingerprints}
    if len(names) > 1:
        raise LedgerConflict(
            "Expected data of one data set, got the file of one with the records of another: "
            f"{' and '.join(repr(name) for name in sorted(names))}."
        )
    named = writer.of_dataset(asked.name)
    name = next(iter(names), None)
    if named and name != asked.name:  # the same name, other data
        _conflict(next(iter(named.values())), asked)
    if name is None:
        return {}
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


def check_units(name: str, *, charged: Collection[Unit], registered: Collection[Unit]) -> None:
    """Data with a budget for each unit are charged in all of them, or not at all.

    A release that only the records' budget knows has no party-level bound, and would make the
    parties' ε untrue; one that only the parties' budget knows costs the records something too.
    """
    if not set(registered) <= set(charged):
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


def found(key: BudgetKey, accounts: Mapping[BudgetKey, Account]) -> Account:
    """The account of a registered budget; raises LedgerConflict where there is none."""
    if key in accounts:
        return accounts[key]
    units = [str(each.unit) for each in accounts if each.dataset == key.dataset]
    if units:
        raise LedgerConflict(
            f"Expected unit {' or '.join(units)}, in which the budgets of data set "
            f"{key.dataset!r} are stated, got {key.unit}."
        )
    raise LedgerConflict(f"Expected a registered data set, got {key.dataset!r}.")


def raise_budget(
    writer: Writer,
    key: BudgetKey,
    *,
    reason: str,
    epsilon: float | None = None,
    delta: float | None = None,
) -> DatasetBudget:
    """Raises a data set's budget on purpose; the chain says when, to what and why.

    What was promised under the old budget no longer holds of releases to come.

    Raises:
        LedgerConflict: no such budget, none of both grows or one shrinks, or no reason.
    """
    if not reason.strip() or not reason.isprintable():
        raise LedgerConflict(f"Expected a reason in one line for a raised budget, got {reason!r}.")
    account = found(key, writer.stored)
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
