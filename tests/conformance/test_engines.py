"""What every engine must do with the same job: one class, which each engine's tests subclass."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from among_parties import among_parties
from safetensors.numpy import load_file

from parley.deploy.process_engines import ENGINES
from parley.privacy.ledger.ledger import Ledger
from parley.run_job import SIMULATIONS
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.simulations.engine.fast_engine import simulate

BASE = (
    "parties.count=3",
    "algorithm.rounds=2",
    "data.records=120",
    "secure-aggregation.backend=masked",
    "run.seed=11",
)

JOBS = {
    "gradients": (),
    "size weights": ("parties.weights=size", "data.partition=sizes", "data.sizes=[20, 30, 46]"),
    "softmax on digits": (
        "data.source=digits",
        "model.kind=softmax",
        "privacy.epsilon=4",
        "secure-aggregation.ring-bits=64",
    ),
    "features of digits": (
        "data.source=digits",
        "model.kind=softmax",
        "model.features=scattering",
        "model.feature-settings={scales = 1, groups = 9}",
        "privacy.epsilon=4",
        "secure-aggregation.ring-bits=64",
    ),
    "evaluation": ("evaluation.kind=federated", "evaluation.epsilon=5"),
    "laplace": ("privacy.noise=l2-laplace",),
    "all noise in every party": ("privacy.noise-point=party",),
    "noise in objectives": (
        "algorithm.kind=objective-perturbation",
        "privacy.noise-point=party",
    ),
    "distributed DP-SGD": (
        "algorithm.kind=distributed-dp-sgd",
        "model.kind=mlp",
        "model.hidden=[6]",
        "dp-sgd.sampling-rate=0.2",
        "dp-sgd.local-steps=3",
        "privacy.epsilon=8",
    ),
}
UPDATES = (
    *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[6]", "dp-sgd.local-steps=3"),
    *("dp-sgd.sampling-rate=0.3", "privacy.epsilon=8"),
)
JOBS["updates"] = UPDATES
JOBS["updates of sampled parties"] = (*UPDATES, "privacy.unit=party", "parties.per-round=2")
JOBS["updates of sampled parties"] += ("parties.min-records=20",)
JOBS["optima"] = ("algorithm.kind=output-perturbation",)
JOBS["sampled parties"] = (
    *JOBS["distributed DP-SGD"],
    "parties.per-round=0.5",
    "parties.min-records=20",
    "privacy.unit=party",
    "dp-sgd.local-steps=1",
)

SYNTHETIC = ("model.kind=table", "algorithm.rounds=auto", "algorithm.steps=5")
EMBEDDED = {
    "tables": (*SYNTHETIC, "algorithm.kind=marginals", "algorithm.pairs=label"),
    "random features": (
        *SYNTHETIC,
        *("algorithm.kind=random-features", "algorithm.frequencies=20"),
    ),
    "fourier features": ("model.features=random-fourier",),
}
"""What the fast engine does too, in more time than every engine's row is worth."""

COMPONENTS = (
    "algorithm.kind=fedavg",
    "model.kind=pca-mlp",
    "model.components=5",
    "model.hidden=[6]",
    "dp-sgd.sampling-rate=0.5",
)


def conforming_job(name: str, *overrides: str) -> Job:
    """One of `JOBS`, or of `EMBEDDED`."""
    return load_job(overrides=[*BASE, *(JOBS | EMBEDDED)[name], *overrides])


def theta_of(run: Path) -> np.ndarray:
    """The model a run left."""
    return load_file(run / "model.safetensors")["theta"]


def charges_of(run: Path) -> list[tuple]:
    """What a run's ledger holds, but for the run's name."""
    with Ledger.open(run / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        return [
            (e.entry.dataset, e.entry.index, e.entry.event, dict(e.entry.facts), e.state)
            for e in ledger.list_entries()
        ]


def lines_of(run: Path) -> list[dict]:
    """The rounds' lines."""
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


class EngineConformance:
    """Subclass it with `run(job, folder)`, which runs a job and gives its run folder.

    The reference is the fast engine; local training of these jobs is the same arithmetic whether a
    party is alone or in a block, so that the model must be the same to the last bit.

    Attributes:
        engine: its name in a job.
    """

    engine: ClassVar[str]

    def run(self, job: Job, folder: Path) -> Path:
        """Runs the job; its run folder."""
        raise NotImplementedError

    def check(self, name: str, folder: Path, *overrides: str) -> None:
        """The engine does with a job what the fast engine does."""
        job = conforming_job(name, *overrides)
        reference = simulate(job, out=folder / "fast").folder
        run = self.run(job, folder)
        assert np.array_equal(theta_of(run), theta_of(reference))
        assert charges_of(run) == charges_of(reference)
        for ours, theirs in zip(lines_of(run), lines_of(reference), strict=True):
            for key in ("round", "parties", "reasons", "guarantees"):
                assert ours[key] == theirs[key], key
        ours = json.loads((run / "summary.json").read_text())
        theirs = json.loads((reference / "summary.json").read_text())
        for summary in (ours, theirs):  # a server has no names of the classes
            summary.get("evaluation", {}).get("judgement", {}).pop("labels", None)
        for key in ("status", "guarantees", "dimension", "evaluation"):
            assert ours.get(key) == theirs.get(key), key

    def check_components(self, pca: str, folder: Path, *overrides: str) -> None:
        """Its parties project their rows on what the fast engine's do, at the same charge."""
        measured = ("evaluation.kind=federated", "evaluation.epsilon=5")
        job = load_job(overrides=[*BASE, *COMPONENTS, f"model.pca={pca}", *measured, *overrides])
        reference = simulate(job, out=folder / "fast").folder
        run = self.run(job, folder)
        ours, theirs = (load_file(path / "model.safetensors") for path in (run, reference))
        assert ours.keys() == theirs.keys() == {"theta", "components"}
        assert np.array_equal(ours["components"], theirs["components"])
        assert charges_of(run) == charges_of(reference)


class TestInProcess(EngineConformance):
    """The deployment's own code, parties and coordinator, without a network between them."""

    engine = "in-process"

    def run(self, job: Job, folder: Path) -> Path:
        return among_parties(job, folder)

    @pytest.mark.parametrize("name", JOBS)
    def test_it_does_what_the_fast_engine_does(self, name, tmp_path):
        self.check(name, tmp_path)

    @pytest.mark.parametrize("pca", ["private", "public"])
    def test_rows_are_projected_on_the_same_components(self, pca, tmp_path):
        self.check_components(pca, tmp_path)


class _RealProcesses(EngineConformance):
    def run(self, job: Job, folder: Path) -> Path:
        return ENGINES[self.engine](job, out=folder / "run").folder

    @pytest.mark.heavy
    @pytest.mark.parametrize("name", ["gradients", "sampled parties", "evaluation"])
    def test_it_does_what_the_fast_engine_does(self, ground, name):
        self.check(name, ground.root)


class TestProcesses(_RealProcesses):
    """Every run has `test_three_parties_with_tls_run_the_masked_protocol_and_leave_no_secret`."""

    engine = "processes"

    @pytest.mark.heavy
    @pytest.mark.parametrize("pca", ["private", "public"])
    def test_rows_are_projected_on_the_same_components(self, ground, pca):
        self.check_components(pca, ground.root)


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs parley[ray]")
class TestFlower(_RealProcesses):
    engine = "flower"

    def test_rows_are_projected_on_the_same_components(self, ground):
        self.check_components("private", ground.root)


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs parley[ray]")
class TestRay(EngineConformance):
    """The fast engine with its parties dealt to workers, of which one is lost in mid-round."""

    engine = "ray"
    killed: list[object]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _ray(cls):
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()

    @pytest.fixture(autouse=True)
    def _lost(self, monkeypatch):
        import ray

        from parley.deploy.ray_engine import RayWorkers

        self.killed, call = [], RayWorkers._call

        def called(workers, question):
            ask = call(workers, question)

            def asking(actor):
                waiting = ask(actor)
                if not self.killed:
                    self.killed.append(actor)
                    ray.kill(actor, no_restart=False)
                return waiting

            return asking

        monkeypatch.setattr(RayWorkers, "_call", called)

    def run(self, job: Job, folder: Path) -> Path:
        found = SIMULATIONS["ray"](job, out=folder / "run").folder
        assert self.killed
        return found

    own = ("secure-aggregation.backend=ideal", "run.engine=ray", "run.workers=2")

    @pytest.mark.parametrize("name", [*JOBS, *EMBEDDED])
    def test_it_does_what_the_fast_engine_does(self, name, tmp_path):
        self.check(name, tmp_path, *self.own, f"run.out={tmp_path / 'runs'}")

    @pytest.mark.parametrize("pca", ["private", "public"])
    def test_rows_are_projected_on_the_same_components(self, pca, tmp_path):
        self.check_components(pca, tmp_path, *self.own, f"run.out={tmp_path / 'runs'}")


def test_every_row_is_a_valid_job():
    """Also those that only heavy tests run."""
    for name in JOBS | EMBEDDED:
        conforming_job(name)


def test_every_engine_is_held_to_it():
    held = {kind.engine for kind in (TestInProcess, TestRay, *_RealProcesses.__subclasses__())}
    assert held == {"in-process", *ENGINES, *SIMULATIONS.keys() - {"fast"}}
