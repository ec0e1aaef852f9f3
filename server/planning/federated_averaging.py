"""Federated averaging from a job: rate, steps, noise multiplier, algorithm.

The budget is shared once: the components of a `pca-mlp`, where they are computed privately, take
`model.pca-share` of μ²; all DP-SGD steps of all rounds take what is left of ε, by PLD.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parley.client.algorithms.attendance import EVERYONE, Attendance
from parley.client.algorithms.federated_averaging import FederatedAveraging, ServerStep
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.dp_sgd.training import largest_noise
from parley.client.dp_sgd.ways import choose_way
from parley.client.models.networks import Network
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.server.jobs.algorithm import FederatedAveraging as FederatedAveragingSection
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.scaled_noise import sampled_multiplier
from parley.server.planning.second_moments import components_mu

if TYPE_CHECKING:
    from parley.server.planning.federation import Federation


def sampling_rate(job: Job, federation: Federation) -> float:
    """q, from the job's rate or its expected batch.

    Raises:
        JobError: the batch is larger than the smallest party.
    """
    batch = job.dp_sgd.batch_size
    if batch == "auto":
        return job.dp_sgd.sampling_rate
    if batch > federation.min_records:
        raise JobError(
            f"Expected dp-sgd.batch-size of at most {federation.min_records}, the records of the "
            f"smallest party, got {batch}."
        )
    return batch / federation.min_records


def attendance_of(job: Job) -> Attendance:
    """Which parties are in a round's sum."""
    asked, parties = job.parties.per_round, job.parties
    if isinstance(asked, int):
        return Attendance(number=asked, parties=parties.count, hidden=False)
    return EVERYONE if asked == "all" else Attendance(rate=asked, hidden=parties.hidden)


def local_steps(job: Job, rate: float) -> int:
    """Steps of one round: given, or local-epochs / q."""
    given = job.dp_sgd.local_steps
    return max(1, round(job.dp_sgd.local_epochs / rate)) if given == "auto" else given


def noise_multiplier(
    job: Job, rate: float, steps: int, dimension: int, *, together: int = 1
) -> float:
    """σ of a record's steps: given, or the least that all rounds' `steps` are within ε with.

    Args:
        together: steps that one coin of a party decides on, where parties are sampled.

    Raises:
        CalibrationError: no noise gives the budget.
    """
    if Unit.RECORD not in job.privacy.units:
        return 0.0
    given = job.dp_sgd.noise_multiplier
    if given != "auto":
        return given
    return sampled_multiplier(
        job,
        rate=rate,
        steps=steps * job.rounds,
        budget=job.privacy.budgets[0],
        dimension=dimension,
        neighbouring=Neighbouring(job.privacy.neighbouring),
        mu=components_mu(job),
        probability=attendance_of(job).rate,
        together=together,
    )


def network_for(job: Job, *, features: int, classes: int) -> Network:
    """The job's network for rows of `features` columns and K classes, at its public start.

    Raises:
        NetworkError: a model that cannot be built, or whose records cannot be kept apart.
    """
    return Network.build(
        job.model.kind,
        features=features,
        classes=classes,
        hidden=job.model.widths,
        class_weights=job.model.weights_of_classes,
        precision=job.dp_sgd.precision,
        device=job.run.device,
        seed=job.data.seed,
    )


def way_for(job: Job, network: Network) -> str:
    """How a record's gradient is clipped; any will do where none is.

    Raises:
        JobError: a model whose records cannot be kept apart.
    """
    if Unit.RECORD not in job.privacy.units:
        return "ghost"
    try:
        return choose_way(network, wanted=job.dp_sgd.per_example_method)
    except ValueError as error:
        raise JobError(str(error)) from error


def federated_algorithm(
    job: Job, rounds: FederatedAveragingSection, network: Network, federation: Federation
) -> FederatedAveraging:
    """The job's federated averaging, its noise calibrated.

    Raises:
        JobError: a batch larger than a party, a model whose records cannot be kept apart, noise
            that is too large to draw.
        CalibrationError: no noise gives the budget.
    """
    if network.draws:
        raise JobError(
            "Expected algorithm.kind = 'distributed-dp-sgd' with a model whose loss draws, got "
            f"'{rounds.kind}'."
        )
    settings, asked = job.dp_sgd, job.privacy.units
    unit = asked[0]
    rate = sampling_rate(job, federation)
    steps = local_steps(job, rate)
    way = way_for(job, network)
    share = settings.clipped_fraction_share
    dimension = network.dimension + (share > 0)
    sigma = noise_multiplier(job, rate, steps, dimension, together=steps)
    training = LocalTraining(
        steps=steps,
        sampling_rate=rate,
        clip_norm=settings.clip_norm if unit is Unit.RECORD else None,
        noise_multiplier=sigma,
        optimiser=settings.optimiser,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        per_example_method=way,
        micro_batch=settings.micro_batch,
        clipped_share=share,
    )
    if largest_noise(training, network.dimension) > LARGEST_SCALE:
        raise JobError(
            f"Expected noise of at most 2^40 grid units, got more: dp-sgd.noise-multiplier is "
            f"{sigma:g}, dp-sgd.clipped-fraction-share {share:g}."
        )
    coordinate = training.reach(federation.min_records)
    return FederatedAveraging(
        model=network,
        unit=unit,
        training=training,
        update_bound=coordinate * math.sqrt(dimension)
        if asked == (Unit.RECORD,)
        else settings.party_clip_norm,
        server=ServerStep(
            kind=settings.server_optimiser,
            learning_rate=settings.server_learning_rate,
            momentum=settings.server_momentum,
        ),
        rounds=job.rounds,
        average=rounds.average,
        neighbouring=Neighbouring(job.privacy.neighbouring),
        both=len(asked) > 1,
        attendance=attendance_of(job),
        clipped_reach=_clipped_reach(training, federation.min_records),
    )


def _clipped_reach(training: LocalTraining, records: int) -> float:
    """How far from ½ a party's noisy fraction may be: three expected batches, and the noise."""
    if not training.clipped_share:
        return 0.0
    expected = training.sampling_rate * records * training.steps
    return 1.5 + 12 * training.count_deviation / (2 * expected)
