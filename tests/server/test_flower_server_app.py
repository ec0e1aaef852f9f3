"""Flower's two apps, with a Grid of our own between them: the real code, no process, no Ray."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from commands import NAMES
from fake_grid import Clock, FakeGrid, echo, exchange, reply, run_config
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from safetensors.numpy import load_file

import parley.client.flower_client_app
from parley.client.contract.message_frames import WireError, decode_frame
from parley.client.flower_client_app import build_content, find_party_folder, read_frame
from parley.server.flower_server_app import serve
from parley.server.jobs.flower_run_config import RUN_KEYS
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolder, RunFolderError
from parley.simulations.engine.fast_engine import simulate

pytestmark = pytest.mark.usefixtures("identity")


@pytest.fixture(autouse=True)
def no_folders(monkeypatch):
    for name in ("PARLEY_SERVER", "PARLEY_RUN"):
        monkeypatch.delenv(name, raising=False)


def test_parties_are_known_by_the_names_of_their_nodes_in_whatever_order_nodes_come(world):
    deployment, nodes = world
    stranger = SimpleNamespace(node_id=99, name="somebody else")
    grid = FakeGrid([nodes[2], stranger, nodes[0]], echo)
    transport = Clock().transport(grid, deployment)
    assert transport.online() == (0, 2)
    assert exchange(transport, [0, 1, 2]) == [0, 2]
    assert [m.metadata.dst_node_id for m in grid.pushed] == [70, 72]


def test_a_silent_party_costs_the_deadline_and_no_more(world):
    deployment, nodes = world
    clock = Clock()
    grid = FakeGrid(nodes, lambda node, message: None if node == 71 else echo(node, message))
    assert exchange(clock.transport(grid, deployment), [0, 1, 2], timeout_s=5.0) == [0, 2]
    assert 5.0 <= clock.now < 5.5


HOSTILE_NPY = b"\x93NUMPY\x01\x00\x1c\x00{'descr': '<u1', 'shape': ((("
WRONG = {
    "an error": lambda m: reply(m, error=Error(code=8, reason="secret")),
    "nothing": lambda m: reply(m, RecordDict()),
    "an array": lambda m: reply(
        m, RecordDict({"frame": ArrayRecord({"bytes": Array(np.ones(4))})})
    ),
    "an array with a hostile header": lambda m: reply(
        m,
        RecordDict(
            {"frame": ArrayRecord({"bytes": Array("uint8", (4,), "numpy.ndarray", HOSTILE_NPY)})}
        ),
    ),
    "a frame that is no bytes": lambda m: reply(
        m, RecordDict({"call": ConfigRecord({"bytes": 7})})
    ),
    "a frame and an array": lambda m: reply(
        m, RecordDict({**build_content(b"x"), "frame": ArrayRecord({"bytes": Array(np.ones(4))})})
    ),
    "an empty frame": lambda m: reply(m, build_content(b"")),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_reply_that_cannot_be_read_is_no_reply_of_the_party_that_is_named(world, kind, caplog):
    deployment, nodes = world
    grid = FakeGrid(nodes, lambda node, m: WRONG[kind](m) if node == 71 else echo(node, m))
    assert exchange(Clock().transport(grid, deployment), [0, 1, 2]) == [0, 2]
    assert ("site-1 gave no readable answer" in caplog.text) == (kind != "an empty frame")


ERRORS = [MemoryError, RecursionError, AttributeError, UnicodeDecodeError("utf-8", b"", 0, 0, "")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: getattr(error, "__name__", "Unicode"))
@pytest.mark.parametrize("where", ["read_frame", "pull_messages"])
def test_whatever_is_raised_while_a_reply_is_read_is_that_partys_doing(
    world, monkeypatch, where, error, caplog
):
    deployment, nodes = world
    grid = FakeGrid(nodes, lambda node, m: WRONG["nothing"](m) if node == 71 else echo(node, m))
    if where == "read_frame":

        def read(content):
            if not content:
                raise error
            return read_frame(content)

        monkeypatch.setattr("parley.server.flower_server_app.read_frame", read)
    else:
        pull = grid.pull_messages

        def pull_messages(names):
            if names == ["m1"]:
                raise error
            return pull(names)

        grid.pull_messages = pull_messages
    assert exchange(Clock().transport(grid, deployment), [0, 1, 2]) == [0, 2]
    assert "site-1 gave no readable answer" in caplog.text


def test_another_nodes_reply_is_no_reply(world):
    deployment, nodes = world

    def behave(node, message):
        made = echo(node, message)
        if node == 71:
            made.metadata.__dict__["_src_node_id"] = 70
        return made

    assert exchange(Clock().transport(FakeGrid(nodes, behave), deployment), [0, 1, 2]) == [0, 2]


def test_a_reply_to_an_earlier_exchange_is_nobodys(world):
    deployment, nodes = world
    grid = FakeGrid(nodes, lambda node, m: None if node == 71 else echo(node, m))
    transport = Clock().transport(grid, deployment)
    assert exchange(transport, [0, 1, 2]) == [0, 2]
    grid.late = [echo(71, grid.pushed[1])]
    assert exchange(transport, [0, 1, 2]) == [0, 2]


def test_messages_outlive_their_deadline(world):
    deployment, nodes = world
    grid = FakeGrid(nodes, echo)
    exchange(Clock().transport(grid, deployment), [0], timeout_s=5.0)
    assert 5.0 < grid.pushed[0].metadata.ttl < 60


def context(**node_config):
    return Context(run_id=1, node_id=1, node_config=node_config, state=RecordDict(), run_config={})


def call(request=b"x", **more):
    return Message(build_content(request, **more), 7, "query.parley")


def heard(message, where):
    content = parley.client.flower_client_app.app(message, where).content
    return decode_frame(read_frame(content)).head


def test_in_a_simulation_each_node_is_one_party_whose_folder_its_message_names(world, tmp_path):
    deployment, _ = world
    nodes = [SimpleNamespace(node_id=n, name="") for n in (72, 70, 71, 99)]
    grid = FakeGrid(nodes, echo)
    transport = Clock().transport(grid, deployment, folder=tmp_path)
    assert transport.online() == (0, 1, 2)
    assert exchange(transport, [0, 1, 2]) == [0, 1, 2]
    seen = {m.metadata.dst_node_id: m.content["call"]["folder"] for m in grid.pushed}
    assert seen == {70 + i: str(tmp_path / f"party-{i}") for i in range(3)}


def test_the_owner_says_where_a_partys_folder_is_not_the_message():
    owned, simulated = context(party="/own"), context(**{"partition-id": 2})
    assert str(find_party_folder(call(folder="/elsewhere"), owned)) == "/own"
    assert str(find_party_folder(call(folder="/here"), simulated)) == "/here"
    with pytest.raises(WireError, match="in the SuperNode's configuration"):
        find_party_folder(call(folder="/elsewhere"), context())


def test_nothing_of_an_exception_leaves_the_party(monkeypatch, tmp_path):
    import parley.client.party.party_service

    def handle(*_):
        raise RuntimeError("name of a patient")

    monkeypatch.setattr(parley.client.party.party_service.PartyService, "open", handle)
    made = parley.client.flower_client_app.app(call(), context(party=str(tmp_path)))
    assert made.has_content()
    assert "patient" not in str(made.content)
    assert decode_frame(read_frame(made.content)).head["status"] == "refused"


def test_a_message_that_is_none_is_answered(tmp_path):
    empty = Message(RecordDict(), 7, "query.parley")
    assert heard(empty, context(party=str(tmp_path)))["reason"] == "error"
    assert heard(call(), context())["reason"] == "error"


def run_context(job, **own):
    config = {**RUN_KEYS, **run_config(job), **own}
    return Context(run_id=5, node_id=0, node_config={}, state=RecordDict(), run_config=config)


def test_a_submitter_reaches_no_folder_beyond_the_servers_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("PARLEY_SERVER", str(tmp_path))
    for name in ("../elsewhere", "/etc", ".hidden"):
        with pytest.raises(RunFolderError, match="a run's name"):
            serve(FakeGrid([], echo), run_context(load_job(), **{"run-folder": name}))


def test_what_ended_the_run_is_left_for_the_launcher(monkeypatch, tmp_path):
    run = RunFolder.create(load_job(), tmp_path / "run").path
    monkeypatch.setenv("PARLEY_RUN", str(run))

    def coordinate(*_, **__):
        raise JobError("Expected more.")

    monkeypatch.setattr("parley.server.run_launcher.coordinate", coordinate)
    monkeypatch.setattr(
        "parley.server.flower_server_app.load_deployment", lambda _path: SimpleNamespace(parties=())
    )
    with pytest.raises(JobError):
        serve(FakeGrid([], echo), run_context(load_job()))
    said = json.loads((run / "error.json").read_text())
    assert said["error"] == "parley.server.jobs.section_base.JobError"
    assert said["message"] == "Expected more."


def test_a_run_that_is_named_goes_on_in_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PARLEY_SERVER", str(tmp_path))
    monkeypatch.setattr(
        "parley.server.flower_server_app.load_deployment", lambda _path: SimpleNamespace(parties=())
    )
    RunFolder.create(load_job(), tmp_path / "runs" / "a")
    calls = []

    def coordinate(job, *, folder, **_):
        calls.append((folder.path, folder.is_begun))
        folder.mark_begun()

    monkeypatch.setattr("parley.server.run_launcher.coordinate", coordinate)
    for _ in range(2):
        serve(FakeGrid([], echo), run_context(load_job(), **{"run-folder": "a"}))
    assert [resume for _, resume in calls] == [False, True]
    assert calls[0][0] == calls[1][0]


def test_both_apps_run_a_whole_job_that_nobody_prepared_and_leave_no_secret(monkeypatch, tmp_path):
    job = load_job(overrides=["parties.count=3", "algorithm.rounds=2", "run.seed=3"])
    monkeypatch.chdir(tmp_path)

    def behave(node, message):
        made = parley.client.flower_client_app.app(message, context(**{"partition-id": node - 70}))
        return reply(message, made.content)

    nodes = [SimpleNamespace(node_id=70 + i, name="") for i in range(3)]
    serve(FakeGrid(nodes, behave), run_context(job))
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["rounds_done"]) == ("complete", 2)
    theta = load_file(run / "model.safetensors")["theta"]
    assert np.array_equal(theta, simulate(job, out=tmp_path / "fast").theta)
    left = {path.name for path in run.rglob("*")}
    assert "ledger.sqlite" in left
    assert not left & {"identity.key", "state"}


def test_a_deployments_parties_run_a_whole_job_in_the_servers_folder(
    monkeypatch, tmp_path, consortium
):
    monkeypatch.setenv("PARLEY_SERVER", str(consortium / "server"))
    nodes = [SimpleNamespace(node_id=70 + i, name=name) for i, name in enumerate(NAMES)]

    def behave(node, message):
        own = context(party=str(consortium / "parties" / NAMES[node - 70]))
        return reply(message, parley.client.flower_client_app.app(message, own).content)

    job = load_job(tmp_path / "job.toml")
    serve(FakeGrid([*nodes, SimpleNamespace(node_id=99, name="mallory")], behave), run_context(job))
    (run,) = (consortium / "server" / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["rounds_done"]) == ("complete", 2)
    assert summary["secure_aggregation"]["backend"] == "masked"
    assert all((consortium / "parties" / name / "ledger.sqlite").exists() for name in NAMES)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.kind=own-loss", "model.loss=os:abort"],
        ["data.source=/etc/passwd"],
        ["run.out=/tmp/elsewhere"],
    ],
)
@pytest.mark.parametrize("served", [False, True])
def test_a_run_config_names_neither_a_file_nor_code(monkeypatch, tmp_path, overrides, served):
    if served:
        monkeypatch.setenv("PARLEY_SERVER", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match=f"in {overrides[-1].split('=')[0]} of a submission"):
        serve(FakeGrid([], echo), run_context(load_job(overrides=overrides)))
    assert list(tmp_path.iterdir()) == []


def test_a_run_config_names_no_function_that_makes_the_parties(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match="Unknown key prepare"):
        serve(FakeGrid([], echo), run_context(load_job(), prepare="os:abort"))
