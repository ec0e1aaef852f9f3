"""Measure seconds per round of a job as real processes.

    python -P benchmarks/processes.py --parties 3 10
    python -P benchmarks/processes.py --dimension 100000
    python -P benchmarks/processes.py --engine flower      # Ray: needs parley[ray]

It is `parley run --engine processes` with the default job or, with --dimension, a softmax model of
ten classes with that many parameters. Seconds per round and per stage are the server's own. Memory
(VmHWM) and CPU time are read from /proc five times per second, the latter between the first round's
start and the last round's end. All started processes are stopped in any case.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
# In this order, so that benchmarks/secure_agg.py does not hide the package.
sys.path.insert(0, str(_HERE.parent))
sys.path.append(str(_HERE))

from process_watch import Marks, Watch


def _median(rows: list[list[float]]) -> list[float]:
    return [round(statistics.median(column), 3) for column in zip(*rows, strict=True)]


def ours(options: argparse.Namespace, parties: int, folder: Path) -> dict[str, Any]:
    """Run a Parley job, whose files are under `folder`."""
    import numpy as np

    from parley.deploy import process_engines
    from parley.server.jobs.job_file import load_job

    settings = [
        f"parties.count={parties}",
        f"algorithm.rounds={options.rounds}",
    ]
    if options.dimension:
        columns, rng = options.dimension // 10, np.random.default_rng(0)
        y = np.arange(50 * parties) % 10
        np.savez(folder / "data.npz", x=rng.uniform(-1, 1, (len(y), columns)), y=y)
        (folder / "schema.toml").write_text(
            f'[columns]\nx = {{ kind = "array", shape = [{columns}], range = [-1, 1] }}\n'
            f'y = {{ kind = "label", classes = {list(range(10))} }}\n'
        )
        settings += [f"data.source={folder}/data.npz", f"data.schema={folder}/schema.toml"]
        settings += ["data.test-fraction=0", "model.kind=softmax", "model.intercept=false"]
    job = load_job(overrides=[*settings, *options.set])
    watch = Watch()
    marks = Marks(watch)
    watch.start()
    result = process_engines.ENGINES[options.engine](job, out=folder / "run", observer=marks)
    watch.over.set()
    marks.mark("ended")
    lines = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").open()]
    summed = result.summary.secure_aggregation
    return {
        "dimension": result.summary.dimension,
        "round_s": round(statistics.median(line["seconds"] for line in lines), 3),
        "rounds_s": [round(line["seconds"], 3) for line in lines],
        "stages_s": _median([line["stage_seconds"] for line in lines]),
        "set_up_s": [round(s, 2) for s in summed.setup_stage_seconds],
        "bytes_up": lines[-1]["bytes_up"] // parties,
        "bytes_down": lines[-1]["bytes_down"] // parties,
        **marks.report(len(lines)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["processes", "flower"], default="processes")
    parser.add_argument("--parties", type=int, nargs="+", default=[3])
    parser.add_argument("--dimension", type=int, default=0, help="0: the default job, d = 31")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", nargs="+", default=[], help="further keys of the job")
    options = parser.parse_args()
    # SIGTERM unwinds the stack like Ctrl-C, so that the processes are ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for parties in options.parties:
        with tempfile.TemporaryDirectory(
            prefix="processes-", ignore_cleanup_errors=True
        ) as scratch:
            row = {"engine": options.engine, "parties": parties}
            row |= ours(options, parties, Path(scratch))
            print(json.dumps(row, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
