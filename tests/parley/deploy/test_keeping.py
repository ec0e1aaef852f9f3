from __future__ import annotations

import itertools
import os
import sys

from parley.deploy.keeping import Keeping
from parley.deploy.processes import Supervisor


def python(code):
    return [sys.executable, "-S", "-c", code]


class World:
    """A supervisor over processes that end as soon as they start, and its own clock."""

    def __init__(self, supervisor, log, **more):
        self.now, self.said = 0.0, []
        self.supervisor = supervisor
        self.process = supervisor.start(
            "the node",
            [sys.executable, "-c", "raise SystemExit(3)"],
            environment=os.environ,
            log=log,
        )
        self.keeping = Keeping(supervisor, say=self.said.append, clock=lambda: self.now, **more)

    def ended(self):
        self.supervisor.processes[0].popen.wait()

    def starts(self, seconds, step=0.5):
        """When, in so many seconds, it was started again."""
        found, until = [], self.now + seconds
        while self.now < until:
            before = self.supervisor.processes[0].popen.pid
            self.ended()
            self.keeping.look()
            if self.supervisor.processes[0].popen.pid != before:
                found.append(self.now)
            self.now += step
        return found


def test_what_ends_is_started_again_ever_later_and_it_is_said(tmp_path):
    with Supervisor() as supervisor:
        world = World(supervisor, tmp_path / "a.log")
        assert world.starts(40) == [1.0, 3.5, 8.0, 16.5, 33.0]
        assert world.said[0].startswith("the node ended with status 3; it is started again in 1 s.")
        assert str(tmp_path / "a.log") in world.said[0]
        assert "in 16 s." in world.said[4]


def test_waiting_has_an_end(tmp_path):
    with Supervisor() as supervisor:
        world = World(supervisor, tmp_path / "a.log")
        starts = world.starts(400, step=1.0)
        assert max(b - a for a, b in itertools.pairwise(starts)) == 61.0


def test_what_ran_for_long_is_started_again_soon(tmp_path):
    with Supervisor() as supervisor:
        world = World(supervisor, tmp_path / "a.log")
        world.starts(20)
        steady = supervisor.start(
            "the node",
            [sys.executable, "-c", "input()"],
            environment=os.environ,
            log=tmp_path / "b",
        )
        supervisor.processes.remove(steady)
        supervisor.processes[0] = steady
        world.keeping.look()  # reads from nothing, so it has ended or will
        steady.popen.wait()
        world.keeping._begun["the node"] = world.now
        world.keeping._due.clear()
        world.now += 301
        world.keeping.look()
        assert "started again in 1 s." in world.said[-1]


def test_the_reason_is_said_where_one_is_known(tmp_path):
    with Supervisor() as supervisor:
        world = World(supervisor, tmp_path / "a.log", explain=lambda _: "The server refuses it.")
        world.ended()
        assert world.keeping.look() is False
        assert world.said == [
            "the node ended with status 3; it is started again in 1 s. The server refuses it."
        ]


def test_a_command_that_cannot_be_started_is_tried_again(tmp_path):
    with Supervisor() as supervisor:
        world = World(supervisor, tmp_path / "a.log")
        world.ended()
        world.keeping.look()
        world.process.arguments = ["/no/such/command"]
        world.now = 1.0
        world.keeping.look()
        assert "Cannot start the node" in world.said[-1]
        world.process.arguments = [sys.executable, "-c", ""]
        world.keeping.look()
        world.now = 10.0
        world.keeping.look()
        world.ended()
        assert supervisor.processes[0].popen.returncode == 0
