"""The task of federated averaging: its codec, and what is refused (see `registry`).

Apart from `federated_averaging`, which needs torch: `parley plan` of a linear model does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parley.client.algorithms.kind import Party
from parley.client.algorithms.network_task import described, network_from
from parley.client.contract.decoding import DecodingError, facts_from
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.privacy.accounting.guarantee import Unit

if TYPE_CHECKING:
    from parley.client.algorithms.federated_averaging import FederatedAveraging

__all__ = ["LARGEST_STEP", "LEAST_STEP", "check", "of_task", "to_task"]

LEAST_STEP, LARGEST_STEP = 2.0**-30, 2.0**30
"""How far one training step may move a model, at the least and the most: rate times clip norm."""

_KEYS = {"kind", "network", "training", "server", "settings"}


def to_task(algorithm: FederatedAveraging) -> dict[str, Any]:
    """Federated averaging as plain JSON values."""
    return {
        "network": described(algorithm.model),
        "training": asdict(algorithm.training),
        "server": asdict(algorithm.server),
        "settings": {
            "unit": str(algorithm.unit),
            "update_bound": algorithm.update_bound,
            "rounds": algorithm.rounds,
            "average": algorithm.average,
            "neighbouring": str(algorithm.neighbouring),
            "both": algorithm.both,
            "clipped_reach": algorithm.clipped_reach,
        },
    }


def of_task(task: Mapping[str, Any], party: Party) -> FederatedAveraging:
    """The inverse of `to_task`.

    Raises:
        DecodingError: not such a description, or a network that cannot be built here.
    """
    from parley.client.algorithms.federated_averaging import FederatedAveraging, ServerStep  # noqa: PLC0415 - start-up: torch takes a second
    from parley.client.dp_sgd.training import LocalTraining  # noqa: PLC0415 - start-up: torch takes a second

    if set(task) != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} in a fedavg task, got others.")
    return facts_from(
        FederatedAveraging,
        task["settings"],
        model=network_from(task["network"], party),
        training=facts_from(LocalTraining, task["training"]),
        server=facts_from(ServerStep, task["server"]),
        components=None,
    )


def check(algorithm: FederatedAveraging, plan: ReleasePlan) -> None:
    """Refuses training that moves nothing, and a way of clipping that clips something else.

    Raises:
        Declined: algorithm or degenerate.
    """
    from parley.client.dp_sgd.ways import WayError, check_way  # noqa: PLC0415 - start-up: torch takes a second

    training = algorithm.training
    if algorithm.unit is Unit.RECORD:
        try:
            # A way that does not fit the network clips something else than this party's records.
            check_way(algorithm.model, training.per_example_method)
        except WayError as error:
            raise Declined(Reason.ALGORITHM, f"{training.per_example_method}: {error}") from error
    step = training.learning_rate
    if training.optimiser == "sgd" and training.clip_norm is not None:
        step *= training.clip_norm
    # With noise inside the party an empty batch is noise; without, it is zero, and the sum would
    # be that of the few who drew a record.
    drawn = training.sampling_rate * plan.min_records * training.steps
    for expected, got, holds in (
        (f"steps of {LEAST_STEP:g} to {LARGEST_STEP:g}", step, LEAST_STEP <= step <= LARGEST_STEP),
        ("momentum in [0, 1)", training.momentum, 0 <= training.momentum < 1),
        (
            "at least one record drawn in a round",
            drawn,
            algorithm.unit is not Unit.PARTY or drawn >= 1,
        ),
    ):
        if not holds:
            raise Declined(Reason.DEGENERATE, f"Expected {expected}, got {got:g}.")
