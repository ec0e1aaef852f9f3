"""What every record adds to a clipped sum: kept apart, in the numbers whose norms were taken.

A layer's part of a batch holds, for each record by itself, what its gradient g_i is made of. Its
sum Σ_i c_i·g_i is taken in float64 whatever the network's precision: products of two float32 are
exact there, so that the only rounding is that of adding, which `parley.client.dp_sgd.clipping`
bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.dp_sgd.clip_factors import clip_factors, counted

_WRITTEN_AT_ONCE: Final = 1 << 25
"""Values of written-out gradients of one layer that are held at once; more are computed twice."""


class Part(Protocol):
    """Some parameters' gradients of a batch, record by record."""

    def rows(self, rows: Tensor) -> Part:
        """Those of these records alone."""

    def counted(self, factors: Tensor) -> Part:
        """The same with zeros for records whose factor is 0."""

    def squared_norms(self) -> Tensor:
        """`[b]` of every record's gradient, never too small but for rounding."""

    def sums(self, factors: Tensor) -> list[Tensor]:
        """Σ_i factors_i·g_i of each parameter, in float64."""

    def each(self, factors: Tensor) -> list[Tensor]:
        """`[b, …]` factors_i·g_i of each parameter, written out, in float64."""

    def records(self, factors: Tensor) -> list[Tensor]:
        """`[b, …]` each: all numbers that a record's share of `sums` is made of."""


@dataclass(frozen=True)
class Clipped:
    """A batch after its forward and backward pass: all that its clipped sum is made of.

    Attributes:
        parts: in the order of θ, with how many parameters each has.
        factors: `[b]` that each record's gradient is multiplied by.
        norms: `[b]`.
    """

    parts: tuple[tuple[int, Part], ...]
    factors: Tensor
    norms: Tensor

    @property
    def size(self) -> int:
        """d."""
        return sum(size for size, _ in self.parts)

    def rows(self, rows: NDArray[np.int64]) -> Clipped:
        """The same for these records of the batch alone."""
        at = torch.as_tensor(rows, device=self.factors.device)
        parts = tuple((size, part.rows(at)) for size, part in self.parts)
        return Clipped(parts, self.factors[at], self.norms[at])

    def add_to(self, total: Tensor) -> None:
        """Adds the clipped sum to `[d]`, in float64."""
        at = 0
        for _, part in self.parts:
            for own in part.sums(self.factors):
                total[at : at + own.numel()].add_(own.reshape(-1))
                at += own.numel()

    def add_each_to(self, sums: Tensor, owners: Tensor) -> None:
        """Adds every record's clipped gradient to a row of `[B, d]`, in float64.

        Args:
            sums: of B parties.
            owners: `[b]` whose record each is.
        """
        at = 0
        for _, part in self.parts:
            for own in part.each(self.factors):
                values = own.flatten(1)
                sums[:, at : at + values.shape[1]].index_add_(0, owners, values)
                at += values.shape[1]

    def total(self) -> Tensor:
        """`[d]` the clipped sum, in float64."""
        with torch.no_grad():
            total = torch.zeros(self.size, dtype=torch.float64, device=self.factors.device)
            self.add_to(total)
        return total

    def records(self) -> list[Tensor]:
        """`[b, …]` each: every number that depends on a record."""
        own = [part.records(self.factors) for _, part in self.parts]
        return [self.factors, self.norms, *(tensor for part in own for tensor in part)]


def clipped(
    parts: tuple[tuple[int, Part], ...], slack: float, clip: float, mask: Tensor | None
) -> Clipped:
    """Norms and factors of a batch's parts; a record without a finite norm adds zero.

    Args:
        parts: in the order of θ.
        slack: what norms are multiplied by (`parley.client.dp_sgd.gradients.clip_slack`).
        clip: C.
        mask: `[b]` 1 for a record, 0 for a row that is only worked on; None: all 1.
    """
    with torch.no_grad():
        squares = [part.squared_norms() for _, part in parts]
        norms = torch.stack(squares).sum(0).sqrt() * slack
        factors = clip_factors(norms, clip)
        if _drops(factors):
            parts = tuple((size, part.counted(factors)) for size, part in parts)
    return Clipped(parts, factors if mask is None else factors * mask, norms)


def _drops(factors: Tensor) -> bool:
    """Whether a record adds zero; where there are shapes alone, on the meta device, one might."""
    return factors.is_meta or not bool(factors.all())


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

    def rows(self, rows: Tensor) -> Rows:
        """See `Part`."""
        return replace(self, inputs=self.inputs[rows], backward=self.backward[rows])

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
        weight = scaled.T @ self.inputs.double()
        return [weight, scaled.sum(0)] if self.bias else [weight]

    def each(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        scaled = self._scaled(factors).double()
        weight = scaled[:, :, None] * self.inputs.double()[:, None, :]
        return [weight, scaled] if self.bias else [weight]

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

    def rows(self, rows: Tensor) -> Places:
        """See `Part`."""
        part = replace(self, inputs=self.inputs[rows], backward=self.backward[rows])
        kept: Tensor | None = self.__dict__.get("kept")
        if kept is not None:  # the numbers whose norms were taken
            part.__dict__["kept"] = kept[rows]
        return part

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
        weight: Tensor | None = None
        for rows, written in self._written():
            own = factors[rows].double() @ written.flatten(1).double()
            own = own.view(written.shape[1:])
            weight = own if weight is None else weight + own
        if weight is None:
            shape = (self.backward.shape[1], self.inputs.shape[1])
            weight = self.inputs.new_zeros(shape, dtype=torch.float64)
        return [weight, self._bias(factors)] if self.bias else [weight]

    def each(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        own = factors.double()
        weight = torch.cat(
            [own[rows, None, None] * written.double() for rows, written in self._written()]
        )
        return [weight, own[:, None] * self.backward.sum(2).double()] if self.bias else [weight]

    def records(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        del factors
        return [*(written for _, written in self._written()), self.backward.sum(2)]

    def _bias(self, factors: Tensor) -> Tensor:
        return factors.double() @ self.backward.sum(2).double()

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

    def rows(self, rows: Tensor) -> Written:
        """See `Part`."""
        return Written(self.gradients[rows])

    def counted(self, factors: Tensor) -> Written:
        """See `Part`."""
        return Written(counted(self.gradients, factors))

    def squared_norms(self) -> Tensor:
        """See `Part`."""
        return _squared_norms(self.gradients)

    def sums(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        return [factors.double() @ self.gradients.flatten(1).double()]

    def each(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        return [factors.double()[:, None] * self.gradients.flatten(1).double()]

    def records(self, factors: Tensor) -> list[Tensor]:
        """See `Part`."""
        del factors
        return [self.gradients]
