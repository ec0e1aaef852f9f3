"""Ledgers of earlier versions: read as they are, brought up to date once, refused where unsound.

The files in tests/vectors/ledgers were written by the code of their time and nothing else: those
called 0.1.0 by Parley 0.1.0 (version 1 of the schema); `two-units-0.1.0-schema-2` is one of them
that the code of version 2 then brought up to date and used for a run that was killed;
`units-schema-2` has, by that code, a run, a run that was killed, the same records saved in another
way, a release given back, and data with a budget of unit party alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_children import CHILDREN, in_child, open_and_verify
from ledgers import everything, tamper

from parley.privacy.accounting.events import Pure
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.account import Account
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.ledger import (
    EntryState,
    Ledger,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    NotALedger,
)
from parley.privacy.ledger.version_2 import renamed

RECORDS = BudgetKey("breast-cancer", Unit.RECORD)
PARTIES = BudgetKey("breast-cancer", Unit.PARTY)
OPENED = Callable[[str], str]

# What each file holds, as the code that wrote it said it: budget → (conversion, releases, ε).
SPENT: dict[str, dict[BudgetKey, tuple[str, int, float]]] = {
    "linear-0.1.0": {RECORDS: ("mixed", 7, 3.3171457253982077)},
    "dp-sgd-0.1.0": {RECORDS: ("pld", 1, 0.8103532915679417)},
    "two-units-0.1.0": {
        RECORDS: ("pld", 1, 0.8103532915679417),
        PARTIES: ("exact", 1, 3.4686675391556614),
    },
    "two-units-0.1.0-schema-2": {
        RECORDS: ("pld", 3, 1.0726398171664364),
        PARTIES: ("exact", 3, 3.9762150246826296),
    },
    "units-schema-2": {
        RECORDS: ("pld", 4, 1.0887748218496716),
        PARTIES: ("exact", 4, 2.688544637906909),
        BudgetKey("digits", Unit.PARTY): ("exact", 1, 2.9999999999999654),
    },
}
TWO_UNITS = [name for name, spent in SPENT.items() if PARTIES in spent]


def spent(ledger: Ledger) -> dict[BudgetKey, tuple[str, int, Any]]:
    found = {}
    for total in ledger.totals():
        conversion, epsilon = total.spent.epsilon(total.budget.delta)
        told = pytest.approx(epsilon, rel=1e-12)
        found[total.budget.key] = (conversion, total.spent.releases, told)
    return found


@pytest.mark.parametrize("name", SPENT)
def test_an_older_ledger_is_read_as_it_is_brought_up_to_date_and_added_to(
    placed: OPENED, name: str
) -> None:
    url = placed(name)
    before = everything(url)
    with Ledger.open(url, read_only=True) as old:
        assert old.verify() == []
        assert spent(old) == SPENT[name]
        head, entries, totals = old.head(), old.entries(), old.totals()
        with pytest.raises(LedgerError, match="read-only"):
            old.give_back("a run")
    assert everything(url) == before
    with Ledger.open(url) as ledger:
        assert ledger.verify(anchor=head) == []
        assert ledger.head().records == head.records + 1  # the seal
        assert (spent(ledger), ledger.entries(), ledger.totals()) == (SPENT[name], entries, totals)
        live = [each for each in entries if each.state is not EntryState.VOIDED]
        first = [e.entry for e in live if (e.entry.run_id, e.entry.index) == _release(live[0])]
        assert all(each.resumed for each in ledger.reserve(first))
        again = [replace(entry, run_id="new") for entry in first]
        reserved = ledger.reserve(again)
        assert not any(each.resumed for each in reserved)
        ledger.commit([each.id for each in reserved], outcome={})
        assert ledger.verify(anchor=head) == []
    with Ledger.open(url) as ledger:  # There is nothing to bring up to date any more.
        assert ledger.head().records == head.records + 1 + 2 * len(again)
        known = {totals.budget.key: totals.budget for totals in ledger.totals()}
        same = [budget for key, budget in known.items() if key.dataset == "breast-cancer"]
        assert ledger.register(*same) == tuple(same)
        assert ledger.entries()[: len(entries)] == entries


def _release(recorded: Any) -> tuple[str, int]:
    return recorded.entry.run_id, recorded.entry.index


@pytest.mark.parametrize("name", TWO_UNITS)
def test_the_second_budget_of_data_is_theirs_by_unit_and_not_by_name(
    placed: OPENED, name: str
) -> None:
    with Ledger.open(placed(name)) as ledger:
        budgets = {total.budget.key: total.budget for total in ledger.totals()}
        records, parties = budgets[RECORDS], budgets[PARTIES]
        assert parties.fingerprint == records.fingerprint == "bundled:breast-cancer"
        assert {e.entry.dataset for e in ledger.entries()} <= {key.dataset for key in SPENT[name]}
        for alone in (records, parties):
            with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
                ledger.register(alone)
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.reserve((replace(ledger.entries()[0].entry, index=99),))


@pytest.mark.parametrize("name", ["two-units-0.1.0-schema-2", "units-schema-2"])
def test_a_run_that_was_killed_under_version_2_takes_up_what_it_holds(
    placed: OPENED, name: str
) -> None:
    with Ledger.open(placed(name)) as ledger:
        holders = [total.holders for total in ledger.totals() if total.holders]
        (run_id,) = {run for held in holders for run in held}
        assert [held[run_id] for held in holders] == [1, 1]
        left = [e for e in ledger.entries(run_id) if e.state is EntryState.RESERVED]
        assert {each.entry.key for each in left} == {RECORDS, PARTIES}
        reserved = ledger.reserve([each.entry for each in left])
        assert all(each.resumed for each in reserved)
        last = [replace(each.entry, index=3) for each in left]
        held = ledger.commit_and_reserve(
            [each.id for each in reserved], outcome={"survivors": 3}, entries=last
        )
        assert ledger.checkpoint(run_id) is not None
        assert not any(total.holders for total in ledger.totals())  # drawn from the hold
        ledger.void([each.id for each in held], "too few")
        assert ledger.verify() == []


def test_what_version_2_knew_of_the_records_is_known_to_both_budgets(placed: OPENED) -> None:
    with Ledger.open(placed("units-schema-2")) as ledger:
        own = [t.budget for t in ledger.totals() if t.budget.name == "breast-cancer"]
        resaved = [
            replace(each, name="copy.csv", fingerprint="sha256:ffff", contents="") for each in own
        ]
        assert ledger.register(*resaved) == tuple(own)
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.register(resaved[0])
        # A release that was given back is not there, and may be made.
        entries = [e.entry for e in ledger.entries("voided")]
        assert not any(each.resumed for each in ledger.reserve(entries))
        assert ledger.verify() == []


def test_version_2_is_no_more_what_a_record_may_say(placed: OPENED) -> None:
    """A record without a unit behind the seal is none, though its hash be right."""
    url = placed("units-schema-2")
    with Ledger.open(url) as ledger:
        entry = ledger.entries()[0].entry
        both = [replace(e.entry, run_id="x") for e in ledger.entries(entry.run_id)[:2]]
        ledger.reserve(both)
    tamper(url, "UPDATE parley_ledger_records SET unit = NULL WHERE run_id = 'x'")
    with Ledger.open(url, read_only=True) as ledger:
        messages = [str(problem) for problem in ledger.verify()]
        assert any("doesn't match its hash" in each for each in messages)
        assert any("Expected a unit of privacy" in each for each in messages)


EDITS = {
    "a total": "UPDATE parley_ledger_datasets SET spent = replace(spent, '1', '0')",
    "a budget": "UPDATE parley_ledger_datasets SET budget = replace(budget, '9.0', '90.0')",
    "the second's name": (
        "UPDATE parley_ledger_datasets SET name = 'x' WHERE name = 'breast-cancer (party)'"
    ),
    "the second budget": "DELETE FROM parley_ledger_datasets WHERE name = 'breast-cancer (party)'",
    "a record": "UPDATE parley_ledger_records SET body = replace(body, '1', '2') WHERE position=4",
    "the head": "UPDATE parley_ledger_head SET records = records - 1",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
@pytest.mark.parametrize("name", TWO_UNITS)
def test_an_older_ledger_that_was_edited_is_refused_and_left_alone(
    placed: OPENED, name: str, edit: str
) -> None:
    url = placed(name)
    tamper(url, edit)
    before = everything(url)
    with pytest.raises(LedgerCorrupt):
        Ledger.open(url)
    assert everything(url) == before
    with Ledger.open(url, read_only=True) as reader:
        assert reader.verify()


def test_a_total_of_0_1_0_that_was_edited_is_named(placed: OPENED) -> None:
    url = placed("linear-0.1.0")
    fewer = "replace(spent, '\"releases\":7', '\"releases\":6')"
    tamper(url, f"UPDATE parley_ledger_datasets SET spent = {fewer}")
    with pytest.raises(LedgerCorrupt, match="to bring it to version 3, got: Expected the running"):
        Ledger.open(url)


@pytest.mark.parametrize("version", [0, 4, 2**40])
def test_a_version_that_nobody_knows_is_refused_by_its_number(tmp_path: Path, version: int) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    tamper(str(path), f"UPDATE parley_ledger_head SET version = {version}")
    with pytest.raises(NotALedger, match=f"Expected parley-ledger version 3 .* {version}"):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["two-units-0.1.0", "units-schema-2"])
def test_processes_that_open_an_older_ledger_at_once_bring_it_up_to_date_once(
    placed: OPENED, name: str
) -> None:
    url = placed(name)
    with Ledger.open(url, read_only=True) as old:
        head = old.head()
    gate = CHILDREN.Barrier(4)
    children = [in_child(open_and_verify, url, gate) for _ in range(4)]
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    with Ledger.open(url, create=False) as ledger:
        assert ledger.head().records == head.records + 1
        assert ledger.verify(anchor=head) == []


# --- which of two names is the other's second budget --------------------------------------------


def an_account(name: str, unit: Unit, **more: Any) -> Account:
    budget = DatasetBudget(
        name=name,
        fingerprint=more.pop("fingerprint", f"sha256:{name}"),
        unit=unit,
        neighbouring=Neighbouring.REPLACE_ONE,
        epsilon=1.0,
        delta=0.0,
    )
    return Account(budget=budget, **more)


def today(*accounts: Account) -> dict[BudgetKey, Account]:
    return renamed({account.budget.name: account for account in accounts})


def test_data_that_only_sound_like_a_second_budget_keep_their_name() -> None:
    lone = an_account("wards (party)", Unit.PARTY, fingerprint="sha256:w")
    own = an_account("wards", Unit.RECORD)
    record = an_account("beds (party)", Unit.RECORD, fingerprint="x (party)")
    assert set(today(own, lone, record)) == {own.key, lone.key, record.key}


def test_the_second_budget_takes_name_fingerprint_and_all_known_files_of_the_first() -> None:
    first = an_account("wards", Unit.RECORD, known=("rows:1", "sha256:f"))
    second = an_account(
        "wards (party)",
        Unit.PARTY,
        fingerprint="sha256:wards (party)",
        known=("rows:2 (party)",),
    ).reserving("r", Pure(epsilon=0.5))
    found = today(first, second)[BudgetKey("wards", Unit.PARTY)]
    assert (found.budget.name, found.budget.fingerprint) == ("wards", "sha256:wards")
    assert found.known == ("rows:1", "rows:2", "sha256:f")
    assert (found.spent, found.formerly) == (second.spent, "wards (party)")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "beds"}, {}),
        ({"unit": Unit.PARTY}, {}),
        ({"fingerprint": "sha256:another"}, {}),
        ({}, {"known": ("sha256:e",)}),
        ({}, {"name": "wards, by ward"}),
    ],
    ids=["none", "unit", "file", "known", "name"],
)
def test_a_second_budget_of_no_first_is_refused_by_its_name(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    own = an_account(**{"name": "wards", "unit": Unit.RECORD, **first})
    other = an_account(
        **{
            "name": "wards (party)",
            "unit": Unit.PARTY,
            "fingerprint": "sha256:wards (party)",
            **second,
        }
    )
    with pytest.raises(ValueError, match=re.escape(f"Expected budget {other.budget.name!r}")):
        today(own, other)
