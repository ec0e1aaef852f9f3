"""Names, ids and paths stand in the terminal whole, however narrow it is."""

from pathlib import Path

import pytest
from rich.console import Console

import parley
from parley.server.jobs.file import load_job
from parley.simulations.engine.fast import simulate
from parley.terminal.ledger import print_ledger, read_ledger
from parley.terminal.result import print_result
from parley.terminal.screen import plain_table

ROOT = Path(parley.__file__).parent
LONG = "20261125-150519-gradient-perturbation-02b8-fbcdec344dd242cf"


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_table_goes_on_in_the_next_line_and_cuts_nothing(width, capsys):
    table = plain_table("run", "round", left=1)
    table.add_row(LONG, "3")
    Console(width=width).print(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    cells = [line[: shown.index("round")].strip() for line in shown.splitlines()[1:]]
    assert LONG in "".join(cell.removesuffix("3").strip() for cell in cells)


@pytest.mark.parametrize("width", ["60", "80"])
def test_what_is_there_to_be_copied_is_whole(width, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", width)
    folder = tmp_path / LONG
    job = load_job(overrides=["algorithm.rounds=1"])
    print_result(simulate(job, out=folder))
    content = read_ledger(str(folder))
    print_ledger(content)
    shown = capsys.readouterr().out
    assert "…" not in " ".join(shown.split()).replace("`parley run … ", "")  # what was typed before
    assert f"run folder  {folder}" in shown.splitlines()
    assert content.entries[0].entry.run_id in shown.splitlines()


def test_every_table_of_the_terminal_is_made_in_one_place():
    made = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "from rich.table import Table" in (text := path.read_text()) and " Table(" in text
    ]
    assert made == ["terminal/screen.py"]
