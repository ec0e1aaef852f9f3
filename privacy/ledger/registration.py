"""The steps by which a data set has its account: registered once, recognised ever after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from parley.privacy.accounting.account_certificates import Certificate
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import Account, KnownRows
from parley.privacy.ledger.block_composition import Blocks, block_number
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import RecordKind, now
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.privacy.ledger.release_permit import check_units
from parley.privacy.ledger.row_digests import (
    Digests,
    as_stored,
    common,
    moved,
    row_key,
)

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import Writer


def register(
    writer: Writer, *budgets: DatasetBudget, among: bool = True
) -> tuple[DatasetBudget, ...]:
    """Fixes the budgets of a data set, or finds them fixed to the same; all of them or none.

    The account is of records. A name has one account, whatever becomes of its table; and data that
    have a record in common with a data set of another name have that one's.

    Args:
        among: look for their records in data sets of other names, too. A party does not: whether
            it answers would tell of one record; its owner is told beforehand (`sharing`).

    Returns:
        The budgets to charge.

    Raises:
        LedgerConflict: the data's budget is another one; they have records of two data sets, or
            some that were charged in another block (looked for as those are); data
            of which nothing but a fingerprint is known have another one; data with a budget for
            each unit are named with one alone; or one more is to be opened on data that released
            something.
        ValueError: of several data sets, or two of one unit.
    """
    data, units = budgets[0], {each.unit for each in budgets}
    same = {(each.name, each.fingerprint, each.contents) for each in budgets}
    if len(same) > 1 or len(units) < len(budgets):
        shown = "; ".join(each.description for each in budgets)
        raise ValueError(f"Expected budgets of one data set, one a unit, got {shown}.")
    new = _new_digests(writer, data)
    known = _same_data(writer, data, new[1] if new and among else {})
    for budget in budgets:
        if budget.unit in known:
            _check_terms(known[budget.unit], budget)
    if known:
        if not units & known.keys():
            _conflict(next(iter(known.values())), data)
        check_units(data.name, charged=units, registered=known.keys())
        data = next(iter(known.values())).budget
    seen = {fingerprint for each in known.values() for fingerprint in each.fingerprints}
    seen |= budgets[0].marks
    for budget in budgets:
        if budget.unit not in known:
            _check_unreleased(known.values(), budget)
    if new and known and among:
        _check_in_place(writer, data.name, known, new[1])
    rows = None if new is None else _remembered(writer, data.name, known, *new, budgets[0].reads)
    if rows is not None and budgets[0].reading:
        writer.readings.append((budgets[0].reading, rows))
    return tuple(
        _opened(writer, replace(budget, name=data.name, fingerprint=data.fingerprint), seen, rows)
        if budget.unit not in known
        else _recognised(writer, known[budget.unit], seen, rows)
        for budget in budgets
    )


def _opened(
    writer: Writer, budget: DatasetBudget, seen: Iterable[str], rows: KnownRows | None
) -> DatasetBudget:
    if budget.certificate is Certificate.LOWEST_BOUND:
        raise ValueError(
            "Expected a certificate that is proved for a new budget, got lowest-bound."
        )
    new = Account(budget=budget).recognising(seen, rows)
    body = {"at": now(), "dataset": budget.to_json(), "known": list(new.known), **_said(rows)}
    writer.append(RecordKind.REGISTER, budget.key, body)
    return budget


def _recognised(
    writer: Writer, account: Account, seen: Iterable[str], rows: KnownRows | None
) -> DatasetBudget:
    if account.recognising(seen, rows) != account:
        body = {"at": now(), "known": sorted(set(seen) - {""}), **_said(rows)}
        writer.append(RecordKind.RECOGNISE, account.key, body)
    return account.budget


def _said(rows: KnownRows | None) -> dict[str, object]:
    return {} if rows is None else {"rows": vars(rows)}


def _new_digests(writer: Writer, asked: DatasetBudget) -> tuple[str, dict[str, Digests]] | None:
    """Which key rows are digested under, and block → sorted digests; of rows that are not known.

    None where an account knows them, or nothing says.
    """
    of = [own for own in writer.stored.values() if own.rows is not None]
    if asked.rows is None or any(_is_known(writer, asked, own) for own in of):
        return None
    key = row_key(writer.key_path, (own.rows for own in of if own.rows))
    return key.check, key.by_block(asked.rows)


def _is_known(writer: Writer, asked: DatasetBudget, own: Account) -> bool:
    """Whether an account knows all rows that are read."""
    reading = asked.reading
    return asked.marks <= own.fingerprints and (
        not reading or (reading, own.rows) in writer.readings
    )


def _remembered(
    writer: Writer,
    name: str,
    known: Mapping[Unit, Account],
    key: str,
    digests: Mapping[str, Digests],
    reads: Blocks,
) -> KnownRows | None:
    """What is known of a data set's rows with those among them that are read; None: nothing new."""
    read = {as_stored(block_number(each)) for each in reads} or digests.keys()
    new: dict[str, Digests] = {}
    for block in sorted(read & digests.keys()):
        own = digests[block]
        more = own[~common((p for p in writer.rows(name) if p.block == block), own)]
        new |= {block: more} if len(more) else {}
    before = next((each.rows for each in known.values()), None)
    return before if before and not new else writer.add_rows(name, key, new)


def _check_in_place(
    writer: Writer, name: str, known: Mapping[Unit, Account], digests: Mapping[str, Digests]
) -> None:
    """Raises LedgerConflict for records that stand in another block than they were charged in."""
    if count := moved(writer.rows(name), digests, charged_blocks(known.values())):
        raise LedgerConflict(f"{moved_text(name, count)}.")


def charged_blocks(accounts: Iterable[Account]) -> set[str]:
    """The blocks that something was released from, as rows are stored under them."""
    return {as_stored(block_number(each)) for own in accounts for each in own.charged.blocks}


def moved_text(name: str, count: int) -> str:
    """What is said of records that changed their block."""
    return (
        f"Expected every record of data set {name!r} in the block that it was charged in, got "
        f"{count} in another one, with a fresh budget there: put its block back, or leave it out"
    )


def _same_data(
    writer: Writer, asked: DatasetBudget, digests: Mapping[str, Digests]
) -> Mapping[Unit, Account]:
    """The accounts of the same data: of that name, or with the same bytes, or common records."""
    names = {key.dataset for key, own in writer.stored.items() if asked.marks & own.fingerprints}
    others = {key.dataset for key, own in writer.stored.items() if own.rows is not None}
    for own in digests.values():
        names |= {each for each in others if common(writer.rows(each), own).any()}
    named = writer.of_dataset(asked.name)
    if named and asked.rows is not None:
        names.add(asked.name)
    if len(names) > 1:
        raise LedgerConflict(
            "Expected data of one data set, got records of "
            f"{' and '.join(repr(name) for name in sorted(names))}, each of which has its account: "
            "leave out those of one of them, or read them as data sets by themselves."
        )
    name = next(iter(names), None)
    if named and name != asked.name:  # the same name, and nothing says that it is the same data
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
    terms = ["neighbouring", "epsilon", "delta"] + ["certificate"] * asked.insists
    if any(getattr(asked, term) != getattr(budget, term) for term in terms):
        same = asked.fingerprint == budget.fingerprint
        _conflict(account, asked, "" if same else " They have records in common, or the same name.")


def _conflict(account: Account, dataset: DatasetBudget, hint: str = "") -> NoReturn:
    raise LedgerConflict(
        f"Expected the data set as it was registered, {account.budget.description}; "
        f"got {dataset.description}.{hint} Budget and certificate are fixed when a data set is "
        "first registered; `parley ledger raise` raises it on purpose."
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
