"""Statistics need no label; a model does, and its error says so."""

import pytest

import parley
from parley.client.contract.refusals import Declined
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.schema_check import check_file
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import RAW_COLUMNS, load_dataset

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["a", "b"] }
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA)
    rows = "".join(f"{20 + k},{'ab'[k % 2]}\n" for k in range(50))
    (tmp_path / "d.csv").write_text("age,ward\n" + rows)
    return tmp_path


def test_a_session_computes_statistics_under_a_schema_without_a_label(files):
    with parley.Session(
        files / "d.csv", schema=files / "s.toml", parties=2, epsilon=1, seed=1, out=files / "s"
    ) as session:
        counts = session.group_by("ward").count(epsilon=0.5)
        assert session.mean("age", epsilon=0.4).value == pytest.approx(44.5, abs=30)
        assert len(counts.table["value"]) == 3  # a, b and (missing)
    with parley.Session(files / "d.csv", resume=files / "s") as again:
        assert len(again.answers) == 2


def test_frames_without_a_label_are_records_of_a_session(files):
    frame = {"age": [30.0] * 40, "ward": ["a", "b"] * 20}
    schema = Schema.from_toml(SCHEMA)
    with parley.Session(frame, schema=schema, parties=2, epsilon=1, out=files / "s") as session:
        session.mean("age", epsilon=0.4)


def test_a_file_is_checked_and_a_party_serves_it_for_queries_alone(files):
    assert check_file(files / "d.csv", Schema.from_toml(SCHEMA)).problems == ()
    dataset = DatasetConfig.model_validate(
        {"path": "d.csv", "schema": "s.toml", "epsilon": 1, "delta": 0}
    )
    assert load_dataset(dataset, files, label=RAW_COLUMNS, intercept=False).table.records == 50
    for label in ("logistic", "network", "ridge"):
        with pytest.raises(Declined, match="This schema has no label"):
            load_dataset(dataset, files, label=label, intercept=False)


def test_a_model_says_that_it_needs_a_label(files):
    job = parley.load_job(
        overrides=[f"data.source='{files}/d.csv'", f"data.schema='{files}/s.toml'"]
    )
    with pytest.raises(SchemaError, match="This schema has no label"):
        parley.run(job, out=files / "run")
    planned = job.model_copy(update={"parties": job.parties.model_copy(update={"min_records": 20})})
    with pytest.raises(SchemaError, match="This schema has no label"):
        parley.plan(planned)
