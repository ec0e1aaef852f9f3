"""Synthetic tables end to end: engines, the files that are left, sampling, and what is refused."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from parley.cli import app
from parley.client.data.schema import load_schema
from parley.client.data.schema_check import check_file
from parley.commands.sample import sample_table
from parley.prediction.model_loading import load_model
from parley.run_api import run
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import ModelFileError, encode_model
from parley.server.synthetic.generation import GenerationError
from parley.simulations.engine.fast_engine import simulate

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100], bins = 5, step = 1 }
id = { kind = "ignore" }
ward = { kind = "categorical", categories = ["A", "B"], other = true }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
RECORDS = 1200


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    age = rng.integers(0, 101, RECORDS)
    sick = rng.random(RECORDS) < age / 120
    frame = pl.DataFrame(
        {
            "age": age,
            "id": [f"p{i}" for i in range(RECORDS)],
            "ward": rng.choice(["A", "B", "C"], RECORDS),
            "sick": np.where(sick, "yes", "no"),
        }
    )
    frame.write_csv(folder / "people.csv")
    (folder / "people.schema.toml").write_text(SCHEMA)
    return folder


def job_of(data, *overrides):
    return load_job(
        overrides=[
            "algorithm.kind=marginals",
            "algorithm.components=40",
            "algorithm.steps=120",
            "model.kind=table",
            f"data.source={data / 'people.csv'}",
            f"data.schema={data / 'people.schema.toml'}",
            "parties.count=4",
            "privacy.epsilon=2",
            "privacy.delta=1e-5",
            "run.noise-shares=full",
            "run.seed=3",
            *overrides,
        ]
    )


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    return run(job_of(data), out=tmp_path_factory.mktemp("runs") / "run")


def test_a_run_leaves_a_table_that_its_own_schema_reads(made, data):
    table = made.summary.synthetic
    assert table.path == "synthetic.csv"
    assert table.tables == 3
    assert abs(table.records - 0.8 * RECORDS) < 8 * made.summary.primary.noise.scale_of_sum
    assert table.rows == round(table.records)
    found = check_file(made.folder / "synthetic.csv", load_schema(data / "people.schema.toml"))
    assert found.problems == ()
    frame = pl.read_csv(made.folder / "synthetic.csv")
    assert frame.columns == ["age", "id", "ward", "sick"]
    assert frame["id"].null_count() == len(frame)
    assert set(frame["ward"]) == {"A", "B", "(other)"}
    assert frame["age"].is_between(0, 100).all()


def test_what_looks_at_records_is_a_simulations_alone_and_says_so(made):
    table = made.summary.synthetic
    assert table.tv2 < 0.2
    assert table.tstr_auc > 0.6 > 0.2 < table.independent_auc
    commonest = pl.read_csv(made.folder / "synthetic.csv")["sick"].value_counts(normalize=True)
    assert table.majority_accuracy == pytest.approx(commonest["proportion"].max(), abs=0.1)
    assert table.tstr_accuracy > table.majority_accuracy
    looked = {"synthetic.tv1", "synthetic.tstr_auc", "synthetic.majority_accuracy"}
    assert looked <= set(made.summary.simulation_only)
    said = json.loads((made.folder / "summary.json").read_text())["synthetic"]
    assert said["rows"] == table.rows
    page = (made.folder / "report.html").read_text()
    assert "The synthetic records" in page
    assert "most common value" in page
    assert "always predicting the most common label" in page


def test_real_parties_give_the_same_release_to_the_bit(made, data, among_parties):
    summary, folder, theta = among_parties(job_of(data), schema=SCHEMA)
    np.testing.assert_array_equal(theta, made.theta)
    rows = [(place / "synthetic.csv").read_bytes() for place in (made.folder, folder)]
    assert rows[0] == rows[1]
    assert summary.synthetic.tv1 is None
    assert summary.simulation_only == ()


def test_a_server_without_the_parties_schema_is_told_what_is_missing(data, among_parties):
    with pytest.raises(JobError, match="the parties' schema"):
        among_parties(job_of(data))


def test_a_run_killed_while_fitting_fits_again_and_pays_once(data, tmp_path, monkeypatch):
    from parley.server.synthetic import generation

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(generation, "generate_synthetic", killed)
        with pytest.raises(KeyboardInterrupt):
            simulate(job_of(data), out=tmp_path / "run")
    assert not (tmp_path / "run" / "synthetic.csv").exists()
    resumed = simulate(None, resume=tmp_path / "run")
    whole = simulate(job_of(data), out=tmp_path / "whole")
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    assert resumed.summary.primary.epsilon == whole.summary.primary.epsilon
    assert resumed.summary.ledger_head.records == whole.summary.ledger_head.records
    one, other = ((tmp_path / name / "synthetic.csv").read_bytes() for name in ("run", "whole"))
    assert one == other


def test_sampling_needs_the_model_file_alone_and_repeats_its_statement(made, tmp_path):
    lone = tmp_path / "elsewhere.safetensors"
    shutil.copy(made.folder / "model.safetensors", lone)
    arguments = ["sample", str(lone), "--rows", "500", "--seed", "7", "--out"]
    for name in ("one.csv", "two.csv"):
        done = CliRunner().invoke(app, [*arguments, str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    assert "ε" in done.output or "no privacy guarantee" in done.output
    assert "Sampling costs nothing more." in done.output
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert len(pl.read_csv(tmp_path / "one.csv")) == 500
    sample_table(lone, rows=500, seed=8, out=tmp_path / "three.csv")
    assert (tmp_path / "one.csv").read_bytes() != (tmp_path / "three.csv").read_bytes()
    with pytest.raises(ModelFileError, match="a new file"):
        sample_table(lone, rows=500, seed=8, out=tmp_path / "three.csv")
    with pytest.raises(ModelFileError, match=r"--rows from 1"):
        sample_table(lone, rows=0, seed=8, out=tmp_path / "four.csv")
    with pytest.raises(ModelFileError, match="Expected a run with a model"):
        load_model(lone)


def test_a_file_without_a_generator_or_with_a_damaged_one_is_refused(made, opened, tmp_path):
    tensors, metadata = opened(made.folder)

    def refused(kept, described):
        (tmp_path / "model.safetensors").write_bytes(encode_model(kept, described))
        with pytest.raises(ModelFileError, match="Expected"):
            sample_table(tmp_path, rows=5, seed=0, out=tmp_path / "rows.csv")

    refused({"theta": tensors["theta"]}, metadata)
    for shares in (np.full_like(tensors["shares"], np.nan), tensors["shares"][:, 1:].copy()):
        refused({"theta": tensors["theta"], "shares": shares}, metadata)
    described = json.loads(metadata["parley.model"])
    for changed in (
        {"features": None},
        {"features": ["digest"]},
        {"task": {**described["task"], "kind": ["marginals"]}},
        {"task": {**described["task"], "sizes": [65536, 64, 2]}},
        {"schema": SCHEMA.replace("bins = 5", "bins = 50")},
        {"schema": SCHEMA.replace("ward =", 'x = { kind = "numeric", range = [0, 1] }\nward =')},
        {"schema": "[["},
    ):
        refused(tensors, {**metadata, "parley.model": json.dumps({**described, **changed})})
    assert not (tmp_path / "rows.csv").exists()
    (tmp_path / "model.safetensors").write_bytes(
        encode_model(tensors, {**metadata, "parley.statement": "\x1b[2J!"})
    )
    arguments = ["sample", str(tmp_path), "--rows", "5", "--out", str(tmp_path / "rows.csv")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "\x1b" not in done.output


def test_a_release_that_says_there_is_nobody_makes_no_table_and_stays_charged(data, tmp_path):
    # Twelve records under the noise of ε = .001: every other seed has a negative total.
    for seed in range(20):
        job = job_of(data, "data.records=15", "privacy.epsilon=0.001", f"run.seed={seed}")
        try:
            simulate(job, out=tmp_path / str(seed))
        except GenerationError as error:
            assert "stays charged" in str(error)  # noqa: PT017 - of one seed among twenty
            assert (tmp_path / str(seed) / "rounds.jsonl").read_text().count("\n") == 1
            return
    pytest.fail("Expected a release with a negative total among twenty.")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("privacy.delta=0", "privacy.delta > 0"),
        ("privacy.unit=party", "privacy.unit"),
        ("privacy.unit=both", "privacy.unit"),
        ("parties.weights=size", "parties.weights"),
        ("model.kind=logistic", "model.kind to be one of 'table'"),
        ("privacy.noise=l2-laplace", "privacy.noise"),
        ("algorithm.rows=0", "rows"),
        ("algorithm.components=0", "components"),
        ('algorithm.pairs=[["age", "height"]]', "'height'"),
        ('algorithm.pairs=[["age", "age"]]', "different pairs"),
        ('algorithm.pairs=[["age", "ward"], ["ward", "age"]]', "different pairs"),
        ("algorithm.pairs=[]", "at least one pair"),
        ("algorithm.pairs=some", "pairs"),
    ],
)
def test_jobs_that_make_no_sense_are_refused_before_anything_is_spent(
    data, tmp_path, override, said
):
    with pytest.raises(JobError, match=said):
        simulate(job_of(data, override), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_many_cells_are_refused_with_the_columns_that_cause_them(data, tmp_path):
    wide = SCHEMA.replace("bins = 5, step = 1", "bins = 65536")
    wide = wide.replace("id = {", 'b = { kind = "numeric", range = [0, 1], bins = 600 }\nid = {')
    (tmp_path / "wide.schema.toml").write_text(wide)
    # A row is 66,000 numbers wide when the job is refused.
    frame = pl.read_csv(data / "people.csv").head(200).with_columns(b=0.5)
    frame.write_csv(tmp_path / "people.csv")
    job = job_of(
        data,
        f"data.schema={tmp_path / 'wide.schema.toml'}",
        f"data.source={tmp_path / 'people.csv'}",
    )
    with pytest.raises(JobError, match=r"age \(65,536 values\), b \(600 values\)"):
        simulate(job, out=tmp_path / "run")
