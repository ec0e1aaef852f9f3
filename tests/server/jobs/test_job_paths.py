"""Paths in a job file are relative to the file; those of the command line and of Python are not."""

from pathlib import Path

import pytest

import parley
from parley.analytics.query_file import load_session_keys
from parley.privacy.ledger.ledger import Ledger
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import resolve_paths
from parley.server.records.run_folder_opening import open_run_folder
from parley.sweeps.sweep_cells import load_sweep

SCHEMA = """
[columns.age]
kind = "numeric"
range = [0, 120]
[columns.sick]
kind = "label"
positive = "yes"
negative = "no"
"""


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    """A folder with a job and what it names; the working directory is its parent."""
    monkeypatch.chdir(tmp_path)
    folder = Path("clinic")
    folder.mkdir()
    rows = "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(100))
    (folder / "patients.csv").write_text("age,sick\n" + rows)
    (folder / "s.toml").write_text(SCHEMA)
    (folder / "job.toml").write_text(
        '[data]\nsource = "patients.csv"\nschema = "s.toml"\n[parties]\ncount = 2\n'
        "[algorithm]\nrounds = 2\n[run]\nbaseline = false\n"
        '[privacy]\nledger = "shared.sqlite"\ndataset-epsilon = 3\n'
    )
    return folder


def test_a_job_file_finds_its_files_from_any_folder_and_resumes_from_any(clinic, monkeypatch):
    parley.run(clinic / "job.toml", out="run")
    assert (clinic / "shared.sqlite").exists()
    assert not Path("shared.sqlite").exists()
    folder = Path("run").resolve()
    (folder / "summary.json").unlink()
    (folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(folder.parent / "elsewhere")
    resumed = parley.run(resume=folder)
    assert len(resumed.rounds) == 2
    assert open_run_folder(folder)[1].data.source == str(folder.parent / "clinic" / "patients.csv")
    # Its account is the one that the first run opened.
    assert open_run_folder(folder)[1].privacy.dataset == str(clinic / "patients.csv")


def test_a_path_in_the_home_folder_is_found(clinic, monkeypatch):
    monkeypatch.setenv("HOME", str(clinic.resolve()))
    text = (clinic / "job.toml").read_text().replace('"patients.csv"', '"~/patients.csv"')
    Path("job.toml").write_text(text.replace('"s.toml"', '"~/s.toml"'))
    data = load_job("job.toml").data
    assert data.source == str(clinic.resolve() / "patients.csv")
    assert data.data_schema == str(clinic.resolve() / "s.toml")


def test_the_command_line_and_python_name_files_from_the_working_directory(clinic):
    named = load_job(clinic / "job.toml", overrides=["data.schema=other.toml"])
    assert (named.data.data_schema, named.data.source) == ("other.toml", "clinic/patients.csv")
    assert load_job(values={"data": {"source": "a.csv", "schema": "s.toml"}}).data.source == "a.csv"


@pytest.mark.parametrize(
    "source",
    ["breast-cancer", "ward", "ward-2.v1", "env:WARD", "memory-*", "/srv/a.csv"],
)
def test_names_and_absolute_paths_stay(source, tmp_path):
    query = 'query = "SELECT 1"\n' if source.startswith("env:") else ""
    (tmp_path / "job.toml").write_text(f'[data]\nsource = "{source}"\n{query}')
    job = load_job(tmp_path / "job.toml")
    assert job.data.source == source
    assert resolve_paths(job).data == job.data


def test_every_kind_of_reference_is_located(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """
    [data]
    files = [{ path = "south.csv", separator = ";" }, { path = "/srv/north.csv" }]
    schema = "s.toml"
    test-source = "held-out.csv"
    test-fraction = 0
    [model]
    kind = "net.py:net"
    [algorithm]
    kind = "fedavg"
    [run]
    out = "results"
    prepared = "cache"
    """
    Path("deep").mkdir()
    Path("deep/job.toml").write_text(text)
    job = load_job("deep/job.toml")
    assert [each["path"] for each in job.data.files] == ["deep/south.csv", "/srv/north.csv"]
    assert (job.data.data_schema, job.data.test_source) == ("deep/s.toml", "deep/held-out.csv")
    assert (job.model.kind, job.run.prepared) == ("deep/net.py:net", "deep/cache")
    assert job.run.out == "results"  # like --out
    stored = resolve_paths(job)
    assert stored.model.kind == f"{tmp_path}/deep/net.py:net"
    assert stored.data.files[0]["path"] == f"{tmp_path}/deep/south.csv"
    assert resolve_paths(stored) == stored


def test_a_database_in_a_file_is_relative_to_the_job_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("deep").mkdir()
    Path("deep/job.toml").write_text(
        '[data]\nsource = "sqlite:///ward.db"\nquery = "SELECT 1"\nschema = "s.toml"\n'
    )
    job = load_job("deep/job.toml")
    assert job.data.source == "sqlite:///deep/ward.db"
    assert resolve_paths(job).data.source == f"sqlite:///{tmp_path}/deep/ward.db"


def test_a_sweep_file_locates_axes_and_shows_them_as_written(clinic):
    grid = '[sweep.grid]\n"data.source" = ["patients.csv", "others.csv"]\n'
    (clinic / "sweep.toml").write_text((clinic / "job.toml").read_text() + grid)
    cells = load_sweep(clinic / "sweep.toml").cells
    assert [cell.job.data.source for cell in cells] == ["clinic/patients.csv", "clinic/others.csv"]
    assert [cell.values["data.source"] for cell in cells] == ["patients.csv", "others.csv"]


def test_a_query_file_locates_its_ledger_too(clinic):
    (clinic / "q.toml").write_text(
        '[session]\ndata = ["a.csv", "b.csv"]\nschema = "s.toml"\nepsilon = 1.0\n'
        'ledger = "shared.sqlite"\ndataset = "ward"\n'
    )
    found = load_session_keys(clinic / "q.toml")
    assert found["data"] == ["clinic/a.csv", "clinic/b.csv"]
    assert (found["schema"], found["ledger"]) == ("clinic/s.toml", "clinic/shared.sqlite")
    assert found["dataset"] == "ward"


def test_the_same_data_from_another_folder_are_charged_to_their_account(
    clinic, monkeypatch, caplog
):
    parley.run(clinic / "job.toml", out="first")
    monkeypatch.chdir(clinic)
    parley.run("job.toml", out="second")
    assert "are those of data set 'clinic/patients.csv' in the ledger" in caplog.text
    with Ledger.open("shared.sqlite", read_only=True) as ledger:
        (account,) = ledger.list_accounts()
        runs = {entry.entry.run_id for entry in ledger.list_entries()}
    assert (account.budget.name, len(runs)) == ("clinic/patients.csv", 2)


def test_examples_name_files_next_to_them():
    folder = Path(__file__).parents[3] / "examples"
    found = 0
    for path in folder.glob("*.toml"):
        tree = load_toml(path)
        for name in ("schema", "test-schema"):
            if isinstance(value := tree.get("data", {}).get(name), str):
                assert (folder / value).is_file(), path
                found += 1
    assert found >= 10
