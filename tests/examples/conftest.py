"""A job among real parties in this process, for every kind of example."""

import pytest
from in_process import InProcessTransport
from safetensors import safe_open
from safetensors.numpy import load_file

from parley.server.records.run_folder import RunFolder
from parley.server.rounds.coordinator import coordinate
from parley.simulations.engine.local_parties import party_folders, prepare_parties


@pytest.fixture
def among_parties(tmp_path):
    """Runs a job with real parties, by the schema that the server has of them."""

    def run(job, *, schema=""):
        deployment = prepare_parties(job, tmp_path / "parties")
        homes = party_folders(tmp_path / "parties", job.parties.count)
        folder = RunFolder.create(job, tmp_path / "real")
        if schema:
            folder.keep_schema(schema)
        transport = InProcessTransport(homes)
        summary = coordinate(job, transport=transport, deployment=deployment, folder=folder)
        theta = load_file(folder.path / "model.safetensors")["theta"]
        return summary, folder.path, theta

    return run


@pytest.fixture
def opened():
    """Tensors and metadata of a run's model file, whose digest is left out."""

    def read(folder):
        file = folder / "model.safetensors"
        with safe_open(file, framework="np") as model:
            metadata = {**model.metadata()}
        del metadata["parley.digest"]
        return load_file(file), metadata

    return read
