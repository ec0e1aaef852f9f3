"""A schema plans by itself; records are read by it only if data.source names them."""

import pytest

import parley
from parley.client.data.data_error import DataError
from parley.run_request import build_run_request
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.rounds.party_facts import format_served_name
from parley.simulations.data.experiment_loading import load_experiment

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
dose = { kind = "numeric", range = [0, 7] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCHEMA)
    return f"data.schema='{path}'"


def test_a_plan_is_of_the_schemas_columns(schema):
    outlook = parley.plan(load_job(overrides=[schema, "parties.min-records=50"]))
    assert outlook.dimension == 3  # age, dose and the intercept


def test_a_run_without_a_source_names_the_key(schema):
    with pytest.raises(JobError, match=r"Expected data\.source with data\.schema = .*s\.toml"):
        load_experiment(load_job(overrides=[schema]))


def test_a_schema_that_does_not_exist_is_no_run_on_bundled_data():
    job = load_job(overrides=["data.schema=nosuch.toml"])
    with pytest.raises(JobError, match=r"data\.source"):
        load_experiment(job)


@pytest.mark.parametrize("source", ["breast-cancer", "digits", "synthetic"])
def test_a_bundled_source_next_to_a_schema_is_refused(source, schema):
    job = load_job(overrides=[schema, f"data.source={source}", "parties.min-records=50"])
    for refuse in (load_experiment, parley.plan):
        with pytest.raises(JobError, match=f"got the bundled '{source}'"):
            refuse(job)


def test_a_job_for_real_parties_needs_the_name_of_their_data(schema):
    with pytest.raises(JobError, match=r"data\.source or privacy\.dataset"):
        format_served_name(load_job(overrides=[schema]))
    assert format_served_name(load_job(overrides=[schema, "data.source=ward"])) == "ward"


def test_frames_in_memory_refuse_a_partition(schema):
    job = load_job(overrides=[schema, "data.partition=dirichlet", "parties.count=2"])
    columns = {"age": [30.0] * 20, "dose": [1.0] * 20, "sick": ["yes", "no"] * 10}
    with pytest.raises(JobError, match=r"data\.partition = 'iid' .*one table"):
        parley.run(job, data=[columns, columns])


@pytest.mark.parametrize("reads_data", [True, False])
@pytest.mark.parametrize("more", [{}, {"data": "digits"}, {"schema": "s.toml", "data": "d.csv"}])
def test_a_label_that_has_no_effect_is_refused_by_plan_and_run(more, reads_data):
    with pytest.raises(JobError, match="Expected data with schema or label, got label = 'y' and"):
        build_run_request(label="y", reads_data=reads_data, **more)


@pytest.mark.parametrize("label", [None, "y"])
@pytest.mark.parametrize("source", ["nosuch.csv", "nosuch-*.csv"])
def test_files_that_are_absent_are_named_with_no_advice_to_read_them(
    source, label, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="nosuch") as refused:
        parley.run(data=source, label=label)
    assert "schema infer" not in str(refused.value)
