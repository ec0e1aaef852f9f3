"""A model that was learned, with how a row is read: `parley.load_model(path).predict(frame)`.

`model.safetensors` holds numbers, and in its metadata plain JSON: the task (as parties are sent
it), how rows and labels are read, the schema, and the privacy statement. Nothing in it is run: a
network of one's own code is built only where the caller names that code.

    import parley
    model = parley.load_model("runs/…")            # a run's folder, or its model.safetensors
    model.predict(frame)                           # [N] labels by name; a ridge model's values
    model.predict_proba(frame)                     # [N, K] in the order of model.classes_

Method and attribute names are scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import task_from
from parley.client.algorithms.second_moments import check_components
from parley.client.contract.decoding import DecodingError
from parley.client.contract.feature_map import features_from
from parley.client.contract.model_names import public_name
from parley.client.contract.protocol import Declined, strict_json
from parley.client.data.chunks import for_each_chunk
from parley.client.data.columns import READINGS
from parley.client.data.frames import columns_of
from parley.client.data.readers import table_of
from parley.client.data.records import DataError, encoded
from parley.client.data.schema import Schema, load_schema
from parley.client.data.table import Table
from parley.client.features.base import FeatureError, FeatureMap
from parley.client.features.preparation import prepared_rows
from parley.client.features.table import build_map
from parley.server.records.statement import MODEL_VERSION

__all__ = ["Model", "ModelFile", "ModelFileError", "load_model", "open_model"]

_PIECE = 4096
"""Rows that are read, scaled and scored at a time."""

_KEYS = {"version", "task", "label", "intercept", "schema"}


class ModelFileError(ValueError):
    """A file that is no model of Parley's, or one that cannot predict."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What was learned, ready to predict.

    Attributes:
        algorithm: how it was learned; `algorithm.model` is what was learned.
        theta: `[d]` its parameters.
        components: `[p, k]` what rows are projected on; None where they are not.
        label: how labels are read: logistic, softmax, ridge, huber-svm or network.
        intercept: whether rows end with a constant.
        schema: what columns and label are.
        features: the public map that records are learned from through; None: none.
        statement: what was promised: the metadata whose names begin with "parley.".
    """

    algorithm: FederatedAlgorithm
    theta: NDArray[np.float64]
    components: NDArray[np.float64] | None
    label: str
    intercept: bool
    schema: Schema
    statement: Mapping[str, str]
    features: FeatureMap | None = None

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Columns that a row must have, in the schema's order."""
        return tuple(self.schema.features)

    @property
    def n_features_in_(self) -> int:
        """How many columns a row must have."""
        return len(self.feature_names_in_)

    @property
    def classes_(self) -> tuple[str, ...]:
        """Names of the labels, in the order of `predict_proba`; empty for a ridge model."""
        return self.schema.label.names(self.label)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Public weights of the labels that it was learned under, in their order; (): all 1."""
        return tuple(self.algorithm.model.class_weights)

    def rows(self, frame: Any) -> NDArray[np.floating[Any]]:
        """`[N, p]` rows as the model takes them.

        Args:
            frame: a polars or pandas frame, or column names → arrays `[N]` (`[N, …]` for columns
                of kind "array"). Columns that the model does not read are left alone.

        Raises:
            DataError: every column that is missing or is not what the schema says.
        """
        return self.rows_of(_table(frame, self.schema))

    def rows_of(self, table: Table) -> NDArray[np.floating[Any]]:
        """`[N, p]` rows of a table that was read by `self.schema`.

        Raises:
            DataError: a cell that is not what the schema says.
        """
        raw: NDArray[np.floating[Any]]
        if self.features is None:
            raw = encoded(table, self.schema)[0]
        else:
            raw = self.features.on(self.schema).of(encoded(table, self.schema.unscaled)[0])
        rows = prepared_rows(raw, intercept=self.intercept)
        return rows if self.components is None else rows @ self.components

    def scores(self, rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """`[N]` margins of two labels or values, `[N, K]` of more, for rows of `rows`."""
        return np.asarray(self.algorithm.model.margins(self.theta, rows), np.float64)

    @property
    def targets(self) -> bool:
        """Whether it predicts values, of no label's name."""
        return READINGS.get(self.label) == "range"

    def decision_function(self, frame: Any) -> NDArray[np.float64]:
        """`[N]` margins, positive for the positive label; `[N, K]` for networks and classes."""
        table = _table(frame, self.schema)

        def scored(first: int, last: int) -> NDArray[np.float64]:
            return self.scores(self.rows_of(table.part(first, last - first)))

        # Piece by piece: rows that stay in cache are several times as fast as all at once.
        firsts = range(0, max(table.rows, 1), _PIECE)
        ranges = [(first, min(first + _PIECE, table.rows)) for first in firsts]
        if self.algorithm.model.in_threads:
            return np.concatenate(for_each_chunk(scored, ranges))
        return np.concatenate([scored(*each) for each in ranges])

    def predict(self, frame: Any) -> NDArray[Any]:
        """`[N]` label names, or a ridge model's values in the label's own range."""
        return self.labels(self.decision_function(frame))

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """`[N, K]` probabilities in the order of `classes_`.

        Raises:
            ModelFileError: a model that gives none (ridge, huber-svm).
        """
        chances = self.chances(self.decision_function(frame))
        if chances is None:
            raise ModelFileError(
                f"Expected a logistic or softmax model or a network for probabilities, got "
                f"{self.label}: decision_function gives its scores."
            )
        return chances

    def labels(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """`[N]` what `scores` say."""
        if self.targets:
            low, high = self.schema.label.range or (-1.0, 1.0)
            return np.asarray((np.clip(scores, -1, 1) * (high - low) + low + high) / 2)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores >= 0).astype(np.int64)
        return np.asarray(np.array(self.classes_)[best])

    def chances(self, scores: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """`[N, K]` probabilities; None where the loss has none."""
        told = self.algorithm.model.chances(scores)
        return None if told is None else np.asarray(told, np.float64)


def load_model(
    path: str | Path,
    *,
    schema: str | Path | None = None,
    own_models: tuple[str, ...] = (),
    device: str = "cpu",
) -> Model:
    """The model of a run's folder, or of a `model.safetensors`.

    Args:
        path: either.
        schema: a schema file, for a model whose file holds none (its server was given none).
        own_models: networks and feature maps of one's own code that may be built, as
            "file.py:function" or "module:function". No file can name code to run.
        device: where a network computes: cpu or cuda.

    Raises:
        ModelFileError: no model of this version, or one that cannot predict; with the remedy.
        SchemaError: a schema that cannot be read.
    """
    opened = open_model(path)
    file, described, tensors = opened.file, opened.described, opened.tensors
    text = described["schema"]
    if schema is not None:
        text = load_schema(schema).to_toml()
    if not text:
        raise ModelFileError(
            f"Expected a schema for {file}, which holds none: name the parties' schema file "
            "(--schema FILE)."
        )
    try:
        algorithm = task_from(
            described["task"],
            device=device,
            own_models=MappingProxyType({public_name(own): own for own in own_models}),
        )
        if described["label"] not in {*READINGS, "network"}:
            raise DecodingError(f"Expected labels of a known kind, got {described['label']!r}.")
    except DecodingError as error:
        hint = "" if own_models else " A network of your own code needs --own-model FILE:FUNCTION."
        raise ModelFileError(f"{file}: {error}{hint}") from error
    model = Model(
        algorithm=algorithm,
        theta=_theta(file, tensors, algorithm),
        components=tensors.get("components"),
        label=described["label"],
        intercept=described["intercept"],
        schema=Schema.from_toml(text, source=str(schema or file)),
        statement=opened.statement,
        features=_features(file, described.get("features"), own_models),
    )
    _check_width(file, model)
    return model


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model file as it is.

    Attributes:
        described: task, label, intercept, schema, and features where rows go through a map.
        tensors: by name.
        statement: what was promised: the metadata whose names begin with "parley.".
    """

    file: Path
    described: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]
    statement: Mapping[str, str]


def open_model(path: str | Path) -> ModelFile:
    """The parts of a run's `model.safetensors`, or of that file; raises ModelFileError."""
    file = Path(path)
    if file.is_dir():
        file /= "model.safetensors"
    try:
        with safe_open(file, framework="np") as opened:
            metadata = dict(opened.metadata() or {})
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"Expected a model at {file}, got: {error}.") from error
    return ModelFile(
        file=file,
        described=_description(file, metadata),
        tensors=tensors,
        statement={key: value for key, value in metadata.items() if key != "parley.model"},
    )


def _description(file: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if "parley.model" not in metadata:
        raise ModelFileError(
            f"Expected a model that says how rows are read, got {file} without: it is of Parley "
            "0.1.0, or of something else. Run its job again."
        )
    try:
        described = strict_json(metadata["parley.model"])
    except ValueError as error:
        raise ModelFileError(f"{file}: Expected JSON about the model. {error}") from error
    if not isinstance(described, dict) or described.get("version") != MODEL_VERSION:
        version = described.get("version") if isinstance(described, dict) else None
        raise ModelFileError(
            f"Expected a model file of version {MODEL_VERSION}, got {version!r} in {file}: use the "
            "release of Parley that wrote it."
        )
    if set(described) - {"features"} != _KEYS:
        raise ModelFileError(f"{file}: Expected the keys {sorted(_KEYS)}, got {sorted(described)}.")
    for key, kind in (("label", str), ("intercept", bool), ("schema", str)):
        if type(described[key]) is not kind:
            raise ModelFileError(
                f"{file}: Expected {key} as {kind.__name__}, got {described[key]!r:.40}."
            )
    return described


def _features(file: Path, described: Any, own: tuple[str, ...]) -> FeatureMap | None:
    """The public map that rows go through, the very one that the model was learned on."""
    if described is None:
        return None
    try:
        named = features_from(described, agreed=True)
        made = build_map(
            named.get("name", ""),
            named.get("settings", {}),
            own={public_name(name): name for name in own},
        )
        digest = made.digest
    except (Declined, FeatureError) as error:
        hint = "" if own else " A map of your own code needs --own-model FILE:FUNCTION."
        raise ModelFileError(f"{file}: {error}{hint}") from error
    if digest != named["digest"]:
        raise ModelFileError(
            f"Expected features of digest {named['digest']}, which {file} was learned on, got "
            f"{digest}: its code, weights or version of Parley differ."
        )
    return made


def _width(file: Path, model: Model) -> int:
    """Columns of a row before the intercept."""
    if model.features is None:
        return model.schema.dimension
    try:
        return model.features.on(model.schema).width
    except FeatureError as error:
        raise ModelFileError(f"{file}: {error}") from error


def _theta(
    file: Path, tensors: Mapping[str, NDArray[Any]], algorithm: FederatedAlgorithm
) -> NDArray[np.float64]:
    theta, learned = tensors.get("theta"), algorithm.model
    expected = getattr(learned, "dimension", None)
    if expected is None:
        raise ModelFileError(f"Expected a run that learned a model, got {algorithm.kind}: {file}.")
    shaped = theta is not None and theta.dtype == np.float64 and theta.shape == (expected,)
    if theta is None or not shaped or not np.isfinite(theta).all():
        raise ModelFileError(f"{file}: Expected {expected} finite float64 parameters, got others.")
    if (components := tensors.get("components")) is not None:
        try:
            check_components(components)
        except ValueError as error:
            raise ModelFileError(f"{file}: {error}") from error
    return theta


def _check_width(file: Path, model: Model) -> None:
    """Raises where the schema's rows are not those that the model takes."""
    width = came = _width(file, model) + model.intercept
    if model.components is not None:
        # Where the schema's rows are not what is projected, nothing is as wide as the model.
        width = model.components.shape[1] if width == model.components.shape[0] else -1
    if width != model.algorithm.model.features:
        raise ModelFileError(
            f"Expected a schema whose rows have {model.algorithm.model.features} features with the "
            f"intercept, got {came}: {file} was learned under another schema."
        )
    if not model.targets and len(model.classes_) < 2:
        raise ModelFileError(f"{file}: Expected a schema that names the labels, got none.")


def _table(frame: Any, schema: Schema) -> Table:
    """The model's columns of a frame; every fault of a column's presence at once."""
    columns = columns_of(frame)
    if missing := [name for name in schema.features if name not in columns]:
        raise DataError("the columns that the model reads", f"no column {missing}", path="frame")
    return table_of({name: columns[name] for name in schema.features}, schema, path="frame")
