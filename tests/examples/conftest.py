"""A job among real parties in this process, for every kind of example."""

import pytest
from among_parties import among_parties as apart
from safetensors import safe_open
from safetensors.numpy import load_file

from parley.server.records.run_reader import read_summary


@pytest.fixture
def among_parties(tmp_path):
    """Runs a job with real parties, by the schema that the server has of them."""

    def run(job, *, schema=""):
        folder = apart(job, tmp_path / "real", schema=schema)
        return read_summary(folder), folder, load_file(folder / "model.safetensors")["theta"]

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
