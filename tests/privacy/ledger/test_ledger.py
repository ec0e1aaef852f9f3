"""The ledger by itself: budgets, idempotence, refusals, the chain; on SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ledger_children import commit_and_reserve

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Approximate, Event, Gaussian, Pure, Zcdp
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.ledger import (
    BudgetExceeded,
    Checkpoint,
    DatasetBudget,
    Entry,
    EntryState,
    Head,
    Ledger,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    LedgerUnavailable,
    NotALedger,
)

FACTS: dict[str, Any] = {
    "mechanism": "gradient-perturbation",
    "unit": "record",
    "neighbouring": "replace-one",
    "norm": "l2",
    "sensitivity": 0.0004,
    "noise_law": "gaussian",
    "noise_parameter": 0.5,
    "accountant": "parley",
    "accountant_version": "0.1.0",
    "public_n": 500,
}
TENTH = Pure(epsilon=0.1)
GAUSSIAN = Approximate(event=Gaussian(mu=0.05), delta=2**-50)
ADULT = DatasetBudget(
    name="adult",
    fingerprint="sha256:0c4a",
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    epsilon=1.0,
    delta=0.0,
)
KDD = replace(ADULT, name="kdd", fingerprint="sha256:77", epsilon=2.5, delta=1e-5)


def an_entry(index: int = 1, **changes: Any) -> Entry:
    entry = Entry(
        run_id="run-1", dataset="adult", party="server", index=index, event=TENTH, facts=FACTS
    )
    return replace(entry, **changes)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as opened:
        opened.register(ADULT)
        yield opened


def messages(ledger: Ledger) -> list[str]:
    return [str(problem) for problem in ledger.verify()]


# --- spending ---------------------------------------------------------------------------------


def test_a_release_is_charged_when_reserved_and_stays_charged_when_committed(
    ledger: Ledger,
) -> None:
    reservation = ledger.reserve((an_entry(),))[0]
    assert not reservation.resumed
    assert reservation.state is EntryState.RESERVED
    assert reservation.spent == ledger.spent("adult", Unit.RECORD) == Composition.empty().add(TENTH)
    ledger.commit((reservation.id,), outcome={"survivors": 5})
    assert ledger.spent("adult", Unit.RECORD) == Composition.empty().add(TENTH)
    assert ledger.remaining("adult", Unit.RECORD).epsilon == pytest.approx(0.9)
    (held,) = ledger.entries()
    assert held.entry == an_entry()
    assert (held.state, held.outcome) == (EntryState.COMMITTED, {"survivors": 5})
    assert ledger.verify() == []


def test_ten_tenths_fit_a_budget_of_one_exactly_and_an_eleventh_is_refused(ledger: Ledger) -> None:
    for index in range(1, 11):
        ledger.reserve((an_entry(index),))
    before = ledger.head()
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.reserve((an_entry(11),))
    assert refusal.value.requested == TENTH
    assert refusal.value.spent == Composition.empty().add(TENTH, 10)
    assert refusal.value.left.epsilon == 0
    assert refusal.value.budget == ADULT
    for part in (
        "'adult'",
        "ε = 1,",
        "unit record",
        "replace-one",
        "ε = 1.1",
        "ε = 1 is",
        "0 left",
    ):
        assert part in str(refusal.value)
    assert ledger.head() == before
    assert len(ledger.entries()) == 10
    assert ledger.verify() == []


def test_the_budget_agent_of_the_specification(ledger: Ledger) -> None:
    """Budget 1: accept .01, accept .10, reject 1.00 with .89 left."""
    ledger.reserve((an_entry(1, event=Pure(epsilon=0.01)),))
    ledger.reserve((an_entry(2, event=Pure(epsilon=0.10)),))
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.reserve((an_entry(3, event=Pure(epsilon=1.00)),))
    assert refusal.value.left.epsilon == pytest.approx(0.89, abs=1e-15)


def test_a_gaussian_has_no_room_in_a_budget_with_delta_0(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="ε = ∞"):
        ledger.reserve((an_entry(event=GAUSSIAN),))


def test_gaussian_rounds_are_composed_by_their_exact_curve(ledger: Ledger) -> None:
    ledger.register(KDD)
    for index in range(1, 101):
        reservation = ledger.reserve((an_entry(index, dataset="kdd", event=GAUSSIAN),))[0]
    name, epsilon = reservation.spent.epsilon(1e-5)
    assert name == "exact"
    assert epsilon == pytest.approx(1.99309, abs=1e-5)  # 100 of μ = .05 are one of μ = .5
    assert ledger.spent("kdd", Unit.RECORD) == Composition.empty().add(GAUSSIAN, 100)


def test_runs_on_the_same_data_share_its_budget(ledger: Ledger) -> None:
    for run in range(5):
        ledger.register(ADULT)
        ledger.reserve((an_entry(1, run_id=f"run-{run}"),))
        ledger.reserve((an_entry(2, run_id=f"run-{run}"),))
    with pytest.raises(BudgetExceeded):
        ledger.reserve((an_entry(1, run_id="run-5"),))
    assert len(ledger.entries("run-3")) == 2


def test_data_sets_have_budgets_of_their_own(ledger: Ledger) -> None:
    ledger.register(KDD)
    ledger.reserve((an_entry(dataset="kdd"),))
    ledger.reserve((an_entry(),))
    names = [(total.budget.name, total.spent.releases) for total in ledger.totals()]
    assert names == [("adult", 1), ("kdd", 1)]
    assert ledger.totals()[0].to_json()["epsilon"]["pure"] == pytest.approx(0.1)


def test_the_totals_outlive_the_process(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as first:
        first.register(ADULT)
        first.reserve((an_entry(),))
    with Ledger.open(ledger_url, create=False) as second:
        assert second.spent("adult", Unit.RECORD) == Composition.empty().add(TENTH)
        assert second.entries()[0].entry == an_entry()


# --- registering ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},
        {"delta": 1e-5},
        {"unit": Unit.PARTY},
        {"neighbouring": Neighbouring.ADD_OR_REMOVE_ONE},
        {"fingerprint": "sha256:ffff"},
        {"name": "adult-again"},
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
    assert [total.budget for total in ledger.totals()] == [ADULT]


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
        lambda name: ledger.spent(name, Unit.RECORD),
        lambda name: ledger.remaining(name, Unit.RECORD),
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


# --- entries ----------------------------------------------------------------------------------


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
    assert Entry.from_json(entry.to_json()) == entry
    assert ledger.entries()[0].entry == entry
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


def test_a_runs_entries_are_read_once_and_again_where_the_log_is_another(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parley.privacy.ledger import replay

    parsed, original = [0], replay.reserved_entry

    def counted(*arguments: Any) -> Any:
        parsed[0] += 1
        return original(*arguments)

    monkeypatch.setattr(replay, "reserved_entry", counted)
    with Ledger.open(ledger_url) as other:  # another process, for all that matters
        for index in range(1, 6):
            held = (ledger, other)[index % 2].reserve((an_entry(index),))[0]
            assert len(ledger.entries("run-1")) == index
            ledger.commit((held.id,), outcome={"survivors": index})
            assert ledger.entries("run-1")[-1].outcome == {"survivors": index}
        assert parsed[0] == 5
        assert ledger.entries("run-1") == other.entries("run-1") == other.entries()
        assert ledger.entries("run-2") == ()
    with ledger._place.reading() as reader:
        seen = reader.entries_of("run-1", None)
        for head in (Head(records=3, hash="x"), Head(records=99, hash=seen.head.hash)):
            of_another_log = replace(seen, head=head, entries={})
            assert reader.entries_of("run-1", of_another_log) == seen


def test_an_entry_survives_json_and_does_not_follow_its_callers_dictionary() -> None:
    facts = FACTS | {"step_certificate": {"steps": [1, 2]}}
    entry = an_entry(facts=facts)
    facts["step_certificate"]["steps"].append(3)
    assert entry.facts["step_certificate"] == {"steps": [1, 2]}
    assert Entry.from_json(entry.to_json()) == entry
    with pytest.raises(TypeError):
        entry.facts["norm"] = "l1"  # type: ignore[index]


# --- once and only once -----------------------------------------------------------------------


def test_the_same_entry_again_is_the_same_reservation(ledger: Ledger) -> None:
    first = ledger.reserve((an_entry(),))[0]
    again = ledger.reserve((an_entry(),))[0]
    assert (again.id, again.resumed, again.state) == (first.id, True, EntryState.RESERVED)
    assert again.spent == Composition.empty().add(TENTH)
    ledger.commit((first.id,), outcome={})
    done = ledger.reserve((an_entry(),))[0]
    assert (done.id, done.resumed, done.state) == (first.id, True, EntryState.COMMITTED)
    assert ledger.spent("adult", Unit.RECORD).releases == 1


def test_a_reserved_release_can_be_resumed_when_the_budget_is_gone(ledger: Ledger) -> None:
    for index in range(1, 11):
        ledger.reserve((an_entry(index),))
    assert ledger.reserve((an_entry(10),))[0].resumed


@pytest.mark.parametrize(
    "change",
    [
        {"event": Pure(epsilon=0.05)},
        {"facts": FACTS | {"public_n": 501}},
        {"facts": FACTS | {"parties": 3}},
        {"party": "hospital-3"},
    ],
)
def test_another_entry_under_the_name_of_a_release_is_a_conflict(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    ledger.reserve((an_entry(),))
    with pytest.raises(LedgerConflict, match=f"got a change of {next(iter(change))}"):
        ledger.reserve((an_entry(**change),))
    assert ledger.spent("adult", Unit.RECORD).releases == 1


def test_the_same_commit_again_changes_nothing_and_another_is_a_conflict(ledger: Ledger) -> None:
    reservation = ledger.reserve((an_entry(),))[0]
    ledger.commit((reservation.id,), outcome={"survivors": 5}, checkpoint=b"one")
    head = ledger.head()
    ledger.commit((reservation.id,), outcome={"survivors": 5}, checkpoint=b"one")
    assert ledger.head() == head
    for outcome, checkpoint in (({"survivors": 4}, b"one"), ({"survivors": 5}, b"two")):
        with pytest.raises(LedgerConflict, match="it is committed"):
            ledger.commit((reservation.id,), outcome=outcome, checkpoint=checkpoint)
    with pytest.raises(LedgerConflict, match="it is committed"):
        ledger.void((reservation.id,), "second thoughts")


@pytest.mark.parametrize("reservation_id", [0, 1, 99, -1])
def test_what_is_not_a_reservation_cannot_be_settled(ledger: Ledger, reservation_id: int) -> None:
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.commit((reservation_id,), outcome={})
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.void((reservation_id,), "never was")


def test_an_outcome_must_be_json(ledger: Ledger) -> None:
    reservation = ledger.reserve((an_entry(),))[0]
    with pytest.raises(ValueError, match=r"finite number for outcome.loss"):
        ledger.commit((reservation.id,), outcome={"loss": math.inf})


def test_a_voided_reservation_gives_its_charge_back_and_stays_on_record(ledger: Ledger) -> None:
    kept = ledger.reserve((an_entry(1),))[0]
    void = ledger.reserve((an_entry(2),))[0]
    ledger.void((void.id,), "too few survivors")
    ledger.void((void.id,), "too few survivors")
    assert ledger.spent("adult", Unit.RECORD).releases == 1
    assert [held.state for held in ledger.entries()] == [EntryState.RESERVED, EntryState.VOIDED]
    assert ledger.entries()[1].reason == "too few survivors"
    with pytest.raises(LedgerConflict, match="it is voided"):
        ledger.commit((void.id,), outcome={})
    with pytest.raises(LedgerConflict, match="it is voided"):
        ledger.void((void.id,), "another reason")
    with pytest.raises(ValueError, match="reason"):
        ledger.void((kept.id,), " ")
    again = ledger.reserve((an_entry(2, party="other"),))[0]
    assert (again.resumed, again.id > void.id) == (False, True)
    ledger.commit((again.id,), outcome={})
    assert ledger.spent("adult", Unit.RECORD).releases == 2
    assert ledger.verify() == []


# --- a round in one step ----------------------------------------------------------------------


def test_a_run_commits_a_round_and_reserves_the_next_in_one_step(ledger: Ledger) -> None:
    reservation = ledger.reserve((an_entry(1),))[0]
    for index in range(2, 6):
        reservation = commit_and_reserve(
            ledger,
            reservation.id,
            outcome={"survivors": index},
            checkpoint=f"model {index - 1}".encode(),
            entry=an_entry(index),
        )
    states = [held.state for held in ledger.entries()]
    assert states == [EntryState.COMMITTED] * 4 + [EntryState.RESERVED]
    assert ledger.checkpoint("run-1") == Checkpoint(4, b"model 4")
    assert ledger.checkpoint("run-2") is None
    assert ledger.verify() == []


def test_the_step_may_be_repeated_after_a_crash(ledger: Ledger) -> None:
    first = ledger.reserve((an_entry(1),))[0]
    step: Callable[[], Any] = lambda: commit_and_reserve(  # noqa: E731
        ledger, first.id, outcome={}, checkpoint=b"m", entry=an_entry(2)
    )
    before, head = step(), ledger.head()
    assert step().id == before.id
    assert ledger.head() == head


def test_a_refused_reservation_keeps_the_commit_before_it(ledger: Ledger) -> None:
    for index in range(1, 11):
        reservation = ledger.reserve((an_entry(index),))[0]
    with pytest.raises(BudgetExceeded):
        commit_and_reserve(
            ledger, reservation.id, outcome={}, checkpoint=b"last", entry=an_entry(11)
        )
    assert ledger.entries()[-1].state is EntryState.COMMITTED
    assert ledger.checkpoint("run-1") == Checkpoint(10, b"last")
    assert ledger.verify() == []


def test_a_refused_commit_reserves_nothing(ledger: Ledger) -> None:
    with pytest.raises(LedgerConflict):
        commit_and_reserve(ledger, 77, outcome={}, entry=an_entry())
    assert ledger.entries() == ()


# --- the chain --------------------------------------------------------------------------------


def three_releases(ledger: Ledger) -> Head:
    """Register, then reserve and commit twice, then reserve: records 1 to 6."""
    first = ledger.reserve((an_entry(1),))[0]
    second = commit_and_reserve(
        ledger, first.id, outcome={"survivors": 5}, checkpoint=b"one", entry=an_entry(2)
    )
    commit_and_reserve(
        ledger, second.id, outcome={"survivors": 4}, checkpoint=b"two", entry=an_entry(3)
    )
    assert ledger.verify() == []
    return ledger.head()


def tamper(url: str, *statements: str) -> None:
    engine = sa.create_engine(url if "://" in url else f"sqlite:///{url}")
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


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
        (["UPDATE parley_ledger_records SET body = 'no' WHERE position = 2"], "Record 2 makes no"),
        (["DELETE FROM parley_ledger_records WHERE position = 4"], "record 4 is missing"),
        (["DELETE FROM parley_ledger_records WHERE position IN (2, 3)"], "2 to 3 are missing"),
        (SWAP, "Record 4 doesn't match"),
        (["DELETE FROM parley_ledger_records WHERE position >= 5"], "its end was cut off"),
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
        patch.setattr(DatasetBudget, "admits", lambda *_: True)
        for index in range(1, 13):
            ledger.reserve((an_entry(index),))
    assert "the log adds up to ε = 1.2" in messages(ledger)[0]


def test_a_damaged_checkpoint_is_not_handed_out(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_checkpoints SET data = 'xx'")
    with pytest.raises(LedgerCorrupt, match="'run-1'"):
        ledger.checkpoint("run-1")


def test_a_record_that_cannot_be_read_says_so(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_records SET body = '{}' WHERE position = 2")
    with pytest.raises(LedgerCorrupt, match="record 2"):
        ledger.entries()


# --- places -----------------------------------------------------------------------------------


def test_a_ledger_opened_to_read_refuses_changes(ledger: Ledger, ledger_url: str) -> None:
    ledger.reserve((an_entry(),))
    with Ledger.open(ledger_url, read_only=True) as reader:
        assert reader.verify() == []
        assert reader.spent("adult", Unit.RECORD).releases == 1
        with pytest.raises(LedgerError, match="read-only"):
            reader.reserve((an_entry(2),))


@pytest.mark.parametrize("how", [{"create": False}, {"read_only": True}])
def test_where_there_is_no_ledger_none_is_made_unless_asked(
    ledger_url: str, how: dict[str, bool]
) -> None:
    for _ in range(2):
        with pytest.raises(NotALedger, match="there is none"):
            Ledger.open(ledger_url, **how)


def test_another_schema_version_is_refused(ledger: Ledger, ledger_url: str) -> None:
    tamper(ledger_url, "UPDATE parley_ledger_head SET version = 4")
    with pytest.raises(NotALedger, match=r"version 3 at .*, got parley-ledger version 4"):
        Ledger.open(ledger_url)


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="was closed"):
        ledger.entries()


def test_a_password_is_never_shown(ledger_url: str, tmp_path: Path) -> None:
    if "://" not in ledger_url:
        pytest.skip("a SQLite file has no password")
    url = sa.make_url(ledger_url)
    with Ledger.open(ledger_url) as ledger:
        assert str(url.password) not in repr(ledger)
        assert str(url.host) in repr(ledger)
    for wrong in (url.set(password="hunter2"), url.set(port=1), url.set(database="hunter2x")):
        with pytest.raises(LedgerUnavailable, match="Expected a connection") as refusal:
            Ledger.open(wrong.render_as_string(hide_password=False))
        shown = f"{refusal.value!r} {refusal.value.__cause__!r}".replace("/hunter2x", "")
        assert "hunter2" not in shown
        assert str(url.password) not in shown


def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    for url in ("postgresql://u:hunter2@host:port/x", "mysql://u:hunter2@host/x"):
        with pytest.raises(LedgerError, match="Expected") as refusal:
            Ledger.open(url)
        assert "hunter2" not in str(refusal.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerUnavailable, match=r"pip install 'parley\[postgres\]'"):
        Ledger.open("postgresql://u:hunter2@127.0.0.1/x")


def test_a_lost_connection_is_reported_and_the_next_step_connects_again(
    ledger: Ledger, ledger_url: str
) -> None:
    if "://" not in ledger_url:
        pytest.skip("a SQLite file has no connection")
    url = sa.make_url(ledger_url)
    engine = sa.create_engine(url.set(query={}))
    with engine.connect() as connection:
        # The fixture calls its connections by the schema.
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        schema = str(url.query["application_name"])
        assert len(connection.exec_driver_sql(end, (schema,)).all()) == 1
    engine.dispose()
    ledger.reserve((an_entry(),))
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a database " * 100, "another kind"), ("CREATE TABLE other (x)", "with 'other'")],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(
    tmp_path: Path, content: bytes | str, message: str
) -> None:
    path = tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(content)
        connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(NotALedger, match=message):
            Ledger.open(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "no path"),
        (":memory:", "on disk"),
        ("sqlite://", "no path"),
        ("missing/ledger.sqlite", "directory"),
        (".", "is a directory"),
    ],
)
def test_a_place_that_cannot_hold_a_ledger_is_refused(target: str, message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        Ledger.open(target)


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "50% of ?ε #1.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    with Ledger.open(f"sqlite:///{path}", create=False) as ledger:
        assert [total.budget for total in ledger.totals()] == [ADULT]


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
        for index in range(1, 11):
            ledger.reserve((an_entry(index),))
    content = bytearray(path.read_bytes())
    content[4096 * 4 :] = b"\xff" * (len(content) - 4096 * 4)
    path.write_bytes(content)
    with Ledger.open(path) as ledger:
        assert messages(ledger)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root to mount a small file system")
    command = [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_spends_nothing_and_room_again_lets_the_run_go_on(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
        reservation = ledger.reserve((an_entry(1),))[0]
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        head = ledger.head()
        for _ in range(3):
            with pytest.raises(
                LedgerUnavailable, match=r"room to write .*ledger.sqlite.*full"
            ) as e:
                commit_and_reserve(
                    ledger, reservation.id, outcome={}, checkpoint=b"m" * 99_000, entry=an_entry(2)
                )
            assert "nothing is spent" in str(e.value)
        assert ledger.head() == head
        assert ledger.spent("adult", Unit.RECORD).releases == 1
        ballast.unlink()
        commit_and_reserve(ledger, reservation.id, outcome={}, checkpoint=b"m", entry=an_entry(2))
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        assert ledger.spent("adult", Unit.RECORD).releases == 2
        assert ledger.verify() == []


def test_a_read_only_file_system_can_be_read_and_is_said_to_be_one(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(ADULT)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
    for place in (path, small_disk / "new.sqlite"):
        with pytest.raises(LedgerUnavailable, match=f"written at {place}"):
            Ledger.open(place)


def test_importing_the_ledger_does_not_import_the_database_library() -> None:
    code = "import sys, privacy.ledger; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- against a model --------------------------------------------------------------------------

EVENTS = [
    TENTH,
    Pure(epsilon=0.37),
    Approximate(event=Pure(epsilon=0.25), delta=2**-60),
    GAUSSIAN,
    Zcdp(rho=0.01),
]


class AgainstAModel(RuleBasedStateMachine):
    """Random steps on a ledger and on a dictionary that follows the same rules."""

    path: Path

    def __init__(self) -> None:
        super().__init__()
        self.path.unlink(missing_ok=True)
        self.ledger = Ledger.open(self.path)
        self.budgets = {"adult": replace(ADULT, delta=1e-6), "kdd": KDD}
        for budget in self.budgets.values():
            self.ledger.register(budget)
        # Of each release: entry, reservation, state.
        self.live: dict[tuple[str, str, int], tuple[Entry, int, str]] = {}
        self.settled = 0

    def teardown(self) -> None:
        assert self.ledger.verify() == []
        self.ledger.close()

    def spent(self, dataset: str) -> Composition:
        total = Composition.empty()
        for entry, _, _ in self.live.values():
            if entry.dataset == dataset:
                total = total.add(entry.event)
        return total

    @rule(
        run=st.sampled_from(["a", "b"]),
        dataset=st.sampled_from(["adult", "kdd"]),
        index=st.integers(0, 3),
        event=st.sampled_from(EVENTS),
    )
    def reserve(self, run: str, dataset: str, index: int, event: Event) -> None:
        entry = an_entry(index, run_id=run, dataset=dataset, event=event)
        held = self.live.get((run, dataset, index))
        if held is not None and held[0] != entry:
            with pytest.raises(LedgerConflict):
                self.ledger.reserve((entry,))
            return
        if held is not None:
            again = self.ledger.reserve((entry,))[0]
            assert (again.id, again.resumed, str(again.state)) == (held[1], True, held[2])
            return
        budget, total = self.budgets[dataset], self.spent(dataset).add(event)
        if total.epsilon(budget.delta)[1] > budget.epsilon * (1 + 1e-9):
            with pytest.raises(BudgetExceeded):
                self.ledger.reserve((entry,))
            return
        new = self.ledger.reserve((entry,))[0]
        assert (new.resumed, new.spent) == (False, total)
        self.live[run, dataset, index] = (entry, new.id, "reserved")

    @precondition(lambda self: self.live)
    @rule(data=st.data(), void=st.booleans(), checkpoint=st.none() | st.binary(max_size=9))
    def settle(self, data: st.DataObject, void: bool, checkpoint: bytes | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        entry, reservation, state = self.live[key]
        if state == "committed":
            with pytest.raises(LedgerConflict):
                self.ledger.void((reservation,), "no")
        elif void:
            self.ledger.void((reservation,), "nothing came of it")
            del self.live[key]
        else:
            self.ledger.commit((reservation,), outcome={"n": self.settled}, checkpoint=checkpoint)
            self.live[key] = (entry, reservation, "committed")
            self.settled += 1
            if checkpoint is not None:
                assert self.ledger.checkpoint(key[0]) == Checkpoint(key[2], checkpoint)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path, create=False)

    @invariant()
    def the_totals_are_the_models(self) -> None:
        for name in self.budgets:
            assert self.ledger.spent(name, Unit.RECORD) == self.spent(name)
        held = [e for e in self.ledger.entries() if e.state is not EntryState.VOIDED]
        assert {(e.reservation_id, str(e.state)) for e in held} == {
            (reservation, state) for _, reservation, state in self.live.values()
        }


def test_a_ledger_does_what_a_dictionary_would(tmp_path: Path) -> None:
    AgainstAModel.path = tmp_path / "model.sqlite"
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        AgainstAModel,
        settings=settings(
            max_examples=15,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
