"""Where a simulation's records come from: one place, and a database within a time."""

import sqlite3

import numpy as np
import pytest

import parley
from parley.client.data.data_error import DataError
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError

SCHEMA = """[columns]
x = { kind = "numeric", range = [0, 1] }
y = { kind = "label", positive = [1], negative = [0] }
"""
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT 1 - x FROM n) SELECT x, x AS y FROM n"


def test_a_query_of_a_simulation_ends_within_its_timeout(tmp_path):
    sqlite3.connect(tmp_path / "d.sqlite").close()
    (tmp_path / "d.sqlite").touch()
    (tmp_path / "s.toml").write_text(SCHEMA)
    sets = [f"data.source=sqlite:///{tmp_path}/d.sqlite", f"data.schema={tmp_path}/s.toml"]
    job = load_job(overrides=[*sets, f"data.query={ENDLESS}", "data.query-timeout=0.05"])
    with pytest.raises(DataError, match=r"within 0\.05 s \(query-timeout\)"):
        parley.run(job, out=tmp_path / "run")


def test_a_timeout_without_a_query_is_refused():
    with pytest.raises(JobError, match=r"data\.query-timeout = 600.*needs data\.query"):
        load_job(overrides=["data.query-timeout=5"])


def test_records_in_memory_next_to_a_source_are_refused_with_a_remedy_that_works(tmp_path):
    x = np.linspace(0, 1, 200)
    data = {"x": x, "y": (x > 0.5).astype(int)}
    sets = ["data.source=other.csv", "parties.count=2"]
    with pytest.raises(JobError, match=r"'other\.csv'.* data\.source = \"\"") as refused:
        parley.run(load_job(overrides=sets), data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    told = str(refused.value).rpartition("the job ")[2].rstrip(".")
    run = parley.run(load_job(overrides=[*sets, told]), data=data, out=tmp_path / "run")
    assert run.summary.rounds_done
