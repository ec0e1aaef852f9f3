"""Load a model file as a model that predicts. The values are checked, and no code of the file is
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.task_codec import decode_task
from parley.client.contract.strict_decoding import DecodingError, decode_value
from parley.client.data.column_types import READINGS
from parley.client.data.schema import Schema, load_schema
from parley.client.features.feature_error import FeatureError
from parley.client.models.linear_model_codec import MAX_PARAMETER, decode_linear_model
from parley.prediction.fitted_model import FittedModel
from parley.server.model_file import ModelFileError, open_model

if TYPE_CHECKING:
    from parley.prediction.estimator import Estimator

_Kind = TypeVar("_Kind", bound=FittedModel)
_APP = "app"
"""Label of a model whose rows only an app of the user's own reads."""


def load_model(
    path: str | Path,
    *,
    schema: str | Path | None = None,
    own_models: tuple[str, ...] = (),
    device: str = "cpu",
) -> Estimator:
    """Load the model of a run's folder, or of a `model.safetensors`.

    Args:
        schema: A schema file, for a model file without a schema (its server had none).
        own_models: Networks and feature maps of your own code that may be built, as
            "file.py:function" or "module:function". No file can name code to run.

    Raises:
        ModelFileError: there is no model of this version, it was changed after it was written, or
            it cannot predict. The message has the remedy.
    """
    from parley.prediction.estimator import Estimator  # noqa: PLC0415 - a report predicts nothing

    return load_fitted_model(path, Estimator, schema=schema, own_models=own_models, device=device)


def load_fitted_model(
    path: str | Path,
    kind: type[_Kind],
    *,
    schema: str | Path | None = None,
    own_models: tuple[str, ...] = (),
    device: str = "cpu",
) -> _Kind:
    """Load a model as an object of this kind; see `load_model`."""
    opened = open_model(path)
    file, described, tensors = opened.file, opened.description, opened.tensors
    if described["label"] == _APP:
        raise ModelFileError(
            f"Expected a model that reads rows, got that of a Flower app in {file}: its code reads "
            "them. Load its arrays from arrays.safetensors in the same folder (docs/flower.md)."
        )
    text = described["schema"]
    if schema is not None:
        text = load_schema(schema).to_toml()
    if not text:
        raise ModelFileError(
            f"Expected a schema for {file}, which has none. Name the parties' schema file "
            "(--schema FILE)."
        )
    try:
        learned = _load_learned(described["task"], device, own_models)
        if described["label"] not in {*READINGS, "network"}:
            raise DecodingError(f"Expected labels of a known kind, got {described['label']!r}.")
    except DecodingError as error:
        from parley.prediction.permitted_code import describe_missing_code, get_network_name  # noqa: PLC0415 - only for an error

        missing = describe_missing_code(get_network_name(described["task"]), own_models)
        raise ModelFileError(f"{file}: {missing or error}") from error
    features = None
    if described.get("features") is not None:
        from parley.prediction.feature_map_loading import load_feature_map  # noqa: PLC0415 - spares the maps for a model without one

        features = load_feature_map(file, described["features"], own_models)
    model = kind(
        learned=learned,
        task=described["task"],
        theta=_load_parameters(file, tensors, learned),
        components=tensors.get("components"),
        label=described["label"],
        intercept=described["intercept"],
        schema=Schema.from_toml(text, source=str(schema or file)),
        statement=opened.statement,
        features=features,
    )
    _check_width(file, model)
    return model


def _load_learned(task: Any, device: str, own_models: tuple[str, ...]) -> Any:
    """Return the model that a task trains; raise DecodingError if malformed."""
    if isinstance(task, Mapping) and set(task) == {"kind", "model", "settings"}:
        decode_value(str, task["kind"], "kind")
        return decode_linear_model(task["model"])  # its training algorithm does not matter here
    from parley.prediction.permitted_code import get_network_name, match_own_code  # noqa: PLC0415 - spares its code for a linear model

    own = match_own_code(get_network_name(task), own_models)
    return decode_task(task, device=device, own_models=own).model


def _get_width(file: Path, model: FittedModel) -> int:
    """Return the number of columns of a row before the intercept."""
    if model.features is None:
        return model.schema.dimension
    try:
        return model.features.bind(model.schema).width
    except FeatureError as error:
        raise ModelFileError(f"{file}: {error}") from error


def _load_parameters(
    file: Path, tensors: Mapping[str, NDArray[Any]], learned: Any
) -> NDArray[np.float64]:
    theta, expected = tensors.get("theta"), getattr(learned, "dimension", None)
    if expected is None:
        raise ModelFileError(f"Expected a run with a model, got one without: {file}.")
    shaped = theta is not None and theta.dtype == np.float64 and theta.shape == (expected,)
    if theta is None or not shaped or not (np.abs(theta) < MAX_PARAMETER).all():
        raise ModelFileError(
            f"{file}: Expected {expected} finite float64 parameters below "
            f"{MAX_PARAMETER:g}, got others."
        )
    if (components := tensors.get("components")) is not None:
        from parley.client.algorithms.pca_projection import check_components  # noqa: PLC0415 - spares its code for a model without components

        try:
            check_components(components)
        except ValueError as error:
            raise ModelFileError(f"{file}: {error}") from error
    return theta


def _check_width(file: Path, model: FittedModel) -> None:
    """Raise ModelFileError if the schema's rows do not have the model's width."""
    width = came = _get_width(file, model) + model.intercept
    if model.components is not None:
        # If the schema's rows do not fit the projection, no width can match the model's.
        width = model.components.shape[1] if width == model.components.shape[0] else -1
    if width != model.learned.features:
        raise ModelFileError(
            f"Expected a schema whose rows have {model.learned.features} features with the "
            f"intercept, got {came}. {file} was trained with another schema."
        )
    if not model.is_regression and len(model.classes_) < 2:
        raise ModelFileError(f"{file}: Expected a schema that names the labels, got none.")
