"""When a round is shown: after its commit is on the disk, and before the next one is committed."""

import json
import math

import numpy as np
import pytest
from quick_runs import QUICK, StopAfter, run

from parley.privacy.ledger.ledger import EntryState, Ledger, LedgerUnavailable
from parley.server.jobs.file import load_job
from parley.server.rounds import showing
from parley.simulations.engine.fast import simulate


class Noting:
    """An observer that notes what a run does with its ledger, and what it shows."""

    def __init__(self, monkeypatch, *, broken=0):
        self.events, self.broken = [], broken
        for name in ("commit", "commit_and_reserve", "sync"):
            monkeypatch.setattr(Ledger, name, self._noted(name, getattr(Ledger, name)))

    def _noted(self, name, step):
        def noted(*given, **named):
            done = step(*given, **named)
            if name == "commit_and_reserve":
                self.events.append("commit" if named["durable"] else "commit later")
            else:
                self.events.append(name)
            if name == "sync" and self.events.count("sync") == self.broken:
                raise LedgerUnavailable("no room")
            return done

        return noted

    def started(self, *facts):
        pass

    def round_done(self, line):
        self.events.append(f"show {line.round}")


def test_a_short_round_is_shown_when_the_disk_has_it_before_the_next_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    noting = Noting(monkeypatch)
    run(tmp_path, "algorithm.rounds=4", observer=noting)
    expected = [each for at in (1, 2, 3) for each in ("commit later", "sync", f"show {at}")]
    assert noting.events == [*expected, "commit", "show 4"]


def test_a_long_round_waits_for_the_disk_and_is_shown_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", 0.0)
    noting = Noting(monkeypatch)
    run(tmp_path, "algorithm.rounds=2", observer=noting)
    assert noting.events == ["commit", "show 1", "commit", "show 2"]


def test_with_other_processes_every_commit_waits_for_the_disk(tmp_path):
    with (
        Ledger.open(tmp_path / "ledger.sqlite") as ledger,
        showing.Showing(ledger, print, alone=False) as own,
    ):
        assert own.waits(0.0)


def test_a_run_that_is_stopped_by_what_it_showed_has_committed_nothing_behind_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    whole = run(tmp_path, "run.seed=1", name="whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run.seed=1", name="cut", observer=StopAfter(4))
    with Ledger.open(tmp_path / "cut" / "ledger.sqlite") as ledger:
        states = [each.state for each in ledger.entries()]
        assert states == [EntryState.COMMITTED] * 4 + [EntryState.RESERVED]
    assert np.array_equal(simulate(None, resume=tmp_path / "cut").theta, whole.theta)


def test_a_round_that_the_disk_did_not_take_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    noting = Noting(monkeypatch, broken=2)
    job = load_job(overrides=[*QUICK, "run.seed=1", "algorithm.rounds=5"])
    with pytest.raises(LedgerUnavailable):
        simulate(job, out=tmp_path / "run", observer=noting)
    log = tmp_path / "run" / "rounds.jsonl"
    assert [json.loads(line)["round"] for line in log.read_text().splitlines()] == [1]
    assert "show 2" not in noting.events
    resumed = simulate(None, resume=tmp_path / "run")
    assert np.array_equal(
        resumed.theta, run(tmp_path, *("run.seed=1", "algorithm.rounds=5"), name="w").theta
    )
