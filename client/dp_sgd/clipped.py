"""What every record adds to a clipped sum: kept apart, in the numbers whose norms were taken.

A layer's part of a batch holds, for each record by itself, what its gradient g_i is made of. Its
sum Σ_i c_i·g_i is taken in float64 whatever the network's precision: products of two float32 are
exact there, so that the only rounding is that of adding, which `parley.client.dp_sgd.clipping`
bounds.

Clipping for every gradient, also one that is not finite.

θ of a network, and the plain sum of its records' gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.settings import MARGIN
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses


def shrink(clip: float) -> float:
    """The norm that gradients are clipped to: C(1 − MARGIN)."""
    return clip * (1 - MARGIN)


def clip_factors(norms: Tensor, clip: float) -> Tensor:
    """min(1, C/norm), with C a little smaller (`MARGIN`); 0 where the norm is not finite."""
    factors = torch.clamp(shrink(clip) / norms.clamp_min(1e-30), max=1.0)
    return torch.where(torch.isfinite(norms), factors, 0.0)


def counted(values: Tensor, factors: Tensor) -> Tensor:
    """Rows `[b, …]` of records whose factor `[b]` is not 0; zeros, never NaN, for the others."""
    there = (factors != 0).reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(there, values, 0.0)


def clip_signs(norms: Tensor, clip: float) -> Tensor:
    """2b − 1 of every record, in float64: 1 where its gradient was clipped, −1 where it was not.

    A line leads from one to the other over norms that are too long by less than `MARGIN`: what
    another record of the batch does to the rounding of this one's must not turn a −1 into a 1.
    A gradient without a finite norm counts as clipped.
    """
    excess = norms.double() / shrink(clip) - 1
    signs = torch.clamp(excess * (2 / MARGIN) - 1, min=-1.0, max=1.0)
    return torch.where(torch.isfinite(norms), signs, 1.0)


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that θ is made of, by name: those that are not frozen."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def clip_slack(network: nn.Module) -> float:
    """What norms are multiplied by: 1, or more where layers are too wide for `MARGIN`.

    A quarter of the margin is for the norms: in float32 that covers layers of 4,000 inputs and
    outputs, in float64 any that fit a memory.
    """
    parameters = list(trainable(network).values())
    widths = [p.shape[0] + p.numel() // p.shape[0] for p in parameters if p.numel() and p.dim()]
    roundings = max(widths, default=1) + len(parameters) + 8
    unit = torch.finfo(parameters[0].dtype).eps / 2
    return max(1.0, (1 + roundings * unit) * (1 - MARGIN / 4))


def plain_sum(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Tensor:
    """`[d]` the sum of the batch's gradients, none clipped.

    `mask` `[b]` is 1 for a record and 0 for a row that is only worked on; None: all 1.
    """
    parameters = list(trainable(network).values())
    each = losses(network, x, y)
    total = (each if mask is None else each * mask).sum()
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(-1)
            for p, g in zip(parameters, gradients, strict=True)
        ]
    )


_WRITTEN_AT_ONCE: Final = 1 << 25
"""Values of written-out gradients of one layer that are held at once; more are computed twice."""


class Part(Protocol):
    """Some parameters' gradients of a batch, record by record."""

    def counted(self, factors: Tensor) -> Part:
        """The same with zeros for records whose factor is 0."""

    def squared_norms(self) -> Tensor:
        """`[b]` of every record's gradient, never too small but for rounding."""

    def sums(self, factors: Tensor) -> list[Tensor]:
        """Σ_i factors_i·g_i of each parameter, in float64."""

    def records(self, factors: Tensor) -> list[Tensor]:
        """`[b, …]` each: all numbers that a record's share of `sums` is made of."""


@dataclass(frozen=True)
class Clipped:
    """A batch after its forward and backward pass: all that its clipped sum is made of.

    Attributes:
        factors: `[b]` that each record's gradient is multiplied by.
        norms: `[b]`.
    """

    parts: tuple[Part, ...]
    factors: Tensor
    norms: Tensor

    def total(self) -> Tensor:
        """`[d]` the clipped sum, in float64."""
        with torch.no_grad():
            sums = [own for part in self.parts for own in part.sums(self.factors)]
            return torch.cat([own.flatten() for own in sums])

    def records(self) -> list[Tensor]:
        """`[b, …]` each: every number that depends on a record."""
        own = [part.records(self.factors) for part in self.parts]
        return [self.factors, self.norms, *(tensor for part in own for tensor in part)]


def clipped(parts: tuple[Part, ...], slack: float, clip: float, mask: Tensor | None) -> Clipped:
    """Norms and factors of a batch's parts; a record without a finite norm adds zero.

    Args:
        slack: what norms are multiplied by (`parley.client.dp_sgd.clipped.clip_slack`).
    """
    with torch.no_grad():
        norms = torch.stack([part.squared_norms() for part in parts]).sum(0).sqrt() * slack
        factors = clip_factors(norms, clip)
        # Where there are shapes alone, on the meta device, one might be 0.
        if factors.is_meta or not bool(factors.all()):
            parts = tuple(part.counted(factors) for part in parts)
    return Clipped(parts, factors if mask is None else factors * mask, norms)


def _squared_norms(gradients: Tensor) -> Tensor:
    """`[b]` of what is written out, `[b, rows, …]`: within a row first, then over rows."""
    if gradients.dim() == 1:
        return gradients.square()
    if gradients.dim() > 2:
        gradients = torch.linalg.vector_norm(gradients.flatten(2), dim=2)
    squares: Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1).square()
    return squares


@dataclass(frozen=True)
class Rows:
    """A layer applied once a record: g_i = b_i a_iᵀ, so ‖g_i‖² = ‖a_i‖²·‖b_i‖²."""

    inputs: Tensor  # [b, i]
    backward: Tensor  # [b, o]
    bias: bool

    def counted(self, factors: Tensor) -> Rows:
        """See `Part`."""
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    def squared_norms(self) -> Tensor:
        """See `Part`."""
        # A factor whose squares underflowed is magnified by the other: η for each of its squares.
        least = torch.finfo(self.inputs.dtype).tiny
        inputs = _squared_norms(self.inputs) + self.inputs.shape[1] * least
        backward = _squared_norms(self.backward) + self.backward.shape[1] * least
        return (inputs + 1) * backward if self.bias else inputs * backward

    def sums(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        scaled = self._scaled(factors).double()
        weight = scaled.mT @ self.inputs.double()
        return [weight, scaled.sum(0)] if self.bias else [weight]

    def records(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        return [self.inputs, self._scaled(factors)]

    def _scaled(self, factors: Tensor) -> Tensor:
        return self.backward * factors[:, None]


@dataclass(frozen=True)
class Places:
    """A layer applied at T places of a record: g_i = B_i A_iᵀ, written out."""

    inputs: Tensor  # [b, i, T]
    backward: Tensor  # [b, o, T]
    bias: bool

    def counted(self, factors: Tensor) -> Places:
        """See `Part`."""
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    def squared_norms(self) -> Tensor:
        """See `Part`."""
        squares = torch.cat([_squared_norms(written) for _, written in self._written()])
        return squares + _squared_norms(self.backward.sum(2)) if self.bias else squares

    def sums(self, factors: Tensor) -> list[Tensor]:
        """See `Part`: of the numbers whose norms were taken, not of a product in another order."""
        own = factors.double()
        bias = own @ self.backward.sum(2).double()
        weight = own.new_zeros(self.backward.shape[1] * self.inputs.shape[1])
        for rows, written in self._written():
            weight += own[rows] @ written.flatten(1).double()
        return [weight, bias] if self.bias else [weight]

    def records(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        del factors
        return [*(written for _, written in self._written()), self.backward.sum(2)]

    def _written(self) -> Iterator[tuple[slice, Tensor]]:
        """Gradients `[b, o, i]` of some records at a time; kept where all of them fit."""
        records, values = len(self.inputs), self.inputs.shape[1] * self.backward.shape[1]
        step = max(1, _WRITTEN_AT_ONCE // values)
        for at in range(0, max(records, 1), step):
            rows = slice(at, at + step)
            kept: Tensor | None = self.__dict__.get("kept")
            if kept is None:
                kept = self.backward[rows] @ self.inputs[rows].transpose(1, 2)
                if records <= step:
                    self.__dict__["kept"] = kept
            yield rows, kept


@dataclass(frozen=True)
class Written:
    """One parameter's gradients, written out."""

    gradients: Tensor  # [b, …]

    def counted(self, factors: Tensor) -> Written:
        """See `Part`."""
        return Written(counted(self.gradients, factors))

    def squared_norms(self) -> Tensor:
        """See `Part`."""
        return _squared_norms(self.gradients)

    def sums(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        return [factors.double() @ self.gradients.flatten(1).double()]

    def records(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        del factors
        return [self.gradients]
