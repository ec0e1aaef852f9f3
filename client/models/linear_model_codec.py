"""Encode a linear model as plain values for tasks and model files, and decode it.

No ε depends on which model it is: the model itself states its claim, and computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, decode_value
from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Loss
from parley.client.models.loss_registry import LOSSES
from parley.module_loading.plugin_table import load_attribute

MAX_MODEL_SIZE: Final = 10**8
"""Maximum features, or units of a layer, that a task may request."""

MAX_PARAMETER: Final = 1e150
"""Limit on parameters: smaller ones have finite products. A model file with larger ones is refused.
"""


def encode_linear_model(model: LinearModel) -> dict[str, Any]:
    """Return the model as plain JSON values."""
    return {"loss": _encode_loss(model.loss), "features": model.features}


def decode_linear_model(value: Any) -> LinearModel:
    """Build the model from the result of `encode_linear_model`. Raises DecodingError."""
    if not isinstance(value, Mapping) or set(value) != {"loss", "features"}:
        raise DecodingError("Expected a linear model's loss and features, got other keys.")
    features = decode_value(int, value["features"], "features")
    kind = _decode_loss(value["loss"])
    if not 1 <= features <= MAX_MODEL_SIZE or getattr(kind, "classes", 2) > MAX_MODEL_SIZE:
        raise DecodingError(f"Expected 1 to {MAX_MODEL_SIZE} features and classes, got others.")
    return LinearModel(loss=kind, features=features)


def _encode_loss(loss: Loss) -> dict[str, Any]:
    weighted: Any = loss
    own = getattr(weighted, "loss", weighted)
    weights = {} if own is loss else {"class_weights": list(weighted.weights)}
    return {"kind": LOSSES.find_name(type(own)), **asdict(own), **weights}


def _decode_loss(value: Any) -> Loss:
    known = isinstance(value, Mapping) and isinstance(value.get("kind"), str)
    if not known or value["kind"] not in LOSSES:
        raise DecodingError(f"Expected a loss of {', '.join(LOSSES)}, got another.")
    settings = {key: setting for key, setting in value.items() if key != "kind"}
    weights = settings.pop("class_weights", None)
    loss = LOSSES[value["kind"]].from_settings(settings)
    if weights is None:
        return loss
    # There is only one encoding of no weights: no such key.
    weighted_loss = load_attribute("parley.client.models.class_weights:ClassWeightedLoss")
    weighted: Loss = decode_dataclass(weighted_loss, {"weights": weights}, loss=loss)
    return weighted
