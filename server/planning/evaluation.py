"""The release after the rounds: right and wrong answers on the parties' held-out records.

It is charged to the data's own budget, beside the rounds: what is printed for the run composes
both, which bounds a record's ε whether it is learned from, held out, or (by mistake) both.
"""

from __future__ import annotations

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.calibration.calibration import calibrate
from parley.privacy.mechanisms.base import Mechanism
from parley.server.jobs.federation import Federation
from parley.server.jobs.job import Job
from parley.server.planning.claimed import plan_claim
from parley.server.planning.scaled_noise import Noise
from parley.server.planning.shared import cost_of


def counts_of(job: Job, learner: FederatedAlgorithm) -> HeldOutCounts:
    """What the parties count of a learned model."""
    return HeldOutCounts(
        learner=learner,
        by_class=job.evaluation.by_class,
        neighbouring=Neighbouring(job.privacy.neighbouring),
    )


def evaluation_plan(
    job: Job, learner: FederatedAlgorithm, *, parties: int, run_id: str
) -> ReleasePlan:
    """The plan of the release after the rounds. Raises CalibrationError, RingTooSmall."""
    counts = counts_of(job, learner)
    claim = counts.claim()

    def noise(sensitivity: float) -> Mechanism:
        return calibrate(
            law=job.noise,
            calibration=job.privacy.calibration,
            epsilon=job.evaluation.epsilon,
            delta=job.privacy.delta,
            rounds=1,
            sensitivity=sensitivity,
            dimension=counts.dimension,
            accepted=job.laws,
            cost=cost_of(job),
        )

    return plan_claim(
        job,
        claim,
        algorithm=counts.kind,
        # How many records a party holds out is not sent, and nothing depends on it.
        federation=Federation(parties=parties, min_records=1, total_records=parties, max_records=1),
        run_id=run_id,
        round_number=job.rounds + 1,
        noise=Noise(calibration=job.privacy.calibration, of=noise, delta=job.privacy.delta),
    )
