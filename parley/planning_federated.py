"""What a budget buys in federated averaging, before data are touched: q, σ, steps, ε by round."""

from __future__ import annotations

from typing import Any

from client.networks import BUILT_IN, Network
from privacy.events import Composition
from privacy.guarantee import Unit
from server.federated import federated_algorithm
from server.job import Job
from server.release import Federation, account, averaged, plan_release
from simulations.components import components_event
from simulations.outlook import public_shape

__all__ = ["plan_network"]


def plan_network(job: Job) -> dict[str, Any]:
    """The outlook of a job with `algorithm.kind = "fedavg"`; ε includes private components.

    Raises:
        JobError, NetworkError, CalibrationError, RingTooSmall: what is in the way.
    """
    shape = public_shape(job)
    width = job.model.components if job.model.kind == "pca-mlp" else shape.features
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
    release = plan_release(job, algorithm=algorithm, federation=federation)
    before = Composition.empty()
    components = components_event(job, shape.features)
    if components is not None:
        before = before.add(components)
    by_round = [
        {"round": number, **account(before.add(release.event, count=number), release.delta)}
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
        "delta": release.delta,
        "unit": str(release.unit),
        "neighbouring": str(release.neighbouring),
        "dp_sgd": {
            "sampling_rate": training.sampling_rate,
            "expected_batch": training.sampling_rate * federation.min_records,
            "steps_per_round": training.steps,
            "gradients": training.way,
            "noise_multiplier": training.noise_multiplier if record else None,
            "clip_norm": training.clip_norm,
            "party_clip_norm": None if record else algorithm.update_bound,
            "components_mu": None if components is None else components.mu,
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
    }
