"""Parley's figures at scale, in one run, beside what was asked for and beside peers.

    python -P benchmarks/scale.py [--flower-python PYTHON] [--pfl-python PYTHON] [--opacus-python
        PYTHON] [--only rounds ray sampled dp-sgd masks] [--timeout-s SECONDS] [--json FILE]

On a machine with nothing else to do, about half an hour. Peers live in environments of their own:
Flower (`flwr[simulation]`), Apple's pfl (`pfl[pytorch]`), and Opacus beside Parley; what is not
there is skipped with the reason. Each part is a script of this folder in its own process:

| part | what | script |
|---|---|---|
| rounds | whole rounds of 1,000 to 1,000,000 parties, memory, linear in m | fast_engine.py |
| ray | 100,000 parties on two workers of Ray, to the bits of the fast engine | this one |
| sampled | 1,000 of 100,000 parties a round, beside Flower and pfl | peers.py |
| dp-sgd | DP-SGD in 100 small parties, beside Opacus | dp_sgd_parties.py |
| masks | masks beside the AES-256 keystream alone | secure_agg.py |
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent

LIMITS_MS = {(1000, 120): 5.0, (10_000, 120): 25.0, (100_000, 31): 250.0, (1_000_000, 31): 1500.0}
"""m, d → most milliseconds a round."""
LIMITS_MIB = {(10_000, 120): 300.0, (1_000_000, 31): 1024.0}
"""m, d → most MiB of the process beyond its records."""


@dataclass(frozen=True)
class Figure:
    """One figure beside what was asked for.

    Attributes:
        what, unit: of the value.
        value: None where it could not be measured.
        least, most: asked for.
        note: beside it, or why there is no value.
    """

    what: str
    unit: str = ""
    value: float | None = None
    least: float | None = None
    most: float | None = None
    note: str = ""

    def line(self) -> str:
        """As a row of the table."""
        if self.value is None:
            return f"{self.what:58} skipped: {self.note}"
        asked, holds = "", True
        if self.least is not None:
            asked, holds = f"≥ {self.least:g}", self.value >= self.least
        if self.most is not None:
            asked, holds = f"≤ {self.most:g}", self.value <= self.most
        said = "" if not asked else "reached" if holds else "MISSED"
        return f"{self.what:58}{self.value:10.4g} {self.unit:4}{asked:>9}  {said:8}{self.note}"


def script(name: str, *arguments: str, python: str = "") -> str:
    """What a script of this folder prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    command = [python or sys.executable, "-P", str(HERE / name), *arguments]
    # Own modules before an installed Parley, in environments that have none.
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout


def rounds(options: argparse.Namespace) -> Iterator[Figure]:
    """Whole rounds of the fast engine, each size in a process of its own."""
    own = ["--parties", "1000", "--rounds", "30"] if options.short else ["--figures"]
    found = json.loads(script("fast_engine.py", *own, "--json"))
    by_size = {(row["parties"], row["dimension"]): row for row in found}
    for key, row in by_size.items():
        name = f"m = {key[0]:,}, d = {key[1]}"
        least = f"(least {row['least_ms']:.4g})"
        yield Figure(
            f"{name}: a round", "ms", row["median_ms"], most=LIMITS_MS.get(key), note=least
        )
        beyond = row["peak_mib"] - row["data_mib"]
        note = f"(records {row['data_mib']:.0f})"
        yield Figure(f"{name}: beyond records", "MiB", beyond, most=LIMITS_MIB.get(key), note=note)
    alike = [row["median_ms"] / row["parties"] for (m, d), row in by_size.items() if d == 31]
    if len(alike) > 1:
        growth = alike[-1] / alike[-2]
        yield Figure("time a party, 1,000,000 over 100,000 parties", "×", growth, most=1.1)


def ray(options: argparse.Namespace) -> Iterator[Figure]:
    """The same job on the fast engine and on two workers of Ray."""
    what = "Ray, 2 workers, m = 100,000: speed of the fast engine's"
    if importlib.util.find_spec("ray") is None:
        yield Figure(what, note="Ray is not installed here (parley[ray])")
        return
    parties = 2_000 if options.short else 100_000
    with tempfile.TemporaryDirectory() as folder:
        size = ("--parties", str(parties), "--records", "10", "--features", "31")
        script("fast_engine.py", "--one", "data", "--folder", folder, *size)
        found = {
            engine: json.loads(
                script("scale.py", "--engine", engine, folder, str(parties)).splitlines()[-1]
            )
            for engine in ("fast", "ray")
        }
    seconds = {name: statistics.median(each["seconds"]) for name, each in found.items()}
    note = f"({1e3 * seconds['ray']:.4g} ms)"
    yield Figure(what, "×", seconds["fast"] / seconds["ray"], least=0.8, note=note)
    same = found["fast"]["theta"] == found["ray"]["theta"]
    yield Figure("Ray: the same bits as the fast engine (1: yes)", "", float(same), least=1)


def one_engine(engine: str, folder: Path, parties: int) -> dict[str, Any]:
    """Seconds of each round, and the digest of the model, of a seeded run."""
    import fast_engine

    import parley
    from parley.server.jobs.job import Job

    job = fast_engine.job_of(parties, 31, 15, folder, True)
    plain = job.model_dump(mode="json", by_alias=True)
    plain["run"] |= {"engine": engine, "seed": 1, "workers": 2 if engine == "ray" else 0}
    clock = fast_engine.Clock()
    done = parley.run(Job.model_validate(plain), out=folder / f"run-{engine}", observer=clock)
    return {
        "seconds": np.diff(clock.times)[1:].tolist(),
        "theta": hashlib.sha256(np.ascontiguousarray(done.theta).tobytes()).hexdigest(),
    }


def sampled(options: argparse.Namespace) -> Iterator[Figure]:
    """1,000 of 100,000 parties a round: ours beside Flower's simulation and pfl."""
    parties, cohort = (2_000, 100) if options.short else (100_000, 1_000)
    size = ("--parties", str(parties), "--records", "10", "--features", "31", "--rounds", "3")
    pythons = {"flower": options.flower_python, "pfl": options.pfl_python}
    given = [name for name, python in pythons.items() if python]
    paths = [part for name in given for part in (f"--{name}-python", pythons[name])]
    told = script(
        "peers.py", *size, "--cohort", str(cohort), "--timeout-s", str(options.timeout_s), "--json",
        "--only", "engine", *given, *(["flower-engine"] if "flower" in given else []), *paths,
    )  # fmt: skip
    found = json.loads(told)["results"]
    shown = f"{cohort:,} of {parties:,} parties a round"
    if "skipped" in found["engine"]:
        yield Figure(shown, note=found["engine"]["skipped"])
        return
    ours = found["engine"]["median_s"]
    yield Figure(f"{shown}: ours", "ms", 1e3 * ours)
    for name, least in (("flower", 1000.0), ("flower-engine", None), ("pfl", 60.0)):
        what = f"{shown}: {name} over ours"
        own = found.get(name, {"skipped": f"no --{name}-python was given"})
        if "least_s" in own:  # start and rounds together: what a round takes at least, on average
            note = f"(at least: {own['skipped']})"
            yield Figure(what, "×", own["least_s"] / ours, least=least, note=note)
        elif "skipped" in own:
            yield Figure(what, note=own["skipped"])
        else:
            note = f"({own['median_s']:.4g} s)"
            yield Figure(what, "×", own["median_s"] / ours, least=least, note=note)


def dp_sgd(options: argparse.Namespace) -> Iterator[Figure]:
    """A round of 100 small parties, beside the fastest way of Opacus."""
    what = "DP-SGD, 100 small parties, float64: Opacus over ours"
    python = options.opacus_python
    if not python and importlib.util.find_spec("opacus") is None:
        yield Figure(what, note="no --opacus-python was given, and Opacus is not installed here")
        return
    told = script("dp_sgd_parties.py", "--rounds", "2" if options.short else "9", python=python)
    ways = dict(re.findall(r"^(Opacus .*?, threads: \d+) .*? ([\d.]+)× +[\d.]+×$", told, re.M))
    best = min(ways, key=lambda name: float(ways[name]))
    yield Figure(what, "×", float(ways[best]), least=10, note=f"({best})")


def masks(options: argparse.Namespace) -> Iterator[Figure]:
    """Masks beside the keystream alone."""
    del options
    told = script("secure_agg.py", "masks")
    for where, cipher, keyed in re.findall(
        r"^(d=\d+ k=\d+):.* (\d+)% of it; .* (\d+)% of it", told, re.M
    ):
        what = f"masks, {where}: of the AES-256 keystream of their keys"
        note = f"({cipher} % of the cipher alone)"
        yield Figure(what, "%", float(keyed), least=75, note=note)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "rounds": rounds,
    "ray": ray,
    "sampled": sampled,
    "dp-sgd": dp_sgd,
    "masks": masks,
}


def machine() -> dict[str, str]:
    """Where and with what."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    versions = {name: version(name) for name in ("parley", "numpy", "torch", "dp-accounting")}
    load = f"{os.getloadavg()[0]:.1f}"
    return {
        "date": date.today().isoformat(),
        "machine": f"{cores} cores, {model[1] if model else platform.machine()}, load {load}",
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "python": platform.python_version(),
    }


def main() -> None:
    """All parts, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    parser.add_argument("--flower-python", default="", help="one with flwr[simulation]")
    parser.add_argument("--pfl-python", default="", help="one with pfl[pytorch]")
    parser.add_argument("--opacus-python", default="", help="one with opacus and Parley's needs")
    parser.add_argument("--timeout-s", type=float, default=1800, help="of each, sampled parties")
    parser.add_argument("--short", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--engine", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        engine, folder, parties = options.engine
        sys.path.append(str(HERE))
        print(json.dumps(one_engine(engine, Path(folder), int(parties))))
        return
    about, found = machine(), list[Figure]()
    print(", ".join(about.values()))
    for name in options.only:
        try:
            for figure in PARTS[name](options):
                found.append(figure)
                print(figure.line(), flush=True)
        except subprocess.CalledProcessError as error:
            found.append(Figure(name, note=f"its script ended with {error.returncode}"))
            print(found[-1].line(), flush=True)
    if options.json:
        options.json.write_text(json.dumps(about | {"figures": [asdict(each) for each in found]}))


if __name__ == "__main__":
    main()
