"""Training losses of a network: `[b]`, one number per record.

    ℓ_i = w_{y_i} · ℓ(f_θ; x_i, y_i, draws_i)

The loss is the cross-entropy of the scores, unless the module has a method `record_losses(x, y,
draws)`. Class weights are public. Each record's gradient is clipped *after* they are applied. A
module whose loss needs random numbers declares `draws = D`. Then `draws` `[b, D]` are standard
normal numbers per record, which follow the record's columns in its row. The mean over several draws
of one record (Dockhorn et al. 2022, arXiv:2210.09929) has one gradient, clipped once. A module's
own loss gets one record at a time (`parley.client.dp_sgd.torch_clipping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parley.client.models.class_weights import check_weights

MAX_DRAWS = 1 << 20
"""Maximum random numbers per record."""


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return `[b]` losses of scores `[b, K]` and labels `[b]` in 0..K−1."""
    # Classes first: torch's softmax is three times as fast along an outer axis as on short rows.
    by_class = outputs.T.contiguous()[None]
    return nn.functional.cross_entropy(by_class, labels[None], reduction="none")[0]


def get_own_losses(module: nn.Module) -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """Return the module's own `record_losses(x, y, draws)`, if it has one."""
    found = getattr(module, "record_losses", None)
    return found if callable(found) else None


def get_draw_count(module: nn.Module) -> int:
    """Return D, the number of random numbers per record's loss; 0: none."""
    found = getattr(module, "draws", 0)
    if get_own_losses(module) is None:
        return 0
    if type(found) is not int or not 0 <= found <= MAX_DRAWS:
        raise ValueError(f"Expected draws from 0 to {MAX_DRAWS}, got {found!r:.80}.")
    return found


@dataclass(frozen=True, kw_only=True)
class RecordLosses:
    """Losses of a module's records.

    Attributes:
        weights: public weights of the classes; empty: each record counts once.
    """

    weights: tuple[float, ...] = ()

    @classmethod
    def from_class_weights(cls, weights: Sequence[float], classes: int) -> RecordLosses:
        """Build the losses with weights for K classes, or without."""
        if weights:
            check_weights(weights, classes)
        return cls(weights=tuple(weights))

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Compute `[b]` losses of `[b, p]` records, `[b, p + D]` with draws, and labels `[b]`."""
        own = get_own_losses(module)
        drawn = get_draw_count(module)
        if own is None:
            each = cross_entropy(module(x), y)
        elif drawn:
            each = own(x[:, :-drawn], y, x[:, -drawn:])
        else:
            each = own(x, y, None)
        if each.shape != (len(x),):
            expected = f"Expected record_losses to return one loss per record, {[len(x)]}"
            raise ValueError(f"{expected}, got {list(each.shape)}.")
        if not self.weights:
            return each
        return each * torch.tensor(self.weights, dtype=each.dtype, device=each.device)[y]


CROSS_ENTROPY = RecordLosses()
"""Losses without weights; a module's own loss if it has one."""
