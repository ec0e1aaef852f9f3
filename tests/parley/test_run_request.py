"""What a caller of `parley.run` may pass, and what `Run` and the other results show."""

import html
import warnings

import numpy as np
import polars as pl
import pytest
from torch import nn

import parley
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.privacy_warning import PrivacyWarning
from parley.run_request import build_run_request, is_job
from parley.server.jobs.section_base import JobError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 4)).round(3)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
FRAME = pl.DataFrame({f"x{at}": X[:, at] for at in range(4)}).with_columns(sick=pl.Series(Y))
SCHEMA = {"x0": (-5, 5), "x1": (-5, 5), "x2": (-5, 5), "x3": None, "sick": [0, 1]}
QUICK = {"secure-aggregation.masked-check": False, "run.baseline": False}


def learn(*args, out, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return parley.run(*args, out=out, job=QUICK, **{"rounds": 2, "parties": 2} | keywords)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))

    def forward(self, rows):
        return self.layers(rows)


def small_network(features, classes):
    return nn.Linear(features, classes)


def test_arrays_train_with_keywords_and_labels_keep_their_type(tmp_path):
    with pytest.warns(PrivacyWarning, match="inferred from the data.*epsilon does not cover"):
        run = parley.run(X, Y, epsilon=3, parties=4, seed=1, out=tmp_path / "run")
    job = parley.load_job(run.folder / "job.toml")
    assert (job.privacy.epsilon, job.parties.count, job.run.seed) == (3, 4, 1)
    assert run.epsilon == pytest.approx(3, rel=1e-6)
    assert run.delta == 1e-5
    assert run.model.classes_.tolist() == [0, 1]
    assert np.mean(run.model.predict(X) == Y) > 0.6
    assert run.metrics["accuracy"] == run.accuracy
    assert len(run.rounds) == job.rounds
    assert run.rounds[-1]["epsilon"] == run.epsilon
    assert run.report.read_text().startswith("<!")


SOURCES = {
    "a frame": lambda folder: {"what": FRAME, "label": "sick"},
    "columns by name": lambda folder: {"what": FRAME.to_dict(as_series=False), "label": "sick"},
    "a pair": lambda folder: {"what": (X, Y)},
    "a list of frames": lambda folder: {"what": [FRAME[:90], FRAME[90:]], "label": "sick"},
    "a list of pairs": lambda folder: {"data": [(X[:90], Y[:90]), (X[90:], Y[90:])]},
    "a file without a schema": lambda folder: {"what": folder / "t.csv", "label": "sick"},
    "a glob": lambda folder: {"what": f"{folder}/p-*.csv", "schema": SCHEMA, "label": "sick"},
    "a short schema": lambda folder: {"what": FRAME, "schema": SCHEMA, "label": "sick"},
    "a file and a short schema": lambda folder: {
        "data": str(folder / "t.csv"),
        "schema": SCHEMA,
        "label": "sick",
    },
    "a file and a schema file": lambda folder: {
        "data": folder / "t.csv",
        "schema": folder / "s.toml",
    },
}


@pytest.mark.parametrize("source", SOURCES)
def test_data_come_in_many_forms(source, tmp_path):
    FRAME.write_csv(tmp_path / "t.csv")
    for at, part in enumerate((FRAME[:100], FRAME[100:])):
        part.write_csv(tmp_path / f"p-{at}.csv")
    (tmp_path / "s.toml").write_text(Schema.of(SCHEMA, label="sick").to_toml())
    run = learn(**SOURCES[source](tmp_path), epsilon=2, out=tmp_path / "run")
    assert run.summary.status == "complete"
    assert run.model.classes_.tolist() == [0, 1]
    assert (run.folder / "schema.toml").exists()


NETWORKS = {
    "a function": small_network,
    "a lambda": lambda features, classes: nn.Linear(features, max(classes, 2)),
    "a class": TwoLayers,
    "a function without arguments": lambda: TwoLayers().train(),
    "a module": TwoLayers(),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_network_is_trained_by_federated_averaging(network, tmp_path):
    run = learn(X, Y, model=network, epsilon=8, rounds=1, out=tmp_path / "run")
    assert run.summary.algorithm == "fedavg"
    assert set(run.model.predict(X).tolist()) <= {0, 1}
    again = build_run_request(model=network, algorithm="distributed-dp-sgd")
    assert again.job.algorithm.kind == "distributed-dp-sgd"


def test_a_module_s_weights_are_the_public_start_and_stay_as_they_are(tmp_path):
    module = TwoLayers()
    before = module.layers[0].weight.detach().clone()
    learn(X, Y, model=module, epsilon=8, rounds=1, out=tmp_path / "run")
    assert module.layers[0].weight.equal(before)
    with pytest.raises(JobError, match=r'in a file: model="file.py:function"'):
        learn(what=None, model=module, engine="processes", epsilon=8, out=tmp_path / "other")


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("job.toml", True),
        ({"privacy.epsilon": 2}, True),
        ({"privacy": {"epsilon": 2}, "run.seed": 3}, True),
        ({}, False),
        ({"age": [1], "data": [2]}, False),
        ({"data": [2]}, False),
        ("patients.csv", False),
    ],
)
def test_a_job_is_told_from_data(what, found):
    assert is_job(what) is found


def test_a_keyword_wins_over_a_job_and_a_job_over_the_defaults(tmp_path):
    (tmp_path / "j.toml").write_text("[privacy]\nepsilon = 4\n[parties]\ncount = 7\n")
    ways = (
        ((), {"job": tmp_path / "j.toml"}),
        ((str(tmp_path / "j.toml"),), {}),
        ((parley.load_job(tmp_path / "j.toml"),), {}),
        (({"privacy.epsilon": 4, "parties": {"count": 7}},), {}),
    )
    for words, more in ways:
        job = build_run_request(*words, **more, epsilon=2).job
        assert (job.privacy.epsilon, job.parties.count, job.privacy.delta) == (2, 7, 1e-5)
        assert repr(parley.plan(*words, **more, epsilon=2)).startswith("<Plan logistic, 7 parties,")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"what": {"privacy.epsilon": 1}, "job": {"run.seed": 1}}, "one job, got two"),
        ({"what": FRAME, "data": FRAME}, "data once, got them twice"),
        ({"y": Y}, "Expected X with y"),
        ({"job": 3}, "Expected job to be a Job, a job file, or keys"),
        ({"job": {"privacy.epsilom": 1}}, "Did you mean privacy.epsilon"),
        ({"model": 3}, "Expected model to be a name"),
        ({"model": lambda a, b, c: a}, "3 arguments without defaults"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, message):
    with pytest.raises(JobError, match=message):
        parley.run(**words)


def test_a_word_that_is_none_is_python_s_own_error():
    with pytest.raises(TypeError, match="epsilom"):
        parley.run(X, Y, epsilom=1)


def test_results_are_one_line_as_repr_and_at_most_fifteen_as_text(tmp_path):
    run = learn(X, Y, epsilon=2, out=tmp_path / ("folder" * 20))
    plan, job = parley.plan(parties=3), parley.load_job()
    schema = Schema.of(SCHEMA, label="sick")
    for shown in (run, plan, job, schema, run.summary):
        assert len(repr(shown)) < 120
        assert "\n" not in repr(shown)
        lines = str(shown).splitlines()
        assert len(lines) <= 15
        paths = (line for line in lines if not line.startswith("Saved"))
        assert all(len(line) <= 80 for line in paths if not line.startswith("<"))
    assert repr(plan) == "<Plan logistic, 3 parties, epsilon=1, 12 rounds>"
    assert repr(job) == "<Job logistic, 5 parties, epsilon=1>"
    assert repr(schema) == "<Schema 3 columns, label 'sick'>"
    assert repr(run).startswith("<Run logistic, 2 parties, epsilon=2, accuracy=0.")
    assert html.escape(str(run).splitlines()[0]) in run._repr_html_()
    assert "<iframe sandbox" in run._repr_html_()


def test_names_of_the_package_complete_and_exist():
    assert dir(parley) == parley.__all__
    assert {"run", "plan", "Session", "Schema", "Run", "col"} <= set(parley.__all__)
    for name in parley.__all__:
        assert getattr(parley, name) is not None


@pytest.mark.parametrize(
    ("columns", "label", "message"),
    [
        ({"age": [1]}, None, r"\(low, high\) for numbers, a list of its categories, or None"),
        ({"age": (5, 1)}, None, "low < high"),
        ({"age": (0, 1)}, "sick", "label to be one of the columns age, got 'sick'"),
        ({"age": {"kind": "numerik"}}, None, "age"),
        ({"age": (0, 1), "sick": None}, "sick", "sick"),
    ],
)
def test_a_short_schema_says_what_it_may_hold(columns, label, message):
    with pytest.raises(SchemaError, match=message):
        Schema.of(columns, label=label)


def test_a_short_schema_is_the_one_of_its_file():
    columns = {"age": (0, 120), "ward": ["a", "b"], "id": None, "score": {"kind": "ignore"}}
    targets = {
        "negative": ["no", "yes"],
        "classes": ["a", "b", "c"],
        "range": (0, 10),
    }
    for key, target in targets.items():
        schema = Schema.of({**columns, "y": target}, label="y")
        assert getattr(schema.label, key) is not None
        assert Schema.from_toml(schema.to_toml()).digest == schema.digest
    with pytest.raises(SchemaError, match="statistics do not need and a model does"):
        _ = Schema.of(columns).label
