"""Real parties over Flower: a SuperLink and SuperNodes with TLS, and what may happen to them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from parley.deploy import engines
from parley.deploy.engines import run_processes
from parley.deploy.flower import engine as flower_engine
from parley.deploy.node_keys import make_node_key
from parley.deploy.processes import ProcessError, wait_until
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.file import load_job, render_job
from parley.server.jobs.job import JobError

SECRETS = ("identity.key", "supernode.key", "executor.secret", "state", "flower")


# The robust protocol opens a sum only where every party has two neighbours left: of three parties
# none may be lost, of four one.
def job(*overrides, rounds=2, parties=3):
    return load_job(
        overrides=[
            f"parties.count={parties}",
            f"algorithm.rounds={rounds}",
            "data.records=150",
            "run.engine=processes",
            "run.transport=flower",
            "run.stage-timeout=60",
            *overrides,
        ]
    )


class Watcher:
    """An observer that does something after a round."""

    def __init__(self, **after):
        self.after = {int(key.removeprefix("round_")): action for key, action in after.items()}
        self.lines, self.boards, self.begun = [], [], None

    def started(self, job, plan, folder, done):
        self.begun = (plan.parties, done)

    def round_done(self, line):
        self.lines.append(line)
        self.after.get(line.round, lambda: None)()

    def parties(self, board):
        self.boards.append(board)

    @property
    def reasons(self):
        return {party["reason"] for board in self.boards for party in board["parties"]} - {""}


def run(ground, a_job, observer=None):
    result = run_processes(a_job, out=ground.run, observer=observer)
    assert result.summary.status == "complete"
    assert len((ground.run / "rounds.jsonl").read_text().splitlines()) == a_job.rounds
    return result.summary


def answered(watcher):
    return [line.parties.answered for line in watcher.lines]


def entries(path):
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
        return len(ledger.entries())


@pytest.mark.heavy
def test_three_parties_with_tls_run_the_masked_protocol_and_leave_no_secret(ground, monkeypatch):
    # Code that comes with the run is neither the server's nor a party's: nobody runs it.
    evil = (
        f"open({str(ground.root / 'ran')!r}, 'w')\nfrom flwr.clientapp import ClientApp\n".encode()
    )
    sent = {
        f"{room}/{file}": evil
        for room in ("client", "server")
        for file in ("__init__.py", "app.py")
    }
    bundle = flower_engine.job_app
    monkeypatch.setattr(flower_engine, "job_app", lambda *a, **b: {**bundle(*a, **b), **sent})
    watcher = Watcher()
    summary = run(ground, job(), watcher)
    assert watcher.begun == (3, 0)
    assert answered(watcher) == [3, 3]
    assert {board["stage"] for board in watcher.boards} > {"inspect"}
    assert summary.secure_aggregation.mode == "masked"
    assert summary.engine == "processes"
    for index in range(3):
        home = ground.run / "parties" / f"party-{index}"
        assert entries(home / "ledger.sqlite") == 2
        assert "round ok" in (home / "party.log").read_text()
        assert not [name for name in SECRETS if (home / name).exists()]
        assert stat.S_IMODE((home / "records.npz").stat().st_mode) == 0o600
    assert entries(ground.run / "ledger.sqlite") == 2
    assert not (ground.run / "network").exists()
    assert not (ground.root / "ran").exists()
    assert "http://" not in (ground.run / "logs" / "server.log").read_text()


@pytest.mark.heavy
def test_a_party_that_is_killed_is_a_dropout(ground):
    watcher = Watcher(round_1=lambda: ground.kill("party-2"))
    run(ground, job("run.stage-timeout=15", rounds=3, parties=4), watcher)
    assert answered(watcher) == [4, 3, 3]


@pytest.mark.heavy
def test_a_superlink_that_is_killed_goes_on_where_it_was(ground):
    watcher = Watcher(round_1=lambda: ground.kill("superlink_process"))
    run(ground, job(rounds=3), watcher)
    assert answered(watcher) == [3, 3, 3]
    assert entries(ground.run / "ledger.sqlite") == 3


@pytest.mark.heavy
def test_a_run_that_is_interrupted_is_resumed_and_nothing_is_paid_twice(ground):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_processes(job(rounds=3), out=ground.run, observer=Watcher(round_1=interrupt))
    assert ground.left() == []
    assert (ground.run / "parties" / "party-0" / "identity.key").exists()
    watcher = Watcher()
    result = run_processes(None, resume=ground.run, observer=watcher)
    assert result.summary.status == "complete"
    assert watcher.begun[1] >= 1
    assert [line.round for line in watcher.lines] == [*range(watcher.begun[1] + 1, 4)]
    for path in ("ledger.sqlite", "parties/party-0/ledger.sqlite"):
        assert entries(ground.run / path) == 3, path


@pytest.mark.heavy
def test_a_launcher_that_is_killed_leaves_no_process(ground):
    (ground.root / "job.toml").write_text(render_job(job(rounds=50)))
    words = ["run", ground.root / "job.toml", "-q", "--out", ground.run]
    launcher = subprocess.Popen(
        [sys.executable, "-P", "-m", "parley", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    rounds = ground.run / "rounds.jsonl"
    wait_until(lambda: rounds.exists() and rounds.stat().st_size > 0, what="a round", timeout_s=200)
    launcher.kill()
    launcher.wait()
    # A run that cannot be told about any more is given up within its last words' time.
    wait_until(lambda: not processes_left(ground), what="the end of all", timeout_s=40)
    shutil.rmtree(ground.run / "network")


def processes_left(ground):
    return [line for line in ground.left() if "parley" in line or "flower" in line]


@pytest.mark.heavy
def test_a_party_with_a_wrong_key_is_refused_by_name(ground, monkeypatch):
    start = flower_engine.start_supernode

    def start_with_another_key(supervisor, folder, **more):
        if folder.name == "party-2":
            make_node_key(folder / "supernode.key", comment="mallory")
        return start(supervisor, folder, **more)

    monkeypatch.setattr(flower_engine, "start_supernode", start_with_another_key)
    with pytest.raises(ProcessError, match="party-2's SuperNode ended with status"):
        run_processes(job(), out=ground.run)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["raise", "crash", "hang"])
def test_a_party_that_fails_in_a_stage_is_a_dropout_and_says_nothing(ground, how):
    ground.sabotage(how, "party-1", "survivors")
    watcher = Watcher()
    summary = run(ground, job("run.stage-timeout=15", parties=4), watcher)
    assert answered(watcher)[0] in {3, 4}
    assert "patient" not in json.dumps(summary.to_json())
    for path in [ground.run / "error.json", *(ground.run / "logs").iterdir()]:
        if path.exists():
            assert "patient" not in path.read_text(errors="replace"), path


def test_flower_without_ray_says_how_to_add_it(ground, monkeypatch):
    find = engines.importlib.util.find_spec
    monkeypatch.setattr(
        engines.importlib.util, "find_spec", lambda name: None if name == "ray" else find(name)
    )
    with pytest.raises(JobError, match=r'pip install "parley\[ray\]"'):
        engines.run_flower(job("run.engine=flower"), out=ground.run)
    assert not ground.run.exists()
