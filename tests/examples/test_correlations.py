"""Regressions of five parties, beside those of the pooled rows."""

import runpy
from pathlib import Path

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples/correlations.py"))


def test_its_slopes_are_near_the_pooled_rows_own():
    text = EXAMPLE["main"](seed=1)
    assert "charged ε = 1 of 1" in text
    noisy = text.split("children ~ yrs_married + educ:\n")[1].splitlines()[2].split()
    pooled = text.split("pooled children ~ yrs_married + educ: ")[1].splitlines()[0].split(", ")[1]
    assert noisy[0] == "yrs_married"
    assert abs(float(noisy[1]) - float(pooled.split()[1])) < 0.02
