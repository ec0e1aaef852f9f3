"""`parley.LogisticRegression`: private logistic regression with scikit-learn's interface.

    model = parley.LogisticRegression(epsilon=1, bounds=(0, 255)).fit(X, y)

Each `fit` is a run with fresh noise, and costs ε. Fits on the same records add up: a
cross-validation or a search of settings costs more than `epsilon`. With `ledger`, all fits are
charged to one budget. `epsilon` assumes that the set of labels is public: it is read from y.
scikit-learn is imported when a model is fitted.
"""

# ruff: noqa: N803, N806 - X is the name that scikit-learn gives rows

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.completed_run import Run
from parley.privacy.privacy_warning import PrivacyWarning

_DATASET = "fits"
"""Name in a ledger of the records of all fits."""


class LogisticRegression:
    """Logistic regression of several simulated parties, softmax for more than two classes.

    The ε of a fit assumes that bounds and the set of labels are public.

    Attributes:
        classes_: `[K]` labels, with y's type.
        n_features_in_: number of columns.
        epsilon_: ε charged for this fit.
        run_: the run, a `parley.Run`.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    epsilon_: float
    run_: Run

    _estimator_type: ClassVar[str] = "classifier"
    _fits_without_ledger: ClassVar[int] = 0

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        parties: int = 5,
        delta: float = 1e-5,
        bounds: tuple[Any, Any] | None = None,
        ledger: str | Path | None = None,
        budget: float | None = None,
        job: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the settings; nothing is checked before `fit`.

        Args:
            epsilon, delta: privacy cost of one fit.
            parties: number of simulated parties that share the records.
            bounds: public (low, high) of the columns, numbers or `[p]` arrays. Values outside are
                clamped. None reads them off X, which epsilon does not cover; a warning says so.
            ledger: file or URL of a ledger that all fits are charged to.
            budget: total ε of all fits in the ledger; default `epsilon`.
            job: other keys of the job, such as {"algorithm.rounds": 20}.
        """
        self.epsilon = epsilon
        self.parties = parties
        self.delta = delta
        self.bounds = bounds
        self.ledger = ledger
        self.budget = budget
        self.job = job

    def fit(self, X: Any, y: Any) -> Self:
        """Train on `[N, p]` rows and `[N]` labels; this releases one model at the cost of ε.

        Raises:
            ValueError: rows, labels or settings cannot be used.
            BudgetExceeded: the ledger's budget does not last for this fit.
        """
        from sklearn.utils.multiclass import check_classification_targets  # noqa: PLC0415 - start-up: an optional interface (0.5 s)
        from sklearn.utils.validation import validate_data  # noqa: PLC0415 - start-up: likewise

        from parley.run_api import run  # noqa: PLC0415 - start-up: likewise

        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            label = str(self.classes_[0])
            raise ValueError(
                f"Expected at least 2 classes, got one class: every label is {label!r}."
            )
        self._warn_of_sum()
        names = [f"x{at}" for at in range(X.shape[1])]
        texts = [str(code) for code in range(len(self.classes_))]
        low, high = self._choose_bounds(X)
        columns: dict[str, Any] = {
            name: (float(low[at]), float(high[at])) for at, name in enumerate(names)
        }
        self.run_ = run(
            {name: X[:, at] for at, name in enumerate(names)} | {"y": codes.astype(str)},
            schema=Schema.of({**columns, "y": texts}, label="y"),
            model="logistic" if len(texts) == 2 else "softmax",
            epsilon=self.epsilon,
            delta=self.delta,
            parties=self.parties,
            job=self._build_job(),
        )
        self._model = self.run_.model  # read now: the folder may be gone later
        self.epsilon_ = self.run_.epsilon
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return `[N]` labels."""
        rows = self._read_rows(X)
        positions = self._model.predict(rows).astype(int)
        return np.asarray(self.classes_[positions])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return `[N, K]` probabilities, in the order of `classes_`."""
        rows = self._read_rows(X)
        return np.asarray(self._model.predict_proba(rows), np.float64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return `[N]` margins of the second class, or `[N, K]` of more than two classes."""
        rows = self._read_rows(X)
        return self._model.decision_function(rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on your own rows, which no budget covers."""
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def set_params(self, **params: Any) -> Self:
        """Change settings. Raises ValueError for a name that is none."""
        for name, value in params.items():
            if name not in _SETTINGS:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self!r}: expected one of "
                    f"{', '.join(_SETTINGS)}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not _SETTINGS[name].default and not isinstance(value, np.ndarray)
        )
        return f"LogisticRegression({shown})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags  # noqa: PLC0415 - start-up: likewise

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(poor_score=True),
            non_deterministic=True,
        )

    def _read_rows(self, X: Any) -> dict[str, NDArray[np.float64]]:
        from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: PLC0415 - start-up: likewise

        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return {f"x{at}": X[:, at] for at in range(X.shape[1])}

    def _choose_bounds(
        self, X: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.bounds is not None:
            low, high = (np.broadcast_to(end, X.shape[1]).astype(float) for end in self.bounds)
            return low, high
        warnings.warn(
            "bounds were read off X, which epsilon does not cover: give bounds=(low, high).",
            PrivacyWarning,
            stacklevel=3,
        )
        low, high = X.min(axis=0), X.max(axis=0)
        return low, np.where(high - low > _MIN_WIDTH, high, low + 1.0)

    def _build_job(self) -> dict[str, Any]:
        keys: dict[str, Any] = {"data.test-fraction": 0.0, "run.baseline": False}
        if self.ledger is not None:
            keys |= {"privacy.ledger": str(self.ledger), "privacy.dataset": _DATASET}
            keys["privacy.dataset-epsilon"] = self.epsilon if self.budget is None else self.budget
        return keys | dict(self.job or {})

    def _warn_of_sum(self) -> None:
        if self.ledger is not None:
            return
        if LogisticRegression._fits_without_ledger:
            warnings.warn(
                "fits on records they share add up: pass ledger= to account for them, or choose "
                "settings on public data.",
                PrivacyWarning,
                stacklevel=3,
            )
        LogisticRegression._fits_without_ledger += 1


_MIN_WIDTH = 1e-9
_SETTINGS = dict(inspect.signature(LogisticRegression).parameters)
"""Parameters of the constructor by name."""
