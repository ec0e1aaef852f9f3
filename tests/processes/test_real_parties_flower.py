"""What only Flower's processes can be asked: code that comes with a run, node keys, Ray."""

from __future__ import annotations

import pytest

from parley.deploy import engines
from parley.deploy.engines import run_processes
from parley.deploy.flower import engine as flower_engine
from parley.deploy.node_keys import make_node_key
from parley.deploy.processes import ProcessError
from parley.server.jobs.file import load_job
from parley.server.jobs.section import JobError


def job(*overrides):
    return load_job(
        overrides=[
            "parties.count=3",
            "algorithm.rounds=1",
            "data.records=150",
            "run.engine=processes",
            "run.transport=flower",
            "run.stage-timeout=60",
            *overrides,
        ]
    )


@pytest.mark.heavy
def test_code_that_comes_with_a_run_is_run_by_nobody(ground, monkeypatch):
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
    assert run_processes(job(), out=ground.run).summary.status == "complete"
    assert not (ground.root / "ran").exists()
    assert "http://" not in (ground.run / "logs" / "server.log").read_text()


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


def test_flower_without_ray_says_how_to_add_it(ground, monkeypatch):
    find = engines.importlib.util.find_spec
    monkeypatch.setattr(
        engines.importlib.util, "find_spec", lambda name: None if name == "ray" else find(name)
    )
    with pytest.raises(JobError, match=r'pip install "parley\[ray\]"'):
        engines.run_flower(job("run.engine=flower"), out=ground.run)
    assert not ground.run.exists()
