"""Compute a run's noise, and the public changes that would reduce it.

It uses the formulas of `parley plan`. Near an optimum, a model's loss grows with the square of the
noise. So the noise must be √(lost / acceptable loss) times smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from parley.client.data.schema import Schema
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import build_budgets, check_affordable
from parley.server.planning.job_planner import scale_to_average
from parley.server.planning.run_stages import get_rounds_stage
from parley.simulations.data.simulated_experiment import Experiment

ACCEPTABLE_LOSS = 0.01
"""Loss of accuracy, AUC or R² from noise that needs no remark."""

MAX_EPSILON = 8.0
"""Maximum ε that is advised: above it, a guarantee hardly protects."""

MANY_COLUMNS = 20
IGNORE = 'kind = "ignore" in the schema leaves one out'


@dataclass(frozen=True, kw_only=True)
class NoiseReduction:
    """A public change, and the factor by which it reduces the noise relative to what is learned."""

    description: str
    factor: float


def compute_noise(job: Job, experiment: Experiment, federation: Federation) -> float:
    """Return the expected length of the noise, relative to the sum of all records.

    Raise JobError if the job would be refused.
    """
    algorithm, stages = replace(experiment.plan_inputs, federation=federation).build(job)
    plan = get_rounds_stage(stages).plan
    check_affordable(job, stages, build_budgets(job, plan, "planned"))
    own = plan.primary
    length = scale_to_average(plan, own).expected_norm() * own.noise_growth
    rate = getattr(getattr(algorithm, "training", None), "sampling_rate", 1.0)
    if plan.sampled_noises:  # Noise of a sum over a batch of all parties' records.
        length /= rate * federation.total_records
    # Noise of a sum over a party's batch; the average over the parties has less.
    elif own.in_training:
        length /= rate * federation.min_records * math.sqrt(federation.parties)
    return float(length)


def list_noise_reductions(job: Job, experiment: Experiment) -> list[NoiseReduction]:
    """Return public changes that reduce the noise, the best first."""
    federation = experiment.federation
    own = compute_noise(job, experiment, federation)
    found = []
    for said, keys, changed in _list_changes(job, federation):
        try:
            other = load_job(values=job.to_values(), overrides=keys) if keys else job
            times = own / compute_noise(other, experiment, changed)
        except (CalibrationError, JobError, RingTooSmall, ValueError, ZeroDivisionError):
            continue  # This change is not possible.
        if times > 1.05:
            found.append(NoiseReduction(description=said, factor=times))
    if (columns := count_columns(job, experiment)) >= MANY_COLUMNS:
        said = f"half of the {columns} columns ({IGNORE})"
        found.append(NoiseReduction(description=said, factor=math.sqrt(2)))
    # Sort by the displayed value, so that rounding does not decide the order.
    return sorted(found, key=lambda way: -float(f"{way.factor:.2g}"))


def _list_changes(job: Job, federation: Federation) -> Iterator[tuple[str, list[str], Federation]]:
    """Yield possible changes: in words, as keys of the job, and its parties."""
    if 2 * job.privacy.epsilon <= MAX_EPSILON:
        epsilon = f"privacy.epsilon={format_exact(2 * job.privacy.epsilon)}"
        yield f"twice ε (`--set {epsilon}`)", [epsilon], federation
    more = replace(
        federation,
        min_records=2 * federation.min_records,
        max_records=2 * federation.max_records,
        total_records=2 * federation.total_records,
    )
    yield f"twice the records per party (now at least {federation.min_records})", [], more
    parties = replace(
        federation, parties=2 * federation.parties, total_records=2 * federation.total_records
    )
    keys = [f"parties.count={parties.parties}"]
    yield f"twice as many parties of that size (now {federation.parties})", keys, parties
    if job.privacy.delta == 0:
        delta = f"{min(1e-5, 0.01 / federation.total_records):.0e}"
        keys = ["privacy.noise=gaussian", f"privacy.delta={delta}"]
        typed = " ".join(f"--set {key}" for key in keys)
        yield f"`{typed}` (a guarantee with δ > 0)", keys, federation
    for key, why in (
        ("parties.weights=size", "parties' sizes become public"),
        ("secure-aggregation.corrupt=0", "if no party colludes with the server"),
        (f"secure-aggregation.min-survivors={federation.parties}", "if no party may drop out"),
        ("privacy.noise-point=share", "shares, which add up to one noise"),
        ("privacy.noise-point=server", "trusts the server with the sum without noise"),
    ):
        yield f"`--set {key}` ({why})", [key], federation


def count_columns(job: Job, experiment: Experiment) -> int:
    """Return the number of columns that a linear model learns from; 0 for a network."""
    if job.model.learns == "network":
        return 0
    return len(Schema.from_toml(experiment.data.schema).features)
