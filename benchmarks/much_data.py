"""Measure CPU time and memory of a large table on one machine: schema, reading, run, scikit-learn.

    python benchmarks/much_data.py                          # 2 million rows of 30 columns
    python benchmarks/much_data.py --rows 200000 --folder /tmp/much
    python benchmarks/much_data.py --wide 50000             # a schema of 50,000 columns
    python benchmarks/much_data.py --parameters 1000000     # three rounds of a softmax model

The table has numbers, whole numbers with a long tail, categories and a label of two values. It is
written as CSV and as Parquet by the same seed. Every step runs in its own process, so that its peak
memory is separate: `schema infer`, reading from CSV and from Parquet, a run with default settings,
and scikit-learn (polars reads the file, one-hot and standard scaling, logistic regression). The run
prints its phases, as its progress line names them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUMBERS, COUNTS, CATEGORIES = 18, 6, 5
STEPS = ("schema", "read-csv", "read-parquet", "run", "scikit-learn")


def cpu() -> float:
    """Return the CPU seconds of this process so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_table(folder: Path, rows: int) -> None:
    """Write data.csv and data.parquet."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(7)
    score = np.zeros(rows)
    columns: dict[str, object] = {}
    for at in range(NUMBERS):
        values = rng.normal(50, 15, rows).clip(0, 100)
        score += (0.04 if at % 3 else -0.05) * (values - 50) / 4
        columns[f"lab{at}"] = values.round(6 if at < NUMBERS // 2 else 2)
    for at in range(COUNTS):
        values = rng.lognormal(2, 1, rows).astype(np.int64).clip(0, 500)
        score += 0.05 * np.log1p(values)
        columns[f"visits{at}"] = values
    for at in range(CATEGORIES):
        names = np.array([f"group {chr(65 + code)}" for code in range(20 + at)])
        codes = rng.zipf(1.5, rows).clip(1, len(names)) - 1
        score += 0.1 * (codes % 3 - 1)
        columns[f"ward{at}"] = pl.Series(names).gather(codes)
    noisy = score - score.mean() + rng.logistic(size=rows)
    columns["sick"] = pl.Series(np.where(noisy > 0, "yes", "no"))
    frame = pl.DataFrame(columns)
    frame.write_csv(folder / "data.csv")
    frame.write_parquet(folder / "data.parquet")


def write_wide_table(folder: Path, columns: int, rows: int = 100) -> None:
    """Write wide.csv: numbers, whole numbers and categories."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(7)
    kinds = (
        lambda: rng.normal(0, 1, rows).round(4),
        lambda: rng.integers(0, 50, rows),
        lambda: pl.Series(np.array(["a", "b", "c"])[rng.integers(0, 3, rows)]),
    )
    data = {f"c{at}": kinds[at % 3]() for at in range(columns - 1)}
    data["sick"] = pl.Series(np.array(["no", "yes"])[rng.integers(0, 2, rows)])
    pl.DataFrame(data).write_csv(folder / "wide.csv")


def infer(path: Path) -> None:
    """Infer a schema and store it."""
    from parley.client.data.schema_inference.schema_draft import infer_schema

    path.with_suffix(".schema.toml").write_text(infer_schema(path).text)


def read(path: Path) -> None:
    """Read all records."""
    from parley.client.data.record_reading import read_records
    from parley.client.data.schema import FileFormat, load_schema
    from parley.client.data.sparse_rows import RowStorage

    schema = load_schema(path.parent / "data.schema.toml").unscaled
    if path.suffix == ".parquet":
        schema = schema.model_copy(update={"file": FileFormat(format="parquet")})
    storage = RowStorage(max_entries=schema.max_entries)
    print(
        f"{len(read_records(path, schema, 'logistic', storage=storage))} records", file=sys.stderr
    )


class Phases:
    """An observer that measures each phase of a run."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self._name, self._began = "starting", 0.0

    def stage(self, name: str) -> None:
        """End the last phase and begin the next."""
        now = cpu()
        self.rows.append(
            {"step": f"  {self._name}", "cpu_s": now - self._began, "peak_mib": peak_mib()}
        )
        self._name, self._began = name, now

    def started(self, *_: object) -> None:
        """Begin the rounds."""
        self.stage("rounds")

    def round_done(self, _: object) -> None:
        """Do nothing."""


def run(folder: Path) -> list[dict[str, object]]:
    """Run the default job and return its phases."""
    return run_job(
        f"data.source={folder / 'data.csv'}",
        f"data.schema={folder / 'data.schema.toml'}",
        "privacy.delta=1e-7",
    )


def run_job(*settings: str) -> list[dict[str, object]]:
    """Run a job and return its phases."""
    from parley.server.jobs.job_file import load_job
    from parley.simulations.engine.fast_engine import simulate

    phases = Phases()
    with tempfile.TemporaryDirectory() as out:
        done = simulate(load_job(overrides=settings), out=Path(out) / "run", observer=phases)
    phases.stage("end")
    print(f"accuracy {done.summary.accuracy}", file=sys.stderr)
    return phases.rows


def fit(folder: Path) -> None:
    """Read, encode and fit with scikit-learn."""
    import numpy as np
    import polars as pl
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pl.read_csv(folder / "data.csv")
    names = [name for name in frame.columns if name != "sick"]
    texts = [name for name in names if frame[name].dtype == pl.String]
    numbers = [name for name in names if name not in texts]
    labels = (frame["sick"] == "yes").to_numpy()
    model = make_pipeline(
        make_column_transformer(
            (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), texts)
        ),
        LogisticRegression(),
    )
    train = np.arange(len(labels)) % 5 > 0
    table = frame.drop("sick")
    del frame
    model.fit(table.filter(train), labels[train])
    print(f"accuracy {model.score(table.filter(~train), labels[~train])}", file=sys.stderr)


def write_images(folder: Path, parameters: int) -> None:
    """Write images.npz of 100 records for a model of ten classes, and their schema."""
    import numpy as np

    rng, shape = np.random.default_rng(7), (100, parameters // 10)
    values = rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    np.savez(folder / "images.npz", x=values, y=rng.integers(0, 10, shape[0]))
    (folder / "images.schema.toml").write_text(
        f"""
        [columns]
        x = {{ kind = "array", shape = [{shape[1]}], range = [-1, 1] }}
        y = {{ kind = "label", classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }}
        """
    )


def run_images(folder: Path) -> list[dict[str, object]]:
    """Run three masked rounds of ten parties and return the phases."""
    return run_job(
        f"data.source={folder / 'images.npz'}",
        f"data.schema={folder / 'images.schema.toml'}",
        "data.test-fraction=0",
        "model.kind=softmax",
        "model.features=none",
        "model.intercept=false",
        "parties.count=10",
        "algorithm.rounds=3",
        "secure-aggregation.backend=masked",
        "privacy.epsilon=8",
        "privacy.delta=1e-3",
        "run.baseline=false",
    )


def measure(step: str, folder: Path) -> None:
    """Take one step in this process and print its figures."""
    began, rows = time.perf_counter(), []
    if step == "schema":
        infer(folder / "data.csv")
    elif step == "wide":
        infer(folder / "wide.csv")
    elif step == "run":
        rows = run(folder)
    elif step == "images":
        rows = run_images(folder)
    elif step == "scikit-learn":
        fit(folder)
    else:
        read(folder / f"data.{step.partition('-')[2]}")
    wall = time.perf_counter() - began
    rows.append({"step": step, "cpu_s": cpu(), "peak_mib": peak_mib(), "seconds": wall})
    print(json.dumps(rows))


def main() -> None:
    """Write the table, take every step in its own process, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--wide", type=int, default=0, help="columns; only `schema infer`")
    parser.add_argument("--parameters", type=int, default=0, help="only a softmax model")
    parser.add_argument("--folder", type=Path, help="keeps the table for the next call")
    parser.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == "table":
        write_table(options.folder, options.rows)
        return
    if options.one == "images-table":
        write_images(options.folder, options.parameters)
        return
    if options.one == "wide-table":
        write_wide_table(options.folder, options.wide)
        return
    if options.one:
        measure(options.one, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        # -P: benchmarks/secure_agg.py must not replace the package.
        command = [sys.executable, "-P", __file__, "--folder", str(folder)]
        for key in ("rows", "wide", "parameters"):
            command += [f"--{key}", str(getattr(options, key))]
        command.append("--one")
        file, table, steps = "data.csv", "table", options.steps
        if options.wide:
            file, table, steps = "wide.csv", "wide-table", ("wide",)
        elif options.parameters:
            file, table, steps = "images.npz", "images-table", ("images",)
        if not (folder / file).exists():
            subprocess.run([*command, table], check=True)
        for step in steps:
            done = subprocess.run([*command, step], stdout=subprocess.PIPE, text=True, check=True)
            for row in json.loads(done.stdout):
                print(
                    f"{row['step']:16} {row['cpu_s']:7.1f} CPU s  peak {row['peak_mib']:6.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
