"""A ledger against a dictionary that does the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ledgers import ADULT, GAUSSIAN, KDD, TENTH, an_entry

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Approximate, Event, Pure, Zcdp
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.replay import EntryState
from parley.privacy.ledger.steps import Checkpoint

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
