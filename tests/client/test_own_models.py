"""A model of one's own at a party: its own file, by a name that its owner listed, or none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_networks import averaging, training

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.refusals import Declined, Reason
from parley.client.models.networks import Network
from parley.client.party.loaded_dataset import DatasetFacts
from parley.client.party.owner_policy import OwnerPolicy, PolicyError, load_policy, parse_policy
from parley.client.party.plan_verification import check_computation
from parley.client.party.run_validation import build_accepted_algorithm
from parley.deploy.run_watcher import format_refusals
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, plan_release
from parley.server.records.run_folder import resolve_paths

SOURCE = """
import torch
from pathlib import Path
Path(__file__).with_name("ran").touch()


def net(features, classes):
    return torch.nn.Linear(features, classes, bias={bias})
"""


@pytest.fixture
def task(tmp_path: Path) -> dict:
    """Of a server whose file lies in its own folder."""
    home = tmp_path / "server"
    home.mkdir()
    (home / "tumour.py").write_text(SOURCE.format(bias=True))
    network = Network.build(f"{home / 'tumour.py'}:net", features=4, classes=3)
    (home / "ran").unlink()
    return describe_task(averaging(network, training(per_example_method="vmap")))


def policy(folder: Path, *models: str) -> OwnerPolicy:
    folder.mkdir(exist_ok=True)
    listed = ", ".join(f'"{name}"' for name in models)
    (folder / "party.toml").write_text(f"models = [{listed}]\n")
    return load_policy(folder / "party.toml")


def test_a_path_of_the_servers_machine_does_not_travel(task) -> None:
    assert task["network"]["kind"] == "tumour.py:net"


def test_a_party_builds_its_own_file_of_the_name_that_its_owner_listed(task, tmp_path) -> None:
    consent = policy(tmp_path / "party", "mlp", "tumour.py:net")
    (tmp_path / "party" / "tumour.py").write_text(SOURCE.format(bias=False))
    algorithm = build_accepted_algorithm(consent, task)
    assert algorithm.dimension == 12  # its own file's, which has no bias
    assert (tmp_path / "party" / "ran").exists()
    assert not (tmp_path / "server" / "ran").exists()


@pytest.mark.parametrize(
    "said",
    ["tumour.py:net", "../server/tumour.py:net", "server/tumour.py:net", "os:system", "mlp:net"],
)
def test_nothing_runs_that_is_not_listed_by_that_very_name(task, tmp_path, said) -> None:
    consent = policy(tmp_path / "party", "mlp", "other.py:net")
    task["network"]["kind"] = said
    with pytest.raises(Declined, match=r"runs only its own code.*list it in models") as refused:
        build_accepted_algorithm(consent, task)
    assert refused.value.reason is Reason.MODEL
    assert not (tmp_path / "server" / "ran").exists()


def test_a_linear_models_name_is_no_network(tmp_path, task) -> None:
    consent = policy(tmp_path / "party", "logistic")
    task["network"]["kind"] = "logistic"
    with pytest.raises(Declined):
        build_accepted_algorithm(consent, task)


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(PolicyError, match="two files of one name"):
        parse_policy('models = ["a/net.py:f", "b/net.py:f"]', source="party.toml")


@pytest.mark.parametrize(("kind", "told"), [("/home/a/tumour.py:net", True), ("cnn", False)])
def test_the_operator_learns_why_and_how_a_model_is_allowed(tmp_path, kind, told) -> None:
    party = {"name": "ward", "state": "declined", "reason": "model"}
    (tmp_path / "parties.json").write_text(json.dumps({"parties": [party]}))
    job = load_job(overrides=["algorithm.kind=fedavg", f"model.kind={kind}"])
    said = "\n".join(format_refusals(tmp_path, job))
    assert ("never runs a server's code" in said) == told
    assert ('models = ["tumour.py:net"]' in said) == told
    assert "/home" not in said


def test_a_job_names_its_file_from_wherever_it_goes_on(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = load_job(overrides=["algorithm.kind=fedavg", "model.kind=mine.py:net"])
    assert resolve_paths(job).model.kind == f"{tmp_path / 'mine.py'}:net"
    assert resolve_paths(load_job()).model.kind == "logistic"
    components = ["model.kind=pca-mlp", "model.pca=public", "model.pca-file=c.safetensors"]
    projected = load_job(overrides=["algorithm.kind=fedavg", *components])
    assert resolve_paths(projected).model.components_file == str(tmp_path / "c.safetensors")


NO_CHAIN = """
from torch import nn


def net(features, classes):
    return nn.Sequential(nn.Linear(features, 8), nn.LayerNorm(8), nn.Linear(8, classes))
"""


def test_a_party_declines_a_way_that_is_for_chains_alone(tmp_path) -> None:
    home = tmp_path / "party"
    consent = policy(home, "mine.py:net")
    (home / "mine.py").write_text(NO_CHAIN)
    base = ["algorithm.kind=fedavg", "algorithm.rounds=2", "privacy.epsilon=8"]
    job = load_job(overrides=[*base, f"model.kind={home / 'mine.py'}:net"])
    federation = Federation.from_sizes(np.array([60, 60, 60]))
    network = Network.build(job.model.kind, features=30, classes=3, precision="float64")
    honest: Any = build_algorithm(job, network, federation)
    assert honest.training.per_example_method == "vmap"
    plan = plan_release(job, algorithm=honest, federation=federation, run_id="r")

    def examined(way: str) -> None:
        task = describe_task(honest)
        task["training"]["per_example_method"] = way
        algorithm = build_accepted_algorithm(consent, task)
        own = DatasetFacts(
            features=30,
            width=30,
            classes=3,
            records=60,
            max_records=60,
            schema="",
            map="",
            columns=None,
        )
        check_computation(consent, plan, algorithm, ALGORITHMS["fedavg"], own)

    examined("vmap")
    with pytest.raises(Declined, match="Expected a chain") as refused:
        examined("exact")
    assert refused.value.reason is Reason.ALGORITHM
