"""Attacks on the released model: honest runs are not refuted, one without noise is."""

from dataclasses import replace

import numpy as np
import pytest
from commands import invoked

from parley.privacy.mechanisms.gaussian import Gaussian
from parley.server.jobs.job_file import load_job
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import build_unchanged_target
from parley.simulations.audit.guarantee_audit import Effort, audit_released
from parley.simulations.audit.model_attacks import TRAININGS
from parley.simulations.audit.world_batch import WorldRandomness, train_models
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

JOB = ("data.source=synthetic", "data.records=60", "parties.count=2", "privacy.noise-point=server")
ADD = "privacy.neighbouring=add-or-remove-one"


def run(*overrides, attacks=tuple(TRAININGS), trials=100, seed=3):
    job = load_job(None, overrides=[*JOB, *overrides])
    return audit_released(job, Effort(trials=trials, attacks=attacks, seed=seed))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (ADD, "parties.min-records=10"),
        ("privacy.noise-point=share", "algorithm.rounds=2", "run.seed=4"),
        ("model.kind=softmax", "parties.weights=size"),
        ("algorithm.kind=output-perturbation", "model.lambda=1"),
        ("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[]", "algorithm.rounds=2",
         "dp-sgd.sampling-rate=0.5", "dp-sgd.local-steps=1"),
        ("algorithm.kind=distributed-dp-sgd", "model.kind=mlp", "model.hidden=[]",
         "algorithm.rounds=2", "dp-sgd.sampling-rate=0.5", "dp-sgd.local-steps=1"),
    ],
)  # fmt: skip
def test_an_honest_run_is_not_refuted(overrides):
    report = run(*overrides, trials=20)
    assert report.verdict == "not-refuted"
    assert report.claim.against == "readers"
    assert {each.attack for each in report.results} == set(TRAININGS)


@pytest.mark.parametrize("attack", TRAININGS)
def test_a_model_without_noise_is_refuted_and_confirmed(monkeypatch, attack):
    drawn = Gaussian.draw_many
    job = ("privacy.epsilon=0.5", "algorithm.rounds=5")
    assert run(*job, attacks=(attack,)).verdict == "not-refuted"
    monkeypatch.setattr(
        Gaussian,
        "draw_many",
        lambda self, *rest: drawn(replace(self, sigma=self.sigma * 1e-3), *rest),
    )
    assert run(*job, attacks=(attack,)).verdict == "refuted"


def test_a_world_is_a_run_to_the_last_bit(tmp_path):
    seed = WorldRandomness(seed=9).get_chunk(0).seed
    job = load_job(None, overrides=[*JOB, f"run.seed={seed}"])
    experiment = load_experiment(job)
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    given = build_unchanged_target(job, experiment, by_halves=False, seed=9)
    (theta,) = train_models(given, lambda _: experiment.block, 1, WorldRandomness(seed=9))
    assert np.array_equal(theta, simulate(job, out=tmp_path / "run").theta)
    both = train_models(given, lambda _: experiment.block, 2, WorldRandomness(seed=9))
    assert np.array_equal(
        both, train_models(given, lambda _: experiment.block, 2, WorldRandomness(seed=9))
    )
    assert not np.array_equal(*both)


@pytest.mark.parametrize(
    ("overrides", "attacks", "said"),
    [
        ((), ("clipbkd", "dirac"), "only attacks on the released model .*got dirac"),
        (("run.engine=processes",), ("clipbkd",), "never part of a deployment"),
        (("model.kind=ridge",), ("clipbkd",), "a model of classes"),
        (
            ("algorithm.kind=fedavg", "model.kind=mlp", "privacy.unit=party"),
            ("clipbkd",),
            "got 'party'",
        ),
        (
            ("algorithm.kind=fedavg", "model.kind=pca-mlp", "model.components=4"),
            ("clipbkd",),
            "on the records themselves",
        ),
    ],
)
def test_what_has_no_such_attack_is_refused(overrides, attacks, said):
    with pytest.raises(AuditError, match=said):
        run(*overrides, attacks=attacks)


def test_a_runs_own_records_are_attacked_only_by_who_says_that_scores_leak(tmp_path):
    folder = tmp_path / "run"
    simulate(load_job(None, overrides=[*JOB, "algorithm.rounds=2"]), out=folder)
    before = (folder / "ledger.sqlite").read_bytes()
    call = ["audit", str(folder), "--trials", "20", "--attack", "label-flip"]
    said = invoked(*call, "--data", "job", "--scores-leak")
    assert said.exit_code == 0, said.output
    assert "label-flip pair" in said.output
    assert (folder / "ledger.sqlite").read_bytes() == before
    for wrong, why in (
        (["--data", "job"], "--scores-leak together"),
        (["--scores-leak"], "--scores-leak together"),
        (["--data", "mine"], "'mine'"),
        (["--data", "job", "--attack", "dirac", "--scores-leak"], "make their records"),
    ):
        refused = invoked(*call, *wrong)
        assert refused.exit_code == 2
        assert why in " ".join(refused.output.split())
