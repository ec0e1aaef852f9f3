"""A simulation on a database's rows: what `[data]` says, and that the rows' order says nothing."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from parley.client.data.data_error import DataError
from parley.safe_io.toml_reading import parse_toml
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.machine_references import check_submission
from parley.server.jobs.section_base import JobError
from parley.simulations.data.experiment_loading import load_experiment, prepare_data
from parley.simulations.data.row_cache import cache_data
from parley.simulations.engine.fast_engine import simulate

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "ignore" }
sick = { kind = "label", positive = 1, negative = 0 }
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    with sqlite3.connect(tmp_path / "ward[1].db") as connection:  # no glob
        connection.execute("CREATE TABLE visits (age INTEGER, ward TEXT, sick INTEGER)")
        rows = [(at % 100, f"w{at % 3}", at % 100 > 50) for at in range(200)]
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    connection.close()

    def made(*overrides):
        return load_job(
            overrides=[
                f"data.source='sqlite:///{tmp_path}/ward[1].db'",
                "data.query='SELECT * FROM visits ORDER BY random()'",
                f"data.schema='{tmp_path}/schema.toml'",
                "parties.count=3",
                "algorithm.rounds=2",
                "run.seed=1",
                f"run.out='{tmp_path}/runs'",
                *overrides,
            ]
        )

    return made


@pytest.mark.parametrize(
    "split",
    [
        ["data.records=90"],
        ["data.partition=column", "data.partition-column=ward"],
        ["data.partition=dirichlet", "parties.min-records=10"],
    ],
)
def test_a_seeded_run_is_the_same_in_whatever_order_the_rows_come(job, tmp_path, split):
    first, second = (simulate(job(*split), out=tmp_path / name) for name in ("a", "b"))
    np.testing.assert_array_equal(first.theta, second.theta)


def test_rows_of_a_database_are_kept_for_one_run_alone(job):
    own = job()
    held = load_experiment(own)
    assert held.data.fingerprint == held.data.contents
    assert len(held.data.row_digests) == 200
    with cache_data(own, lambda: prepare_data(own)) as (place, _):
        assert place.exists()
    assert not place.exists()
    assert load_job(values=parse_toml(render_job(own))) == own
    with pytest.raises(JobError, match=r"data\.source of a submission from another machine"):
        check_submission(own)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.query=''", "got a database without one"),
        ("data.source=ward", "got a query without one"),
        ("data.source=postgresql://me:s3cret@host/clinic", "a source without a password"),
        ("data.source=postgresql://me@host/clinic?password=s3cret", "a source without a password"),
        ("data.source=postgresql://me@host/clinic", "source = 'env:NAME'"),
    ],
)
def test_a_job_names_a_query_beside_a_database_and_no_password(job, override, named):
    with pytest.raises(JobError) as caught:
        job(override)
    assert named in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_query_that_gives_none_ends_the_run_before_it_begins(job, tmp_path):
    with pytest.raises(DataError, match="at least one record, got none"):
        simulate(job("data.query='SELECT * FROM visits WHERE age > 1000'"), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
