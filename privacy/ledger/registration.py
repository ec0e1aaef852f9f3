"""Registration: a data set gets its account once and is recognised from then on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import BudgetAccount, KnownRows
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import RecordKind, format_now
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.privacy.ledger.release_permit import check_units

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerWriter


def register(
    writer: LedgerWriter, *budgets: DatasetBudget, among: bool = True
) -> tuple[DatasetBudget, ...]:
    """Fix the budgets of a data set, or find them fixed to the same values; all of them or none.

    The account belongs to records. A name has one account, however its table changes. Data that
    have a record in common with a data set of another name use that data set's account.

    Args:
        among: also look for their records in data sets of other names. A party does not do this:
            its response would reveal information about one record. Its owner is informed beforehand
            (`count_shared_rows`).

    Returns:
        The budgets to charge.

    Raises:
        LedgerConflict: one of these is true.

            - The data have another budget.
            - They have records of two data sets, or records that were charged in another block
              (checked under the same condition as `among`).
            - Only a fingerprint of the data is known, and it differs.
            - The data have a budget for each unit and are named with only one.
            - Another budget is to be opened on data from which something was released.
        ValueError: the budgets are of several data sets, or two are of one unit.
    """
    data, units = budgets[0], {each.unit for each in budgets}
    same = {(each.name, each.fingerprint, each.contents) for each in budgets}
    if len(same) > 1 or len(units) < len(budgets):
        shown = "; ".join(each.description for each in budgets)
        raise ValueError(f"Expected budgets of one data set, one per unit, got {shown}.")
    new = None
    if data.rows is not None:
        from parley.privacy.ledger.row_registration import digest_new_rows  # noqa: PLC0415 - spares its code for data without digests of rows

        new = digest_new_rows(writer, data)
    sharing = new.find_sharing_data_sets(writer) if new and among else set()
    known = _find_same_data(writer, data, sharing)
    check_known_accounts(known, budgets)
    if known:
        data = next(iter(known.values())).budget
    seen = {fingerprint for each in known.values() for fingerprint in each.fingerprints}
    seen |= budgets[0].digests
    if new and known and among:
        new.check_in_place(writer, data.name, known.values())
    rows = None if new is None else new.store(writer, data.name, known.values(), budgets[0].reads)
    if rows is not None and budgets[0].reading_digest:
        writer.readings.append((budgets[0].reading_digest, rows))
    return tuple(
        _open_account(
            writer, replace(budget, name=data.name, fingerprint=data.fingerprint), seen, rows
        )
        if budget.unit not in known
        else _record_fingerprints(writer, known[budget.unit], seen, rows)
        for budget in budgets
    )


def check_known_accounts(
    known: Mapping[Unit, BudgetAccount], budgets: Sequence[DatasetBudget]
) -> None:
    """Raise LedgerConflict if a data set with these accounts cannot have these budgets, too."""
    for budget in budgets:
        if budget.unit in known:
            _check_terms(known[budget.unit], budget)
    if known:
        units = {each.unit for each in budgets}
        if not units & known.keys():
            _raise_conflict(next(iter(known.values())), budgets[0])
        check_units(budgets[0].name, charged=units, registered=known.keys())
    for budget in budgets:
        if budget.unit not in known:
            _check_unreleased(known.values(), budget)


def _open_account(
    writer: LedgerWriter, budget: DatasetBudget, seen: Iterable[str], rows: KnownRows | None
) -> DatasetBudget:
    if budget.certificate is AccountCertificate.LOWEST_BOUND:
        raise ValueError("Expected a proved certificate for a new budget, got lowest-bound.")
    new = BudgetAccount(budget=budget).with_fingerprints(seen, rows)
    body = {
        "at": format_now(),
        "dataset": budget.to_json(),
        "known": list(new.known),
        **_format_rows(rows),
    }
    writer.append(RecordKind.REGISTER, budget.key, body)
    return budget


def _record_fingerprints(
    writer: LedgerWriter, account: BudgetAccount, seen: Iterable[str], rows: KnownRows | None
) -> DatasetBudget:
    if account.with_fingerprints(seen, rows) != account:
        body = {"at": format_now(), "known": sorted(set(seen) - {""}), **_format_rows(rows)}
        writer.append(RecordKind.RECOGNISE, account.key, body)
    return account.budget


def _format_rows(rows: KnownRows | None) -> dict[str, object]:
    return {} if rows is None else {"rows": vars(rows)}


def _find_same_data(
    writer: LedgerWriter, requested: DatasetBudget, sharing: set[str]
) -> Mapping[Unit, BudgetAccount]:
    """Return the accounts of the same data: with that name, the same bytes, or common records.

    Args:
        sharing: names of the data sets with common records.
    """
    names = sharing | {
        key.dataset for key, own in writer.accounts.items() if requested.digests & own.fingerprints
    }
    named = writer.get_accounts(requested.name)
    if named and requested.rows is not None and len(names) == 1 and requested.name not in names:
        (other,) = names
        raise LedgerConflict(
            f"Expected records of data set {requested.name!r}, got records of {other!r}, which has "
            f"a separate account. Name them {other!r} (privacy.dataset in a job, account in "
            "party.toml), or remove them."
        )
    if named and requested.rows is not None:
        names.add(requested.name)
    if len(names) > 1:
        raise LedgerConflict(
            "Expected data of one data set, got records of "
            f"{' and '.join(repr(name) for name in sorted(names))}, which have separate accounts: "
            "remove the records of one of them, or read each as its own data set."
        )
    name = next(iter(names), None)
    if named and name != requested.name:  # the same name, but no sign that it is the same data
        _raise_conflict(next(iter(named.values())), requested)
    if name is None:
        return {}
    return writer.get_accounts(name)


def _check_terms(account: BudgetAccount, requested: DatasetBudget) -> None:
    budget = account.budget
    terms = ["neighbouring", "epsilon", "delta"] + ["certificate"] * requested.insists
    if any(getattr(requested, term) != getattr(budget, term) for term in terms):
        hint = " They have records in common, or the same name."
        same = requested.fingerprint == budget.fingerprint
        _raise_conflict(account, requested, "" if same else hint)


def _raise_conflict(account: BudgetAccount, dataset: DatasetBudget, hint: str = "") -> NoReturn:
    raise LedgerConflict(
        f"Expected the data set as it was registered, {account.budget.description}; "
        f"got {dataset.description}.{hint} Budget and certificate are fixed when a data set is "
        "first registered; `parley ledger raise LEDGER DATASET` raises the budget."
    )


def _check_unreleased(known: Iterable[BudgetAccount], opened: DatasetBudget) -> None:
    """Raise LedgerConflict for another budget on data from which something was released."""
    for account in known:
        if account.spent.releases:
            raise LedgerConflict(
                f"Expected data without releases, to open {opened.guarantee} for it, got "
                f"{account.spent.releases} releases on {account.key} that no {opened.unit}-level "
                "bound covers."
            )


def get_account(key: BudgetKey, accounts: Mapping[BudgetKey, BudgetAccount]) -> BudgetAccount:
    """Return the account of a registered budget; raise LedgerConflict if there is none."""
    if key in accounts:
        return accounts[key]
    units = [str(each.unit) for each in accounts if each.dataset == key.dataset]
    if units:
        raise LedgerConflict(
            f"Expected unit {' or '.join(units)}, the unit of the budgets of data set "
            f"{key.dataset!r}, got {key.unit}."
        )
    raise LedgerConflict(f"Expected a registered data set, got {key.dataset!r}.")
