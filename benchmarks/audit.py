"""Measure `parley audit`: tightness, trials per second, memory (simulation only).

    OMP_NUM_THREADS=1 python benchmarks/audit.py
    OMP_NUM_THREADS=1 python benchmarks/audit.py --million FILE 600 [WORD...]  # the full matrix:
        # hours; each finished row is appended to FILE, and a later call continues from there
    python benchmarks/audit.py --docs FILE docs/audit-rows.csv  # those rows, for docs/audit.md

Prints one JSON object per line, in under five minutes on one quiet core. `loop` figures run one
world at a time. Rates are worlds per second of CPU; both worlds count.
"""

from __future__ import annotations

import csv
import json
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from parley.privacy.audit.one_run import compute_one_run_epsilon, compute_one_run_mu
from parley.privacy.audit.two_world_bounds import compute_gaussian_lower
from parley.privacy.mechanisms.laplace import L2Laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.jobs.job_file import load_job
from parley.simulations.audit.audit_target import AuditTarget, build_target
from parley.simulations.audit.guarantee_audit import Effort, audit, audit_guarantee
from parley.simulations.audit.neighbouring_worlds import ATTACKS, build_neighbours
from parley.simulations.audit.world_batch import WorldRandomness, simulate_releases
from parley.simulations.engine.fast_engine import simulate

sys.path.insert(0, str(Path(__file__).parent / "audit_matrix"))

from audit_matrix import matrix

SERVER = ("privacy.noise-point=server", "privacy.epsilon=4")
ONE = (*SERVER, "algorithm.rounds=1")
OUTPUT = (
    *SERVER,
    "algorithm.kind=output-perturbation",
    "model.kind=huber-svm",
    "model.lambda=1",
)
DP_SGD = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[]",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=8",
    "dp-sgd.local-steps=1",
)
SAMPLED = (*DP_SGD, "dp-sgd.sampling-rate=0.25", "privacy.neighbouring=add-or-remove-one")


def told(name: str, **figures: object) -> None:
    print(json.dumps({"figure": name, **figures}, allow_nan=False), flush=True)


def tightness(
    name: str, job: tuple[str, ...], method: str, trials: int, least: float, **shape: int
) -> None:
    began = time.process_time()
    effort = Effort(trials=trials, attacks=("dirac",), methods=(method,))
    (report, *_) = audit(load_job(None, overrides=job), effort, **shape)
    (result,) = report.results
    told(
        name,
        method=method,
        trials=trials,
        of_claim=result.fraction_of_claim,
        wanted=least,
        verdict=report.verdict,
        cpu_seconds=time.process_time() - began,
    )


def rate(name: str, job: tuple[str, ...], block: int, loop: int, **shape: int) -> None:
    """Measure worlds per second in blocks and one by one, in turns, so that other load slows
    both.
    """
    given = build_target(load_job(None, overrides=job), **shape)
    worlds = build_neighbours(given, "dirac")

    def cpu(count: int, times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            for _ in simulate_releases(
                given, worlds, inside=True, count=count, source=WorldRandomness(seed=None)
            ):
                pass
        return count * times / (time.process_time() - began)

    cpu(min(block, 100), 1)
    pairs = [(cpu(block, 1), cpu(1, loop)) for _ in range(3)]
    ratios = [a / b for a, b in pairs]
    told(
        name,
        worlds_a_second=float(np.median([a for a, _ in pairs])),
        loop=float(np.median([b for _, b in pairs])),
        ratio=float(np.median(ratios)),
        spread=[min(ratios), max(ratios)],
    )


def timed(name: str, what: Callable[[], None], wanted: float) -> None:
    began = time.process_time()
    what()
    told(name, cpu_seconds=time.process_time() - began, wanted=wanted)


def l2_laplace() -> None:
    law = L2Laplace(sensitivity=1 << 20, epsilon=1.0, dimension=2)
    stream = NoiseStream.from_entropy()
    began = time.process_time()
    law.draw_many(200_000, stream)
    told(
        "l2-laplace vectors a second, d = 2",
        rate=200_000 / (time.process_time() - began),
        wanted=50_000,
    )


def ideal_canaries() -> None:
    """Audit one run with 500 ideal canaries at ε = 8: each coin has only the claimed Gaussian
    noise.
    """
    from parley.privacy.calibration.inverse_curves import compute_gaussian_mu

    mu, rng = compute_gaussian_mu(8.0, 1e-5), np.random.default_rng(secrets.randbits(64))
    found = []
    for _ in range(9):
        coins = rng.random(500) < 0.5
        scores = np.where(coins, mu, -mu) / 2 + rng.standard_normal(500)
        order = np.argsort(-np.abs(scores))[:250]
        right = int(((scores > 0) == coins)[order].sum())
        seen = {"canaries": 500, "guesses": 250, "right": right}
        bound = compute_one_run_mu(**seen, alpha=0.05)
        found.append(
            (
                compute_gaussian_lower(bound, 1e-5) / 8,
                compute_one_run_epsilon(**seen, alpha=0.05, delta=1e-5) / 8,
            )
        )
    fdp, plain = np.median(np.array(found), axis=0)
    told("one run, 500 ideal canaries, ε = 8", fdp=float(fdp), plain=float(plain), wanted=0.45)


def product_canaries() -> None:
    """Audit whole runs with 500 canaries, in columns that are empty in 12,000 records."""
    records, columns, used = 15_000, 560, 20
    rng = np.random.default_rng(1)
    rows = np.zeros((records, columns))
    rows[:, :used] = rng.normal(size=(records, used)).clip(-1, 1)
    labels = np.where(rows[:, 0] + 0.3 * rng.normal(size=records) > 0, 1, -1)
    found = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        np.savez(place / "data.npz", x=rows, y=labels)
        (place / "schema.toml").write_text(
            f'scaling = "unit"\n[columns]\nx = {{ kind = "array", shape = [{columns}], '
            'range = [-1, 1], centre = 0 }\ny = { kind = "label", positive = 1, negative = -1 }\n'
        )
        job = load_job(
            None,
            overrides=[
                f"data.source={place}/data.npz",
                f"data.schema={place}/schema.toml",
                "model.kind=huber-svm",  # the full slope at the start
                "model.intercept=false",
                "model.lambda=0.0001",
                "algorithm.average=false",  # the last iterate is the sum of all rounds
                "algorithm.rounds=20",
                "privacy.epsilon=8",
                "privacy.noise-point=server",
            ],
        )
        for run in range(5):
            told_of = simulate(job, out=place / f"run{run}", canaries=500).summary.self_audit
            if told_of is not None:
                curve, plain = told_of.epsilon_lower_on_gaussian_curve, told_of.epsilon_lower
                found.append((curve / 8, plain / 8))
    fdp, bare = np.median(np.array(found), axis=0)
    least, most = min(each for each, _ in found), max(each for each, _ in found)
    told("one run, 500 canaries through the product, ε = 8, five runs", fdp=float(fdp),
         plain=float(bare), spread=[least, most], wanted=0.45)  # fmt: skip


def million(file: Path, words: Sequence[str], seconds: float) -> None:
    """Audit each claim of the matrix by one attack, in up to 10⁶ worlds within the given CPU
    seconds.

    A row is appended to `file` when it is finished. Rows in the file are not measured again.

    Args:
        words: Only rows with these numbers or words; empty for all.
    """
    lines = file.read_text().splitlines() if file.exists() else []
    done = {json.loads(line)["row"] for line in lines}
    for row, claim in enumerate(matrix()):
        name = named(claim)
        wanted = not words or str(row) in words or any(word in name for word in words)
        if row in done or not wanted:
            continue
        attack = next(each for each, how in ATTACKS.items() if how.is_applicable(claim))
        trials, began = affordable(claim, attack, seconds), time.process_time()
        report = audit_guarantee(claim, Effort(trials=trials, attacks=(attack,)))
        found = {
            "row": row,
            "claim": name,
            "epsilon": report.claim.epsilon,
            "attack": attack,
            "trials": trials,
            "of_claim": {each.method: each.fraction_of_claim for each in report.results},
            "refuted": [each.method for each in report.results if each.refuted],
            "reach": report.results[0].reach,
            "verdict": report.verdict,
            "cpu_seconds": time.process_time() - began,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        with file.open("a") as out:
            out.write(json.dumps(found, allow_nan=False) + "\n")
        print(json.dumps(found, allow_nan=False), flush=True)


def write_rows(file: Path, table: Path) -> None:
    """Write the rows of `file` into the CSV table of the documentation.

    Rows of the table that are not in `file` stay.
    """
    with table.open(encoding="utf-8", newline="") as kept_lines:
        head, *lines = csv.reader(kept_lines)
    kept = {int(line[0]): line for line in lines}
    for row in map(json.loads, file.read_text().splitlines()):
        found = row["of_claim"]
        curve = next((f"{name} {found[name]:.3f}" for name in ("mu", "profile") if found.get(name)),
                     "–")  # fmt: skip
        factor = f"{found['factor']:.4f}" if found.get("factor") else "–"
        rate = 2 * row["trials"] / row["cpu_seconds"]
        kept[row["row"]] = [
            str(row["row"]), row["claim"], f"{row['epsilon']:.4g}", row["attack"],
            f"{row['trials']:,}", f"{found['pair']:.3f}", curve, factor, f"{rate:,.0f}",
        ]  # fmt: skip
    with table.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *(kept[row] for row in sorted(kept))])


def affordable(claim: AuditTarget, attack: str, seconds: float) -> int:
    """Return the trials per world that take this many CPU seconds, at most 10⁶, for the worlds
    only.

    The fixed cost of an audit, which is the accounting of a curve, is not measured.
    """
    worlds = build_neighbours(claim, attack)
    count, spent = 20, 0.0
    while spent < 0.5 and count < 1_000_000:
        count *= 4
        began = time.process_time()
        for _ in simulate_releases(
            claim, worlds, inside=True, count=count, source=WorldRandomness(seed=None)
        ):
            pass
        spent = time.process_time() - began
    return max(40, min(1_000_000, int(count / 2 * seconds / max(spent, 1e-9))))


def named(claim: AuditTarget) -> str:
    """Describe a row of the matrix in words."""
    said = [claim.release, claim.charged.mechanism.law]
    said += [str(claim.guarantee.neighbouring), str(claim.unit), str(claim.against)]
    if claim.job is not None:
        said += [claim.job.model.kind, f"noise-point {claim.job.privacy.noise_point}"]
    if claim.job is not None and claim.response.noisy:
        said += [f"q {claim.job.dp_sgd.sampling_rate}", claim.job.dp_sgd.per_example_method]
    if claim.job is not None and isinstance(claim.job.parties.per_round, float):
        said.append(f"p {claim.job.parties.per_round}")
    return ", ".join(said)


def main() -> None:
    if "--million" in sys.argv:
        file, seconds, *words = sys.argv[sys.argv.index("--million") + 1 :]
        million(Path(file), words, float(seconds))
        return
    if "--docs" in sys.argv:
        write_rows(*map(Path, sys.argv[sys.argv.index("--docs") + 1 :]))
        return
    # First, because the imports of the others need more memory.
    tightness("gaussian, 10⁶ trials", ONE, "mu", 1_000_000, 0.97)
    told(
        "memory, MiB",
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        wanted=300,
    )
    tightness("gaussian, ε = 4", ONE, "mu", 200_000, 0.97)
    tightness("laplace-l1, d = 1", (*OUTPUT, "privacy.noise=laplace-l1"), "pair", 200_000, 0.95,
              features=1)  # fmt: skip
    tightness("l2-laplace, d = 10", OUTPUT, "factor", 50_000, 0.98, features=10)
    timed(
        "10⁵ trials of gradient perturbation, m = 2, d = 2, T = 1",
        lambda: tightness("the same", ONE, "mu", 100_000, 0.97),
        2.0,
    )
    rate("gradient, m = 2, d = 2, T = 1", ONE, 200_000, 200)
    rate("gradient, T = 10", (*SERVER, "algorithm.rounds=10"), 20_000, 30)
    rate("DP-SGD, d = 130, 10 steps", (*DP_SGD, "dp-sgd.sampling-rate=1", "algorithm.rounds=10"),
         1_000, 10, features=64)  # fmt: skip
    l2_laplace()
    ideal_canaries()
    product_canaries()
    if "--short" not in sys.argv:
        tightness("DP-SGD, q = .25, 8 steps", SAMPLED, "profile", 20_000, 0.80)


if __name__ == "__main__":
    main()
