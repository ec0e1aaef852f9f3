"""The ledger by itself: what is charged, when, and once only; on SQLite and PostgreSQL."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ledger_children import commit_and_reserve
from ledgers import ADULT, FACTS, GAUSSIAN, KDD, TENTH, an_entry

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Approximate, PrivacyEvent, Pure, Zcdp
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger import reservations
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
)
from parley.privacy.ledger.recorded_entries import EntryState
from parley.privacy.ledger.reservations import Checkpoint


def test_a_release_is_charged_when_reserved_and_stays_charged_when_committed(
    ledger: Ledger,
) -> None:
    reservation = ledger.reserve((an_entry(),))[0]
    assert not reservation.resumed
    assert reservation.state is EntryState.RESERVED
    assert (
        reservation.spent
        == ledger.get_account("adult", Unit.RECORD).spent
        == Composition().add(TENTH)
    )
    ledger.commit((reservation.id,), outcome={"survivors": 5})
    assert ledger.get_account("adult", Unit.RECORD).spent == Composition().add(TENTH)
    assert ledger.get_account("adult", Unit.RECORD).remaining == pytest.approx(0.9)
    (held,) = ledger.list_entries()
    assert held.entry == an_entry()
    assert (held.state, held.outcome) == (EntryState.COMMITTED, {"survivors": 5})
    assert ledger.verify() == []


def test_an_account_that_is_written_into_a_new_ledger_is_found_by_the_first_writer(
    tmp_path: Path,
) -> None:
    """`check` does not walk the empty log of a ledger that it created."""
    with Ledger.open(tmp_path / "other.sqlite") as other:
        other.register(replace(ADULT, epsilon=100.0))
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        (row,) = connection.execute("SELECT * FROM parley_ledger_accounts").fetchall()
    with Ledger.open(tmp_path / "new.sqlite") as ledger:
        with sqlite3.connect(tmp_path / "new.sqlite") as connection:
            places = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO parley_ledger_accounts VALUES ({places})", row)
        ledger.check()
        for budget in (ADULT, replace(ADULT, epsilon=100.0)):
            with pytest.raises(LedgerCorrupt, match="the table was edited"):
                ledger.register(budget)


def test_ten_tenths_fit_a_budget_of_one_exactly_and_an_eleventh_is_refused(ledger: Ledger) -> None:
    for index in range(1, 11):
        ledger.reserve((an_entry(index),))
    before = ledger.get_head()
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.reserve((an_entry(11),))
    assert refusal.value.requested == TENTH
    assert refusal.value.spent == Composition().add(TENTH, 10)
    assert refusal.value.left == 0
    assert refusal.value.budget == ADULT
    for part in ("'adult'", "ε = 1,", "unit record", "replace-one", "ε = 1.1", "0 left"):
        assert part in str(refusal.value)
    assert ledger.get_head() == before
    assert len(ledger.list_entries()) == 10
    assert ledger.verify() == []


def test_a_gaussian_has_no_room_in_a_budget_with_delta_0(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="ε = ∞"):
        ledger.reserve((an_entry(event=GAUSSIAN),))


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
    assert ledger.get_account("adult", Unit.RECORD).spent.releases == 1


def test_the_same_commit_again_changes_nothing_and_another_is_a_conflict(ledger: Ledger) -> None:
    reservation = ledger.reserve((an_entry(),))[0]
    ledger.commit((reservation.id,), outcome={"survivors": 5}, checkpoint=b"one")
    head = ledger.get_head()
    ledger.commit((reservation.id,), outcome={"survivors": 5}, checkpoint=b"one")
    assert ledger.get_head() == head
    for outcome, checkpoint in (({"survivors": 4}, b"one"), ({"survivors": 5}, b"two")):
        with pytest.raises(LedgerConflict, match="it is committed"):
            ledger.commit((reservation.id,), outcome=outcome, checkpoint=checkpoint)
    with pytest.raises(LedgerConflict, match="it is committed"):
        ledger.void((reservation.id,), "second thoughts")
    with pytest.raises(ValueError, match=r"finite number for outcome.loss"):
        ledger.commit((reservation.id,), outcome={"loss": math.inf})


@pytest.mark.parametrize("reservation_id", [0, 1, 99, -1])
def test_what_is_not_a_reservation_cannot_be_settled(ledger: Ledger, reservation_id: int) -> None:
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        commit_and_reserve(ledger, reservation_id, outcome={}, entry=an_entry())
    assert ledger.list_entries() == ()
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.commit((reservation_id,), outcome={})
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.void((reservation_id,), "never was")


def test_a_voided_reservation_gives_its_charge_back_and_stays_on_record(ledger: Ledger) -> None:
    kept = ledger.reserve((an_entry(1),))[0]
    void = ledger.reserve((an_entry(2),))[0]
    ledger.void((void.id,), "too few survivors")
    ledger.void((void.id,), "too few survivors")
    assert ledger.get_account("adult", Unit.RECORD).spent.releases == 1
    assert [held.state for held in ledger.list_entries()] == [
        EntryState.RESERVED,
        EntryState.VOIDED,
    ]
    assert ledger.list_entries()[1].reason == "too few survivors"
    with pytest.raises(LedgerConflict, match="it is voided"):
        ledger.commit((void.id,), outcome={})
    with pytest.raises(LedgerConflict, match="it is voided"):
        ledger.void((void.id,), "another reason")
    with pytest.raises(ValueError, match="reason"):
        ledger.void((kept.id,), " ")
    again = ledger.reserve((an_entry(2, party="other"),))[0]
    assert (again.resumed, again.id > void.id) == (False, True)
    ledger.commit((again.id,), outcome={})
    assert ledger.get_account("adult", Unit.RECORD).spent.releases == 2
    assert ledger.verify() == []


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
    states = [held.state for held in ledger.list_entries()]
    assert states == [EntryState.COMMITTED] * 4 + [EntryState.RESERVED]
    assert ledger.get_checkpoint("run-1") == Checkpoint(4, b"model 4")
    assert ledger.get_checkpoint("run-2") is None
    assert ledger.verify() == []


def test_the_step_may_be_repeated_after_a_crash(ledger: Ledger) -> None:
    first = ledger.reserve((an_entry(1),))[0]
    step: Callable[[], Any] = lambda: commit_and_reserve(  # noqa: E731
        ledger, first.id, outcome={}, checkpoint=b"m", entry=an_entry(2)
    )
    before, head = step(), ledger.get_head()
    assert step().id == before.id
    assert ledger.get_head() == head


def test_a_refused_reservation_keeps_the_commit_before_it(ledger: Ledger) -> None:
    for index in range(1, 11):
        reservation = ledger.reserve((an_entry(index),))[0]
    with pytest.raises(BudgetExceeded):
        commit_and_reserve(
            ledger, reservation.id, outcome={}, checkpoint=b"last", entry=an_entry(11)
        )
    assert ledger.list_entries()[-1].state is EntryState.COMMITTED
    assert ledger.get_checkpoint("run-1") == Checkpoint(10, b"last")
    assert ledger.verify() == []


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
        self.budgets = {
            "adult": replace(
                ADULT, delta=1e-6, certificate=AccountCertificate.ZCDP, reserved_delta=1e-8
            ),
            "kdd": KDD,
        }
        for budget in self.budgets.values():
            self.ledger.register(budget)
        # Of each release: entry, reservation, state.
        self.live: dict[tuple[str, str, int], tuple[LedgerEntry, int, str]] = {}
        self.settled = 0

    def teardown(self) -> None:
        assert self.ledger.verify() == []
        self.ledger.close()

    def spent(self, dataset: str) -> Composition:
        total = Composition()
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
    def reserve(self, run: str, dataset: str, index: int, event: PrivacyEvent) -> None:
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
        if not budget.can_admit(total):
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
                assert self.ledger.get_checkpoint(key[0]) == Checkpoint(key[2], checkpoint)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path, create=False)

    @invariant()
    def the_totals_are_the_models(self) -> None:
        for name in self.budgets:
            assert self.ledger.get_account(name, Unit.RECORD).spent == self.spent(name)
        held = [e for e in self.ledger.list_entries() if e.state is not EntryState.VOIDED]
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


RESERVE = reservations.reserve
WRONG_STEPS: dict[str, Callable[..., tuple[int, ...]]] = {
    "nothing was recorded": lambda *_: (0,),
    "a record that is no reservation": lambda *_: (1,),
    "the reservation of another release": lambda _writer, _entries, other, _voided: (other,),
    "one that was given back": lambda _writer, _entries, _other, voided: (voided,),
    "a reservation too few": lambda *_: (),
    "a cheaper entry": lambda writer, entries, *_: RESERVE(
        writer, [replace(each, event=Pure(epsilon=0.001)) for each in entries]
    ),
}


@pytest.mark.parametrize("wrong", WRONG_STEPS.values(), ids=WRONG_STEPS.keys())
def test_a_mistake_in_a_step_gives_no_leave_to_make_a_release_that_is_not_charged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., tuple[int, ...]]
) -> None:
    other = ledger.reserve((an_entry(1),))[0].id
    voided = ledger.reserve((an_entry(2),))[0].id
    ledger.void((voided,), "too few")
    before = ledger.list_accounts()
    monkeypatch.setattr(reservations, "reserve", lambda *given: wrong(*given, other, voided))
    with pytest.raises((LedgerError, ValueError)):
        ledger.reserve((an_entry(2),))
    assert ledger.list_accounts() == before
