"""A clock that jumps, or is held back, ends no run and makes no consent young again."""

import os
import time
from datetime import UTC, datetime

import pytest

from parley.client.contract.message_frames import MessageFrame
from parley.client.party.last_write_times import LastUses, Uptime
from parley.client.party.party_folder import PartyFolder
from parley.deploy.stream.run_queue import RunQueue
from parley.privacy.ledger import owner_actions
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job, render_job

DAY_S = 24 * 3600.0


class WallClock:
    """The machine's clock, which somebody sets: what Python reads, and what files are stamped."""

    def __init__(self, monkeypatch, world):
        self._world, self._stamped, self._true = world, set(), time.time
        self.ahead_s = 0.0
        monkeypatch.setattr(time, "time", lambda: self._true() + self.ahead_s)
        raw, start = world.raw, world.clock

        def stamping(party, request):
            world.clock = start + self.ahead_s
            try:
                return raw(party, request)
            finally:
                self._stamp()

        world.raw = stamping

    def _stamp(self):
        """As the kernel would have: files of `state` that are new get the clock's time."""
        for path in (path for folder in self._world.folders for path in folder.glob("state/*")):
            known = (path, path.stat().st_ino)
            if known not in self._stamped:
                self._stamped.add(known)
                os.utime(path, times=(self._true() + self.ahead_s,) * 2)


@pytest.mark.parametrize(
    "days", [(400, 400, 400), (-400, -400, -400), (-400, 0, 0), (400, 0, -400), (0, 400, 0)]
)
def test_a_clock_that_is_set_during_a_run_does_not_end_it(tmp_path, wired, monkeypatch, days):
    world = wired.World(tmp_path, reopen=False)
    wall = WallClock(monkeypatch, world)
    world.join()
    for number, ahead in enumerate(days, start=1):
        wall.ahead_s = ahead * DAY_S
        answers = world.vectors(number, number, prepare=number + 1 if number < len(days) else None)
        assert [wired.ok(each).head["status"] for each in answers.values()] == ["ok"] * 3
        world.opened()
    wired.ok(world.ask(0, "finish", session=world.session))


def test_the_newest_contributions_are_kept_whatever_the_clock_said(tmp_path):
    keeper = PartyFolder.open(tmp_path)
    for number, day in enumerate((0, -400, -399, -398)):
        frame = MessageFrame(kind="round", head={"round": number}, blobs=(b"",))
        keeper.save_contribution(f"r-{number}", "ward", frame, max_files=2)
        (newest,) = (p for p in tmp_path.glob("state/release-*") if p.stat().st_mtime > DAY_S)
        os.utime(newest, times=(DAY_S * (1000 + day) / 1000,) * 2)
    left = [number for number in range(4) if keeper.load_contribution(f"r-{number}", "ward")]
    assert left == [2, 3]


def test_a_machine_that_was_off_makes_no_session_old(tmp_path):
    at = [Uptime(boot="a", seconds=9e6)]
    uses = LastUses(path=tmp_path / "last-uses", uptime=lambda: at[0])
    uses.note("session-1")
    for boot in "bcd":  # three restarts: ages go on, they never jump
        at[0] = Uptime(boot=boot, seconds=7.0)
        uses.keep_only(["session-1"])
        at[0] = Uptime(boot=boot, seconds=107.0)
        uses.note("release-1")
    assert uses.compute_ages() == {"session-1": 300.0, "release-1": 0.0}
    (tmp_path / "last-uses").write_text("damaged")
    assert uses.compute_ages() == {}


@pytest.fixture
def waiting(tmp_path, wired):
    """A world whose party 0 asks its owner, and one proposal that waits."""
    world = wired.World(tmp_path)
    world.consent({}, party=0, **{"approval-above": 0.0})
    assert propose(world, wired) == "waiting-for-approval"
    return world


def propose(world, wired):
    answer = world.ask(0, "propose", **world.join_head())
    return wired.reason(answer) if answer.head["status"] != "ok" else "ok"


@pytest.mark.parametrize("back_s", [0.0, 3600.0, 400 * DAY_S])
def test_an_approval_lapses_although_the_clock_is_held_back(waiting, wired, back_s):
    waiting.clock -= back_s
    waiting.uptime_s += 7 * DAY_S - 60
    assert propose(waiting, wired) == "waiting-for-approval"
    waiting.uptime_s += 61
    assert propose(waiting, wired) == "approval-lapsed"


def test_a_proposal_is_as_old_as_what_the_ledger_saw_last(waiting, wired, monkeypatch):
    """Also where the machine was off in between, and its clock starts from an earlier time."""
    later = datetime.fromtimestamp(waiting.clock + 8 * DAY_S, UTC).isoformat("T", "milliseconds")
    monkeypatch.setattr(owner_actions, "format_now", lambda: later)
    with Ledger.open(waiting.folders[0] / "ledger.sqlite") as ledger:
        key = ledger.list_accounts()[0].key
        ledger.decide(key, run_id="another", proposals=("ab" * 32,), accepted=False, reason="")
    assert propose(waiting, wired) == "approval-lapsed"


def decide_at(world, monkeypatch, moment, proposal):
    said = datetime.fromtimestamp(moment, UTC).isoformat("T", "milliseconds")
    monkeypatch.setattr(owner_actions, "format_now", lambda: said)
    with Ledger.open(world.folders[0] / "ledger.sqlite") as ledger:
        key = ledger.list_accounts()[0].key
        ledger.decide(key, run_id=world.run, proposals=(proposal,), accepted=True, reason="")


def test_a_yes_of_long_ago_begins_no_run_and_is_asked_for_again(waiting, wired, monkeypatch):
    (proposal,) = PartyFolder(path=waiting.folders[0]).load_proposals()
    decide_at(waiting, monkeypatch, waiting.clock + 1, proposal)
    assert propose(waiting, wired) == "ok"
    waiting.clock += 3650 * DAY_S
    assert propose(waiting, wired) == "waiting-for-approval"
    decide_at(waiting, monkeypatch, waiting.clock + 1, proposal)
    assert propose(waiting, wired) == "ok"


def test_a_yes_holds_to_the_end_of_the_run_that_it_began(waiting, wired, monkeypatch):
    (proposal,) = PartyFolder(path=waiting.folders[0]).load_proposals()
    decide_at(waiting, monkeypatch, waiting.clock, proposal)
    waiting.join()
    assert wired.ok(waiting.vectors(1, 1)[0])
    waiting.opened()
    waiting.clock += 400 * DAY_S
    assert wired.ok(waiting.vectors(2, 2)[0])


def test_a_run_that_is_submitted_after_the_clock_was_set_back_waits_behind_the_others(
    tmp_path, monkeypatch
):
    queue, text = RunQueue(tmp_path), render_job(load_job(overrides=["parties.count=3"]))
    first = queue.submit(text, by="server", own_files=True)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 400 * DAY_S)
    second = queue.submit(text, by="server", own_files=True)
    assert [run.name for run in queue.list_runs()] == [first, second]
