"""A server with its queue, real parties on their streams, operators here and elsewhere."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import threading
import time

import numpy as np
import pytest
from attending import JOB, NAMES

from parley.client.contract.message_frames import decode_frame
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream import operator_client, operator_service
from parley.deploy.stream.connections import Connections, Dropped
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.deploy.stream.operator_service import (
    _REQUEST_FIELDS,
    FILES,
    OperatorService,
    _parse_request,
)
from parley.deploy.stream.party_client import build_answer_request
from parley.deploy.stream.run_queue import RunQueue
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolderError


def test_runs_queue_and_an_operator_elsewhere_gets_what_the_server_has(
    consortium, tmp_path, monkeypatch
):
    serving = consortium.serve()
    consortium.everybody()
    (tmp_path / "job.toml").write_text(render_job(consortium.job))
    monkeypatch.chdir(tmp_path)
    ended = []
    conducting = threading.Thread(
        target=lambda: ended.extend(serving.run_next() for _ in range(2)), daemon=True
    )
    conducting.start()
    first = consortium.submit()
    # From another machine: nothing but the operator's folder.
    elsewhere = tmp_path / "laptop"
    shutil.copytree(consortium.root / "operator", elsewhere)
    run = operator_client.submit_job(
        tmp_path / "job.toml", to=elsewhere, sets=[], resume=None, quiet=True
    )
    second = run.folder.name
    assert run.folder.parent.resolve() == tmp_path / "runs"
    conducting.join(20)
    assert [(one.name, one.state, one.by) for one in ended] == [
        (first, "complete", "server"),
        (second, "complete", "operator"),
    ]
    for name in FILES:
        there, here = consortium.runs / second / name, run.folder / name
        assert there.exists() == here.exists(), name
        if there.exists():
            assert there.read_bytes() == here.read_bytes(), name
    assert np.array_equal(run.theta, consortium.replayed())
    assert np.array_equal(run.theta, consortium.model(first))
    lines = "\n".join(operator_client.fetch_status(elsewhere).format_lines())
    assert all(f"{name}: online" in lines for name in NAMES)
    assert f"{second}: complete" in lines
    assert operator_client.stop_runs(elsewhere, None) == []
    for entries in consortium.ledgers():
        assert [index for index, _ in entries] == [1, 2, 3, 1, 2, 3]


def test_lines_that_are_cut_at_any_moment_change_no_bit_and_cost_nothing(consortium):
    serving = consortium.serve(away_s=20.0)
    consortium.everybody()
    name = consortium.submit()
    over, cuts, rng = threading.Event(), [], random.Random(7)

    def cut():
        attendance = serving.port.connections
        while not over.is_set():
            time.sleep(rng.uniform(0.0, 0.15))
            lines = list(attendance._connections.values())
            if lines:
                cuts.append(1)
                serving.port.post(rng.choice(lines).end, Dropped("cut"))

    threading.Thread(target=cut, daemon=True).start()
    assert serving.run_next().state == "complete"
    over.set()
    assert len(cuts) > 3
    assert np.array_equal(consortium.model(name), consortium.replayed())
    lines = (consortium.runs / name / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["parties"]["answered"] for line in lines] == [3, 3, 3]
    for entries in consortium.ledgers():
        assert entries == [(1, "committed"), (2, "committed"), (3, "committed")]


def test_a_server_that_was_killed_goes_on_with_its_run_and_then_with_those_that_waited(consortium):
    queue = RunQueue(consortium.runs)
    text = render_job(consortium.job)
    first, second, third = (queue.submit(text, by="operator", own_files=False) for _ in range(3))
    assert queue.take_next().name == first
    (consortium.runs / first / "rounds.jsonl").write_text("{}\n")
    again = RunQueue(consortium.runs)
    assert again.take_next().name == first
    again.record_end(first, "complete")
    assert again.withdraw(second)
    assert not again.withdraw(first)
    assert again.take_next().name == third
    assert [run.state for run in again.list_runs()] == ["complete", "stopped", "running"]
    for name, said in ((first, "complete"), (third, "is running"), (second, "never started")):
        with pytest.raises(RunFolderError, match=said):
            again.resume(name, by="operator")
    for name in ("..", "../runs", "a/b", ".x", "", "nobody"):
        with pytest.raises(RunFolderError, match="Expected the name of one of this server's runs"):
            again.resume(name, by="operator")


def test_a_run_is_stopped_between_two_commits_and_goes_on_to_the_same_model(consortium):
    serving = consortium.serve()
    reached = threading.Event()

    def answers(folder):
        own = build_answer_request(folder)

        def answer(request):
            if decode_frame(request).kind == "survivors":
                reached.set()
            return own(request)

        return answer

    consortium.everybody(answers)
    name = consortium.submit()
    with OperatorClient(load_operator_home(consortium.root)) as here:
        threading.Thread(
            target=lambda: (reached.wait(), here.send_request("stop", run=name)), daemon=True
        ).start()
        state = serving.run_next().state
        if state == "stopped":
            here.send_request("resume", run=name)
            assert serving.run_next().state == "complete"
    assert np.array_equal(consortium.model(name), consortium.replayed())
    for entries in consortium.ledgers():
        assert entries == [(1, "committed"), (2, "committed"), (3, "committed")]


def test_a_job_from_elsewhere_names_no_file_of_the_server(consortium):
    consortium.serve()
    for overrides in (
        ("algorithm.kind=fedavg", "model.kind=/tmp/evil.py:Model"),
        ("model.kind=none", "algorithm.kind=/tmp/evil.py:Statistic"),
        ("privacy.ledger=/tmp/other.sqlite",),
        ("data.test-fraction=0", "data.test-source=/etc/passwd"),
        ("algorithm.kind=fedavg", "model.kind=pca-mlp", "model.pca=public", "model.pca-file=/x"),
    ):
        with pytest.raises(JobError, match=re.escape(overrides[-1].split("=")[0])):
            consortium.submit(load_job(overrides=[*JOB, *overrides]), by="operator")
    with OperatorClient(load_operator_home(consortium.root / "operator")) as there:
        for bad in ({"job": 7}, {"job": "x = [["}, {"job": "a" * (2 << 20)}):
            with pytest.raises((JobError, ProcessError)):
                there.send_request("submit", **bad)
        with pytest.raises(ProcessError):
            there.send_request("sing")
    assert list(consortium.runs.iterdir()) == []


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        b'{"ask": "sing"}',
        b'{"ask": ["status"]}',
        b'{"ask": "stop"}',
        b'{"ask": "stop", "run": ["a"]}',
        b'{"ask": "look", "run": null}',
        b'{"ask": "status", "more": 1}',
        b'{"ask": "read", "run": "a", "file": "job.toml", "offset": 0}',
        b'{"ask": "look", "run": "\xff"}',
    ],
)
def test_a_request_of_other_words_is_refused_by_its_form(request_):
    with pytest.raises(ValueError, match="Expected a request"):
        _parse_request(
            request_, {name: words for name, words in _REQUEST_FIELDS.items() if name != "read"}
        )


def test_a_party_is_no_operator(consortium):
    consortium.serve()
    home = consortium.root / "operator"
    for kind in ("key", "pem"):
        shutil.copy(consortium.home(0) / f"party.{kind}", home / f"operator.{kind}")
    with (
        OperatorClient(load_operator_home(home)) as party,
        pytest.raises(ProcessError, match="Expected an operator's certificate, got one for party"),
    ):
        party.send_request("status")


def test_no_text_of_an_operator_is_read_in_the_loop_of_the_parties(world, tmp_path, monkeypatch):
    """A text that takes its time keeps no party waiting, however long it takes."""
    seen = {}

    def note(what):
        seen[what] = threading.get_ident()
        return "run"

    class Questions:
        def check(self, *_, **__):
            note("query")

    class Context:
        def __init__(self, request):
            self.request = request

        async def read(self):
            return self.request

        async def abort(self, code, details):
            raise AssertionError(f"{code} {details}")

    monkeypatch.setattr(operator_service, "admit_operator", lambda _pem: "operator")
    monkeypatch.setattr(operator_service, "get_peer_certificate", lambda _context: b"")
    monkeypatch.setattr(RunQueue, "submit", lambda *_, **__: note("submit"))
    monkeypatch.setattr(RunQueue, "submit_queries", lambda *_, **__: "run")
    read = operator_service.parse_strict_json
    monkeypatch.setattr(
        operator_service, "parse_strict_json", lambda text: note("json") and read(text)
    )
    nobody = Connections(NAMES, say=print)
    own = OperatorService(
        RunQueue(tmp_path), world.deployment, nobody, stop=print, questions=Questions()
    )
    for asked in ({"ask": "submit", "job": ""}, {"ask": "query", "queries": "{}"}):
        asyncio.run(own._handle_ask(None, Context(json.dumps(asked).encode())))
    assert set(seen) == {"json", "submit", "query"}
    assert threading.get_ident() not in seen.values()
