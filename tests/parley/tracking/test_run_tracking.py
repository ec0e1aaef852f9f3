"""Trackers are told of a run; one that fails is told of once, and the run goes on."""

import importlib.util
import os
import shutil
import socket
import struct

import pytest
from commands import invoked

import parley
from parley.deploy.child_processes import Supervisor, find_free_ports
from parley.deploy.process_errors import wait_until
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.tracking.run_tracking import TRACKERS, TrackingObserver, _hide_secrets, open_trackers

QUICK = [
    *("parties.count=3", "algorithm.rounds=2", "run.seed=5"),
    "secure-aggregation.masked-check=false",
]


class Noting:
    """A tracker that remembers, and fails where it is told to."""

    def __init__(self, fails=()):
        self.calls, self.fails = [], fails

    def _note(self, name, *told):
        self.calls.append((name, *told))
        if name in self.fails:
            raise ConnectionError("http://me:secret@host is away\nand more")

    def begin(self, name, parameters):
        self._note("begin", name, parameters)

    def log_metrics(self, values, *, step):
        self._note("figures", values, step)

    def end(self, status, artefacts):
        self._note("end", status, [path.name for path in artefacts])


def test_a_tracker_hears_of_parameters_epsilon_by_round_figures_and_artefacts(tmp_path):
    tracker = Noting()
    job = load_job(overrides=QUICK)
    result = parley.run(
        job, out=tmp_path / "run", track=[TrackingObserver(place="here", tracker=tracker)]
    )
    begun, first, second, last, ended = tracker.calls
    assert begun[1] == "run"
    assert begun[2]["privacy.epsilon"] == "1.0"
    assert begun[2]["epsilon-is"] == "spent so far, for releases fixed beforehand"
    assert (first[2], second[2]) == (1, 2)
    assert first[1]["epsilon"] < second[1]["epsilon"]
    assert last[1]["charged/epsilon-record"] == result.summary.primary.epsilon
    # What no budget covers is under a name that says so.
    assert {name for name in last[1] if "loss" in name or "accuracy" in name} == {
        name for name in last[1] if name.startswith("simulation-only/")
    }
    assert ended[1] == "complete"
    assert {"report.html", "summary.json", "model.safetensors"} <= set(ended[2])


def test_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(tmp_path):
    said, tracker = [], Noting(fails={"begin"})
    result = parley.run(
        load_job(overrides=QUICK),
        out=tmp_path / "run",
        track=[TrackingObserver(place="there", tracker=tracker, say=said.append)],
    )
    assert result.summary.status == "complete"
    assert len(tracker.calls) == len(said) == 1
    assert "The run continues" in said[0]
    assert "secret" not in said[0]


@pytest.mark.parametrize(
    "place",
    [
        "http://me:hidden@host:5000/x",
        "http://me:hid@hidden@host:5000",
        "http://me:hid/hidden@host",
        "http://hidden@host",
        "http://host/x?token=hidden&a=1",
        "postgresql://host/db?password=hidden",
    ],
)
def test_no_secret_of_a_place_is_told(place):
    said, tracker = [], Noting(fails={"begin"})
    own = TrackingObserver(place=_hide_secrets(place), tracker=tracker, say=said.append)
    own._try(lambda: tracker._note("begin", place))
    assert "host" in said[0]
    assert "hidden" not in said[0]
    if place.startswith("postgresql") or place.count(":") > 1:
        ledger = place.replace("http", "postgresql", 1)
        with pytest.raises(JobError, match="without a password"):
            load_job(overrides=[f"privacy.ledger={ledger}"])


@pytest.mark.parametrize("place", ["mlfow:http://x", "tensorboard:", "mlflow", ":logs"])
def test_an_unknown_tracker_is_refused_before_anything_runs(place):
    with pytest.raises(JobError, match=r"Expected --track mlflow:PLACE or tensorboard:PLACE"):
        open_trackers([place])


def refuse(place):
    raise RuntimeError(f"no store at {place}\nand more")


def test_a_place_that_a_tracker_refuses_is_named_without_its_password(monkeypatch):
    monkeypatch.setitem(TRACKERS.rows, "mlflow", f"{__name__}:refuse")
    with pytest.raises(JobError, match="got an error: no store at ht!tp://…@x") as told:
        open_trackers(["mlflow:ht!tp://me:hidden@x"])
    assert "hidden" not in str(told.value)
    assert told.value.__cause__ is None


def _records(path):
    """The records of an event file: length, checksum, bytes, checksum."""
    told, at = path.read_bytes(), 0
    while at < len(told):
        (length,) = struct.unpack_from("<Q", told, at)
        yield told[at + 12 : at + 12 + length]
        at += length + 16


def test_event_files_say_it_when_they_are_read_back(tmp_path):
    pytest.importorskip("tensorboardX", reason="needs the extra parley[tensorboard]")
    from tensorboardX.proto.event_pb2 import Event

    logs, run = tmp_path / "logs", tmp_path / "run"
    keys = [word for key in QUICK for word in ("--set", key)]
    told = ["run", *keys, "--out", str(run), "--track", f"tensorboard:{logs}", "-q"]
    done = invoked(*told)
    assert done.exit_code == 0, done.output
    (file,) = (logs / "run").iterdir()
    found, texts = {}, {}
    for record in _records(file):
        event = Event.FromString(record)
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            elif value.tensor.string_val:
                texts[value.tag] = value.tensor.string_val[0].decode()
    summary = (run / "summary.json").read_text()
    assert [step for step, _ in found["epsilon"]] == [1, 2]
    assert found["epsilon"][-1][1] == pytest.approx(1.0, rel=1e-3)
    assert str(round(found["simulation-only/final-accuracy"][0][1], 3))[:4] in summary
    assert "privacy.epsilon | 1.0" in "".join(texts.values())
    assert "report.html" in "".join(texts.values())


def test_a_server_that_is_away_holds_nothing_up(tmp_path, capsys):
    pytest.importorskip("mlflow", reason="needs the extra parley[mlflow]")
    (port,) = find_free_ports(1)
    (away,) = open_trackers([f"mlflow:http://127.0.0.1:{port}"])
    result = parley.run(load_job(overrides=QUICK), out=tmp_path / "run", track=[away])
    assert result.summary.status == "complete"
    assert capsys.readouterr().err.count("did not answer") == 1


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The place of a whole MLflow server on loopback."""
    pytest.importorskip("mlflow", reason="needs the extra parley[mlflow]")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a cold server on a busy machine
    program = os.environ.get("PARLEY_TEST_MLFLOW") or shutil.which("mlflow")
    full = program and (
        "PARLEY_TEST_MLFLOW" in os.environ or importlib.util.find_spec("mlflow.server.handlers")
    )
    if not full or not (importlib.util.find_spec("flask") or "PARLEY_TEST_MLFLOW" in os.environ):
        pytest.skip("needs a whole mlflow for its server: PARLEY_TEST_MLFLOW names its program")
    (port,) = find_free_ports(1)
    command = [
        *(program, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"),
        *("--artifacts-destination", str(tmp_path / "kept")),
    ]
    with Supervisor() as supervisor:
        log = tmp_path / "mlflow.log"
        process = supervisor.start("mlflow", command, environment=os.environ, log=log)
        there = lambda: not socket.socket().connect_ex(("127.0.0.1", port))  # noqa: E731 - read once
        wait_until(there, what="mlflow", timeout_s=240, check=process.check)
        yield f"http://127.0.0.1:{port}"


@pytest.mark.heavy
def test_a_real_mlflow_server_has_it_all(tmp_path, server):
    result = parley.run(
        load_job(overrides=QUICK), out=tmp_path / "run", track=open_trackers([f"mlflow:{server}"])
    )
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("parley")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["privacy.epsilon"] == "1.0"
    history = client.get_metric_history(kept.info.run_id, "epsilon")
    assert sorted(each.step for each in history) == [1, 2]
    charged = kept.data.metrics["charged/epsilon-record"]
    assert charged == pytest.approx(result.summary.primary.epsilon)
    names = {each.path for each in client.list_artifacts(kept.info.run_id)}
    assert {"report.html", "model.safetensors", "summary.json"} <= names
