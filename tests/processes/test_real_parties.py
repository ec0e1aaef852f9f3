"""Real parties: processes that talk over TLS, and what may happen to them, whoever carries it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from parley.client.data.schema import SchemaError
from parley.deploy import process_engines
from parley.deploy.process_errors import ProcessError, wait_until
from parley.deploy.stream import multiprocess_engine
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate

run_processes = process_engines.run_stream_processes

SECRETS = ("identity.key", "party.key", "party.pem", "state")


def job(*overrides, rounds=2, parties=3):
    """Of five parties one may be gone in a robust round, of fewer none."""
    return load_job(
        overrides=[
            f"parties.count={parties}",
            f"algorithm.rounds={rounds}",
            "data.records=150",
            "run.engine=processes",
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
        return len(ledger.list_entries())


def prepared(monkeypatch, change):
    """Has `change(folder)` done to the parties' folders before anything starts."""
    prepare = process_engines.prepare_parties

    def prepare_and_change(a_job, folder, **more):
        prepare(a_job, folder, **more)
        change(folder)

    monkeypatch.setattr(process_engines, "prepare_parties", prepare_and_change)


def test_three_parties_with_tls_run_the_masked_protocol_and_leave_no_secret(ground):
    watcher, asked = Watcher(), job("run.seed=11", "secure-aggregation.backend=masked")
    summary = run(ground, asked, watcher)
    fast = simulate(asked, out=ground.root / "fast")
    assert np.array_equal(load_file(ground.run / "model.safetensors")["theta"], fast.theta)
    assert summary.guarantees == fast.summary.guarantees
    assert watcher.begun == (3, 0)
    assert answered(watcher) == [3, 3]
    assert len({board["stage"] for board in watcher.boards}) > 1
    assert summary.secure_aggregation.backend == "masked"
    assert summary.engine == "processes"
    for index in range(3):
        home = ground.run / "parties" / f"party-{index}"
        assert entries(home / "ledger.sqlite") == 2
        assert "round ok" in (home / "party.log").read_text()
        assert not [name for name in SECRETS if (home / name).exists()]
        assert stat.S_IMODE((home / "records.npz").stat().st_mode) == 0o600
    assert entries(ground.run / "ledger.sqlite") == 2
    assert not (ground.run / "network").exists()
    assert "Traceback" not in (ground.run / "logs" / "server.log").read_text()


@pytest.mark.heavy
def test_a_party_that_is_killed_is_a_dropout(ground):
    watcher = Watcher(round_1=lambda: ground.kill("party-2"))
    run(ground, job("run.stage-timeout=15", rounds=3, parties=5), watcher)
    assert answered(watcher)[0] == 5
    assert answered(watcher)[2] == 4


@pytest.mark.heavy
def test_a_server_that_is_killed_goes_on_where_it_was(ground):
    watcher = Watcher(round_1=lambda: ground.kill("single_run_server"))
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

    def ended():
        return not [line for line in ground.left() if "parley" in line]

    wait_until(ended, what="the end of all", timeout_s=40)
    shutil.rmtree(ground.run / "network")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("was", "own", "reason", "more"),
    [
        ('laws = ["gaussian"]', 'laws = ["dp-sgd"]', "mechanism", ""),
        ("\nepsilon = 1\n", "\nepsilon = 0.8\n", "budget-exhausted", "epsilon-per-job = 1.0"),
    ],
)
def test_a_party_that_declines_is_done_without_and_pays_nothing(
    ground, monkeypatch, was, own, reason, more
):
    def change(folder):
        policy = folder / "party-1" / "party.toml"
        text = policy.read_text().replace(was, own)
        policy.write_text(text.replace("# epsilon-per-job =", more) if more else text)

    prepared(monkeypatch, change)
    watcher = Watcher()
    run(ground, job(parties=5), watcher)
    assert answered(watcher) == [4, 4]
    assert watcher.reasons == {reason}
    ledger = ground.run / "parties" / "party-1" / "ledger.sqlite"
    assert not ledger.exists() or entries(ledger) == 0


@pytest.mark.heavy
def test_a_party_with_anothers_certificate_is_refused_by_name(ground, monkeypatch):
    certify = multiprocess_engine.certify_party

    def certify_another(asked, party, **more):
        return certify(asked, replace(party, identity=bytes(32)), **more)

    monkeypatch.setattr(multiprocess_engine, "certify_party", certify_another)
    with pytest.raises(ProcessError, match=r"ended with status 1(.|\n)*for another identity"):
        run_processes(job(), out=ground.run)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["raise", "crash", "hang"])
def test_a_party_that_fails_in_a_stage_is_a_dropout_and_says_nothing(ground, how):
    ground.sabotage(how, "party-1", "survivors")
    watcher = Watcher()
    summary = run(ground, job("run.stage-timeout=8", parties=5), watcher)
    assert answered(watcher)[0] in {4, 5}
    assert "patient" not in json.dumps(summary.to_json())
    for path in [ground.run / "error.json", *(ground.run / "logs").iterdir()]:
        if path.exists():
            assert "patient" not in path.read_text(errors="replace"), path


@pytest.mark.heavy
def test_too_few_parties_for_the_job_is_a_clear_error_within_the_deadline(ground, monkeypatch):
    def change(folder):
        for index in (0, 1):
            (folder / f"party-{index}" / "records.npz").unlink()

    prepared(monkeypatch, change)
    said = r"Expected at least 3 .*party-0 declines \(data-un"
    with pytest.raises(JobError, match=said):
        run_processes(job("run.stage-timeout=20"), out=ground.run)
    assert not ground.run.exists()


def test_a_job_that_cannot_run_starts_nothing_and_leaves_nothing(ground):
    with pytest.raises(SchemaError, match=r"no\.toml"):
        run_processes(job("data.source=no.csv", "data.schema=no.toml"), out=ground.run)
    assert not ground.run.exists()
