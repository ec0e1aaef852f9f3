"""Files of local parties and of prepared rows are there whole, or not at all."""

import numpy as np
import pytest

from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.memory_mapped_rows import save_prepared
from parley.simulations.engine.party_folders import prepare_parties

JOB = load_job(overrides=["parties.count=2"])
WRITERS = {
    "savez": lambda folder: prepare_parties(JOB, folder),
    "save": lambda folder: save_prepared(prepare_data(JOB), folder),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up_leaves_no_half_of_a_file_of_records(name, tmp_path, monkeypatch):
    def filled_up(file, *_, **__) -> None:
        opened = file if hasattr(file, "write") else open(file, "wb")  # noqa: SIM115 - as numpy does
        opened.write(b"half")
        opened.flush()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, name, filled_up)
    with pytest.raises(OSError, match="No space"):
        WRITERS[name](tmp_path / "folder")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
