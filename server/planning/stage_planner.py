"""Plan the stages of a job; if its noise cannot meet its budget, name settings that can.

A remedy is printed only after it was tried: the job with these settings is planned, and its cost is
compared with its budgets, as for a run. A printed remedy works as typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy import float64
from numpy.typing import NDArray

from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.budget import DatasetBudget
from parley.safe_io.path_names import is_own_code
from parley.safe_io.plugin_table import load_attribute
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.planning.budget_check import JobUnaffordable, check_affordable
from parley.server.planning.job_planner import build_algorithm
from parley.server.planning.run_stages import Planned, RunStage, build_stages, get_rounds_stage


def plan_stages(
    job: Job,
    model: Any,
    *,
    federation: Federation,
    features: int,
    components: NDArray[float64] | None = None,
    run_id: str = "plan",
) -> Planned:
    """Return the algorithm of a resolved job, and its stages.

    Raises:
        JobError: the job does not fit the parties.
        OwnAlgorithmError: a part of your own algorithm fails.
        CalibrationError, RingTooSmall: its noise cannot meet its budget. The message names settings
            that can, if any were found.
    """

    build = _make_builder(model, federation, features, components, run_id)
    algorithm, stages = plan_or_advise(job, build)
    if is_own_code(job.algorithm.kind):
        check_parts = load_attribute("parley.client.algorithms.own_algorithm:check_parts")
        check_parts(algorithm, get_rounds_stage(stages).plan)
    return algorithm, stages


def check_cost(
    job: Job,
    stages: Sequence[RunStage],
    budgets: Sequence[DatasetBudget],
    model: Any,
    *,
    federation: Federation,
    features: int,
    components: NDArray[float64] | None = None,
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
        describe = load_attribute("parley.server.planning.remedies:describe_affordable_settings")
        said = describe(job, _make_builder(model, federation, features, components, "plan"), error)
        error.args = (f"{error} {said}".strip(),)
        raise


def _make_builder(
    model: Any,
    federation: Federation,
    features: int,
    components: NDArray[float64] | None,
    run_id: str,
) -> Callable[[Job], Planned]:
    def build(tried: Job) -> Planned:
        algorithm = build_algorithm(tried, model, federation)
        stages = build_stages(
            tried,
            algorithm=algorithm,
            federation=federation,
            features=features,
            components=components,
            run_id=run_id,
        )
        return algorithm, stages

    return build


def plan_or_advise(job: Job, build: Callable[[Job], Planned]) -> Planned:
    """Return `build(job)`, or raise its error with settings that work."""
    try:
        return build(job)
    except (CalibrationError, RingTooSmall) as error:
        found = load_attribute("parley.server.planning.remedies:find_usual_remedies")(job, build)
        if found:
            error.args = (f"{error} Use {', or '.join(found)}.",)
        raise
