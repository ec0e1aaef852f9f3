"""A map in a run, named or by a rule: parties compute it, agree on it, predictions use it."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from in_process import InProcessTransport
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.torch import save_file

import parley
from parley.client.contract.refusals import Declined, Reason
from parley.client.party.dataset_loader import load_dataset
from parley.client.party.owner_policy import load_policy
from parley.client.party.policy_writing import format_policy
from parley.client.party.run_validation import build_feature_map
from parley.prediction.model_loading import load_model
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import ModelFileError
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.run_coordinator import coordinate
from parley.simulations.engine.party_folders import party_folders, prepare_parties

SCHEMA = """
scaling = "unit"
[columns]
image = { kind = "array", shape = [8, 8], range = [0, 16], centre = 0 }
digit = { kind = "label", classes = [0, 1, 2] }
"""
NET = """
import torch
from torch import nn

def net(columns):
    return nn.Sequential(nn.Linear(columns, 5), nn.Tanh()).eval()
"""
SETTINGS = '{ weights = "net.safetensors", trained-on = "ImageNet" }'
SCATTERING = ("model.features=scattering", "model.feature-settings={scales = 1, groups = 9}")


def job(*overrides):
    return parley.load_job(
        overrides=[
            "parties.count=3",
            "data.source=digits",
            "model.kind=softmax",
            "algorithm.rounds=2",
            "privacy.epsilon=8",
            "secure-aggregation.masked-check=false",
            *overrides,
        ]
    )


def images(seed, count=60):
    rng = np.random.default_rng(seed)
    digits = np.arange(count) % 3
    return rng.integers(0, 8, (count, 8, 8)) + 4 * digits[:, None, None], digits


@pytest.fixture
def parties(tmp_path):
    """Three parties that hold raw images and a schema, and what makes a run among them."""
    home = tmp_path / "parties"
    deployment = prepare_parties(job("run.seed=none"), home)
    folders = party_folders(home, 3)
    for index, folder in enumerate(folders):
        pictures, digits = images(index)
        np.savez(folder / "raw.npz", image=pictures, digit=digits)
        (folder / "raw.schema.toml").write_text(SCHEMA)
        (folder / "net.py").write_text(NET)
        save_file(
            {"0.weight": torch.linspace(-1, 1, 320).reshape(5, 64), "0.bias": torch.zeros(5)},
            folder / "net.safetensors",
        )
        consent = load_policy(folder / "party.toml")
        held = {"path": "raw.npz", "schema": "raw.schema.toml", "epsilon": 8.1, "delta": 1e-5}
        given = json.loads(consent.model_dump_json(by_alias=True)) | {"data": {"digits": held}}
        given["features"] = ["scattering", "net.py:net"]
        policy = type(consent).model_validate(given)
        (folder / "party.toml").write_text(format_policy(policy))

    def run(asked, name="run"):
        made = RunFolder.create(asked, tmp_path / name)
        made.save_schema(SCHEMA)
        coordinate(
            asked,
            transport=InProcessTransport(folders),
            deployment=deployment,
            folder=made,
        )
        return made.path

    return folders, run


def test_parties_learn_on_features_of_their_own_files_and_the_model_predicts_raw_rows(parties):
    folders, run = parties
    path = run(job(*SCATTERING))
    kept = list((folders[0] / "features").iterdir())
    assert len(kept) == 1
    with safe_open(path / "model.safetensors", framework="np") as opened:
        metadata = opened.metadata()
        assert opened.get_tensor("theta").shape == (3 * (9 * 4 * 4 + 1),)
    assert metadata["parley.features"] == "scattering, data-independent"
    model = load_model(path)
    pictures = images(0)[0]
    consent = load_policy(folders[0] / "party.toml")
    dataset = consent.get_dataset("digits")
    features = build_feature_map(consent, dataset, job(*SCATTERING).model.feature_map)
    held = load_dataset(dataset, folders[0], label="softmax", intercept=True, features=features)
    assert np.array_equal(model.encode_rows({"image": pictures}), held.rows)
    assert set(model.predict({"image": pictures})) <= {0, 1, 2}
    with pytest.raises(parley.client.data.training_records.DataError, match="shape"):
        model.predict({"image": pictures[:, :7]})


def test_ones_own_map_runs_where_policies_name_it_and_the_model_names_its_digest(parties, tmp_path):
    folders, run = parties
    own = ("model.features=net.py:net", f"model.feature-settings={SETTINGS}")
    path = run(job(*own))
    with pytest.raises(ModelFileError, match="--own-model"):
        load_model(path)
    place = f"{folders[0]}/net.py:net"
    model = load_model(path, own_models=(place,))
    assert model.encode_rows({"image": images(9)[0]}).shape == (60, 6)
    assert "trained on ImageNet, not on the parties' records" in model.statement["parley.features"]
    (folders[0] / "net.py").write_text(NET + "\n")
    with pytest.raises(ModelFileError, match="Expected features of digest"):
        load_model(path, own_models=(place,))
    with pytest.raises(JobError, match="the same feature map"):
        run(job(*own), "again")


def test_a_map_that_a_policy_does_not_name_is_never_made(parties):
    folders, run = parties
    with pytest.raises(JobError, match=r"declines \(model\)"):
        run(job("model.features=random-fourier"))
    consent = load_policy(folders[0] / "party.toml")
    dataset = consent.get_dataset("digits")
    for name in ("bins", "other.py:net", "os:system"):
        with pytest.raises(Declined) as declined:
            build_feature_map(consent, dataset, {"name": name, "settings": {}})
        assert declined.value.reason is Reason.MODEL


def test_features_are_read_from_the_cache_only_for_the_same_file_schema_and_map(parties):
    folder, dataset = parties[0][0], None
    consent = load_policy(folder / "party.toml")
    dataset = consent.get_dataset("digits")

    def rows(settings):
        features = build_feature_map(consent, dataset, {"name": "scattering", "settings": settings})
        return load_dataset(dataset, folder, label="softmax", intercept=True, features=features)

    slow = build_feature_map(
        consent, dataset, {"name": "scattering", "settings": {"scales": 1, "groups": 9}}
    )
    with pytest.raises(Declined, match="at most 1e-06 ms per record, got") as declined:
        load_dataset(
            dataset, folder, label="softmax", intercept=True, features=slow, slowest_ms=1e-6
        )
    assert declined.value.reason is Reason.MODEL
    first = rows({"scales": 1, "groups": 9})
    assert np.array_equal(rows({"scales": 1, "groups": 9}).rows, first.rows)
    assert first.rows.dtype == np.float32
    assert np.linalg.norm(first.rows.astype(np.float64), axis=1).max() <= 1
    assert not np.array_equal(rows({"scales": 1, "groups": 0}).rows, first.rows)
    schema = folder / "raw.schema.toml"
    schema.write_text(SCHEMA.replace("[0, 16]", "[0, 32]"))
    assert not np.array_equal(rows({"scales": 1, "groups": 9}).rows, first.rows)
    assert len(list((folder / "features").iterdir())) == 3


def test_prepared_rows_are_learned_from_as_they_were_prepared(tmp_path):
    asked = job(*SCATTERING, "run.seed=1")
    prepare_parties(asked, tmp_path / "parties")
    consent = load_policy(tmp_path / "parties" / "party-0" / "party.toml")
    dataset = consent.get_dataset("digits")
    assert build_feature_map(consent, dataset, asked.model.feature_map) is None
    with pytest.raises(Declined, match="with their map of features"):
        build_feature_map(consent, dataset, {})
    held = load_dataset(dataset, tmp_path / "parties" / "party-0", label="softmax", intercept=True)
    assert len(held.map) == 64


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("model.features=scatering",), "Expected features of scattering"),
        (("model.feature-settings={scales=1}",), "they need model.features"),
        (("model.features=scattering", "model.feature-settings={scale=1}"), "Unknown key"),
        (("model.features=bins",), "no arrays"),
    ],
)
def test_a_job_with_a_map_that_is_none_is_refused(tmp_path, overrides, said):
    with pytest.raises(JobError, match=said):
        parley.run(job(*overrides), out=tmp_path / "run")


CHOSEN = """
[columns]
x = { kind = "numeric", range = [0, 1] }
w = { kind = "categorical", categories = ["a", "b"] }
y = { kind = "label", positive = [1], negative = [0] }
"""


def chosen_job(epsilon):
    return parley.load_job(
        overrides=[
            *("parties.count=3", "data.source=breast-cancer", "algorithm.rounds=3"),
            *("secure-aggregation.masked-check=false", f"privacy.epsilon={epsilon}"),
        ]
    )


@pytest.mark.parametrize(
    ("epsilon", "schema", "features", "intervals"),
    [(8, CHOSEN, "hats", 8), (8, "", "hats", 4), (0.1, CHOSEN, "none", 0)],
)
def test_real_parties_learn_through_the_map_that_their_sizes_pay_for(
    epsilon, schema, features, intervals, tmp_path
):
    asked = chosen_job(epsilon)
    deployment = prepare_parties(chosen_job(0.1), tmp_path / "parties")
    folders = party_folders(tmp_path / "parties", 3)
    for index, folder in enumerate(folders):
        rng = np.random.default_rng(index)
        x = rng.uniform(0, 1, 150).round(3)
        rows = {"x": x, "w": ["a", "b"] * 75, "y": (np.abs(x - 0.5) < 0.25).astype(int)}
        pl.DataFrame(rows).write_csv(folder / "raw.csv")
        (folder / "raw.schema.toml").write_text(CHOSEN)
        held = {"path": "raw.csv", "schema": "raw.schema.toml", "epsilon": 8.1, "delta": 1e-5}
        consent = load_policy(folder / "party.toml")
        given = json.loads(consent.model_dump_json(by_alias=True))
        policy = type(consent).model_validate(given | {"data": {"breast-cancer": held}})
        (folder / "party.toml").write_text(format_policy(policy))
    made = RunFolder.create(asked, tmp_path / "run")
    if schema:
        made.save_schema(schema)
    transport = InProcessTransport(folders)
    coordinate(asked, transport=transport, deployment=deployment, folder=made)
    kept = load_job(made.path / "job.toml").model
    assert (kept.features, kept.feature_settings.get("intervals", 0)) == (features, intervals)
    width = intervals + 1 + 2 if intervals else 1 + 2 + 1
    assert json.loads((made.path / "summary.json").read_text())["rounds_done"] == 3
    assert load_file(made.path / "model.safetensors")["theta"].shape == (width,)
