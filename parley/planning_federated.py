"""What a budget buys in federated averaging, before data are touched: q, σ, steps, ε by round."""

from __future__ import annotations

from typing import Any

from parley.client.contract.plan import ReleasePlan
from parley.client.models.networks import BUILT_IN, Network
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Event, Gaussian
from parley.privacy.accounting.guarantee import Unit
from parley.server.jobs.job import Job
from parley.server.planning.budgets import check_delta
from parley.server.planning.federated_averaging import federated_algorithm
from parley.server.planning.principal_components import model_width
from parley.server.planning.release import Federation, account, averaged
from parley.server.planning.stages import spent_before, stages_of
from parley.server.records.clipped_fraction import fraction_deviation
from parley.server.records.two_units import record_bounds
from parley.simulations.data.outlook import public_shape

__all__ = ["plan_network"]


def plan_network(job: Job) -> dict[str, Any]:
    """The outlook of a job with `algorithm.kind = "fedavg"`; ε includes private components.

    Raises:
        JobError, NetworkError, CalibrationError, RingTooSmall: what is in the way.
    """
    shape = public_shape(job)
    width = model_width(job, shape.features)
    network = Network.build(
        job.model.kind,
        features=width,
        classes=shape.classes or 2,
        hidden=tuple(job.model.hidden) if job.model.kind in BUILT_IN else (),
        precision=job.dp_sgd.precision,
        device="cpu",
    )
    federation = Federation(
        parties=job.parties.count,
        min_records=shape.min_records,
        total_records=shape.min_records * job.parties.count,
        max_records=shape.min_records,
    )
    algorithm = federated_algorithm(job, network, federation)
    stages = stages_of(job, algorithm=algorithm, federation=federation, features=shape.features)
    release = stages[-1].plan
    check_delta(job, release)
    unit = release.primary.unit
    event, before = release.event(unit), spent_before(stages, len(stages) - 1)[unit]
    by_round = [
        {"round": number, **account(before.add(event, count=number), release.primary.delta)}
        for number in range(1, job.rounds + 1)
    ]
    training, chosen = algorithm.training, averaged(job, release)
    record = algorithm.unit is Unit.RECORD
    return {
        "algorithm": job.algorithm.kind,
        "model": job.model.kind,
        "dimension": network.dimension,
        "parties": federation.parties,
        "min_records": federation.min_records,
        "min_records_from": shape.origin,
        "rounds": job.rounds,
        "epsilon": job.privacy.epsilon,
        "delta": release.primary.delta,
        "unit": str(release.primary.unit),
        "neighbouring": str(release.primary.neighbouring),
        "dp_sgd": {
            "sampling_rate": training.sampling_rate,
            "expected_batch": training.sampling_rate * federation.min_records,
            "steps_per_round": training.steps,
            "gradients": training.per_example_method,
            "noise_multiplier": training.noise_multiplier if record else None,
            "gradient_multiplier": training.gradient_multiplier if record else None,
            "clipped_fraction_share": training.clipped_share,
            "clipped_fraction_deviation": fraction_deviation(release, parties=release.parties),
            "clip_norm": training.clip_norm,
            "party_clip_norm": None if job.budget(Unit.PARTY) is None else algorithm.update_bound,
            "components_mu": _mu(stages[0].plan.event(unit)) if len(stages) > 1 else None,
        },
        "chosen": {
            "law": chosen.law,
            "scale": chosen.scale,
            "epsilon_charged": by_round[-1]["epsilon_charged"],
            "conversion": by_round[-1]["conversion"],
            "description": chosen.describe(),
        },
        "grid": {
            "ring_bits": release.encoding.ring_bits,
            "scale_bits": release.encoding.scale_bits,
            "inflation": release.inflation,
        },
        "epsilon_by_round": by_round,
        **_party_level(job, release),
    }


def _mu(event: Event) -> float:
    """μ of the release of components: one Gaussian."""
    return next(leaf.mu for leaf, _ in event.leaves() if isinstance(leaf, Gaussian))


def _party_level(job: Job, release: ReleasePlan) -> dict[str, Any]:
    """The second guarantee's outlook, and both bounds of a record's; empty where there is one."""
    party, budget = release.of(Unit.PARTY), job.budget(Unit.PARTY)
    if party is None or budget is None or party is release.primary:
        return {}
    by_round = [
        {
            "round": number,
            **account(Composition.empty().add(party.event, count=number), budget.delta),
        }
        for number in range(1, job.rounds + 1)
    ]
    # In the model's own units: the grid's share is in the scale.
    scale = party.mechanism.scale / 2.0**release.encoding.scale_bits
    return {
        "party_level": {
            "unit": str(party.unit),
            "neighbouring": str(party.neighbouring),
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "clip_norm": party.clip_norm,
            "law": party.mechanism.law,
            "scale": scale / release.parties,
            "scale_of_sum": scale,
            "description": f"Gaussian noise of standard deviation {scale:.6g} on the sum of the "
            f"parties' updates, each clipped to {party.clip_norm:g}.",
            "epsilon_charged": by_round[-1]["epsilon_charged"],
            "conversion": by_round[-1]["conversion"],
            "epsilon_by_round": by_round,
        },
        "record_bounds": record_bounds(release, rounds=job.rounds),
    }
