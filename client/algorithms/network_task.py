"""The task of an algorithm that trains a network: its codec, its size, what is refused.

Apart from the algorithms themselves, which need torch: `parley plan` of a linear model does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from parley.client.algorithms.attendance import Attendance
from parley.client.algorithms.kind import Kind, Party, plain_size, settings_of
from parley.client.contract.decoding import DecodingError, as_came, facts_from, value_from
from parley.client.contract.plain_names import public_name
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.described import LARGEST_MODEL
from parley.privacy.accounting.guarantee import Unit

if TYPE_CHECKING:
    from parley.client.models.networks import Network

LEAST_STEP, LARGEST_STEP = 2.0**-30, 2.0**30
"""How far one training step may move a model, at the least and the most: rate times clip norm."""

_KEYS = {"kind", "features", "classes", "hidden", "precision", "frozen"}

Parts = Mapping[str, type[Any]]


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """What a task's name of a network says before torch is loaded.

    Attributes:
        layered: it has plain layers alone, whose sizes say how many parameters it has.
    """

    layered: bool = False
    projected: bool = False


NETWORKS: dict[str, NetworkShape] = {
    "mlp": NetworkShape(layered=True),
    "pca-mlp": NetworkShape(layered=True, projected=True),
    "cnn": NetworkShape(),
}
"""Parley's own networks; of another's code nothing is known."""


def network_of(task: Mapping[str, Any]) -> NetworkShape:
    """What is known of the network that a task names; nothing where it names none."""
    network = task.get("network")
    kind = network.get("kind") if isinstance(network, Mapping) else None
    return NETWORKS.get(kind, NetworkShape()) if isinstance(kind, str) else NetworkShape()


def network_kind(load: Callable[[], tuple[type[Any], Parts]], title: str, **more: Any) -> Kind:
    """The row of an algorithm.

    Args:
        load: gives the algorithm's class, and the classes of the fields that are sections of the
            task; it imports torch.
    """
    return Kind(
        title=title,
        to_task=partial(_to_task, load),
        of_task=partial(_of_task, load),
        size=_size,
        check=_check,
        trains=True,
        **more,
    )


def _to_task(load: Callable[[], tuple[type[Any], Parts]], algorithm: Any) -> dict[str, Any]:
    parts = load()[1]
    sections = {name: asdict(getattr(algorithm, name)) for name in parts}
    settings = settings_of(algorithm, "model", "components", *parts)  # those travel beside the task
    return {"network": _described(algorithm.model), **sections, "settings": settings}


def _of_task(
    load: Callable[[], tuple[type[Any], Parts]], task: Mapping[str, Any], party: Party
) -> Any:
    """The inverse of `_to_task`; raises DecodingError also where it cannot be built here."""
    kind, parts = load()
    keys = {"kind", "network", "settings", *parts}
    if set(task) != keys:
        raise DecodingError(f"Expected the keys {sorted(keys)} in such a task, got others.")
    return facts_from(
        kind,
        task["settings"],
        model=_network_from(task["network"], party),
        components=None,
        **{name: facts_from(part, task[name]) for name, part in parts.items()},
    )


def _size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The network, and the sum of its layers' products where it has plain layers."""
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network and its hidden layers, got none.")
    name = value_from(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, plain_size(widths, layered=network_of(task).layered)


def _check(algorithm: Any, plan: ReleasePlan) -> None:
    """Refuses training that moves nothing, and a way of clipping that its network refuses."""
    from parley.client.dp_sgd.clipping import WayError, check_way  # noqa: PLC0415 - start-up: `plan` and `predict` of a linear model load no torch (1.4 s)

    training = algorithm.training
    if algorithm.unit is Unit.RECORD:
        try:
            # One that does not fit the network clips something else than a party's records.
            check_way(algorithm.model, training.per_example_method)
        except WayError as error:
            raise Declined(Reason.ALGORITHM, f"{training.per_example_method}: {error}") from error
    step = training.longest_step
    if not LEAST_STEP <= step <= LARGEST_STEP:
        raise _degenerate(f"steps of {LEAST_STEP:g} to {LARGEST_STEP:g}", step)
    if not 0 <= training.momentum < 1:
        raise _degenerate("momentum in [0, 1)", training.momentum)
    # With noise inside the party an empty batch is noise; without, it is zero, and the sum would
    # be that of the few who drew a record.
    drawn = training.sampling_rate * plan.min_records * training.steps
    if algorithm.unit is Unit.PARTY and not drawn >= 1:
        raise _degenerate("at least one record drawn in a round", drawn)


def _degenerate(expected: str, got: float) -> Declined:
    return Declined(Reason.DEGENERATE, f"Expected {expected}, got {got:g}.")


def _described(network: Network) -> dict[str, Any]:
    weights = network.losses.weights
    return {
        "kind": public_name(network.kind),
        "features": network.features,
        "classes": network.classes,
        "hidden": list(network.hidden),
        "precision": str(network.dtype).removeprefix("torch."),
        "frozen": network.frozen,
        **({"class_weights": list(weights)} if weights else {}),
    }


def _network_from(value: Any, party: Party) -> Network:
    """The inverse of `_described`."""
    from parley.client.models.layers import BUILT_IN, NetworkError  # noqa: PLC0415 - start-up: `plan` and `predict` of a linear model load no torch (1.4 s)
    from parley.client.models.networks import Network  # noqa: PLC0415 - start-up: `plan` and `predict` of a linear model load no torch (1.4 s)

    if not isinstance(value, Mapping) or set(value) - {"class_weights"} != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} of a network, got others.")
    features = value_from(int, value["features"], "features")
    classes = value_from(int, value["classes"], "classes")
    weights = value_from(tuple[float, ...], value.get("class_weights", []), "class_weights")
    if "class_weights" in value and not weights:  # one way to say none
        raise DecodingError("Expected class weights or no such key, got an empty list.")
    hidden = value_from(tuple[int, ...], value["hidden"], "hidden")
    if not all(1 <= width <= LARGEST_MODEL for width in (features, classes, *hidden)):
        raise DecodingError(f"Expected sizes of a network from 1 to {LARGEST_MODEL}, got others.")
    kind = value_from(str, value["kind"], "network.kind")
    if kind not in BUILT_IN and kind not in party.own_models:  # naming one would import and run it
        raise DecodingError(
            f"Expected a network of {', '.join(BUILT_IN)}, or an own model that this party allows "
            f"by name, got {as_came(kind)}."
        )
    precision = value_from(Literal["float32", "float64"], value["precision"], "precision")
    try:
        network = Network.build(
            kind if kind in BUILT_IN else party.own_models[kind],
            features=features,
            classes=classes,
            hidden=hidden,
            class_weights=weights,
            precision=cast(Literal["float32", "float64"], precision),
            device=party.device,
        )
    except NetworkError as error:
        raise DecodingError(str(error)) from error
    if network.frozen != value_from(str, value["frozen"], "network.frozen"):
        raise DecodingError(
            f"Expected {kind} with the frozen layers of the task, got others: server and parties "
            "need the same file of weights."
        )
    return network


def averaging() -> tuple[type[Any], Parts]:
    """Federated averaging and its parts."""
    from parley.client.algorithms.federated_averaging import FederatedAveraging, ServerStep  # noqa: PLC0415 - start-up: `plan` and `predict` of a linear model load no torch (1.4 s)

    return FederatedAveraging, {
        "training": LocalTraining,
        "server": ServerStep,
        "attendance": Attendance,
    }


def distributed() -> tuple[type[Any], Parts]:
    """Distributed DP-SGD and its parts."""
    from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD  # noqa: PLC0415 - start-up: `plan` and `predict` of a linear model load no torch (1.4 s)

    return DistributedDPSGD, {"training": LocalTraining, "attendance": Attendance}
