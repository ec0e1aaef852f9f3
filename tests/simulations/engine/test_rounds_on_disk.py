"""A round is on the disk before it is shown, and before the next one is computed."""

import json

import numpy as np
import pytest
from disk import note_commits
from quick_runs import QUICK, StopAfter, run

from parley.privacy.ledger.errors import LedgerUnavailable
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.replay import EntryState
from parley.server.jobs.file import load_job
from parley.simulations.engine.block_cohort import BlockCohort
from parley.simulations.engine.fast import simulate


class Noting:
    """An observer that adds to `events` which rounds are computed and shown."""

    def __init__(self, monkeypatch, events):
        self.events, aggregate = events, BlockCohort.aggregate

        def noted(cohort, plan, *given, **named):
            events.append(f"compute {plan.round_number}")
            return aggregate(cohort, plan, *given, **named)

        monkeypatch.setattr(BlockCohort, "aggregate", noted)

    def started(self, *facts):
        pass

    def round_done(self, line):
        self.events.append(f"show {line.round}")


def test_a_round_is_on_the_disk_before_it_is_shown_and_before_the_next_is_computed(
    tmp_path, monkeypatch
):
    events = []
    note_commits(monkeypatch, events)
    run(tmp_path, "algorithm.rounds=40", observer=Noting(monkeypatch, events))
    start, end = events.index("compute 1"), events.index("show 40") + 1
    rounds = ((f"compute {at}", "durable", f"show {at}") for at in range(1, 41))
    assert events[start:end] == [event for each in rounds for event in each]
    assert set(events[:start] + events[end:]) == {"durable"}


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_a_run_that_is_stopped_by_what_it_showed_has_that_and_no_more(tmp_path, rounds):
    seeded = ("run.seed=1", "algorithm.rounds=9")
    whole = run(tmp_path, *seeded, name="whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *seeded, name="cut", observer=StopAfter(rounds))
    with Ledger.open(tmp_path / "cut" / "ledger.sqlite") as ledger:
        made = [each.state for each in ledger.entries()]
    # The next one is reserved with the commit of the round before it.
    begun = [EntryState.RESERVED] * (rounds < 9)
    assert made == [EntryState.COMMITTED] * rounds + begun
    assert np.array_equal(simulate(None, resume=tmp_path / "cut").theta, whole.theta)


def test_a_round_that_the_disk_did_not_take_is_not_shown(tmp_path, monkeypatch):
    events, step = [], Ledger.commit_and_reserve

    def refused(ledger, *given, **named):
        if events.count("compute 2"):
            raise LedgerUnavailable("no room")
        return step(ledger, *given, **named)

    monkeypatch.setattr(Ledger, "commit_and_reserve", refused)
    seeded = ("run.seed=1", "algorithm.rounds=5")
    job = load_job(overrides=[*QUICK, *seeded])
    with monkeypatch.context() as patch, pytest.raises(LedgerUnavailable):
        simulate(job, out=tmp_path / "run", observer=Noting(patch, events))
    assert events == ["compute 1", "show 1", "compute 2"]
    log = tmp_path / "run" / "rounds.jsonl"
    assert [json.loads(line)["round"] for line in log.read_text().splitlines()] == [1]
    monkeypatch.setattr(Ledger, "commit_and_reserve", step)
    resumed = simulate(None, resume=tmp_path / "run")
    assert np.array_equal(resumed.theta, run(tmp_path, *seeded, name="w").theta)
