"""A sweep beside a shell loop over `parley run`: `examples/kdd-sweep.toml`, 60 runs.

    python benchmarks/sweep.py PATH/kddcup.data_10_percent.gz [--loop 3]

Runs the sweep with one process a core, then a few of its cells one by one from the command line, on
the same machine, and says what the whole loop would take. Asked for: ≤ 45 s on two cores, and a
loop that takes at least four times as long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parley.server.jobs.file import render_job
from parley.sweep.cells import load_sweep

EXAMPLE = Path(__file__).parents[1] / "examples" / "kdd-sweep.toml"


def timed(*command: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command, its children's included."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "parley", *command], check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system
    return time.perf_counter() - began, cpu - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--loop", type=int, default=3, help="cells of the loop to measure")
    options = parser.parse_args()
    source = f"data.source={options.data.resolve()}"
    schema = f"data.schema={EXAMPLE.with_name('kddcup99.schema.toml')}"
    cells = load_sweep(EXAMPLE, overrides=[source, schema]).cells
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = timed(
            "sweep",
            str(EXAMPLE),
            "--set",
            source,
            "--set",
            schema,
            "--out",
            f"{folder}/sweep",
            "-q",
        )
        print(f"sweep of {len(cells)} runs: {wall:.1f} s wall, {cpu:.1f} s CPU")
        alone = []
        for number, cell in enumerate(cells[:: max(len(cells) // options.loop, 1)]):
            if cell.job is None:
                raise SystemExit(cell.error)
            job = Path(folder) / f"{number}.toml"
            job.write_text(render_job(cell.job, comments=False), encoding="utf-8")
            alone.append(timed("run", str(job), "--quiet", "--out", f"{folder}/run-{number}")[0])
            print(f"parley run: {alone[-1]:.1f} s")
    loop = sum(alone) / len(alone) * len(cells)
    print(f"shell loop over {len(cells)}: {loop:.0f} s, {loop / wall:.1f} times the sweep")


if __name__ == "__main__":
    main()
