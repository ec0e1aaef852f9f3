"""The task of distributed DP-SGD: its codec (see `registry`); what is refused is as in `fedavg`.

The server's optimiser travels with it: nothing of a party's depends on it, but a party can read
what its sums are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parley.client.algorithms.kind import Party
from parley.client.algorithms.network_task import described, network_from
from parley.client.contract.decoding import DecodingError, facts_from

if TYPE_CHECKING:
    from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD

__all__ = ["of_task", "to_task"]

_KEYS = {"kind", "network", "training", "settings"}


def to_task(algorithm: DistributedDPSGD) -> dict[str, Any]:
    """Distributed DP-SGD as plain JSON values."""
    return {
        "network": described(algorithm.model),
        "training": asdict(algorithm.training),
        "settings": {
            "unit": str(algorithm.unit),
            "bound": algorithm.bound,
            "party_norm": algorithm.party_norm,
            "expected_batch": algorithm.expected_batch,
            "rounds": algorithm.rounds,
            "average": algorithm.average,
            "neighbouring": str(algorithm.neighbouring),
            "pad": algorithm.pad,
        },
    }


def of_task(task: Mapping[str, Any], party: Party) -> DistributedDPSGD:
    """The inverse of `to_task`.

    Raises:
        DecodingError: not such a description, or a network that cannot be built here.
    """
    from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD  # noqa: PLC0415 - start-up: torch takes a second
    from parley.client.dp_sgd.training import LocalTraining  # noqa: PLC0415 - start-up: torch takes a second

    if set(task) != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} in such a task, got others.")
    return facts_from(
        DistributedDPSGD,
        task["settings"],
        model=network_from(task["network"], party),
        training=facts_from(LocalTraining, task["training"]),
        components=None,
    )
