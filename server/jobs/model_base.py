"""Define `[model]`, what is learned, with another form of the section for each `kind`.

A form is a model's row at the server: its keys, its title, how labels are read, and the loss it
builds. Code asks the form for a model's properties and never compares its name.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_registry import LOSSES
from parley.server.jobs.external_references import CodeReference
from parley.server.jobs.section_base import Auto, JobSection, replace_auto

_KIND_DESCRIPTION = (
    "Default: from the label in data.schema: logistic for positive and negative, softmax for "
    f"classes, ridge for a range. {' | '.join(LOSSES)}. With algorithm.kind = 'fedavg': mlp | "
    "pca-mlp | cnn, or your own, 'module:function' or 'file.py:function', where function(features, "
    "classes) returns a torch.nn.Module. table with marginals; none with an algorithm of your own."
)


class ModelSection(JobSection):
    """Base of the forms of `[model]`.

    Attributes:
        learns: which kind of simulation runs it.
        label: how a party reads its labels: as for that loss, or as a network's classes.
        bounded_everywhere: whether a record's gradient is bounded at every θ.
        residuals: whether a slope is the error of a prediction.
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
        """Return the linear model whose labels are read, given K; for a network: class numbers."""
        if self.label != "network":
            return self.label
        return "softmax" if classes else "logistic"

    @property
    def has_intercept(self) -> bool:
        """Whether rows get a constant; a network has its own biases."""
        return False

    @property
    def regularisation(self) -> float:
        """λ of (λ/2)‖θ‖², which includes the intercept; a network has none."""
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
        """Number of principal components that rows are projected on; None: no projection."""
        return getattr(self, "components", None)

    @property
    def components_share(self) -> float:
        """Share of the budget's μ² for the components' own release; 0 without one."""
        return 0.0

    @property
    def components_file(self) -> str:
        """File with public components; empty: none."""
        return str(getattr(self, "pca_file", ""))

    @property
    def is_feature_map_open(self) -> bool:
        """Whether the features are left to a rule that has not chosen yet."""
        return getattr(self, "features", "none") == "auto"

    @property
    def feature_map(self) -> dict[str, Any]:
        """Name and settings of the public feature map; {}: none."""
        return {}

    @property
    def is_mapped(self) -> bool:
        """Whether records are, or may be, learned through a feature map."""
        return self.is_feature_map_open or bool(self.feature_map)

    def build_linear_model(self, features: int, classes: int) -> LinearModel:
        """Build the model for records with `features` columns, without the intercept's; raises
        JobError.
        """
        raise NotImplementedError


class LabelledModelSection(ModelSection):
    """A model whose labels may have public weights."""

    class_weights: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = Field([], max_length=64)
    """Public weights of the labels in their order (negative, positive; or the classes'): factor by
    which a record of class k counts. Never compute them from counts of records. With linear models
    the largest weight scales the noise. [] for none.
    """
