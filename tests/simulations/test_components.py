"""The private components' release: charged, counted beforehand, under faults, with its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from quick_runs import StopAfter
from safetensors import safe_open

from parley.presentation.run_page import write_report
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import build_budgets, check_affordable
from parley.server.planning.job_planner import build_algorithm
from parley.server.planning.run_stages import compute_spent
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.fault_script import parse_faults

BASE = [
    "algorithm.kind=fedavg",
    "model.kind=pca-mlp",
    "model.components=6",
    "model.hidden=[8]",
    "algorithm.rounds=2",
    "parties.count=10",
    "dp-sgd.sampling-rate=0.25",
    "run.seed=1",
]


pytestmark = pytest.mark.usefixtures("no_baseline")


def run(folder, *overrides: str):
    return simulate(load_job(overrides=[*BASE, *overrides]), out=folder)


def test_the_cost_of_the_components_is_counted_before_the_run(tmp_path) -> None:
    # Steps whose own cost is just within the budget: with the components they are beyond it.
    job = load_job(overrides=[*BASE, "model.pca=public"])
    experiment = load_experiment(job)
    algorithm: Any = build_algorithm(job, experiment.model, experiment.federation)
    sigma = algorithm.training.noise_multiplier
    given = [f"dp-sgd.noise-multiplier={sigma}", "model.pca-share=0.3"]
    assert run(tmp_path / "p", *given[:1], "model.pca=public").summary.status == "complete"
    with pytest.raises(JobError, match="more than its data's budget"):
        run(tmp_path / "r", *given)
    assert not (tmp_path / "r").exists()


def test_the_check_and_the_run_come_to_the_same(tmp_path) -> None:
    summary = run(tmp_path / "r").summary
    job = load_job(overrides=BASE)
    experiment = load_experiment(job)
    _, stages = experiment.plan_inputs.build(job)
    plan = stages[-1].plan
    check_affordable(job, stages, build_budgets(job, plan, "print"))
    spent = compute_spent(stages, [each.rounds for each in stages])[plan.primary.unit]
    assert summary.primary.epsilon == spent.compute_lowest_epsilon(plan.primary.delta)[1]


def test_faults_apply_to_the_components_as_to_a_round(tmp_path) -> None:
    faults = "run.faults=drop:0.2@before-vector,decline:0.1"
    summary = run(tmp_path / "r", faults).summary
    told = summary.components
    assert told.parties.to_json() == {
        "asked": 10,
        "answered": 7,
        "declined": 1,
        "dropped": 2,
        "summed": 7,
    }
    with Ledger.open(tmp_path / "r" / "ledger.sqlite", read_only=True) as ledger:
        entry = ledger.list_entries()[0]
        assert entry.entry.index == 0
        assert entry.outcome["survivors"] == 7
        assert entry.outcome["bytes_up"] == told.bytes_up
    masked = run(tmp_path / "m", faults, "secure-aggregation.backend=masked").summary
    assert masked.components.parties == told.parties
    assert masked.loss == summary.loss


def test_a_rule_may_name_the_release_ahead_of_the_rounds() -> None:
    def lost(script: str, number: int) -> int:
        return len(
            parse_faults(script).sample_faults(round_number=number, attempt=0, parties=10).dropped
        )

    assert [lost("drop:0.2", number) for number in (0, 1, 7)] == [2, 2, 2]
    assert [lost("drop:0.2@0", number) for number in (0, 1, 7)] == [2, 0, 0]
    assert [lost("drop:0.2@1-3", number) for number in (0, 1, 7)] == [0, 2, 0]


def test_too_few_parties_for_it_stop_the_run_free_of_charge_and_it_can_go_on(
    tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "r"
    with pytest.raises(TooFewSurvivors, match="principal components"):
        run(folder, "run.faults=drop:0.9@before-vector@0")
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.list_accounts()[0].spent.releases == 0
        assert ledger.verify() == []
    text = (folder / "job.toml").read_text().replace("drop:0.9@before-vector@0", "")
    (folder / "job.toml").write_text(text)
    resumed = simulate(None, resume=folder)
    whole = run(tmp_path / "whole")
    assert np.array_equal(resumed.theta, whole.theta)
    assert resumed.summary.components == whole.summary.components


def test_a_resumed_run_tells_the_components_parties_and_bytes(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(load_job(overrides=BASE), out=tmp_path / "r", observer=StopAfter(1))
    resumed = simulate(None, resume=tmp_path / "r")
    assert resumed.summary.components.parties.summed == 10
    assert resumed.summary.components.bytes_up > 0


def test_model_and_report_say_whom_the_components_noise_protects_from(tmp_path) -> None:
    run(tmp_path / "r", "run.seed=none", "privacy.noise-point=server")
    with safe_open(tmp_path / "r" / "model.safetensors", framework="numpy") as model:
        statement = model.metadata()["parley.statement"]
    assert "one release of the parties' second moments before round 1" in statement
    assert "added by a trusted server" in statement
    assert "against anyone who sees what was released, if everyone else is honest" in statement
    page = render(tmp_path / "r")
    assert "the guarantee holds against the server too" in page
    assert "Exception: the principal components, released once before round 1" in page
    run(tmp_path / "public", "model.pca=public")
    assert "Exception: the principal components" not in render(tmp_path / "public")
    run(tmp_path / "shares", "run.seed=none")
    assert "Exception: the principal components" not in render(tmp_path / "shares")


def render(folder) -> str:
    return write_report(folder).read_text()
