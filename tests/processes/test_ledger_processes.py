"""The ledger under several real processes: races for the last budget, and kill -9."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Pure
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.ledger import (
    BudgetExceeded,
    DatasetBudget,
    Entry,
    EntryState,
    Ledger,
    NotALedger,
)

# Forked, so that a child starts in milliseconds; each opens the ledger itself.
PROCESSES = multiprocessing.get_context("fork")
TENTH = Pure(epsilon=0.1)


def a_budget(epsilon: float) -> DatasetBudget:
    return DatasetBudget(
        name="adult",
        fingerprint="sha256:0c4a",
        unit=Unit.RECORD,
        neighbouring=Neighbouring.REPLACE_ONE,
        epsilon=epsilon,
        delta=0.0,
    )


def an_entry(index: int, run_id: str = "run-1") -> Entry:
    facts: dict[str, Any] = {
        "mechanism": "output-perturbation",
        "unit": "record",
        "neighbouring": "replace-one",
        "norm": "l1",
        "sensitivity": 0.1,
        "noise_law": "laplace-l1",
        "noise_parameter": 1.0,
        "accountant": "parley",
        "accountant_version": "0.1.0",
    }
    return Entry(
        run_id=run_id, dataset="adult", party="server", index=index, event=TENTH, facts=facts
    )


def in_child(work: Callable[..., None], *arguments: Any) -> Any:
    child = PROCESSES.Process(target=work, args=arguments, daemon=True)
    child.start()
    return child


def spend_all(url: str, run_id: str, gate: Any, answers: Any) -> None:
    """Reserves until refused; says how many reservations it got."""
    with Ledger.open(url) as ledger:
        ledger.register(a_budget(4.0))
        gate.wait(timeout=60)
        got = 0
        try:
            while True:
                reservation = ledger.reserve(an_entry(got + 1, run_id))
                ledger.commit(reservation.id, outcome={})
                got += 1
        except BudgetExceeded:
            answers.put(got)


def test_processes_that_race_spend_exactly_the_budget(ledger_url: str) -> None:
    gate, answers = PROCESSES.Barrier(3), PROCESSES.Queue()
    children = [
        in_child(spend_all, ledger_url, f"run-{name}", gate, answers) for name in ("a", "b", "c")
    ]
    got = [answers.get(timeout=60) for _ in children]
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    assert sum(got) == 40  # budget 4, releases of 1/10
    with Ledger.open(ledger_url, create=False) as ledger:
        assert ledger.spent("adult", Unit.RECORD) == Composition.empty().add(TENTH, 40)
        assert ledger.verify() == []
        assert {entry.state for entry in ledger.entries()} == {EntryState.COMMITTED}


def race_for_the_last(url: str, run_id: str, gate: Any, answers: Any) -> None:
    with Ledger.open(url) as ledger:
        gate.wait(timeout=60)
        try:
            ledger.reserve(an_entry(1, run_id))
        except BudgetExceeded:
            answers.put(False)
        else:
            answers.put(True)


def test_of_two_processes_one_gets_the_last_release(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(a_budget(0.5))
        for index in range(1, 5):
            ledger.reserve(an_entry(index))
    gate, answers = PROCESSES.Barrier(2), PROCESSES.Queue()
    children = [
        in_child(race_for_the_last, ledger_url, run, gate, answers) for run in ("run-a", "run-b")
    ]
    assert sorted(answers.get(timeout=60) for _ in children) == [False, True]
    for child in children:
        child.join(timeout=60)


def reserve_the_same(url: str, gate: Any, answers: Any) -> None:
    with Ledger.open(url) as ledger:
        ledger.register(a_budget(1.0))
        gate.wait(timeout=60)
        answers.put(ledger.reserve(an_entry(1)).id)


def test_two_processes_that_resume_the_same_run_share_one_reservation(ledger_url: str) -> None:
    gate, answers = PROCESSES.Barrier(2), PROCESSES.Queue()
    children = [in_child(reserve_the_same, ledger_url, gate, answers) for _ in range(2)]
    assert len({answers.get(timeout=60) for _ in children}) == 1
    for child in children:
        child.join(timeout=60)
    with Ledger.open(ledger_url) as ledger:
        assert ledger.spent("adult", Unit.RECORD).releases == 1


def open_and_register(url: str, gate: Any) -> None:
    gate.wait(timeout=60)
    with Ledger.open(url) as ledger:
        ledger.register(a_budget(1.0))


@pytest.mark.parametrize("attempt", range(5))
def test_processes_that_open_a_new_ledger_at_once_make_one(ledger_url: str, attempt: int) -> None:
    gate = PROCESSES.Barrier(4)
    children = [in_child(open_and_register, ledger_url, gate) for _ in range(4)]
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    with Ledger.open(ledger_url, create=False) as ledger:
        assert ledger.head().records == 1
        assert ledger.verify() == []


# --- kill -9 ----------------------------------------------------------------------------------

ENDLESS = 10_000.0


def model(index: int) -> bytes:
    return index.to_bytes(8, "big") * 200


def resume_and_run(url: str, report: int, rounds: int | None) -> None:
    """A run as the server does it: resume, then commit a round and reserve the next, for ever.

    Writes the number of each round to `report` once its commit was acknowledged.
    """
    with Ledger.open(url) as ledger:
        ledger.register(a_budget(ENDLESS))
        checkpoint = ledger.checkpoint("run-1")
        index = 1 if checkpoint is None else checkpoint.release + 1
        reservation = ledger.reserve(an_entry(index))
        while rounds is None or index < rounds:
            reservation = ledger.commit_and_reserve(
                reservation.id,
                outcome={"survivors": index},
                checkpoint=model(index),
                entry=an_entry(index + 1),
            )
            os.write(report, index.to_bytes(8, "big"))
            index += 1
        ledger.commit(reservation.id, outcome={"survivors": index}, checkpoint=model(index))
        os.write(report, index.to_bytes(8, "big"))


def acknowledged(report: int) -> int:
    """The last round in the pipe, 0 if none."""
    words = b""
    while chunk := os.read(report, 1 << 16):
        words += chunk
    return int.from_bytes(words[-8:], "big")


def run_once(url: str, *, kill_after_s: float | None, rounds: int | None = None) -> int:
    """Runs a writer, kills it after some time, and gives the last round it acknowledged."""
    out, into = os.pipe()
    child = in_child(resume_and_run, url, into, rounds)
    os.close(into)
    try:
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            os.kill(child.pid, signal.SIGKILL)
        last = acknowledged(out)
    finally:
        os.close(out)
        child.join(timeout=60)
    assert child.exitcode == (0 if kill_after_s is None else -signal.SIGKILL)
    return last


def check_after_kill(url: str, last: int) -> int:
    """Nothing lost, nothing paid twice; gives the rounds that are committed."""
    try:
        with Ledger.open(url, read_only=True) as ledger:
            assert ledger.verify() == []
    except NotALedger:
        assert last == 0  # killed before there was one
    with Ledger.open(url) as ledger:
        if not ledger.totals():
            assert last == 0
            return 0
        assert ledger.verify() == []
        entries = ledger.entries()
        assert [held.entry.index for held in entries] == list(range(1, len(entries) + 1))
        assert ledger.spent("adult", Unit.RECORD) == Composition.empty().add(TENTH, len(entries))
        states = [held.state for held in entries]
        committed = states.count(EntryState.COMMITTED)
        assert states == [EntryState.COMMITTED] * committed + [EntryState.RESERVED] * (
            len(entries) - committed
        )
        assert len(entries) - committed <= 1
        assert committed >= last  # what was acknowledged is there
        checkpoint = ledger.checkpoint("run-1")
        if checkpoint is None:
            assert committed == 0
        else:
            assert checkpoint == (committed, model(committed))
        return committed


def kill_many_times(url: str, kills: int) -> None:
    chance = random.Random(kills)
    committed = 0
    for _ in range(kills):
        # The first 30 ms are opening and registering, what follows is rounds.
        last = run_once(url, kill_after_s=chance.choice([0.03, 0.1]) * chance.random())
        assert last == 0 or last > committed - 1
        before, committed = committed, check_after_kill(url, last)
        assert committed >= before
    rounds = committed + 5
    assert run_once(url, kill_after_s=None, rounds=rounds) == rounds
    assert check_after_kill(url, rounds) == rounds
    with Ledger.open(url) as ledger:
        assert len(ledger.entries()) == rounds


def test_a_killed_run_has_lost_nothing_and_pays_nothing_twice(ledger_url: str) -> None:
    kill_many_times(ledger_url, 25)


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_run_killed_many_times_has_lost_nothing_and_pays_nothing_twice(ledger_url: str) -> None:
    kill_many_times(ledger_url, 300)
