"""Compute correlations and regressions of five parties' records, compared with the pooled rows.

    python examples/correlations.py [fair.csv]

`fair` (6,366 married women of a magazine's survey; Fair 1978) is in Python's statsmodels, in
`statsmodels/datasets/fair/fair.csv`. Without a file, the same number of rows is generated.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import parley
from parley.client.data.schema import Schema

SCHEMA = Schema.from_toml(
    """
[columns]
yrs_married = { kind = "numeric", range = [0, 25] }
children = { kind = "numeric", range = [0, 6] }
educ = { kind = "numeric", range = [9, 20] }
rate_marriage = { kind = "label", range = [1, 5] }
"""
)
COLUMNS = ["yrs_married", "children", "educ", "rate_marriage"]
REGRESSIONS = ["children ~ yrs_married + educ", "rate_marriage ~ children + educ"]


def rows_of(file: str | None) -> pl.DataFrame:
    """Return years married, children, years of education, and the rating of the marriage."""
    if file is not None:
        return pl.read_csv(file).select(COLUMNS)
    rng, count = np.random.default_rng(6366), 6366
    years = rng.gamma(1.5, 6, count).clip(0.5, 23)
    educ = rng.normal(14.2 - 0.03 * (years - 9), 2.1).clip(9, 20)
    children = rng.normal(0.58 + 0.15 * years - 0.038 * educ, 0.9).clip(0, 5.5)
    rated = rng.normal(3.83 - 0.08 * children + 0.028 * educ, 0.95).round().clip(1, 5)
    return pl.DataFrame(dict(zip(COLUMNS, (years, children, educ, rated), strict=True)))


def pooled(rows: pl.DataFrame) -> str:
    """Return least-squares fits of the pooled rows, without privacy."""
    lines = []
    for text in REGRESSIONS:
        target, on = (part.strip() for part in text.split("~"))
        names = on.split(" + ")
        matrix = np.column_stack([np.ones(len(rows)), rows.select(names).to_numpy()])
        found = np.linalg.lstsq(matrix, rows[target].to_numpy(), rcond=None)[0]
        terms = zip(("1", *names), found, strict=True)
        lines.append(f"pooled {text}: " + ", ".join(f"{name} {b:.4f}" for name, b in terms))
    return "\n".join(lines)


def main(file: str | None = None, *, seed: int | None = None) -> str:
    """Return the text to print."""
    rows = rows_of(file).sample(fraction=1.0, shuffle=True, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "session"
        with parley.Session(
            rows, schema=SCHEMA, parties=5, epsilon=1.0, delta=1e-6, seed=seed, out=out
        ) as session:
            answer = session.correlations(COLUMNS, regressions=REGRESSIONS, epsilon=1.0)
    return f"{answer}\n{pooled(rows)}"


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
