"""Curves of five parties, beside those of the pooled rows."""

import runpy
from pathlib import Path

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples/survival.py"))


def test_its_curves_are_near_the_pooled_rows_own():
    text = EXAMPLE["main"](seed=1)
    assert "log-rank test" in text
    assert "charged ε = 1 of 1" in text
    assert float(text.rsplit("at most ", 1)[1].split()[0]) < 0.02
