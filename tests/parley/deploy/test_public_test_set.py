"""A real run's model on public records of its server: what it says, and when it is refused."""

from __future__ import annotations

import csv
import json
import random

import numpy as np
import pytest
from attending import NAMES, Consortium

import parley
from parley.client.data.data_error import DataError
from parley.client.data.schema import SchemaError
from parley.deploy.public_test_set import load_test_set
from parley.presentation.result_text import format_public_test
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_reader import read_summary
from parley.server.statements.model_shortcoming import find_shortcoming

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 120] }
glucose = { kind = "numeric", range = [40, 250] }
outcome = { kind = "label", positive = "yes", negative = "no" }
"""
POLICY = """
[data.ward]
path = "ward.csv"
schema = "ward.schema.toml"
epsilon = 60.0
delta = 1e-4
"""


def rows(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        age, glucose = rng.randint(20, 90), rng.randint(60, 200)
        yield age, glucose, "yes" if glucose + rng.gauss(0, 15) > 120 else "no"


def write(path, seed, count):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("age", "glucose", "outcome"), *rows(seed, count)])


@pytest.fixture
def ward(tmp_path):
    """A consortium of wards with a schema of their own; the server has public records."""
    consortium = Consortium(tmp_path)
    for seed, name in enumerate(NAMES):
        home = consortium.home(name)
        write(home / "ward.csv", seed, 300)
        (home / "ward.schema.toml").write_text(SCHEMA)
        with (home / "party.toml").open("a") as policy:
            policy.write(POLICY)
    write(tmp_path / "public.csv", 99, 200)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    yield consortium
    consortium.close()


def job_of(tmp_path, **more):
    words = {
        "parties.count": "3",
        "parties.min-records": "300",
        "algorithm.rounds": "2",
        "privacy.epsilon": "5",
        "data.source": "ward",
        "data.test-fraction": "0",
        "data.test-source": f"{tmp_path}/public.csv",
        "data.test-schema": f"{tmp_path}/schema.toml",
        "secure-aggregation.backend": "masked",
        "run.seed": "5",
        **more,
    }
    return load_job(overrides=[f"{key}={value}" for key, value in words.items()])


def test_a_servers_public_records_measure_the_model_at_no_cost(ward, tmp_path):
    serving = ward.serve()
    ward.everybody()
    plain = job_of(tmp_path, **{"data.test-source": "", "data.test-schema": ""})
    without = ward.submit(plain, schema=SCHEMA)
    name = ward.submit(job_of(tmp_path))
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA.replace("[40, 250]", "[40, 251]"))
    refused = ward.submit(job_of(tmp_path, **{"data.test-schema": str(other)}))
    another = ward.submit(plain, schema=other.read_text())
    with pytest.raises(SchemaError, match="the operator's schema"):
        ward.submit(plain, schema="[columns]\n")
    ended = [serving.run_next().state for _ in range(4)]
    assert ended == ["complete", "complete", "failed", "failed"]
    runs = ward.runs
    summary = read_summary(runs / name)
    # Independently: labels by name, counted.
    model = parley.load_model(runs / name)  # it has its schema with it
    table = np.array(list(rows(99, 200)))
    columns = {"age": table[:, 0].astype(float), "glucose": table[:, 1].astype(float)}
    said = model.predict(columns)
    judged = summary.public_test.judgement
    assert summary.public_test.records == 200
    assert judged.labels == ("no", "yes")
    for truth, row in zip(judged.labels, judged.confusion, strict=True):
        assert row == tuple(
            ((table[:, 2] == truth) & (said == each)).sum() for each in judged.labels
        )
    assert f"accuracy {(said == table[:, 2]).mean():.4g}" in format_public_test(summary)
    # What is said first is of public records, and no simulation's.
    wrong = find_shortcoming(judged, records="public records")
    assert summary.verdict == (f"{wrong}." if wrong else "")
    assert summary.simulation_only == ()
    # No release and no cost: all else is as without it.
    before = read_summary(runs / without)
    assert before.verdict == ""
    assert before.public_test is None
    # An operator's copy of the schema is with the model, as the test set's is.
    assert (parley.load_model(runs / without).predict(columns) == said).all()
    assert format_public_test(before) == ""
    assert summary.guarantees == before.guarantees
    assert summary.accuracy is None
    assert summary.simulation_only == ()
    assert "accuracy" not in (runs / name / "rounds.jsonl").read_text()
    # A schema that means something else is refused before anything is spent.
    for run, words in (
        (refused, "Give the server a copy of their file"),
        (another, "Expected data.schema"),
    ):
        assert words in json.loads((runs / run / "error.json").read_text())["message"]
        assert not (runs / run / "run-id").exists()


def test_who_submits_from_elsewhere_names_no_test_set(ward, tmp_path):
    ward.serve()
    with pytest.raises(JobError, match=r"address in data\.test-source of"):
        ward.submit(job_of(tmp_path), by="operator")


def test_a_test_set_that_cannot_be_read_is_said_before_a_run(tmp_path):
    write(tmp_path / "public.csv", 99, 20)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    assert len(load_test_set(job_of(tmp_path)).labels) == 20
    with pytest.raises(JobError, match=r"the server's copy of their schema file"):
        load_test_set(job_of(tmp_path, **{"data.test-schema": ""}))
    (tmp_path / "public.csv").write_text("age,glucose,outcome\n1,2,maybe\n")
    with pytest.raises(DataError, match="maybe"):
        load_test_set(job_of(tmp_path))
