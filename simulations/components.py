"""Principal components of all parties' records by one private release, before the first round.

Release 0: the noisy sum of second moments M = Σ x xᵀ over all records, as in Dwork, Talwar,
Thakurta & Zhang 2014 ("Analyze Gauss"), through the same secure sum as every other release. With
‖x‖ ≤ 1, ‖xxᵀ − x′x′ᵀ‖_F ≤ √2 when a record is replaced and ‖xxᵀ‖_F ≤ 1 when one is added or
removed. A party sends the upper triangle, off-diagonal entries times √2, whose L2 norm is the
Frobenius norm. The components are post-processing of the noisy M; they travel in the run's state.
"""

from __future__ import annotations

import math
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
from secure_agg.interface import SecureSum
from server.federated import components_mu
from server.job import Job
from server.rounds import load_state, save_state
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
    secure_sum: Any,
) -> tuple[NetworkExperiment, FederatedAveraging]:
    """Makes the release, or takes up the one that was made, and projects the rows.

    Args:
        secure_sum: ring bits → the sum that contributions go through.

    Raises:
        BudgetExceeded: the ledger refuses it; nothing was released.
    """
    stored = ledger.checkpoint(plan.run_id)
    if stored is not None:
        components = load_state(stored.data)["components"]
    else:
        components = _release(job, experiment, algorithm, plan, dataset, ledger, secure_sum)
    return project(experiment, components), replace(algorithm, components=components)


def _release(
    job: Job,
    experiment: NetworkExperiment,
    algorithm: FederatedAveraging,
    plan: ReleasePlan,
    dataset: str,
    ledger: Ledger,
    secure_sum: Any,
) -> NDArray[np.float64]:
    block = experiment.block
    features = block.features.shape[1]
    mechanism = _mechanism(job, features)
    encoding = FixedPoint(
        scale_bits=_SCALE_BITS,
        ring_bits=64,
        bound=float(experiment.federation.max_records) * (1 + 1e-9),
    )
    encoding.check_capacity(block.parties, mechanism.noise_tail(2.0**-50) + 0.5)
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
    reservation = ledger.reserve(entry)
    triangle = np.triu_indices(features)
    weights = np.where(triangle[0] == triangle[1], 1.0, math.sqrt(2))
    encoded = np.empty((block.parties, mechanism.dimension), dtype=encoding.dtype)
    for party in range(block.parties):
        rows = block.features[block.offsets[party] : block.offsets[party + 1]].astype(np.float64)
        moments = (rows.T @ rows)[triangle] * weights
        encoded[party] = encoding.encode(moments[None])[0]
    summed: SecureSum = secure_sum(encoding.ring_bits)
    # A secure sum of its own, with keys of its own, asked once.
    result = summed.sum(encoded, round_number=1, dropped={})
    seed = algorithm.seed
    stream = (
        NoiseStream.from_entropy()
        if seed is None
        else NoiseStream.from_seed(seed, "components-noise")
    )
    noisy = encoding.to_float(encoding.decode(result.total) + mechanism.draw(stream)) / weights
    whole = np.zeros((features, features))
    whole[triangle] = noisy
    whole = whole + np.triu(whole, 1).T
    components = leading(whole, job.model.components)
    state = replace(algorithm, components=components).init()
    ledger.commit(
        reservation.id,
        outcome={"survivors": len(result.survivors), "components": job.model.components},
        checkpoint=save_state(state),
    )
    return components
