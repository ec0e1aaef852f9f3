"""Features that a rule chooses when real parties have said how many records they hold."""

import json

import numpy as np
import polars as pl
import pytest
from in_process import InProcessTransport
from safetensors.numpy import load_file

import parley
from parley.client.party.consent import load_consent, render_consent
from parley.server.jobs.file import load_job
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.coordinator import coordinate
from parley.simulations.engine.local_parties import party_folders, prepare_parties

SCHEMA = """
[columns]
x = { kind = "numeric", range = [0, 1] }
w = { kind = "categorical", categories = ["a", "b"] }
y = { kind = "label", positive = [1], negative = [0] }
"""


def job(epsilon):
    return parley.load_job(
        overrides=[
            *("parties.count=3", "data.source=breast-cancer", "algorithm.rounds=3"),
            *("secure-aggregation.masked-check=false", f"privacy.epsilon={epsilon}"),
        ]
    )


@pytest.mark.parametrize(
    ("epsilon", "schema", "features", "intervals"),
    [(8, SCHEMA, "hats", 8), (8, "", "hats", 4), (0.1, SCHEMA, "none", 0)],
)
def test_real_parties_learn_through_the_map_that_their_sizes_pay_for(
    epsilon, schema, features, intervals, tmp_path
):
    asked = job(epsilon)
    deployment = prepare_parties(job(0.1), tmp_path / "parties")
    folders = party_folders(tmp_path / "parties", 3)
    for index, folder in enumerate(folders):
        rng = np.random.default_rng(index)
        x = rng.uniform(0, 1, 150).round(3)
        rows = {"x": x, "w": ["a", "b"] * 75, "y": (np.abs(x - 0.5) < 0.25).astype(int)}
        pl.DataFrame(rows).write_csv(folder / "raw.csv")
        (folder / "raw.schema.toml").write_text(SCHEMA)
        held = {"path": "raw.csv", "schema": "raw.schema.toml", "epsilon": 8, "delta": 1e-5}
        consent = load_consent(folder / "party.toml")
        given = json.loads(consent.model_dump_json(by_alias=True))
        policy = type(consent).model_validate(given | {"data": {"breast-cancer": held}})
        (folder / "party.toml").write_text(render_consent(policy))
    made = RunFolder.create(asked, tmp_path / "run")
    if schema:
        made.keep_schema(schema)
    transport = InProcessTransport(folders)
    coordinate(asked, transport=transport, deployment=deployment, folder=made)
    kept = load_job(made.path / "job.toml").model
    assert (kept.features, kept.feature_settings.get("intervals", 0)) == (features, intervals)
    width = intervals + 1 + 2 if intervals else 1 + 2 + 1
    assert json.loads((made.path / "summary.json").read_text())["rounds_done"] == 3
    assert load_file(made.path / "model.safetensors")["theta"].shape == (width,)
