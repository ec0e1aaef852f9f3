"""The tables of synthetic data's page are those that the kept runs give."""

import importlib.util
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_pages_tables_are_made_of_the_runs_that_were_kept():
    place = BENCHMARKS / "synthetic_table.py"
    described = importlib.util.spec_from_file_location("synthetic_table", place)
    script = importlib.util.module_from_spec(described)
    described.loader.exec_module(script)
    assert len(script.tables()) > 5
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page(text) == text
