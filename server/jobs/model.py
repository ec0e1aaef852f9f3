"""What is learned: `[model]`, a section of another form for each `kind`.

A linear model has a strongly convex objective; a network learns by federated averaging; an
algorithm of your own may learn nothing. What else a run wants to know of a model is a property
here, so that nobody asks for its name.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from parley.client.contract.model_names import public_name
from parley.server.jobs.naming import CodeReference, FilePath, TextSettings
from parley.server.jobs.section import Positive, Section

_KIND = (
    "logistic | softmax | ridge | huber-svm | own-loss | own-residual-loss; with algorithm.kind = "
    "'fedavg': mlp | pca-mlp | cnn, or your own, 'module:function' or 'file.py:function', where "
    "function(features, classes) gives a torch.nn.Module; table with marginals; none with an "
    "algorithm of your own."
)


_WEIGHTS = (
    "Public weights of the labels in their order (negative, positive; or the classes'): a record "
    "of class k counts so many times. Never from counts of records. Linear models pay for the "
    "largest in noise; [] for none."
)


class ModelSection(Section):
    """What they learn.

    Attributes:
        learns: in which world its simulation runs.
        metric: of held-out records.
        measured: whether there is one.
        bounded_everywhere: whether a record's gradient is bounded at every θ.
    """

    learns: ClassVar[Literal["linear", "network", "nothing"]] = "network"
    metric: ClassVar[str] = "accuracy"
    measured: ClassVar[bool] = True
    bounded_everywhere: ClassVar[bool] = True

    kind: CodeReference = Field("logistic", description=_KIND)

    @property
    def label(self) -> str:
        """How a party reads its labels: as a linear model wants them, or as a network's classes."""
        return "network"

    def label_kind(self, classes: int) -> str:
        """The linear model whose labels they are read as, K given; of a network: class numbers."""
        return "softmax" if classes else "logistic"

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant; a network has its own biases."""
        return False

    @property
    def regularisation(self) -> float:
        """λ of (λ/2)‖θ‖²; a network has none."""
        return 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return ()

    @property
    def projected(self) -> int | None:
        """Principal components that rows are projected on; None: they are not."""
        return None

    @property
    def components_share(self) -> float:
        """Of μ² of the budget, for the components' own release; 0 where there is none."""
        return 0.0

    @property
    def components_file(self) -> str:
        """Where public components are; empty: nowhere."""
        return ""

    @property
    def feature_map(self) -> dict[str, Any]:
        """Name and settings of the public map that records are learned from through; {}: none."""
        return {}

    @property
    def weights_of_classes(self) -> tuple[float, ...]:
        """Public weights of the labels, in their order; (): every record counts once."""
        return tuple(getattr(self, "class_weights", ()))


class _OfLabels(ModelSection):
    class_weights: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = Field(
        [], max_length=64, description=_WEIGHTS
    )


class _Layers(_OfLabels):
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        [1000], description="mlp, pca-mlp: units of each hidden layer."
    )

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return tuple(self.hidden)


class Mlp(_Layers):
    """A network of plain layers."""

    kind: Literal["mlp"] = Field("mlp", description=_KIND)


class PcaMlp(_Layers):
    """A network of plain layers on principal components."""

    kind: Literal["pca-mlp"] = Field("pca-mlp", description=_KIND)
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
    def _check(self) -> PcaMlp:
        if self.pca == "private" and self.pca_file:
            raise ValueError(
                f"Expected model.pca-file = '' (it needs model.pca = 'public'), got "
                f"{self.pca_file!r}."
            )
        return self

    @property
    def projected(self) -> int | None:
        """Principal components that rows are projected on."""
        return self.components

    @property
    def components_share(self) -> float:
        """Of μ² of the budget, for the components' own release; 0 where they are public."""
        return self.pca_share if self.pca == "private" else 0.0

    @property
    def components_file(self) -> str:
        """Where public components are; empty: nowhere."""
        return self.pca_file


class Cnn(_OfLabels):
    """A small convolutional network."""

    kind: Literal["cnn"] = Field("cnn", description=_KIND)


class OwnNetwork(_OfLabels):
    """Your own network, 'module:function' or 'file.py:function'."""


class NoModel(ModelSection):
    """Nothing is learned."""

    learns: ClassVar[Literal["linear", "network", "nothing"]] = "nothing"
    measured: ClassVar[bool] = False

    kind: Literal["none"] = Field("none", description=_KIND)


class TableModel(NoModel):
    """The table itself: every column as a code of the public schema."""

    kind: Literal["table"] = Field("table", description=_KIND)  # type: ignore[assignment]

    @property
    def feature_map(self) -> dict[str, Any]:
        """Codes."""
        return {"name": "codes", "settings": {}}


class Linear(ModelSection):
    """A linear model with a strongly convex objective."""

    learns: ClassVar[Literal["linear", "network", "nothing"]] = "linear"

    features: CodeReference = Field(
        "none",
        min_length=1,
        description="Public map of every record by itself that is learned from: none | scattering "
        "(images) | random-fourier | bins | hats (tables), or your own frozen one, "
        "'file.py:function' or 'module:function', where function(columns) gives a torch.nn.Module "
        "(docs/features.md).",
    )
    feature_settings: TextSettings = Field(
        {}, description="Settings of the map, by their names (docs/features.md)."
    )

    lambda_: Positive = Field(
        0.01, alias="lambda", description="Regularisation (λ/2)‖θ‖²; note the ½."
    )
    intercept: bool = Field(
        True,
        description="Append a constant to every record, rescale to norm ≤ 1 and regularise it "
        "too (an unregularised intercept would void the sensitivity).",
    )

    @model_validator(mode="after")
    def _check_features(self) -> Linear:
        if self.features == "none" and self.feature_settings:
            raise ValueError(
                "Expected model.feature-settings = {} (they need model.features), got "
                f"{self.feature_settings!r}."
            )
        return self

    @property
    def feature_map(self) -> dict[str, Any]:
        """Name and settings of the map of features; {}: none."""
        if self.features == "none":
            return {}
        return {"name": public_name(self.features), "settings": dict(self.feature_settings)}

    @property
    def label(self) -> str:
        """As this model wants them."""
        return self.kind

    def label_kind(self, classes: int) -> str:
        """This one's."""
        del classes
        return self.kind

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant."""
        return self.intercept

    @property
    def regularisation(self) -> float:
        """λ, of the intercept too."""
        return self.lambda_


class Logistic(Linear, _OfLabels):
    """Logistic regression."""

    kind: Literal["logistic"] = Field("logistic", description=_KIND)


class Softmax(Linear, _OfLabels):
    """Softmax regression."""

    kind: Literal["softmax"] = Field("softmax", description=_KIND)


class Ridge(Linear):
    """Ridge regression in a ball."""

    metric: ClassVar[str] = "r2"
    bounded_everywhere: ClassVar[bool] = False

    kind: Literal["ridge"] = Field("ridge", description=_KIND)
    radius: Positive = Field(1.0, description="ridge: θ is kept in the ball ‖θ‖ ≤ radius.")
    label_bound: Positive = Field(1.0, description="ridge: |y| ≤ label-bound after scaling.")


class HuberSvm(Linear, _OfLabels):
    """A support vector machine with a smooth hinge."""

    kind: Literal["huber-svm"] = Field("huber-svm", description=_KIND)
    huber_width: Positive = Field(0.5, description="huber-svm: half-width h of the smooth part.")


class OwnLoss(Linear, _OfLabels):
    """A linear model of two labels with a loss of your own."""

    kind: Literal["own-loss"] = Field("own-loss", description=_KIND)
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
    def _check_loss(self) -> OwnLoss:
        if ":" not in self.loss:
            raise ValueError(
                f"Expected model.loss = 'file.py:function' with model.kind = {self.kind!r}, got "
                f"{self.loss!r}."
            )
        return self

    @property
    def label(self) -> str:
        """−1 and +1."""
        return "logistic"

    def label_kind(self, classes: int) -> str:
        """The same."""
        del classes
        return self.label


class OwnResidualLoss(OwnLoss):
    """A linear model of targets with a loss of your own."""

    metric: ClassVar[str] = "r2"

    kind: Literal["own-residual-loss"] = Field("own-residual-loss", description=_KIND)  # type: ignore[assignment]

    @property
    def label(self) -> str:
        """Targets in [−1, 1]."""
        return "ridge"


Model = (
    Mlp
    | PcaMlp
    | Cnn
    | OwnNetwork
    | NoModel
    | TableModel
    | Logistic
    | Softmax
    | Ridge
    | HuberSvm
    | OwnLoss
    | OwnResidualLoss
)

MODELS: dict[str, type[ModelSection]] = {
    "mlp": Mlp,
    "pca-mlp": PcaMlp,
    "cnn": Cnn,
    "module:function": OwnNetwork,
    "none": NoModel,
    "table": TableModel,
    "logistic": Logistic,
    "softmax": Softmax,
    "ridge": Ridge,
    "huber-svm": HuberSvm,
    "own-loss": OwnLoss,
    "own-residual-loss": OwnResidualLoss,
}
"""`model.kind` → its form of the section; keys are printed in this order."""
