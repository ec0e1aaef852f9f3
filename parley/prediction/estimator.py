"""Define a fitted model that also reads rows: `parley.load_model(path).predict(frame)`.

`model.safetensors` contains numbers, and plain JSON in its metadata: the task (as sent to parties),
how rows and labels are read, the schema, and the privacy statement. No code in it is ever run. A
network of your own code is built only if the caller names that code.

    import parley
    model = parley.load_model("runs/…")            # a run's folder, or its model.safetensors
    model.predict(frame)                           # [N] labels by name; a ridge model's values
    model.predict_proba(frame)                     # [N, K] in the order of model.classes_

Method and attribute names are scikit-learn's. The model is already fitted and cannot be fitted
again.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import canonicalize_text
from parley.client.data.raw_table import RawTable
from parley.client.data.threaded_chunks import map_chunks
from parley.prediction.fitted_model import FittedModel
from parley.prediction.row_encoding import encode_table, read_table
from parley.server.model_file import ModelFileError

if TYPE_CHECKING:
    from sklearn.utils import Tags

_CHUNK_ROWS = 4096
"""Number of rows that are read, scaled and scored at a time."""


def _format_texts(values: NDArray[Any]) -> NDArray[np.str_]:
    """Return each value's canonical text, by which labels are compared."""
    return np.array([canonicalize_text(value) for value in values.ravel().tolist()], np.str_)


class Estimator(FittedModel):
    """A model with the interface of a scikit-learn estimator in addition to `predict`.

    It is not a dataclass, because scikit-learn sets attributes that are not fields.
    """

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Columns that a row must have, in the schema's order."""
        return np.array(list(self.schema.features), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns that a row must have."""
        return len(self.feature_names_in_)

    def encode_rows(self, frame: Any) -> NDArray[np.floating[Any]]:
        """Return `[N, p]` rows in the model's encoding.

        Args:
            frame: A polars or pandas frame, or a mapping from column names to arrays `[N]` (`[N,
                …]` for columns of kind "array"), or a file, whose other columns are ignored. Or one
                array `[N, …]` of the model's columns in the schema's order.

        Raises:
            DataError: all columns that are missing or do not match the schema.
        """
        return self.encode_table(read_table(frame, self.schema))

    def encode_table(self, table: RawTable) -> NDArray[np.floating[Any]]:
        """Return `[N, p]` rows of a table that was read by `self.schema`."""
        return encode_table(self, table)

    def compute_scores(self, rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return `[N]` margins for two labels or values, or `[N, K]` for more labels, for encoded
        rows.
        """
        return np.asarray(self.learned.compute_margins(self.theta, rows), np.float64)

    def decision_function(self, frame: Any) -> NDArray[np.float64]:
        """Return `[N]` margins, positive for the positive label, or `[N, K]` for networks and
        classes.
        """
        table = read_table(frame, self.schema)

        def scored(first: int, last: int) -> NDArray[np.float64]:
            return self.compute_scores(self.encode_table(table.slice_rows(first, last - first)))

        # In chunks: rows that stay in the cache are several times as fast as all at once.
        firsts = range(0, max(table.rows, 1), _CHUNK_ROWS)
        ranges = [(first, min(first + _CHUNK_ROWS, table.rows)) for first in firsts]
        if self.learned.in_threads:
            return np.concatenate(map_chunks(scored, ranges))
        return np.concatenate([scored(*each) for each in ranges])

    def predict(self, frame: Any, *, threshold: float | None = None) -> NDArray[Any]:
        """Return `[N]` labels, typed as `classes_`, or a ridge model's values in the label's range.

        Args:
            threshold: For two labels, the lowest probability (or score, without probabilities) for
                the second label; None for the likelier label.

        Raises:
            ModelFileError: the threshold does not fit this model.
        """
        self.check_threshold(threshold)
        return self.to_labels(self.decision_function(frame), threshold=threshold)

    def check_threshold(self, threshold: float | None) -> None:
        """Raise ModelFileError if the threshold does not fit this model."""
        if threshold is None:
            return
        if len(self.classes_) != 2:
            got = f"one of {len(self.classes_)} labels" if len(self.classes_) else "one of values"
            raise ModelFileError(f"Expected a model with two labels for a threshold, got {got}.")
        chances = self.to_probabilities(np.zeros((1, 2)))
        if not math.isfinite(threshold) or (chances is not None and not 0 <= threshold <= 1):
            wanted = "score" if chances is None else "probability in [0, 1]"
            raise ModelFileError(f"Expected a {wanted} as the threshold, got {threshold:g}.")

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return `[N, K]` probabilities in the order of `classes_`.

        Raises:
            ModelFileError: the model has no probabilities.
        """
        chances = self.to_probabilities(self.decision_function(frame))
        if chances is None:
            raise ModelFileError(
                "Expected a model that gives probabilities (logistic, softmax, a network), got one "
                "that only ranks. Use decision_function for its scores."
            )
        return chances

    def to_labels(
        self, scores: NDArray[np.float64], *, threshold: float | None = None
    ) -> NDArray[Any]:
        """Return `[N]` labels or values for `scores`, with a checked threshold."""
        if self.is_regression:
            return self.schema.label.scale.decode(scores)
        return np.asarray(self.classes_[self.to_class_positions(scores, threshold=threshold)])

    def to_class_positions(
        self, scores: NDArray[np.float64], *, threshold: float | None = None
    ) -> NDArray[np.int64]:
        """Return `[N]` positions in `classes_` for `scores`."""
        if threshold is not None:
            chances = self.to_probabilities(scores)
            ranked = scores if chances is None else chances[:, 1]
            return (ranked >= threshold).astype(np.int64)
        return scores.argmax(axis=1) if scores.ndim == 2 else (scores >= 0).astype(np.int64)

    @property
    def _estimator_type(self) -> str:
        return "regressor" if self.is_regression else "classifier"

    def fit(self, frame: Any, y: Any = None) -> Self:
        """Return the model itself, with a warning that it was trained in a run and is not trained
        here.
        """
        run = self.statement.get("parley.run", "")
        warnings.warn(
            f"fit does not train: this model was trained in run {run}. Cross-validation and "
            "searches score it on records that it may have been trained on. Score it on other "
            "records, or train per fold with parley.run.",
            stacklevel=2,
        )
        return self

    def score(self, frame: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy by label names, or R², on your own rows, which no budget covers."""
        truth, predicted = np.asarray(y), self.predict(frame)
        if not self.is_regression:
            if truth.dtype.kind in "biuf" and predicted.dtype.kind in "biuf":
                right = predicted == truth
            else:  # one has texts, the other numbers
                right = _format_texts(predicted) == _format_texts(truth)
            return float(np.average(right, weights=sample_weight))
        centre = np.average(truth, weights=sample_weight)
        lost = np.average((truth - predicted) ** 2, weights=sample_weight)
        spread = np.average((truth - centre) ** 2, weights=sample_weight)
        return float(1 - lost / spread) if spread else float("nan")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return an empty dict: the model has no settable parameters."""
        return {}

    def set_params(self, **params: Any) -> Self:
        """Return the model; raise ValueError for any parameter."""
        if params:
            raise ValueError(f"Expected no parameters for a trained model, got {params}.")
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags  # noqa: PLC0415 - start-up: only scikit-learn calls this, so it is loaded already

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=False),
            classifier_tags=None if self.is_regression else ClassifierTags(),
            regressor_tags=RegressorTags() if self.is_regression else None,
            requires_fit=False,
            input_tags=InputTags(string=True),
        )
