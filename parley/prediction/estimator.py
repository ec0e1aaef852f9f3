"""A model as scikit-learn knows estimators: fitted, and not to be fitted again.

What takes a fitted estimator takes a model of Parley. `fit` learns nothing and a clone is the model
itself, as of scikit-learn's `FrozenEstimator`. Nothing of scikit-learn is imported before it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from sklearn.utils import Tags

from parley.prediction.model import Model


class Estimator(Model):
    """A model with what scikit-learn asks of an estimator, beside `predict`.

    No dataclass: scikit-learn notes what it needs as attributes that are no fields.
    """

    @property
    def _estimator_type(self) -> str:
        return "regressor" if self.targets else "classifier"

    def fit(self, frame: Any, y: Any = None) -> Self:
        """The model itself: it was learned in a run, and learns nothing here."""
        del frame, y
        return self

    def score(self, frame: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy under the labels' names, or R²; of your own rows, which no budget covers."""
        truth, predicted = np.asarray(y), self.predict(frame)
        if not self.targets:
            right = predicted == truth.astype(str)
            return float(np.average(right, weights=sample_weight))
        centre = np.average(truth, weights=sample_weight)
        lost = np.average((truth - predicted) ** 2, weights=sample_weight)
        spread = np.average((truth - centre) ** 2, weights=sample_weight)
        return float(1 - lost / spread) if spread else float("nan")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """None: nothing can be set."""
        del deep
        return {}

    def set_params(self, **params: Any) -> Self:
        """Nothing can be set."""
        if params:
            raise ValueError(f"Expected no parameters of a model that was learned, got {params}.")
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags  # noqa: PLC0415 - start-up: scikit-learn asks itself, prediction doesn't

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=False),
            classifier_tags=None if self.targets else ClassifierTags(),
            regressor_tags=RegressorTags() if self.targets else None,
            requires_fit=False,
            input_tags=InputTags(string=True),
        )
