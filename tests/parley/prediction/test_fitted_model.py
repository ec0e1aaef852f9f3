"""A model file predicts what the run measured, names labels, and never runs code."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import invoked
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import parley
from parley.client.data.data_error import DataError
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.commands.predict import predict_file, show
from parley.commands.sample import sample_table
from parley.prediction.model_loading import load_model
from parley.server.model_file import ModelFileError, encode_model, open_model
from parley.simulations.data.bundled_datasets import BUNDLED

SCHEMA = """
scaling = "record"
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["north", "south"] }
id = { kind = "ignore" }
sick = { kind = "label", positive = ["yes"], negative = "rest" }
"""


def _job(*overrides):
    quick = ("run.seed=3", "parties.count=2", "algorithm.rounds=2", "privacy.epsilon=8")
    return parley.load_job(overrides=[*quick, "secure-aggregation.masked-check=false", *overrides])


def _patients(rows=400):
    rng = np.random.default_rng(5)
    age = rng.integers(0, 100, rows)
    ward = rng.choice(["north", "south"], rows)
    sick = np.where(age + 30 * (ward == "south") + rng.normal(0, 10, rows) > 60, "yes", "no")
    return pl.DataFrame({"id": np.arange(rows), "age": age, "ward": ward, "sick": sick})


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A run on a file of patients, held-out rows in a file of their own."""
    folder = tmp_path_factory.mktemp("patients")
    (folder / "schema.toml").write_text(SCHEMA)
    frame = _patients()
    frame.head(300).write_csv(folder / "train.csv")
    frame.tail(100).write_csv(folder / "test.csv")
    result = parley.run(
        _job(
            "model.features=none",
            f"data.source={folder / 'train.csv'}",
            f"data.schema={folder / 'schema.toml'}",
            f"data.test-source={folder / 'test.csv'}",
            "data.test-fraction=0",
        ),
        out=folder / "run",
    )
    return folder, result


def test_the_model_predicts_what_the_run_measured(patients):
    folder, result = patients
    frame = pl.read_csv(folder / "test.csv")
    model = load_model(folder / "run")
    right = model.predict(frame.drop("sick", "id")) == np.where(
        frame["sick"].to_numpy() == "yes", "yes", "not yes"
    )
    assert right.mean() == pytest.approx(result.summary.accuracy)
    chances = model.predict_proba(frame)
    assert model.classes_.tolist() == ["not yes", "yes"]
    np.testing.assert_allclose(chances.sum(1), 1)
    np.testing.assert_array_equal(chances[:, 1] >= 0.5, model.predict(frame) == "yes")
    columns = {name: frame[name].to_numpy() for name in ("ward", "age")}
    np.testing.assert_array_equal(model.predict(columns), model.predict(frame))


@pytest.mark.parametrize("kind", ["softmax", "ridge", "huber-svm"])
def test_every_loss_predicts_in_the_labels_own_terms(kind, tmp_path):
    job = _job("data.source=synthetic", "data.records=3000", f"model.kind={kind}")
    result = parley.run(job, out=tmp_path / "run")
    model = load_model(result.folder)
    columns = BUNDLED["synthetic"].columns(kind, 3000, 0)
    predicted = model.predict({"x": columns["x"]})
    truth = np.asarray(columns["y"], np.float64)
    if kind == "ridge":
        assert np.abs(predicted).max() <= 1
        assert np.corrcoef(predicted, truth)[0, 1] > 0.3
    else:
        assert np.mean(predicted == truth.astype(np.int64)) > 0.5
    if kind == "softmax":
        assert model.predict_proba({"x": columns["x"]}).shape == (3000, 3)
    else:
        with pytest.raises(ModelFileError, match="decision_function"):
            model.predict_proba({"x": columns["x"]})


@pytest.mark.parametrize("kind", ["mlp", "pca-mlp"])
def test_networks_predict_on_their_components(kind, tmp_path):
    job = _job(
        *("data.source=digits", "algorithm.kind=fedavg", f"model.kind={kind}"),
        *("model.hidden=[16]", "dp-sgd.local-steps=3", "dp-sgd.batch-size=50"),
        *(["model.components=8"] if kind == "pca-mlp" else []),
    )
    result = parley.run(job, out=tmp_path / "run")
    model = load_model(result.folder)
    images = BUNDLED["digits"].columns("softmax", 0, 0)["image"][:50]
    assert model.predict_proba({"image": images}).shape == (50, 10)
    assert set(model.predict({"image": images})) <= set(range(10))


def test_a_file_of_rows_needs_no_label_and_keeps_what_names_them(patients, tmp_path):
    folder, _ = patients
    model = load_model(folder / "run" / "model.safetensors")
    rows = pl.read_csv(folder / "test.csv").drop("sick").with_columns(extra=pl.lit("x"))
    rows.write_csv(tmp_path / "rows.csv")
    count, labels = predict_file(model, tmp_path / "rows.csv", tmp_path / "out.csv", keep="id")
    written = pl.read_csv(tmp_path / "out.csv")
    assert count == sum(labels.values()) == len(written) == 100
    assert written["id"].to_list() == rows["id"].to_list()
    assert written["prediction"].to_list() == model.predict(rows).tolist()
    chances = ["probability of not yes", "probability of yes"]
    assert written.columns == ["id", "prediction", *chances]
    with pytest.raises(ModelFileError, match="exists"):
        predict_file(model, tmp_path / "rows.csv", tmp_path / "out.csv")


def test_a_model_trained_on_a_csv_predicts_other_formats(tmp_path):
    """The draft of a schema says format = "csv". A file's suffix decides how that file is read."""
    ages = np.arange(80.0) % 40
    frame = pl.DataFrame({"age": ages, "sick": np.where(ages > 20, "yes", "no")})
    frame.write_csv(tmp_path / "d.csv")
    schema = tmp_path / "schema.toml"
    schema.write_text(infer_schema(tmp_path / "d.csv", label="sick").text)
    assert 'format = "csv"' in schema.read_text()
    frame.write_parquet(tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", **{name: frame[name].to_numpy() for name in ("age",)})
    assert check_file(tmp_path / "d.parquet", Schema.from_toml(schema.read_text())).problems == ()
    job = _job(f"data.source='{tmp_path}/d.csv'", f"data.schema='{schema}'", "privacy.epsilon=10")
    run = parley.run(job, out=tmp_path / "run")
    expected = run.model.predict(frame).tolist()
    for suffix in ("csv", "parquet", "npz"):
        assert run.model.predict(tmp_path / f"d.{suffix}").tolist() == expected
    with pytest.raises(SchemaError, match=r"Expected 'utf-8', .* got 'nosuch'"):
        predict_file(run.model, tmp_path / "d.csv", tmp_path / "out.csv", encoding="nosuch")


def test_a_file_is_predicted_like_its_frame(patients, tmp_path):
    folder, _ = patients
    model = load_model(folder / "run")
    frame = pl.read_csv(folder / "test.csv").drop("sick")
    expected = model.predict_proba(frame)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=30)
    frame.write_csv(tmp_path / "rows.csv", separator=";")
    for name in ("rows.parquet", "rows.csv"):
        np.testing.assert_array_equal(model.predict_proba(tmp_path / name), expected)


def test_a_threshold_answers_the_second_label_from_a_probability_on(patients, tmp_path):
    folder, _ = patients
    asked = ["predict", str(folder / "run"), str(folder / "test.csv")]
    frame = load_model(folder / "run").predict_proba(pl.read_csv(folder / "test.csv"))
    for threshold in (0.0, 0.3, 0.5, 1.0):
        out = tmp_path / f"{threshold}.csv"
        result = invoked(*asked, "--out", out, "--threshold", threshold)
        assert result.exit_code == 0, result.output
        said = pl.read_csv(out)["prediction"].to_numpy() == "yes"
        np.testing.assert_array_equal(said, frame[:, 1] >= threshold)


@pytest.mark.parametrize(
    ("kind", "threshold", "message"),
    [
        ("logistic", 1.5, "Expected a probability in [0, 1] as the threshold, got 1.5"),
        ("logistic", float("nan"), "Expected a probability in [0, 1] as the threshold, got nan"),
        ("huber-svm", float("inf"), "Expected a score as the threshold, got inf"),
        ("ridge", 0.5, "Expected a model with two labels for a threshold, got one of values"),
        ("softmax", 0.5, "Expected a model with two labels for a threshold, got one of 10 labels"),
    ],
)
def test_a_threshold_that_means_nothing_is_refused(kind, threshold, message, tmp_path):
    source = "digits" if kind == "softmax" else "synthetic"
    job = _job(f"data.source={source}", f"model.kind={kind}", "data.records=1000")
    model = load_model(parley.run(job, out=tmp_path / "run").folder)
    with pytest.raises(ModelFileError, match=re.escape(message)):
        model.predict(np.zeros((1, model.n_features_in_)), threshold=threshold)


def test_a_score_has_a_threshold_too(tmp_path):
    job = _job("data.source=synthetic", "model.kind=huber-svm", "data.records=1000")
    model = load_model(parley.run(job, out=tmp_path / "run").folder)
    columns = {"x": BUNDLED["synthetic"].columns("huber-svm", 1000, 0)["x"]}
    scores = model.decision_function(columns)
    positive = model.predict(columns, threshold=0.25) == model.classes_[1]
    np.testing.assert_array_equal(positive, scores >= 0.25)


def test_a_file_without_header_may_lack_the_label(patients, tmp_path):
    folder, _ = patients
    schema = SCHEMA.replace('"record"', '"record"\n[file]\nheader = false', 1)
    (tmp_path / "schema.toml").write_text(schema)
    model = load_model(folder / "run", schema=tmp_path / "schema.toml")
    rows = pl.read_csv(folder / "test.csv").select("age", "ward", "id")
    rows.write_csv(tmp_path / "rows.csv", include_header=False)
    assert predict_file(model, tmp_path / "rows.csv", tmp_path / "out.csv")[0] == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ward\nnorth\n", r"no column \['age'\]"),
        ("id\n1\n", r"no column \['age', 'ward'\]"),
        ("age,ward\nold,north\n", "line 2, column 'age': Expected a number, got 'old'"),
        ("age,ward\n3,west\n", "line 2, column 'ward': Expected one of the categories"),
        ("age,ward\nold,west\n", "(?s)Expected a number, got 'old'.*'ward': Expected one of the"),
        ("ward\nwest\n", r"(?s)no column \['age'\].*column 'ward': Expected one of the"),
        ("age,ward,age\n3,north,4\n", "every column name once"),
    ],
)
def test_rows_that_are_not_what_the_schema_says_are_named(patients, tmp_path, text, message):
    folder, _ = patients
    (tmp_path / "rows.csv").write_text(text)
    model = load_model(folder / "run")
    with pytest.raises(DataError, match=message):
        predict_file(model, tmp_path / "rows.csv", tmp_path / "out.csv")
    assert not list(tmp_path.glob("*out.csv*"))


def test_all_columns_of_a_frame_that_are_not_what_the_schema_says_are_listed(patients):
    model = load_model(patients[0] / "run")
    dates = np.array(["2026-01-01"], "datetime64[D]")
    with pytest.raises(DataError, match=r"(?s)'age': Expected.*datetime64.*'ward': Exp"):
        model.predict({"age": dates, "ward": dates})
    with pytest.raises(DataError, match=r"(?s)no column \['ward'\].*'age': Expected a column of n"):
        model.predict({"age": ["old"]})


def _rewritten(folder, target, change=None, theta=None):
    """A file of another content with the digest of that: what a liar writes, no accident."""
    tensors = load_file(folder / "run" / "model.safetensors")
    described = json.loads(_metadata(folder)["parley.model"])
    metadata = {"parley.model": json.dumps({**described, **(change or {})}, allow_nan=False)}
    more = {} if theta is None else {"theta": theta}
    target.write_bytes(encode_model({**tensors, **more}, metadata))
    return target


def _metadata(folder):
    with safe_open(folder / "run" / "model.safetensors", framework="np") as file:
        return {key: text for key, text in file.metadata().items() if key != "parley.digest"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "version 2, got 1"),
        ({"version": 3}, "version 2, got 3"),
        ({"schema": ""}, "--schema FILE"),
        ({"extra": 1}, "Expected keys"),
        ({"intercept": 1}, "Expected intercept as bool"),
        ({"label": "oracle"}, "known kind"),
        ({"task": {"kind": "gradient-perturbation"}}, "keys kind, model, settings"),
        ({"task": {"kind": "/tmp/evil.py:Evil"}}, "Expected a task of"),
        ({"intercept": False}, "another schema"),
    ],
)
def test_a_changed_description_is_refused(patients, tmp_path, change, message):
    folder, _ = patients
    with pytest.raises(ModelFileError, match=message):
        load_model(_rewritten(folder, tmp_path / "m.safetensors", change))


def _everybody_refuses(file):
    """Each way into a model file; `file` is `model.safetensors` of a folder."""
    said = []
    for way in (load_model, open_model, lambda each: sample_table(each, rows=1, seed=0, out=OUT)):
        for at in (file, file.parent):
            with pytest.raises(ModelFileError) as refused:
                way(at)
            said.append(str(refused.value))
    return said


OUT = Path("never-written.csv")


def test_no_byte_of_a_model_file_changes_unseen(patients, tmp_path):
    """Of header, numbers and promise; what is left alone reads as it did."""
    folder, _ = patients
    whole = (folder / "run" / "model.safetensors").read_bytes()
    file = tmp_path / "model.safetensors"
    file.write_bytes(whole)
    assert open_model(file).statement["parley.epsilon"]
    numbers = len(whole) - 4 * 8  # the parameters are last; before them the header, and its padding
    said = len(whole[:numbers].rstrip())
    for at in (*range(0, said, 13), *range(numbers, len(whole))):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ModelFileError):
            open_model(file)
    file.write_bytes(whole[:-8] + np.float64(0.25).tobytes())
    assert all("was changed or damaged" in text for text in _everybody_refuses(file))
    for command in (["show", str(file)], ["predict", str(file), str(folder / "test.csv")]):
        done = invoked(*command)
        assert isinstance(done.exception, ModelFileError)


def test_a_model_file_without_its_digest_is_refused(patients, tmp_path):
    folder, _ = patients
    file = tmp_path / "model.safetensors"
    save_file(load_file(folder / "run" / "model.safetensors"), file, _metadata(folder))
    assert all("SHA-256 missing" in text for text in _everybody_refuses(file))


def test_a_digest_is_of_names_shapes_and_kinds_too(patients, tmp_path):
    """Other arrays of the same bytes, or another name of one, are another content."""
    tensors = {"theta": np.arange(4.0), "more": np.arange(4, dtype=np.uint8)}
    said = {**_metadata(patients[0])}
    file = tmp_path / "model.safetensors"
    file.write_bytes(encode_model(tensors, said))
    with safe_open(file, framework="np") as opened:
        signed = opened.metadata()
    for other in (
        {**tensors, "theta": np.arange(4.0).reshape(2, 2)},
        {**tensors, "theta": np.arange(4.0).view(np.int64)},
        {"theta": tensors["theta"], "most": tensors["more"]},
        {"theta": tensors["theta"]},
        {**tensors, "empty": np.zeros((0, 3))},
    ):
        save_file(other, file, signed)
        with pytest.raises(ModelFileError, match="was changed or damaged"):
            open_model(file)
        file.write_bytes(encode_model(other, said))
        assert set(open_model(file).tensors) == set(other)


@pytest.mark.parametrize(
    "theta",
    [np.zeros(2), np.full(4, np.nan), np.full(4, 1e308), np.zeros(4, np.float32), np.zeros((2, 2))],
)
def test_parameters_that_are_not_the_tasks_are_refused(patients, tmp_path, theta):
    folder, _ = patients
    with pytest.raises(ModelFileError, match="finite float64 parameters"):
        load_model(_rewritten(folder, tmp_path / "m.safetensors", theta=theta))


def test_a_file_cannot_name_code_to_run(patients, tmp_path):
    folder, _ = patients
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\ndef build(f, c): ...\n")
    network = {
        **{"kind": f"{tmp_path / 'evil.py'}:build", "features": 4, "classes": 2},
        **{"hidden": [], "precision": "float64", "frozen": ""},
    }
    parts = {key: {} for key in ("training", "server", "attendance", "settings")}
    task = {"kind": "fedavg", "network": network, **parts}
    with pytest.raises(ModelFileError, match=r"evil\.py:build, which was not run. If it is yours"):
        load_model(_rewritten(folder, tmp_path / "m.safetensors", {"task": task}))
    network["kind"] = f"\x1b[2J{network['kind']}"
    with pytest.raises(ModelFileError, match="policy lists in models") as refused:
        load_model(_rewritten(folder, tmp_path / "m.safetensors", {"task": task}))
    assert "\x1b" not in str(refused.value)
    assert not marker.exists()


NO_MODEL = {
    "torn": ('{"version":', "Expected JSON about the model"),
    "deep": ("[" * 100_000, "Expected JSON about the model"),
    "twice": ('{"version": 2, "version": 2}', "Expected JSON about the model"),
    "undescribed": (None, "Run its job again"),
}


@pytest.mark.parametrize("name", NO_MODEL)
def test_a_description_that_is_no_strict_json_and_other_files_are_refused(tmp_path, name):
    file, (text, message) = tmp_path / "m.safetensors", NO_MODEL[name]
    save_file({"theta": np.zeros(3)}, file, text and {"parley.model": text})
    with pytest.raises(ModelFileError, match=message):
        load_model(file)
    file.write_text("no model")
    with pytest.raises(ModelFileError, match="No model found at"):
        load_model(file)


def test_show_prints_no_control_character_and_knows_how_it_was_learned(patients, tmp_path):
    folder, _ = patients
    said, path = _metadata(folder), tmp_path / "m.safetensors"
    theta = load_file(folder / "run" / "model.safetensors")
    hostile = {"parley.statement": "a\x1b[2J\u202eb", "parley.epsilon": "a\x1b[2J"}
    path.write_bytes(encode_model(theta, said | hostile))
    for shown, text in ((invoked("show", "-v", path), "a?[2J?b"), (invoked("show", path), "a?[2J")):
        assert (shown.exit_code, text in shown.output) == (0, True)
        assert "\x1b" not in shown.output
    task = json.loads(said["parley.model"])["task"]
    other = _rewritten(folder, tmp_path / "n.safetensors", {"task": {**task, "kind": "oracle"}})
    with pytest.raises(ModelFileError, match="Expected an algorithm of Parley's, got 'oracle'"):
        show(other)


def test_show_names_a_loss_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "def f(z, y):\n    r = abs(z - y)\n    return r if r > 1 else (r**2 + 1) / 2\n"
    )
    own = [f"model.loss={tmp_path / 'own.py'}:f", "model.kind=own-residual-loss"]
    job = _job("data.source=synthetic", "data.records=300", *own)
    result = parley.run(job, out=tmp_path / "run")
    (tmp_path / "own.py").unlink()  # nobody needs the code to predict
    shown = invoked("show", result.folder)
    assert shown.output.splitlines()[0].startswith("Linear regression with a loss of your own on ")
    rows = {"x": BUNDLED["synthetic"].columns("ridge", 300, 0)["x"]}
    with pytest.raises(ModelFileError, match="only ranks"):
        load_model(result.folder).predict_proba(rows)
