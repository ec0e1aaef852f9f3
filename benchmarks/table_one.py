"""Compute table one of the Adult census among five parties, compared with the pooled rows.

    python benchmarks/table_one.py adult.csv.gz

30,162 records are split among five parties of a simulation, ε = 1 with noise from the operating
system: `parley query --table-one age,sex,hr_per_week --by income`, as in docs/study.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

_SCHEMA = Path(__file__).parents[1] / "examples/adult.schema.toml"
_PARTIES = 5


def pooled(rows: pl.DataFrame) -> str:
    """Return sizes, means ± deviations (of n), medians and shares of women, by income."""
    found = rows.group_by("income").agg(
        pl.len().alias("n"),
        *(pl.col(name).mean().alias(f"{name}, mean") for name in ("age", "hr_per_week")),
        *(pl.col(name).std(ddof=0).alias(f"{name}, sd") for name in ("age", "hr_per_week")),
        pl.col("age").median().alias("age, median"),
        (100 * (pl.col("sex") == "Female").mean()).alias("women, %"),
    )
    return "\n".join(str(row) for row in found.sort("income", descending=True).to_dicts())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    rows = pl.read_csv(parser.parse_args().table)
    with tempfile.TemporaryDirectory() as folder:
        for place in range(_PARTIES):
            rows[place::_PARTIES].write_csv(Path(folder) / f"party-{place}.csv")
        session = f'[session]\ndata = "party-*.csv"\nschema = "{_SCHEMA}"\nepsilon = 1.0\n'
        (Path(folder) / "queries.toml").write_text(session)
        asked = ["--table-one", "age,sex,hr_per_week", "--by", "income", "--epsilon", "1"]
        command = [sys.executable, "-m", "parley", "query", *asked, "--out", "session"]
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True)
        print(f"{time.perf_counter() - began:.1f} s\npooled rows:\n{pooled(rows)}")


if __name__ == "__main__":
    main()
