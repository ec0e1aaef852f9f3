"""The task of federated averaging: its codec, its size, what is refused (see `registry`).

Apart from `federated_averaging`, which needs torch: `parley plan` of a linear model does not. The
seed of a simulation travels with it: a party that accepts no seeded noise refuses such a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, cast

from parley.client.algorithms.kind import LARGEST_MODEL, Party, plain_size
from parley.client.contract.decoding import DecodingError, facts_from, value_from
from parley.client.contract.model_names import public_name
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.privacy.accounting.guarantee import Unit

if TYPE_CHECKING:
    from parley.client.algorithms.federated_averaging import FederatedAveraging

__all__ = ["LARGEST_STEP", "LEAST_STEP", "check", "of_task", "size", "to_task"]

LEAST_STEP, LARGEST_STEP = 2.0**-30, 2.0**30
"""How far one training step may move a model, at the least and the most: rate times clip norm."""

_KEYS = {"kind", "network", "training", "server", "settings"}
_NETWORK_KEYS = {"kind", "features", "classes", "hidden", "precision", "frozen"}


def to_task(algorithm: FederatedAveraging) -> dict[str, Any]:
    """Federated averaging as plain JSON values."""
    network = algorithm.model
    return {
        "network": {
            "kind": public_name(network.kind),
            "features": network.features,
            "classes": network.classes,
            "hidden": list(network.hidden),
            "precision": str(network.dtype).removeprefix("torch."),
            "frozen": network.frozen,
        },
        "training": asdict(algorithm.training),
        "server": asdict(algorithm.server),
        "settings": {
            "unit": str(algorithm.unit),
            "update_bound": algorithm.update_bound,
            "rounds": algorithm.rounds,
            "average": algorithm.average,
            "neighbouring": str(algorithm.neighbouring),
            "seed": algorithm.seed,
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
    from parley.client.models.networks import BUILT_IN, Network, NetworkError  # noqa: PLC0415 - start-up: torch takes a second

    if set(task) != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} in a fedavg task, got others.")
    described = task["network"]
    if not isinstance(described, Mapping) or set(described) != _NETWORK_KEYS:
        raise DecodingError(f"Expected the keys {sorted(_NETWORK_KEYS)} of a network, got others.")
    features = value_from(int, described["features"], "features")
    classes = value_from(int, described["classes"], "classes")
    hidden = value_from(tuple[int, ...], described["hidden"], "hidden")
    if not all(1 <= width <= LARGEST_MODEL for width in (features, classes, *hidden)):
        raise DecodingError(f"Expected sizes of a network from 1 to {LARGEST_MODEL}, got others.")
    kind = value_from(str, described["kind"], "network.kind")
    if kind not in BUILT_IN and kind not in party.own_models:  # naming one would import and run it
        raise DecodingError(
            f"Expected a network of {', '.join(BUILT_IN)}, or an own model that this party allows "
            "by name, got another."
        )
    precision = value_from(Literal["float32", "float64"], described["precision"], "precision")
    try:
        network = Network.build(
            kind if kind in BUILT_IN else party.own_models[kind],
            features=features,
            classes=classes,
            hidden=hidden,
            precision=cast(Literal["float32", "float64"], precision),
            device=party.device,
        )
    except NetworkError as error:
        raise DecodingError(str(error)) from error
    if network.frozen != value_from(str, described["frozen"], "network.frozen"):
        raise DecodingError(
            f"Expected {kind} with the frozen layers of the task, got others: server and parties "
            "need the same file of weights."
        )
    return facts_from(
        FederatedAveraging,
        task["settings"],
        model=network,
        training=facts_from(LocalTraining, task["training"]),
        server=facts_from(ServerStep, task["server"]),
        components=None,
        party=None,
    )


def size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The network, and the sum of its layers' products where it has plain layers."""
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network with hidden layers, got another.")
    name = value_from(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, plain_size(widths, layered=name in {"mlp", "pca-mlp"})


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
