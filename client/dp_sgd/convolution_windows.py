"""Windows of a record's map, as convolutions and pools use them, in torch's order.

A map is a row of c·s₁⋯s_k numbers, k axes of c channels. Values are read and added one by one, one
position of all windows after another. A record's numbers are a function of its map only.

    >>> pairs = Windows(1, sizes=(4,), kernel=(2,), stride=(1,), padding=(0,), dilation=(1,))
    >>> row = np.array([[1.0, 3.0, 3.0, 2.0]])
    >>> pairs.extract_patches(row, np.ones((1, 1)))[0].tolist()
    [[1.0, 3.0, 3.0], [3.0, 3.0, 2.0], [1.0, 1.0, 1.0]]
    >>> largest, back = MaxPool(pairs)(row)
    >>> largest.tolist(), back(np.array([[1.0, 1.0, 1.0]])).tolist()
    ([[3.0, 3.0, 3.0]], [[0.0, 2.0, 1.0, 0.0]])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Backward = Callable[[Array], Array]
"""Function from the slopes of a step's outputs to the slopes of its inputs."""


@dataclass(frozen=True)
class Windows:
    """Windows of `kernel` positions, `dilation` apart, one per `stride`.

    Attributes:
        padding: positions on both sides of an axis.
    """

    channels: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of windows along each axis."""
        axes = zip(self.sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((s + 2 * p - d * (k - 1) - 1) // step + 1 for s, k, step, p, d in axes)

    @property
    def kernel_size(self) -> int:
        """Numbers of one channel in a window."""
        return math.prod(self.kernel)

    def pad_maps(self, values: Array, outside: float = 0.0) -> Array:
        """Return `[…, c, s₁ + 2p₁, …]` of maps `[…, c·s₁⋯]`."""
        whole = values.reshape(*values.shape[:-1], self.channels, *self.sizes)
        if not any(self.padding):
            return whole
        edges = [(0, 0)] * (values.ndim) + [(p, p) for p in self.padding]
        return np.pad(whole, edges, constant_values=outside)

    def iterate_views(self, padded: Array) -> Iterator[Array]:
        """Yield views `[…, c, n₁, …]`: the first number of each window, the second, and so on."""
        axes = list(zip(self.dilation, self.stride, self.counts, strict=True))
        for place in itertools.product(*map(range, self.kernel)):
            own = zip(place, axes, strict=True)
            cuts = [slice(at * d, at * d + step * (n - 1) + 1, step) for at, (d, step, n) in own]
            yield _cut_last_axes(padded, cuts)

    def extract_patches(self, values: Array, last: Array) -> Array:
        """Return `[…, c·positions + b, windows]`: one column per window, with `last` `[…, b]`
        below.
        """
        rows, ones = self.channels * self.kernel_size, last.shape[-1]
        found = np.empty((*values.shape[:-1], rows + ones, math.prod(self.counts)))
        found[..., rows:, :] = last[..., None]
        seen = self.iterate_views(self.pad_maps(values))
        for into, own in zip(self.reshape_by_position(found[..., :rows, :]), seen, strict=True):
            into[...] = own
        return found

    def accumulate_maps(self, parts: Iterator[Array]) -> Array:
        """Add what windows contribute to their positions, ordered as `iterate_views`: `[…, c·s₁⋯]`
        maps.
        """
        first = next(parts)
        shape = [s + 2 * p for s, p in zip(self.sizes, self.padding, strict=True)]
        total = np.zeros((*first.shape[: -len(shape)], *shape))
        every = itertools.chain([first], parts)
        for view, part in zip(self.iterate_views(total), every, strict=True):
            np.add(view, part, out=view)
        inside = [slice(p, p + s) for s, p in zip(self.sizes, self.padding, strict=True)]
        return _cut_last_axes(total, inside).reshape(*first.shape[: -len(shape) - 1], -1)

    def spread_patches(self, slopes: Array) -> Array:
        """Return `[…, c·s₁⋯]` maps, of slopes `[…, c·positions, windows]` of patches."""
        return self.accumulate_maps(iter(self.reshape_by_position(slopes)))

    def reshape_by_position(self, patches: Array) -> Array:
        """Return `[positions, …, c, n₁, …]`, a view of patches `[…, c·positions, windows]`."""
        shape = (*patches.shape[:-2], self.channels, self.kernel_size, *self.counts)
        return np.moveaxis(patches.reshape(shape, copy=False), -1 - len(self.counts), 0)

    def reshape_outputs(self, values: Array) -> Array:
        """Return `[…, c, n₁, …]` of numbers of windows `[…, c·n₁⋯]`."""
        return values.reshape(*values.shape[:-1], self.channels, *self.counts)


@dataclass(frozen=True)
class MaxPool:
    """The largest number of each window; the first one of equals has the slope."""

    windows: Windows

    def __call__(self, values: Array) -> tuple[Array, Backward]:
        """Return `[…, c·n₁⋯]` of maps, and the backward function."""
        seen = self.windows.iterate_views(self.windows.pad_maps(values, -np.inf))
        best = next(seen).copy()
        first = np.zeros(best.shape, dtype=np.int16)
        for at, own in enumerate(seen, start=1):
            np.maximum(first, np.multiply(own > best, at, dtype=np.int16), out=first)
            np.maximum(best, own, out=best)

        def back(slopes: Array) -> Array:
            own = self.windows.reshape_outputs(slopes)
            places = range(self.windows.kernel_size)
            return self.windows.accumulate_maps(own * (first == at) for at in places)

        return best.reshape(*values.shape[:-1], -1), back


@dataclass(frozen=True)
class MeanPool:
    """The mean of each window, including zeros around the map."""

    windows: Windows

    def __call__(self, values: Array) -> tuple[Array, Backward]:
        """Return `[…, c·n₁⋯]` of maps, and the backward function."""
        seen = self.windows.iterate_views(self.windows.pad_maps(values))
        share = 1 / self.windows.kernel_size
        total = next(seen).copy()
        for own in seen:
            total += own

        def back(slopes: Array) -> Array:
            own = self.windows.reshape_outputs(slopes) * share
            return self.windows.accumulate_maps(own for _ in range(self.windows.kernel_size))

        return (total * share).reshape(*values.shape[:-1], -1), back


def _cut_last_axes(values: Array, cuts: list[slice]) -> Array:
    """Return a view, cut along the last axes."""
    where: Any = (..., *cuts)
    return np.asarray(values[where])
