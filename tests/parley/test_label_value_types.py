"""Labels keep their type from the data to the prediction; an array keeps its width."""

import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.model_selection import cross_val_score

import parley
from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.schema import Schema
from parley.client.data.schema_inference.schema_draft import infer_schema

QUICK = ["parties.count=2", "algorithm.rounds=2", "secure-aggregation.masked-check=false"]
NETWORK = [
    *("parties.count=2", "model.kind=mlp", "model.hidden=[3]", "algorithm.kind=fedavg"),
    *("algorithm.rounds=1", "dp-sgd.local-steps=1"),
]
RNG = np.random.default_rng(3)
ROWS = np.column_stack([RNG.random(60).round(3), RNG.random(60).round(3)])
TWO = np.tile([0, 1, 1], 20)

LABELS = {
    "int64": TWO,
    "int8": TWO.astype(np.int8),
    "uint8": TWO.astype(np.uint8),
    "float64": TWO.astype(float),
    "float32": TWO.astype(np.float32),
    "bool": TWO.astype(bool),
    "signs": 2 * TWO - 1,
    "three classes": np.tile([3, 5, 9], 20),
    "text": np.array(["well", "sick"])[TWO],
    "digits as text": TWO.astype(str),
    "object integers": TWO.astype(object),
    "object truth values": TWO.astype(bool).astype(object),
    "object texts": np.array(["well", "sick"])[TWO].astype(object),
    "polars Int16": pl.Series("y", TWO, dtype=pl.Int16),
    "polars Boolean": pl.Series("y", TWO.astype(bool)),
    "polars Categorical": pl.Series("y", np.array(["b", "a"])[TWO], dtype=pl.Categorical),
}


try:  # no dependency, but what most tables are in
    import pandas as pd
except ImportError:
    pass
else:
    LABELS |= {
        "pandas Int64": pd.Series(TWO, dtype="Int64", name="y"),
        "pandas boolean": pd.Series(TWO.astype(bool), dtype="boolean", name="y"),
        "pandas category": pd.Series(TWO, dtype="category", name="y"),
        "pandas string": pd.Series(np.array(["b", "a"])[TWO], dtype="string", name="y"),
    }


def learned(data, folder, *, job=QUICK, **more):
    result = parley.run(parley.load_job(overrides=job), data=data, out=folder, **more)
    return parley.load_model(result.folder)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_predictions_compare_with_the_labels_that_were_given(labels, tmp_path):
    model = learned((ROWS, labels), tmp_path / "run")
    truth = np.asarray(labels)
    if truth.dtype == object:
        truth = np.array(truth.tolist())
    predicted = model.predict(ROWS)
    assert predicted.dtype.kind in ("iu" if truth.dtype.kind in "iu" else truth.dtype.kind)
    assert set(model.classes_.tolist()) == set(truth.tolist())
    right = np.mean(predicted == truth)
    assert right > 0
    assert model.score(ROWS, labels) == right


def test_integer_labels_of_a_file_are_predicted_as_integers(tmp_path):
    rows = [f"{a},{b},{y}" for (a, b), y in zip(ROWS, TWO, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(
        "[columns]\na = { kind = 'numeric', range = [0, 1] }\n"
        "b = { kind = 'numeric', range = [0, 1] }\n"
        "y = { kind = 'label', positive = [1], negative = [0] }\n"
    )
    sets = [f"data.source='{tmp_path}/d.csv'", f"data.schema='{tmp_path}/s.toml'"]
    model = learned(None, tmp_path / "run", job=[*QUICK, *sets])
    predicted = model.predict(pl.read_csv(tmp_path / "d.csv"))
    assert predicted.dtype.kind == "i"
    assert model.label_names == ("0", "1")
    # A score compares by the labels' texts, whatever type the caller has them in.
    assert model.score(ROWS, TWO) == model.score(ROWS, TWO.astype(str)) > 0


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("positive = [true], negative = [false]", (False, True)),
        ("positive = [1.0], negative = [0.0]", (0.0, 1.0)),
        ("classes = [2, 1, 4]", (2, 1, 4)),
        ("classes = ['2', 1]", ("2", "1")),
        ("positive = [1], negative = 'rest'", ("not 1", "1")),
    ],
)
def test_labels_have_the_type_of_the_schema_also_after_it_was_written(label, values):
    text = (
        f"[columns]\na = {{ kind = 'numeric', range = [0, 1] }}\ny = {{ kind = 'label', {label} }}"
    )
    schema = Schema.from_toml(text)
    for each in (schema, Schema.from_toml(schema.to_toml())):
        found = each.label.list_values("softmax" if "classes" in label else "logistic")
        assert found == values
        assert list(map(type, found)) == list(map(type, values))


def test_cross_validation_of_a_learned_model_warns(tmp_path):
    model = learned((ROWS, TWO), tmp_path / "run")
    with pytest.warns(UserWarning, match="fit does not train.*may have been trained on"):
        scores = cross_val_score(model, ROWS, TWO, cv=2)
    assert scores.shape == (2,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(ROWS, TWO)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, np.int64, bool])
def test_an_array_keeps_its_constant_columns_in_front_of_a_network(dtype, tmp_path):
    pixels = np.zeros((60, 9), dtype)
    pixels[:, 2] = RNG.integers(0, 2, 60)
    pixels[:, 4] = RNG.integers(0, 2, 60)
    pixels[:, 8] = 1
    model = learned((pixels, TWO), tmp_path / "run", job=NETWORK)
    assert model.schema.dimension == model.n_features_in_ == 9
    rows = model.encode_rows(pixels)
    assert rows.shape == (60, 9)
    assert (rows[:, [0, 1, 3, 5, 6, 7, 8]] == 0).all()
    assert len(np.unique(rows[:, 4])) > 1
    assert model.predict(pixels[:5]).shape == (5,)


def test_rows_numbered_in_order_keep_their_place_in_front_of_a_network(tmp_path):
    rows = np.column_stack([np.arange(60), RNG.integers(0, 9, 60)])
    model = learned((rows, TWO), tmp_path / "run", job=NETWORK)
    assert model.schema.dimension == 2


def test_a_linear_model_predicts_the_array_that_it_was_learned_from(tmp_path):
    rows = np.column_stack([np.full(60, 7.0), ROWS])
    model = learned((rows, TWO), tmp_path / "run")
    assert model.feature_names_in_.tolist() == ["x2", "x3"]
    assert (model.predict(rows) == model.predict(ROWS)).all()


NO_LABELS = {
    "bytes": (np.array([b"no", b"yes"])[TWO], "decode them to text"),
    "bytes as objects": (np.array([b"no", b"yes"])[TWO].astype(object), "decode them to text"),
    "dates": (np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")[TWO], "dates or times"),
    "durations": (np.array([1, 2], "timedelta64[D]")[TWO], "dates or times"),
    "polars dates": (pl.Series("y", TWO).cast(pl.Date), "dates or times"),
    "complex numbers": (np.array([1j, 2.0])[TWO], "complex numbers"),
    "objects": ([{"a": int(each)} for each in TWO], "objects of type dict"),
    "numbers and texts": ([1, "a"] * 30, "int and str"),
    "numbers and truth values": (np.array([1, False] * 30, object), "bool and int"),
    "infinity": (np.where(TWO, np.inf, 0.0), "an infinite one"),
    "an amount without an end": (np.where(np.arange(60) == 3, np.inf, ROWS[:, 0]), "infinite"),
}
SCHEMA = """[columns]
a = { kind = "numeric", range = [0, 1] }
b = { kind = "numeric", range = [0, 1] }
y = { kind = "label", positive = ["b'yes'", "a", 1], negative = "rest" }
"""


@pytest.mark.parametrize(("labels", "said"), NO_LABELS.values(), ids=list(NO_LABELS))
@pytest.mark.parametrize("form", ["a pair", "a frame"])
def test_what_is_no_label_is_refused_for_what_it_is(labels, said, form, tmp_path):
    data = (ROWS, labels) if form == "a pair" else {"a": ROWS[:, 0], "b": ROWS[:, 1], "y": labels}
    with pytest.raises(DataError, match="label") as refused:
        parley.run(parley.load_job(overrides=QUICK), data=data, out=tmp_path / "run")
    assert said in str(refused.value)
    assert not (tmp_path / "run").exists()
    if "finite" not in said:
        with pytest.raises(DataError, match=said):
            parley.run(parley.load_job(overrides=QUICK), data=data, schema=Schema.from_toml(SCHEMA))


def test_labels_that_may_mean_something_else_are_read_with_a_warning(tmp_path):
    rows = np.tile(ROWS, (10, 1))
    fifty = np.arange(600) % 50
    with pytest.warns(UserWarning, match="50 different whole numbers, read as amounts"):
        learned((rows, fifty), tmp_path / "amounts")
    large = np.array([2**63, 2**63 + 5], np.uint64)[np.tile(TWO, 10)]
    with pytest.warns(UserWarning, match=r"codes.*predicted as text"):
        learned((rows, large), tmp_path / "codes")


def test_what_a_mask_hides_is_missing(tmp_path):
    hidden = np.ma.masked_array(ROWS, mask=False)
    hidden[::7, 0] = np.ma.masked
    draft = infer_schema(build_memory_table((hidden, TWO)))
    assert "missing" in Schema.from_toml(draft.text).to_toml()
    labels = np.ma.masked_array(TWO, mask=np.arange(60) % 7 == 0)
    with pytest.raises(DataError, match="label"):
        learned((ROWS, labels), tmp_path / "run")
