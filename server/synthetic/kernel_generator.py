"""Fit a conditional generator to a noisy embedding; it draws any number of records at no cost.

    Σ_k ‖ŵ_k · mean φ(G(z, k)) − S̃_k/N̂‖²  →  min

over a small network G of noise z and class k. S̃ is the released sum of random features
(`parley.client.algorithms.kernel_mean_embedding`); N̂ and ŵ come from its noisy counts. Every step
is post-processing (Harder, Adamczewski & Park 2021, arXiv:2002.11603). Batches hold the same number
of every class, and batch norm uses only generated records.

For a table, G returns logits of every column, and indicators by the straight-through Gumbel softmax
(Jang, Gu & Poole 2017). For an image, it has two convolutions. For another array, it returns
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.algorithms.kernel_mean_embedding import RandomFeatures
from parley.client.data.record_discretization import find_array_column
from parley.client.data.schema import Schema
from parley.server.synthetic.synthetic_rows import split_rows

_NOISE = 32
"""Number of coordinates of z."""
_TEMPERATURE = 0.5
_TABLE_BATCH, _ARRAY_BATCH = 400, 100
_PIECE_OF_TABLE, _PIECE_OF_ARRAYS = 1 << 14, 1 << 12
_PREFIX = "generator."

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class RecordShape:
    """The shape of a record.

    Attributes:
        sizes: number of values of every column of a table; (): an array.
    """

    sizes: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    span: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def from_schema(cls, summed: RandomFeatures, schema: Schema) -> RecordShape:
        """Return the shape of the summed records; raises ValueError if the schema has another."""
        array = find_array_column(schema)
        if array is None:
            return cls(sizes=summed.sizes)
        low, high = array[1].encode(np.array(array[1].range, np.float64)).tolist()
        if summed.sizes or array[1].width != summed.features:
            raise ValueError("Expected arrays of the schema's shape, got others.")
        return cls(axes=array[1].shape, span=(low, high))


class _Dense(nn.Module):
    """Two hidden layers of 256."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(_NOISE + classes, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, width),
        )

    def forward(self, z: Tensor) -> Tensor:
        """Return `[b, width]`."""
        result: Tensor = self.layers(z)
        return result


class _Image(nn.Module):
    """Linear layers to a quarter of the side, and two upsampled convolutions."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.side, self.low = side, -(-side // 4)
        self.dense = nn.Sequential(
            nn.Linear(_NOISE + classes, 200),
            nn.BatchNorm1d(200),
            nn.ReLU(),
            nn.Linear(200, 16 * self.low**2),
            nn.BatchNorm1d(16 * self.low**2),
            nn.ReLU(),
        )
        self.first = nn.Conv2d(16, 8, 5, padding=2)
        self.second = nn.Conv2d(8, 1, 5, padding=2)

    def forward(self, z: Tensor) -> Tensor:
        """Return `[b, side²]`, before the sigmoid."""
        x = self.dense(z).view(-1, 16, self.low, self.low)
        x = self.first(_scale_up(x)).relu()
        x = self.second(_scale_up(x))[:, 0, : self.side, : self.side]
        result: Tensor = x.reshape(len(z), -1)
        return result


def _scale_up(x: Tensor) -> Tensor:
    return nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)


def _build_network(embedding: RandomFeatures, shape: RecordShape) -> nn.Module:
    if len(shape.axes) == 2:
        return _Image(embedding.classes, shape.axes[0])
    return _Dense(embedding.classes, embedding.features)


def fit(
    embedding: RandomFeatures,
    shape: RecordShape,
    released: NDArray[np.float64],
    *,
    steps: int,
    seed: int,
) -> tuple[Tensors, float]:
    """Return the generator's tensors, and N̂.

    Args:
        released: `[d]` the noisy sum.

    Raises:
        ValueError: the release has no records, or the fit diverged.
    """
    counts = released[-embedding.classes :]
    total = float(counts.sum())
    if not total > 0:
        raise ValueError(
            f"Expected a released sum of a positive number of records, got {total:.0f}: there are "
            "too few records for this noise."
        )
    shares = np.maximum(counts, 0) / np.maximum(counts, 0).sum()
    target = released[: -embedding.classes].reshape(embedding.classes, -1) / total
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        network = _train(embedding, shape, target, shares, steps)
    tensors = {
        _PREFIX + name: value.numpy().astype(np.float32)
        for name, value in _list_saved_tensors(network).items()
    }
    if not all(np.isfinite(each).all() for each in tensors.values()):
        raise ValueError("Expected a finite generator, got one that diverged.")
    tensors["shares"] = shares.astype(np.float32)
    return tensors, total


def _train(
    embedding: RandomFeatures,
    shape: RecordShape,
    target: NDArray[np.float64],
    shares: NDArray[np.float64],
    steps: int,
) -> nn.Module:
    network, made = _build_network(embedding, shape), _build_record_map(shape)
    waves = torch.from_numpy(embedding.compute_weights().astype(np.float32))
    wanted, weight = _to_tensor(target), _to_tensor(shares)[:, None]
    each = max((_TABLE_BATCH if shape.sizes else _ARRAY_BATCH) // embedding.classes, 2)
    classes = nn.functional.one_hot(torch.arange(embedding.classes).repeat_interleave(each)).float()
    first, last = (3e-3, 0.0) if shape.sizes else (1e-2, 1e-3)
    optimiser = torch.optim.Adam(network.parameters(), lr=first)
    for step in range(steps):
        part = step / steps
        rate = first * (1 + math.cos(math.pi * part)) / 2 if last == 0 else first * 0.1**part
        optimiser.param_groups[0]["lr"] = rate
        z = torch.cat([torch.randn(len(classes), _NOISE), classes], dim=1)
        turns = made(network(z)) @ waves
        features = torch.cat([turns.cos(), turns.sin()], dim=1) / math.sqrt(embedding.frequencies)
        means = features.view(embedding.classes, each, -1).mean(dim=1)
        loss = (weight * means - wanted).square().sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


def _build_record_map(shape: RecordShape) -> Callable[[Tensor], Tensor]:
    """Return the function from the network's output to rows as summed, with a gradient."""
    if shape.sizes:
        return lambda out: (
            math.sqrt(0.5)
            * torch.cat(
                [
                    nn.functional.gumbel_softmax(logits, tau=_TEMPERATURE, hard=True)
                    for logits in torch.split(out, list(shape.sizes), dim=1)
                ],
                dim=1,
            )
        )
    low, high = shape.span
    return lambda out: low + (high - low) * out.sigmoid()


def draw_rows(
    embedding: RandomFeatures,
    schema: Schema,
    tensors: Mapping[str, NDArray[Any]],
    rows: int,
    seed: int,
) -> Iterator[NDArray[Any]]:
    """Yield pieces of `[n, columns + 1]`: codes and classes of a table; of arrays, shares of their
    range.

    Raises:
        ValueError: the tensors are not such a generator.
    """
    shape = RecordShape.from_schema(embedding, schema)
    network, shares = _load_network(embedding, shape, tensors)
    rng = np.random.default_rng([seed, 0])
    most = _PIECE_OF_TABLE if shape.sizes else _PIECE_OF_ARRAYS

    def piece(count: int) -> NDArray[Any]:
        classes = rng.choice(embedding.classes, size=count, p=shares)
        with torch.no_grad():
            out = network(_build_inputs(classes, embedding.classes, rng))
        if not bool(torch.isfinite(out).all()):
            raise ValueError("Expected a generator of finite numbers, got others.")
        return _decode_values(out, shape, classes, rng)

    return map(piece, split_rows(rows, most))


def _build_inputs(classes: NDArray[np.int64], count: int, rng: np.random.Generator) -> Tensor:
    z = rng.standard_normal((len(classes), _NOISE), np.float32)
    return torch.from_numpy(np.concatenate([z, np.eye(count, dtype=np.float32)[classes]], axis=1))


def _decode_values(
    out: Tensor, shape: RecordShape, classes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[Any]:
    if not shape.sizes:
        cells = out.sigmoid().numpy()
        return np.concatenate([cells, classes[:, None].astype(np.float32)], axis=1)
    codes = np.empty((len(classes), len(shape.sizes) + 1), np.int64)
    for column, logits in enumerate(torch.split(out, list(shape.sizes), dim=1)):
        # The largest of logits with Gumbel noise is a draw from their softmax.
        codes[:, column] = (logits.numpy() + rng.gumbel(size=tuple(logits.shape))).argmax(axis=1)
    codes[:, -1] = classes
    return codes


def _load_network(
    embedding: RandomFeatures, shape: RecordShape, tensors: Mapping[str, NDArray[Any]]
) -> tuple[nn.Module, NDArray[np.float64]]:
    """Return the network for drawing, and `[K]` the shares of the classes."""
    network = _build_network(embedding, shape)
    wanted = _list_saved_tensors(network)
    for name, value in wanted.items():
        found = tensors.get(_PREFIX + name)
        if found is None or found.dtype != np.float32 or found.shape != tuple(value.shape):
            raise ValueError(f"Expected a generator with {name} {list(value.shape)}, got none.")
        if not np.isfinite(found).all() or (name.endswith("running_var") and found.min() < 0):
            raise ValueError(f"Expected a generator of finite numbers, got others in {name}.")
        value.copy_(torch.from_numpy(np.array(found)))
    shares = tensors.get("shares")
    # Refuses NaN too.
    if shares is None or shares.shape != (embedding.classes,) or not (shares >= 0).all():
        raise ValueError(f"Expected shares of {embedding.classes} classes, got others.")
    whole = shares.astype(np.float64)
    if not 0.99 < whole.sum() < 1.01:
        raise ValueError("Expected shares of the classes that add up to 1, got others.")
    return network.eval(), whole / whole.sum()


def _list_saved_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return views of the tensors that determine its output."""
    state = network.state_dict()
    return {name: each for name, each in state.items() if each.is_floating_point()}


def _to_tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
