"""Forms of `[model]` that are networks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from parley.server.jobs.external_references import FilePath
from parley.server.jobs.model_base import LabelledModelSection


class MlpSection(LabelledModelSection):
    """A fully connected network."""

    title: ClassVar[str] = "multilayer perceptron"

    hidden: list[Annotated[int, Field(ge=1)]] = Field([1000])
    """mlp, pca-mlp: units of each hidden layer."""


class PcaMlpSection(MlpSection):
    """A fully connected network on principal components."""

    title: ClassVar[str] = "multilayer perceptron on principal components"

    components: int = Field(60, ge=1)
    """pca-mlp: number of principal components."""

    pca: Literal["public", "private"] = "private"
    """pca-mlp: private computes the components from the parties' records, by one noisy release that
    is charged. public takes them from pca-file or from the held-out records (data.test-fraction,
    data.test-source), which you thereby declare public, and charges nothing.
    """

    pca_file: FilePath = ""
    """pca-mlp, pca = 'public': a .safetensors file with the components as a float64 tensor
    `components` [features, components]: computed from public records, or the model.safetensors of
    an earlier run. Real parties with pca = 'public' need it.
    """

    pca_share: float = Field(0.05, gt=0, lt=1)
    """pca-mlp, pca = 'private': share of the budget's μ² that goes to the components."""

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
        """Share of the budget's μ² for the components' own release; 0 if they are public."""
        return self.pca_share if self.pca == "private" else 0.0


class CnnSection(LabelledModelSection):
    """A small convolutional network."""

    title: ClassVar[str] = "convolutional network"


class OwnNetworkSection(LabelledModelSection):
    """Your own network, 'module:function' or 'file.py:function'."""
