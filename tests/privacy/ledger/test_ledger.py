"""The ledger by itself: what is charged, when, and once only; on SQLite and PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from ledger_children import commit_and_reserve
from ledgers import ADULT, FACTS, GAUSSIAN, TENTH, an_entry

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Pure
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.replay import EntryState
from parley.privacy.ledger.steps import Checkpoint


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
    for part in ("'adult'", "ε = 1,", "unit record", "replace-one", "ε = 1.1", "0 left"):
        assert part in str(refusal.value)
    assert ledger.head() == before
    assert len(ledger.entries()) == 10
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
    with pytest.raises(ValueError, match=r"finite number for outcome.loss"):
        ledger.commit((reservation.id,), outcome={"loss": math.inf})


@pytest.mark.parametrize("reservation_id", [0, 1, 99, -1])
def test_what_is_not_a_reservation_cannot_be_settled(ledger: Ledger, reservation_id: int) -> None:
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        commit_and_reserve(ledger, reservation_id, outcome={}, entry=an_entry())
    assert ledger.entries() == ()
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.commit((reservation_id,), outcome={})
    with pytest.raises(LedgerConflict, match="id of a reservation"):
        ledger.void((reservation_id,), "never was")


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
