"""Plain local steps of many small parties at once, for noise that is added to their clipped sum.

Every party has its own copy of θ. Parties whose batches fill as many rows stand in one block
`[B, b, p]`, so that a layer is one call for all of them and one product for each:

    z_l = a_{l−1} W_l + c_l,   ∂W_l = a_{l−1}ᵀ b_l,   b_{l−1} = φ′_{l−1} ⊙ b_l W_lᵀ

**A party's update has the same bits whoever stands in its block, and alone.** A product is of one
party's rows and weights; its shape follows from the party's own draws (`_width`), never from
another's. All else goes value by value, or along a party's own rows. So nobody's records move
anybody else's update, and clipping it to S bounds what they do to the sum. Float64 sums of torch's
gradients (`parley.client.dp_sgd.training.train_party`) differ from it by rounding.

Blocks are as large as stays in cache, and share no stream: the batches are drawn beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parley.client.data.chunks import for_each_chunk
from parley.client.dp_sgd.batches import poisson_batches
from parley.client.dp_sgd.clipping_dense import Dense, activated, loss_gradient, sloped
from parley.client.dp_sgd.optimisers import InPlace
from parley.client.dp_sgd.parties import Parties
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network

Array: TypeAlias = NDArray[Any]

_LARGEST_NETWORK = 1 << 18
"""Parameters up to which parties are trained so: beyond, one party fills the cores."""

_LARGEST_BATCH = 256
"""Expected records of a step up to which a party is small."""

_VALUES_TOGETHER = 1 << 17
"""Parameters, of the parties of a block, that stay in the cache."""

_ROWS = 8
"""Batches are filled up to a multiple of it: fewer shapes, more parties of one shape."""


def together(network: Network, config: LocalTraining) -> Dense | None:
    """The network as a chain of layers, where small parties are trained in blocks."""
    if config.clip_norm is not None or network.dimension > _LARGEST_NETWORK:
        return None
    return _dense(network)


@functools.lru_cache(maxsize=1)  # a run asks for its own in every round
def _dense(network: Network) -> Dense | None:
    return Dense.of(network.module, network.losses)


def small(records: NDArray[np.int64], config: LocalTraining) -> NDArray[np.bool_]:
    """`[B]` whether parties of so many records are: each by its own number alone."""
    return min(_LARGEST_BATCH, config.micro_batch) >= config.sampling_rate * records


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The batches of parties that fill as many rows.

    Attributes:
        parties: `[B]` which of them all.
        places: `[L, B, b]` among all parties' records; a padded one is the party's own, too. L is
            the steps, or 1 where every step takes the same.
        there: `[L, B, b]` false where padded.
    """

    parties: NDArray[np.int64]
    places: NDArray[np.int64]
    there: NDArray[np.bool_]

    def span(self, first: int, last: int) -> _Rows:
        """Of some of the parties."""
        return _Rows(
            parties=self.parties[first:last],
            places=self.places[:, first:last],
            there=self.there[:, first:last],
        )


def _width(records: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that so many records fill: a party's own number alone decides."""
    return np.maximum(-(-records // _ROWS), 1) * _ROWS


def _all_records(parties: Parties, rows: NDArray[np.int64]) -> Iterator[_Rows]:
    """At q = 1: every record in every step."""
    sizes = np.diff(parties.offsets)[rows]
    widths = _width(sizes)
    for width in np.unique(widths):
        own = widths == width
        there = np.arange(width) < sizes[own, None]
        places = parties.offsets[rows[own], None] + np.where(there, np.arange(width), 0)
        yield _Rows(parties=rows[own], places=places[None], there=there[None])


def _drawn(parties: Parties, rows: NDArray[np.int64], config: LocalTraining) -> Iterator[_Rows]:
    """By each party's own coins, as one step after the other draws them."""
    of_width: dict[int, list[tuple[int, Array, Array]]] = {}
    for row in rows.tolist():
        first, last = int(parties.offsets[row]), int(parties.offsets[row + 1])
        drawn = poisson_batches(
            last - first, config.sampling_rate, config.steps, parties.batches[row]
        )
        sizes = drawn.sum(axis=1)
        width = int(_width(sizes.max(keepdims=True))[0])
        # Stable: the records of a batch first, in their order.
        order = np.argsort(~drawn, axis=1, kind="stable")[:, :width]
        places = np.full((config.steps, width), first)
        places[:, : order.shape[1]] += order
        of_width.setdefault(width, []).append((row, places, np.arange(width) < sizes[:, None]))
    for own in of_width.values():
        yield _Rows(
            parties=np.array([row for row, _, _ in own]),
            places=np.stack([each for _, each, _ in own], 1),
            there=np.stack([each for _, _, each in own], 1),
        )


def train_plainly(
    network: Network,
    dense: Dense,
    theta: NDArray[np.float64],
    parties: Parties,
    rows: NDArray[np.int64],
    config: LocalTraining,
    result: NDArray[np.float64],
) -> None:
    """Every small party's local steps from `theta` `[d]`.

    Args:
        dense: the network as `together` gives it.
        rows: which of the parties.
        result: `[B, d]`, whose rows of these parties are written.
    """
    every = config.sampling_rate >= 1
    alike = _all_records(parties, rows) if every else _drawn(parties, rows, config)
    size = max(1, _VALUES_TOGETHER // network.dimension)
    blocks = [own.span(at, at + size) for own in alike for at in range(0, len(own.parties), size)]
    start = _inputs_first(dense, network.rows(theta).numpy()[None])
    features = dense.prepared(parties.features)
    labels = parties.labels.numpy()

    def train(first: int, last: int) -> None:
        for own in blocks[first:last]:
            trained = _trained(dense, start, own, parties.divisors, features, labels, config)
            result[own.parties] = _outputs_first(dense, trained)

    for_each_chunk(train, [(at, at + 1) for at in range(len(blocks))])


def _trained(
    dense: Dense,
    start: Array,
    own: _Rows,
    divisors: NDArray[np.int64],
    features: Array,
    labels: NDArray[np.int64],
    config: LocalTraining,
) -> Array:
    """`[B, d]` all steps of a block, layers as `_inputs_first` has them."""
    factors = 1 / (config.sampling_rate * divisors[own.parties])
    theta = np.repeat(start, len(own.parties), axis=0)
    gradient, optimiser = np.empty_like(theta), InPlace(config, theta)

    def batch(step: int) -> tuple[Array, Array, Array]:
        places = own.places[step]
        of = (own.there[step] * factors[:, None]).astype(features.dtype)
        return np.take(features, places, axis=0), np.take(labels, places), of

    same = batch(0) if len(own.places) == 1 else None
    with np.errstate(all="ignore"):  # an update that is not finite is brought within its bound
        for step in range(config.steps):
            _gradients(dense, theta, *(same or batch(step)), gradient)
            optimiser.step(gradient)
    return theta


def _gradients(dense: Dense, theta: Array, x: Array, y: Array, of: Array, out: Array) -> None:
    """`out` `[B, d]` sums of the records' gradients times `of`; x `[B, b, p]`, y, of `[B, b]`."""
    weights, sums = _views(dense, theta), _views(dense, out)
    inputs: list[Array] = []
    a = x
    for place, (weight, bias) in enumerate(weights):
        inputs.append(a)
        a = a @ weight
        if bias is not None:
            a += bias
        if place < len(dense.activations):
            a = activated(dense.activations[place], a)
    b = loss_gradient(a.reshape(y.size, -1), y.ravel()).reshape(a.shape)
    if dense.weights:
        b *= np.asarray(dense.weights, b.dtype)[y][..., None]
    b *= of[..., None]
    for place in range(len(weights) - 1, -1, -1):
        weight, bias = sums[place]
        np.matmul(inputs[place].transpose(0, 2, 1), b, out=weight)
        if bias is not None and bias.shape[2] > 1:
            np.einsum("nbo->no", b, out=bias[:, 0])  # the same bits in a fourth of the time
        elif bias is not None:
            np.add.reduce(b, axis=1, keepdims=True, out=bias)
        if place:
            b = b @ np.ascontiguousarray(weights[place][0].transpose(0, 2, 1))
            sloped(dense.activations[place - 1], b, inputs[place])


def _views(dense: Dense, flat: Array) -> list[tuple[Array, Array | None]]:
    """Every layer's weights `[B, i, o]` and biases `[B, 1, o]` within `[B, d]`."""
    views: list[tuple[Array, Array | None]] = []
    at = 0
    for layer in dense.layers:
        out, into = layer.weight.shape
        weight = flat[:, at : at + out * into].reshape(-1, into, out)
        at += out * into
        bias = None if layer.bias is None else flat[:, None, at : at + out]
        at += 0 if layer.bias is None else out
        views.append((weight, bias))
    return views


def _inputs_first(dense: Dense, flat: Array) -> Array:
    """`[B, d]` with every layer's weights `[i, o]`, as the steps take them."""
    return _reordered(dense, flat, inputs_first=True)


def _outputs_first(dense: Dense, flat: Array) -> Array:
    """`[B, d]` with every layer's weights `[o, i]`, as a network has them."""
    return _reordered(dense, flat, inputs_first=False)


def _reordered(dense: Dense, flat: Array, *, inputs_first: bool) -> Array:
    changed, at = flat.copy(), 0
    for layer in dense.layers:
        out, into = layer.weight.shape
        shape = (out, into) if inputs_first else (into, out)
        own = slice(at, at + out * into)
        changed[:, own] = flat[:, own].reshape(-1, *shape).transpose(0, 2, 1).reshape(len(flat), -1)
        at += out * into + (0 if layer.bias is None else out)
    return changed
