"""Parties dealt to workers of Ray: a node that is killed in mid-round, and what is refused."""

import socket

import numpy as np
import pytest

import parley
from parley.deploy import ray_engine
from parley.server.jobs.file import load_job
from parley.server.jobs.job import JobError


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
    monkeypatch.setattr(ray_engine, "ray_workers", nobody)
    job = job_of(tmp_path, "run.engine=ray", *overrides)
    with pytest.raises((JobError, ValueError), match=said):
        parley.run(job, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_is_not_there_is_said_at_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ray_engine.importlib.util, "find_spec", lambda _: True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(JobError, match=rf"ray-address = '{address}'.*ray start --head"):
            parley.run(
                job_of(tmp_path, "run.engine=ray", f"run.ray-address={address}"),
                out=tmp_path / "run",
            )


@pytest.mark.heavy
def test_a_node_that_is_killed_in_mid_round_changes_nothing(tmp_path, monkeypatch) -> None:
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
        # Rows that are not on a node are said with the node.
        monkeypatch.setattr(ray_engine, "keep_data", lambda *_: tmp_path / "elsewhere")
        with pytest.raises(JobError, match=r"Expected .*elsewhere.* on node [\d.]+, got none"):
            parley.run(job_of(tmp_path, *own), out=tmp_path / "none")
    finally:
        cluster.shutdown()
