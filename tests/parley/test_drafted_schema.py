"""A drafted schema: an assumption beside every ε, refused by real parties, until it is reviewed."""

import contextlib
import json
import random

import pytest
from typer.testing import CliRunner

from parley.analytics.session import Session
from parley.cli import app
from parley.client.contract.refusals import Declined, Reason
from parley.client.data.schema import Schema, load_schema
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import RAW_COLUMNS, load_dataset
from parley.privacy.ledger.ledger import Ledger

ASSUMED = "the schema is public (drafted from patients.csv, not reviewed)"
LINE = "drafted = true\n"


def parley(*words, cwd):
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.fixture
def drafted(tmp_path):
    """A folder with patients.csv and the draft that `schema infer` writes of it."""
    rng = random.Random(1)
    rows = [
        f"{rng.randint(20, 80)},{rng.choice(('north', 'south'))},{rng.choice(('yes', 'no'))}"
        for _ in range(200)
    ]
    (tmp_path / "patients.csv").write_text("\n".join(["age,ward,sick", *rows]) + "\n")
    done = parley(
        "schema", "infer", "patients.csv", "--label", "sick", "--out", "p.toml", cwd=tmp_path
    )
    assert "delete `drafted = true` in p.toml" in done.stderr.replace("\n", " ")
    return tmp_path


def sets(*more):
    given = ("data.source=patients.csv", "data.schema=p.toml", "parties.min-records=20", *more)
    return [word for each in given for word in ("--set", each)]


def review(folder):
    path = folder / "p.toml"
    assert path.read_text().count(LINE) == 1
    path.write_text(path.read_text().replace(LINE, ""))


def shown(text):
    return " ".join(text.split())


PARTY = ("model.kind=mlp", "algorithm.kind=fedavg", "privacy.unit=party", "dp-sgd.local-steps=2")


@pytest.mark.parametrize("unit", [(), PARTY], ids=["record", "party"])
def test_each_place_that_prints_a_runs_epsilon_prints_the_assumption(drafted, unit):
    job = sets("algorithm.rounds=2", *unit)
    plan, as_json = (parley("plan", *job, *more, cwd=drafted) for more in ((), ("--json",)))
    assert ASSUMED in shown(plan.stdout), plan.stderr
    assert json.loads(as_json.stdout)["guarantees"][0]["assumptions"] == [ASSUMED]
    done = parley("run", *job, "--out", "run", cwd=drafted)
    assert ASSUMED in shown(done.stdout), done.stderr
    assert ASSUMED in shown(parley("show", "run", cwd=drafted).stdout)
    assert ASSUMED in shown(parley("show", "run", "--json", cwd=drafted).stdout)
    assert ASSUMED in shown(parley("ledger", "show", "run", cwd=drafted).stdout)
    folder = drafted / "run"
    assert ASSUMED in (folder / "report.html").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["guarantees"][0]["assumptions"] == [ASSUMED]
    tensors = (folder / "model.safetensors").read_bytes().decode("utf-8", "ignore")
    assert f"It assumes: {ASSUMED}" in tensors
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert [each.entry.facts["assumptions"] for each in ledger.list_entries()] == [
            [ASSUMED]
        ] * 2
    parley("certificate", "issue", "run", "--key", "key", cwd=drafted)
    assert ASSUMED in (folder / "certificate.json").read_text()


def test_a_reviewed_schema_assumes_nothing(drafted):
    review(drafted)
    assert "assuming" not in parley("plan", *sets(), cwd=drafted).stdout
    assert "not reviewed" not in parley("run", *sets("algorithm.rounds=2"), cwd=drafted).stdout


def test_a_session_prints_it_with_each_answer_and_plan(drafted):
    with Session(
        drafted / "patients.csv", schema=drafted / "p.toml", parties=2, epsilon=1, out=drafted / "s"
    ) as s:
        with s.batch(epsilon=0.5) as batch:
            batch.group_by("ward").count()
            assert f"assuming: {ASSUMED}" in batch.plan()
        answer = s.mean("age", epsilon=0.4)
        assert f"assuming: {ASSUMED}" in str(answer)
        assert answer.to_json()["assumptions"] == [ASSUMED]
    with Ledger.open(s.folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.list_entries()[0].entry.facts["assumptions"] == [ASSUMED]


@pytest.mark.parametrize("label", ["logistic", RAW_COLUMNS])
def test_a_real_party_refuses_a_draft_and_its_remedy_works(label, drafted):
    given = {"path": "patients.csv", "schema": "p.toml", "epsilon": 1, "delta": 0}
    dataset = DatasetConfig.model_validate(given)
    with pytest.raises(Declined, match="delete the line drafted = true") as refused:
        load_dataset(dataset, drafted, label=label, intercept=True)
    assert refused.value.reason is Reason.DATA_UNREADABLE
    before = load_schema(drafted / "p.toml")
    review(drafted)
    holding = load_dataset(dataset, drafted, label=label, intercept=True)
    assert holding.schema == before.digest == load_schema(drafted / "p.toml").digest


def test_the_digest_of_a_schema_is_what_it_was():
    known = Schema.from_toml(
        "[columns]\nage = { kind = 'numeric', range = [0, 100] }\n"
        "sick = { kind = 'label', positive = 'yes', negative = 'no' }\n"
    )
    assert known.digest == DIGEST


DIGEST = "65b99966734b6a97e9e06f82f5221649f0629405a8f3c0d23b750b9c7cf3533b"
