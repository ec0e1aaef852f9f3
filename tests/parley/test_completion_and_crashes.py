"""Shells complete commands and options; an unexpected error is one line and a file."""

import contextlib
import importlib
import io
import os
import py_compile
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from parley import __main__, cli, exit_status
from parley.cli import main
from parley.commands import plan as plan_command


def parley(*words, cwd):
    out, err, before = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGTERM)
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["parley", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(words, ended.value.code, out.getvalue(), err.getvalue())


def complete(shell, **variables):
    done = subprocess.run(
        [sys.executable, "-m", "parley"],
        env={**os.environ, "_PARLEY_COMPLETE": f"complete_{shell}", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_shells_complete_commands_and_their_options(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        script = parley("completion", shell, cwd=tmp_path).stdout
        assert "_PARLEY_COMPLETE" in script
        assert f"complete_{shell}" in script
    bash = complete("bash", COMP_WORDS="parley run --ep", COMP_CWORD="2")
    assert bash.split() == ["--epsilon"]
    zsh = complete("zsh", _TYPER_COMPLETE_ARGS="parley ledger v")
    assert "verify" in zsh
    fish = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_ARGS": "parley pl"}
    assert complete("fish", **fish).startswith("plan")


def test_an_unexpected_error_is_one_line_and_a_file_without_its_text(tmp_path, monkeypatch):
    cell = f"cell {40 + 2}"

    def fail(*_, **__):
        try:
            raise KeyError(cell)
        except KeyError as error:
            raise TypeError(f"got {error}") from error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(plan_command, "plan_job", fail)
    done = parley("plan", cwd=tmp_path)
    assert done.returncode == exit_status.INTERNAL_ERROR == 70
    (file,) = (tmp_path / "cache" / "parley").iterdir()
    assert done.stderr == f"parley: internal error (TypeError). Please report it with {file}.\n"
    assert file.stat().st_mode & 0o077 == 0
    report = file.read_text()
    assert report.index("builtins.TypeError") < report.index("builtins.KeyError")
    assert "in fail" in report
    assert "cell 42" not in report


def test_a_crash_report_that_cannot_be_written_leaves_the_line(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file in the folder's place")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "cache"))
    monkeypatch.setattr(plan_command, "plan_job", lambda *_, **__: {}["a"])
    done = parley("plan", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        70,
        "parley: internal error (KeyError). Please report it.\n",
    )


def store_incomplete(source):
    """Store what CPython 3.11 leaves of a module's compiled file on a full disk; its path."""
    compiled = Path(py_compile.compile(str(source), doraise=True))
    compiled.write_bytes(compiled.read_bytes()[:-20])
    return compiled


def test_an_incomplete_compiled_module_is_named_to_be_deleted(tmp_path, monkeypatch):
    """Otherwise the next imports fail for good: at the start of a command, and within one."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "compiled"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cut_off.py").write_text("VALUES = ['a text', 'another text', 'one more']\n")
    within, start = store_incomplete(tmp_path / "cut_off.py"), store_incomplete(cli.__file__)
    monkeypatch.setattr(
        plan_command, "plan_job", lambda *_, **__: importlib.import_module("cut_off")
    )
    done = parley("plan", cwd=tmp_path)
    assert done.returncode == 1
    assert f"parley: Python's compiled file {within} is incomplete: the disk" in done.stderr
    monkeypatch.delitem(sys.modules, "parley.cli")
    monkeypatch.setattr(__main__, "end_quietly", lambda: None)
    with pytest.raises(SystemExit, match="compiled file") as ended:
        __main__.start()
    assert f"file {start} is incomplete" in str(ended.value.code)
    within.unlink()
    assert importlib.import_module("cut_off").VALUES[0] == "a text"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["certificate", "verify", "nosuch.json"], 2),
        (["show", "nosuch"], 2),
        (["predict", "nosuch", "rows.csv"], 2),
        (["report", "nosuch"], 2),
        (["ledger", "show", "nosuch.sqlite"], 2),
        (["sweep", "nosuch.toml"], 2),
        (["plan", "--seconds-a-step", "0"], 2),
        (["plan", "--algorithm", "distributed-dp-sgd", "--model", "mlp", "--unit", "both"], 2),
    ],
)
def test_wrong_input_has_neither_a_traceback_nor_an_error_number(words, code, tmp_path):
    done = parley(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Errno" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in exit_status.EXIT_CODES


def test_new_rows_may_be_written_otherwise_than_the_training_file(tmp_path):
    header = "age;dose;sick\n"
    rows = [f"{20 + at % 60};0,{at % 10}5;{'yes' if at % 60 > 30 else 'no'}" for at in range(240)]
    (tmp_path / "s.toml").write_text(
        "[columns]\nage = { kind = 'numeric', range = [0, 100] }\n"
        "dose = { kind = 'numeric', range = [0, 1] }\n"
        "sick = { kind = 'label', positive = 'yes', negative = 'no' }\n"
    )
    comma = [row.replace(",", ".").replace(";", ",") for row in rows]
    (tmp_path / "t.csv").write_text(header.replace(";", ",") + "\n".join(comma) + "\n")
    (tmp_path / "new.csv").write_text(header + "\n".join(rows) + "\n", encoding="utf-16")
    words = ("--data", "t.csv", "--schema", "s.toml", "--parties", "2", "--rounds", "2")
    assert parley("run", *words, "--seed", "1", "--out", "r", "-q", cwd=tmp_path).returncode == 0
    named = ("--separator", ";", "--decimal", ",", "--encoding", "utf-16")
    for file, out, more in (("t.csv", "a", ()), ("new.csv", "b", ()), ("new.csv", "c", named)):
        done = parley("predict", "r", file, "--out", out, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    texts = {(tmp_path / name).read_text() for name in "abc"}
    assert len(texts) == 1
    wrong = parley("predict", "r", "t.csv", "--out", "d", "--separator", "§", cwd=tmp_path)
    assert (wrong.returncode, "--separator" in wrong.stderr) == (2, True)
