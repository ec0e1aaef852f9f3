"""Sums of per-record gradients, each clipped first: four ways to the same numbers.

    s = Σ_i mask_i · g_i · min(1, C/N_i),   g_i = ∇_θ ℓ(f_θ(x_i), y_i),   N_i ≥ ‖g_i‖

| way | how | for |
|---|---|---|
| ghost | one backward pass to the layers' outputs gives norms and sum | Linear, Conv2d |
| vmap | torch.func: vmap(grad), every g_i written out | any vmappable layers |
| opacus | Opacus's GradSampleModule, every g_i written out | Opacus's DPLSTM, DPGRU, attention |
| loop | one backward pass a record, every g_i written out | any layers, slowly |

θ is the trainable parameters (`requires_grad`): frozen ones are constants of f. The order is that
of the measurements in the benchmark; `parley.client.dp_sgd.ways` chooses by agreement with the
loop.

Why N_i bounds ‖g_i‖ for every θ and record. γ_n = nu/(1 − nu) is the standard model's bound on n
roundings (Higham 2002, section 3.1; u = 2⁻⁵³ or 2⁻²⁴, any order of summation), g_i the vector that
is added to the sum, as it is stored.

- A norm is that of numbers that exist. Ghost clipping (Goodfellow 2015, arXiv:1510.01799) takes a
  layer that is applied once a record as g = b aᵀ, whose norm is ‖a‖·‖b‖ *exactly*; a layer applied
  at T places has g = Σ_t b_t a_tᵀ, which is written out, and the sum takes those stored numbers.
  (⟨BᵀB, AᵀA⟩ is the same in real numbers, and adds terms of both signs up to ‖A‖²‖B‖²: at a θ that
  makes them cancel it is off by γ_T‖A‖²‖B‖², any multiple of ‖g‖², and can be negative.)
- All that is then added is squares, of one sign, so that nothing cancels: summed by rows of a
  parameter and then over rows, ‖g‖² is too small by at most the factor 1 − γ_w, w = rows + columns
  + layers + 8. `clip_slack` raises the norm by what of this
  `parley.client.dp_sgd.clip_factors.MARGIN` does not cover.
- A square that underflows loses at most the smallest normal number η: as much is added where a
  product of norms could magnify it; elsewhere √(dη) is nothing beside C ≥ 2⁻⁴⁰.
- One that overflows gives N = ∞, and the record adds zero (`parley.client.dp_sgd.clip_factors`).

The clip aims a little below C (`MARGIN`): what rounding adds, of the norms, of the sum and of the
grid it is put on afterwards, stays within C. Of the norms this is proved in both precisions; of a
sum of b clipped gradients, within γ_b·b·C, in float64 (b ≤ 10⁶). In float32 it does
not hold at every θ: where terms cancel to the last bit, batches of two sizes round the others'
gradients in two ways, and a record taken away from four moved a sum by 2.65 C (AVX2). Padded to one
shape, or in a loop, it moved it by at most C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clip_factors import MARGIN, clip_factors, counted

__all__ = [
    "WAYS",
    "Clipped",
    "Way",
    "check_apart",
    "clip_slack",
    "ghost",
    "ghost_layers",
    "ghost_parts",
    "layer_parts",
    "loop",
    "losses",
    "opacus",
    "plain_sum",
    "trainable",
    "vmap",
]

_WRITTEN_AT_ONCE: Final = 1 << 25
"""Values of written-out gradients of one layer that are held at once; more are computed twice."""


class Way(Protocol):
    """`(network, x [b, p], y [b], clip) -> (s [d], norms [b])`, d in the order of `trainable`."""

    def __call__(
        self, network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`mask` `[b]` is 1 for a record and 0 for a row that is only worked on; None: all 1."""


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that θ is made of, by name: those that are not frozen."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """`[b]` cross-entropy of every record; `outputs` `[b, K]`, `labels` `[b]` in 0..K−1."""
    # Classes first: torch's softmax is three times as fast along an outer axis as along short rows.
    by_class = outputs.T.contiguous()[None]
    return nn.functional.cross_entropy(by_class, labels[None], reduction="none")[0]


def clip_slack(network: nn.Module) -> float:
    """What norms are multiplied by: 1, or more where layers are too wide for `MARGIN`.

    A quarter of the margin is for the norms: in float32 that covers layers of 4,000 inputs and
    outputs, in float64 any that fit a memory.
    """
    parameters = list(trainable(network).values())
    widths = [p.shape[0] + p.numel() // p.shape[0] for p in parameters if p.numel() and p.dim()]
    roundings = max(widths, default=1) + len(parameters) + 8
    unit = torch.finfo(parameters[0].dtype).eps / 2
    return max(1.0, (1 + roundings * unit) * (1 - MARGIN / 4))


def plain_sum(network: nn.Module, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """`[d]` the sum of the batch's gradients, none clipped; `mask` as in `Way`."""
    parameters = list(trainable(network).values())
    each = losses(network(x), y)
    total = (each if mask is None else each * mask).sum()
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(-1)
            for p, g in zip(parameters, gradients, strict=True)
        ]
    )


# --- ghost ---------------------------------------------------------------------------------------


def ghost_layers(network: nn.Module) -> list[nn.Module] | None:
    """The layers that hold all trainable parameters, if ghost clipping knows every one of them."""
    layers: list[nn.Module] = []
    known: set[int] = set()
    for module in network.modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        if not _is_plain(module) or known & {id(parameter) for parameter in own}:
            return None
        known |= {id(parameter) for parameter in own}
        layers.append(module)
    return layers or None


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is torch's own: a subclass, or a hook, may compute anything."""
    plain = type(layer) is nn.Linear or (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )
    own = dict(layer.named_parameters(recurse=False))
    return (
        plain
        and set(own) <= {"weight", "bias"}
        and all(parameter.requires_grad for parameter in own.values())
        and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
    )


def check_apart(layer: nn.Module, inputs: Tensor, output: Tensor, records: int) -> None:
    """Refuses a layer whose rows are not the batch's records, one each, in the first axis.

    Raises:
        ValueError: the network folds places into the batch, or has the batch elsewhere.
    """
    axes = inputs.dim() == 4 if isinstance(layer, nn.Conv2d) else inputs.dim() >= 2
    if not axes or len(inputs) != records or len(output) != records:
        raise ValueError(
            f"Expected {records} records in the first axis of {layer}, got inputs of shape "
            f"{list(inputs.shape)}: ghost clipping would clip places, not records."
        )


def ghost(
    network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Ghost clipping of one network on one batch; see `Way`.

    Raises:
        ValueError: a layer it does not know, one that is used twice, or one that does not see the
            batch's records in its first axis.
    """
    clipped = ghost_parts(network, x, y, clip, mask)
    with torch.no_grad():
        total = clipped.norms.new_zeros(sum(p.numel() for p in trainable(network).values()))
        clipped.add_to(total)
    return total, clipped.norms


@dataclass(frozen=True)
class Clipped:
    """A batch after one forward and backward pass: all that its clipped sums are made of.

    Attributes:
        parts: of every layer, in the order of θ; None for one that the forward pass leaves out.
        factors: `[b]` that each record's gradient is multiplied by.
        norms: `[b]`.
    """

    parts: dict[nn.Module, _Rows | _Places | None]
    factors: Tensor
    norms: Tensor

    def add_to(self, total: Tensor, first: int = 0, last: int | None = None) -> None:
        """Adds the clipped sum of the batch, or of its records `first` to `last` − 1, to `[d]`."""
        rows = slice(first, len(self.factors) if last is None else last)
        factors = self.factors[rows]
        whole, at = len(factors) == len(self.factors), 0
        for layer, part in self.parts.items():
            if part is None:
                at += sum(p.numel() for p in layer.parameters())
                continue
            for own in (part if whole else part.rows(rows)).sums(factors):
                total[at : at + own.numel()].add_(own.reshape(-1))
                at += own.numel()


def ghost_parts(
    network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
) -> Clipped:
    """What ghost clipping knows of a batch after its one pass; see `ghost`.

    Raises:
        ValueError: see `ghost`.
    """
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a network of Linear and Conv2d layers, got another.")
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if module in seen:
            raise ValueError(f"Expected every layer to be used once, got {module} twice.")
        check_apart(module, inputs[0], output, len(x))
        seen[module] = (inputs[0].detach(), output)

    slack = clip_slack(network)
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
        norms = torch.stack(squares).sum(0).sqrt() * slack
        factors = clip_factors(norms, clip)
        if _drops(factors):
            parts = {layer: part and part.counted(factors) for layer, part in parts.items()}
    return Clipped(parts=parts, factors=_masked(factors, mask), norms=norms)


def _masked(factors: Tensor, mask: Tensor | None) -> Tensor:
    return factors if mask is None else factors * mask


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
class _Rows:
    """A layer applied once a record: g_i = b_i a_iᵀ, so ‖g_i‖² = ‖a_i‖²·‖b_i‖²."""

    inputs: Tensor  # [b, i]
    backward: Tensor  # [b, o]
    bias: bool

    def counted(self, factors: Tensor) -> _Rows:
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    def rows(self, rows: slice) -> _Rows:
        return replace(self, inputs=self.inputs[rows], backward=self.backward[rows])

    def squared_norms(self) -> Tensor:
        # A factor whose squares underflowed is magnified by the other: η for each of its squares.
        least = torch.finfo(self.inputs.dtype).tiny
        inputs = _squared_norms(self.inputs) + self.inputs.shape[1] * least
        backward = _squared_norms(self.backward) + self.backward.shape[1] * least
        return (inputs + 1) * backward if self.bias else inputs * backward

    def sums(self, factors: Tensor) -> list[Tensor]:
        scaled = self.backward * factors[:, None]
        weight = scaled.T @ self.inputs
        return [weight, scaled.sum(0)] if self.bias else [weight]


@dataclass(frozen=True)
class _Places:
    """A layer applied at T places of a record: g_i = B_i A_iᵀ, written out."""

    inputs: Tensor  # [b, i, T]
    backward: Tensor  # [b, o, T]
    bias: bool

    def counted(self, factors: Tensor) -> _Places:
        return replace(
            self, inputs=counted(self.inputs, factors), backward=counted(self.backward, factors)
        )

    def rows(self, rows: slice) -> _Places:
        part = replace(self, inputs=self.inputs[rows], backward=self.backward[rows])
        kept: Tensor | None = self.__dict__.get("kept")
        if kept is not None:  # the numbers whose norms were taken
            part.__dict__["kept"] = kept[rows]
        return part

    def squared_norms(self) -> Tensor:
        squares = torch.cat([_squared_norms(written) for _, written in self._written()])
        return squares + _squared_norms(self.backward.sum(2)) if self.bias else squares

    def sums(self, factors: Tensor) -> list[Tensor]:
        # The numbers whose norms were taken: a product in another order may be a longer vector.
        weight: Tensor | None = None
        for rows, written in self._written():
            own = (factors[rows] @ written.flatten(1)).view(written.shape[1:])
            weight = own if weight is None else weight + own
        if weight is None:
            weight = self.inputs.new_zeros(self.backward.shape[1], self.inputs.shape[1])
        return [weight, factors @ self.backward.sum(2)] if self.bias else [weight]

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


def vmap(
    network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every record's gradient by vmap(grad), written out `[b, d]`; see `Way`."""
    named = {name: parameter.detach() for name, parameter in trainable(network).items()}

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        outputs = torch.func.functional_call(network, parameters, (row.unsqueeze(0),))
        return losses(outputs, label.unsqueeze(0)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(named, x, y)
    return _clipped(network, [each[name] for name in named], clip, mask)


def opacus(
    network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every record's gradient by Opacus's GradSampleModule, written out; see `Way`.

    Raises:
        ValueError: a layer whose rows are not the batch's records.
    """
    from opacus import GradSampleModule  # noqa: PLC0415 - start-up: opacus takes a second

    parameters = trainable(network).values()
    sampled = GradSampleModule(network, loss_reduction="sum", strict=False)
    try:
        losses(sampled(x), y).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [
            getattr(parameter, "grad_sample", None)
            if getattr(parameter, "grad_sample", None) is not None
            else torch.zeros((len(x), *parameter.shape), dtype=x.dtype, device=x.device)
            for parameter in parameters
        ]
        shapes = [tuple(getattr(gradient, "shape", ())) for gradient in gradients]
        if shapes != [(len(x), *parameter.shape) for parameter in parameters]:
            raise ValueError(f"Expected gradients of {len(x)} records, got other shapes.")
        return _clipped(network, gradients, clip, mask)
    finally:
        sampled.zero_grad(set_to_none=True)
        sampled.remove_hooks()
        for parameter in network.parameters():
            parameter.grad = None
            parameter.__dict__.pop("grad_sample", None)


def loop(
    network: nn.Module, x: Tensor, y: Tensor, clip: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every record's gradient by a backward pass of its own, written out; see `Way`."""
    parameters = list(trainable(network).values())
    each: list[list[Tensor]] = [[] for _ in parameters]
    for row, label in zip(x, y, strict=True):
        flat = plain_sum(network, row[None], label[None])
        split = torch.split(flat, [p.numel() for p in parameters])
        for own, values, parameter in zip(each, split, parameters, strict=True):
            own.append(values.view(parameter.shape))
    shapes = [(0, *parameter.shape) for parameter in parameters]
    stacked = [
        torch.stack(own) if own else x.new_zeros(shape)
        for own, shape in zip(each, shapes, strict=True)
    ]
    return _clipped(network, stacked, clip, mask)


def _clipped(
    network: nn.Module, each: Sequence[Any], clip: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        squares = [_squared_norms(gradient) for gradient in each]
        norms = torch.stack(squares).sum(0).sqrt() * clip_slack(network)
        factors = clip_factors(norms, clip)
        rows = [gradient.flatten(1) for gradient in each]
        if _drops(factors):
            rows = [counted(row, factors) for row in rows]
        factors = _masked(factors, mask)
        return torch.cat([factors @ row for row in rows]), norms


WAYS: dict[str, Way] = {"ghost": ghost, "vmap": vmap, "opacus": opacus, "loop": loop}
"""In the order in which they are tried."""
