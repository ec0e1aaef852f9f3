"""What is learned: `[model]`, a section of another form for each `kind`.

A form is a model's row at the server: its keys, its title, how labels are read, and the loss that
its keys make. What a run wants to know of a model it asks here, and nobody asks for its name.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from parley.client.models import linear_losses, own_losses
from parley.client.models.class_weights import apply_class_weights
from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Loss
from parley.client.models.loss_table import build_tabled_loss
from parley.client.models.own_code import load_function
from parley.safe_io.path_names import get_public_name
from parley.server.jobs.external_references import CodeReference, FilePath, TextSettings
from parley.server.jobs.section_base import Auto, JobError, JobSection, Positive, replace_auto

_KIND_DESCRIPTION = (
    "What the label of data.schema is for, where a job says none: logistic of positive and "
    "negative, softmax of classes, ridge of a range. "
    f"{' | '.join(linear_losses.LOSSES)}; with algorithm.kind = "
    "'fedavg': mlp | pca-mlp | cnn, or your own, 'module:function' or 'file.py:function', where "
    "function(features, classes) gives a torch.nn.Module; table with marginals; none with an "
    "algorithm of your own."
)
_WEIGHTS_DESCRIPTION = (
    "Public weights of the labels in their order (negative, positive; or the classes'): a record "
    "of class k counts so many times. Never from counts of records. Linear models pay for the "
    "largest in noise; [] for none."
)


class ModelSection(JobSection):
    """What they learn.

    Attributes:
        learns: in which world its simulation runs.
        label: how a party reads its labels: as for that loss, or as a network's classes.
        bounded_everywhere: whether a record's gradient is bounded at every θ.
        residuals: whether a slope is what a prediction is off by.
    """

    title: ClassVar[str] = ""
    learns: ClassVar[Literal["linear", "network", "nothing"]] = "network"
    label: ClassVar[str] = "network"
    metric: ClassVar[str] = "accuracy"
    measured: ClassVar[bool] = True
    bounded_everywhere: ClassVar[bool] = True
    residuals: ClassVar[bool] = False

    kind: CodeReference = Field("logistic", description=_KIND_DESCRIPTION)

    def label_kind(self, classes: int) -> str:
        """The linear model whose labels they are read as, K given; of a network: class numbers."""
        if self.label != "network":
            return self.label
        return "softmax" if classes else "logistic"

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant; a network has its own biases."""
        return False

    @property
    def regularisation(self) -> float:
        """λ of (λ/2)‖θ‖², of the intercept too; a network has none."""
        own: float | Auto = getattr(self, "lambda_", 0.0)
        return replace_auto(own, 0.01)

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return tuple(getattr(self, "hidden", ()))

    @property
    def label_weights(self) -> tuple[float, ...]:
        """Public weights of the labels, in their order; (): every record counts once."""
        return tuple(getattr(self, "class_weights", ()))

    @property
    def component_count(self) -> int | None:
        """Principal components that rows are projected on; None: they are not."""
        return getattr(self, "components", None)

    @property
    def components_share(self) -> float:
        """Of μ² of the budget, for the components' own release; 0 where there is none."""
        return 0.0

    @property
    def components_file(self) -> str:
        """Where public components are; empty: nowhere."""
        return str(getattr(self, "pca_file", ""))

    @property
    def is_feature_map_open(self) -> bool:
        """Whether its features are left to a rule, which has not chosen yet."""
        return getattr(self, "features", "none") == "auto"

    @property
    def feature_map(self) -> dict[str, Any]:
        """Name and settings of the public map that records are learned from through; {}: none."""
        return {}

    @property
    def is_mapped(self) -> bool:
        """Whether records are learned from through a map, or may be."""
        return self.is_feature_map_open or bool(self.feature_map)

    def build_linear_model(self, features: int, classes: int) -> LinearModel:
        """For records of so many columns, before the intercept's; raises JobError."""
        raise NotImplementedError


class _LabelledModelSection(ModelSection):
    class_weights: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = Field(
        [], max_length=64, description=_WEIGHTS_DESCRIPTION
    )


class MlpSection(_LabelledModelSection):
    """A network of plain layers."""

    title: ClassVar[str] = "multilayer perceptron"

    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        [1000], description="mlp, pca-mlp: units of each hidden layer."
    )


class PcaMlpSection(MlpSection):
    """A network of plain layers on principal components."""

    title: ClassVar[str] = "multilayer perceptron on principal components"

    components: int = Field(60, ge=1, description="pca-mlp: principal components kept.")
    pca: Literal["public", "private"] = Field(
        "private",
        description="pca-mlp: private computes the components from the parties' records, by one "
        "noisy release that is charged; public takes them from pca-file or from the held-out "
        "records (data.test-fraction, data.test-source), which you thereby declare public, and "
        "charges nothing.",
    )
    pca_file: FilePath = Field(
        "",
        description="pca-mlp, pca = 'public': a .safetensors file with the components as a float64 "
        "tensor `components` [features, components]: computed from public records, or the "
        "model.safetensors of an earlier run. Real parties with pca = 'public' need it.",
    )
    pca_share: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="pca-mlp, pca = 'private': that share of μ² of the budget goes to the "
        "components.",
    )

    @model_validator(mode="after")
    def _check(self) -> PcaMlpSection:
        if self.pca == "private" and self.pca_file:
            raise ValueError(
                f"Expected model.pca-file = '' (it needs model.pca = 'public'), got "
                f"{self.pca_file!r}."
            )
        usual = type(self).model_fields["pca_share"].default
        if self.pca == "public" and self.pca_share != usual:
            raise ValueError(
                f"Expected model.pca-share = {usual} (it needs model.pca = 'private'), got "
                f"{self.pca_share}."
            )
        return self

    @property
    def components_share(self) -> float:
        """Of μ² of the budget, for the components' own release; 0 where they are public."""
        return self.pca_share if self.pca == "private" else 0.0


class CnnSection(_LabelledModelSection):
    """A small convolutional network."""

    title: ClassVar[str] = "convolutional network"


class OwnNetworkSection(_LabelledModelSection):
    """Your own network, 'module:function' or 'file.py:function'."""


class NoModelSection(ModelSection):
    """Nothing is learned."""

    title: ClassVar[str] = "statistic"
    learns: ClassVar[Literal["linear", "network", "nothing"]] = "nothing"
    measured: ClassVar[bool] = False


class TableModelSection(NoModelSection):
    """The table itself: every column as a code of the public schema."""

    title: ClassVar[str] = "generator of synthetic records"

    @property
    def feature_map(self) -> dict[str, Any]:
        """Codes."""
        return {"name": "codes", "settings": {}}


class LinearSection(ModelSection):
    """A linear model with a strongly convex objective."""

    learns: ClassVar[Literal["linear", "network", "nothing"]] = "linear"
    label: ClassVar[str] = "logistic"

    features: CodeReference = Field(
        "auto",
        min_length=1,
        description="Public map of every record by itself that is learned from: none | scattering "
        "(images) | random-fourier | bins | hats (tables), or your own frozen one, "
        "'file.py:function' or 'module:function', where function(columns) gives a torch.nn.Module "
        "(docs/features.md). auto: numbers as hats where ε, records and parties pay for them, by "
        "the rule of algorithm.rounds; else none.",
    )
    feature_settings: TextSettings = Field(
        {}, description="Settings of the map, by their names (docs/features.md)."
    )

    lambda_: Positive | Auto = Field(
        "auto",
        alias="lambda",
        description="Regularisation (λ/2)‖θ‖²; note the ½. auto: .01, or with algorithm.rounds = "
        "'auto' by its rule.",
    )
    intercept: bool | Auto = Field(
        "auto",
        description="Append a constant to every record, rescale to norm ≤ 1 and regularise it "
        "too (an unregularised intercept would void the sensitivity). auto: true, but with hats: "
        "those of a column add up to 1.",
    )

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
        """Name and settings of the map of features; {}: none."""
        if self.is_feature_map_open:
            raise JobError("Expected settled features, got model.features = 'auto'.")
        if self.features == "none":
            return {}
        return {"name": get_public_name(self.features), "settings": dict(self.feature_settings)}

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant."""
        return replace_auto(self.intercept, self.features != "hats")

    def build_loss(self, classes: int) -> Loss:
        """The loss, unweighted, of K classes; raises JobError."""
        raise NotImplementedError

    def build_linear_model(self, features: int, classes: int) -> LinearModel:
        """The loss, weighted, over margins of the row and the intercept's constant."""
        plain = self.build_loss(classes)
        try:
            loss = apply_class_weights(plain, self.label_weights)
        except ValueError as error:
            raise JobError(f"model.class-weights: {error}") from error
        return LinearModel(loss=loss, features=features + self.has_intercept)


class LogisticSection(LinearSection, _LabelledModelSection):
    """Logistic regression."""

    title: ClassVar[str] = "logistic regression"

    def build_loss(self, _: int) -> Loss:
        """Of −1 and +1."""
        return linear_losses.LogisticLoss()


class SoftmaxSection(LinearSection, _LabelledModelSection):
    """Softmax regression."""

    title: ClassVar[str] = "softmax regression"
    label: ClassVar[str] = "softmax"

    def build_loss(self, classes: int) -> Loss:
        """Of K classes."""
        return linear_losses.SoftmaxLoss(classes=classes)


class RidgeSection(LinearSection):
    """Ridge regression in a ball."""

    title: ClassVar[str] = "ridge regression"
    label: ClassVar[str] = "ridge"
    metric: ClassVar[str] = "r2"
    bounded_everywhere: ClassVar[bool] = False
    residuals: ClassVar[bool] = True

    radius: Positive | Auto = Field(
        "auto",
        description="ridge: θ is kept in the ball ‖θ‖ ≤ radius. auto: 1; with "
        "algorithm.rounds = 'auto' 8 (docs/methods.md).",
    )
    label_bound: Positive = Field(1.0, description="ridge: |y| ≤ label-bound after scaling.")

    def build_loss(self, _: int) -> Loss:
        """Of targets."""
        return linear_losses.SquaredLoss(
            radius=replace_auto(self.radius, 1.0), label_bound=self.label_bound
        )


class HuberSvmSection(LinearSection, _LabelledModelSection):
    """A support vector machine with a smooth hinge."""

    title: ClassVar[str] = "Huber SVM"

    huber_width: Positive = Field(0.5, description="huber-svm: half-width h of the smooth part.")

    def build_loss(self, _: int) -> Loss:
        """Of −1 and +1."""
        return linear_losses.HuberSVM(width=self.huber_width)


class OwnLossSection(LinearSection, _LabelledModelSection):
    """A linear model of two labels with a loss of your own."""

    title: ClassVar[str] = "linear model with a loss of your own"
    loss_class: ClassVar[type[own_losses.TabledSignLoss | own_losses.TabledResidualLoss]] = (
        own_losses.TabledSignLoss
    )

    loss: CodeReference = Field(
        "",
        description="own-loss, own-residual-loss: your function, 'file.py:function' or "
        "'module:function', of one record's margin and label, loss(z, y), convex in z. It is asked "
        "at public points and becomes a table (docs/extending.md).",
    )
    lipschitz: Positive = Field(
        1.0, description="own-loss, own-residual-loss: G, the steepest slope that you state."
    )
    steeper: Literal["refuse", "clip"] = Field(
        "refuse",
        description="own-loss, own-residual-loss: what a slope steeper than stated is: refused, or "
        "clipped to the stated one.",
    )

    @model_validator(mode="after")
    def _check_loss(self) -> OwnLossSection:
        if ":" not in self.loss:
            raise ValueError(
                f"Expected model.loss = 'file.py:function' with model.kind = {self.kind!r}, got "
                f"{self.loss!r}."
            )
        return self

    def build_loss(self, _: int) -> Loss:
        """The table of the function that the job names, which this runs."""
        try:
            function = load_function(self.loss, what="loss")
            return build_tabled_loss(
                self.loss_class, function, lipschitz=self.lipschitz, steeper=self.steeper
            )
        except ValueError as error:
            remedy = " (model.steeper = 'clip' clips them)" if "as stated" in str(error) else ""
            raise JobError(f"model.loss = {self.loss!r}: {error}{remedy}") from error


class OwnResidualLossSection(OwnLossSection):
    """A linear model of targets with a loss of your own."""

    title: ClassVar[str] = "linear regression with a loss of your own"
    label: ClassVar[str] = "ridge"
    metric: ClassVar[str] = "r2"
    loss_class = own_losses.TabledResidualLoss


MODELS: dict[str, type[ModelSection]] = {
    "mlp": MlpSection,
    "pca-mlp": PcaMlpSection,
    "cnn": CnnSection,
    "module:function": OwnNetworkSection,
    "none": NoModelSection,
    "table": TableModelSection,
    "logistic": LogisticSection,
    "softmax": SoftmaxSection,
    "ridge": RidgeSection,
    "huber-svm": HuberSvmSection,
    "own-loss": OwnLossSection,
    "own-residual-loss": OwnResidualLossSection,
}
"""`model.kind` → its form of the section; keys are printed in this order."""


def list_model_kinds(learned: str) -> tuple[str, ...]:
    """The kinds of `[model]` that learn such."""
    return tuple(kind for kind, form in MODELS.items() if form.learns == learned)
