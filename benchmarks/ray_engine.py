"""Compare seconds per round of the Ray engine and the fast engine, on one machine, and their bits.

Both run the same job from the same mapped rows, each in its own process, in turns. A figure is the
minimum of the medians. Rounds are as in `fast_engine.py`.

    python benchmarks/ray_engine.py [--parties 100000] [--workers 2] [--rounds 12] [--repeat 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fast_engine import SCHEMA, Clock, make

RECORDS, FEATURES = 10, 31


def job_of(folder, engine, parties, rounds, workers):
    """Return the job for an engine."""
    from parley.server.jobs.job_file import load_job

    return load_job(
        overrides=[
            *(f"data.source={folder / 'data.npz'}", f"data.schema={folder / 'schema.toml'}"),
            *(f"parties.count={parties}", f"parties.min-records={RECORDS}", "data.test-fraction=0"),
            *(f"algorithm.rounds={rounds}", "privacy.delta=1e-8", "run.evaluate-every=0"),
            *(f"run.engine={engine}", f"run.workers={workers}", f"run.prepared={folder / 'kept'}"),
            *("run.seed=1", "run.noise-shares=deal", f"run.out={folder / 'runs'}"),
        ]
    )


def measure(folder, engine, parties, rounds, workers):
    """Run once; print median seconds per round after the first two, and the model's digest."""
    import hashlib

    from parley.run_job import SIMULATIONS

    clock = Clock()
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    job = job_of(folder, engine, parties, rounds, workers)
    run = SIMULATIONS[engine](job, out=out, observer=clock)
    lasted = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    digest = hashlib.sha256(run.theta.tobytes()).hexdigest()
    print(json.dumps({"seconds": statistics.median(lasted[2:]), "model": digest}))


def main():
    """Run both in turn, and print seconds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("ENGINE", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(Path(args.one[1]), args.one[0], args.parties, args.rounds, args.workers)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(args.parties, RECORDS, FEATURES, folder)
        (folder / "schema.toml").write_text(SCHEMA.format(features=FEATURES))
        found = {"fast": [], "ray": []}
        for _ in range(args.repeat):
            for engine, told in found.items():
                command = [sys.executable, __file__, "--one", engine, name]
                for key in ("parties", "workers", "rounds"):
                    command += [f"--{key}", str(getattr(args, key))]
                ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                told.append(json.loads(ran.stdout.splitlines()[-1]))
    best = {engine: min(each["seconds"] for each in told) for engine, told in found.items()}
    same = len({each["model"] for told in found.values() for each in told}) == 1
    print(f"m = {args.parties:,}, n = {RECORDS}, d = {FEATURES}; {args.workers} workers")
    for engine, told in found.items():
        print(f"{engine}: " + ", ".join(f"{1e3 * each['seconds']:.1f} ms" for each in told))
    print(f"fast / ray: {best['fast'] / best['ray']:.2f} (asked for: at least 0.8)")
    print(f"bits equal: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
