"""Clipped sums of chains of linear layers in whole numbers: each record's term is exact.

A chain is z_l = W_l a_{l−1} + b_l with a_l = φ(z_l), φ of ReLU, tanh, factors and pools, trained by
softmax cross entropy. A record's gradient of a layer is δ_l ⊗ (a_{l−1}, 1), as in ghost clipping
(Goodfellow 2015, arXiv:1510.01799). A convolution is a linear layer on each window of a map
(`parley.client.dp_sgd.convolution_windows`). Its gradient Σ δ_p ⊗ (window p, 1) is written out as a
row like any other: an outer product with the single number 2⁷.

**A record's term is a function of the record, θ and public numbers.** Weights, activations and
slopes δ are whole numbers times a power of two. They have `BitAllocation.weights` bits below the
layer's largest weight, which is public, or `BitAllocation.values` bits below the record's own
largest value. The layers' widths leave these bits such that each matrix product adds whole numbers
up to less than 2⁵³. It is exact, in any order, on any number of threads, next to any records.
Between products there is only elementwise arithmetic that IEEE 754 rounds correctly, and exp of
such values (`parley.client.models.exact_math`). Numbers beyond 2²⁰⁰ are cut to it. A θ that is NaN
counts as 0.

**It is no longer than C.** With the norms of these factors, which are exact sums, the slopes are
scaled by min(1, C/norm) and rounded to whole numbers of the unit u, a power of two. The factor
leaves room for that rounding. None of this is trusted: `keep_factored` then checks the whole
numbers themselves against the ball of ⌊C/u⌋, and drops a record outside.

Sums are exact and stored in float64: ⌊C/u⌋ ≤ 2³³, and no batch has more than 2²⁰ records
(`parley.client.dp_sgd.poisson_batches.check_records`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.client.dp_sgd.convolution_windows import Array, Backward, MaxPool, MeanPool, Windows
from parley.client.models.exact_math import exp, tanh
from parley.privacy.sensitivity.exact_row_arithmetic import EXACT, keep_factored

InputTransform = str | float | MaxPool | MeanPool

_MAX_EXPONENT: Final = 200
"""log₂ of the largest number that a layer accepts, and of the inverse of the smallest."""

_SOFTMAX_BITS: Final = 32
"""Bits of an exponential before it is divided by the sum of all."""

_COARSE: Final = 2.0**7
"""Units of a written-out row: for numbers below 2³³/2⁷, squares are exact."""


@dataclass(frozen=True)
class ExactLayer:
    """A linear layer, and the transforms of its inputs.

    Attributes:
        inputs: for a convolution, numbers per window.
        transforms: in this order: "relu", "tanh", a factor, or a pool.
        windows: of a convolution; None: the layer uses the whole row.
    """

    inputs: int
    outputs: int
    bias: bool
    transforms: tuple[InputTransform, ...] = ()
    windows: Windows | None = None

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.outputs * (self.inputs + self.bias)

    def apply(self, values: _ScaledIntegers, weight: _ScaledIntegers) -> tuple[Array, Array]:
        """Return inputs `[B, w, i + 1]`, or windows `[B, w, i + 1, P]`; and the layer's outputs."""
        if self.windows is None:
            return values.numbers, values.multiply(weight, weight.numbers.swapaxes(-1, -2))
        row, last = np.split(values.numbers, [values.numbers.shape[-1] - self.bias], axis=-1)
        seen = self.windows.extract_patches(row, last)
        found = (weight.numbers[:, None] @ seen).reshape(*row.shape[:-1], -1)
        found *= values.unit * weight.unit
        return seen, found

    def factor_gradient(
        self, inputs: Array, slope: _ScaledIntegers, unit: Array
    ) -> tuple[Array, Array, Array]:
        """Return a record's gradient as whole inputs and slopes, and `[B, w, 1]` their unit."""
        if self.windows is None:
            return inputs, slope.numbers, unit * slope.unit
        slopes = slope.numbers.reshape(*inputs.shape[:2], self.outputs, -1)
        written = (slopes @ inputs.mT).reshape(*inputs.shape[:2], -1)
        row = _ScaledIntegers.from_values(written, (52 - (self.size - 1).bit_length()) // 2)
        return np.full_like(unit, _COARSE), row.numbers, unit * slope.unit * row.unit / _COARSE

    def compute_input_slopes(self, slope: _ScaledIntegers, weight: _ScaledIntegers) -> Array:
        """Return the slopes of the layer's inputs."""
        own = weight.numbers[..., : self.inputs]
        if self.windows is None:
            return slope.multiply(weight, own)
        slopes = slope.numbers.reshape(*slope.numbers.shape[:-1], self.outputs, -1)
        found = self.windows.spread_patches(own.mT[:, None] @ slopes)
        found *= slope.unit * weight.unit
        return found


@dataclass(frozen=True, kw_only=True)
class BitAllocation:
    """Bits of the whole numbers of a chain."""

    values: int
    weights: int

    @classmethod
    def from_layers(cls, layers: Sequence[ExactLayer]) -> BitAllocation:
        """Allocate bits for the widest layer: values · weights · width ≤ 2⁵²."""
        bits = 52 - (_compute_width(layers) - 1).bit_length()
        # More bits of values would leave fewer for their slopes: a term has 33 for both.
        values = min(16, bits * 2 // 5)
        return cls(values=values, weights=bits - values)

    @staticmethod
    def can_fit(layers: Sequence[ExactLayer]) -> bool:
        """Return whether enough bits are left: 24, for values and weights together.

        A convolution may have 2²⁰ windows, so that sums of that many products of values are exact,
        and 2²⁴ parameters, with 14 bits for each in a record's gradient.
        """
        written = ((own.windows, own.size) for own in layers if own.windows is not None)
        few = all(math.prod(of.counts) <= 1 << 20 and size <= 1 << 24 for of, size in written)
        return few and _compute_width(layers) <= 1 << 28


@dataclass(frozen=True)
class _ScaledIntegers:
    """Whole numbers `[…, n, p]` times powers of two `[…, n, 1]`."""

    numbers: Array
    unit: Array

    @classmethod
    def from_values(cls, values: Array, bits: int, *, append_one: bool = False) -> _ScaledIntegers:
        """Scale each row of `[…, n, p]` separately, so that its largest is just below 2^bits.

        With `append_one`, the constant 1 is appended.
        """
        wide, largest = values.shape[-1], _find_row_maxima(values)
        if append_one:
            largest = np.maximum(largest, 1.0)
        scale, unit = _compute_scale(largest, bits)
        numbers = np.empty((*values.shape[:-1], wide + append_one))
        np.multiply(values, scale, out=numbers[..., :wide])
        numbers[..., wide:] = scale
        return cls(_round_numbers(numbers, largest, bits), unit)

    def multiply(self, other: _ScaledIntegers, matrix: Array) -> Array:
        """Multiply by another's numbers, exactly, then by both units."""
        found: Array = self.numbers @ matrix
        found *= self.unit * other.unit
        return found


@dataclass(frozen=True)
class ExactChain:
    """A chain at one θ, or at one θ per party.

    Attributes:
        class_weights: weights of the labels; (): all 1.
    """

    layers: tuple[ExactLayer, ...]
    class_weights: tuple[float, ...]
    weights: tuple[_ScaledIntegers, ...]
    grid: BitAllocation

    @classmethod
    def from_parameters(
        cls, layers: tuple[ExactLayer, ...], theta: Array, class_weights: tuple[float, ...] = ()
    ) -> ExactChain:
        """Build the chain at θ `[B, d]`: per layer W `[o, i]`, then b `[o]`."""
        grid, weights, at = BitAllocation.from_layers(layers), [], 0
        for layer in layers:
            shape = (len(theta), layer.outputs, layer.inputs + layer.bias)
            cut, end = layer.outputs * layer.inputs, at + layer.size
            own, at = theta[:, at:end], end
            largest = _find_row_maxima(own)
            if not np.isfinite(largest).all():
                own = np.nan_to_num(own, nan=0.0)
                largest = _find_row_maxima(own)
            scale, unit = _compute_scale(largest, grid.weights)
            numbers = np.empty(shape)
            both = ((own[:, :cut], slice(layer.inputs)), (own[:, cut:], slice(layer.inputs, None)))
            for part, columns in both:
                there = numbers[..., columns]
                np.multiply(part.reshape(there.shape), scale[..., None], out=there)
            rounded = _round_numbers(numbers, largest, grid.weights)
            weights.append(_ScaledIntegers(rounded, unit[..., None]))
        return cls(layers, class_weights, tuple(weights), grid)

    def compute_clipped_sums(
        self,
        x: Array,
        y: NDArray[np.int64],
        is_record: NDArray[np.bool_],
        radius: int | None,
        grid_bits: int,
    ) -> tuple[list[Array], Array]:
        """Compute sums of whole numbers of B parties' records, for `flatten`; and `[B]` signs.

        Sums are `[B, o, i + 1]` per layer, in one row for a convolution. Signs are Σ of +1 per
        clipped and −1 per other record.

        Args:
            x, y: `[B, w, p]`, `[B, w]`.
            is_record: `[B, w]` flags of records; other rows are only padding.
            radius: radius of the ball of terms, in whole numbers times 2^-grid_bits. None: whole
                gradients, on a grid for the party's longest, without any bound.
        """
        is_record = is_record & (np.abs(x) <= 2.0**_MAX_EXPONENT).all(-1)  # False for NaN
        inputs, slopes, units = self._factor_gradients(np.where(is_record[..., None], x, 0.0), y)
        sizes = [np.vecdot(a, a)[..., None] for a in inputs]
        own = [n * np.vecdot(b, b)[..., None] for n, b in zip(sizes, slopes, strict=True)]
        # A layer whose inputs are all 0 adds nothing, for any slopes.
        units = [np.where(n > 0, u, 0.0) for n, u in zip(own, units, strict=True)]
        norms = np.sqrt(sum((n * (u * u) for n, u in zip(own, units, strict=True)), np.zeros(1)))
        if radius is None:
            scale, factors = _compute_party_units(norms, is_record[..., None]), np.ones_like(norms)
        else:
            scale = np.full((1, 1, 1), 2.0**grid_bits)
            halves = [math.sqrt(b.shape[-1]) / 2 for b in slopes]
            off = sum((np.sqrt(n) * h for n, h in zip(sizes, halves, strict=True)), np.zeros(1))
            factors = _compute_clip_factors(norms * scale, off, radius)
        times = scale * np.where(is_record[..., None], factors, 0.0)
        for b, u in zip(slopes, units, strict=True):
            np.multiply(b, u * times, out=b)
        limit = math.inf if radius is None else radius**2
        keep_factored(list(zip(inputs, slopes, strict=True)), limit)
        # Exact: at most w terms of `radius`, below 2⁵³.
        sums = [b.mT @ a for a, b in zip(inputs, slopes, strict=True)]
        if radius is None:
            sums = [own / scale for own in sums]
        elif x.shape[1] * radius >= EXACT:
            raise ValueError(f"Expected fewer records at once, got {x.shape[1]}.")
        return sums, (np.where(factors[..., 0] < 1, 1.0, -1.0) * is_record).sum(-1)

    @property
    def expanded_size(self) -> int:
        """Numbers written out per record in addition to rows: windows, and gradients."""
        windows = ((own.windows, own) for own in self.layers if own.windows is not None)
        return sum(math.prod(of.counts) * (own.inputs + 1) + own.size for of, own in windows)

    def flatten(self, sums: Sequence[Array], unit: float) -> Array:
        """Return `[B, d]` of each layer's sums `[B, o·(i + 1)]`, in θ's order, times a unit."""
        total, at = np.empty((len(sums[0]), sum(layer.size for layer in self.layers))), 0
        for layer, found in zip(self.layers, sums, strict=True):
            own = found.reshape(len(total), layer.outputs, -1)
            for part in (own[..., : layer.inputs], own[..., layer.inputs :]):
                end = at + part[0].size
                np.multiply(part, unit, out=total[:, at:end].reshape(part.shape, copy=False))
                at = end
        return total

    def _factor_gradients(
        self, x: Array, y: NDArray[np.int64]
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Return per layer whole inputs `[B, w, i]`, slopes `[B, w, o]`, and units `[B, w, 1]`."""
        values, passed = x, []
        for layer, weight in zip(self.layers, self.weights, strict=True):
            rising: list[Backward] = []
            for step in layer.transforms:
                values, undo = _apply_transform(step, values)
                rising.append(undo)
            whole = _ScaledIntegers.from_values(values, self.grid.values, append_one=layer.bias)
            seen, values = layer.apply(whole, weight)
            passed.append((layer, weight, seen, whole.unit, rising))
        back = _compute_softmax_slopes(values, y)
        if self.class_weights:
            back *= np.asarray(self.class_weights)[y][..., None]
        found = []
        for layer, weight, seen, unit, rising in reversed(passed):
            slope = _ScaledIntegers.from_values(back, self.grid.values)
            found.append(layer.factor_gradient(seen, slope, unit))
            if layer is not self.layers[0]:
                back = layer.compute_input_slopes(slope, weight)
                for undo in reversed(rising):
                    back = undo(back)
        inputs, slopes, units = zip(*reversed(found), strict=True)
        return list(inputs), list(slopes), list(units)


def _find_row_maxima(values: Array) -> Array:
    """Return `[…, 1]` largest magnitudes of rows `[…, p]`."""
    return np.asarray(np.maximum(values.max(-1, keepdims=True), -values.min(-1, keepdims=True)))


def _compute_scale(row_maxima: Array, bits: int) -> tuple[Array, Array]:
    """Return powers of two that bring `row_maxima` to just below 2^bits, and their inverses."""
    power = np.clip(np.frexp(row_maxima)[1], -_MAX_EXPONENT, _MAX_EXPONENT) - bits
    return np.ldexp(1.0, -power), np.ldexp(1.0, power)


def _round_numbers(numbers: Array, row_maxima: Array, bits: int) -> Array:
    """Round in place; clamp to ±2^bits if the values were larger than a layer accepts."""
    np.rint(numbers, out=numbers)
    if (row_maxima > 2.0**_MAX_EXPONENT).any():
        np.clip(numbers, -(2.0**bits), 2.0**bits, out=numbers)
    return numbers


def _compute_width(layers: Sequence[ExactLayer]) -> int:
    return max(max(layer.inputs + layer.bias, layer.outputs) for layer in layers)


def _compute_clip_factors(norms: Array, off: Array, radius: int) -> Array:
    """Return `[B, w, 1]` factors of slopes, from norms in units; at most 1.

    Args:
        off: upper bound on how much rounding to whole numbers lengthens them.
    """
    aim = np.maximum(radius * (1 - 2.0**-30) - off, 0.0)
    with np.errstate(divide="ignore"):
        return np.minimum(1.0, aim / norms)


def _compute_party_units(norms: Array, is_record: NDArray[np.bool_]) -> Array:
    """Return `[B, 1, 1]` units per 1, such that parties' sums of whole gradients are below 2⁵²."""
    longest = np.where(is_record, norms, 0.0).max(-2, keepdims=True)
    count = is_record.sum(-2, keepdims=True)
    return np.asarray(np.ldexp(1.0, 50 - np.frexp(longest)[1] - np.frexp(count)[1]))


def _apply_transform(step: InputTransform, values: Array) -> tuple[Array, Backward]:
    if step == "relu":
        on = values > 0.0
        return values.clip(0.0), lambda back: back * on
    if step == "tanh":
        found = tanh(values)
        return found, lambda back: back * (1 - found * found)
    if isinstance(step, float):
        return values * step, lambda back: back * step
    if isinstance(step, str):
        raise ValueError(f"Expected relu or tanh, got {step!r}.")
    return step(values)


def _compute_softmax_slopes(scores: Array, y: NDArray[np.int64]) -> Array:
    """Return `[…, K]` softmax of scores, minus 1 at the label."""
    likely = exp(scores - scores.max(-1, keepdims=True))
    likely = np.rint(likely * 2.0**_SOFTMAX_BITS)
    slopes: Array = likely / likely.sum(-1, keepdims=True)  # whole numbers: exact in any order
    rows = slopes.reshape(-1, slopes.shape[-1])
    rows[np.arange(len(rows)), y.ravel()] -= 1
    return slopes
