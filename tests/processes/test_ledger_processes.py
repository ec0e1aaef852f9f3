"""The ledger under several real processes: races for the last budget, and kill -9."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest
from ledger_children import (
    CHILDREN,
    a_budget,
    an_entry,
    in_child,
    model,
    open_and_register,
    race_for_the_last,
    reserve_the_same,
    resume_and_run,
    run_out_of_disk,
    spend_all,
)
from ledgers import TENTH

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import NotALedger
from parley.privacy.ledger.recorded_entries import EntryState


def raced(url, work, given, answers=None) -> list[Any]:
    """What processes say that work at once on one ledger; each ends well."""
    children = [in_child(work, url, *own) for own in given]
    got = [answers.get(timeout=60) for _ in children] if answers else []
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    return got


def test_processes_that_race_spend_exactly_the_budget(ledger_url: str) -> None:
    gate, answers = CHILDREN.Barrier(3), CHILDREN.Queue()
    runs = [(f"run-{name}", gate, answers) for name in ("a", "b", "c")]
    assert sum(raced(ledger_url, spend_all, runs, answers)) == 40  # budget 4, releases of 1/10
    with Ledger.open(ledger_url, create=False) as ledger:
        assert ledger.get_account("adult", Unit.RECORD).spent == Composition().add(TENTH, 40)
        assert ledger.verify() == []
        assert {entry.state for entry in ledger.list_entries()} == {EntryState.COMMITTED}


def test_of_two_processes_one_gets_the_last_release(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(a_budget(0.5))
        for index in range(1, 5):
            ledger.reserve((an_entry(index),))
    gate, answers = CHILDREN.Barrier(2), CHILDREN.Queue()
    runs = [(run, gate, answers) for run in ("run-a", "run-b")]
    assert sorted(raced(ledger_url, race_for_the_last, runs, answers)) == [False, True]


def test_two_processes_that_resume_the_same_run_share_one_reservation(ledger_url: str) -> None:
    gate, answers = CHILDREN.Barrier(2), CHILDREN.Queue()
    assert len(set(raced(ledger_url, reserve_the_same, [(gate, answers)] * 2, answers))) == 1
    with Ledger.open(ledger_url) as ledger:
        assert ledger.get_account("adult", Unit.RECORD).spent.releases == 1


@pytest.mark.parametrize("attempt", range(5))
def test_processes_that_open_a_new_ledger_at_once_make_one(ledger_url: str, attempt: int) -> None:
    raced(ledger_url, open_and_register, [(CHILDREN.Barrier(4),)] * 4)
    with Ledger.open(ledger_url, create=False) as ledger:
        assert ledger.get_head().records == 1
        assert ledger.verify() == []


# --- kill -9 ----------------------------------------------------------------------------------


def acknowledged(report: Any) -> int:
    """The last round in the pipe, 0 if none."""
    last = 0
    try:
        while True:
            last = int.from_bytes(report.recv_bytes(), "big")
    except EOFError:
        return last


def run_once(url: str, *, kill_after_s: float | None, rounds: int | None = None) -> int:
    """Runs a writer, kills it after some time, and gives the last round it acknowledged."""
    out, into = CHILDREN.Pipe(duplex=False)
    with out:
        with into:
            child = in_child(resume_and_run, url, into, rounds)
        out.recv_bytes()  # it begins
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            os.kill(child.pid, signal.SIGKILL)
        last = acknowledged(out)
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
        if not ledger.list_accounts():
            assert last == 0
            return 0
        assert ledger.verify() == []
        entries = ledger.list_entries()
        assert [held.entry.index for held in entries] == list(range(1, len(entries) + 1))
        assert ledger.get_account("adult", Unit.RECORD).spent == Composition().add(
            TENTH, len(entries)
        )
        states = [held.state for held in entries]
        committed = states.count(EntryState.COMMITTED)
        assert states == [EntryState.COMMITTED] * committed + [EntryState.RESERVED] * (
            len(entries) - committed
        )
        assert len(entries) - committed <= 1
        assert committed >= last  # what was acknowledged is there
        checkpoint = ledger.get_checkpoint("run-1")
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
        assert len(ledger.list_entries()) == rounds


def test_a_killed_run_has_lost_nothing_and_pays_nothing_twice(ledger_url: str) -> None:
    kill_many_times(ledger_url, 25)


def test_a_run_whose_disk_is_full_has_lost_nothing_and_goes_on_when_there_is_room(tmp_path) -> None:
    url, committed = str(tmp_path / "ledger.sqlite"), 0
    for room in (1 << 12, 1 << 16, 1 << 18):
        out, into = CHILDREN.Pipe(duplex=False)
        with out:
            with into:
                child = in_child(run_out_of_disk, url, into, room)
            last = acknowledged(out)
        child.join(timeout=60)
        assert child.exitcode == 1  # by an error, not by a signal
        before, committed = committed, check_after_kill(url, last)
        assert committed >= before
    assert committed > 0
    assert run_once(url, kill_after_s=None, rounds=committed + 3) == committed + 3
    assert check_after_kill(url, committed + 3) == committed + 3


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_run_killed_many_times_has_lost_nothing_and_pays_nothing_twice(ledger_url: str) -> None:
    kill_many_times(ledger_url, 300)
