"""Two runs on one PostgreSQL ledger, whose processes, backends and server are killed or stopped.

Each harm comes in the middle of a run: nothing that was released is uncharged, nothing is paid
twice, and both runs come to the models of runs that nobody harmed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from ledgers import with_parts
from safetensors.numpy import load_file

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerUnavailable
from parley.privacy.ledger.recorded_entries import EntryState

SCRIPT = Path(__file__).parents[2] / ".ci" / "postgres.sh"
ROUNDS = int(os.environ.get("PARLEY_TEST_POSTGRES_ROUNDS", "400"))
HARMS = int(os.environ.get("PARLEY_TEST_POSTGRES_HARMS", "40"))
RUNS = ("a", "b")


class Server:
    """A PostgreSQL server of this test's own: it is harmed."""

    def __init__(self) -> None:
        says = 'unset PARLEY_TEST_POSTGRES_URL; source "$0"; '
        says += 'echo "$PARLEY_TEST_POSTGRES_URL $postgres_bin $postgres_home"; read -r _'
        self._shell = subprocess.Popen(
            ["bash", "-c", says, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url, binaries, home = self._shell.stdout.readline().split()
        self._bin, self._data = Path(binaries), Path(home) / "data"
        self._start = (self._data / "postmaster.opts").read_text().split('"')[1::2]

    def postmaster(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """The postmaster, and what it started."""
        first = self.postmaster()
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def backends(self) -> list[int]:
        found = []
        for pid in self.processes()[1:]:
            with suppress(OSError):
                if b"parley" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def restart(self) -> None:
        """Starts it again after its postmaster was killed."""
        owner = "postgres" if os.getuid() == 0 else None
        with suppress(FileNotFoundError):
            (self._data / "postmaster.pid").unlink()
        subprocess.Popen(
            [self._bin / "postgres", *self._start],
            cwd="/",
            user=owner,
            group=owner,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> None:
        self._shell.communicate("\n", timeout=60)


@pytest.fixture
def server():
    if not os.environ.get("PARLEY_TEST_POSTGRES_URL"):
        pytest.skip("needs a PostgreSQL server, see .ci/postgres.sh")
    made = Server()
    yield made
    made.end()


class Run:
    """A run of a job, begun again for as long as it has not ended well."""

    def __init__(self, parley, name, ledger) -> None:
        self.parley, self.folder = parley, parley.root / name
        self._begin = ["run", "--quiet", "--out", self.folder]
        settings = (
            "parties.count=3", "data.records=150", f"algorithm.rounds={ROUNDS}", "run.seed=3",
            f"privacy.ledger={ledger}", "privacy.epsilon=1", "privacy.dataset-epsilon=3",
            "privacy.dataset=all",
        )  # fmt: skip
        for each in settings:
            self._begin += ["--set", each]
        self.starts, self.number = 0, None

    @property
    def process(self):
        return self.parley.running[self.number][0]

    def go(self) -> bool:
        """Starts it where it does not run; whether it is complete."""
        if self.number is not None:
            if self.process.poll() is None:
                return False
            if self.process.returncode == 0:
                return True
        self.starts += 1
        if (self.folder / "run-id").exists():
            self.number = self.parley.start("run", "--quiet", "--resume", self.folder)
        else:  # it was killed before it was anything
            shutil.rmtree(self.folder, ignore_errors=True)
            self.number = self.parley.start(*self._begin)
        return False

    def rounds(self) -> list[int]:
        path = self.folder / "rounds.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line)["round"] for line in text.split("\n")[:-1]]

    def model(self):
        return load_file(self.folder / "model.safetensors")["theta"]


def kill_run(server, run) -> None:
    run.process.kill()


def kill_backend(server, run) -> None:
    if backends := server.backends():
        os.kill(random.choice(backends), signal.SIGKILL)


def kill_server(server, run) -> None:
    for pid in reversed(server.processes()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    server.restart()


def stop_server(server, run) -> None:
    stopped = server.processes()
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    for pid in reversed(stopped):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


HARM = (kill_run, kill_backend, kill_server, stop_server)


def check(url, runs) -> None:
    """What each run showed is charged; nothing is charged twice."""
    shown = {run.folder: run.rounds() for run in runs}  # before the ledger is read
    deadline = time.monotonic() + 60
    while True:
        try:
            with Ledger.open(url, read_only=True) as ledger:
                assert ledger.verify() == []
                entries = ledger.list_entries()
            break
        except LedgerUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    for folder, rounds in shown.items():
        assert rounds == list(range(1, len(rounds) + 1))
        own = [held for held in entries if held.entry.run_id.startswith(folder.name)]
        charged = [held.entry.index for held in own if held.state is not EntryState.VOIDED]
        assert len(charged) == len(set(charged))
        assert set(rounds) <= set(charged)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_two_runs_on_a_postgresql_that_is_harmed_pay_once_for_what_they_release(
    server, parley, tmp_path, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", urlsplit(server.url).password)
    bare = with_parts(server.url, password="")
    runs = [Run(parley, name, bare) for name in RUNS]
    chance, harms, done = random.Random(13), dict.fromkeys(HARM, 0), False
    ahead = 0
    while not done:
        assert max(run.starts for run in runs) <= HARMS + 9, parley.said(runs[0].number)
        done = not [run for run in runs if not run.go()]  # each of them
        busy = [run for run in runs if run.process.poll() is None]
        made = sum(len(run.rounds()) for run in runs)
        if busy and sum(harms.values()) < HARMS and made > ahead:
            # As often as rounds are made, so that the harms come in the midst of them.
            time.sleep(chance.uniform(0.0, 0.2))
            harm = chance.choice(HARM)
            harm(server, chance.choice(busy))
            harms[harm] += 1
            check(server.url, runs)
            ahead = made + 1
        time.sleep(0.01)
    print({harm.__name__: count for harm, count in harms.items()}, [run.starts for run in runs])
    check(server.url, runs)
    with Ledger.open(server.url, read_only=True) as ledger:
        entries, spent = ledger.list_entries(), ledger.get_account("all", Unit.RECORD).spent
    assert {held.state for held in entries} == {EntryState.COMMITTED}
    assert sorted(held.entry.index for held in entries) == sorted([*range(1, ROUNDS + 1)] * 2)
    assert all(run.rounds() == list(range(1, ROUNDS + 1)) for run in runs)

    whole = [Run(parley, f"whole-{name}", tmp_path / "whole.sqlite") for name in RUNS]
    for run in whole:
        while not run.go():
            time.sleep(0.2)
    with Ledger.open(tmp_path / "whole.sqlite", read_only=True) as ledger:
        assert ledger.get_account("all", Unit.RECORD).spent == spent
    for harmed, one in zip(runs, whole, strict=True):
        assert np.array_equal(harmed.model(), one.model())
