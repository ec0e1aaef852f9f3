"""`parley.sweep`: a grid from Python, its table, and what the terminal shows."""

import contextlib

import numpy as np
import pytest
from typer.testing import CliRunner

import parley
from parley.cli import app
from parley.server.jobs.section_base import JobError
from parley.sweeps.sweep_table import build_columns, format_table

RNG = np.random.default_rng(6)
X = RNG.normal(size=(90, 2)).round(3)
FRAME = {"a": X[:, 0], "b": X[:, 1], "sick": np.where(X[:, 0] > 0, "yes", "no")}
SCHEMA = {"a": (-5, 5), "b": (-5, 5), "sick": ["no", "yes"]}


def rows(methods, epsilons):
    return [
        {
            **{"method": method, "privacy.epsilon": epsilon, "status": "complete", "cell": "c"},
            **{"epsilon": epsilon, "delta": 0.0, "accuracy": 0.5 + at / 100},
            "baseline_accuracy": 0.9,
        }
        for at, method in enumerate(methods)
        for epsilon in epsilons
    ]


def test_a_grid_of_data_in_memory_runs_and_is_not_run_again(tmp_path):
    call = {"schema": SCHEMA, "label": "sick", "parties": 2, "out": tmp_path / "s", "workers": 1}
    over = {"epsilon": [1, 4]}
    found = parley.sweep({"algorithm.rounds": 2}, over, data=FRAME, **call)
    assert found.errors == ()
    assert found.table["privacy.epsilon"] == [1, 4]
    assert all(0 <= value <= 1 for value in found.table["accuracy"])
    lines = str(found).splitlines()
    assert len(lines) <= 15
    assert lines[0].split("   ")[0] == "2 of 2 runs"
    assert lines[0].split("ε = ")[1:] == [f"1{' ' * 13}", "4"]
    assert len(repr(found)) < 120
    assert lines[1] in found._repr_html_()
    kept = []
    parley.sweep({"algorithm.rounds": 2}, over, data=FRAME, observe=kept.append, **call)
    assert (kept[0].kept, kept[-1].done) == (2, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "Expected over= with values"),
        ({"over": {"epsilom": [1]}}, "Unknown key epsilom"),
        ({"base": FRAME, "over": {"epsilon": [1]}}, "give records as data="),
        ({"model": object(), "over": {"epsilon": [1]}}, 'model="file.py:function"'),
    ],
)
def test_what_is_no_grid_is_refused(words, message):
    with pytest.raises(JobError, match=message):
        parley.sweep(**words)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_table_fits_the_terminal_and_says_what_it_leaves_out(count):
    methods = [f"method {at}" for at in range(count)]
    found = rows(methods, (0.1, 1))
    lines = format_table(found, ("method", "privacy.epsilon"), "accuracy")
    assert len(lines) <= 11
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["method", "0", "0.500", "0.500"]
    assert lines[-1].split() == ["without", "privacy", "0.900", "0.900"]
    assert any("more rows in summary.csv" in line for line in lines) == (count == 40)
    wide = format_table(rows(["m"], range(1, 9)), ("method", "privacy.epsilon"), "accuracy")
    assert wide[0].endswith("…")
    columns = build_columns(found, ("method", "privacy.epsilon"))
    assert len(columns["accuracy"]) == 2 * count


def test_sweep_prints_a_table_and_takes_the_twelve_options(tmp_path):
    (tmp_path / "s.toml").write_text(
        '[data]\nsource = "synthetic"\nrecords = 60\n[algorithm]\nrounds = 1\n'
        '[sweep]\nseeds = 1\n[sweep.grid]\n"privacy.epsilon" = [1, 2]\n'
    )
    with contextlib.chdir(tmp_path):
        words = ["sweep", "s.toml", "--workers", "1", "--quiet", "--parties", "2"]
        short = CliRunner().invoke(app, words)
        full = CliRunner().invoke(app, [*words, "-v"])
        wrong = CliRunner().invoke(app, [*words, "--label", "y"])
    assert short.exit_code == 0, short.output
    assert short.stdout.splitlines()[0].startswith("2 of 2 runs ")
    assert "Saved        sweeps/s (sweep.html, summary.csv, figures/)" in short.stdout
    assert "would cost at most" in full.stdout
    assert isinstance(wrong.exception, JobError)
