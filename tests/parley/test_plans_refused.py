"""A plan that `run` would refuse, plans with extreme keys, and remedies in errors, as typed."""

import json
import math
import re

import pytest
from command_line import run_main
from scipy.stats import norm

import parley
from parley.exit_status import get_exit_status
from parley.privacy.accounting import dp_accounting_adapter, subsampled_gaussian
from parley.privacy.accounting.privacy_events import PoissonSampledGaussian
from parley.privacy.accounting.subsampled_gaussian import compute_pld_epsilon
from parley.server.planning.budget_check import JobUnaffordable

NETWORK = ("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]")
INFINITE = (
    *NETWORK,
    *("privacy.epsilon=40", "algorithm.rounds=50", "dp-sgd.noise-multiplier=1"),
    *("dp-sgd.sampling-rate=0.2", "dp-sgd.local-steps=10"),
)
UNAFFORDABLE = {
    "as printed": ("privacy.noise=laplace-as-printed", "algorithm.kind=output-perturbation"),
    "the data's budget": ("privacy.dataset-epsilon=0.5",),
    "no finite ε": INFINITE,
    "two budgets": (
        *NETWORK,
        *("algorithm.rounds=2", "privacy.unit=both", "privacy.party-epsilon=2"),
        *("privacy.dataset-epsilon=0.5", "privacy.dataset-party-epsilon=1"),
        "parties.min-records=50",
    ),
    "a model measured for nearly nothing": (
        *("evaluation.kind=federated", "evaluation.epsilon=1e-12"),
    ),
    "an account of pure noise": ("privacy.certificate=pure",),
}


@pytest.mark.parametrize("sets", UNAFFORDABLE.values(), ids=list(UNAFFORDABLE))
def test_a_plan_over_its_budget_says_first_that_run_refuses_and_ends_with_status_3(
    sets, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [part for each in sets for part in ("--set", each)]
    status, shown = run_command("plan", *typed)
    assert status == 3
    assert shown.startswith("`parley run` would refuse this job.")
    status, shown = run_command("plan", "--json", *typed)
    assert status == 3
    reason = json.loads(shown)["refusal"]
    assert "nan" not in reason
    infinite = (INFINITE, UNAFFORDABLE["an account of pure noise"])
    assert ("no finite ε" in reason) == (sets in infinite)
    with pytest.raises(JobUnaffordable) as refused:
        parley.run(parley.load_job(overrides=list(sets)), out=tmp_path / "run")
    assert get_exit_status(refused.value) == 3
    assert not (tmp_path / "run").exists()
    assert remedies(reason)
    for alternative in reason.split(", or "):
        job = parley.load_job(overrides=[*sets, *remedies(alternative)])
        assert parley.plan(job).refusal is None


def test_a_plan_within_its_budget_has_no_refusal() -> None:
    assert parley.plan(parley.load_job()).to_json().get("refusal") is None


def run_command(*arguments: str) -> tuple[int, str]:
    """Return the status and the standard output of `parley` with these arguments."""
    return run_main(*arguments)[:2]


def remedies(message: str) -> list[str]:
    """Return the settings KEY=VALUE that a message names."""
    return [each.rstrip(".,:;`") for each in re.findall(r"[a-z-]+\.[a-z-]+=[^ `,;]+", message)]


def test_a_plan_of_a_million_rounds_shows_some_of_them_and_the_last() -> None:
    outlook = parley.plan(parley.load_job(overrides=["algorithm.rounds=1000000"]))
    rounds = [row.round for row in outlook.primary.epsilon_by_round]
    assert (rounds[0], rounds[-1]) == (1, 1_000_000)
    assert len(rounds) <= 1001
    assert outlook.primary.epsilon == outlook.primary.epsilon_by_round[-1].epsilon_charged


def test_records_that_are_hardly_ever_in_a_batch_are_refused_with_the_reason() -> None:
    job = parley.load_job(overrides=[*NETWORK, "dp-sgd.sampling-rate=1e-12"])
    with pytest.raises(ValueError, match="no noise would be needed"):
        parley.plan(job)


def test_a_rare_steps_losses_are_bounded_in_number_and_its_epsilon_only_errs_upward() -> None:
    step = PoissonSampledGaussian(
        sampling_rate=1e-4, noise_multiplier=0.15, neighbouring="add-or-remove-one"
    )
    direction, *_ = step_losses(step)
    assert direction < 3 * 2**17
    epsilon = compute_pld_epsilon(((step, 1),), delta=1e-5)
    assert divergence_of(step, epsilon) <= 1e-5 < divergence_of(step, epsilon * 0.95)


def divergence_of(step: PoissonSampledGaussian, epsilon: float) -> float:
    """Return the hockey-stick divergence of one add-or-remove-one step at ε ≥ 0, analytically."""
    rate, sigma = step.sampling_rate, step.noise_multiplier
    cut = 0.5 + sigma**2 * math.log((math.exp(epsilon) - 1 + rate) / rate)
    without, with_it = norm.sf(cut / sigma), norm.sf((cut - 1) / sigma)
    return float(rate * with_it + (1 - rate - math.exp(epsilon)) * without)


def step_losses(step: PoissonSampledGaussian) -> list[int]:
    """Return how many losses of one step are computed, per direction."""
    loss, _ = dp_accounting_adapter._compute_step_loss(
        step, subsampled_gaussian._choose_interval(((step, 1),))
    )
    return [len(part._probs) for part in dp_accounting_adapter._list_directions(loss)]
