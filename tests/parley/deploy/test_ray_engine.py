"""Parties dealt to workers of Ray: a node that is killed in mid-round, and what is refused."""

import importlib.util
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dealt_here import WorkersHere, workers_here

import parley
from parley.deploy import ray_engine
from parley.deploy.process_errors import ProcessError, wait_until
from parley.deploy.ray_engine import ShardWorker, describe_parley
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine import sharding
from parley.simulations.engine.sharding import RowShard, TableShard, WrongAnswer


def job_of(folder, *overrides):
    return load_job(
        overrides=[
            "parties.count=40",
            "data.source=synthetic",
            "data.records=2000",
            "algorithm.rounds=3",
            "run.seed=3",
            "run.faults=drop:0.1@before-vector",
            "run.noise-shares=full",
            f"run.out={folder}",
            *overrides,
        ]
    )


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("secure-aggregation.backend=masked",), "backend = 'ideal'"),
        (
            ("run.memory=1", "parties.count=1", "privacy.noise-point=server", "data.records=10000"),
            "run.memory of at least 2 MiB",
        ),
        (("parties.count=5000",), "1600 records for 5000 parties"),
    ],
)
def test_what_workers_can_not_do_is_refused_before_a_folder_is_made(
    overrides, said, tmp_path, monkeypatch
) -> None:
    @ray_engine.contextmanager
    def nobody(address, dealt):
        yield None

    monkeypatch.setattr(ray_engine, "_check_there", lambda _: None)
    monkeypatch.setattr(ray_engine, "start_ray_workers", nobody)
    with pytest.raises((JobError, ValueError), match=said):
        parley.run(job_of(tmp_path, "run.engine=ray", *overrides), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engine", ["ray", "flower"])
def test_an_engine_without_ray_says_how_to_add_it(engine, tmp_path, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, of=None: None if name == "ray" else find(name, of)
    )
    with pytest.raises(JobError, match=r'pip install "parley\[ray\]"'):
        parley.run(job_of(tmp_path, f"run.engine={engine}", "run.faults="), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("says", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_where_no_cluster_is_it_is_said_at_once(says, tmp_path, monkeypatch) -> None:
    """It took Ray minutes of warnings."""
    monkeypatch.setattr(ray_engine.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(ray_engine, "_REACH_S", 0.2)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if says is not None:
            other.listen()

        def serve():
            with suppress(OSError), other.accept()[0] as caller:
                caller.recv(100)
                caller.sendall(says)
                caller.recv(100)  # silent from here on, until the caller leaves

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(JobError, match=rf"ray-address = '{address}'.*ray start --head"):
            parley.run(
                job_of(tmp_path, "run.engine=ray", f"run.ray-address={address}"),
                out=tmp_path / "run",
            )


class RestartingRay:
    """Ray whose only worker is unavailable for that many requests, then answers."""

    class exceptions:  # noqa: N801 - named as Ray's module
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def __init__(self, unavailable: int) -> None:
        self.left = unavailable

    def get(self, waiting):
        self.left -= 1
        if self.left >= 0:
            raise self.exceptions.RayError("the actor is restarting")
        return waiting


def test_a_lost_worker_has_the_time_that_a_busy_machine_needs_to_restart_it(monkeypatch) -> None:
    """Time ends the attempts, not their number: Ray reports at once that a worker restarts."""
    actor = SimpleNamespace(give=SimpleNamespace(remote=lambda question: question))
    workers = ray_engine.RayWorkers(shards=[SimpleNamespace(first=0, last=4)], actors=[actor])
    monkeypatch.setattr(ray_engine, "_WAIT_S", 0.0)
    ray = RestartingRay(30)
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    assert workers.request_answers([("sum",)]) == ["sum"]
    ray.left = 10**9
    monkeypatch.setattr(ray_engine, "_RESTART_S", 0.0)
    with pytest.raises(ProcessError, match="worker of parties 0 to 3"):
        workers.request_answers([("sum",)])


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(ray_engine, "_check_there", lambda _: None)
    monkeypatch.setattr(ray_engine, "start_ray_workers", workers_here)


@pytest.mark.parametrize("kind", ["optima", "fourier"])
def test_workers_have_the_bits_of_one_process(kind, here, tmp_path) -> None:
    own = {
        "optima": ("algorithm.kind=output-perturbation",),
        "fourier": ("model.features=random-fourier", "parties.count=7"),
    }[kind]
    one = parley.run(job_of(tmp_path, *own), out=tmp_path / "fast")
    many = parley.run(job_of(tmp_path, *own, "run.engine=ray"), out=tmp_path / "ray")
    assert np.array_equal(one.theta, many.theta)


def test_data_in_memory_are_dealt_too(here, tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (300, 4)), rng.integers(0, 2, 300)
    job = job_of(tmp_path, "parties.count=5", "data.records=0", "data.source=")
    one = parley.run(job, data=rows, out=tmp_path / "fast")
    over = job_of(tmp_path, "parties.count=5", "data.records=0", "data.source=", "run.engine=ray")
    many = parley.run(over, data=rows, out=tmp_path / "ray")
    assert np.array_equal(one.theta, many.theta)


SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["A", "B", "C"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "people.toml").write_text(SCHEMA)
    for party in range(5):
        rows = "".join(f"{(party * 7 + k) % 90},{'ABC'[k % 3]},no\n" for k in range(20 + party))
        (tmp_path / f"ward-{party}.csv").write_text("age,ward,sick\n" + rows)
    return tmp_path


def answers_of(tables, engine, **settings):
    with parley.Session(
        str(tables / "ward-*.csv"), schema=tables / "people.toml", epsilon=10, seed=2,
        out=tables / f"{engine} {len(settings)}", engine=engine, **settings,
    ) as session:  # fmt: skip
        count = session.where("age > 30").count(epsilon=1)
        mean = session.group_by("ward").mean("age", epsilon=2)
        told = session.response("ward", epsilon=1)
    told = [each.to_json() for each in (count, mean, told)]
    keys = ("table", "survivors", "records", "spent")
    return str([[each[key] for key in keys] for each in told])  # NaN is NaN


@pytest.mark.parametrize(
    "settings", [{}, {"noise_point": "share"}, {"faults": "drop:0.2@before-vector"}]
)
def test_a_sessions_parties_are_dealt_to_the_same_answers(settings, here, tables) -> None:
    assert answers_of(tables, "ray", **settings) == answers_of(tables, "fast", **settings)


def test_a_file_that_is_missing_for_a_worker_is_named(here, tables, monkeypatch) -> None:
    """A worker reads for itself: another machine may lack what is here."""
    opened = TableShard.open_responder

    def elsewhere(shard):
        (tables / "ward-3.csv").unlink(missing_ok=True)
        return opened(shard)

    monkeypatch.setattr(TableShard, "open_responder", elsewhere)
    with pytest.raises(JobError, match=r"ward-3\.csv"):
        answers_of(tables, "ray")


def test_records_that_are_others_where_a_worker_is_are_refused(here, tmp_path, tables, monkeypatch):
    """Drill: another user of a worker's machine put rows there, and they were learned from."""
    loaded = sharding.load_prepared

    def planted(place, *, whole=False):
        if not whole:  # a worker's
            np.save(place / "labels.npy", -np.load(place / "labels.npy"))
        return loaded(place, whole=whole)

    monkeypatch.setattr(sharding, "load_prepared", planted)
    with pytest.raises(JobError, match=r"as on the driver.*another digest"):
        parley.run(job_of(tmp_path, "run.engine=ray"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    opened = TableShard.open_responder

    def elsewhere(shard):
        (tables / "ward-3.csv").write_text("age,ward,sick\n1,A,no\n")
        return opened(shard)

    monkeypatch.setattr(TableShard, "open_responder", elsewhere)
    with pytest.raises(JobError, match="another digest"):
        answers_of(tables, "ray")


@pytest.mark.parametrize(
    "harm",
    [
        lambda given: None,
        lambda given: replace(given, total=given.total.astype(np.float64) * np.nan),
        lambda given: replace(given, total=given.total.astype(np.uint16)),
        lambda given: replace(given, total=given.total[:1]),
        lambda given: replace(given, total=given.total[0]),
        lambda given: replace(given, kept=given.kept[:0]),
        lambda given: replace(given, failed=(-1,)),
    ],
)
def test_an_answer_that_is_no_sum_of_its_parties_ends_the_run(harm, here, tmp_path, monkeypatch):
    """Drill: an array of one element was added to all coordinates."""
    asked = WorkersHere.request_answers
    monkeypatch.setattr(
        WorkersHere,
        "request_answers",
        lambda workers, own: [harm(each) for each in asked(workers, own)],
    )
    with pytest.raises(WrongAnswer, match="Expected"):
        parley.run(job_of(tmp_path, "run.engine=ray"), out=tmp_path / "run")


def test_a_worker_elsewhere_finds_files_that_the_job_names(here, tmp_path, monkeypatch) -> None:
    (tmp_path / "loss.py").write_text("def f(z, y): return max(0.0, 1 - y * z) ** 2\n")
    monkeypatch.chdir(tmp_path)
    opened, seen = RowShard.open_responder, []

    def elsewhere(shard):
        seen.append(shard.job.model.loss)
        return opened(shard)

    monkeypatch.setattr(RowShard, "open_responder", elsewhere)
    own = ("model.kind=own-loss", "model.loss=loss.py:f", "model.lipschitz=4", "model.steeper=clip")
    job = job_of(tmp_path, "run.engine=ray", *own)
    parley.run(job, out=tmp_path / "ray")
    assert set(seen) == {f"{tmp_path / 'loss.py'}:f"}


def test_a_worker_of_another_version_says_so_before_it_reads_anything() -> None:
    other = f"{describe_parley()[:-1]}x"  # of this version, and not of these sources
    assert f"Expected Parley {other}" in ShardWorker(other, b"").load_records()
    worker = ShardWorker("0.0.9", b"what only 0.0.9 can read")
    assert "Expected Parley 0.0.9" in worker.load_records()
    with pytest.raises(ProcessError, match=r"Expected Parley 0\.0\.9"):
        worker.give()


def test_a_process_that_is_ended_at_once_has_report_if_killed() -> None:
    told = "import os, sys; from parley.deploy.ray_engine import report_if_killed\n"
    ended, lasts = (
        subprocess.run(
            [sys.executable, "-c", f"{told}with report_if_killed('go on'):\n    {end}"],
            capture_output=True, text=True, check=False,
        )
        for end in ("os._exit(1)", "pass")
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.strip()) == (1, "go on")
    assert (lasts.returncode, lasts.stderr) == (0, "")


@pytest.mark.heavy
def test_a_cluster_that_goes_away_ends_the_run_which_goes_on_with_another(tmp_path) -> None:
    pytest.importorskip("ray", reason="needs parley[ray]")
    from ray.cluster_utils import Cluster

    rounds = ("algorithm.rounds=400", "run.evaluate-every=0", "run.engine=ray", "run.workers=2")
    job = job_of(tmp_path, *rounds)
    reference = parley.run(job_of(tmp_path, *rounds[:2]), out=tmp_path / "fast")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        port = cluster.address.rpartition(":")[2]
        (tmp_path / "job.toml").write_text(render_job(job))
        sets = ("--set", f"run.ray-address={cluster.address}")
        run = subprocess.Popen(
            [sys.executable, "-m", "parley", "run", str(tmp_path / "job.toml"), *sets,
             "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        lines = tmp_path / "run" / "rounds.jsonl"
        begun = lambda: lines.exists() and lines.read_text().count("\n") > 3  # noqa: E731 - read once
        wait_until(begun, what="its first rounds", timeout_s=120)
    finally:
        cluster.shutdown()
    told = run.communicate(timeout=120)[1]
    assert run.returncode
    assert "parley run --resume" in told
    assert len(lines.read_text().splitlines()) < 400
    again = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "gcs_server_port": int(port)}
    )
    try:
        resumed = parley.run(resume=tmp_path / "run")
    finally:
        again.shutdown()
    assert np.array_equal(resumed.theta, reference.theta)


@pytest.mark.heavy
def test_a_node_that_is_killed_in_mid_round_changes_nothing(tmp_path, tables, monkeypatch) -> None:
    pytest.importorskip("ray", reason="needs parley[ray]")
    from ray.cluster_utils import Cluster

    reference = parley.run(job_of(tmp_path), out=tmp_path / "fast")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes = [cluster.add_node(num_cpus=2), cluster.add_node(num_cpus=2)]
        killed, asked = [], []

        def called(workers, question):
            asked.append(question)

            def asking(actor):
                waiting = actor.give.remote(*question)
                if len(asked) == 6 and not killed:  # the last worker of round 2
                    killed.append(nodes[0])
                    cluster.remove_node(nodes[0], allow_graceful=False)
                return waiting

            return asking

        monkeypatch.setattr(ray_engine.RayWorkers, "_call", called)
        own = (f"run.ray-address={cluster.address}", "run.engine=ray", "run.workers=3")
        run = parley.run(job_of(tmp_path, *own), out=tmp_path / "ray")
        assert killed
        assert np.array_equal(run.theta, reference.theta)
        over = {"ray_address": cluster.address, "workers": 2}
        assert answers_of(tables, "ray", **over) == answers_of(tables, "fast")
        # Rows that are not on a node are said with the node.
        dealt = ray_engine.build_row_shards
        monkeypatch.setattr(
            ray_engine,
            "build_row_shards",
            lambda job, _, *own: dealt(job, tmp_path / "elsewhere", *own),
        )
        with pytest.raises(JobError, match=r"elsewhere, got: no such .* node [\d.]+"):
            parley.run(job_of(tmp_path, *own), out=tmp_path / "none")
    finally:
        cluster.shutdown()


@pytest.mark.heavy
def test_a_node_that_runs_another_version_is_refused_by_name(tmp_path, monkeypatch) -> None:
    pytest.importorskip("ray", reason="needs parley[ray]")
    from ray.cluster_utils import Cluster

    older = tmp_path / "older" / "parley"
    shutil.copytree(Path(parley.__file__).parent, older)
    (older / "version.py").write_text('__version__ = "0.0.9"\n')
    monkeypatch.chdir(tmp_path)  # Ray's workers import from the driver's folder first
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(older.parent)})
        own = (f"run.ray-address={cluster.address}", "run.engine=ray", "run.workers=4")
        with pytest.raises(JobError, match=r"got 0\.0\.9 sources \w{12}, on node [\d.]+\.$"):
            parley.run(job_of(tmp_path, *own), out=tmp_path / "run")
    finally:
        cluster.shutdown()
    assert not (tmp_path / "run").exists()
