"""Plain local steps of many small parties at once, for noise that is added to their clipped sum.

Every party has a copy of θ of its own. Parties whose batches fill as many rows stand in one block
`[B, b, p]`, so that a layer is one call for all of them and one product for each:

    z_l = a_{l−1} W_l + c_l,   ∂W_l = a_{l−1}ᵀ b_l,   b_{l−1} = φ′_{l−1} ⊙ b_l W_lᵀ

**A party's update has the same bits whoever stands in its block, and alone.** A product is of one
party's rows and weights; its shape follows from the party's own draws (`_Rows.width`), never from
another's. All else goes value by value, or along a party's own rows. So nobody's records move
anybody else's update, and clipping it to S bounds what they do to the sum. Float64 sums of torch's
gradients (`parley.client.dp_sgd.training.train_party`) differ from it by rounding.

Blocks are as large as stays in cache, and share no stream: the batches are drawn beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parley.client.data.chunks import for_each_chunk
from parley.client.dp_sgd.batches import poisson_batches
from parley.client.dp_sgd.clipping_dense import Dense, activated, loss_gradient, sloped
from parley.client.dp_sgd.optimisers import InPlace
from parley.client.dp_sgd.parties import Parties, PartyData
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network

__all__ = ["small", "together", "train_plainly"]

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
    return Dense.of(network.module, network.losses)


def small(records: int, config: LocalTraining) -> bool:
    """Whether a party of so many records is: by its own number alone."""
    return min(_LARGEST_BATCH, config.micro_batch) >= config.sampling_rate * records


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The batches of one party, all steps'.

    Attributes:
        places: `[L, b]` of the party's own records; a padded one is a record of the party, too.
        there: `[L, b]` false where padded.
    """

    places: NDArray[np.int64]
    there: NDArray[np.bool_]

    @property
    def width(self) -> int:
        """b: a multiple of `_ROWS` that its largest batch fits in."""
        return int(self.places.shape[1])

    @classmethod
    def drawn(cls, party: PartyData, config: LocalTraining) -> _Rows:
        """By the party's own coins, as one step after the other draws them."""
        count = len(party.labels)
        drawn = poisson_batches(count, config.sampling_rate, config.steps, party.batches)
        sizes = drawn.sum(axis=1)
        width = max(_ROWS, -(-int(sizes.max(initial=0)) // _ROWS) * _ROWS)
        # Stable: the records of a batch first, in their order.
        order = np.argsort(~drawn, axis=1, kind="stable")[:, :width]
        places = np.zeros((config.steps, width), dtype=np.int64)
        places[:, : order.shape[1]] = order
        return cls(places=places, there=np.arange(width) < sizes[:, None])


def train_plainly(
    network: Network,
    dense: Dense,
    theta: NDArray[np.float64],
    parties: Parties,
    rows: Iterable[int],
    config: LocalTraining,
    result: NDArray[np.float64],
) -> None:
    """Every small party's local steps from `theta` `[d]`.

    Args:
        dense: the network as `together` gives it.
        rows: which of the parties.
        result: `[B, d]`, whose rows of these parties are written.
    """
    of_width: dict[int, list[tuple[int, _Rows]]] = {}
    for row in rows:
        drawn = _Rows.drawn(parties[row], config)
        of_width.setdefault(drawn.width, []).append((row, drawn))
    size = max(1, _VALUES_TOGETHER // network.dimension)
    blocks = [own[at : at + size] for own in of_width.values() for at in range(0, len(own), size)]
    start = _inputs_first(dense, network.rows(theta).numpy()[None])
    features = dense.prepared(parties.features)
    labels = parties.labels.numpy()

    def train(first: int, last: int) -> None:
        for block in blocks[first:last]:
            numbers = [row for row, _ in block]
            trained = _trained(dense, start, block, parties, features, labels, config)
            result[numbers] = _outputs_first(dense, trained)

    for_each_chunk(train, [(at, at + 1) for at in range(len(blocks))])


def _trained(
    dense: Dense,
    start: Array,
    block: list[tuple[int, _Rows]],
    parties: Parties,
    features: Array,
    labels: NDArray[np.int64],
    config: LocalTraining,
) -> Array:
    """`[B, d]` all steps of a block, layers as `_inputs_first` has them."""
    numbers = np.array([row for row, _ in block])
    # [L, B, b]
    places = np.stack([own.places for _, own in block], axis=1) + parties.offsets[numbers][:, None]
    there = np.stack([own.there for _, own in block], axis=1).astype(features.dtype)
    sizes = config.sampling_rate * parties.divisors[numbers]
    there *= (1 / sizes).astype(features.dtype)[:, None]
    theta = np.repeat(start, len(block), axis=0)
    gradient, optimiser = np.empty_like(theta), InPlace(config, theta)
    with np.errstate(all="ignore"):  # an update that is not finite is brought within its bound
        for own, weights in zip(places, there, strict=True):
            _gradients(dense, theta, features[own], labels[own], weights, gradient)
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
        if bias is not None:
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
