"""Forms of `[model]` for linear models with a loss of your own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from parley.client.models import tabulated_losses
from parley.client.models.loss_base import Loss
from parley.client.models.own_loss_tabulation import build_tabled_loss
from parley.client.own_code.own_code_loading import load_function
from parley.server.jobs.external_references import CodeReference
from parley.server.jobs.linear_models import LinearSection
from parley.server.jobs.model_base import LabelledModelSection
from parley.server.jobs.section_base import JobError, Positive


class OwnLossSection(LinearSection, LabelledModelSection):
    """A linear model of two labels with a loss of your own."""

    title: ClassVar[str] = "linear model with a loss of your own"
    loss_class: ClassVar[
        type[tabulated_losses.TabledSignLoss | tabulated_losses.TabledResidualLoss]
    ] = tabulated_losses.TabledSignLoss

    loss: CodeReference = ""
    """own-loss, own-residual-loss: your function, 'file.py:function' or 'module:function', of one
    record's margin and label, loss(z, y), convex in z. It is evaluated at public points and becomes
    a table (docs/extending.md).
    """

    lipschitz: Positive = 1.0
    """own-loss, own-residual-loss: G, the steepest slope you state."""

    steeper: Literal["refuse", "clip"] = "refuse"
    """own-loss, own-residual-loss: whether a slope steeper than stated is refused, or clipped to
    the stated one.
    """

    @model_validator(mode="after")
    def _check_loss(self) -> OwnLossSection:
        if ":" not in self.loss:
            raise ValueError(
                f"Expected model.loss = 'file.py:function' with model.kind = {self.kind!r}, got "
                f"{self.loss!r}."
            )
        return self

    def build_loss(self, _: int) -> Loss:
        """Build the table of the function that the job names. This runs the function."""
        try:
            function = load_function(self.loss, what="loss")
            return build_tabled_loss(
                self.loss_class, function, lipschitz=self.lipschitz, steeper=self.steeper
            )
        except ValueError as error:
            clip = " To clip them, set model.steeper = 'clip'."
            remedy = clip if "as stated" in str(error) else ""
            raise JobError(f"model.loss = {self.loss!r}: {error}{remedy}") from error


class OwnResidualLossSection(OwnLossSection):
    """A linear model of targets with a loss of your own."""

    title: ClassVar[str] = "linear regression with a loss of your own"
    label: ClassVar[str] = "ridge"
    metric: ClassVar[str] = "r2"
    loss_class = tabulated_losses.TabledResidualLoss
