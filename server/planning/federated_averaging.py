"""Federated averaging from a job: rate, steps, noise multiplier, algorithm and release plan.

The budget is shared once: the components of a `pca-mlp`, where they are computed privately, take
`model.pca-share` of μ²; all DP-SGD steps of all rounds take what is left of ε, by PLD.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parley.client.algorithms.federated_averaging import FederatedAveraging, ServerStep
from parley.client.contract.grid import noise_tail
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.client.dp_sgd.training import LocalTraining, largest_noise
from parley.client.dp_sgd.ways import choose_way
from parley.client.models.networks import BUILT_IN, Network
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint, Unit
from parley.privacy.accounting.subsampled import calibrate_steps
from parley.privacy.calibration.calibration import calibrate
from parley.privacy.calibration.gaussian import CalibrationError
from parley.privacy.mechanisms.table import Mechanism
from parley.privacy.sampling.samplers import LARGEST_SCALE, rounded_gaussian_distance
from parley.secure_agg.encoding import FixedPoint
from parley.server.jobs.job import Job, JobError
from parley.server.planning.second_moments import components_mu

if TYPE_CHECKING:
    from parley.server.planning.federation import Federation

__all__ = [
    "FederatedAveraging",
    "federated_algorithm",
    "local_steps",
    "network_for",
    "plan_federated",
    "sampling_rate",
]


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


def local_steps(job: Job, rate: float) -> int:
    """Steps of one round: given, or local-epochs / q."""
    given = job.dp_sgd.local_steps
    return max(1, round(job.dp_sgd.local_epochs / rate)) if given == "auto" else given


def _noise_multiplier(job: Job, rate: float, steps: int, dimension: int) -> float:
    if job.privacy.unit == "party":
        return 0.0
    given = job.dp_sgd.noise_multiplier
    if given != "auto":
        return given
    total = steps * job.rounds
    try:
        return calibrate_steps(
            sampling_rate=rate,
            steps=total,
            epsilon=job.privacy.epsilon,
            delta=job.privacy.delta,
            neighbouring=job.privacy.neighbouring,
            # Twice: the components' own sampler has a distance too.
            slack=2 * rounded_gaussian_distance(dimension * total),
            mu=components_mu(job),
        )
    except ValueError as error:
        raise CalibrationError(str(error)) from error


def network_for(job: Job, *, features: int, classes: int) -> Network:
    """The job's network for rows of `features` columns and K classes, at its public start.

    Raises:
        NetworkError: a model that cannot be built, or whose records cannot be kept apart.
    """
    return Network.build(
        job.model.kind,
        features=features,
        classes=classes,
        hidden=tuple(job.model.hidden) if job.model.kind in BUILT_IN else (),
        precision=job.dp_sgd.precision,
        device=job.run.device,
        seed=job.data.seed,
    )


def federated_algorithm(job: Job, network: Network, federation: Federation) -> FederatedAveraging:
    """The job's federated averaging, its noise calibrated.

    Raises:
        JobError: a batch larger than a party, a model whose records cannot be kept apart, noise
            that is too large to draw.
        CalibrationError: no noise gives the budget.
    """
    settings = job.dp_sgd
    unit = Unit.PARTY if job.privacy.unit == "party" else Unit.RECORD
    rate = sampling_rate(job, federation)
    steps = local_steps(job, rate)
    way = "ghost"
    if unit is Unit.RECORD:
        try:
            way = choose_way(network, wanted=settings.per_example_method)
        except ValueError as error:
            raise JobError(str(error)) from error
    share = settings.clipped_fraction_share
    dimension = network.dimension + (share > 0)
    sigma = _noise_multiplier(job, rate, steps, dimension)
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
    coordinate = _largest_coordinate(training, federation.min_records)
    return FederatedAveraging(
        model=network,
        unit=unit,
        training=training,
        update_bound=coordinate * math.sqrt(dimension)
        if job.privacy.unit == "record"
        else settings.party_clip_norm,
        server=ServerStep(
            kind=settings.server_optimiser,
            learning_rate=settings.server_learning_rate,
            momentum=settings.server_momentum,
        ),
        rounds=job.rounds,
        average=job.algorithm.average,
        neighbouring=Neighbouring(job.privacy.neighbouring),
        seed=job.seed,
        both=job.privacy.unit == "both",
        clipped_reach=_clipped_reach(training, federation.min_records),
    )


def _largest_coordinate(training: LocalTraining, records: int) -> float:
    """A coordinate of an update beyond which it is clamped: out of reach in practice."""
    if training.optimiser == "adam":
        return 10 * training.learning_rate * training.steps
    reach = training.learning_rate / (1 - training.momentum)
    clip = training.clip_norm or 1.0
    noise = training.gradient_multiplier * clip / (training.sampling_rate * records)
    return reach * (training.steps * clip + 12 * math.sqrt(training.steps) * noise)


def _clipped_reach(training: LocalTraining, records: int) -> float:
    """How far from ½ a party's noisy fraction may be: three expected batches, and the noise."""
    if not training.clipped_share:
        return 0.0
    expected = training.sampling_rate * records * training.steps
    return 1.5 + 12 * training.count_deviation / (2 * expected)


def plan_federated(
    job: Job, *, algorithm: FederatedAveraging, federation: Federation, run_id: str
) -> ReleasePlan:
    """The plan of every round of federated averaging.

    Raises:
        CalibrationError: no noise gives the parties' budget (unit party or both).
        RingTooSmall: no grid fits the ring.
    """
    dimension = algorithm.dimension
    budget = job.budget(Unit.PARTY)
    claim = algorithm.claim(federation.facts(job.parties.weights))
    # Replacing all that a party holds: from anywhere in the ball of radius S to anywhere in it.
    of_update = 2 * algorithm.update_bound
    # Where records may be added or removed, sizes are private: the plan knows one public number.
    private = algorithm.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    mean_records = federation.total_records / federation.parties
    if private:
        mean_records = float(federation.min_records)
    weight = federation.max_records / mean_records if job.parties.weights == "size" else 1.0

    def on_grid(scale_bits: int) -> Mechanism:
        if budget is None:
            raise ValueError("Expected a party-level budget, got a job without one.")
        grid = 2.0**scale_bits * of_update + math.sqrt(dimension)
        return calibrate(
            law="gaussian",
            calibration=job.privacy.calibration,
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounds=job.rounds,
            sensitivity=grid,
            dimension=dimension,
            accepted=("gaussian",),
        )

    def tail(scale_bits: int) -> float:
        return 0.0 if budget is None else noise_tail(on_grid(scale_bits))

    settings = job.secure_aggregation
    encoding = FixedPoint.fit(
        bound=claim.bound * weight * (1 + 1e-9),
        parties=federation.parties,
        dimension=dimension,
        sensitivity=claim.covered if claim.grid_length is None else claim.grid_length,
        noise_tail=tail,
        max_inflation=settings.max_inflation,
        ring_bits=None if settings.ring_bits == "auto" else settings.ring_bits,
        scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
    )
    guarantees: list[Guarantee] = []
    if claim.steps is not None:
        guarantees.append(
            Guarantee(
                unit=claim.unit,
                neighbouring=claim.neighbouring,
                sensitivity=claim.covered,
                mechanism=claim.steps,
                noise_point=claim.noise_point,
                against=Adversary.COALITION,
                delta=job.privacy.delta,
                calibration="pld",
                clip_norm=claim.clip_norm,
                charges=(claim.unit,),
            )
        )
    if budget is not None:
        noise = on_grid(encoding.scale_bits)
        of_party = Guarantee(
            unit=Unit.PARTY,
            neighbouring=Neighbouring.REPLACE_ONE,
            sensitivity=of_update,
            mechanism=noise,
            noise_point=NoisePoint.SERVER,
            against=Adversary.ANALYST,
            delta=budget.delta,
            calibration=job.privacy.calibration,
            clip_norm=algorithm.update_bound,
            charges=(Unit.PARTY,),
        )
        if guarantees and _lower_outside(job, inner=guarantees[0].event, outer=noise.event()):
            guarantees = [replace(guarantees[0], charges=())]
            of_party = replace(of_party, charges=(Unit.PARTY, Unit.RECORD))
        guarantees.append(of_party)
    return ReleasePlan(
        run_id=run_id,
        round_number=1,
        algorithm=algorithm.kind,
        dimension=dimension,
        lipschitz=claim.lipschitz,
        min_records=federation.min_records,
        weights=job.parties.weights,
        mean_records=mean_records,
        lambda_=0.0,
        tolerance=None,
        encoding=encoding,
        min_survivors=job.min_survivors,
        parties=federation.parties,
        seeded=job.seed is not None,
        guarantees=tuple(guarantees),
    )


def _lower_outside(job: Job, *, inner: Event, outer: Event) -> bool:
    """Whether the noise on the sum bounds a record's ε lower than DP-SGD does, over all rounds.

    Both bounds are proved for the same releases, the noisy sums, and nothing of a party is shown
    beside them; so the lower one may be charged (privacy.md, section 4). It is chosen once, from
    public figures alone, for every round: one bound's curve is composed, never a mixture.
    Against the server itself only the inner one holds, and a job may ask for that one.
    """
    if job.privacy.record_bound == "inner":
        return False

    def cost(event: Event) -> float:
        spent = Composition.empty().add(event, count=job.rounds)
        return spent.epsilon(job.privacy.delta)[1]

    return cost(outer) < cost(inner)
