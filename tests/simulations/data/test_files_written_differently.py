"""Files of one schema that are written differently are read together: a job's `data.files`."""

import hashlib

import numpy as np
import pytest
from commands import invoked

import parley
from parley.client.data.data_error import DataError
from parley.client.data.schema import SchemaError
from parley.privacy.ledger.hash_chain import encode_canonical_json
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.machine_references import check_submission
from parley.server.jobs.section_base import JobError
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.prepared_data import compute_data_key
from parley.sweeps.sweep_cells import build_sweep

RNG = np.random.default_rng(8)
ROWS = [
    (int(age), round(float(size), 1), "ja" if age + size > 85 else "nein")
    for age, size in zip(RNG.integers(18, 95, 300), RNG.normal(27, 5, 300), strict=True)
]
SCHEMA = """
[columns]
alter = { kind = "numeric", range = [0, 110] }
"größe" = { kind = "numeric", range = [10, 60] }
krank = { kind = "label", positive = "ja", negative = "nein" }
"""
COLUMNS = {"alter": (0, 110), "größe": (10, 60), "krank": ["nein", "ja"]}
SOUTH = {"path": "south.csv", "separator": ";", "decimal": ",", "encoding": "windows-1252"}
FILES = ["north.csv", SOUTH]
QUICK = {"run.seed": 3, "algorithm.rounds": 2, "run.baseline": False, "model.features": "none"}


def write_rows(path, rows, *, separator=",", decimal=".", encoding="utf-8"):
    lines = [separator.join(("alter", "größe", "krank"))]
    lines += [
        separator.join((str(age), str(size).replace(".", decimal), answer))
        for age, size, answer in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "north.csv", ROWS[:180])
    south = {key: value for key, value in SOUTH.items() if key != "path"}
    write_rows(tmp_path / "south.csv", ROWS[180:], **south)
    write_rows(tmp_path / "alike-1.csv", ROWS[:180])
    write_rows(tmp_path / "alike-2.csv", ROWS[180:])
    (tmp_path / "clinics.toml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


def build_job(files=FILES, **more):
    keys = {"data.files": files, "data.schema": "clinics.toml", **QUICK, **more}
    tree = {}
    for name, value in keys.items():
        section, _, key = name.partition(".")
        tree.setdefault(section, {})[key] = value
    return load_job(values=tree)


def test_files_written_differently_train_the_model_of_files_written_alike():
    apart = parley.run(build_job())
    alike = parley.run(
        job={
            "data.source": "alike-*.csv",
            "data.schema": "clinics.toml",
            "parties.count": 2,
            **QUICK,
        }
    )
    assert apart.summary.loss == alike.summary.loss
    rows = {"alter": [30, 60], "größe": [25.0, 31.5]}
    np.testing.assert_array_equal(apart.model.predict_proba(rows), alike.model.predict_proba(rows))
    assert apart.summary.data == "north.csv, south.csv"


def test_a_job_file_lists_them_and_each_is_a_party(folder):
    (folder / "job.toml").write_text(
        '[data]\nschema = "clinics.toml"\nfiles = [\n    "north.csv",\n    { path = "south.csv", '
        'separator = ";", decimal = ",", encoding = "windows-1252" },\n]\n'
        "[algorithm]\nrounds = 1\n[run]\nbaseline = false\n"
    )
    done = invoked("run", "job.toml", "--quiet", "--seed", "3")
    assert done.exit_code == 0, done.exception
    assert "2 parties, logistic, 240 records" in done.stdout
    planned = invoked("plan", "job.toml", "--set", "parties.min-records=90")
    assert planned.stdout.startswith("2 parties of at least 90 records")
    prepared = prepare_data(load_job("job.toml"))
    assert prepared.party_names == ("north.csv", "south.csv")
    assert prepared.sizes.tolist() == [144, 96]


def test_lists_of_files_are_data_in_python():
    by_schema_file = parley.run(FILES, schema="clinics.toml", job=QUICK)
    in_short_form = parley.run(FILES, schema=COLUMNS, label="krank", job=QUICK)
    assert by_schema_file.summary.loss == in_short_form.summary.loss
    keys = {**QUICK, "data.files": FILES, "data.schema": "clinics.toml"}
    plan = parley.plan(job={**keys, "parties.min-records": 90})
    assert repr(plan).startswith("<Plan logistic, 2 parties")
    with parley.Session(FILES, schema=COLUMNS, epsilon=1) as session:
        assert (session.terms.parties, session.records) == (2, 300)
    with pytest.raises(SchemaError, match="Expected a schema for files that are written different"):
        parley.run(FILES, label="krank")


FAULTS = {
    "no such file": (["nosuch.csv", "north.csv"], DataError, "Expected a file, got nothing there"),
    "an unknown key": (
        [{"path": "north.csv", "seperator": ";"}],
        JobError,
        "north.csv: Expected one of the keys format, .*; the nearest is 'separator'",
    ),
    "a value that no file has": (
        [{"path": "north.csv", "decimal": "x"}],
        JobError,
        "north.csv: decimal: Expected '.' or ',', got 'x'",
    ),
    "a table without a path": ([{"file": "x"}], JobError, "Expected a table with path, such as"),
    "an empty path": ([""], JobError, "Expected path to name a file"),
    "keys that contradict the schema's": (
        [{"path": "north.csv", "decimal": ","}],
        DataError,
        "Expected decimal and separator to differ, got ',' .keys of data.files, then of .file.",
    ),
    "a file that differs from its keys": (
        ["north.csv", "south.csv"],
        DataError,
        'file.encoding = "windows-1252"',
    ),
    "a folder": (["."], DataError, "Expected a file of records"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_list_of_files_that_cannot_be_read_is_refused_with_the_files_name(fault):
    files, kind, message = FAULTS[fault]
    with pytest.raises(kind, match=message):
        parley.run(build_job(files))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data.source": "x.csv"}, "Expected source or files, got both"),
        ({"data.schema": ""}, "Expected schema with files, got none"),
        ({"parties.count": 3}, r"Use --set parties\.count=2, or leave it out"),
        ({"data.partition": "dirichlet"}, "each party has its own file"),
    ],
)
def test_keys_that_contradict_a_list_of_files_are_refused(keys, message):
    with pytest.raises(JobError, match=message):
        build_job(**keys)


def test_a_submission_from_another_machine_names_no_files():
    with pytest.raises(JobError, match="Expected no file in files of a submission"):
        check_submission(build_job().data)


def test_a_sweep_of_a_job_without_the_key_keeps_names_seeds_and_prepared_rows():
    swept = build_sweep({"sweep": {"seeds": 1}}, source="s.toml").cells[0]
    text = render_job(swept.job, comments=False, every_form=True).replace("files = []\n", "")
    seed = f"seed = {swept.job.run.seed}\n"
    text = text.replace(seed, 'seed = "none"\n')
    digest = hashlib.sha256(encode_canonical_json([text, 1]).encode("ascii")).hexdigest()
    assert swept.name == digest[:24]
    assert "files" not in compute_data_key(swept.job)
    assert "south.csv" in compute_data_key(build_job())
