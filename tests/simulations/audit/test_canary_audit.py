"""A run that hides canaries among its records bounds its own ε, and keeps them after a stop."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from commands import invoked
from quick_runs import StopAfter

from parley.privacy.mechanisms.gaussian import Gaussian
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.audit.canary_audit import insert_canaries
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

JOB = (
    "data.source=synthetic",
    "data.records=2500",
    "algorithm.rounds=3",
    "run.seed=3",
    "privacy.noise-point=server",
)


def job(*overrides):
    return load_job(None, overrides=[*JOB, *overrides])


def test_canaries_are_extra_records_that_the_noise_does_not_count():
    asked = job()
    before = load_experiment(asked)
    after, canaries = insert_canaries(asked, before, 300, seed=1)
    assert after.block.sizes.sum() == before.block.sizes.sum() + 300
    assert after.federation.min_records == before.federation.min_records
    assert np.allclose(np.linalg.norm(canaries.rows, axis=1), 1)
    assert 100 < canaries.coins.sum() < 200
    again, same = insert_canaries(asked, before, 300, seed=1)
    assert np.array_equal(same.coins, canaries.coins)
    assert np.array_equal(again.block.features, after.block.features)
    sizes = np.diff(after.block.offsets) - np.diff(before.block.offsets)
    assert sizes.max() - sizes.min() <= 1


def test_honest_noise_hides_the_coins_and_missing_noise_shows_them(tmp_path, monkeypatch):
    wide = ("data.source=digits", "data.records=0", "model.kind=softmax", "privacy.epsilon=0.5")
    found = simulate(job(*wide), out=tmp_path / "honest", canaries=30).summary
    assert found.self_audit.coins == "one-of-two"
    assert found.self_audit.epsilon_lower <= found.primary.epsilon
    assert found.self_audit.epsilon_lower <= found.self_audit.ceiling
    drawn = Gaussian.draw_many
    monkeypatch.setattr(
        Gaussian,
        "draw_many",
        lambda self, count, stream: drawn(replace(self, sigma=self.sigma / 1e4), count, stream),
    )
    broken = simulate(job(*wide), out=tmp_path / "broken", canaries=30).summary
    assert broken.self_audit.epsilon_lower > broken.primary.epsilon
    written = json.loads((tmp_path / "broken/summary.json").read_text())
    assert written["self_audit"]["right"] == broken.self_audit.right


def test_a_run_that_was_stopped_goes_on_with_its_canaries(tmp_path):
    whole = simulate(job(), out=tmp_path / "whole", canaries=200)
    with pytest.raises(KeyboardInterrupt):
        simulate(job(), out=tmp_path / "stopped", canaries=200, observer=StopAfter(1))
    resumed = simulate(None, resume=tmp_path / "stopped")
    assert np.array_equal(resumed.theta, whole.theta)
    assert resumed.summary.self_audit == whole.summary.self_audit


def test_networks_have_canaries_too_that_are_there_or_not(tmp_path):
    asked = job(
        "algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[]", "dp-sgd.sampling-rate=0.2",
        "dp-sgd.local-steps=1", "privacy.neighbouring=add-or-remove-one", "privacy.epsilon=4",
        "parties.min-records=300",
    )  # fmt: skip
    found = simulate(asked, out=tmp_path / "net", canaries=100).summary
    assert found.self_audit.coins == "in-out"
    assert found.self_audit.epsilon_lower <= found.primary.epsilon


@pytest.mark.parametrize(
    ("overrides", "count", "said"),
    [
        ((), 10_000, "no more in a party than its public"),
        ((), 1, "Expected 2 to"),
        (("parties.weights=size",), 100, "parties.weights = 'uniform'"),
    ],
)
def test_canaries_that_the_claim_would_not_cover_are_refused(tmp_path, overrides, count, said):
    with pytest.raises(JobError, match=said):
        simulate(job(*overrides), out=tmp_path / "no", canaries=count)
    assert not (tmp_path / "no").exists()


def test_the_command_line_takes_canaries_and_refuses_what_are_none(tmp_path):
    sets = [word for each in JOB for word in ("--set", each)]
    out = str(tmp_path / "run")
    result = invoked("run", *sets, "--out", out, "--audit", "canaries=50", "-q")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert re.search(r"Self-audit ε ≥ [\d.]+ with 95% confidence", said)
    said = " ".join(invoked("run", *sets, "--audit", "canaries=50", "-v").output.split())
    assert "self-audit ε ≥ " in said
    for words in (
        "with 95 % confidence (per record; neighbours differ by replacing one record; against "
        "anyone who sees what was released); claimed against them: ε = ",
        "guesses right, of 50 coins (which of two records each was)",
        "a lower bound, not an estimate",
    ):
        assert words in said
    assert "Self-audit" in (tmp_path / "run/report.html").read_text()
    for wrong in ("canaries", "canaries=", "canaries=-3", "records=3"):
        refused = invoked("run", *sets, "--audit", wrong)
        assert refused.exit_code == 2
