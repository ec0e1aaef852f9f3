"""The command line as a person uses it: exit statuses, both streams, files.

Its own process shows what a process alone has: start, signals, a terminal, a disk; other
commands run in this one, whose libraries are loaded.
"""

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from unittest import mock

import pytest
import typer.main
from ledgers import ADULT
from rich.text import Text

from parley.cli import app, main
from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.ledger.ledger import Ledger

SUM = "secure-aggregation"
KEYS = {
    *("run_dir", "algorithm", "parties", "rounds", "guarantees", "secure_aggregation"),
    *("loss", "baseline_loss", "excess_loss", "accuracy", "baseline_accuracy"),
    *("seconds", "seconds_per_round"),
}


def parley(*arguments, cwd):
    out, err, status, before = io.StringIO(), io.StringIO(), 0, signal.getsignal(signal.SIGTERM)
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["parley", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            status = ended.code
        finally:
            signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def test_run_with_no_argument_learns_and_says_what_it_cost(tmp_path):
    done = parley("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    for words in ("ε = 1", "per record (replace-one)", "Saved", "Only a simulation can show it"):
        assert words in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} == {
        *("job.toml", "ledger.sqlite", "model.safetensors", "report.html"),
        *("rounds.jsonl", "schema.toml", "run-id", "summary.json"),
    }


def test_json_is_exactly_one_object_on_stdout(tmp_path):
    done = parley("run", "--json", "--out", "r", "--seed", "3", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert summary.keys() >= KEYS
    (guarantee,) = summary["guarantees"]
    assert guarantee["noise"]["law"] == "gaussian"
    assert guarantee["noise"]["scale"] > 0
    assert guarantee["noise"]["seeded"]


def test_plan_needs_no_data_and_gives_the_specifications_numbers(tmp_path):
    done = parley(
        *("plan", "--json", "--set", "parties.count=100", "--set", "parties.min-records=500"),
        *("--set", "privacy.epsilon=0.5", "--set", "algorithm.rounds=100"),
        cwd=tmp_path,
    )
    outlook = json.loads(done.stdout)
    assert outlook["sensitivity"] == pytest.approx(4e-5)
    sigmas = {name: offer["scale"] for name, offer in outlook["calibrations"].items()}
    assert sigmas["exact"] == pytest.approx(0.00281273, rel=2e-6)
    assert sigmas["zcdp"] == pytest.approx(0.00388006, rel=2e-6)
    assert sigmas["as-printed"] == pytest.approx(0.00383882, rel=2e-6)
    (guarantee,) = outlook["guarantees"]
    assert len(guarantee["epsilon_by_round"]) == 100
    assert {"scale", "expected_norm"} <= set(outlook["noise_laws"]["l2-laplace"])
    assert not list(tmp_path.iterdir())
    shown = parley("plan", "-v", cwd=tmp_path)
    assert shown.returncode == 0
    assert "ε after each round" in shown.stdout
    lines = parley("plan", cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "5 parties of at least 91 records, logistic, 31 parameters, 11 rounds"
    assert "Less noise   4x the records per party, or 20 parties: σ 0.0068, not 0.0272" in lines
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run", "--set", "privacy.epsilon=0"], 2, "privacy.epsilon"),
        (["run", "--set", "privacy.delta=0"], 2, "δ = 0"),
        (["run", "--set", "algorithm.rounds=0"], 2, "got 0"),
        (["run", "--set", "privacy.epsilom=1"], 2, "Did you mean privacy.epsilon"),
        (["run", "nowhere.toml"], 2, "nowhere.toml"),
        (["run", "--set", "data.source=nowhere.csv"], 2, "got no such file (check data.source)"),
        (["run", "--set", "parties.min-records=200"], 2, "min-records"),
        (["run", "--set", "parties.count=1000"], 2, "1000"),
        (["run", "--set", "run.faults=drip:1"], 2, "drop:0.2"),
        (["run", "--set", SUM + ".scale-bits=40", "--set", SUM + ".ring-bits=32"], 2, "2^31"),
        (["run", "--resume", "nowhere"], 2, "not a run folder"),
        (["run", "--resume", "nowhere", "--seed", "1"], 2, "alone"),
        (["ledger", "show", "nowhere.sqlite"], 2, "nowhere.sqlite"),
        (["ledger", "verify", "job.toml"], 2, "job.toml"),
        (["report", "."], 2, "rounds"),
        (["schema", "infer", "nowhere.csv"], 2, "nowhere.csv"),
        (["run", "--set", "data.source=t.csv", "--set", "data.schema=nowhere.toml"], 2, "nowhere"),
        (["run", "--set", "run.seed=-1"], 2, "run.seed"),
        (["run", "--set", "secure-aggregation.scale-bits=52"], 2, "scale_bits 52"),
        (["run", "--set", "privacy.noise=laplace-as-printed"], 3, "privacy.dataset-epsilon"),
        (["run", "--set", "privacy.epsilon=100"], 2, "--set privacy.noise=auto"),
        (["run", "--set", "parties.count=1", "--set", SUM + ".backend=masked"], 2, "at least 2"),
        (["run", "--set", "privacy.ledger=nodir/l.sqlite"], 1, "nodir"),
        (["run", "--set", "privacy.ledger=postgresql://b:s3cret@127.0.0.1:1/x"], 2, "PGPASSWORD"),
        (["run", "--set", "run.faults=decline:0.1@before-vector"], 2, "no stage"),
        (["run", "--set", "data.records=5000"], 2, "569"),
        (["plan", "--set", "model.kind=softmax"], 2, "classes"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_bad_input_is_one_clear_message_and_nothing_is_left(tmp_path, arguments, status, words):
    (tmp_path / "job.toml").write_text("[parties]\ncount = 3\n")
    done = parley(*arguments, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert "s3cret" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_own_data_from_inference_to_report(tmp_path):
    rows = ["age,sex,hospital,sick"]
    for at in range(300):
        sick = "yes" if (at * 37) % 100 > 55 else "no"
        rows.append(f"{20 + (at * 37) % 60},{'fm'[at % 2]},h{at % 3},{sick}")
    (tmp_path / "patients.csv").write_text("\n".join(rows) + "\n")
    inferred = parley(
        *("schema", "infer", "patients.csv", "--label", "sick", "--out", "patients.toml"),
        cwd=tmp_path,
    )
    assert inferred.returncode == 0, inferred.stderr
    assert "Review it before use" in inferred.stderr
    sets = ["data.source=patients.csv", "data.schema=patients.toml", "parties.count=3"]
    sets += ["data.partition=column", "data.partition-column=hospital"]
    done = parley(
        *("run", "--json", "--out", "r", *(word for s in sets for word in ("--set", s))),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert len(summary["records_by_party"]) == 3
    assert parley("report", "r", cwd=tmp_path).stdout.strip() == "r/report.html"
    assert parley("ledger", "verify", "r", cwd=tmp_path).returncode == 0
    shown = parley("ledger", "show", "r", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["datasets"][0]["budget"]["unit"] == "record"


def test_a_schema_is_read_off_a_query_that_a_run_then_asks(tmp_path):
    rows = [(20 + at % 60, at % 100 > 55) for at in range(300)]
    with sqlite3.connect(tmp_path / "ward.db") as connection:
        connection.execute("CREATE TABLE visits (age INTEGER, sick INTEGER)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    connection.close()
    asked = ("sqlite:///ward.db", "--query", "SELECT age, sick FROM visits")
    inferred = parley("schema", "infer", *asked, "--out", "s.toml", cwd=tmp_path)
    assert inferred.returncode == 0, inferred.stderr
    checked = parley("schema", "check", *asked, "s.toml", cwd=tmp_path)
    assert "300 records as s.toml says" in checked.stdout
    sets = ["data.source=sqlite:///ward.db", "data.query=SELECT age, sick FROM visits"]
    sets += ["data.schema=s.toml", "parties.count=3", "algorithm.rounds=2"]
    words = [word for each in sets for word in ("--set", each)]
    done = parley("run", "--out", "r", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for wrong in (["sqlite:///ward.db"], ["a.csv", "b.csv", "--query", "SELECT 1"]):
        assert parley("schema", "infer", *wrong, cwd=tmp_path).returncode == 2
    secret = parley("schema", "infer", "postgresql://b:s3cret@h/x", *asked[1:], cwd=tmp_path)
    assert (secret.returncode, "s3cret" in secret.stderr) == (2, False)


def test_a_schema_is_not_inferred_from_a_column_that_is_there_twice(tmp_path):
    (tmp_path / "t.csv").write_text("age,sick,age\n1,yes,2\n2,no,3\n")
    done = parley("schema", "infer", "t.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "once (rename one in the file; in a query AS does), got ['age']" in done.stderr
    (tmp_path / "t.csv").write_text("age,sick\n1,yes\n2,no\n3,no\n")
    done = parley("schema", "infer", "t.csv", cwd=tmp_path)
    assert "last column, 'sick'" in done.stderr


def test_one_file_a_party(tmp_path):
    for party in range(3):
        rows = [f"{at},{'yes' if at % 5 > 1 else 'no'}" for at in range(50 + party)]
        (tmp_path / f"party-{party}.csv").write_text("age,sick\n" + "\n".join(rows) + "\n")
    (tmp_path / "s.toml").write_text(
        '[columns]\nage = { kind = "numeric", range = [0, 100] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    sets = ["data.source=party-*.csv", "data.schema=s.toml", "data.test-fraction=0"]
    command = ["run", "--json", "--out", "r", *(word for s in sets for word in ("--set", s))]
    wrong = parley(*command, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "parties.count = 3" in wrong.stderr
    done = parley(*command, "--set", "parties.count=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["records_by_party"] == [50, 51, 52]
    assert "accuracy" not in summary
    assert parley("run", "--out", "t", *command[3:], cwd=tmp_path).returncode == 2


def test_help_says_of_a_command_what_the_command_says_first():
    for name, row in typer.main.get_command(app).commands.items():
        first = (row.loaded.help or "").split("\n\n")[0]
        assert " ".join(first.split()) == row.help, name


def _list_help_texts(command):
    """List the help of a command, of its arguments and options, and of its own commands."""
    yield command.help or ""
    yield from (getattr(each, "help", None) or "" for each in command.params)
    for each in getattr(command, "commands", {}).values():
        yield from _list_help_texts(getattr(each, "loaded", each))


def test_help_shows_every_word_in_brackets():
    texts = list(_list_help_texts(typer.main.get_command(app)))
    assert len(texts) > 150
    for text in texts:
        plain = text.replace("[bold]", "").replace("[/bold]", "").replace("\\[", "[")
        assert Text.from_markup(text).plain == plain, text


# Processes take a second each to start: one shows all that a process alone can show of these.
COMMANDS = """
import sys
import parley.privacy.calibration.noise_calibration
assert not {"scipy.optimize", "scipy.stats", "mpmath"} & set(sys.modules)
import parley.client.data.schema
assert not {"polars", "sklearn"} & set(sys.modules)
import parley.presentation.run_page
from parley.cli import main
SPARED = {"torch", "flwr", "grpc", "sqlalchemy", "asyncio", "tenacity", "psycopg", "sklearn"}
SPARED |= {"scipy.optimize", "scipy.stats", "pandas", "pyarrow", "opacus", "dp_accounting"}
for arguments in (["--help"], ["plan"], ["run", "-q", "--json", "--out", "r"]):
    sys.argv = ["parley", *arguments]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
    assert not SPARED & set(sys.modules), (arguments, SPARED & set(sys.modules))
import parley.client.flower_client_app, parley.server.flower_server_app
assert "torch" not in sys.modules
"""


def test_a_terminal_without_greek_gets_the_run_which_loads_no_library_that_it_spares(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


def test_a_model_that_diverges_is_a_run_that_says_so(tmp_path):
    sets = ["algorithm.learning-rate=1e200", "algorithm.rounds=1", "algorithm.average=false"]
    command = ["run", "--json", "--out", "r", *(word for s in sets for word in ("--set", s))]
    done = parley(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loss" not in json.loads(done.stdout)  # it is not finite


def test_a_spent_budget_exits_three(tmp_path):
    shared = ["--set", "privacy.ledger=all.sqlite", "-q"]
    assert parley("run", *shared, cwd=tmp_path).returncode == 0
    refused = parley("run", *shared, cwd=tmp_path)
    assert refused.returncode == 3
    assert "unit record, replace-one" in refused.stderr


def test_ctrl_c_keeps_what_was_committed_and_says_how_to_go_on(tmp_path):
    command = ["run", "--out", "r", "--set", "algorithm.rounds=5000"]
    # Whoever starts the tests in the background of a shell has SIGINT ignored.
    heard = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from parley.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", heard, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    rounds = tmp_path / "r" / "rounds.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (rounds.exists() and rounds.stat().st_size > 2000):
        time.sleep(0.05)
    process.send_signal(2)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "parley run --resume r" in error
    assert "Traceback" not in error
    assert parley("report", "r", cwd=tmp_path).returncode == 0
    assert parley("ledger", "verify", "r", cwd=tmp_path).returncode == 0


def test_what_a_killed_run_holds_is_shown_and_freed(tmp_path):
    with Ledger.open(tmp_path / "all.sqlite") as ledger:
        ledger.register(ADULT)
        ledger.hold("gone", {ADULT.key: ((Pure(epsilon=0.15), 4),)})
    shown = parley("ledger", "show", "all.sqlite", cwd=tmp_path)
    assert "left ε = 0.4" in " ".join(shown.stdout.split())
    assert "gone holds 4 releases" in shown.stdout
    refused = parley("ledger", "free", "all.sqlite", "another", cwd=tmp_path)
    assert (refused.returncode, "(gone), got 'another'" in refused.stderr) == (2, True)
    freed = parley("ledger", "free", "all.sqlite", "gone", cwd=tmp_path)
    assert freed.stdout == "'adult' (unit record): 4 releases given back.\n"
    assert "left ε = 1" in parley("ledger", "show", "all.sqlite", cwd=tmp_path).stdout
    assert parley("ledger", "verify", "all.sqlite", cwd=tmp_path).returncode == 0
