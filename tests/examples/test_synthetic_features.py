"""Synthetic tables and images by random features: real parties, files, sampling, bad input."""

import numpy as np
import polars as pl
import pytest

from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, load_schema
from parley.commands.sample import sample_table
from parley.planning.plan_job import plan
from parley.run_api import run
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import ModelFileError, encode_model
from parley.simulations.engine.fast_engine import simulate

PEOPLE = """
[columns]
age = { kind = "numeric", range = [0, 100], bins = 5, step = 1 }
ward = { kind = "categorical", categories = ["A", "B"], other = true }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
IMAGES = """
[columns]
picture = { kind = "array", shape = [6, 6], range = [0, 255], centre = 0 }
bar = { kind = "label", classes = [0, 1] }
spare = { kind = "ignore" }
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    age = rng.integers(0, 101, 600)
    frame = {
        "age": age,
        "ward": rng.choice(["A", "B", "C"], 600),
        "sick": np.where(rng.random(600) < age / 100, "yes", "no"),
    }
    pl.DataFrame(frame).write_csv(folder / "people.csv")
    (folder / "people.schema.toml").write_text(PEOPLE)
    # A bright column or a bright row.
    bars = rng.integers(0, 2, 400)
    pictures = rng.integers(0, 40, (400, 6, 6))
    pictures[bars == 0, :, 2] += 180
    pictures[bars == 1, 4, :] += 180
    np.savez(
        folder / "images.npz", picture=pictures.astype(np.uint8), bar=bars, spare=np.zeros(400)
    )
    (folder / "images.schema.toml").write_text(IMAGES)
    return folder


def job_of(data, name, *overrides):
    source = {"people": "people.csv", "images": "images.npz"}[name]
    return load_job(
        overrides=[
            "algorithm.kind=random-features",
            "algorithm.frequencies=60",
            "algorithm.steps=150",
            "model.kind=table",
            f"data.source={data / source}",
            f"data.schema={data / f'{name}.schema.toml'}",
            "parties.count=4",
            "privacy.epsilon=4",
            "privacy.delta=1e-5",
            "run.noise-shares=full",
            "run.seed=3",
            *overrides,
        ]
    )


@pytest.fixture(scope="module", params=["people", "images"])
def made(request, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return request.param, run(job_of(data, request.param), out=folder / "run")


def test_records_read_by_the_schema_that_made_them_and_real_parties_make_the_same(
    made, data, among_parties
):
    name, done = made
    table, schema = done.summary.synthetic, load_schema(data / f"{name}.schema.toml")
    assert table.path == {"people": "synthetic.csv", "images": "synthetic.npz"}[name]
    assert abs(table.records - {"people": 480, "images": 320}[name]) < 60
    kind = {"people": "logistic", "images": "softmax"}[name]
    assert len(read_records(done.folder / table.path, schema, kind)) == table.rows
    assert (table.tstr_auc or table.tstr_accuracy) > 0.6
    assert table.tstr_accuracy > table.majority_accuracy > 0.3
    assert 0.3 < table.membership_auc < 0.7
    page = (done.folder / "report.html").read_text()
    assert ("data:image/png" in page) == (name == "images")
    assert "not evidence of privacy" in page
    own = (data / f"{name}.schema.toml").read_text()
    summary, folder, theta = among_parties(job_of(data, name), schema=own)
    assert (folder / table.path).read_bytes() == (done.folder / table.path).read_bytes()
    np.testing.assert_array_equal(theta, done.theta)
    assert summary.synthetic.membership_auc is None
    assert summary.simulation_only == ()


def test_a_model_file_alone_gives_more_and_a_damaged_one_nothing(made, opened, tmp_path):
    name, done = made
    suffix = {"people": ".csv", "images": ".npz"}[name]
    for out in ("one", "two"):
        sample_table(done.folder, rows=70, seed=7, out=tmp_path / f"{out}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    tensors, metadata = opened(done.folder)
    hostile = next(key for key in tensors if key.endswith("running_var"))
    for key, value in (
        ("shares", np.full(2, np.nan, np.float32)),
        ("shares", np.array([2, -1], np.float32)),
        (hostile, -np.ones_like(tensors[hostile])),
        (hostile, np.full_like(tensors[hostile], np.inf)),
        (hostile, tensors[hostile][:-1].copy()),
        (hostile.replace("running_var", "weight"), np.full_like(tensors[hostile], 3e38)),
    ):
        (tmp_path / "model.safetensors").write_bytes(
            encode_model({**tensors, key: value}, metadata)
        )
        with pytest.raises(ModelFileError, match="Expected"):
            sample_table(tmp_path, rows=5, seed=0, out=tmp_path / f"rows{suffix}")
    assert not (tmp_path / f"rows{suffix}").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_plan_says_how_long_the_noise_on_the_mean_is(data):
    public = ("parties.min-records=80", "privacy.noise-point=server", "privacy.epsilon=1")
    found = plan(job_of(data, "images", *public)).synthetic
    assert found.released.endswith("242 coordinates")
    assert found.noise == pytest.approx(7.46126327, rel=1e-4)
    assert found.noise_norm == pytest.approx(found.noise * 242**0.5 / 320)


@pytest.mark.parametrize(
    ("name", "override", "said"),
    [
        ("people", "privacy.delta=0", "privacy.delta > 0"),
        ("people", "privacy.unit=party", "privacy.unit"),
        ("people", "parties.weights=size", "parties.weights"),
        ("people", "algorithm.frequencies=0", "frequencies"),
        ("people", "algorithm.length-scale=0", "length-scale"),
        ("people", "algorithm.length-scale=1e-5", "larger algorithm.length-scale"),
        ("people", "algorithm.frequencies=1048576", "coordinates"),
        ("images", "algorithm.frequencies=900000", "weights"),
    ],
)
def test_jobs_that_make_no_sense_are_refused_before_anything_is_spent(
    data, tmp_path, name, override, said
):
    with pytest.raises(JobError, match=said):
        simulate(job_of(data, name, override), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_that_are_not_square_and_labels_of_a_range_are_refused(data, tmp_path):
    for change, said in (
        (("[6, 6]", "[4, 9]"), "square images"),
        (("classes = [0, 1]", "range = [0, 1]"), "positive and negative"),
    ):
        schema = tmp_path / "other.schema.toml"
        schema.write_text(IMAGES.replace(*change))
        Schema.from_toml(schema.read_text())
        job = job_of(data, "images", f"data.schema={schema}", "parties.min-records=80")
        with pytest.raises(Exception, match=said):
            plan(job)
