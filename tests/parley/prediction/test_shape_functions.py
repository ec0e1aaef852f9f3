"""Shapes add up to the model's own answers, and their bands to the noise that was drawn."""

import json
import re

import numpy as np
import polars as pl
import pytest
from commands import invoked

import parley
from parley.client.data.memory_table_format import build_table
from parley.client.data.training_records import encode_features
from parley.prediction.model_loading import load_model
from parley.prediction.shape_functions import compute_shapes

SCHEMA = """
scaling = "schema"
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["north", "south"] }
stay = { kind = "numeric", range = [0, 50], transform = "log1p" }

[columns.sick]
kind = "label"
positive = ["yes"]
negative = ["no"]
classes = ["no", "yes", "dead"]
range = [0, 10]
"""
HATS = ("model.features=hats", "model.intercept=false")
BINS = ("model.features=bins", "model.intercept=false", "model.feature-settings.bins=4")


def run_of(folder, *overrides, kind="logistic"):
    rng = np.random.default_rng(5)
    labels = {"logistic": ["no", "yes"], "softmax": ["no", "yes", "dead"], "ridge": range(11)}
    frame = pl.DataFrame(
        {
            "age": rng.integers(0, 101, 300),
            "ward": rng.choice(["north", "south"], 300),
            "stay": rng.integers(0, 51, 300),
            "sick": rng.choice(list(labels[kind]), 300),
        }
    )
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    frame.write_csv(folder / "rows.csv")
    job = parley.load_job(
        overrides=[
            *(f"data.source={folder}/rows.csv", f"data.schema={folder}/schema.toml"),
            *("parties.count=2", "algorithm.rounds=3", "run.seed=4", f"model.kind={kind}"),
            *("secure-aggregation.masked-check=false", *overrides),
        ]
    )
    result = parley.run(job, out=folder / "run")
    return frame, result


def at(shape, value):
    """The contributions there, by label."""
    if shape.drawn == "bars":
        return {of: curve[shape.names.index(value)] for of, curve in shape.curves.items()}
    if shape.drawn == "steps":
        inside = np.searchsorted(shape.values[1:-1], value, side="right")
        return {of: curve[inside] for of, curve in shape.curves.items()}
    return {of: np.interp(value, shape.values, curve) for of, curve in shape.curves.items()}


@pytest.mark.parametrize("kind", ["logistic", "softmax", "ridge"])
@pytest.mark.parametrize("features", [(), HATS, BINS])
def test_shapes_and_constant_are_the_models_margin(kind, features, tmp_path):
    _, result = run_of(tmp_path, *features, kind=kind)
    model = load_model(result.folder)
    shapes = compute_shapes(model, result.summary)
    wards = ["north", "south", "south"]
    rows = pl.DataFrame({"age": [0, 25, 100], "ward": wards, "stay": [0, 50, 0]})
    raw = model.encode_rows(rows)
    margins = np.atleast_2d(model.compute_scores(raw).T)
    if features == HATS:  # such rows are divided by their own length
        table = build_table(
            {"age": np.array([0, 25, 100]), "ward": np.array(wards), "stay": np.array([0, 50, 0])},
            model.schema,
            path="t",
        )
        cells = encode_features(table, model.schema.unscaled)[0]
        own = np.linalg.norm(model.features.bind(model.schema).compute(cells), axis=1)
        margins = margins * own / shapes.row_length
    if kind == "softmax":
        margins = margins - margins.mean(axis=0)
    if kind == "ridge":
        margins = margins * 5
    for row in range(3):
        parts = [at(shape, rows[shape.name][row]) for shape in shapes.columns]
        for label, margin in zip(shapes.constants, margins[:, row], strict=True):
            total = shapes.constants[label] + sum(part[label] for part in parts)
            assert total == pytest.approx(margin, abs=5e-4)  # rows are on a grid of 2^-16
    for shape in shapes.columns:
        assert all(abs(np.mean(curve)) < 1e-12 for curve in shape.curves.values())
    spreads = [each.spread for each in shapes.columns]
    assert spreads == sorted(spreads, reverse=True)


def test_the_band_is_the_noise_on_the_model_of_one_release(tmp_path):
    output = ("algorithm.kind=output-perturbation", "algorithm.rounds=1", *BINS)
    _, result = run_of(tmp_path, *output, "privacy.noise=gaussian")
    noise = result.summary.primary.noise
    sd = noise.expected_norm / result.summary.dimension**0.5
    ward = next(
        s for s in compute_shapes(load_model(result.folder), result.summary).columns if s.names
    )
    expected = 1.96 * sd * np.sqrt(1 - 1 / 2) / np.sqrt(3)
    np.testing.assert_allclose(ward.band, expected)
    assert compute_shapes(load_model(result.folder)).columns[0].band is None
    _, pure = run_of(tmp_path / "pure", *output, "privacy.noise=l2-laplace")
    noise = pure.summary.primary.noise
    sd = noise.expected_norm / pure.summary.dimension**0.5
    ward = next(s for s in compute_shapes(load_model(pure.folder), pure.summary).columns if s.names)
    np.testing.assert_allclose(ward.band, 2.98 * sd * np.sqrt(1 - 1 / 2) / np.sqrt(3))


def test_show_has_every_column_one_in_full_and_json(tmp_path):
    _, result = run_of(tmp_path, *HATS)
    short = invoked("show", result.folder).output.splitlines()
    assert short[0] == "Logistic regression on 3 columns, predicts sick: no, yes"
    shown = invoked("show", "-v", result.folder).output
    assert "the log-odds of yes" in shown
    assert re.search(r"age +[▁-█]{5} +.* at .*± 0\.\d+", shown)
    whole = invoked("show", result.folder, "--column", "ward").output
    assert re.search(r"north +−?0\.\d+ +0\.\d+", whole)
    told = invoked("show", result.folder, "--json").output
    columns = json.loads(told)["shapes"]["columns"]
    assert {each["name"] for each in columns} == {"age", "ward", "stay"}
    wrong = invoked("show", result.folder, "--column", "agee")
    assert "such as ['age'" in str(wrong.exception)
    page = (result.folder / "report.html").read_text()
    assert "Contribution of each column" in page
    assert "The grey band shows how far the noise alone can move a curve" in page


def test_a_network_and_features_that_mix_columns_have_none(tmp_path):
    _, result = run_of(tmp_path, "model.features=random-fourier", "model.intercept=false")
    assert compute_shapes(load_model(result.folder), result.summary) is None
    assert "Contribution of each column" not in (result.folder / "report.html").read_text()
    shown = invoked("show", result.folder, "--column", "age")
    assert "Expected a linear model" in str(shown.exception)
