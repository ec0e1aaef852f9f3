"""Define a fitted model: its parameters, how its rows and labels are read, and its statement.

`parley.prediction.estimator` adds what predicts. A report of a model does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import READINGS
from parley.client.data.schema import Schema

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """A fitted model.

    Attributes:
        theta: `[d]` its parameters.
        components: `[p, k]` components on which rows are projected, or None.
        label: How labels are read: logistic, softmax, ridge or network.
        intercept: Whether rows end with a constant.
        features: Public feature map of the training records, or None.
        statement: The privacy statement, which is the metadata with names that begin with
            "parley.".
    """

    learned: Any
    task: Mapping[str, Any]
    theta: NDArray[np.float64]
    components: NDArray[np.float64] | None
    label: str
    intercept: bool
    schema: Schema
    statement: Mapping[str, str]
    features: FeatureMap | None = None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels with their type in the schema (int, float, bool or str), in the order of
        `predict_proba`; empty for a ridge model.
        """
        values = self.schema.label.list_values(self.label)
        return np.array(values, None if values else np.str_)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels as texts, in the order of `classes_`."""
        return self.schema.label.list_names(self.label)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Public weights of the labels in training, in their order; empty if all are 1."""
        return tuple(self.learned.class_weights)

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts values instead of labels."""
        return READINGS.get(self.label) == "range"

    def to_probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return `[N, K]` probabilities, or None if the loss has none."""
        chances = self.learned.compute_probabilities(scores)
        return None if chances is None else np.asarray(chances, np.float64)
