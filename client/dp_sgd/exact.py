"""Clipped sums of chains of linear layers in whole numbers: a record's share is its own, exactly.

A chain is z_l = W_l a_{l−1} + b_l with a_l = φ(z_l), φ of ReLU, tanh and public factors, trained by
softmax cross entropy. A record's gradient of a layer is δ_l ⊗ (a_{l−1}, 1), ghost clipping's factors
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

Sums are exact and held in float64: ⌊C/u⌋ ≤ 2³³, and no batch has 2²⁰ records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
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
        """The widest layer's: values · weights · width ≤ 2⁵².

        Raises:
            ValueError: too few are left.
        """
        width = max(max(layer.inputs + layer.bias, layer.outputs) for layer in layers)
        bits = 52 - (width - 1).bit_length()
        if bits < 24:
            raise ValueError(f"Expected layers of at most 2^28 numbers, got one of {width}.")
        return cls(values=bits * 2 // 5, weights=bits - bits * 2 // 5)


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

    def clipped(
        self, x: Array, y: NDArray[np.int64], there: NDArray[np.bool_], clip: Clip
    ) -> tuple[Array, Array]:
        """`[B, d]` sums of B parties' records, and `[B]` Σ of +1 a clipped and −1 another record.

        Args:
            x, y: `[B, w, p]`, `[B, w]`.
            there: `[B, w]` what is a record, and not a row that is only worked on.
        """
        finite = np.isfinite(x).all(-1)
        inputs, slopes, units = self._factors(np.where(finite[..., None], x, 0.0), y)
        lengths = [
            (squares(a) * squares(b))[..., None] for a, b in zip(inputs, slopes, strict=True)
        ]
        # What a layer's inputs hide is not looked at: they are zeros.
        units = [np.where(n > 0, u, 0.0) for n, u in zip(lengths, units, strict=True)]
        norms = np.sqrt(sum((n * (u * u) for n, u in zip(lengths, units, strict=True)), 0.0))
        off = sum(
            np.sqrt(squares(a))[..., None] * (math.sqrt(layer.outputs) / 2)
            for a, layer in zip(inputs, self.layers, strict=True)
        )
        factors, per_unit, radius = clip.factors(norms, off, there[..., None])
        for b, u in zip(slopes, units, strict=True):
            b *= u * per_unit * np.where((there & finite)[..., None], factors, 0.0)
            np.rint(b, out=b)
        if clip.norm is not None:
            rows = [_flat(a) for a in inputs], [_flat(b) for b in slopes]
            keep_factored(list(zip(*rows, strict=True)), radius**2)
        sums: list[Array] = []
        for a, b, layer in zip(inputs, slopes, self.layers, strict=True):
            both = outer_sum(b, a, radius) / per_unit
            sums += [both[..., : layer.inputs], both[..., layer.inputs :]]
        total = np.concatenate([own.reshape(len(x), -1) for own in sums], axis=1)
        return total, (np.where(factors[..., 0] < 1, 1.0, -1.0) * there).sum(-1)

    def _factors(
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


@dataclass(frozen=True, kw_only=True)
class Clip:
    """How long a record's share may be.

    Attributes:
        norm: C; None: whole gradients, of which nothing is promised.
        bits: ⌊C/u⌋ has as many at most.
    """

    norm: float | None
    bits: int = 33

    @property
    def unit(self) -> float:
        """u."""
        return 2.0 ** (math.frexp(self.norm or 1.0)[1] - self.bits)

    @property
    def radius(self) -> int:
        """⌊C/u⌋: of the ball that every record's whole numbers lie in."""
        return math.floor((self.norm or 1.0) / self.unit)

    def factors(
        self, norms: Array, off: Array, there: Array
    ) -> tuple[Array, Array | float, int]:
        """`[B, w, 1]` factors, units in 1 (`[B, 1, 1]` without a clip), and the radius.

        Without a clip the unit is as of the party's longest gradient and its number of records.

        Args:
            off: what rounding to whole numbers may add to a norm, in units.
        """
        if self.norm is None:
            count = there.sum(-2, keepdims=True)
            power = np.frexp((norms * there).max(-2, keepdims=True))[1]
            bits = 50 - np.frexp(count + 1.0)[1]
            return np.ones_like(norms), np.ldexp(1.0, bits - power), 2**51 // max(1, int(count.max()))
        per_unit, aim = 1 / self.unit, np.maximum(self.radius * (1 - 2.0**-30) - off, 0.0)
        with np.errstate(divide="ignore"):
            return np.minimum(1.0, aim / (norms * per_unit)), per_unit, self.radius


def _flat(rows: Array) -> Array:
    """A view `[n, p]`."""
    return rows.reshape(-1, rows.shape[-1])


def _between(steps: tuple[str | float, ...], values: Array) -> tuple[Array, Array | float]:
    """Values after these steps, and their derivative."""
    rising: Array | float = 1.0
    for step in steps:
        if step == "relu":
            rising = rising * (values > 0)
            values = np.maximum(values, 0.0)
        elif step == "tanh":
            values = tanh(values)
            rising = rising * (1 - values * values)
        else:
            values, rising = values * step, rising * float(step)
    return values, rising


def _cross_entropy_slopes(scores: Array, y: NDArray[np.int64]) -> Array:
    """`[…, K]` softmax of scores, less 1 at the label."""
    likely = exp(scores - scores.max(-1, keepdims=True))
    likely = np.rint(likely * 2.0**_COUNTED)
    slopes: Array = likely / likely.sum(-1, keepdims=True)  # whole numbers: exact in any order
    rows = slopes.reshape(-1, slopes.shape[-1])
    rows[np.arange(len(rows)), y.ravel()] -= 1
    return slopes
