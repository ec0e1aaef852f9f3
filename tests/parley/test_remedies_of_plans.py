"""Remedies of plans and runs that cannot meet their budget, each typed."""

import re

import pytest

import parley
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job_file import load_job

NETWORK = ("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]", "algorithm.rounds=2")
REFUSED = {
    "a sampler that takes more than δ": ("privacy.epsilon=50",),
    "an ε beyond all noise": ("privacy.epsilon=1e300",),
    "the same at the server": ("privacy.epsilon=50", "privacy.noise-point=server"),
    "the same in every party": ("privacy.epsilon=60", "privacy.noise-point=party"),
    "the same with a measured model": ("privacy.epsilon=50", "evaluation.kind=federated"),
    "a δ below the sampler's": ("privacy.delta=1e-300",),
    "as printed beyond its proof": ("privacy.calibration=as-printed", "privacy.epsilon=9"),
    "a grid too fine for its ring": (
        *("secure-aggregation.ring-bits=32", "secure-aggregation.scale-bits=30"),
    ),
    "training at a large ε": (*NETWORK, "privacy.epsilon=60"),
    "records hardly ever in a batch": (*NETWORK, "dp-sgd.sampling-rate=1e-12"),
    "records hardly ever in a batch of all parties": (
        *(*NETWORK, "algorithm.kind=distributed-dp-sgd", "dp-sgd.sampling-rate=1e-9"),
    ),
}


@pytest.mark.parametrize("sets", REFUSED.values(), ids=list(REFUSED))
def test_each_remedy_of_a_plan_that_is_refused_plans_as_typed(sets) -> None:
    with pytest.raises((CalibrationError, RingTooSmall)) as refused:
        parley.plan(load_job(overrides=sets))
    found = typed(str(refused.value))
    assert found
    for remedy in found:
        assert parley.plan(load_job(overrides=[*sets, *remedy])).refusal is None


def test_a_run_that_is_refused_names_settings_with_which_it_runs(tmp_path) -> None:
    sets = ("privacy.epsilon=50", "algorithm.rounds=1", "run.baseline=false")
    with pytest.raises(CalibrationError) as refused:
        parley.run(load_job(overrides=sets), out=tmp_path / "refused")
    found = typed(str(refused.value))
    assert len(found) == 2
    for number, remedy in enumerate(found):
        job = load_job(overrides=[*sets, *remedy])
        assert parley.run(job, out=tmp_path / str(number)).summary.rounds_done == 1


def typed(message: str) -> list[list[str]]:
    """Return the settings of each command that a message names."""
    commands = re.findall(r"`([^`]*--set [^`]*)`", message)
    return [re.findall(r"--set (\S+)", command) for command in commands]
