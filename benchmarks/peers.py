"""Compare seconds per round of the same federated job: Parley, Flower's simulation engine, Apple
pfl.

    python benchmarks/peers.py --parties 1000 --rounds 5
    python benchmarks/peers.py --parties 100000 --records 10 --features 31 --cohort 1000

m parties of n records of d features train a logistic model by full-batch gradient averaging:
float64, no noise, no secure aggregation, no evaluation. Each peer runs in its own process, with an
interpreter that has it installed; a peer without one is skipped. Flower's clients compute the
closed-form gradient in numpy (its cost is Ray and the messages, not the arithmetic). pfl's need a
torch model. A round is timed from update to update; the first, which starts the engine, is
excluded. All must reach the same model: ‖θ‖ after the last round is printed. `ours` is the same
arithmetic as the peers'. `engine` is the fast engine's whole round, which also encodes, adds noise
(so its θ differs), updates the ledger and writes the log.

Flower is measured in its recommended form (`run_simulation`: messages over a grid of nodes), and
with its deprecated `start_simulation` (`flower-engine`).

With --cohort, each round samples that many parties. `engine` is then DP-FedAvg of a softmax model
of two classes, in which each party tosses a coin; the accounting of the sampled rounds is included.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
ENGINES = ("engine", "ours", "flower", "flower-engine", "pfl")
PEERS = {"flower": "flwr[simulation]", "pfl": "pfl[pytorch]"}
"""Name → packages that its interpreter needs."""
SHAPE = ("parties", "records", "features", "rounds", "cohort")


def in_own_process(
    name: str, options: argparse.Namespace, workspace: Path, python: str | None
) -> dict[str, Any]:
    """Run one engine and return its result, or {"skipped": reason}."""
    peer = name.partition("-")[0]
    if peer in PEERS and python is None:
        return {"skipped": f"no --{peer}-python was given"}
    # -P: benchmarks/secure_agg.py must not replace the package.
    here = Path(__file__).resolve().parent
    command = [python or sys.executable, "-P", str(here / "peer_engines.py"), name]
    command += [str(getattr(options, key)) for key in SHAPE]
    # Ray's workers import from the working directory, so use an empty one, never this source tree.
    scratch = workspace / f"run-{name}"
    scratch.mkdir()
    environment = {**os.environ, **OFFLINE, "FLWR_HOME": str(scratch), "RAY_TMPDIR": str(scratch)}
    environment.pop("PYTHONPATH", None)
    if name in ("engine", "ours"):
        environment["PYTHONPATH"] = str(here.parent)
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=scratch,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=options.timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(
            child.pid, signal.SIGKILL
        )  # the child has its own group, so this ends its workers, too
        child.communicate()
        reason = f"no result within {options.timeout_s:.0f} s"
        return {"skipped": reason, "least_s": options.timeout_s / (options.rounds + 1)}
    found = [line for line in output.splitlines() if line.startswith('{"seconds"')]
    if not found:
        return {"skipped": (errors or output).strip()[-400:]}
    return dict(json.loads(found[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--features", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cohort", type=int, default=0, help="parties in a round; 0: all")
    parser.add_argument("--timeout-s", type=float, default=900)
    parser.add_argument("--only", choices=ENGINES, nargs="+", default=ENGINES)
    for peer, package in PEERS.items():
        parser.add_argument(f"--{peer}-python", help=f"an interpreter that has {package}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pythons = {peer: getattr(options, f"{peer}_python") for peer in PEERS}
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        for name in options.only:
            print(f"{name} …", file=sys.stderr, flush=True)
            result = in_own_process(
                name, options, Path(folder), pythons.get(name.partition("-")[0])
            )
            if "seconds" in result:
                result["median_s"] = statistics.median(result["seconds"])
            results[name] = result
    if options.json:
        shape = {key: getattr(options, key) for key in ("parties", "records", "features", "rounds")}
        print(json.dumps({**shape, "cores": os.cpu_count(), "results": results}))
        return
    base = results.get("engine", {}).get("median_s")
    print(f"m={options.parties} n={options.records} d={options.features}, seconds a round (median)")
    for name, result in results.items():
        if "skipped" in result:
            print(f"  {name:14} skipped: {result['skipped']}")
            continue
        ratio = f"{result['median_s'] / base:9.0f}×" if base else ""
        print(f"  {name:14}{result['median_s']:10.4f} s{ratio}   ‖θ‖ {result['theta_norm']:.9f}")


if __name__ == "__main__":
    main()
