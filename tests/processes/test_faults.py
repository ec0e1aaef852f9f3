"""Processes that are killed or stopped at random moments of a run: the same bits, paid for once.

Five parties, of whom four can open a sum: who is harmed is missing from a round and back in a later
one. The reference is a replay in one process, round by round with the parties that were in the sum.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from parley.deploy.process_errors import ProcessError
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.recorded_entries import EntryState
from parley.secure_agg.interface import DropStage
from parley.server.jobs.job_file import load_job, render_job
from parley.server.records.run_folder import RunFolderError
from parley.simulations.engine import fast_engine
from parley.simulations.engine.fault_script import Faults

NAMES = ("north", "south", "east", "west", "centre")


@pytest.fixture
def names():
    return NAMES


class Processes:
    """A consortium's server and parties; who is killed is started again, as systemd would."""

    def __init__(self, parley, home):
        self.parley, self.home = parley, home
        self.running = {}
        for name in ("server", *NAMES):
            self.start(name)

    def start(self, name, *, room="unlimited"):
        """`room` is how large a file it may write, in bytes: beyond it its disk is full."""
        server = name == "server"
        folder = self.home / "server" if server else self.home / "parties" / name
        command = self.parley.command("server" if server else "party", folder)
        with (self.parley.root / f"{name}.out").open("a") as log:
            self.running[name] = subprocess.Popen(
                ["prlimit", f"--fsize={room}", *command],
                stdout=log,
                stderr=log,
                env=self.parley.environment(),
            )

    def mend(self):
        """Starts again what ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.start(name)

    def end(self):
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()

    def log(self, name):
        return (self.parley.root / f"{name}.out").read_text()


@pytest.fixture
def processes(ground, parley, consortium):
    for name in NAMES:  # room for what is asked of them here
        policy = consortium / "parties" / name / "party.toml"
        seeded = "allow-seeded-noise = true\nseed = 3"  # shares of noise are a party's own draws
        policy.write_text(policy.read_text().replace("allow-seeded-noise = false", seeded))
    made = Processes(parley, consortium)
    yield made
    made.end()


def submit(processes, rounds, *more):
    overrides = ["parties.count=5", f"algorithm.rounds={rounds}", "data.records=150"]
    overrides += ["secure-aggregation.backend=masked", "run.stage-timeout=20", "run.seed=3", *more]
    job = load_job(overrides=overrides)

    until = time.monotonic() + 120
    while True:
        assert time.monotonic() < until, processes.log("server")
        processes.mend()
        with suppress(ProcessError), OperatorClient(load_operator_home(processes.home)) as operator:
            if all(party["online"] for party in operator.send_request("status")["parties"]):
                name = operator.send_request("submit", job=render_job(job))["run"]
                return job, processes.home / "server" / "runs" / name
        time.sleep(0.2)  # it is starting


def rounds_of(run):
    path = run / "rounds.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def status_of(run):
    path = run / "summary.json"
    return json.loads(path.read_text())["status"] if path.exists() else ""


def harm(processes, run, how, *, times, seed, pace=1.0):
    """Harms a process `pace` times a round, again and again, until the run is complete; how often.

    A run that too many left at once, or that has no room, ends; an operator has it go on.
    """
    rng, done = random.Random(seed), 0
    until = time.monotonic() + 300 + 60 * times
    while (status := status_of(run)) != "complete":
        assert time.monotonic() < until, processes.log("server")
        assert status in {"", "too-few-survivors"}, status
        processes.mend()
        if status or (run / "error.json").exists():
            with (
                suppress(ProcessError, RunFolderError),
                OperatorClient(load_operator_home(processes.home)) as operator,
            ):
                operator.send_request("resume", run=run.name)
        # As often as rounds were made, and a little ahead of them; also while who was harmed last
        # is on its way back.
        if done < min(times, 3 + 1.1 * rounds_of(run) * pace):
            time.sleep(rng.uniform(0.0, 0.5))
            how(processes, rng.choice(list(processes.running)))
            done += 1
        time.sleep(0.02)
    return done


def kill(processes, name):
    processes.running[name].kill()


def freeze(processes, name, seconds=2.0):
    """Has a process stand still."""
    process = processes.running[name]
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def fill_disk(processes, name):
    """Ends a process and starts it where no file can grow; a few seconds later there is room."""
    for room in ("4096", "unlimited"):
        processes.running[name].kill()
        processes.running[name].wait()
        processes.start(name, room=room)
        time.sleep(3.0)


class Absent:
    """The parties that were missing from each round, as a script of faults."""

    max_fraction = 0.2

    def __init__(self, lines):
        self._names = {line["round"]: line["absent"] for line in lines}

    def sample_faults(self, *, round_number, attempt, parties):
        del attempt, parties
        missing = [NAMES.index(name) for name in self._names[round_number]]
        dropped = dict.fromkeys(missing, DropStage.BEFORE_VECTOR)
        return Faults(declined=np.array([], dtype=np.int64), dropped=dropped)


def check(processes, job, run, tmp_path, monkeypatch):
    """The model of a replay by those in the sums; each round once in every ledger."""
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, job.rounds + 1))
    assert all(line["parties"]["summed"] == 5 - len(line["absent"]) for line in lines)
    monkeypatch.setattr(fast_engine, "parse_faults", lambda *_, **__: Absent(lines))
    replay = fast_engine.simulate(job, out=tmp_path / "fast").folder
    theta, reference = (load_file(at / "model.safetensors")["theta"] for at in (run, replay))
    assert np.array_equal(theta, reference)
    missing = sum(len(line["absent"]) for line in lines)
    print(f"{job.rounds} rounds, {missing} absences, the replay's model to the bit")
    # Who was harmed before it had joined is in no round, and has paid nothing.
    joined = [name for name in NAMES if any(name not in line["absent"] for line in lines)]
    paths = [processes.home / "parties" / name / "ledger.sqlite" for name in joined]
    for path in (run / "ledger.sqlite", *paths):
        with Ledger.open(path, read_only=True) as ledger:
            assert ledger.verify() == []
            # What was given back, of a round that too many left, costs nothing.
            kept = [held for held in ledger.list_entries() if held.state is not EntryState.VOIDED]
            indices = [held.entry.index for held in kept]
            assert len(indices) == len(set(indices)), path
            assert path.parent != run or indices == list(range(1, job.rounds + 1))


@pytest.mark.heavy
@pytest.mark.timeout(7200)
def test_a_hundred_kills_change_no_bit_and_nothing_is_paid_twice(processes, tmp_path, monkeypatch):
    kills = int(os.environ.get("PARLEY_TEST_KILLS", "100"))
    job, run = submit(processes, rounds=kills)
    assert harm(processes, run, kill, times=kills, seed=1) == kills
    check(processes, job, run, tmp_path, monkeypatch)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_processes_that_stand_still_beyond_the_deadline_change_no_bit(
    processes, tmp_path, monkeypatch
):
    job, run = submit(processes, 400, "run.stage-timeout=3")
    stand_still = partial(freeze, seconds=6.0)
    assert harm(processes, run, stand_still, times=3, seed=3, pace=0.1) == 3
    check(processes, job, run, tmp_path, monkeypatch)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_disks_that_are_full_for_a_while_change_no_bit_and_nothing_is_paid_twice(
    processes, tmp_path, monkeypatch
):
    job, run = submit(processes, 160, "run.stage-timeout=5")
    assert harm(processes, run, fill_disk, times=4, seed=4, pace=0.1) == 4
    check(processes, job, run, tmp_path, monkeypatch)
