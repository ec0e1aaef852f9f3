"""One release charged to two budgets: all or nothing, and never one without the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledgers import ADULT as RECORDS
from ledgers import FACTS, TENTH

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.recorded_entries import EntryState
from parley.privacy.ledger.table_access import LedgerWriter

PARTIES = replace(RECORDS, unit=Unit.PARTY, epsilon=0.5)


def both(index: int, run: str = "r") -> tuple[LedgerEntry, LedgerEntry]:
    own = LedgerEntry(
        run_id=run, dataset="adult", party="server", index=index, event=TENTH, facts=FACTS
    )
    return own, replace(own, facts=FACTS | {"unit": "party"})


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as opened:
        opened.register(RECORDS, PARTIES)
        yield opened


def counts(ledger: Ledger) -> list[int]:
    assert ledger.verify() == []
    return [totals.spent.releases for totals in ledger.list_accounts()]


def test_a_budget_is_named_by_data_and_unit_whatever_the_data_are_called(ledger: Ledger) -> None:
    assert {totals.budget.key for totals in ledger.list_accounts()} == {RECORDS.key, PARTIES.key}
    like = replace(RECORDS, name="adult (party)", fingerprint="sha256:0c4a (party)")
    ledger.register(like)  # Another data set, bound to nothing of the first.
    ledger.reserve((replace(both(1)[0], dataset=like.name),))
    assert ledger.get_account(like.name, Unit.RECORD).spent.releases == 1
    assert ledger.get_account("adult", Unit.PARTY).spent.releases == 0
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "budgets",
    [(RECORDS, RECORDS), (RECORDS, replace(PARTIES, name="kdd", fingerprint="sha256:77"))],
    ids=["one unit twice", "two data sets"],
)
def test_budgets_that_are_not_one_data_sets_are_not_registered(
    ledger: Ledger, budgets: tuple[DatasetBudget, ...]
) -> None:
    with pytest.raises(ValueError, match="of one data set, one per unit"):
        ledger.register(*budgets)


def test_both_are_reserved_committed_and_voided_together(ledger: Ledger) -> None:
    held = ledger.reserve(both(1))
    assert counts(ledger) == [1, 1]
    again = ledger.reserve(both(1))
    assert [each.id for each in again] == [each.id for each in held]
    assert all(each.resumed for each in again)
    held = ledger.commit_and_reserve(
        [each.id for each in held], outcome={"survivors": 3}, entries=both(2), checkpoint=b"model"
    )
    assert counts(ledger) == [2, 2]
    assert ledger.get_checkpoint("r") == (1, b"model")
    ledger.void([each.id for each in held], "too few")
    assert counts(ledger) == [1, 1]
    states = [each.state for each in ledger.list_entries()]
    assert states == [EntryState.COMMITTED] * 2 + [EntryState.VOIDED] * 2


def test_where_one_budget_is_gone_neither_is_charged_and_the_commit_stands(ledger: Ledger) -> None:
    held = ledger.reserve(both(1))
    for index in range(2, 6):
        held = ledger.commit_and_reserve(
            [each.id for each in held], outcome={}, entries=both(index)
        )
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.commit_and_reserve([x.id for x in held], outcome={}, entries=both(6))
    assert refusal.value.budget == PARTIES
    assert counts(ledger) == [5, 5]
    assert {each.state for each in ledger.list_entries()} == {EntryState.COMMITTED}
    with pytest.raises(BudgetExceeded):
        ledger.reserve(tuple(reversed(both(6))))
    assert counts(ledger) == [5, 5]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_kill_between_two_writes_leaves_nothing_of_the_step(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    class Killed(BaseException):
        pass

    held = ledger.reserve(both(1))
    written, original = [0], LedgerWriter.append

    def append(self: LedgerWriter, *arguments: Any, **more: Any) -> Any:
        written[0] += 1
        record = original(self, *arguments, **more)
        if written[0] == at:
            raise Killed
        return record

    monkeypatch.setattr(LedgerWriter, "append", append)
    step: dict[str, Any] = {"outcome": {}, "entries": both(2), "checkpoint": b"m"}
    with pytest.raises(Killed):
        ledger.commit_and_reserve([each.id for each in held], **step)
    monkeypatch.setattr(LedgerWriter, "append", original)
    assert counts(ledger) == [1, 1]
    assert ledger.get_checkpoint("r") is None
    ledger.commit_and_reserve([each.id for each in held], **step)
    assert counts(ledger) == [2, 2]


def test_data_with_both_budgets_are_never_charged_to_one(ledger: Ledger) -> None:
    for alone in both(1):
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.reserve((alone,))
    for alone in (RECORDS, PARTIES):
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.register(alone)
    with pytest.raises(LedgerConflict, match="as it was registered"):
        ledger.register(RECORDS, replace(PARTIES, epsilon=2.0))
    ledger.register(PARTIES, RECORDS)
    assert counts(ledger) == [0, 0]


def test_a_run_that_knew_one_budget_only_cannot_go_on_once_there_are_two(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.register(RECORDS)  # Another process, which has not reserved yet.
        ledger.register(RECORDS, PARTIES)
        with pytest.raises(LedgerConflict):
            ledger.reserve((both(1, "other")[0],))


def test_a_second_budget_is_refused_where_something_was_released(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.register(RECORDS)
        ledger.reserve((both(1)[0],))
        with pytest.raises(LedgerConflict, match="no party-level bound covers"):
            ledger.register(RECORDS, PARTIES)
        assert len(ledger.list_accounts()) == 1
        ledger.register(RECORDS)


def test_one_step_has_one_entry_a_budget(ledger: Ledger) -> None:
    with pytest.raises(LedgerConflict, match="one entry per budget"):
        ledger.reserve((*both(1), both(2)[0]))
    assert counts(ledger) == [0, 0]


def test_verify_finds_a_release_that_one_budget_alone_was_charged_for(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(both(1))
    with monkeypatch.context() as patch:
        patch.setattr("parley.privacy.ledger.reservations.check_units", lambda *_, **__: None)
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.reserve((both(2)[0],))  # no leave, whatever a step records
        patch.setattr("parley.privacy.ledger.release_permit.check_units", lambda *_, **__: None)
        ledger.reserve((both(2)[0],))
    (problem,) = ledger.verify()
    assert "release 2 of run 'r'" in str(problem)
    assert "not charged to 'adult' (unit party)" in str(problem)
