"""Plan the release after the rounds: noisy counts of the parties' held-out records."""

from __future__ import annotations

from dataclasses import replace

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_histogram import HeldOutCounts
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.threat_model import Neighbouring
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.noise_scale import calibrate_to_budget
from parley.server.planning.release_planner import plan_claim


def build_held_out_counts(
    job: Job, learner: FederatedAlgorithm, federation: Federation
) -> HeldOutCounts:
    """Return what the parties count for a learned model. Raises JobError."""
    if learner.model.classes > 2 and job.evaluation.edges != "auto":
        raise JobError(
            f"Expected evaluation.edges = 'auto' with {learner.model.classes} labels, got "
            f"{job.evaluation.edges}: they are counted by predicted label."
        )
    records = federation.parties * federation.min_records
    return HeldOutCounts(
        learner=learner,
        edges=job.evaluation.choose_edges(records=records),
        neighbouring=Neighbouring(job.privacy.neighbouring),
    )


def plan_evaluation(job: Job, counts: HeldOutCounts, *, parties: int, run_id: str) -> ReleasePlan:
    """Return the plan of the release after the rounds. Raises CalibrationError, RingTooSmall."""
    claim, budget = counts.claim(), replace(job.budgets[0], epsilon=job.evaluation.epsilon)
    return plan_claim(
        job,
        claim,
        algorithm=counts.kind,
        # No party sends its number of held-out records, and nothing depends on it.
        federation=Federation(parties=parties, min_records=1, total_records=parties, max_records=1),
        run_id=run_id,
        round_number=job.rounds + 1,
        noise=calibrate_to_budget(job, replace(claim, releases=1), budget),
    )
