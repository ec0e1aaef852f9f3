"""What a data set's budget and a release's entry may say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ledger_children import commit_and_reserve
from ledgers import ADULT, FACTS, an_entry, messages, tamper

from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.recorded_entries import iterate_entries


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},
        {"delta": 1e-5},
        {"unit": Unit.PARTY},
        {"neighbouring": Neighbouring.ADD_OR_REMOVE_ONE},
        {"fingerprint": "sha256:ffff"},
    ],
)
def test_a_data_set_registered_otherwise_is_refused_with_both(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    other = replace(ADULT, **change)
    with pytest.raises(LedgerConflict) as conflict:
        ledger.register(other)
    assert ADULT.description in str(conflict.value)
    assert other.description in str(conflict.value)
    assert [total.budget for total in ledger.list_accounts()] == [ADULT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon > 0, got 0"),
        ({"epsilon": math.nan}, "epsilon > 0, got nan"),
        ({"epsilon": math.inf}, "epsilon > 0, got inf"),
        ({"delta": 1.0}, r"delta in \[0, 1\), got 1"),
        ({"delta": math.nan}, r"delta in \[0, 1\), got nan"),
        ({"name": ""}, "printable"),
        ({"name": "a\0b"}, "printable"),
        ({"name": "x" * 201}, "at most 200"),
        ({"unit": "row"}, "row"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ADULT, **change)


def test_an_unregistered_data_set_is_refused(ledger: Ledger) -> None:
    for step in (
        lambda name: ledger.get_account(name, Unit.RECORD).spent,
        lambda name: ledger.get_account(name, Unit.RECORD).remaining,
        lambda name: ledger.reserve((an_entry(dataset=name),))[0],
    ):
        with pytest.raises(LedgerConflict, match="registered data set, got 'nowhere'"):
            step("nowhere")


@pytest.mark.parametrize(("fact", "value"), [("unit", "party"), ("neighbouring", "zero-out")])
def test_an_entry_in_another_unit_than_the_budget_is_refused(
    ledger: Ledger, fact: str, value: str
) -> None:
    with pytest.raises(LedgerConflict, match=f"Expected {fact}"):
        ledger.reserve((an_entry(facts=FACTS | {fact: value}),))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (FACTS | {"sensitivty": 1.0}, "did you mean 'sensitivity'"),
        (FACTS | {"public_n": 0}, "whole number ≥ 1, got 0"),
        (FACTS | {"public_n": True}, "whole number ≥ 1, got True"),
        (FACTS | {"sensitivity": math.nan}, "finite number"),
        (FACTS | {"sensitivity": -1.0}, "number ≥ 0, got -1"),
        (FACTS | {"sensitivity": "big"}, "number ≥ 0, got 'big'"),
        (FACTS | {"sampling_rate": 1.5}, r"\(0, 1\], got 1.5"),
        (FACTS | {"step_certificate": {"steps": {1, 2}}}, "JSON value for facts.step_certificate"),
        (FACTS | {"step_certificate": {1: 2}}, "text as a key"),
        ({key: FACTS[key] for key in FACTS if key != "norm"}, "facts norm, which are missing"),
    ],
)
def test_facts_are_checked_by_key_and_type(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        an_entry(facts=facts)


SHARED: dict[str, Any] = {
    "accounts": [
        {"adversary": "server-and-colluders", "charged": True, "epsilon": 1.0, "delta": 1e-5},
        {"adversary": "readers", "charged": False, "epsilon": 0.9, "delta": 1e-5},
        {"adversary": "all-others", "charged": False, "epsilon": None, "delta": 1e-5},
    ],
    "honest_shares": 8,
    "colluders": 1,
    "min_survivors": 9,
    "summed_shares": 9,
    "share_parameter": 0.25,
}


def test_an_entry_holds_several_accounts_of_one_release(ledger: Ledger) -> None:
    entry = an_entry(facts=FACTS | SHARED)
    reserved = ledger.reserve((entry,))[0]
    ledger.reserve((an_entry(2, facts=FACTS | {"accounts": []}),))
    assert LedgerEntry.from_json(entry.to_json()) == entry
    assert ledger.list_entries()[0].entry == entry
    another = [{**SHARED["accounts"][0], "epsilon": 0.5}, *SHARED["accounts"][1:]]
    with pytest.raises(LedgerConflict, match="got a change of facts"):
        ledger.reserve((an_entry(facts=FACTS | SHARED | {"accounts": another}),))
    assert ledger.reserve((entry,))[0].id == reserved.id
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "accounts",
    [
        {},
        "none",
        [None],
        [{**SHARED["accounts"][0], "unit": "record"}],
        [{k: v for k, v in SHARED["accounts"][0].items() if k != "delta"}],
        [{**SHARED["accounts"][0], "adversary": "everybody"}],
        [{**SHARED["accounts"][0], "adversary": ["server"]}],
        [{**SHARED["accounts"][0], "charged": 1}],
        [{**SHARED["accounts"][0], "epsilon": -1.0}],
        [{**SHARED["accounts"][0], "epsilon": None}],
        [{**SHARED["accounts"][0], "epsilon": "1"}],
        [{**SHARED["accounts"][0], "delta": 1.0}],
        [{**SHARED["accounts"][0], "delta": True}],
        [SHARED["accounts"][0], SHARED["accounts"][0]],
        [SHARED["accounts"][1]],
        [*SHARED["accounts"], {**SHARED["accounts"][1], "epsilon": 0.8}],
    ],
)
def test_accounts_that_are_none_are_refused(accounts: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected facts\.accounts to be a list"):
        an_entry(facts=FACTS | {"accounts": accounts})


def test_a_runs_charges_are_read_once_and_again_if_the_log_is_another(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parley.privacy.ledger import recorded_entries

    parsed, original = [0], recorded_entries.parse_entry

    def counted(*arguments: Any) -> Any:
        parsed[0] += 1
        return original(*arguments)

    monkeypatch.setattr(recorded_entries, "parse_entry", counted)
    event = an_entry(1).event
    with Ledger.open(ledger_url) as other:  # another process, for all that matters
        for index in range(1, 6):
            held = (ledger, other)[index % 2].reserve((an_entry(index),))[0]
            assert ledger.count_charges("run-1", ADULT.name) == {Unit.RECORD: {event: index}}
            ledger.commit((held.id,), outcome={"survivors": index})
            assert ledger.count_charges("run-1", ADULT.name) == {Unit.RECORD: {event: index}}
            (entry,) = ledger.list_release("run-1", ADULT.name, index)
            assert entry.outcome == {"survivors": index}
            assert entry == ledger.list_entries("run-1")[-1] == other.list_entries()[-1]
            parsed[0] = 0
        assert ledger.count_charges("run-1", ADULT.name)[Unit.RECORD] == {event: 5}
        assert parsed[0] == 0
        void = other.reserve((an_entry(6),))[0]
        assert ledger.count_charges("run-1", ADULT.name)[Unit.RECORD] == {event: 6}
        other.void((void.id,), "nothing was released")
        assert ledger.count_charges("run-1", ADULT.name)[Unit.RECORD] == {event: 5}
        assert ledger.list_entries("run-2") == () == ledger.list_release("run-1", ADULT.name, 7)
        assert (
            ledger.count_charges("run-2", ADULT.name) == {} == ledger.count_charges("run-1", "no")
        )
        assert ledger.has_entries("run-1")
        assert not ledger.has_entries("run-2")
    with ledger._database.open_reader() as reader:
        seen = reader.count_charges("run-1", None)
        for head in (ChainHead(records=3, hash="x"), ChainHead(records=99, hash=seen.head.hash)):
            of_another_log = replace(seen, head=head, counts={})
            assert reader.count_charges("run-1", of_another_log) == seen


def test_charges_are_those_of_the_run_while_a_thread_counts_another_runs(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve((an_entry(1),))
    database = ledger._database
    open_reader = database.open_reader

    @contextmanager
    def open_and_leave_the_turn_to_another() -> Iterator[Any]:
        with open_reader() as reader:
            yield reader
        monkeypatch.setattr(database, "open_reader", open_reader)
        assert ledger.count_charges("run-2", ADULT.name) == {}

    monkeypatch.setattr(database, "open_reader", open_and_leave_the_turn_to_another)
    counts = ledger.count_charges("run-1", ADULT.name)
    assert counts == {Unit.RECORD: {an_entry(1).event: 1}}


def test_an_entry_is_yielded_once_it_is_settled_and_not_kept(ledger: Ledger) -> None:
    three_releases(ledger)
    with ledger._database.open_reader() as reader:
        records, read = list(reader.iterate_records()), []
    entries = iterate_entries(read.append(each.position) or each for each in records)
    assert next(entries).entry.index == 1
    assert read == [1, 2, 3]
    assert [each.entry.index for each in entries] == [2, 3]
    assert read == [each.position for each in records]


def test_an_entry_survives_json_and_does_not_follow_its_callers_dictionary() -> None:
    facts = FACTS | {"step_certificate": {"steps": [1, 2]}}
    entry = an_entry(facts=facts)
    facts["step_certificate"]["steps"].append(3)
    assert entry.facts["step_certificate"] == {"steps": [1, 2]}
    assert LedgerEntry.from_json(entry.to_json()) == entry
    with pytest.raises(TypeError):
        entry.facts["norm"] = "l1"  # type: ignore[index]


def three_releases(ledger: Ledger) -> ChainHead:
    """Register, then reserve and commit twice, then reserve: records 1 to 6."""
    first = ledger.reserve((an_entry(1),))[0]
    second = commit_and_reserve(
        ledger, first.id, outcome={"survivors": 5}, checkpoint=b"one", entry=an_entry(2)
    )
    commit_and_reserve(
        ledger, second.id, outcome={"survivors": 4}, checkpoint=b"two", entry=an_entry(3)
    )
    assert ledger.verify() == []
    return ledger.get_head()


OTHER_BODY = "UPDATE parley_ledger_records SET body = replace(body, '.1', '.2') WHERE position = 4"


SWAP = [
    "UPDATE parley_ledger_records SET position = -1 WHERE position = 4",
    "UPDATE parley_ledger_records SET position = 4 WHERE position = 5",
    "UPDATE parley_ledger_records SET position = 5 WHERE position = -1",
]


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([OTHER_BODY], "Record 4 doesn't match"),
        (["UPDATE parley_ledger_records SET run_id = 'x' WHERE position = 3"], "Record 3 doesn't"),
        (["UPDATE parley_ledger_records SET kind = 'void' WHERE position = 3"], "Record 3 doesn't"),
        (["UPDATE parley_ledger_records SET hash = 'f00' WHERE position = 3"], "Record 3 doesn't"),
        (
            ["UPDATE parley_ledger_records SET unit = '' WHERE position = 3"],
            "Record 3 is not valid",
        ),
        (
            ["UPDATE parley_ledger_records SET body = 'no' WHERE position = 2"],
            "Record 2 is not valid",
        ),
        (["DELETE FROM parley_ledger_records WHERE position = 4"], "record 4 is missing"),
        (["DELETE FROM parley_ledger_records WHERE position IN (2, 3)"], "2 to 3 are missing"),
        (SWAP, "Record 4 doesn't match"),
        (
            ["DELETE FROM parley_ledger_records WHERE position >= 5"],
            "the end of the log was cut off",
        ),
        (["UPDATE parley_ledger_head SET hash = 'f00'"], "the head's hash"),
        (["DELETE FROM parley_ledger_head"], "head record"),
        (
            [
                "UPDATE parley_ledger_accounts "
                "SET spent = replace(spent, '\"count\":3', '\"count\":1')"
            ],
            "ε = 0.3 as in the log, got ε = 0.1",
        ),
        (["UPDATE parley_ledger_accounts SET spent = '{}'"], "can't be read"),
        (
            ["UPDATE parley_ledger_accounts SET budget = replace(budget, '1.0', '9.0')"],
            "Expected the budget",
        ),
        (["DELETE FROM parley_ledger_accounts"], "in the table of accounts, it is missing"),
        (["UPDATE parley_ledger_checkpoints SET data = 'xx'"], "checkpoint of run 'run-1'"),
        (["DELETE FROM parley_ledger_checkpoints"], "it is missing"),
    ],
)
def test_verify_finds(ledger: Ledger, ledger_url: str, edits: list[str], message: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, *edits)
    found = messages(ledger)
    assert any(message in one for one in found), found


def test_one_edit_is_one_problem_of_the_chain(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    edit = "UPDATE parley_ledger_records SET body = replace(body, ':5', ':6') WHERE position = 3"
    tamper(ledger_url, edit)
    assert [problem.position for problem in ledger.verify()] == [3]


def test_a_log_that_was_rewritten_from_its_end_is_found_by_an_older_head(
    ledger: Ledger, ledger_url: str
) -> None:
    anchor = three_releases(ledger)
    assert ledger.verify(anchor=anchor) == []
    hash_ = "(SELECT hash FROM parley_ledger_records WHERE position = 5)"
    tamper(
        ledger_url,
        f"UPDATE parley_ledger_head SET records = 5, hash = {hash_}",
        "DELETE FROM parley_ledger_records WHERE position = 6",
        "UPDATE parley_ledger_accounts SET spent = replace(replace(replace(spent, "
        "'3/10', '1/5'), '3/200', '1/100'), ':3', ':2')",
    )
    assert messages(ledger) == []  # sound in itself: only something kept elsewhere tells
    (problem,) = ledger.verify(anchor=anchor)
    assert "the log was rewritten" in str(problem)


def test_an_overdrawn_budget_is_found_even_if_the_chain_is_sound(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DatasetBudget, "can_admit", lambda *_: True)
        for index in range(1, 13):
            ledger.reserve((an_entry(index),))
    assert "the log adds up to ε = 1.2" in messages(ledger)[0]


def test_a_damaged_checkpoint_is_not_handed_out(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_checkpoints SET data = 'xx'")
    with pytest.raises(LedgerCorrupt, match="'run-1'"):
        ledger.get_checkpoint("run-1")


def test_a_record_that_cannot_be_read_says_so(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_records SET body = '{}' WHERE position = 2")
    with pytest.raises(LedgerCorrupt, match="record 2"):
        ledger.list_entries()
