"""When a round is shown: after its commit is on the disk."""

import json
import math
import threading
import time

import numpy as np
import pytest
from quick_runs import QUICK, StopAfter, run

from parley.privacy.ledger.ledger import EntryState, Ledger, LedgerUnavailable
from parley.server.jobs.file import load_job
from parley.server.rounds import showing
from parley.simulations.engine.fast import simulate


class Noting:
    """An observer that notes what a run does with its ledger, and what it shows.

    Args:
        broken: which write to the disk fails.
        commits: so many are made before the first write ends.
    """

    def __init__(self, monkeypatch, *, broken=0, commits=0):
        self.events, self.broken, self.commits = [], broken, commits
        for name in ("commit", "commit_and_reserve", "sync"):
            monkeypatch.setattr(Ledger, name, self._noted(name, getattr(Ledger, name)))

    def _noted(self, name, step):
        def noted(*given, **named):
            if name == "sync":
                self.events.append("sync")
                deadline = time.monotonic() + 20
                while self.events.count("commit later") < self.commits:
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
            done = step(*given, **named)
            if name == "commit_and_reserve":
                self.events.append("commit" if named["durable"] else "commit later")
            else:
                self.events.append("synced" if name == "sync" else name)
            if name == "sync" and self.events.count("synced") == self.broken:
                raise LedgerUnavailable("no room")
            return done

        return noted

    def started(self, *facts):
        pass

    def round_done(self, line):
        self.events.append(f"show {line.round}")

    def check_order(self):
        """Every line was shown, in order, after a write that began after its commit."""
        shown = [each for each in self.events if each.startswith("show")]
        commits = [at for at, each in enumerate(self.events) if each.startswith("commit")]
        assert shown == [f"show {at}" for at in range(1, len(commits) + 1)]
        for line, committed in zip(shown, commits, strict=True):
            behind = self.events[committed : self.events.index(line)]
            if behind[0] == "commit later":
                assert "synced" in behind[behind.index("sync") :]


def test_a_short_round_is_shown_when_the_disk_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    noting = Noting(monkeypatch)
    run(tmp_path, "algorithm.rounds=4", observer=noting)
    noting.check_order()
    assert noting.events.count("commit later") == 3


def test_rounds_that_are_shorter_than_a_write_share_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    noting = Noting(monkeypatch, commits=5)
    run(tmp_path, "algorithm.rounds=6", observer=noting)
    noting.check_order()
    assert noting.events[:6] == ["commit later", "sync", *["commit later"] * 4]
    assert noting.events.count("sync") == 2


def test_rounds_within_a_pause_share_a_write(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    monkeypatch.setattr(showing, "_PAUSE_S", math.inf)
    noting = Noting(monkeypatch)
    run(tmp_path, "algorithm.rounds=6", observer=noting)
    noting.check_order()
    assert noting.events.count("sync") == 1


def test_a_line_that_has_waited_for_long_is_waited_for(tmp_path, monkeypatch):
    written, lines = threading.Event(), []
    monkeypatch.setattr(Ledger, "sync", lambda self: written.wait(20))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        shown = showing.Showing(ledger, lines.append, alone=True)
        shown.committed("1", durable=False)
        shown.settle(wait=False)
        assert lines == []
        monkeypatch.setattr(showing, "SHORT_S", 0.0)
        threading.Timer(0.05, written.set).start()
        shown.settle(wait=False)
        assert written.is_set()
        assert lines == ["1"]


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


def test_a_run_that_is_stopped_by_what_it_showed_goes_on_to_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "SHORT_S", math.inf)
    whole = run(tmp_path, "run.seed=1", name="whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run.seed=1", name="cut", observer=StopAfter(4))
    with Ledger.open(tmp_path / "cut" / "ledger.sqlite") as ledger:
        *made, begun = [each.state for each in ledger.entries()]
        assert made == [EntryState.COMMITTED] * len(made)
        assert len(made) >= 4
        assert begun is EntryState.RESERVED or len(made) == 9
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
