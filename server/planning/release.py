"""From a job to its release plan: sensitivity, grid, ring and noise, before anything is touched.

The noise is calibrated for the *sum* of the encoded contributions: replacing one record moves it
by at most Δ_grid = 2^s·Δ + √d grid units, however many parties survive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.linear import (
    FederatedAlgorithm,
    GradientPerturbation,
    OutputPerturbation,
)
from parley.client.contract.grid import noise_tail
from parley.client.contract.plan import ReleasePlan
from parley.client.models.linear import HuberSVM, LinearModel, Logistic, Loss, Softmax, SquaredLoss
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Neighbouring, NoisePoint, Unit
from parley.privacy.calibration.calibration import calibrate, stated_delta
from parley.privacy.mechanisms.table import Mechanism
from parley.privacy.sampling.samplers import LARGEST_SCALE, SMALLEST_SCALE
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.server.jobs.job import Job, JobError

__all__ = [
    "Federation",
    "account",
    "algorithm_for",
    "averaged",
    "epsilon_by_round",
    "mechanism_for",
    "model_for",
    "plan_release",
]


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The public facts about the parties that a plan needs.

    Attributes:
        parties: m.
        min_records: n₍₁₎.
        total_records: N.
        max_records: largest n_j; with size weights it bounds a contribution.
    """

    parties: int
    min_records: int
    total_records: int
    max_records: int

    @classmethod
    def of_sizes(cls, sizes: NDArray[np.int64], min_records: int | None = None) -> Federation:
        """From every party's number of records and the job's public bound, if it gives one.

        Raises:
            JobError: a party is smaller than `min_records`.
        """
        least = int(sizes.min())
        if min_records is not None and least < min_records:
            party = int(sizes.argmin())
            raise JobError(
                f"Expected every party to hold at least parties.min-records = {min_records} "
                f"records, party {party} holds {least}."
            )
        return cls(
            parties=len(sizes),
            min_records=least if min_records is None else min_records,
            total_records=int(sizes.sum()),
            max_records=int(sizes.max()),
        )


def model_for(job: Job, *, features: int, classes: int) -> LinearModel:
    """The job's model for records of `features` columns (before the intercept) and K classes."""
    settings = job.model
    loss: Loss
    if settings.kind == "softmax":
        loss = Softmax(classes=classes)
    elif settings.kind == "ridge":
        loss = SquaredLoss(radius=settings.radius, label_bound=settings.label_bound)
    elif settings.kind == "huber-svm":
        loss = HuberSVM(width=settings.huber_width)
    else:
        loss = Logistic()
    return LinearModel(kind=loss, features=features + settings.intercept)


def algorithm_for(job: Job, model: Any, federation: Federation | None = None) -> FederatedAlgorithm:
    """The job's algorithm for a model of known dimension (a linear model, or a network).

    Args:
        federation: the parties; federated averaging needs them for its rate and noise.
    """
    if job.algorithm.kind == "fedavg":
        from parley.server.planning.federated_averaging import federated_algorithm

        if federation is None:
            raise JobError("Expected the parties' sizes with fedavg, got none.")
        return federated_algorithm(job, model, federation)
    settings = job.algorithm
    clip = settings.clip_norm
    lipschitz = model.lipschitz if clip == "auto" else min(clip, model.lipschitz)
    lambda_ = job.model.lambda_
    if settings.kind == "output-perturbation":
        if clip != "auto":
            raise JobError(
                "Expected algorithm.clip-norm = 'auto' with output-perturbation (its optimum is "
                f"that of the unclipped loss), got {clip}."
            )
        return OutputPerturbation(
            model=model,
            lambda_=lambda_,
            lipschitz=lipschitz,
            weights=job.parties.weights,
            tolerance=settings.relative_tolerance,
        )
    rate = settings.learning_rate
    return GradientPerturbation(
        model=model,
        lambda_=lambda_,
        lipschitz=lipschitz,
        weights=job.parties.weights,
        rounds=job.rounds,
        learning_rate=1 / (model.smoothness + lambda_) if rate == "auto" else rate,
        momentum=settings.momentum,
        average=settings.average,
    )


def mechanism_for(job: Job, *, sensitivity: float, dimension: int, **changes: str) -> Mechanism:
    """The job's mechanism for a sensitivity, in whatever unit that is given in.

    Raises:
        CalibrationError: no noise of that law gives the budget.
    """
    return calibrate(
        law=changes.get("law", job.noise),
        calibration=changes.get("calibration", job.privacy.calibration),
        epsilon=job.privacy.epsilon,
        delta=job.privacy.delta,
        rounds=job.rounds,
        sensitivity=sensitivity,
        dimension=dimension,
    )


def plan_release(
    job: Job, *, algorithm: FederatedAlgorithm, federation: Federation, run_id: str = "plan"
) -> ReleasePlan:
    """The plan of every round of the job.

    Raises:
        CalibrationError: the noise asked for cannot give the budget.
        RingTooSmall: no grid fits the ring, with the numbers.
    """
    if job.algorithm.kind == "fedavg":
        # Imported here: networks need torch, linear models do not.
        from parley.server.planning.federated_averaging import FederatedAveraging, plan_federated

        if not isinstance(algorithm, FederatedAveraging):
            raise JobError(f"Expected federated averaging, got {type(algorithm).__name__}.")
        return plan_federated(job, algorithm=algorithm, federation=federation, run_id=run_id)
    dimension = algorithm.dimension
    sensitivity = algorithm.sensitivity(
        parties=federation.parties,
        min_records=federation.min_records,
        total_records=federation.total_records,
    )
    if isinstance(algorithm, OutputPerturbation):
        try:
            algorithm.check_certifiable(federation.max_records)
        except ValueError as error:
            raise JobError(str(error)) from error
    else:
        # Sums of n gradients in double precision are off by at most (n + d)·2⁻⁵³·G each (Higham
        # 2002, §4.2), twice between neighbours: n(n + d)·2⁻⁵³ of 2G/n. A local optimum's
        # certificate already covers it.
        largest = federation.max_records
        sensitivity *= 1 + largest * (largest + dimension + 8) * 2.0**-52
    mean_records = federation.total_records / federation.parties
    weight = federation.max_records / mean_records if job.parties.weights == "size" else 1.0

    def on_grid(scale_bits: int) -> Mechanism:
        grid = 2.0**scale_bits * sensitivity + math.sqrt(dimension)
        return mechanism_for(job, sensitivity=grid, dimension=dimension)

    settings = job.secure_aggregation
    encoding = FixedPoint.fit(
        bound=algorithm.bound * weight,
        parties=federation.parties,
        dimension=dimension,
        sensitivity=sensitivity,
        noise_tail=lambda bits: noise_tail(on_grid(bits)),
        max_inflation=settings.max_inflation,
        ring_bits=None if settings.ring_bits == "auto" else settings.ring_bits,
        scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
    )
    mechanism = on_grid(encoding.scale_bits)
    spread = math.sqrt(dimension) if mechanism.law == "l2-laplace" else 1.0
    if not SMALLEST_SCALE <= mechanism.scale * spread <= LARGEST_SCALE:
        raise RingTooSmall(
            f"Expected noise of 2^-20 to 2^40 grid units, got {mechanism.scale * spread:.3g} at "
            f"scale_bits {encoding.scale_bits}: choose another secure-aggregation.scale-bits."
        )
    clip = job.algorithm.clip_norm
    needs_clipping = clip != "auto" and clip < algorithm.model.lipschitz
    output = isinstance(algorithm, OutputPerturbation)
    return ReleasePlan(
        run_id=run_id,
        round_number=1,
        algorithm=job.algorithm.kind,
        dimension=dimension,
        lipschitz=algorithm.lipschitz,
        clip_norm=float(clip) if needs_clipping else None,
        min_records=federation.min_records,
        weights=job.parties.weights,
        mean_records=mean_records,
        lambda_=job.model.lambda_,
        tolerance=job.algorithm.relative_tolerance * algorithm.lipschitz if output else None,
        sensitivity=sensitivity,
        encoding=encoding,
        mechanism=mechanism,
        delta=stated_delta(mechanism.law, job.privacy.delta),
        noise_point=NoisePoint.SERVER,
        unit=Unit(job.privacy.unit),
        neighbouring=Neighbouring(job.privacy.neighbouring),
        min_survivors=job.min_survivors,
        parties=federation.parties,
        calibration=job.privacy.calibration,
        seeded=job.seed is not None,
    )


def epsilon_by_round(plan: ReleasePlan, *, rounds: int) -> list[dict[str, Any]]:
    """ρ and ε after each of `rounds` releases, by every conversion proved for the law."""
    table = []
    spent = Composition.empty()
    for number in range(1, rounds + 1):
        spent = spent.add(plan.event)
        table.append({"round": number, **account(spent, plan.delta)})
    return table


def account(spent: Composition, delta: float) -> dict[str, Any]:
    """What a composition comes to at δ, as a round's line says it."""
    conversion, epsilon = spent.epsilon(delta)
    return {
        "rho": spent.rho,
        "epsilon": spent.epsilons(delta),
        "epsilon_charged": epsilon,
        "conversion": conversion,
        "delta": delta,
    }


def averaged(job: Job, plan: ReleasePlan) -> Mechanism:
    """The run's mechanism in the unit of the average over all parties, the grid's share included.

    For tables and reports; the run itself draws integers with `plan.mechanism`. Noise that is
    added in the parties is stated as it is there.
    """
    if plan.noise_point is NoisePoint.PARTY:
        return plan.mechanism
    grid_units = 2.0**plan.encoding.scale_bits * plan.parties
    return mechanism_for(
        job,
        sensitivity=plan.mechanism.sensitivity / grid_units,
        dimension=plan.dimension,
        law=plan.mechanism.law,
    )
