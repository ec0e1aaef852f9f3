"""Jobs that would run code in the server, end it, or take it again at every start."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from attending import JOB

from parley.deploy.process_errors import ProcessError
from parley.deploy.run_watcher import raise_remote
from parley.deploy.server_address import DeployError
from parley.deploy.stream import operator_client
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.deploy.stream.run_queue import SET_ASIDE, RunQueue
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolderError, render_run_job
from parley.server.records.run_folder_opening import load_run_job
from parley.server.rounds.party_facts import format_served_name


def with_loss(path, text):
    path.write_text(f"{text}\ndef f(z, y):\n    return max(0.0, 1 - y * z)\n")
    return load_job(
        overrides=[*JOB, "model.kind=own-loss", f"model.loss={path}:f", "model.lipschitz=1"]
    )


def elsewhere(consortium, *, resume=None, quiet=True):
    """Submits the job, or goes on with a run, from the operator's folder."""
    sets = [] if resume is not None else list(JOB)
    return operator_client.submit_job(
        None, to=consortium.root / "operator", sets=sets, resume=resume, quiet=quiet
    )


def test_a_remote_operator_runs_no_code_in_the_server(consortium, tmp_path):
    consortium.serve()
    mark = tmp_path / "ran"
    features = "model.feature-settings={trained-on = 'nothing'}"
    for job, key in (
        (with_loss(tmp_path / "loss.py", f"open({str(mark)!r}, 'w').close()"), "model.loss"),
        (load_job(overrides=[*JOB, "model.features=os:system", features]), "features"),
        (load_job(overrides=[*JOB, "data.schema=/etc/passwd"]), "data.schema"),
    ):
        with pytest.raises(JobError, match=key):
            consortium.submit(job, by="operator")
    assert list(consortium.runs.iterdir()) == []
    assert not mark.exists()


@pytest.mark.parametrize("folder", ["", "jobs"])
def test_the_parties_name_for_the_data_may_read_like_a_files(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir(exist_ok=True)
    path = Path(folder, "job.toml")
    path.write_text('[data]\nsource = "ward.csv"\n')
    (tmp_path / "runs").mkdir()
    queue = RunQueue(tmp_path / "runs")
    for sets in ([], ["data.source=ward.csv"]):
        text = render_job(operator_client._load_submission(path, sets))
        name = queue.submit(text, by="operator", own_files=False)
        job = load_run_job(tmp_path / "runs" / name)
        assert format_served_name(job) == "ward.csv"
    path.write_text('[data]\nsource = "records/ward.csv"\n')
    text = render_job(operator_client._load_submission(path, []))
    with pytest.raises(JobError, match=r"Expected no file in data\.source"):
        queue.submit(text, by="operator", own_files=False)


def test_a_submitted_path_is_not_resolved_on_the_server(tmp_path):
    queue = RunQueue(tmp_path)
    with pytest.raises(JobError, match=r"got 'shared\.sqlite'"):
        queue.submit('[privacy]\nledger = "shared.sqlite"\n', by="operator", own_files=False)


RAISED = ("SystemExit(0)", "KeyboardInterrupt()", "GeneratorExit()", "RecursionError()")


def test_nothing_that_a_job_raises_ends_the_server(consortium, tmp_path):
    serving = consortium.serve()
    consortium.everybody()
    names = [
        consortium.submit(with_loss(tmp_path / f"{at}.py", f"raise {raised}"))
        for at, raised in enumerate(RAISED)
    ]
    good = consortium.submit()
    ended = [serving.run_next() for _ in range(5)]
    assert [(run.name, run.state) for run in ended] == [
        *((name, "failed") for name in names),
        (good, "complete"),
    ]
    for name, raised in zip(names, RAISED, strict=True):
        said = json.loads((consortium.runs / name / "error.json").read_text())
        assert raised.removesuffix("()") in (said["message"] + said["trace"])
        assert said["error"] != "builtins.KeyboardInterrupt"  # which would say that it was stopped
    assert not serving.interrupted.is_set()


def test_an_interrupt_of_the_server_itself_leaves_the_run_its_turn(consortium):
    serving = consortium.serve()
    name = consortium.submit()

    def interrupted(_event):
        serving.interrupted.set()
        raise KeyboardInterrupt

    serving._say = interrupted
    with pytest.raises(KeyboardInterrupt):
        serving.run_next()
    assert [run.state for run in operator_client.fetch_status(consortium.root).runs] == ["queued"]
    assert RunQueue(consortium.runs).take_next().name == name


def test_a_run_that_killed_its_process_is_set_aside_and_the_queue_goes_on(consortium):
    runs, text = consortium.runs, render_job(consortium.job)
    queue = RunQueue(runs)
    first, second = (queue.submit(text, by="operator", own_files=False) for _ in range(2))
    assert queue.take_next().name == first
    assert RunQueue(runs).take_next().name == second  # the process died: this is the next start
    for file in ("started.json", "rounds.jsonl"):
        (runs / second / file).write_text("{}\n")
        assert (
            RunQueue(runs).take_next().name == second
        )  # it had begun, and made a round: it goes on
    consortium.serve()
    (standing, _) = operator_client.fetch_status(consortium.root).runs
    assert (standing.name, standing.state) == (first, SET_ASIDE)
    assert f"--resume {first}" in standing.notes[-1]
    with OperatorClient(load_operator_home(consortium.root)) as here:
        with pytest.raises(RunFolderError, match="set aside"):
            raise_remote(runs / first)
        here.send_request("resume", run=first)
        assert here.send_request("look", run=first)["state"] == "queued"
    again = RunQueue(runs)
    assert again.take_next().name == first  # the second died again before another round
    assert [run.state for run in again.list_runs()] == [SET_ASIDE, "running"]


@pytest.mark.parametrize("lie", ["{0}/victim", "../victim", "..", "", ".x", "a/b", "a\n"])
def test_a_lying_server_writes_into_no_folder_but_runs(consortium, tmp_path, monkeypatch, lie):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "ledger.sqlite").write_text("charges")
    monkeypatch.chdir(tmp_path)
    consortium.serve()
    monkeypatch.setattr(RunQueue, "submit", lambda *_, **__: lie.format(tmp_path))

    def others():
        return sorted(path for path in tmp_path.rglob("*") if "consortium" not in path.parts)

    before = others()
    with pytest.raises(ProcessError, match="sent an invalid answer: Expected a name"):
        elsewhere(consortium)
    assert (victim / "ledger.sqlite").read_text() == "charges"
    assert others() == before


def test_a_lying_server_overwrites_no_run_that_is_here(consortium, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "runs" / "mine"
    own.mkdir(parents=True)
    (own / "ledger.sqlite").write_text("charges")
    consortium.serve()
    there = consortium.submit()
    (consortium.runs / there).rename(consortium.runs / "mine")
    (consortium.runs / "mine" / "ledger.sqlite").write_text("")
    monkeypatch.setattr(RunQueue, "submit", lambda *_, **__: "mine")
    with pytest.raises(ProcessError, match="mine, which exists here"):
        elsewhere(consortium)
    with pytest.raises(DeployError, match="a folder of your own"):
        elsewhere(consortium, resume="mine")
    for name in ("..", "a b"):
        with pytest.raises(DeployError, match="--resume: Expected a name"):
            elsewhere(consortium, resume=name)
    assert (own / "ledger.sqlite").read_text() == "charges"
    assert [path.name for path in own.iterdir()] == ["ledger.sqlite"]


def test_a_file_of_a_lying_server_has_an_end(tmp_path, monkeypatch):
    endless = SimpleNamespace(unary_stream=lambda _: lambda *_, **__: itertools.repeat(bytes(60)))
    mine = object.__new__(OperatorClient)
    mine.home, mine._channel = SimpleNamespace(address="there"), endless
    monkeypatch.setattr("parley.deploy.stream.operator_client.LARGEST_FILE", 100)
    with pytest.raises(ProcessError, match=r"Expected job\.toml of at most 100 bytes"):
        mine._copy(tmp_path / "job.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_a_lying_server_runs_and_loads_nothing(tmp_path):
    lie = b"<meta HTTP-EQUIV=refresh content='0;url=http://evil.test'><script>stolen()</script>"
    page = SimpleNamespace(unary_stream=lambda _: lambda *_, **__: iter([lie]))
    mine = object.__new__(OperatorClient)
    mine.home, mine._channel = SimpleNamespace(address="there"), page
    mine._copy(tmp_path / "answers.html")
    kept = (tmp_path / "answers.html").read_text()
    assert kept.startswith("<!doctype html><meta charset")
    first, others = kept.split(">", 3)[2], kept.split(">", 3)[3]
    assert "default-src 'none'" in first
    assert "http-equiv" not in others.lower()


def test_a_job_that_a_server_sends_back_runs_no_code_of_whoever_watches(
    consortium, tmp_path, monkeypatch
):
    """The copy's job is the server's word: it is shown, and what it names is not imported."""
    mark, evil = tmp_path / "ran", tmp_path / "evil.py"
    evil.write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    serving = consortium.serve()
    consortium.everybody()
    name = consortium.submit()
    assert serving.run_next().state == "complete"
    job = load_job(overrides=[*JOB, f"algorithm.kind={evil}:Count", "model.kind=none"])
    (consortium.runs / name / "job.toml").write_text(render_run_job(job))
    monkeypatch.setattr(RunQueue, "submit", lambda *_, **__: name)
    elsewhere(consortium, quiet=False)
    assert not mark.exists()
