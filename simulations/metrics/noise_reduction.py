"""How large a run's noise is, and which public changes would make it smaller.

By the formulas of `parley plan`. Near an optimum, what a model loses grows with the square of the
noise: so the noise has to be √(lost / what may be lost) times as small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from parley.client.data.schema import Schema
from parley.privacy.accounting.rounding import as_written
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import budgets_of, check_affordable
from parley.server.planning.job_planner import algorithm_for, averaged
from parley.server.planning.run_stages import rounds_of, stages_of
from parley.server.records import guarantee_text
from parley.server.records.run_summary import RunSummary
from parley.simulations.data.simulated_world import Experiment

MAY_LOSE = 0.01
"""Of accuracy, AUC or R²: so much the noise may cost without a word."""

LARGEST_EPSILON = 8.0
"""No larger ε is advised: beyond, a guarantee is hardly one."""

_MANY_COLUMNS = 20
_IGNORE = 'kind = "ignore" in the schema leaves one out'


@dataclass(frozen=True, kw_only=True)
class Way:
    """A public change, and how many times smaller it makes the noise beside what is learned."""

    said: str
    times: float


def _noise(job: Job, world: Experiment, federation: Federation) -> float:
    """Return the expected length of the noise, relative to what so many records make together.

    Raise JobError if the job would be refused.
    """
    algorithm = algorithm_for(job, world.model, federation)
    stages = stages_of(
        job,
        algorithm=algorithm,
        federation=federation,
        features=world.block.features.shape[1],
        components=world.components,
    )
    plan = rounds_of(stages).plan
    check_affordable(job, stages, budgets_of(job, plan, "planned"))
    own = plan.primary
    noise = averaged(plan, own)
    length = noise.expected_norm() * own.noise_growth
    rate = getattr(getattr(algorithm, "training", None), "sampling_rate", 1.0)
    if plan.sampled:  # of a sum over a batch of all parties' records
        length /= rate * federation.total_records
    elif own.in_training:  # of one over a party's batch; the average over the parties has less
        length /= rate * federation.min_records * math.sqrt(federation.parties)
    return float(length)


def ways_to(job: Job, world: Experiment) -> list[Way]:
    """Public changes that make the noise smaller, the best first."""
    federation = world.federation
    own = _noise(job, world, federation)
    found = []
    for said, keys, changed in _changes(job, federation):
        try:
            other = load_job(values=job.values(), overrides=keys) if keys else job
            times = own / _noise(other, world, changed)
        except (CalibrationError, JobError, RingTooSmall, ValueError, ZeroDivisionError):
            continue  # it cannot be had
        if times > 1.05:
            found.append(Way(said=said, times=times))
    if (columns := _columns(job, world)) >= _MANY_COLUMNS:
        said = f"half of the {columns} columns ({_IGNORE})"
        found.append(Way(said=said, times=math.sqrt(2)))
    # By what is shown, so that rounding decides no order.
    return sorted(found, key=lambda way: -float(f"{way.times:.2g}"))


def _changes(job: Job, own: Federation) -> Iterator[tuple[str, list[str], Federation]]:
    """What may be changed: in words, as keys of the job, and of its parties."""
    if 2 * job.privacy.epsilon <= LARGEST_EPSILON:
        epsilon = f"privacy.epsilon={as_written(2 * job.privacy.epsilon)}"
        yield f"twice ε (`--set {epsilon}`)", [epsilon], own
    more = replace(
        own,
        min_records=2 * own.min_records,
        max_records=2 * own.max_records,
        total_records=2 * own.total_records,
    )
    yield f"twice the records a party (now at least {own.min_records})", [], more
    parties = replace(own, parties=2 * own.parties, total_records=2 * own.total_records)
    keys = [f"parties.count={parties.parties}"]
    yield f"twice as many parties of that size (now {own.parties})", keys, parties
    if job.privacy.delta == 0:
        keys = [
            "privacy.noise=gaussian",
            f"privacy.delta={min(1e-5, 0.01 / own.total_records):.0e}",
        ]
        yield f"`{' '.join(f'--set {key}' for key in keys)}` (a guarantee with δ > 0)", keys, own
    for key, why in (
        ("parties.weights=size", "parties' sizes become public"),
        ("secure-aggregation.corrupt=0", "if no party colludes with the server"),
        (f"secure-aggregation.min-survivors={own.parties}", "if no party may drop out"),
        ("privacy.noise-point=share", "shares, which add up to one noise"),
        ("privacy.noise-point=server", "trusts the server with the bare sum"),
    ):
        yield f"`--set {key}` ({why})", [key], own


def against_noise(summary: RunSummary, job: Job, world: Experiment, lost: float) -> str:
    """Which ε would give a model that loses little, or that none does with so many records."""
    needed = math.sqrt(max(lost, 2 * MAY_LOSE) / MAY_LOSE)
    own, epsilon, times = _noise(job, world, world.federation), job.privacy.epsilon, 1.0
    records, scope = (
        f"{world.federation.total_records:,} records",
        guarantee_text.scope(summary.primary),
    )
    columns, fewer = _columns(job, world), ""
    kept = int(columns / needed**2)  # Gaussian noise is as long as the root of their number
    if columns >= _MANY_COLUMNS and kept > 1:
        fewer = (
            f". Of {columns} columns keep those that tell most ({_IGNORE}): with {kept} it is "
            f"{needed:.2g} times as small"
        )
    while 2 * epsilon <= LARGEST_EPSILON:
        epsilon *= 2
        key = f"privacy.epsilon={as_written(epsilon)}"
        try:
            other = load_job(values=job.values(), overrides=[key])
            times = own / _noise(other, world, world.federation)
        except (CalibrationError, JobError, RingTooSmall, ValueError):
            continue
        if times >= needed:
            return (
                f"The noise of ε = {as_written(job.privacy.epsilon)} ({scope}) is too large for "
                f"{records}: `parley run … --set {key}` makes it {times:.2g} times as small{fewer}"
            )
    return (
        f"No ε up to {as_written(LARGEST_EPSILON)} ({scope}) is enough for {records}: about "
        f"{needed / times:.2g} times as many a party would be, at ε = {as_written(epsilon)}{fewer}"
    )


def _columns(job: Job, world: Experiment) -> int:
    """How many columns a linear model learns from; 0 of a network."""
    return 0 if job.model.learns == "network" else len(Schema.from_toml(world.data.schema).features)
