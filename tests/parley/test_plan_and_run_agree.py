"""A job that `run` refuses before it reads a record is refused by `plan`, in the same words."""

import pytest

import parley
from parley.exit_status import get_exit_status

SCHEMA = """\
[columns]
hospital = { kind = "ignore" }
age = { kind = "numeric", range = [0, 100] }
out = { kind = "label", positive = ["yes"], negative = ["no"] }
"""
FILE = ("data.source=rows.csv", "data.schema=schema.toml", "parties.min-records=2")
NETWORK = ("algorithm.kind=fedavg", "algorithm.rounds=2")
REFUSED = {
    "a block column of bundled records": ("data.block-column=year",),
    "blocks without a column": ('data.blocks=["2023"]',),
    "a block column that is learned from": (*FILE, "data.block-column=age"),
    "no such block column": (*FILE, "data.block-column=nosuch"),
    "blocks in other processes": (
        *(*FILE, "data.block-column=hospital", 'data.blocks=["a"]', "run.engine=processes"),
    ),
    "a partition column of bundled records": (
        *("data.partition=column", "data.partition-column=hospital", "parties.min-records=2"),
    ),
    "no such partition column": (
        *(*FILE, "data.partition=column", "data.partition-column=nosuch"),
    ),
    "more records than are bundled": ("data.records=570",),
    "records drawn of several files": (*FILE, "data.source=rows*.csv", "data.records=2"),
    "test records without a schema": ("data.test-source=rows.csv", "data.test-fraction=0"),
    "test records of a missing schema": (
        *(*FILE, "data.test-source=rows.csv", "data.test-fraction=0"),
        "data.test-schema=nosuch.toml",
    ),
    "two sizes for five parties": ("data.partition=sizes", "data.sizes=[9,9]"),
    "a party of no record": ("data.partition=sizes", "data.sizes=[9,9,9,9,0]"),
    "sizes beyond the records": ("data.partition=sizes", "data.sizes=[900,9,9,9,9]"),
    "a size below the least": (
        *("data.partition=sizes", "data.sizes=[9,9,9,9,9]", "parties.min-records=10"),
    ),
    "faults of more than all": ("run.faults=drop:2",),
    "faults of no kind": ("run.faults=hello",),
    "too many colluders": ("secure-aggregation.corrupt=4",),
    "a masked sum of one party": ("parties.count=1", "secure-aggregation.backend=masked"),
    "masks on Ray": ("run.engine=ray", "secure-aggregation.backend=masked"),
    "one party in other processes": ("parties.count=1", "run.engine=processes"),
    "less memory than records": (
        *("data.source=synthetic", "data.records=50000", "run.memory=1", "data.test-fraction=0"),
        *("privacy.delta=1e-7", "parties.count=1"),
    ),
    "components of nothing": (
        *(*NETWORK, "model.kind=pca-mlp", "model.pca=public", "model.components=5"),
        "data.test-fraction=0",
    ),
    "components in no file": (
        *(*NETWORK, "model.kind=pca-mlp", "model.pca=public", "model.components=5"),
        "model.pca-file=nosuch.safetensors",
    ),
    "a model measured on nothing": ("evaluation.kind=federated", "data.test-fraction=0"),
    "a ledger of another kind": ("privacy.ledger=schema.toml",),
    "a model beyond memory": (*NETWORK, "model.kind=mlp", "model.hidden=[10000000,10000000]"),
}


@pytest.mark.parametrize("sets", REFUSED.values(), ids=list(REFUSED))
def test_a_plan_refuses_what_a_run_refuses_for_its_job_and_schema(
    sets, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    # A run that gets as far as this file's rows fails in other words.
    (tmp_path / "rows.csv").write_text("no,such,columns\n")

    said = [refuse(parley.plan, sets), refuse(run, sets)]
    assert said[0] == said[1]
    assert not (tmp_path / "run").exists()


def test_a_schema_of_its_own_is_enough_for_blocks_of_real_parties(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    sets = ["data.schema=schema.toml", 'data.blocks=["2023"]', "parties.min-records=50"]
    assert parley.plan(parley.load_job(overrides=sets)).refusal is None


def run(job) -> None:
    parley.run(job, out="run")


def refuse(command, sets) -> str:
    """Return in which words a command refuses a job, as its user's to mend."""
    with pytest.raises(Exception) as refused:
        command(parley.load_job(overrides=list(sets)))
    assert get_exit_status(refused.value) == 2
    return str(refused.value)
