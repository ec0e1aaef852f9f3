"""Codec and checks of the tasks of algorithms that train a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, cast

from parley.client.algorithms.algorithm_spec import PartyResources, check_keys, get_settings
from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD
from parley.client.algorithms.federated_averaging import FederatedAveraging
from parley.client.algorithms.party_sampling import PartySampling
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.dp_sgd.optimisers import ServerStep
from parley.client.dp_sgd.torch_clipping import GradientMethodError, check_way
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.layer_checks import BUILT_IN, NetworkError
from parley.client.models.linear_model_codec import MAX_MODEL_SIZE
from parley.client.models.networks import Network
from parley.client.own_code.own_code_names import get_public_name
from parley.privacy.accounting.threat_model import Unit
from parley.safe_io.error_translation import translate_errors

MIN_STEP, MAX_STEP = 2.0**-30, 2.0**30
"""Smallest and largest distance that a training step may move a model: rate times clip norm."""

_KEYS = {"kind", "features", "classes", "hidden", "precision", "frozen"}

_PARTS: dict[str, tuple[type[Any], dict[str, type[Any]]]] = {
    FederatedAveraging.kind: (
        FederatedAveraging,
        {"training": LocalTraining, "server": ServerStep, "attendance": PartySampling},
    ),
    DistributedDPSGD.kind: (
        DistributedDPSGD,
        {"training": LocalTraining, "attendance": PartySampling},
    ),
}
"""Kind → the algorithm's class, and the classes of those fields that are sections of the task."""


def to_task(algorithm: Any) -> dict[str, Any]:
    """Return the task as plain JSON values."""
    parts = _PARTS[algorithm.kind][1]
    sections = {name: asdict(getattr(algorithm, name)) for name in parts}
    # Model and components travel separately.
    settings = get_settings(algorithm, "model", "components", *parts)
    return {"network": _describe_network(algorithm.model), **sections, "settings": settings}


def from_task(task: Mapping[str, Any], party: PartyResources) -> Any:
    """Build the algorithm from the result of `to_task`.

    Raises DecodingError, also if the network cannot be built on this machine.
    """
    kind, parts = _PARTS[task["kind"]]
    check_keys(task, "network", "settings", *parts)
    return decode_dataclass(
        kind,
        task["settings"],
        model=_build_network(task["network"], party),
        components=None,
        **{name: decode_dataclass(part, task[name]) for name, part in parts.items()},
    )


def check(algorithm: Any, plan: ReleasePlan) -> None:
    """Refuse training that moves nothing, and a clipping method that its network does not support.

    Raises Declined.
    """
    training = algorithm.training
    if algorithm.unit is Unit.RECORD:
        try:
            # A method that does not fit the network would not clip single records.
            check_way(algorithm.model, training.per_example_method)
        except GradientMethodError as error:
            raise Declined(Reason.ALGORITHM, f"{training.per_example_method}: {error}") from error
    step = training.max_step
    if not MIN_STEP <= step <= MAX_STEP:
        raise _build_degenerate_error(f"steps of {MIN_STEP:g} to {MAX_STEP:g}", step)
    if not 0 <= training.momentum < 1:
        raise _build_degenerate_error("momentum in [0, 1)", training.momentum)
    # With noise inside the party an empty batch is noise. Without, it is zero, and the sum would be
    # that of the few parties with a sampled record.
    expected_records = training.sampling_rate * plan.min_records * training.steps
    if algorithm.unit is Unit.PARTY and not expected_records >= 1:
        raise _build_degenerate_error("at least one sampled record per round", expected_records)


def _build_degenerate_error(expected: str, got: float) -> Declined:
    return Declined(Reason.DEGENERATE, f"Expected {expected}, got {got:g}.")


def _describe_network(network: Network) -> dict[str, Any]:
    weights = network.losses.weights
    return {
        "kind": get_public_name(network.kind),
        "features": network.features,
        "classes": network.classes,
        "hidden": list(network.hidden),
        "precision": str(network.dtype).removeprefix("torch."),
        "frozen": network.frozen_digest,
        **({"class_weights": list(weights)} if weights else {}),
    }


def _build_network(value: Any, party: PartyResources) -> Network:
    """Build the network from the result of `_describe_network`."""
    if not isinstance(value, Mapping) or set(value) - {"class_weights"} != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} of a network, got others.")
    features = decode_value(int, value["features"], "features")
    classes = decode_value(int, value["classes"], "classes")
    weights = decode_value(tuple[float, ...], value.get("class_weights", []), "class_weights")
    if "class_weights" in value and not weights:  # only one encoding of none
        raise DecodingError("Expected class weights or no such key, got an empty list.")
    hidden = decode_value(tuple[int, ...], value["hidden"], "hidden")
    if not all(1 <= width <= MAX_MODEL_SIZE for width in (features, classes, *hidden)):
        raise DecodingError(f"Expected sizes of a network from 1 to {MAX_MODEL_SIZE}, got others.")
    kind = decode_value(str, value["kind"], "network.kind")
    if kind not in BUILT_IN and kind not in party.own_models:  # its name would import and run it
        raise DecodingError(
            f"Expected a network of {', '.join(BUILT_IN)}, or a model of your own that the party's "
            f"policy lists in models, got {format_received(kind)}."
        )
    precision = decode_value(Literal["float32", "float64"], value["precision"], "precision")
    with translate_errors(NetworkError, DecodingError):
        network = Network.build(
            kind if kind in BUILT_IN else party.own_models[kind],
            features=features,
            classes=classes,
            hidden=hidden,
            class_weights=weights,
            precision=cast(Literal["float32", "float64"], precision),
            device=party.device,
        )
    if network.frozen_digest != decode_value(str, value["frozen"], "network.frozen"):
        raise DecodingError(
            f"Expected {kind} with the frozen layers of the task, got others. Server and parties "
            "need the same file of weights. Randomly initialised layers differ between versions "
            "of torch and between processors: save them once and load them."
        )
    return network
