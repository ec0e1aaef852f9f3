"""Whole runs of the fast engine: what they promise, leave behind, and have on the disk when."""

import json
from dataclasses import replace

import numpy as np
import pytest
from disk import note_commits
from quick_runs import QUICK, StopAfter, run
from safetensors import safe_open
from safetensors.numpy import load_file

from parley.client.models.integer_gradients import compute_gradients
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerUnavailable
from parley.privacy.ledger.recorded_entries import EntryState
from parley.server.jobs.job_file import load_job
from parley.server.records.run_reader import read_summary
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.in_process_cohort import BlockCohort


def test_a_run_leaves_model_rounds_ledger_and_job_behind(tmp_path):
    result = run(tmp_path)
    folder = result.folder
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 11))
    assert np.array_equal(load_file(folder / "model.safetensors")["theta"], result.theta)
    with safe_open(folder / "model.safetensors", "np") as model:
        statement = model.metadata()
    assert statement["parley.unit"] == "record"
    assert statement["parley.neighbouring"] == "replace-one"
    assert "neighbours differ by replacing one record" in statement["parley.statement"]
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        entries = ledger.list_entries()
        assert len(entries) == 10
        # Nothing that only a simulation knows is in it.
        assert all(each.outcome["line"]["simulation_only"] == {} for each in entries)
        assert ledger.verify() == []
    assert read_summary(folder) == result.summary
    kept = load_job(folder / "job.toml")
    assert kept == load_job(overrides=[*QUICK, "model.features=none"])


@pytest.mark.parametrize("algorithm", ["gradient-perturbation", "output-perturbation"])
@pytest.mark.parametrize("kind", ["logistic", "huber-svm", "softmax"])
def test_with_a_huge_budget_a_run_comes_close_to_the_non_private_optimum(tmp_path, algorithm, kind):
    result = run(
        tmp_path,
        f"algorithm.kind={algorithm}",
        f"model.kind={kind}",
        "privacy.epsilon=30",
        "data.records=8000",
        "algorithm.rounds=150",
        "model.lambda=0.05",
        "parties.count=2",
    )
    # Two local optima averaged are near the pooled one, not at it; descent gets all the way.
    limit = 2e-3 if algorithm == "gradient-perturbation" else 2e-2
    assert -1e-9 <= result.summary.excess_loss < limit


def test_dropouts_and_refusals_are_counted_and_survived(tmp_path):
    result = run(
        tmp_path,
        "run.faults=drop:0.125@before-vector,decline:0.125",
        "secure-aggregation.min-survivors=5",
    )
    line = json.loads((result.folder / "rounds.jsonl").read_text().splitlines()[0])
    assert line["parties"] == {
        "asked": 8,
        "answered": 6,
        "declined": 1,
        "dropped": 1,
        "summed": 6,
    }
    assert line["reasons"] == {"declined": 1}
    assert result.summary.status == "complete"


def test_too_few_survivors_end_the_run_with_nothing_spent(tmp_path):
    result = run(tmp_path, "run.faults=drop:0.9@before-vector")
    assert result.summary.status == "too-few-survivors"
    assert result.summary.rounds_done == 0
    assert result.summary.primary.epsilon == 0
    with Ledger.open(result.folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.get_account("synthetic", Unit.RECORD).spent.releases == 0


def test_one_party_is_the_centralised_case_and_says_so(tmp_path):
    result = run(tmp_path, "parties.count=1")
    assert any("centralised" in line for line in result.summary.advice)


def test_noise_on_the_model_has_the_scale_that_is_reported(tmp_path):
    output = ("algorithm.kind=output-perturbation", "data.test-fraction=0", "model.kind=softmax")
    digits = ("data.source=digits", "data.records=1000", "model.features=none")
    exact = run(tmp_path, *output, *digits, "privacy.epsilon=30", "run.seed=0", name="exact")
    for seed in range(3):
        noisy = run(tmp_path, *output, *digits, f"run.seed={seed}", name=f"noisy-{seed}")
        expected = noisy.summary.primary.noise.expected_norm
        # The reference is itself off by a thirtieth of that; a Gamma(650) norm, by a twenty-fifth.
        assert np.linalg.norm(noisy.theta - exact.theta) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("faults", ["drop:0.25", "drop:0.25@before-vector,decline:0.125"])
def test_masked_and_ideal_runs_give_the_same_bits_and_the_same_ledger(tmp_path, faults):
    common = (
        "run.seed=11",
        "run.noise-shares=full",
        f"run.faults={faults}",
        "secure-aggregation.min-survivors=5",
        "secure-aggregation.corrupt=0",
        "algorithm.rounds=4",
    )
    ideal = run(tmp_path, *common, name="ideal")
    masked = run(tmp_path, *common, "secure-aggregation.backend=masked", name="masked")
    assert masked.summary.secure_aggregation.backend == "masked"
    assert masked.summary.status == ideal.summary.status == "complete"
    assert np.array_equal(ideal.theta, masked.theta)

    def lines(result):
        rounds = (result.folder / "rounds.jsonl").read_text().splitlines()
        return [{**json.loads(line), "seconds": 0} for line in rounds]

    assert lines(ideal) == lines(masked)


def test_the_fast_engine_checks_one_round_against_the_masked_protocol_and_says_so(tmp_path):
    result = run(tmp_path, "secure-aggregation.masked-check=true", "run.faults=drop:0.25")
    checked = result.summary.secure_aggregation.masked_check
    assert "round 1" in checked
    assert "identical" in checked
    assert "drawn at random" not in checked  # all of them


def test_of_many_parties_a_random_few_are_checked_and_the_run_says_how_many(tmp_path):
    result = run(
        tmp_path,
        "secure-aggregation.masked-check=true",
        "parties.count=700",
        "data.records=1400",
        "run.faults=drop:0.1",
        "algorithm.rounds=1",
    )
    assert result.summary.secure_aggregation.masked_check.endswith(
        "contributions of 64 parties drawn at random from 700 summed by the masked protocol, "
        "identical to the last bit"
    )


def test_a_masked_sum_that_differs_stops_the_run(tmp_path, monkeypatch):
    from parley.secure_agg.in_process_protocol import MaskedSum
    from parley.simulations.engine.in_process_cohort import MaskedCheckFailed

    real = MaskedSum.sum

    def off_by_one(self, vectors, **more):
        result = real(self, vectors, **more)
        result.total[0] += 1
        return result

    monkeypatch.setattr(MaskedSum, "sum", off_by_one)
    with pytest.raises(MaskedCheckFailed, match="nothing was released"):
        run(tmp_path, "secure-aggregation.masked-check=true")


def test_ridge_on_targets_that_are_all_the_same_has_no_r2_and_json_stays_json(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.uniform(-0.5, 0.5, (60, 3)), y=np.full(60, 0.25))
    (tmp_path / "s.toml").write_text(
        'scaling = "record"\n[columns]\nx = { kind = "array", shape = [3], range = [-1, 1] }\n'
        'y = { kind = "label", range = [-1, 1] }\n'
    )
    result = run(
        tmp_path,
        "model.kind=ridge",
        f"data.source={tmp_path / 'd.npz'}",
        f"data.schema={tmp_path / 's.toml'}",
        "data.records=0",
    )
    summary = json.loads((result.folder / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["metric"] == "r2"
    assert not {"accuracy", "baseline_accuracy"} & summary.keys()
    for line in (result.folder / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_the_same_source_is_the_same_data_whatever_is_learned_from_it(tmp_path):
    shared = f"privacy.ledger={tmp_path / 'all.sqlite'}"
    run(tmp_path, shared, name="logistic")
    renamed = "privacy.dataset=another-name"
    for change in ("model.kind=softmax", "data.records=300", "data.test-fraction=0.5", renamed):
        with pytest.raises(BudgetExceeded, match="data set 'synthetic'"):
            run(tmp_path, shared, change, name="again")


def test_ridge_targets_beyond_their_bound_are_clamped_before_they_count(tmp_path):
    job = load_job(
        overrides=[*QUICK, "model.kind=ridge", "model.radius=0.01", "model.label-bound=0.01"]
    )
    experiment = load_experiment(job)
    assert np.abs(experiment.block.labels).max() <= 0.01
    model, block = experiment.model, experiment.block
    planned = 2 * model.lipschitz / block.sizes[0]
    flipped = replace(
        block, labels=np.where(np.arange(len(block.labels)) == 0, -0.01, block.labels)
    )
    zero = np.zeros(model.dimension)
    moved = compute_gradients(model, zero, flipped) - compute_gradients(model, zero, block)
    assert np.linalg.norm(moved) <= planned


def test_a_party_that_cannot_certify_ends_the_run_with_its_charge_and_no_number(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "parley.client.solvers.batched_optima.MAX_STEPS", 0
    )  # no records are known that do it
    hard = ("algorithm.kind=output-perturbation", "model.kind=huber-svm")
    result = run(tmp_path, *hard)
    assert result.summary.status == "party-failed"
    assert "gradient" not in result.summary.reason
    with Ledger.open(result.folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.get_account("synthetic", Unit.RECORD).spent.releases == 1
        (entry,) = ledger.list_entries()
        assert entry.state == "reserved"


def test_a_seeded_model_claims_nothing(tmp_path):
    seeded = run(tmp_path, "run.seed=1")
    with safe_open(seeded.folder / "model.safetensors", "np") as model:
        statement = model.metadata()
    assert statement["parley.epsilon"] == "none (seeded noise)"
    assert "no privacy guarantee" in statement["parley.statement"]


class Noting:
    """An observer that adds to `events` which rounds are computed and shown."""

    def __init__(self, monkeypatch, events):
        self.events, aggregate = events, BlockCohort.aggregate

        def noted(cohort, plan, *given, **named):
            events.append(f"compute {plan.round_number}")
            return aggregate(cohort, plan, *given, **named)

        monkeypatch.setattr(BlockCohort, "aggregate", noted)

    def started(self, *facts):
        pass

    def round_done(self, line):
        self.events.append(f"show {line.round}")


def test_a_round_is_on_the_disk_before_it_is_shown_and_before_the_next_is_computed(
    tmp_path, monkeypatch
):
    events = []
    note_commits(monkeypatch, events)
    run(tmp_path, "algorithm.rounds=40", observer=Noting(monkeypatch, events))
    start, end = events.index("compute 1"), events.index("show 40") + 1
    rounds = ((f"compute {at}", "durable", f"show {at}") for at in range(1, 41))
    assert events[start:end] == [event for each in rounds for event in each]
    assert set(events[:start] + events[end:]) == {"durable"}


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_a_run_that_is_stopped_by_what_it_showed_has_that_and_no_more(tmp_path, rounds):
    seeded = ("run.seed=1", "algorithm.rounds=9")
    whole = run(tmp_path, *seeded, name="whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *seeded, name="cut", observer=StopAfter(rounds))
    with Ledger.open(tmp_path / "cut" / "ledger.sqlite") as ledger:
        made = [each.state for each in ledger.list_entries()]
    # The next one is reserved with the commit of the round before it.
    begun = [EntryState.RESERVED] * (rounds < 9)
    assert made == [EntryState.COMMITTED] * rounds + begun
    assert np.array_equal(simulate(None, resume=tmp_path / "cut").theta, whole.theta)


def test_a_round_that_the_disk_did_not_take_is_not_shown(tmp_path, monkeypatch):
    events, step = [], Ledger.commit_and_reserve

    def refused(ledger, *given, **named):
        if events.count("compute 2"):
            raise LedgerUnavailable("no room")
        return step(ledger, *given, **named)

    monkeypatch.setattr(Ledger, "commit_and_reserve", refused)
    seeded = ("run.seed=1", "algorithm.rounds=5")
    job = load_job(overrides=[*QUICK, *seeded])
    with monkeypatch.context() as patch, pytest.raises(LedgerUnavailable):
        simulate(job, out=tmp_path / "run", observer=Noting(patch, events))
    assert events == ["compute 1", "show 1", "compute 2"]
    log = tmp_path / "run" / "rounds.jsonl"
    assert [json.loads(line)["round"] for line in log.read_text().splitlines()] == [1]
    monkeypatch.setattr(Ledger, "commit_and_reserve", step)
    resumed = simulate(None, resume=tmp_path / "run")
    assert np.array_equal(resumed.theta, run(tmp_path, *seeded, name="w").theta)
