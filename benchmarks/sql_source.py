"""Measure seconds and memory of reading records from a database, compared with a CSV of the same
rows.

    python benchmarks/sql_source.py --records 1000000
    .ci/postgres.sh python benchmarks/sql_source.py --records 1000000

Each reading is a process and a line of JSON. Without PARLEY_TEST_POSTGRES_URL only SQLite is
measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS = [f"x{at}" for at in range(8)] + ["ward", "sick"]
SCHEMA = "\n".join(
    [
        "[columns]",
        *(f"x{at} = {{ kind = 'numeric', range = [0, 1] }}" for at in range(8)),
        "ward = { kind = 'categorical', categories = ['a', 'b', 'c'] }",
        "sick = { kind = 'label', positive = 'yes', negative = 'no' }",
    ]
)


def rows(records: int):
    import numpy as np

    rng = np.random.default_rng(0)
    for begin in range(0, records, 50_000):
        count = min(50_000, records - begin)
        numbers = rng.random((count, 8)).tolist()
        words = rng.choice(["a", "b", "c"], count), rng.choice(["yes", "no"], count)
        yield [(*own, str(w), str(s)) for own, w, s in zip(numbers, *words, strict=True)]


def read(source: str, folder: Path) -> None:
    """Read the records once, as a party does."""
    from parley.client.data.data_sources import SqlQuery
    from parley.client.data.record_reading import read_records
    from parley.client.data.schema import Schema
    from parley.simulations.data.memory_check import get_peak_mib

    schema = Schema.from_toml(SCHEMA)
    before, begun = get_peak_mib(), time.perf_counter()
    given = (
        folder / source
        if source.endswith(".csv")
        else SqlQuery(database=source, query="SELECT * FROM visits", folder=folder)
    )
    found = read_records(given, schema, "logistic")
    print(
        json.dumps(
            {
                "source": source,
                "records": len(found),
                "seconds": round(time.perf_counter() - begun, 1),
                "peak_mib": round(get_peak_mib() - before),
                "features_mib": round(found.features.nbytes / 2**20),
                "contents": str(found.contents)[:13],
            }
        ),
        flush=True,
    )


def make(records: int, folder: Path, url: str | None) -> None:
    import psycopg

    marks = ", ".join("?" * len(COLUMNS))
    types = ", ".join(f"{name} {'text' if name in 'ward sick' else 'float8'}" for name in COLUMNS)
    with sqlite3.connect(folder / "visits.db") as lite, (folder / "visits.csv").open("w") as file:
        lite.execute(f"CREATE TABLE visits ({types})")
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for part in rows(records):
            lite.executemany(f"INSERT INTO visits VALUES ({marks})", part)
            writer.writerows(part)
    if url:
        with psycopg.connect(url) as connection:
            connection.execute(f"DROP TABLE IF EXISTS visits; CREATE TABLE visits ({types})")
            into = "COPY visits FROM STDIN (FORMAT csv, HEADER)"
            with (
                connection.cursor().copy(into) as copy,
                (folder / "visits.csv").open("rb") as file,
            ):
                while piece := file.read(1 << 20):
                    copy.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--read", nargs=2)
    asked = parser.parse_args()
    if asked.read:
        return read(asked.read[0], Path(asked.read[1]))
    url = os.environ.get("PARLEY_TEST_POSTGRES_URL")
    with tempfile.TemporaryDirectory() as folder:
        make(asked.records, Path(folder), url)
        sources = [
            "visits.csv",
            "sqlite:///visits.db",
            *(["env:PARLEY_TEST_POSTGRES_URL"] * bool(url)),
        ]
        for source in sources:
            subprocess.run([sys.executable, __file__, "--read", source, folder], check=True)
    return None


if __name__ == "__main__":
    main()
