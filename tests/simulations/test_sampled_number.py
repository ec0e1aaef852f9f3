"""A fixed number of parties a round, drawn in public: sums, divisor and accounts, end to end."""

import json
from dataclasses import replace

import numpy as np
import pytest

from parley.client.algorithms.party_sampling import EVERYONE
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.server.jobs.job_file import load_job
from parley.server.planning.run_stages import get_rounds_stage
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

M, K = 6, 2


def job_of(*overrides):
    return load_job(
        overrides=[
            *(f"parties.count={M}", "data.records=150", "run.seed=4", "dp-sgd.local-steps=2"),
            *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[3]"),
            *("privacy.unit=party", "secure-aggregation.masked-check=false"),
            *("dp-sgd.learning-rate=0.5", "dp-sgd.momentum=0.9", "dp-sgd.party-clip-norm=1"),
            "dp-sgd.sampling-rate=0.01",
            *overrides,
        ]
    )


@pytest.mark.parametrize("backend", ["ideal", "masked"])
def test_the_average_is_that_of_the_drawn_parties_over_their_public_number(backend, tmp_path):
    own = ("privacy.noise-point=server", "algorithm.rounds=1", "privacy.epsilon=8")
    own = (*own, f"secure-aggregation.backend={backend}")
    job = job_of(*own, f"parties.per-round={K}")
    world = load_experiment(job)
    algorithm, stages = world.plan_inputs.build(job)
    plan = get_rounds_stage(stages).plan.with_round(1)
    words = NoiseStream.from_seed(4, "attendance", 1, 1).draw_words(M)
    drawn = np.argsort(words, kind="stable")[:K]
    everyone, state = replace(algorithm, attendance=EVERYONE), algorithm.init()
    updates = everyone.local(state, world.block, plan, Randomness.from_seed(4)).values

    def summed(number):
        """Σ of who was drawn, and the seed's noise: what the public number was divided out of."""
        run = simulate(job_of(*own, f"parties.per-round={number}"), out=tmp_path / str(number))
        (line,) = (run.folder / "rounds.jsonl").read_text().splitlines()
        assert json.loads(line)["parties"]["summed"] == M  # all answer: a zero, or an update
        return (run.theta - state["theta"]) / algorithm.server.learning_rate * number

    # The noise is one and the same for K and for all: no one of fewer parties is hidden by less.
    lacking = summed(M) - summed(K)
    others = np.setdiff1d(np.arange(M), drawn)
    assert np.allclose(lacking, updates[others].sum(axis=0), atol=1e-5)
    assert np.linalg.norm(updates[others].sum(axis=0)) > 0.1


def test_nobody_is_hidden_by_a_public_draw_so_that_nothing_is_amplified(tmp_path):
    runs = {
        per_round: simulate(
            job_of("algorithm.rounds=2", "privacy.epsilon=4", f"parties.per-round={per_round}"),
            out=tmp_path / str(per_round),
        )
        for per_round in (K, "'all'")
    }
    some, everyone = (run.summary.primary for run in runs.values())
    assert (some.epsilon, some.noise.scale) == (everyone.epsilon, everyone.noise.scale)
    with Ledger.open(runs[K].folder / "ledger.sqlite", read_only=True) as ledger:
        events = {str(each.entry.event) for each in ledger.list_entries()}
        assert ledger.verify() == []
    assert not any("Sampled" in event for event in events)
