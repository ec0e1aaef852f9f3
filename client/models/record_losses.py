"""What a network is trained by: every record's own loss, `[b]`, one number a record.

    ℓ_i = w_{y_i} · ℓ(f_θ; x_i, y_i, draws_i)

Cross-entropy of the scores, unless the module brings a method `record_losses(x, y, draws)`: then
that. Weights of classes are public; every record's gradient is clipped *after* them, so that no
loss and no weight changes what one record moves.

`draws` `[b, …]` are random numbers of a record's own where a loss needs some (none of Parley's
own does: None). Whatever a loss is, it must not look at other records of the batch: the ways of
clipping are held to a loop over records with this very loss (`parley.client.dp_sgd.ways`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parley.client.models.class_weights import check_weights

__all__ = ["CROSS_ENTROPY", "RecordLosses", "cross_entropy", "own_losses"]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """`[b]` of scores `[b, K]` and labels `[b]` in 0..K−1."""
    # Classes first: torch's softmax is three times as fast along an outer axis as along short rows.
    by_class = outputs.T.contiguous()[None]
    return nn.functional.cross_entropy(by_class, labels[None], reduction="none")[0]


def own_losses(module: nn.Module) -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """The module's own `record_losses(x, y, draws)`, if it brings one."""
    found = getattr(module, "record_losses", None)
    return found if callable(found) else None


@dataclass(frozen=True, kw_only=True)
class RecordLosses:
    """Losses of a module's records.

    Attributes:
        weights: of the classes, public; empty: every record counts once.
    """

    weights: tuple[float, ...] = ()

    @classmethod
    def of_classes(cls, weights: Sequence[float], classes: int) -> RecordLosses:
        """With weights for K classes, or none.

        Raises:
            ValueError: another number of weights, or one out of range.
        """
        if weights:
            check_weights(weights, classes)
        return cls(weights=tuple(weights))

    def __call__(
        self, module: nn.Module, x: Tensor, y: Tensor, draws: Tensor | None = None
    ) -> Tensor:
        """`[b]` losses of records `[b, p]` with labels `[b]`.

        Raises:
            ValueError: an own loss that is not one number a record.
        """
        own = own_losses(module)
        each = cross_entropy(module(x), y) if own is None else own(x, y, draws)
        if each.shape != (len(x),):
            raise ValueError(
                f"Expected record_losses to give one loss a record, {[len(x)]}, got "
                f"{list(each.shape)}."
            )
        return each * self.of(y, each) if self.weights else each

    def of(self, y: Tensor, like: Tensor) -> Tensor:
        """`[b]` the weights of labels."""
        return torch.tensor(self.weights, dtype=like.dtype, device=like.device)[y]


CROSS_ENTROPY = RecordLosses()
"""No weights, and a module's own loss where it brings one."""
