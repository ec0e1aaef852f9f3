"""Distributed DP-SGD: one noise for all parties, on sums that are divided by a public number."""

from __future__ import annotations

import math

import numpy as np
import plans
import pytest
from plans import with_primary

from parley.client.algorithms.base import Contribution
from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.in_process_cohort import BlockCohort

BASE = [
    "algorithm.kind=distributed-dp-sgd",
    "model.kind=mlp",
    "model.hidden=[8]",
    "algorithm.rounds=2",
    "parties.count=5",
    "dp-sgd.sampling-rate=0.2",
    "dp-sgd.local-steps=3",
    *("dp-sgd.clip-norm=1", "dp-sgd.learning-rate=0.5", "dp-sgd.momentum=0.9"),
    "privacy.epsilon=4",
]
OF_BOTH = ("privacy.unit=both", "dp-sgd.party-clip-norm=1", "privacy.party-epsilon=5")
OF_PARTIES = ("privacy.unit=party", "dp-sgd.clip-norm=auto", "dp-sgd.party-clip-norm=1")


pytestmark = pytest.mark.usefixtures("no_baseline")


def run(folder, *overrides, **more):
    return simulate(load_job(overrides=[*BASE, *overrides]), out=folder, **more)


def planned(*overrides):
    return plans.planned(load_job(overrides=[*BASE, *overrides]))


def test_a_run_is_the_same_masked_or_not_and_resumed_or_not(tmp_path, monkeypatch) -> None:
    seeded = ("run.seed=3", "run.noise-shares=full")
    whole = run(tmp_path / "compute_sum", *seeded)
    masked = run(tmp_path / "masked", *seeded, "secure-aggregation.backend=masked")
    assert np.array_equal(whole.theta, masked.theta)
    stepped, calls = DistributedDPSGD.update, []

    def killed(self, state, total):
        calls.append(1)
        if len(calls) == 5:  # in the middle of the second block
            raise KeyboardInterrupt
        return stepped(self, state, total)

    monkeypatch.setattr(DistributedDPSGD, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", *seeded)
    resumed = simulate(None, resume=tmp_path / "killed")
    assert np.array_equal(whole.theta, resumed.theta)
    with Ledger.open(tmp_path / "killed" / "ledger.sqlite", read_only=True) as ledger:
        assert [each.entry.index for each in ledger.list_entries()] == [1, 2]


def test_a_block_of_steps_is_one_entry_of_subsampled_gaussians(tmp_path) -> None:
    done = run(tmp_path / "run")
    assert 3.99 < done.summary.primary.epsilon <= 4
    spent = done.summary.primary
    assert (spent.conversion, spent.noise.law) == ("pld", "sampled-gaussian")
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", read_only=True) as ledger:
        for each in ledger.list_entries():
            ((event, count),) = each.entry.event.iterate_leaves()
            assert (event.sampling_rate, count) == (0.2, 3)
            assert each.entry.facts["sampler"] == "Poisson, 3 steps a release"
            sigma = each.entry.facts["noise_parameter"]
            assert sigma == pytest.approx(event.noise_multiplier, rel=1e-3)  # C = 1


def _totals(monkeypatch, tmp_path, *overrides):
    """What every step's update was given, the q·N that it divides by, and the parties' values."""
    given, values = [], []
    stepped, computed = DistributedDPSGD.update, DistributedDPSGD.local

    def update(self, state, total):
        given.append((total.copy(), self.expected_batch))
        after = stepped(self, state, total)
        moved = (state["theta"] - after["theta"]) / self.training.learning_rate
        assert np.allclose(moved, total / self.expected_batch, rtol=1e-9, atol=1e-15)
        return after

    def local(self, *args) -> Contribution:
        values.append(computed(self, *args))
        return values[-1]

    monkeypatch.setattr(DistributedDPSGD, "update", update)
    monkeypatch.setattr(DistributedDPSGD, "local", local)
    run(tmp_path / "run", "dp-sgd.momentum=0", *overrides)
    return given, values


def test_a_noisy_sum_is_divided_by_the_public_number_whoever_dropped_out(
    tmp_path, monkeypatch
) -> None:
    zeros = np.zeros(266, dtype=np.int64)
    monkeypatch.setattr(ReleasePlan, "draw", lambda self, stream: zeros)
    given, values = _totals(
        monkeypatch,
        tmp_path,
        "run.faults=drop:0.2@before-vector",
        "run.seed=2",
        "privacy.noise-point=server",
    )
    for (total, expected), computed in zip(given, values, strict=True):
        assert expected == pytest.approx(0.2 * 455)  # q·N of all five parties
        missing = computed.values.sum(axis=0) - total
        lost = [np.abs(missing - own).max() for own in computed.values]
        assert min(lost) < 1e-3 < np.abs(missing).max()  # one party's sum, and nothing is scaled


@pytest.mark.parametrize(
    ("point", "inflation"), [("server", 1.0), ("share", math.sqrt(5 / 3))]  # k = 4 − 1 of m = 5
)  # fmt: skip
def test_the_noise_on_a_sum_is_what_is_charged_once_for_all_parties(
    tmp_path, monkeypatch, point, inflation
) -> None:
    given, values = _totals(
        monkeypatch, tmp_path, "model.hidden=[60]", "dp-sgd.noise-multiplier=2",
        "privacy.dataset-epsilon=1e9", f"privacy.noise-point={point}", "run.noise-shares=full",
    )  # fmt: skip
    noise = np.concatenate(
        [total - own.values.sum(axis=0) for (total, _), own in zip(given, values, strict=True)]
    )
    assert len(noise) > 5000
    spread = noise.std() / inflation
    assert abs(spread / 2.0 - 1) < 0.05
    for wrong in (2 / 3, 3 / 2, math.sqrt(5)):
        assert abs(spread / (2.0 * wrong) - 1) > 0.2


def test_dealt_noise_is_that_of_all_shares_on_a_sum_that_nobody_else_is_part_of(
    tmp_path, monkeypatch
) -> None:
    """All parties at once: the same clipped sums, and one draw of the law of five shares."""
    sums, given = [], []
    whole, stepped = DistributedDPSGD.compute_sum, DistributedDPSGD.update
    monkeypatch.setattr(
        DistributedDPSGD, "compute_sum", lambda self, *a: sums.append(whole(self, *a)) or sums[-1]
    )

    def update(self, state, total):
        given.append(total)
        return stepped(self, state, total)

    monkeypatch.setattr(DistributedDPSGD, "update", update)
    run(tmp_path / "run", "model.hidden=[60]", "dp-sgd.noise-multiplier=2",
        "privacy.dataset-epsilon=1e9")  # fmt: skip
    assert (len(sums), len(given)) == (5, 6)  # the first sum is made in full, to be checked
    noise = np.concatenate([total - own for total, own in zip(given[1:], sums, strict=True)])
    assert abs(noise.std() / (2 * math.sqrt(5 / 3)) - 1) < 0.05


def test_each_unit_has_its_account_of_one_noise(tmp_path) -> None:
    _, algorithm, plan = planned(*OF_BOTH)
    record, party = (each.mechanism for each in plan.guarantees)
    assert record.scale == party.scale
    assert plan.guarantees[0].shares == plan.guarantees[1].shares
    served = planned(
        "privacy.unit=both",
        "dp-sgd.party-clip-norm=1",
        "privacy.party-epsilon=5",
        "privacy.noise-point=server",
    )
    assert len(served[2].noises) == 1
    assert (record.sampling_rate, party.sampling_rate) == (0.2, 1.0)
    # The party's is the larger need here, and needs no other noise than it would alone.
    _, _, alone = planned(*OF_PARTIES, "privacy.epsilon=5")
    units = [each.primary.compute_unit_scale(each.encoding.scale) for each in (plan, alone)]
    assert record.scale / units[0] == pytest.approx(
        alone.primary.mechanism.scale / units[1], rel=1e-3
    )
    done = run(tmp_path / "run", *OF_BOTH)
    assert done.summary.guarantees[1].epsilon == pytest.approx(5, abs=1e-3)
    assert done.summary.primary.epsilon < 1  # what a record is left with is far below its budget
    assert "record_bounds" not in done.summary.to_json() or done.summary.record_bounds is None
    block = load_experiment(load_job(overrides=BASE)).block
    values = algorithm.local(algorithm.init(), block, plan, Randomness.from_entropy()).values
    assert (np.linalg.norm(values, axis=1) <= algorithm.party_norm).all()


def test_a_party_is_not_hidden_by_its_records_coins() -> None:
    _, _, plan = planned(*OF_PARTIES, "privacy.epsilon=5")
    from dataclasses import replace

    with pytest.raises(ValueError, match="coins for its records do not hide a party"):
        with_primary(plan, mechanism=replace(plan.primary.mechanism, sampling_rate=0.2))
    assert plan.primary.unit is Unit.PARTY


def test_without_a_seed_all_parties_batches_go_through_one_pass(tmp_path, monkeypatch) -> None:
    from parley.client.algorithms import distributed_dp_sgd

    passes = []
    union = distributed_dp_sgd.compute_union_sums
    monkeypatch.setattr(
        distributed_dp_sgd,
        "compute_union_sums",
        lambda *a, **b: passes.append(len(a[4])) or union(*a, **b),
    )
    run(tmp_path / "run", "privacy.noise-point=server")
    assert passes == [5] * 6
    passes.clear()
    run(tmp_path / "seeded", "run.seed=1")
    assert passes == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("dp-sgd.server-optimiser=adam", "server-optimiser"),
        ("dp-sgd.clipped-fraction-share=0.1", "clipped-fraction-share"),
        ("parties.weights=size", "parties.weights"),
        ("privacy.delta=0", "δ|delta"),
        ("privacy.noise=laplace-l1", "gaussian"),
        ("model.kind=logistic", "model.kind"),
        ("algorithm.momentum=0.5", "algorithm.momentum"),
        ("privacy.record-bound=inner", "record-bound"),
        ("privacy.neighbouring=add-or-remove-one", "parties.min-records, a public number"),
    ],
)
def test_a_key_that_would_do_nothing_is_refused(override, said) -> None:
    with pytest.raises(JobError, match=said):
        load_job(overrides=[*BASE, override])


def test_a_plan_that_no_cohort_survives_keeps_the_charge_of_sums_that_were_opened(
    tmp_path, monkeypatch
) -> None:
    from parley.secure_agg.interface import TooFewSurvivors

    aggregate = BlockCohort.aggregate

    def few(self, plan, state, *, attempt):
        if plan.sum_number == 5:  # the second sum of round 2
            raise TooFewSurvivors("Expected more.")
        return aggregate(self, plan, state, attempt=attempt)

    monkeypatch.setattr(BlockCohort, "aggregate", few)
    done = run(tmp_path / "run")
    assert done.summary.status == "too-few-survivors"
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", read_only=True) as ledger:
        assert [str(each.state) for each in ledger.list_entries()] == ["committed", "reserved"]
