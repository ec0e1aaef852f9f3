"""Clipped sums of chains of linear layers in whole numbers: a record's share is its own, exactly.

A chain is z_l = W_l a_{l−1} + b_l with a_l = φ(z_l), φ of ReLU, tanh, factors, trained by softmax
cross entropy. A record's gradient of a layer is δ_l ⊗ (a_{l−1}, 1), as ghost clipping has it
(Goodfellow 2015, arXiv:1510.01799).

**A record's share is a function of the record, θ and public numbers.** Weights, activations and
slopes δ are whole numbers times a power of two: of `Grid.weights` bits below the layer's largest
weight, which is public, and of `Grid.values` bits below the record's own largest value. The layers'
widths leave these bits such that every product of matrices adds whole numbers up to less than 2⁵³:
exact, in any order, any number of threads, beside anybody. Between products there is arithmetic
value by value that IEEE 754 rounds correctly, and exp of such (`parley.client.models.exact_math`).
Numbers beyond 2²⁰⁰ are cut to it; a θ that is NaN counts as 0.

**It is no longer than C.** With the norms of these factors, which are exact sums, the slopes are
scaled by min(1, C/norm) and rounded to whole numbers of the unit u, a power of two; the factor
makes room for that rounding. None of this is trusted: `keep_factored` then asks the whole numbers
themselves whether they lie in the ball of ⌊C/u⌋, and drops a record that does not.

Sums are exact and held in float64: ⌊C/u⌋ ≤ 2³³, and no batch has more than 2²⁰ records
(`parley.client.dp_sgd.batches.check_records`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.client.models.exact_math import exp, tanh
from parley.privacy.kernel.rows import keep_factored, outer_sum, squares

Array = NDArray[np.float64]

_LARGEST: Final = 200
"""log₂ of the largest number that a layer takes, and of the inverse of the least."""

_COUNTED: Final = 32
"""Bits of a chance before it is divided by the sum of all."""


@dataclass(frozen=True)
class Layer:
    """A linear layer, and what is done to its inputs before.

    Attributes:
        before: value by value, in this order: "relu", "tanh", or a factor.
    """

    inputs: int
    outputs: int
    bias: bool
    before: tuple[str | float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Bits of the whole numbers of a chain."""

    values: int
    weights: int

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> Grid:
        """The widest layer's: values · weights · width ≤ 2⁵²."""
        bits = 52 - (_width(layers) - 1).bit_length()
        return cls(values=bits * 2 // 5, weights=bits - bits * 2 // 5)

    @staticmethod
    def fits(layers: Sequence[Layer]) -> bool:
        """Whether enough bits are left: 24, for values and weights together."""
        return _width(layers) <= 1 << 28


@dataclass(frozen=True)
class _Whole:
    """Whole numbers `[…, n, p]` times powers of two `[…, n, 1]`."""

    numbers: Array
    unit: Array

    @classmethod
    def of(cls, values: Array, bits: int, *, one: bool = False) -> _Whole:
        """Of rows `[…, n, p]`, each by itself, the largest just below 2^bits; with `one`, and 1."""
        wide = values.shape[-1]
        largest = np.maximum(values.max(-1, keepdims=True), -values.min(-1, keepdims=True))
        if one:
            largest = np.maximum(largest, 1.0)
        power = np.clip(np.frexp(largest)[1], -_LARGEST, _LARGEST) - bits
        scale = np.ldexp(1.0, -power)
        numbers = np.empty((*values.shape[:-1], wide + one))
        np.multiply(values, scale, out=numbers[..., :wide])
        numbers[..., wide:] = scale
        np.rint(numbers, out=numbers)
        if (largest > 2.0**_LARGEST).any():
            np.clip(numbers, -(2.0**bits), 2.0**bits, out=numbers)
        return cls(numbers, np.ldexp(1.0, power))

    def times(self, other: _Whole, matrix: Array) -> Array:
        """This times another's numbers, exactly, then times both units."""
        found: Array = self.numbers @ matrix
        found *= self.unit * other.unit
        return found


@dataclass(frozen=True)
class Chain:
    """A chain at a θ, or at one of each of B parties.

    Attributes:
        class_weights: of the labels; (): all 1.
    """

    layers: tuple[Layer, ...]
    class_weights: tuple[float, ...]
    weights: tuple[_Whole, ...]
    grid: Grid

    @classmethod
    def at(
        cls, layers: tuple[Layer, ...], theta: Array, class_weights: tuple[float, ...] = ()
    ) -> Chain:
        """At θ `[B, d]`: of every layer W `[o, i]`, then b `[o]`."""
        grid, weights, at = Grid.of(layers), [], 0
        finite = np.nan_to_num(theta, nan=0.0)
        for layer in layers:
            shape = (len(theta), layer.outputs, layer.inputs + layer.bias)
            joined, end = np.empty(shape), at + layer.outputs * layer.inputs
            joined[..., : layer.inputs] = finite[:, at:end].reshape(*shape[:2], layer.inputs)
            at = end + layer.outputs * layer.bias
            joined[..., layer.inputs :] = finite[:, end:at, None]
            found = _Whole.of(joined.reshape(len(theta), 1, -1), grid.weights)
            weights.append(_Whole(found.numbers.reshape(shape), found.unit))
        return cls(layers, class_weights, tuple(weights), grid)

    def of(self, who: NDArray[np.int64]) -> Chain:
        """At the θ of these parties; of all where there is one."""
        if len(self.weights[0].unit) == 1:
            return self
        own = tuple(_Whole(each.numbers[who], each.unit[who]) for each in self.weights)
        return replace(self, weights=own)

    def clipped(
        self,
        x: Array,
        y: NDArray[np.int64],
        there: NDArray[np.bool_],
        radius: int | None,
        grid_bits: int,
    ) -> tuple[Array, Array]:
        """`[B, d]` sums of B parties' records, and `[B]` Σ of +1 a clipped and −1 another record.

        Args:
            x, y: `[B, w, p]`, `[B, w]`.
            there: `[B, w]` what is a record, and not a row that is only worked on.
            radius: of the ball of whole numbers times 2^-grid_bits that shares are in; None: whole
                gradients, on a grid as of the party's longest, of which nothing is promised.
        """
        there = there & np.isfinite(x).all(-1)
        inputs, slopes, units = self._shares(np.where(there[..., None], x, 0.0), y)
        sizes = [squares(a)[..., None] for a in inputs]
        own = [n * squares(b)[..., None] for n, b in zip(sizes, slopes, strict=True)]
        # A layer whose inputs are all 0 adds nothing, whatever its slopes.
        units = [np.where(n > 0, u, 0.0) for n, u in zip(own, units, strict=True)]
        norms = np.sqrt(sum((n * (u * u) for n, u in zip(own, units, strict=True)), np.zeros(1)))
        if radius is None:
            scale, factors = _own_units(norms, there[..., None]), np.ones_like(norms)
        else:
            scale = np.full((1, 1, 1), 2.0**grid_bits)
            halves = [math.sqrt(layer.outputs) / 2 for layer in self.layers]
            off = sum((np.sqrt(n) * h for n, h in zip(sizes, halves, strict=True)), np.zeros(1))
            factors = _factors(norms * scale, off, radius)
        times = scale * np.where(there[..., None], factors, 0.0)
        for b, u in zip(slopes, units, strict=True):
            np.rint(np.multiply(b, u * times, out=b), out=b)
        if radius is not None:
            keep_factored(list(zip(inputs, slopes, strict=True)), radius**2)
        sums: list[Array] = []
        for a, b, layer in zip(inputs, slopes, self.layers, strict=True):
            both = b.swapaxes(-1, -2) @ a if radius is None else outer_sum(b, a, radius)
            both = both * (1 / scale)
            sums += [both[..., : layer.inputs], both[..., layer.inputs :]]
        total = np.concatenate([each.reshape(len(x), -1) for each in sums], axis=1)
        return total, (np.where(factors[..., 0] < 1, 1.0, -1.0) * there).sum(-1)

    def _shares(
        self, x: Array, y: NDArray[np.int64]
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Every layer's inputs `[B, w, i]` and slopes `[B, w, o]`, whole, and `[B, w, 1]` units."""
        values, seen = x, []
        for layer, weight in zip(self.layers, self.weights, strict=True):
            values, rising = _between(layer.before, values)
            whole = _Whole.of(values, self.grid.values, one=layer.bias)
            values = whole.times(weight, weight.numbers.swapaxes(-1, -2))
            seen.append((layer, weight, whole, rising))
        back = _cross_entropy_slopes(values, y)
        if self.class_weights:
            back *= np.asarray(self.class_weights)[y][..., None]
        found = []
        for layer, weight, whole, rising in reversed(seen):
            slope = _Whole.of(back, self.grid.values)
            found.append((whole.numbers, slope.numbers, whole.unit * slope.unit))
            if layer is not self.layers[0]:
                back = slope.times(weight, weight.numbers[..., : layer.inputs])
                back *= rising
        inputs, slopes, units = zip(*reversed(found), strict=True)
        return list(inputs), list(slopes), list(units)


def _width(layers: Sequence[Layer]) -> int:
    return max(max(layer.inputs + layer.bias, layer.outputs) for layer in layers)


def _factors(norms: Array, off: Array, radius: int) -> Array:
    """`[B, w, 1]` what slopes are multiplied by, of norms in units; at most 1.

    Args:
        off: how much longer rounding to whole numbers may make them.
    """
    aim = np.maximum(radius * (1 - 2.0**-30) - off, 0.0)
    with np.errstate(divide="ignore"):
        return np.minimum(1.0, aim / norms)


def _own_units(norms: Array, there: NDArray[np.bool_]) -> Array:
    """`[B, 1, 1]` units in 1, such that parties' sums of whole gradients are below 2⁵²."""
    longest = np.where(there, norms, 0.0).max(-2, keepdims=True)
    bits: Array = np.ldexp(
        1.0, 50 - np.frexp(longest)[1] - np.frexp(there.sum(-2, keepdims=True))[1]
    )
    return bits


def _between(steps: tuple[str | float, ...], values: Array) -> tuple[Array, Array | float]:
    """Values after these steps, and their derivative."""
    rising: Array | float = 1.0
    for step in steps:
        if step == "relu":
            rising = rising * (values > 0.0).astype(np.float64)
            values = np.maximum(values, 0.0)
        elif step == "tanh":
            values = tanh(values)
            rising = rising * (1 - values * values)
        elif isinstance(step, float):
            values, rising = values * step, rising * step
    return values, rising


def _cross_entropy_slopes(scores: Array, y: NDArray[np.int64]) -> Array:
    """`[…, K]` softmax of scores, less 1 at the label."""
    likely = exp(scores - scores.max(-1, keepdims=True))
    likely = np.rint(likely * 2.0**_COUNTED)
    slopes: Array = likely / likely.sum(-1, keepdims=True)  # whole numbers: exact in any order
    rows = slopes.reshape(-1, slopes.shape[-1])
    rows[np.arange(len(rows)), y.ravel()] -= 1
    return slopes
