"""A starter folder runs as it is: its job, its network, and its notebook."""

import json
import tomllib

import numpy as np
import pytest
from commands import invoked

from parley.starter import starter_folder
from parley.starter.starter_folder import build_starter_folder

rng = np.random.default_rng(5)
AGE = rng.integers(18, 95, 240)
SIZE = np.round(1.5 + rng.random(240) / 2, 2)


def write_rows(path, header, rows, *, encoding="utf-8"):
    text = "\n".join([header, *rows]) + "\n"
    path.write_text(text, encoding=encoding)


def make_records(folder):
    answers = np.where(AGE + rng.normal(0, 8, 240) > 55, "yes", "no")
    rows = [f"{a},{s},{y}" for a, s, y in zip(AGE, SIZE, answers, strict=True)]
    write_rows(folder / "north 1.csv", "age,size,sick", rows[:140])
    write_rows(folder / "north 2.csv", "age,size,sick", rows[140:])
    classes = [
        f"{a};{str(s).replace('.', ',')};{'abc'[a % 3]}" for a, s in zip(AGE, SIZE, strict=True)
    ]
    write_rows(folder / "grades.csv", "alter;größe;grad", classes, encoding="latin-1")
    numbers = [f"{a},{a / 15 + s:.3f}" for a, s in zip(AGE, SIZE, strict=True)]
    write_rows(folder / "stays.csv", "age,stay", numbers)


KINDS = {
    "example": ([], 5, "logistic"),
    "images": (["--data", "digits"], 5, "softmax"),
    "one file per party": (["--data", "north *.csv"], 2, "logistic"),
    "semicolons": (["--data", "grades.csv", "--label", "grad"], 5, "softmax"),
    "a number to predict": (["--data", "stays.csv"], 5, "ridge"),
}


def run_notebook(folder):
    names = {}
    for cell in json.loads((folder / "notebook.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    return names


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("no_baseline")
def test_a_new_folder_runs_as_it_is(kind, tmp_path, monkeypatch):
    options, parties, model = KINDS[kind]
    monkeypatch.chdir(tmp_path)
    make_records(tmp_path)
    made = invoked("new", "study", *options)
    assert made.exit_code == 0, made.output
    lines = made.stdout.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    folder = tmp_path / "study"
    job = tomllib.loads((folder / "job.toml").read_text())
    assert (job["parties"]["count"], job["model"]["kind"]) == (parties, model)
    assert (folder / "model.py").exists() == (model != "ridge")
    own = {file.name for file in folder.iterdir() if file.name.startswith("data")}
    assert bool(own) == (kind in {"example", "images"})
    monkeypatch.chdir(folder)
    planned = invoked("plan", "job.toml")
    assert planned.exit_code == 0, planned.output
    assert f"at least {job['parties']['min-records']} records" in planned.stdout
    names = run_notebook(folder)
    assert names["run"].summary.status == "complete"


def test_the_commands_that_a_new_folder_names_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dict(line.split(maxsplit=1) for line in invoked("new", "study").stdout.splitlines())
    assert said["Next"] == "cd study"
    monkeypatch.chdir(tmp_path / "study")
    for title in ("Plan", "Train", "Network"):
        parley, *words = said[title].split()
        assert parley == "parley"
        done = invoked(*words, *([] if title == "Plan" else ["--set", "run.baseline=false"]))
        assert done.exit_code == 0, done.output


def test_the_job_has_twelve_keys_and_trains_the_network_that_an_option_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = build_starter_folder("study").files
    keys = [key for section in tomllib.loads(files["job.toml"]).values() for key in section]
    assert len(keys) == 12
    assert "kind" not in tomllib.loads(files["job.toml"])["algorithm"]


FAULTS = {
    "a name with a folder": (["a/b"], "Expected a folder's name of letters"),
    "a name that is taken": (["taken"], "Expected a new folder, taken exists."),
    "no such file": (["x", "--data", "nosuch.csv"], "Expected a file, got nothing there."),
    "no file matches": (["x", "--data", "p-*.csv"], "Expected at least one file, one per party"),
    "a folder": (["x", "--data", "taken"], "Expected a file of records, got a folder"),
    "no table": (["x", "--data", "bytes.csv"], "bytes.csv"),
    "a database": (["x", "--data", "sqlite:///a.db"], "got a database"),
    "a last column that is no label": (
        ["x", "--data", "notes.csv"],
        "got 300 texts (this is the last column: name another with --label, in Python label=).",
    ),
    "no such label": (["x", "--data", "notes.csv", "--label", "aeg"], "among ['age'], got 'aeg'"),
    "only a label": (["x", "--data", "one.csv"], "Expected a column to learn from"),
    "a cell that a run refuses": (
        ["x", "--data", "odd cell.csv"],
        "`parley schema infer 'odd cell.csv' --label sick --out schema.toml` drafts one",
    ),
    "another label than the schema's": (
        ["x", "--data", "one.csv", "--schema", "s.toml", "--label", "age"],
        "Expected --label sick, the label of s.toml, got age.",
    ),
    "a file that a job would read as a pattern": (
        ["x", "--data", "a[1].csv"],
        "Expected a file name without *, ? and [, which a job reads as a pattern: rename the file",
    ),
    "a bundled name with a label": (
        ["x", "--label", "age"],
        "Expected no --schema and no --label with the bundled 'breast-cancer'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_could_not_run_is_refused_and_not_made(fault, tmp_path, monkeypatch):
    words, message = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)) * 4)
    notes = [f"{at % 60},note {at} of {at * 7}" for at in range(300)]
    write_rows(tmp_path / "notes.csv", "age,notes", notes)
    write_rows(tmp_path / "a[1].csv", "age,sick", ["1,yes", "2,no"] * 100)
    write_rows(tmp_path / "one.csv", "age", [str(at % 60) for at in range(300)])
    rows = [f"{at % 60},{'yes' if at % 3 else 'no'}" for at in range(300)]
    write_rows(tmp_path / "odd cell.csv", "age,sick", [*rows, "twelve,yes"])
    label = 'sick = { kind = "label", positive = "yes", negative = "no" }'
    (tmp_path / "s.toml").write_text(
        f'[columns]\nage = {{ kind = "numeric", range = [0, 60] }}\n{label}\n'
    )
    done = invoked("new", *words)
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert not (tmp_path / "x").exists()
    assert [*(tmp_path / "taken").iterdir()] == []


def test_a_schema_that_repairs_a_refused_file_is_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{at % 60},{'yes' if at % 3 else 'no'}" for at in range(300)]
    write_rows(tmp_path / "odd.csv", "age,sick", [*rows, "twelve,yes"])
    schema = """
[file]
null-values = ["twelve"]
[columns]
age = { kind = "numeric", range = [0, 60], missing = 30 }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
    (tmp_path / "own.toml").write_text(schema)
    done = invoked("new", "study", "--data", "odd.csv", "--schema", "own.toml", "--label", "sick")
    assert done.exit_code == 0, done.exception
    assert "Review" not in done.stdout
    assert (tmp_path / "study" / "schema.toml").read_text() == schema


def test_a_folder_that_cannot_be_written_whole_is_not_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, written = build_starter_folder("study"), []

    def fail_at_third(path, content):
        written.append(path.name)
        if len(written) == 3:
            raise OSError("disk full")
        path.write_text("")

    monkeypatch.setattr(starter_folder, "write_file", fail_at_third)
    with pytest.raises(OSError, match="disk full"):
        folder.write()
    assert not (tmp_path / "study").exists()
