"""A Flower app, unchanged, at three real parties: each has its own copy and its own records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import NAMES
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from parley.deploy.child_processes import find_free_ports

APP = Path(__file__).parents[2] / "examples" / "flower_app.py"
POLICY = """
[data.digits]
app-data = "digits.npz"
unit = "party"
epsilon = 8.0
delta = 1e-5
"""


@pytest.fixture
def hospitals(parley, tmp_path):
    """What docs/flower.md says, for three parties on one machine."""
    (port,) = find_free_ports(1)
    home = tmp_path / "consortium"
    chosen = [word for name in NAMES for word in ("--party", name)]
    parley("deploy", "init", home, "--host", "127.0.0.1", "--port", port, *chosen)
    images, labels = load_digits(return_X_y=True)
    for index, name in enumerate(NAMES):
        folder = home / "parties" / name
        np.savez(folder / "digits.npz", images=images[index::3], labels=labels[index::3])
        shutil.copy(APP, folder)
        policy = (folder / "party.toml").read_text()
        listed = policy.replace('"table"]', f'"table", "{APP.name}:app"]')
        assert listed != policy
        (folder / "party.toml").write_text(listed + POLICY)
    shutil.copy(APP, home / "server")
    return home


@pytest.mark.heavy
def test_three_parties_train_their_app_and_decline_another_version_of_it(parley, hospitals) -> None:
    north = hospitals / "parties" / "north"
    server = parley.serve(hospitals)
    parley.everybody(hospitals, server)
    said = parley("party", north, "--check")
    assert "own code flower_app.py:app: can be imported" in said
    assert "data set digits: read only by your own app (digits.npz)" in said
    keys = [
        *(f"model.kind={hospitals / 'server' / APP.name}:app", "algorithm.kind=flower"),
        *("privacy.unit=party", "privacy.epsilon=8", "algorithm.rounds=2", "parties.count=3"),
        "data.source=digits",
    ]
    words = [word for key in keys for word in ("--set", key)]
    summary = json.loads(parley("submit", "--to", hospitals, "--json", "-q", *words))
    assert summary["status"] == "complete"
    assert summary["secure_aggregation"]["backend"] == "masked"
    assert summary["guarantees"][0]["unit"] == "party"
    (run,) = (hospitals / "server" / "runs").glob("*-flower-*")
    arrays = load_file(run / "arrays.safetensors")
    assert {name: array.shape for name, array in arrays.items()} == {
        "layer.weight": (10, 64),
        "layer.bias": (10,),
    }
    for name in NAMES:
        ledger = hospitals / "parties" / name / "ledger.sqlite"
        assert "per party" in parley("ledger", "show", ledger)
        assert "none of the last failed" in parley("party", hospitals / "parties" / name, "--check")
    with (north / APP.name).open("a") as file:
        file.write("# another version\n")
    refused = parley("submit", "--to", hospitals, "-q", *words, expect=1)
    assert "north" in refused
    assert "model" in refused
    assert "same version" in (north / "party.log").read_text()
