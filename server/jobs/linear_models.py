"""Forms of `[model]` that are linear models with a strongly convex objective."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Loss
from parley.client.own_code.own_code_names import get_public_name
from parley.module_loading.plugin_table import load_attribute
from parley.server.jobs.external_references import CodeReference, TextSettings
from parley.server.jobs.model_base import LabelledModelSection, ModelSection
from parley.server.jobs.section_base import Auto, JobError, Positive, replace_auto


class LinearSection(ModelSection):
    """A linear model with a strongly convex objective."""

    learns: ClassVar[Literal["linear", "network", "nothing"]] = "linear"
    label: ClassVar[str] = "logistic"

    features: CodeReference = Field("auto", min_length=1)
    """Public feature map of each record: none | scattering (images) | random-fourier | bins | hats
    (tables), or your own frozen one, 'file.py:function' or 'module:function', where
    function(columns) returns a torch.nn.Module (docs/features.md). auto: numbers as hats (linear
    splines) if ε, records and parties pay for them, by the rule of algorithm.rounds; else none.
    """

    feature_settings: TextSettings = Field({})
    """Settings of the map, by name (docs/features.md)."""

    lambda_: Positive | Auto = Field("auto", alias="lambda")
    """Regularisation (λ/2)‖θ‖²; note the ½. auto: 0.01, or by the rule if algorithm.rounds =
    'auto'.
    """

    intercept: bool | Auto = "auto"
    """Append a constant to every record, rescale it to norm ≤ 1 and regularise it too (an
    unregularised intercept would void the sensitivity). auto: true, but false with hats, because
    those of a column add up to 1.
    """

    @model_validator(mode="after")
    def _check_features(self) -> LinearSection:
        if self.features in {"auto", "none"} and self.feature_settings:
            raise ValueError(
                "Expected model.feature-settings = {} (they need model.features), got "
                f"{self.feature_settings!r}."
            )
        return self

    @property
    def feature_map(self) -> dict[str, Any]:
        """Name and settings of the feature map; {}: none."""
        if self.is_feature_map_open:
            raise JobError("Expected a resolved job, got model.features = 'auto'.")
        if self.features == "none":
            return {}
        return {"name": get_public_name(self.features), "settings": dict(self.feature_settings)}

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant."""
        return replace_auto(self.intercept, self.features != "hats")

    def build_loss(self, classes: int) -> Loss:
        """Build the unweighted loss for K classes; raises JobError."""
        raise NotImplementedError

    def build_linear_model(self, features: int, classes: int) -> LinearModel:
        """Build the weighted loss over margins of the row and the intercept's constant."""
        loss = self.build_loss(classes)
        if self.label_weights:
            apply = load_attribute("parley.client.models.class_weights:apply_class_weights")
            try:
                loss = apply(loss, self.label_weights)
            except ValueError as error:
                raise JobError(f"model.class-weights: {error}") from error
        return LinearModel(loss=loss, features=features + self.has_intercept)


class LogisticSection(LinearSection, LabelledModelSection):
    """Logistic regression."""

    title: ClassVar[str] = "logistic regression"

    def build_loss(self, _: int) -> Loss:
        """Build the loss for labels −1 and +1."""
        from parley.client.models.logistic_loss import LogisticLoss  # noqa: PLC0415 - only for its own kind of model

        return LogisticLoss()


class SoftmaxSection(LinearSection, LabelledModelSection):
    """Softmax regression."""

    title: ClassVar[str] = "softmax regression"
    label: ClassVar[str] = "softmax"

    def build_loss(self, classes: int) -> Loss:
        """Build the loss for K classes."""
        from parley.client.models.softmax_loss import SoftmaxLoss  # noqa: PLC0415 - only for its own kind of model

        return SoftmaxLoss(classes=classes)


class RidgeSection(LinearSection):
    """Ridge regression in a ball."""

    title: ClassVar[str] = "ridge regression"
    label: ClassVar[str] = "ridge"
    metric: ClassVar[str] = "r2"
    bounded_everywhere: ClassVar[bool] = False
    residuals: ClassVar[bool] = True

    radius: Positive | Auto = "auto"
    """ridge: θ is kept in the ball ‖θ‖ ≤ radius. auto: 1, or 8 if algorithm.rounds = 'auto'
    (docs/features.md).
    """

    label_bound: Positive = 1.0
    """ridge: |y| ≤ label-bound after scaling."""

    def build_loss(self, _: int) -> Loss:
        """Build the loss for targets."""
        from parley.client.models.squared_loss import SquaredLoss  # noqa: PLC0415 - only for its own kind of model

        return SquaredLoss(radius=replace_auto(self.radius, 1.0), label_bound=self.label_bound)


class HuberSvmSection(LinearSection, LabelledModelSection):
    """A support vector machine with a smooth hinge."""

    title: ClassVar[str] = "Huber SVM"

    huber_width: Positive = 0.5
    """huber-svm: half-width h of the smooth part."""

    def build_loss(self, _: int) -> Loss:
        """Build the loss for labels −1 and +1."""
        from parley.client.models.huber_svm import HuberSVM  # noqa: PLC0415 - only for its own kind of model

        return HuberSVM(width=self.huber_width)
