"""`parley.sweep`: a grid from Python, its table, and what the terminal shows."""

import contextlib
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import parley
from parley.cli import app
from parley.server.jobs.section_base import JobError
from parley.sweeps.latex_table import format_latex_table
from parley.sweeps.sweep_plots import draw_figures
from parley.sweeps.sweep_runner import SweepResult
from parley.sweeps.sweep_summary import summarise_rows
from parley.sweeps.sweep_table import build_columns, build_grid, format_table

RNG = np.random.default_rng(6)
X = RNG.normal(size=(90, 2)).round(3)
FRAME = {"a": X[:, 0], "b": X[:, 1], "sick": np.where(X[:, 0] > 0, "yes", "no")}
SCHEMA = {"a": (-5, 5), "b": (-5, 5), "sick": ["no", "yes"]}
AXES = ("method", "privacy.epsilon")


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
    lines = format_table(build_grid(found, AXES), found, "accuracy")
    assert len(lines) <= 11
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[-2:] == ["0.500", "0.500"]
    assert lines[-1].split() == ["without", "privacy", "0.900", "0.900"]
    assert any("more rows in results.tex" in line for line in lines) == (count == 40)
    many = rows(["m"], range(1, 9))
    wide = format_table(build_grid(many, AXES), many, "accuracy")
    assert wide[0].endswith("…")
    columns = build_columns(found, AXES)
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
    assert "Saved        sweeps/s (sweep.html, results.csv, results.tex, figures/)" in short.stdout
    assert "would cost at most" in full.stdout
    assert isinstance(wrong.exception, JobError)


def priced_rows():
    found = [
        {
            **{"method": method, "privacy.epsilon": epsilon, "status": "complete", "cell": "c"},
            **{"repetition": seed, "epsilon": charged * epsilon, "delta": 1e-5, "unit": "record"},
            **{"neighbouring": "replace-one", "adversary": "readers", "records": 480},
            **{"parties": 10, "accuracy": mean + seed / 100, "baseline_accuracy": 0.9},
        }
        for method, charged, mean in (("a_b & 5%", 1, 0.7), ("twice", 2, 0.8))
        for epsilon in (0.5, 1)
        for seed in (1, 2)
    ]
    failed = {"method": "c", "privacy.epsilon": 1, "repetition": 1, "status": "failed"}
    return [*found, failed]


def test_a_table_in_the_terminal_states_its_scope_and_marks_what_cost_more(tmp_path):
    place = {"folder": tmp_path, "page": tmp_path / "sweep.html", "cost": "", "errors": ()}
    shown = SweepResult(rows=priced_rows(), axes=AXES, **place).list_lines()
    table = dict(zip(("a", "t", "c"), shown[1:4], strict=True))
    assert table["a"].split() == ["a_b", "&", "5%", *["0.715", "±", "0.064"] * 2]
    assert table["t"].split() == ["twice", *["0.815", "±", "0.064†"] * 2]
    text = " ".join(" ".join(shown).split())
    assert "† Charged more than its column's ε, up to 2 " in text
    assert "Protects per record (replace-one), against anyone who sees what was released" in text
    assert len(shown) <= 15
    assert max(map(len, shown[:-1])) <= 80
    # Without such a cell there is neither a mark nor a note.
    cheap = [row for row in priced_rows() if row["method"] != "twice"]
    plain = SweepResult(rows=cheap, axes=AXES, **place)
    assert "†" not in str(plain)


def test_a_table_in_the_terminal_names_the_rows_of_each_adversary(tmp_path):
    place = {"folder": tmp_path, "page": tmp_path / "sweep.html", "cost": "", "errors": ()}
    rows = [
        {**row, "adversary": "all-others"} if row["method"] == "twice" else row
        for row in priced_rows()
    ]
    text = " ".join(str(SweepResult(rows=rows, axes=AXES, **place)).split())
    assert "if everyone else is honest (a_b & 5%); the server and all other" in text
    assert "parties (twice)" in text


def test_a_table_for_a_paper_states_what_was_measured_and_marks_what_cost_more():
    found = priced_rows()
    table = format_latex_table(
        build_grid(found, AXES), found, "accuracy", title="my sweep", version="1.0"
    )
    lines = [line.strip() for line in table.splitlines()]
    spread = r"\pm 0.064"  # t(.975, 1)·(0.01/√2)/√2
    dagger = r"^{\dagger}"
    assert lines[4:] == [
        r"\label{tab:mysweep}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"Method & $\varepsilon = 0.5$ & $\varepsilon = 1$ \\",
        r"\midrule",
        rf"a\_b \& 5\% & $0.715 {spread}$ & $0.715 {spread}$ \\",
        rf"twice & $\mathbf{{0.815}} {spread}{dagger}$ & $\mathbf{{0.815}} {spread}{dagger}$ \\",
        r"c &  & failed \\",
        r"\midrule",
        r"without privacy & $0.900$ & $0.900$ \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    assert lines[3] == (
        r"\caption{Accuracy on held-out records: mean over 2 seeds $\pm$ half-width of its 95\,\% "
        r"interval (Student's $t$). $N = 480$ training records, $m = 10$ parties, "
        r"$\delta = 10^{-5}$. $\varepsilon$ holds per record (replace-one), against anyone who "
        r"sees what was released, if everyone else is honest. The best mean of a column is bold. "
        r"$^{\dagger}$ Charged more than its column's $\varepsilon$, up to 2. "
        r"All figures are of simulations (Parley 1.0).}"
    )


def test_a_figure_for_a_paper_is_as_wide_as_a_column_in_svg_and_pdf(tmp_path):
    draw_figures(summarise_rows(rows(["a", "b", "c"], (0.5, 1)), AXES), tmp_path)
    svg, pdf = (tmp_path / "accuracy.svg").read_text(), (tmp_path / "accuracy.pdf").read_bytes()
    assert svg.count('width="8.40cm" height="') == 1
    left, bottom, right, _ = map(float, re.search(rb"/MediaBox ?\[(.*?)\]", pdf)[1].split())
    assert (left, bottom, round((right - left) / 72 * 2.54, 1)) == (0, 0, 8.4)
    assert 'font-size="9px"' in svg
    assert set(re.findall('font-size="(.*?)"', svg)) == {"9px"}
    # In grey, three lines still differ: by dashes and by marks.
    assert {"1,0", "5,2", "2,2"} <= set(re.findall('stroke-dasharray="(.*?)"', svg))


def test_a_metric_that_there_is_not_is_refused_before_a_run(tmp_path):
    with pytest.raises(JobError, match=r"Unknown metric acc\. Did you mean accuracy\?"):
        parley.sweep(over={"epsilon": [1]}, metric="acc", out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_what_runs_warn_of_is_a_note_below_the_table(tmp_path, capsys):
    over, small = {"epsilon": [1]}, {"data.source": "synthetic", "data.records": 300}
    small |= {"algorithm.rounds": 1, "privacy.delta": 9e-3, "parties.count": 2}
    found = parley.sweep(small, over, seeds=2, workers=1, out=tmp_path / "s")
    lines = str(found).splitlines()
    (first,) = [line for line in lines if line.startswith("Note")]
    assert "Expected privacy.delta well below 1/240" in first
    assert len(lines) <= 15
    assert "well below" not in capsys.readouterr().err


def test_a_script_may_sweep_at_its_top_level(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "import parley\n"
        'print("begun")\n'
        'keys = {"parties.count": 2, "algorithm.rounds": 1, "run.baseline": False}\n'
        'print(parley.sweep(keys, over={"epsilon": [0.5, 1]}, workers=1, out="found"))\n'
    )
    told = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("begun") == 1  # no process runs the script again
    assert "2 of 2 runs" in told.stdout


def test_a_script_may_sweep_over_its_own_network_below_its_main_line(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "import parley\n"
        "from torch import nn\n"
        "def small(features, classes):\n"
        "    return nn.Linear(features, classes)\n"
        'if __name__ == "__main__":\n'
        '    keys = {"parties.count": 2, "algorithm.rounds": 1, "run.baseline": False}\n'
        '    model = "__main__:small"\n'
        '    print(parley.sweep(keys, {"epsilon": [1]}, model=model, workers=1, out="found"))\n'
    )
    told = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "1 of 1 runs" in told.stdout
