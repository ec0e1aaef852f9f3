"""What an operator is told about a run on the server's machine: without a server."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from parley.client.contract.protocol import Reason
from parley.deploy.flower import submission
from parley.deploy.flower.control import RunStatus
from parley.deploy.flower.submission import submit_job
from parley.deploy.folders import DeployError
from parley.deploy.follow import RunStopped
from parley.deploy.refusals import MEANINGS, refusals
from parley.server.jobs.file import load_job
from parley.server.records.reading import read_summary
from parley.server.records.run_folder import RunFolder


def test_every_reason_of_a_party_has_words():
    assert set(MEANINGS) == {str(reason) for reason in Reason}


def board(run, *parties):
    states = [{"name": n, "state": s, "reason": r} for n, s, r in parties]
    run.mkdir(exist_ok=True)
    (run / "parties.json").write_text(
        json.dumps({"round": 0, "stage": "inspect", "parties": states})
    )


def test_an_operator_sees_who_declines_why_what_was_asked_and_where_to_look(tmp_path):
    board(
        tmp_path,
        ("north", "declined", "budget-exhausted"),
        ("south", "online", ""),
        ("east", "failed", "unheard-of"),
    )
    job = load_job(overrides=["data.source=diabetes", "privacy.epsilon=2", "parties.count=3"])
    first, north, east = refusals(tmp_path, job)
    assert "epsilon = 2, delta = 1e-05 for a record (replace-one) of diabetes" in first
    assert "north declined (budget-exhausted: the job asks for more than" in north
    assert "north's party.log" in north
    assert "east failed (unheard-of)" in east


@pytest.mark.parametrize("text", ["", "[]", "{", None])
def test_no_board_is_no_refusal(tmp_path, text):
    if text is not None:
        (tmp_path / "parties.json").write_text(text)
    assert refusals(tmp_path, load_job()) == []


class Server:
    """A server's folder, and a control that starts runs which end as `end` says."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.started, self.going = folder, [], []
        (folder / "runs").mkdir()

        @contextmanager
        def connected(_folder):
            control = SimpleNamespace(start=self.start, runs=lambda: self.going)
            yield SimpleNamespace(folder=folder), control

        monkeypatch.setattr(submission, "_connected", connected)
        monkeypatch.setattr(submission, "follow_flower", self.follow)

    def follow(self, *given, **more):
        self.end(*given, **more)

    def start(self, app):
        self.started.append(app)
        return len(self.started)


@pytest.fixture
def server(tmp_path, monkeypatch):
    return Server(tmp_path, monkeypatch)


def submit(server, resume=None, error=RunStopped):
    with pytest.raises(error) as caught:
        submit_job(None, to=server.folder, sets=[], resume=resume, quiet=False)
    return str(caught.value)


def test_a_stopped_submission_says_the_command_that_goes_on_with_it_and_it_does(server, capsys):
    def stopped(path, *_, **__):
        RunFolder(path, "run").commission()
        raise RunStopped

    server.end = stopped
    submit(server)
    (run,) = (server.folder / "runs").iterdir()
    command = f"parley submit --to {server.folder} --resume {run.name}"
    assert f"  {command}" in capsys.readouterr().err.splitlines()
    submit(server, resume=run.name)
    assert len(server.started) == 2
    assert list((server.folder / "runs").iterdir()) == [run]


def test_a_run_stopped_before_its_first_round_is_to_be_submitted_again(server, capsys):
    def stopped(*_, **__):
        raise RunStopped

    server.end = stopped
    submit(server)
    assert "submit the job again" in " ".join(capsys.readouterr().err.split())


def test_who_stops_watching_is_told_that_the_run_goes_on(server, capsys):
    def watched(path, *_, **__):
        board(path, ("north", "declined", "unit"))
        raise KeyboardInterrupt

    server.end = watched
    submit(server, error=KeyboardInterrupt)
    said = capsys.readouterr().err
    assert "the run goes on" in said
    assert f"parley stop {server.folder}" in " ".join(said.split())
    assert "north declined (unit: its data set's budget is for another privacy.unit)" in said


def test_a_run_that_is_complete_or_going_on_is_not_started_again(server):
    folder = RunFolder.create(load_job(overrides=[f"run.out={server.folder / 'runs'}"]))
    folder.commission()
    ended = read_summary(Path(__file__).parents[3] / "vectors" / "run")
    folder.write_summary(ended)
    before = {path.name for path in folder.path.iterdir()}
    assert "is complete" in submit(server, resume=folder.path.name, error=DeployError)
    assert {path.name for path in folder.path.iterdir()} == before
    folder.write_summary(ended.adding(status="budget-exhausted"))
    (folder.path / "flower-run").write_text("7")
    server.going = [RunStatus(run=7, status="running", outcome="")]
    assert "is going on" in submit(server, resume=folder.path.name, error=DeployError)
    assert server.started == []
