"""Parameters of a simulation's secure sums, from a job: for `plan`, and for the engines' sums."""

from __future__ import annotations

import math
from typing import Any

from parley.client.contract.release_plan import ReleasePlan
from parley.secure_agg.protocol_parameters import RunParameters
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fault_script import FaultScript, parse_faults


def choose_sum_settings(
    job: Job, plan: ReleasePlan, faults: FaultScript, *, parties: int | None = None
) -> dict[str, Any]:
    """Return the options of `RunParameters.choose` for all parties of a plan, or for fewer.

    Survivors and colluders are in proportion to the parties.
    """
    count = parties or plan.parties
    settings: dict[str, Any] = {
        "parties": count,
        "min_survivors": math.ceil(plan.min_survivors * count / plan.parties),
        "ring_bits": plan.encoding.ring_bits,
        "corrupt": job.corrupt * count // plan.parties,
    }
    lost = math.ceil(faults.max_fraction * count)
    if count > 100 and lost > count // 10:  # up to 100 the graph is complete
        settings["dropped"] = lost  # The graph's degree must bear what the script takes away.
    return settings


def check_sum(job: Job, plan: ReleasePlan) -> None:
    """Check that the parties of a plan can be summed securely, with the job's simulated faults.

    Raises:
        FaultScriptError: `run.faults` is no script of faults.
        JobError: there is no protocol for so many survivors and colluders.
    """
    faults = parse_faults(job.run.faults, seed=job.seed or 0)
    if plan.parties == 1:
        if job.secure_aggregation.backend == "masked":
            raise build_sum_error(ValueError("Expected at least 2 parties, got 1."))
        return  # nothing is masked
    try:
        RunParameters.choose(run_id=bytes(16), **choose_sum_settings(job, plan, faults))
    except ValueError as error:
        raise build_sum_error(error) from error


def build_sum_error(error: ValueError) -> JobError:
    """Return the error of a job whose secure sum has no parameters."""
    return JobError(f"Secure aggregation: {error}")
