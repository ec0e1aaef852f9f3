"""Measure distributed DP-SGD on MNIST: accuracy by noise point, parties and ε, and the cost of a
step.

    python benchmarks/distributed_dp_sgd.py accuracy mnist.npz --parties 10 100 --epsilon 2
    python benchmarks/distributed_dp_sgd.py steps mnist.npz
    python benchmarks/distributed_dp_sgd.py union
    OMP_NUM_THREADS=1 python benchmarks/distributed_dp_sgd.py speeds mnist.npz

`accuracy` runs `examples/mnist-distributed.toml` in the fast engine with central noise, and writes
one line of JSON per run to --out. The noise comes from the operating system's entropy. --seeds are
of data, split and the network's start. A tenth of the parties may collude, another tenth may drop
out, and none does. `steps` times whole steps in turns in one process: one party with all records
and the server's noise, then 10 and 100 parties with central noise, and 100 with every share drawn.
`union` times one pass for the union of 100 parties' batches against a loop over the parties.
`speeds` prints both, and the cost of shares and masks of 71,010 values: CPU time, in five minutes.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dp_sgd import interleaved
from kept_lines import measured

from parley.client.dp_sgd.batch_sums import compute_party_sum, compute_union_sums
from parley.client.dp_sgd.poisson_batches import draw_party_batches
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.secure_agg.ideal_sum import IdealSum, build_simulated_parameters
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.network_experiment import NetworkExperiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.fault_script import parse_faults
from parley.simulations.engine.in_process_cohort import BlockCohort

EXAMPLE = Path(__file__).parents[1] / "examples" / "mnist-distributed.toml"
RECORDS = 60_000
ROUNDS = {0.5: 25, 2.0: 50, 8.0: 70}
RATES = {0.5: 0.5, 2.0: 0.5, 8.0: 1.0}
"""Epochs and learning rates by ε: half those of one party, because momentum restarts in each
round.
"""


def job_of(data: str, parties: int, *overrides: str) -> Job:
    """Return the example's job for this number of parties."""
    survivors = parties - parties // 10
    return load_job(
        EXAMPLE,
        overrides=[
            f"data.source={data}",
            f"data.test-source={data}",
            f"parties.count={parties}",
            f"parties.min-records={RECORDS // parties}",
            f"secure-aggregation.min-survivors={survivors}",
            "run.evaluate-every=0",
            *overrides,
        ],
    )


def accuracy(options: argparse.Namespace) -> None:
    """Write a line per run."""
    NetworkExperiment.compute_optimum = lambda self: self.algorithm.model.start()  # type: ignore[method-assign, union-attr]
    seeds = range(options.first, options.first + options.seeds)
    cases = (
        {
            "parties": parties,
            "epsilon": epsilon,
            "noise_point": "server" if parties == 1 else options.noise_point,
            "seed": seed,
            "learning_rate": options.learning_rate or RATES[epsilon],
        }
        for seed, epsilon, parties in itertools.product(seeds, options.epsilon, options.parties)
    )
    measured(options.out.resolve(), cases, partial(one, options.data))


def one(
    data: str, *, parties: int, epsilon: float, noise_point: str, seed: int, learning_rate: float
) -> dict[str, Any]:
    """Return the figures of one run."""
    job = job_of(
        data,
        parties,
        f"privacy.epsilon={epsilon}",
        f"algorithm.rounds={ROUNDS[epsilon]}",
        f"dp-sgd.learning-rate={learning_rate}",
        "dp-sgd.momentum=0.9",
        f"privacy.noise-point={noise_point}",
        f"data.seed={seed}",
    )
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        summary = simulate(job, out=Path(folder) / "run").summary
    return {
        "charged": summary.primary.epsilon,
        "rounds": summary.rounds_done,
        "accuracy": summary.accuracy,
        "seconds": round(time.perf_counter() - began),
    }


def step_of(data: str, parties: int, point: str, *, dealing: bool) -> Callable[[], None]:
    """Return a function for one whole step of a run: batches, gradients, sum, noise, the server's
    step.
    """
    job = job_of(
        data, parties, f"privacy.noise-point={point}", "dp-sgd.noise-multiplier=3.2",
        "model.pca=public", "privacy.dataset-epsilon=1e9",
    )  # fmt: skip
    world = load_experiment(job)
    stage = world.plan_inputs.build(job)[1][-1]
    algorithm, plan, noise = stage.algorithm({}), stage.plan, Randomness.from_entropy()
    cohort = BlockCohort(
        session=PartySession(
            block=world.bind_algorithm(algorithm).block,
            algorithm=algorithm,
            rules=RefusalRules(
                units=frozenset({Unit.RECORD}),
                neighbouring=frozenset({plan.primary.neighbouring}),
            ),
            randomness=noise,
        ),
        secure_sum=IdealSum(
            build_simulated_parameters(
                parties=parties,
                min_survivors=plan.min_survivors,
                ring_bits=plan.encoding.ring_bits,
                corrupt=job.corrupt,
            )
        ),
        faults=parse_faults(""),
        central_noise=dealing,
    )
    state, done = algorithm.init(), 1

    def step() -> None:
        nonlocal state, done
        done += 1
        now = plan.with_round(done)
        total = plan.encoding.decode(cohort.aggregate(now, state, attempt=0).total)
        total = total + now.draw(noise.open_server_noise(done))
        state = algorithm.update(state, plan.encoding.to_float(total))

    return step


def told(medians: dict[str, float]) -> None:
    """Print the medians, and each relative to the first."""
    base = next(iter(medians.values()))
    each = (f"{name}: {value:.0f} ms ({value / base:.2f}×)" for name, value in medians.items())
    print(", ".join(each))


def steps(options: argparse.Namespace) -> None:
    """Time whole steps in turns."""
    data = options.data
    contenders = {
        "one party": step_of(data, 1, "server", dealing=False),
        "10, dealt": step_of(data, 10, "share", dealing=True),
        "100, dealt": step_of(data, 100, "share", dealing=True),
        "100, every share": step_of(data, 100, "share", dealing=False),
    }
    told(interleaved(contenders, options.rounds, time.process_time))


def union(options: argparse.Namespace) -> None:
    """Time one pass for the union against a loop: 100 parties of 600 records, 60-1000-10, q =
    0.05.
    """
    network = Network.build("mlp", features=60, classes=10, hidden=(1000,))
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(RECORDS, 60)) / 8, rng.integers(0, 10, RECORDS)
    offsets = np.arange(101) * 600
    training = LocalTraining(
        steps=1, sampling_rate=0.05, clip_norm=1.0, noise_multiplier=1.0, optimiser="sgd",
        learning_rate=1.0, momentum=0.0, per_example_method="exact", micro_batch=2048,
    )  # fmt: skip
    batches = draw_party_batches(offsets, 0.05, NoiseStream.from_seed(1))
    theta, every = network.start(), np.concatenate(batches)

    def loop() -> None:
        for begin, batch in zip(offsets, batches, strict=False):
            own, of = slice(begin, begin + 600), batch - begin
            compute_party_sum(
                network, theta, rows[own], labels[own], of, training, public=600, pad=False
            )

    contenders = {
        "loop over parties": loop,
        "union, a sum a party": lambda: compute_union_sums(
            network, theta, rows, labels, batches, training, public=RECORDS
        ),
        "union, one sum": lambda: compute_party_sum(
            network, theta, rows, labels, every, training, public=RECORDS, pad=False
        ),
    }
    told(interleaved(contenders, options.rounds, time.process_time))


DIMENSION = 71_010
"""Parameters of the network with 1000 units on 60 components."""


def shares(options: argparse.Namespace) -> None:
    """Time every party's share, for 100 and for 1000 parties, with one stream and with one each."""
    law = Gaussian(sensitivity=1.0, sigma=3.2 * 2.0**21, dimension=DIMENSION)
    for parties in (100, 1000):
        split = Shares.from_mechanism(
            law, parties=parties, least=parties * 9 // 10, colluders=parties // 10
        )
        vectors = np.zeros((parties, DIMENSION), dtype=np.int64)
        one = [NoiseStream.from_entropy()] * parties
        each = [NoiseStream.from_entropy() for _ in range(parties)]
        calls: dict[str, Callable[[], object]] = {
            "one stream": lambda own=split, to=vectors, of=one: own.add(law, to, of),  # type: ignore[misc]
            "a stream each": lambda own=split, to=vectors, of=each: own.add(law, to, of),  # type: ignore[misc]
        }
        for name, value in interleaved(calls, 1 + options.rounds // 3, time.process_time).items():
            nanoseconds = 1e6 * value / vectors.size
            print(
                f"{parties} × {DIMENSION} shares, {name}: {value:.0f} ms, {nanoseconds:.1f} ns each"
            )


def masked(options: argparse.Namespace) -> None:
    """Time a masked sum of one step in steady state, after the run's key agreement."""
    for parties, rounds in ((10, options.rounds), (100, 1)):
        vectors = np.random.default_rng(0).integers(
            0, 2**32, (parties, DIMENSION), dtype=np.uint64
        ).astype(np.uint32)  # fmt: skip
        total = MaskedSum(
            build_simulated_parameters(
                parties=parties, min_survivors=parties * 9 // 10, corrupt=parties // 10
            )
        )
        numbers = itertools.count(1)
        calls: dict[str, Callable[[], object]] = {
            "masked": lambda own=total, at=numbers, of=vectors: own.sum(  # type: ignore[misc]
                of, round_number=next(at), dropped={}
            )
        }
        value = interleaved(calls, rounds, time.process_time)["masked"]
        print(f"masked sum of {parties} × {DIMENSION}: {value:.0f} ms")


def speeds(options: argparse.Namespace) -> None:
    """Run all timings."""
    torch.set_num_threads(1)
    for part in (steps, union, shares, masked):
        part(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["accuracy", "steps", "union", "speeds"])
    parser.add_argument("data", nargs="?", default="mnist.npz")
    parser.add_argument("--parties", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0])
    parser.add_argument("--noise-point", default="share")
    parser.add_argument("--learning-rate", type=float, default=0.0, help="0: by epsilon")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("distributed.jsonl"))
    options = parser.parse_args()
    {"accuracy": accuracy, "steps": steps, "union": union, "speeds": speeds}[options.what](options)


if __name__ == "__main__":
    main()
