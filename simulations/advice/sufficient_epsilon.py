"""Find the ε at which a run's noise would lose little."""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import format_exact
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_summary import RunSummary
from parley.server.statements import guarantee_text
from parley.simulations.advice.noise_remedies import (
    ACCEPTABLE_LOSS,
    IGNORE,
    MANY_COLUMNS,
    MAX_EPSILON,
    compute_noise,
    count_columns,
)
from parley.simulations.data.simulated_experiment import Experiment


def describe_noise_remedy(
    summary: RunSummary, job: Job, experiment: Experiment, noise_loss: float
) -> str:
    """Describe which ε would lose little, or that none does with this number of records."""
    needed = math.sqrt(max(noise_loss, 2 * ACCEPTABLE_LOSS) / ACCEPTABLE_LOSS)
    own = compute_noise(job, experiment, experiment.federation)
    epsilon, times = job.privacy.epsilon, 1.0
    records = f"{experiment.federation.total_records:,} records"
    scope = guarantee_text.format_scope(summary.primary)
    columns, fewer = count_columns(job, experiment), ""
    # Gaussian noise has a length proportional to the square root of the number of columns.
    kept = int(columns / needed**2)
    if columns >= MANY_COLUMNS and kept > 1:
        fewer = (
            f". Of {columns} columns keep the most informative ones ({IGNORE}): with {kept} it "
            f"is {needed:.2g} times smaller"
        )
    while 2 * epsilon <= MAX_EPSILON:
        epsilon *= 2
        key = f"privacy.epsilon={format_exact(epsilon)}"
        try:
            other = load_job(values=job.to_values(), overrides=[key])
            times = own / compute_noise(other, experiment, experiment.federation)
        except (CalibrationError, JobError, RingTooSmall, ValueError):
            continue
        if times >= needed:
            return (
                f"The noise of ε = {format_exact(job.privacy.epsilon)} ({scope}) is too large for "
                f"{records}: `parley run … --set {key}` makes it {times:.2g} times smaller{fewer}"
            )
    return (
        f"No ε up to {format_exact(MAX_EPSILON)} ({scope}) is enough for {records}: about "
        f"{needed / times:.2g} times as many per party would be, at ε = "
        f"{format_exact(epsilon)}{fewer}"
    )
