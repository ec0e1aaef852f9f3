"""Sums of per-record gradients, each clipped first: three ways to the same numbers.

    s = Σ_i mask_i · g_i · min(1, C/‖g_i‖),   g_i = ∇_θ ℓ(f_θ(x_i), y_i)

| way | how | for |
|---|---|---|
| ghost | one backward pass to the layers' outputs gives norms and sum | Linear, Conv2d |
| vmap | torch.func: vmap(grad), every g_i written out | any vmappable layers |
| opacus | Opacus's GradSampleModule, every g_i written out | recurrent, attention |

Ghost clipping (Goodfellow 2015, arXiv:1510.01799) takes ‖g_i‖ from a layer's inputs and output
gradients, then scales the rows by the clip factors and does one product.

They agree to rounding. `choose_way` tries them on a made-up batch and takes the first that agrees
with the plain per-record gradients: the order is that of the measurements in the benchmark, and
does not depend on the clock, so that a seed always gives the same model.

The clip aims a little below C (`client.clipping`): what rounding adds, of the norms, of the sum and
of the grid it is put on afterwards, stays within C. A record whose norm is not finite adds zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from client.clipping import clip_factors, counted

__all__ = [
    "WAYS",
    "Way",
    "choose_way",
    "ghost",
    "ghost_layers",
    "layer_parts",
    "losses",
    "opacus",
    "plain_sum",
    "vmap",
]

Way = Callable[[nn.Module, Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""`(network, x [b, p], y [b], clip) -> (s [d], norms [b])`, d in the order of parameters()."""


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """`[b]` cross-entropy of every record; `outputs` `[b, K]`, `labels` `[b]` in 0..K−1."""
    # Classes first: torch's softmax is three times as fast along an outer axis as along short rows.
    by_class = outputs.T.contiguous()[None]
    return nn.functional.cross_entropy(by_class, labels[None], reduction="none")[0]


def plain_sum(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """`[d]` the sum of the batch's gradients, none clipped."""
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(losses(network(x), y).sum(), parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(-1)
            for p, g in zip(parameters, gradients, strict=True)
        ]
    )


# --- ghost ---------------------------------------------------------------------------------------


def ghost_layers(network: nn.Module) -> list[nn.Module] | None:
    """The layers that hold all parameters, if ghost clipping knows every one of them."""
    layers: list[nn.Module] = []
    known: set[int] = set()
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if not own:
            continue
        plain = isinstance(module, nn.Linear) or (
            isinstance(module, nn.Conv2d)
            and module.groups == 1
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )
        if not plain or known & {id(parameter) for parameter in own}:
            return None
        known |= {id(parameter) for parameter in own}
        layers.append(module)
    return layers or None


def ghost(network: nn.Module, x: Tensor, y: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Ghost clipping of one network on one batch; see `Way`.

    Raises:
        ValueError: a layer it does not know, or one that is used twice.
    """
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a network of Linear and Conv2d layers, got another.")
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if module in seen:
            raise ValueError(f"Expected every layer to be used once, got {module} twice.")
        seen[module] = (inputs[0].detach(), output)

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        each = losses(network(x), y)
    finally:
        for hook in hooks:
            hook.remove()
    used = [layer for layer in layers if layer in seen]
    gradients = torch.autograd.grad(each.sum(), [seen[layer][1] for layer in used])
    backward = dict(zip(used, gradients, strict=True))
    with torch.no_grad():
        parts = {
            layer: layer_parts(layer, seen[layer][0], backward[layer]) if layer in seen else None
            for layer in layers
        }
        squares = [part.squared_norms() for part in parts.values() if part is not None]
        norms = torch.stack(squares).sum(0).sqrt()
        factors = clip_factors(norms, clip)
        if not factors.all():
            parts = {layer: part and part.counted(factors) for layer, part in parts.items()}
        total = torch.cat(
            [
                torch.cat([own.reshape(-1) for own in part.sums(factors)])
                if part is not None
                else norms.new_zeros(sum(p.numel() for p in layer.parameters()))
                for layer, part in parts.items()
            ]
        )
    return total, norms


@dataclass(frozen=True)
class _Rows:
    """A layer applied once a record: g_i = b_i a_iᵀ, so ‖g_i‖² = ‖a_i‖²·‖b_i‖²."""

    inputs: Tensor  # [b, i]
    backward: Tensor  # [b, o]
    bias: bool

    def counted(self, factors: Tensor) -> _Rows:
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    def squared_norms(self) -> Tensor:
        inputs: Tensor = torch.linalg.vector_norm(self.inputs, dim=1).square()
        backward: Tensor = torch.linalg.vector_norm(self.backward, dim=1).square()
        return (inputs + 1) * backward if self.bias else inputs * backward

    def sums(self, factors: Tensor) -> list[Tensor]:
        scaled = self.backward * factors[:, None]
        weight = scaled.T @ self.inputs
        return [weight, scaled.sum(0)] if self.bias else [weight]


@dataclass(frozen=True)
class _Places:
    """A layer applied at T places of a record: g_i = B_i A_i, written out or by Gram matrices."""

    inputs: Tensor  # [b, i, T]
    backward: Tensor  # [b, o, T]
    bias: bool

    def counted(self, factors: Tensor) -> _Places:
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    @property
    def _by_gram(self) -> bool:
        # Gram matrices cost T²(i + o); writing out costs the traffic of i·o values a record.
        width, places = self.inputs.shape[1:]
        out = self.backward.shape[1]
        return bool(places**2 * (width + out) < 8 * width * out)

    def squared_norms(self) -> Tensor:
        if self._by_gram:
            # ‖BAᵀ‖² = ⟨BᵀB, AᵀA⟩
            left = self.inputs.transpose(1, 2) @ self.inputs
            right = self.backward.transpose(1, 2) @ self.backward
            squares = (left * right).sum((1, 2))
        else:
            squares = torch.linalg.vector_norm(self._written().flatten(1), dim=1).square()
        if self.bias:
            squares = squares + self.backward.sum(2).square().sum(1)
        return squares

    def _written(self) -> Tensor:
        kept: Tensor | None = self.__dict__.get("written")
        if kept is None:
            kept = self.backward @ self.inputs.transpose(1, 2)
            self.__dict__["written"] = kept
        return kept

    def sums(self, factors: Tensor) -> list[Tensor]:
        if self._by_gram:
            scaled = self.backward * factors[:, None, None]
            weight = torch.einsum("bot,bit->oi", scaled, self.inputs)
        else:
            written = self._written()
            weight = (factors @ written.flatten(1)).view(written.shape[1:])
        if not self.bias:
            return [weight]
        return [weight, factors @ self.backward.sum(2)]


def layer_parts(layer: nn.Module, inputs: Tensor, backward: Tensor) -> _Rows | _Places:
    """What a layer's inputs and output gradients say of every record's gradient."""
    bias = getattr(layer, "bias", None) is not None
    if isinstance(layer, nn.Conv2d):
        patches = nn.functional.unfold(
            inputs,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=layer.padding,  # type: ignore[arg-type]
            stride=layer.stride,
        )
        return _Places(patches, backward.flatten(2), bias)
    if inputs.dim() == 2:
        return _Rows(inputs, backward, bias)
    return _Places(inputs.flatten(1, -2).transpose(1, 2), backward.flatten(1, -2).mT, bias)


# --- written out ---------------------------------------------------------------------------------


def vmap(network: nn.Module, x: Tensor, y: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Every record's gradient by vmap(grad), written out `[b, d]`; see `Way`."""
    named = {name: parameter.detach() for name, parameter in network.named_parameters()}

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        outputs = torch.func.functional_call(network, parameters, (row.unsqueeze(0),))
        return losses(outputs, label.unsqueeze(0)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(named, x, y)
    return _clipped([each[name] for name in named], clip)


def opacus(network: nn.Module, x: Tensor, y: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Every record's gradient by Opacus's GradSampleModule, written out; see `Way`."""
    from opacus import GradSampleModule

    sampled = GradSampleModule(network, loss_reduction="sum", strict=False)
    try:
        losses(sampled(x), y).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [
            getattr(parameter, "grad_sample", None)
            if getattr(parameter, "grad_sample", None) is not None
            else torch.zeros((len(x), *parameter.shape), dtype=x.dtype, device=x.device)
            for parameter in network.parameters()
        ]
        return _clipped(gradients, clip)
    finally:
        sampled.zero_grad(set_to_none=True)
        sampled.remove_hooks()
        for parameter in network.parameters():
            parameter.grad = None
            parameter.__dict__.pop("grad_sample", None)


def _clipped(each: Sequence[Any], clip: float) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        rows = [gradient.flatten(1) for gradient in each]
        squares = [torch.linalg.vector_norm(row, dim=1).square() for row in rows]
        norms = torch.stack(squares).sum(0).sqrt()
        factors = clip_factors(norms, clip)
        if not factors.all():
            rows = [counted(row, factors) for row in rows]
        return torch.cat([factors @ row for row in rows]), norms


WAYS: dict[str, Way] = {"ghost": ghost, "vmap": vmap, "opacus": opacus}


def choose_way(network: nn.Module, features: int, classes: int, *, wanted: str = "auto") -> str:
    """The first way, or the one wanted, that gives a loop's clipped sums on a made-up batch.

    Raises:
        ValueError: none does, with what each one said.
    """
    names = list(WAYS) if wanted == "auto" else [wanted]
    generator = torch.Generator().manual_seed(0)
    parameter = next(network.parameters())
    x = torch.randn((5, features), generator=generator).to(parameter)
    y = torch.randint(0, classes, (5,), generator=generator).to(parameter.device)
    clip = 0.5
    expected = _loop(network, x, y, clip)
    if not torch.isfinite(expected).all():
        raise ValueError("Expected finite gradients on a made-up batch, got NaN or infinity.")
    said = []
    for name in names:
        if name == "ghost" and ghost_layers(network) is None:
            said.append("ghost: layers other than Linear and Conv2d")
            continue
        try:
            total, _ = WAYS[name](network, x, y, clip)
        except Exception as error:
            said.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if torch.allclose(total, expected, rtol=1e-3, atol=1e-4):
            return name
        said.append(f"{name}: not the sums of per-record gradients")
    raise ValueError(
        f"Expected a model whose records' gradients can be told apart, got {'; '.join(said)}."
    )


def _loop(network: nn.Module, x: Tensor, y: Tensor, clip: float) -> Tensor:
    total: Tensor | None = None
    for row, label in zip(x, y, strict=True):
        flat = plain_sum(network, row[None], label[None])
        clipped = flat * clip_factors(flat.norm(), clip)
        total = clipped if total is None else total + clipped
    if total is None:
        raise ValueError("Expected a batch with a record, got none.")
    return total
