"""`parley.run(data=…)`: what is in memory learns as its file would, and is the same to a ledger."""

import numpy as np
import polars as pl
import pytest

import parley
from parley.client.data.schema import SchemaError
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.server.jobs.section_base import JobError

QUICK = [
    *("run.seed=3", "parties.count=2", "algorithm.rounds=2", "privacy.epsilon=8"),
    "secure-aggregation.masked-check=false",
]
SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
dose = { kind = "numeric", range = [0, 1] }
ward = { kind = "categorical", categories = ["north", "south"] }
sick = { kind = "label", positive = ["yes"], negative = ["no"] }
"""


def _frame(rows=120):
    rng = np.random.default_rng(1)
    age = rng.integers(0, 100, rows)
    return pl.DataFrame(
        {
            "age": age,
            "dose": rng.random(rows),
            "ward": rng.choice(["north", "south"], rows),
            "sick": np.where(age > 60, "yes", "no"),
        }
    )


def _spent(folder):
    with Ledger.open(folder / "shared.sqlite") as ledger:
        return ledger.list_accounts()


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


def test_a_frame_learns_the_model_of_its_file_and_spends_the_same_budget(tmp_path, schema):
    frame, ledger = _frame(), f"privacy.ledger={tmp_path / 'shared.sqlite'}"
    frame.write_csv(tmp_path / "a.csv")
    budget = "privacy.dataset-epsilon=30"
    described = {"data": {"schema": str(schema)}}
    source = f"data.source={tmp_path / 'a.csv'}"
    job = parley.load_job(overrides=[*QUICK, ledger, budget], values=described)
    of_file = parley.load_job(overrides=[*QUICK, ledger, budget, source], values=described)
    filed = parley.run(of_file, out=tmp_path / "filed")
    given = parley.run(job, data=frame, out=tmp_path / "given")
    np.testing.assert_array_equal(given.theta, filed.theta)
    assert given.summary.advice == filed.summary.advice
    assert len(_spent(tmp_path)) == 1
    assert _spent(tmp_path)[0].spent.releases == 4
    parts = [frame[:60], frame[60:]]
    split = parley.run(job, data=parts, out=tmp_path / "split")
    assert split.summary.partition.kind == "files"
    assert sum(split.summary.records_by_party) + 24 == 120
    assert _spent(tmp_path)[0].spent.releases == 6
    with pytest.raises(JobError, match=r"parties.count = 3, the length of the list"):
        parley.run(job, data=[frame, frame, frame], parties=2)


def test_arrays_without_a_schema_say_that_their_ranges_were_read_off_them(tmp_path):
    frame = _frame()
    rows = frame.select("age", "dose").to_numpy()
    result = parley.run(
        parley.load_job(overrides=QUICK),
        data=(rows, frame["sick"].to_numpy()),
        out=tmp_path / "run",
    )
    assert "schema was inferred from the records" in result.summary.advice[0]
    assumed = ("the schema is public (drafted from records in memory, not reviewed)",)
    assert result.summary.primary.assumptions == assumed
    model = parley.load_model(result.folder)
    assert model.feature_names_in_.tolist() == ["x1", "x2"]
    assert set(model.predict({"x1": rows[:, 0], "x2": rows[:, 1]})) <= {"yes", "no"}


def test_a_target_in_memory_is_learned_by_the_model_that_it_is_for(tmp_path):
    job = parley.load_job(overrides=[*QUICK, "model.lambda=0.1"])
    result = parley.run(job, data=_frame(), label="dose", out=tmp_path / "run")
    assert (result.summary.model, result.summary.metric) == ("ridge", "r2")
    named = parley.load_job(overrides=[*QUICK, "model.kind=logistic"])
    with pytest.raises(SchemaError, match=r"It fits model\.kind = 'ridge'"):
        parley.run(named, data=_frame(), label="dose", out=tmp_path / "refused")


def test_a_network_learns_from_a_data_set(tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    rows = torch.tensor(rng.random((40, 2, 2)), dtype=torch.float32)
    labels = (rows.mean((1, 2)) > 0.5).long()
    job = parley.load_job(
        overrides=[*QUICK, "algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[2]"]
    )
    data = torch.utils.data.TensorDataset(rows, labels)
    result = parley.run(job, data=data, out=tmp_path / "run")
    assert result.summary.status == "complete"
    assert len(parley.load_model(result.folder).predict({"x": rows.numpy()})) == 40


class _Stop:
    def started(self, job, plan, folder, done):
        pass

    def round_done(self, line):
        raise KeyboardInterrupt


def test_a_stopped_run_goes_on_with_the_same_data_only(tmp_path, schema):
    frame, out = _frame(), tmp_path / "cut"
    job = parley.load_job(overrides=QUICK)
    whole = parley.run(job, data=frame, schema=schema, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        parley.run(job, data=frame, schema=schema, out=out, observer=_Stop())
    with pytest.raises(JobError, match=r"Pass them with parley\.run"):
        parley.run(resume=out)
    with pytest.raises(JobError, match="Expected the schema that cut began with"):
        parley.run(resume=out, data=frame.with_columns(pl.col("age") * 3))
    with pytest.raises(LedgerConflict):
        parley.run(resume=out, data=frame[1:], schema=schema)
    resumed = parley.run(resume=out, data=frame, schema=schema)
    np.testing.assert_array_equal(resumed.theta, whole.theta)


def test_data_go_with_the_fast_engine_and_a_schema_with_data(tmp_path, schema):
    job = parley.load_job(overrides=[*QUICK, "run.engine=processes"])
    with pytest.raises(JobError, match=r"run.engine = 'fast' with data in memory"):
        parley.run(job, data=_frame(), schema=schema)
    with pytest.raises(JobError, match=r"Expected data.source with data.schema"):
        parley.run(schema=schema)
    with pytest.raises(JobError, match="Expected data with schema or label"):
        parley.run(label="sick")
    with pytest.raises(SchemaError, match="label without a schema"):
        parley.run(data=_frame(), schema=schema, label="sick")
