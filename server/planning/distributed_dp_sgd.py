"""Distributed DP-SGD from a job: rate, steps, noise on the sums, algorithm.

A round is a release of L steps, each a secure sum. All T = L·rounds steps of a run share ε, by PLD
for a record; for a party they are T Gaussians of sensitivity 2S. With both units there is one
noise, the larger of the two that they need, and an account for each
(`parley.server.planning.scaled_noise`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD
from parley.client.dp_sgd.layout import padded_width
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.server.jobs.algorithm import DistributedDPSGD as DistributedSection
from parley.server.jobs.job import Job
from parley.server.planning.federated_averaging import (
    attendance_of,
    local_steps,
    noise_multiplier,
    sampling_rate,
    way_for,
)

if TYPE_CHECKING:
    from parley.server.planning.federation import Federation


def distributed_algorithm(
    job: Job, rounds: DistributedSection, network: Network, federation: Federation
) -> DistributedDPSGD:
    """The job's distributed DP-SGD.

    Raises:
        JobError: a batch larger than a party, a model whose records cannot be kept apart.
        CalibrationError: no noise gives the budget.
    """
    settings, unit = job.dp_sgd, job.privacy.units[0]
    rate = sampling_rate(job, federation)
    relation = Neighbouring(job.privacy.neighbouring)
    private = job.privacy.private_sizes  # then N is a public number, as n₍₁₎·m is
    records = federation.min_records if private else federation.max_records
    total = federation.min_records * federation.parties if private else federation.total_records
    steps = local_steps(job, rate)
    training = LocalTraining(
        steps=steps,
        sampling_rate=rate,
        clip_norm=settings.clip_norm if unit is Unit.RECORD else None,
        noise_multiplier=noise_multiplier(job, rate, steps, network.dimension),
        optimiser=settings.optimiser,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        per_example_method=way_for(job, network),
        micro_batch=settings.micro_batch,
    )
    party_norm = settings.party_clip_norm if Unit.PARTY in job.privacy.units else None
    # No batch that is worked on whole without notice has a longer sum; a longer one is clamped.
    longest = (training.clip_norm or 0.0) * padded_width(records, rate)
    attendance = attendance_of(job)
    return DistributedDPSGD(
        model=network,
        unit=unit,
        training=training,
        bound=longest if party_norm is None else party_norm,
        party_norm=party_norm,
        expected_batch=rate * total * attendance.fraction,
        rounds=job.rounds,
        average=rounds.average,
        neighbouring=relation,
        pad=settings.pad_batches,
        attendance=attendance,
    )
