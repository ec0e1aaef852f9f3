"""Define the summary of a plan, which `parley plan` prints before any data is read.

Numbers are for the *average* over the parties, in the model's own units and without the grid,
unless a name states otherwise. The grid's share is in `grid.inflation`; the run charges it.
"""

from __future__ import annotations

from pydantic import Field

from parley.server.records.plan_summary_parts import (
    GridSummary,
    NoiseAlternative,
    PlannedDpSgd,
    PlannedEvaluation,
    PlannedSecureSteps,
    PlannedSimulation,
    PlannedSynthetic,
    SizeAlternative,
)
from parley.server.records.summary_base import JobSummary


class PlanSummary(JobSummary):
    """What a job will cost and release.

    Attributes:
        chosen: what a rule chose, and from which public facts, one line each.
        min_records_from: source of that number, in words.
        lipschitz, lambda_, sensitivity: G, λ and Δ₂ of the average; absent if no objective is
            solved under noise on the sum, as are `calibrations`, `noise_laws` and `alternatives`.
        refusal: why a run of this job would be refused; absent if it would not.
    """

    dimension: int
    min_records: int
    min_records_from: str
    chosen: tuple[str, ...] = ()
    lipschitz: float | None = None
    lambda_: float | None = Field(default=None, alias="lambda")
    sensitivity: float | None = None
    dp_sgd: PlannedDpSgd | None = None
    distributed: PlannedSecureSteps | None = None
    simulation: PlannedSimulation | None = None
    synthetic: PlannedSynthetic | None = None
    calibrations: dict[str, NoiseAlternative] | None = None
    noise_laws: dict[str, NoiseAlternative] | None = None
    evaluation: PlannedEvaluation | None = None
    grid: GridSummary
    alternatives: tuple[SizeAlternative, ...] | None = None
    data_note: str | None = None
    refusal: str | None = None
