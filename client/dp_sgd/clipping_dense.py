"""Clipped sums of B parties' dense networks, each at its own θ, in closed form: no autograd.

    a₀ = prefix(x),   a_l = φ_l(z_l),   z_l = W_l a_{l−1} + c_l,   loss = w_y·cross-entropy
    b_L = w_y(softmax(z_L) − e_y), b_{l−1} = φ′_{l−1} ⊙ W_lᵀ b_l,  ∂W_l = b_l a_{l−1}ᵀ,  ∂c_l = b_l

so that ‖g‖² = Σ_l ‖b_l‖²(‖a_{l−1}‖² + 1) exactly, without a difference in which terms could cancel
(`parley.client.dp_sgd.clipping` has what rounding and underflow add), and the sum of clipped
gradients is one product a layer (Goodfellow 2015, arXiv:1510.01799), in float64. In numpy: for
small networks most of a step is the cost of calls, and numpy's are several times cheaper than
torch's. Passes have one shape, and records places in them, as `parley.client.dp_sgd.apart` says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.dp_sgd.clip_factors import drop_broken, shrink
from parley.client.dp_sgd.ghost import chain_of, ghost_layers
from parley.client.dp_sgd.gradients import clip_slack
from parley.client.models.layers import Scale
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses

Array: TypeAlias = NDArray[Any]


def _relu(z: Array) -> Array:
    return np.maximum(z, 0, out=z)


def _times_relu_slope(b: Array, a: Array) -> None:
    b *= a > 0


def _tanh(z: Array) -> Array:
    return np.tanh(z, out=z)


def _times_tanh_slope(b: Array, a: Array) -> None:
    b *= 1 - a * a


_ACTIVATIONS: dict[
    type[nn.Module], tuple[Callable[[Array], Array], Callable[[Array, Array], None]]
] = {nn.ReLU: (_relu, _times_relu_slope), nn.Tanh: (_tanh, _times_tanh_slope)}
"""φ in place, and b ← b ⊙ φ′ in place from a = φ(z)."""


def activated(kind: type[nn.Module], z: Array) -> Array:
    """φ(z), in place."""
    return _ACTIVATIONS[kind][0](z)


def sloped(kind: type[nn.Module], b: Array, a: Array) -> None:
    """b ← b ⊙ φ′ in place, from a = φ(z)."""
    _ACTIVATIONS[kind][1](b, a)


_PREFIXES = (Scale, nn.Flatten, nn.Identity)
"""What may stand before: each value by itself, with one rounding, whatever stands beside it."""


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A chain of linear layers with one activation between any two.

    Attributes:
        prefix: modules without parameters, before the first layer.
        layers: L linear layers.
        activations: types of the L − 1 between them.
        slack: see `parley.client.dp_sgd.gradients.clip_slack`.
        weights: of the classes; empty: all 1.
    """

    prefix: nn.Sequential
    layers: tuple[nn.Linear, ...]
    activations: tuple[type[nn.Module], ...]
    slack: float
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, network: nn.Module, losses: RecordLosses = CROSS_ENTROPY) -> Dense | None:
        """The network as such a chain, if it is one, on the CPU, and learns by cross-entropy."""
        modules = list(chain_of(network))
        first = next((at for at, m in enumerate(modules) if type(m) is nn.Linear), len(modules))
        layers = tuple(m for m in modules[first::2] if type(m) is nn.Linear)
        activations = tuple(type(m) for m in modules[first + 1 :: 2])
        # All parameters are those of the layers: the prefix has none.
        if (
            ghost_layers(network) != list(layers)
            or len(modules) - first != 2 * len(layers) - 1
            or not all(kind in _ACTIVATIONS for kind in activations)
            or not all(type(module) in _PREFIXES for module in modules[:first])
            or any(layer.weight.device.type != "cpu" for layer in layers)
        ):
            return None
        prefix = nn.Sequential(*modules[:first])
        slack = clip_slack(network)
        return cls(
            prefix=prefix,
            layers=layers,
            activations=activations,
            slack=slack,
            weights=losses.weights,
        )

    def prepared(self, features: Tensor) -> Array:
        """`[N, p']` records as the first layer takes them, once before any step."""
        with torch.no_grad():
            return np.asarray(self.prefix(features).numpy())

    def sums(
        self,
        theta: Array,
        x: Array,
        y: Array,
        mask: Array,
        clip: float,
        squares: Array | None = None,
    ) -> tuple[Array, Array]:
        """The clipped sums `[B, d]` of B parties, in float64, and all norms `[B, b]`.

        Args:
            theta: `[B, d]`.
            x: `[B, b, p']` records, `prepared`.
            y: `[B, b]` their classes.
            mask: `[B, b]` 1 for a record, 0 for a row of weight zero.
            clip: C.
            squares: `[B, b]` ‖x‖² (`squared_norms`), where they are known.
        """
        _, norms, inputs, scaled = self._pass(theta, x, y, mask, clip, squares)
        total = np.empty(theta.shape)
        for a, b, (weight, bias) in zip(inputs, scaled, self._views(total), strict=True):
            exact = b.astype(np.float64, copy=False)
            if bias is not None:
                np.einsum("nbo->no", exact, out=bias[:, 0])  # a half of np.sum's time
            np.matmul(exact.transpose(0, 2, 1), a.astype(np.float64, copy=False), out=weight)
        return total, norms

    def records(self, theta: Array, x: Array, y: Array, clip: float) -> list[Array]:
        """`[B, b, …]` each: every number that depends on a record; see `sums`."""
        squares = squared_norms(x.reshape(y.size, -1)).reshape(y.shape)
        factors, norms, inputs, scaled = self._pass(
            theta, x, y, np.ones(y.shape, dtype=x.dtype), clip, squares
        )
        return [factors, norms, *inputs, *scaled]

    def _pass(
        self, theta: Array, x: Array, y: Array, mask: Array, clip: float, squares: Array | None
    ) -> tuple[Array, Array, list[Array], list[Array]]:
        """Factors, norms; of each layer its inputs, and its outputs' gradients times factors."""
        parties, batch = mask.shape
        weights = list(self._views(theta))
        inputs: list[Array] = []
        a = x
        with np.errstate(all="ignore"):  # what is not finite is dropped below
            for place, (weight, bias) in enumerate(weights):
                inputs.append(a)
                a = a @ weight.transpose(0, 2, 1)
                if bias is not None:
                    a += bias
                if place < len(self.activations):
                    a = activated(self.activations[place], a)
            b = loss_gradient(a.reshape(parties * batch, -1), y.ravel()).reshape(a.shape)
            if self.weights:
                b *= np.asarray(self.weights, b.dtype)[y][..., None]
            backward = [b]
            for place in range(len(weights) - 1, 0, -1):
                b = b @ weights[place][0]
                sloped(self.activations[place - 1], b, inputs[place])
                backward.insert(0, b)
            total, least = np.zeros_like(mask), float(np.finfo(mask.dtype).tiny)
            known = [squares, *[None] * (len(weights) - 1)]
            for a, of_a, b, (weight, bias) in zip(inputs, known, backward, weights, strict=True):
                # What underflowed in one factor is magnified by the other: η for each square.
                of_inputs = squared_norms(a) if of_a is None else of_a
                of_inputs = of_inputs + ((bias is not None) + weight.shape[2] * least)
                of_outputs = squared_norms(b)
                of_outputs += weight.shape[1] * least
                of_outputs *= of_inputs
                total += of_outputs
            norms = np.sqrt(total, out=total)
            norms *= self.slack
            factors = np.minimum(shrink(clip) / np.maximum(norms, 1e-30), 1) * mask
            factors, *kept = drop_broken(norms, factors, *inputs, *backward)
            inputs, backward = kept[: len(inputs)], kept[len(inputs) :]
            scaled = [np.multiply(b, factors[:, :, None], out=b) for b in backward]
        return factors, norms, inputs, scaled

    def _views(self, flat: Array) -> Iterator[tuple[Array, Array | None]]:
        """Every layer's weights `[B, o, i]` and biases `[B, 1, o]` within `[B, d]`."""
        at = 0
        for out, into, biased in self._shapes:
            weight = flat[:, at : at + out * into].reshape(-1, out, into)
            at += out * into
            yield weight, flat[:, None, at : at + out] if biased else None
            at += out * biased

    @functools.cached_property
    def _shapes(self) -> list[tuple[int, int, bool]]:
        """Outputs and inputs of every layer, and whether it has biases."""
        return [(*layer.weight.shape, layer.bias is not None) for layer in self.layers]


def squared_norms(values: Array) -> Array:
    """`[…]` of rows `[…, p]`, each summed by itself."""
    return np.asarray(np.einsum("...i,...i->...", values, values))


def loss_gradient(scores: Array, labels: Array) -> Array:
    """∂ℓ/∂scores `[N, K]` of cross-entropy: softmax(scores) − e_y."""
    chances = np.ascontiguousarray(scores.T)  # classes first: short rows are slow
    chances -= chances.max(0)
    np.exp(chances, out=chances)
    chances /= chances.sum(0)
    chances.reshape(-1)[labels * len(labels) + np.arange(len(labels))] -= 1
    return np.ascontiguousarray(chances.T)
