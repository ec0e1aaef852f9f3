"""Plan the stages of a job; if its noise cannot meet its budget, name settings that can.

A remedy is printed only after it was tried: the job with these settings is planned, and its cost is
compared with its budgets, as for a run. A printed remedy works as typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.client.own_code.own_code_names import is_own_code
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.budget import DatasetBudget
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job import Job
from parley.server.planning.budget_check import JobUnaffordable, check_affordable
from parley.server.planning.run_stages import PlanInputs, Planned, RunStage, get_rounds_stage

_REMEDIES = "parley.server.planning.budget_remedies"
"""Imported only for an error."""


def plan_stages(job: Job, inputs: PlanInputs) -> Planned:
    """Return the algorithm of a resolved job, and its stages.

    Raises:
        JobError: the job does not fit the parties.
        OwnAlgorithmError: a part of your own algorithm fails.
        CalibrationError, RingTooSmall: its noise cannot meet its budget. The message names settings
            that can, if any were found.
    """
    algorithm, stages = plan_or_advise(job, inputs.build)
    if is_own_code(job.algorithm.kind):
        check_parts = load_attribute("parley.client.algorithms.own_algorithm:check_parts")
        check_parts(algorithm, get_rounds_stage(stages).plan)
    return algorithm, stages


def check_cost(
    job: Job, stages: Sequence[RunStage], budgets: Sequence[DatasetBudget], inputs: PlanInputs
) -> None:
    """Check that unspent budgets could cover the job.

    Raises:
        JobUnaffordable: they could not. The message names settings with which they can, if any
            were found.
        JobError: δ is too large for the number of records.
    """
    try:
        check_affordable(job, stages, budgets)
    except JobUnaffordable as error:
        describe = load_attribute(f"{_REMEDIES}:describe_affordable_settings")
        error.args = (f"{error} {describe(job, inputs.build, error)}".strip(),)
        raise


def plan_or_advise(job: Job, build: Callable[[Job], Planned]) -> Planned:
    """Return `build(job)`, or raise its error with settings that work."""
    try:
        return build(job)
    except (CalibrationError, RingTooSmall) as error:
        found = load_attribute(f"{_REMEDIES}:find_usual_remedies")(job, build)
        if found:
            error.args = (f"{error} Use {', or '.join(found)}.",)
        raise
