"""Build the metadata of `model.safetensors`: tensors and how to read rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import select_components
from parley.safe_io.json_writing import format_json
from parley.server.model_file import MODEL_VERSION

if TYPE_CHECKING:
    from parley.client.contract.model_state_encoding import State

_NO_FEATURES: Mapping[str, Any] = MappingProxyType({})


def build_model_tensors(theta: NDArray[np.float64], state: State) -> dict[str, NDArray[np.float64]]:
    """Return the tensors of `model.safetensors`: the model, and the components for its rows."""
    return {"theta": theta, **select_components(state)}


def build_model_description(
    task: Mapping[str, Any],
    *,
    label: str,
    intercept: bool,
    schema: str,
    features: Mapping[str, Any] = _NO_FEATURES,
) -> dict[str, str]:
    """Return the metadata of `model.safetensors` that a prediction needs: only values, no code.

    Args:
        label: how labels are read: logistic, softmax, ridge or network.
        features: name, settings and digest of the public feature map; empty: none.
    """
    description = {
        "version": MODEL_VERSION,
        "task": dict(task),
        "label": label,
        "intercept": intercept,
        "schema": schema,
        **({"features": dict(features)} if features else {}),
    }
    said = {"parley.features": describe_feature_map(features)} if features else {}
    return {"parley.model": format_json(description), **said}


def describe_feature_map(features: Mapping[str, Any]) -> str:
    """Return the description shown with a map's models; empty without a map.

    >>> describe_feature_map({"name": "scattering", "settings": {}})
    'scattering, data-independent'
    """
    if not features:
        return ""
    settings = {str(k).replace("_", "-"): v for k, v in features["settings"].items()}
    if ":" not in features["name"]:
        return f"{features['name']}, data-independent"
    return (
        f"{features['name']}, frozen; its author states that it was trained on "
        f"{settings.get('trained-on', 'unnamed data')!s:.200}, not on the parties' records"
    )
