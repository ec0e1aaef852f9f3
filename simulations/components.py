"""Principal components of all parties' records by one private release, before the first round.

Release 0: the noisy sum of second moments M = Σ x xᵀ over all records, as in Dwork, Talwar,
Thakurta & Zhang 2014 ("Analyze Gauss"), through the same secure sum as every other release. With
‖x‖ ≤ 1, ‖xxᵀ − x′x′ᵀ‖_F ≤ √2 when a record is replaced and ‖xxᵀ‖_F ≤ 1 when one is added or
removed. A party sends the upper triangle, off-diagonal entries times √2, whose L2 norm is the
Frobenius norm. The components are post-processing of the noisy M; they travel in the run's state.
Parties that drop out or decline are missing from M, which is noisier for it, never less private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.federated import FederatedAveraging
from client.plan import ACCOUNTANT_VERSION, ReleasePlan
from privacy.events import Event
from privacy.guarantee import Neighbouring
from privacy.ledger import Entry, Ledger
from privacy.mechanisms import Gaussian
from privacy.rounding import quotient_up
from privacy.stream import NoiseStream
from secure_agg.encoding import FixedPoint
from secure_agg.interface import DropStage, SecureSum, SumResult, TooFewSurvivors
from server.federated import components_mu
from server.job import Job
from server.rounds import ATTEMPTS, load_state, save_state
from simulations.faults import FaultScript
from simulations.network_experiment import NetworkExperiment, leading, project

__all__ = ["components_event", "with_private_components"]

_SCALE_BITS = 20


def _mechanism(job: Job, features: int) -> Gaussian:
    """The noise on the triangle, in grid units."""
    dimension = features * (features + 1) // 2
    relation = Neighbouring(job.privacy.neighbouring)
    sensitivity = 1.0 if relation is Neighbouring.ADD_OR_REMOVE_ONE else math.sqrt(2)
    grid = 2.0**_SCALE_BITS * sensitivity + math.sqrt(dimension)
    # Rounded so that Δ/σ is not above the μ that the steps' noise was calibrated beside.
    sigma = quotient_up(grid, components_mu(job) * (1 - 1e-12))
    return Gaussian(sensitivity=grid, sigma=sigma, dimension=dimension)


def components_event(job: Job, features: int) -> Event | None:
    """What the release charges; None where the job has none."""
    return _mechanism(job, features).event() if components_mu(job) else None


def with_private_components(
    job: Job,
    *,
    experiment: NetworkExperiment,
    algorithm: FederatedAveraging,
    plan: ReleasePlan,
    dataset: str,
    ledger: Ledger,
    secure_sum: Callable[[int], SecureSum],
    faults: FaultScript,
) -> tuple[NetworkExperiment, FederatedAveraging, dict[str, Any]]:
    """Makes the release, or takes up the one that was made, and projects the rows.

    Args:
        secure_sum: ring bits → the sum that contributions go through.
        faults: who drops out or declines; this release is their round 0.

    Returns:
        Experiment and algorithm with the components; parties and traffic of the release.

    Raises:
        BudgetExceeded: the ledger refuses it; nothing was released.
        TooFewSurvivors: too few parties bore it, in every attempt; nothing was opened, and the
            charge is given back.
    """
    stored = ledger.checkpoint(plan.run_id)
    if stored is None:
        entry, mechanism = _entry(job, experiment, plan, dataset)
        reservation = ledger.reserve(entry)
        try:
            moments, told = _noisy_moments(experiment, algorithm, mechanism, secure_sum, faults)
        except TooFewSurvivors as error:
            ledger.void(reservation.id, str(error))
            raise
        components = leading(moments, job.model.components)
        ledger.commit(
            reservation.id,
            outcome={**told, "components": job.model.components},
            checkpoint=save_state(replace(algorithm, components=components).init()),
        )
    else:
        components = load_state(stored.data)["components"]
        outcomes = (each.outcome for each in ledger.entries(plan.run_id) if each.entry.index == 0)
        told = dict(next((outcome for outcome in outcomes if outcome is not None), {}))
    return project(experiment, components), replace(algorithm, components=components), told


def _entry(
    job: Job, experiment: NetworkExperiment, plan: ReleasePlan, dataset: str
) -> tuple[Entry, Gaussian]:
    mechanism = _mechanism(job, experiment.block.features.shape[1])
    entry = Entry(
        run_id=plan.run_id,
        dataset=dataset,
        party="server",
        index=0,
        event=mechanism.event(),
        facts={
            "mechanism": "second moments of the records (principal components)",
            "unit": str(plan.unit),
            "neighbouring": str(plan.neighbouring),
            "norm": "L2",
            "sensitivity": 1.0
            if plan.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
            else math.sqrt(2),
            "noise_law": mechanism.law,
            "noise_parameter": mechanism.scale / 2.0**_SCALE_BITS,
            "accountant": "privacy.events",
            "accountant_version": ACCOUNTANT_VERSION,
            "noise_point": "server",
            "seeded": plan.seeded,
            "dimension": mechanism.dimension,
            "parties": plan.parties,
            "grid_scale": 2.0**_SCALE_BITS,
            "honest_threshold": plan.min_survivors,
        },
    )
    return entry, mechanism


def _noisy_moments(
    experiment: NetworkExperiment,
    algorithm: FederatedAveraging,
    mechanism: Gaussian,
    secure_sum: Callable[[int], SecureSum],
    faults: FaultScript,
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """`[p, p]` the survivors' second moments with noise, and what the release says of parties."""
    block = experiment.block
    features = block.features.shape[1]
    encoding = FixedPoint(
        scale_bits=_SCALE_BITS,
        ring_bits=64,
        bound=float(experiment.federation.max_records) * (1 + 1e-9),
    )
    encoding.check_capacity(block.parties, mechanism.noise_tail(2.0**-50) + 0.5)
    triangle = np.triu_indices(features)
    weights = np.where(triangle[0] == triangle[1], 1.0, math.sqrt(2))
    encoded = np.empty((block.parties, mechanism.dimension), dtype=encoding.dtype)
    for party in range(block.parties):
        rows = block.features[block.offsets[party] : block.offsets[party + 1]].astype(np.float64)
        moments = (rows.T @ rows)[triangle] * weights
        encoded[party] = encoding.encode(moments[None])[0]
    result, told = _summed(encoded, secure_sum(encoding.ring_bits), faults)
    seed = algorithm.seed
    stream = (
        NoiseStream.from_entropy()
        if seed is None
        else NoiseStream.from_seed(seed, "components-noise")
    )
    noisy = encoding.to_float(encoding.decode(result.total) + mechanism.draw(stream)) / weights
    whole = np.zeros((features, features))
    whole[triangle] = noisy
    return whole + np.triu(whole, 1).T, told


def _summed(
    encoded: NDArray[Any], summed: SecureSum, faults: FaultScript
) -> tuple[SumResult, dict[str, Any]]:
    """The sum under the script's round 0, asked for as often as a round's."""
    parties = len(encoded)
    for attempt in range(ATTEMPTS):
        lost = faults.at(round_number=0, attempt=attempt, parties=parties)
        # Who declines sends nothing; its row is not read.
        absent = dict.fromkeys(lost.declined.tolist(), DropStage.BEFORE_VECTOR)
        try:
            # A secure sum of its own, with keys of its own: no attempt's number comes twice.
            result = summed.sum(encoded, round_number=attempt + 1, dropped=absent | lost.dropped)
        except TooFewSurvivors as error:
            if attempt < ATTEMPTS - 1:
                continue
            raise TooFewSurvivors(f"The principal components' release: {error}") from error
        told = {
            "survivors": len(result.survivors),
            "parties": {
                "asked": parties,
                "answered": parties - len(absent) - len(lost.dropped),
                "declined": len(absent),
                "dropped": len(lost.dropped),
                "summed": len(result.survivors),
            },
            "bytes_up": result.bytes_up,
            "bytes_down": result.bytes_down,
            "stages": result.stages,
        }
        return result, told
    raise AssertionError("unreachable: the last attempt returns or raises")
