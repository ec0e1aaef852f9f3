"""A b-ary tree of counts over K ordered cells, and the leaves that best fit its noisy nodes.

Level 0 has K nodes. Level l has ⌈K/b^l⌉ nodes, each the sum of b nodes of level l − 1. The root is
omitted, so a record is in one node of each of h levels. A range of cells is then a sum of few noisy
nodes. Least squares makes the nodes consistent, in two passes (Hay, Rastogi, Miklau & Suciu 2010).
From the leaves up, every node's count and the sum of its children's counts are averaged, weighted
by their variances. From the top down, a node's excess over its children's sum is shared among them.

    >>> tree = CountTree(cells=128, branching=2)
    >>> tree.levels, tree.nodes
    (7, 254)
    >>> import numpy as np
    >>> counts = tree.build(np.arange(128))
    >>> tree.estimate_leaves(counts)[:4].round(6).tolist()
    [0.0, 1.0, 2.0, 3.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parley.privacy.accounting.rounding import check_whole

_MAX_CELLS = 1 << 24

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, kw_only=True)
class CountTree:
    """Shape of a tree of K ≥ 2 ordered cells with branching b ≥ 2."""

    cells: int
    branching: int

    def __post_init__(self) -> None:
        for name in ("cells", "branching"):
            value = getattr(self, name)
            if check_whole(name, value, 2) > _MAX_CELLS:
                raise ValueError(f"Expected {name} from 2 to {_MAX_CELLS}, got {value}.")

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """`[h]` number of nodes per level, from the K leaves to the level below the root."""
        widths = [self.cells]
        while (above := -(-widths[-1] // self.branching)) > 1:
            widths.append(above)
        return tuple(widths)

    @property
    def levels(self) -> int:
        """Number h of levels."""
        return len(self.widths)

    @property
    def nodes(self) -> int:
        """Number of nodes of all levels."""
        return sum(self.widths)

    def build(self, leaves: ArrayLike) -> NDArray[np.int64]:
        """Return `[nodes]` the tree of counts `[K]`: leaves first, the top level last."""
        level = np.asarray(leaves, dtype=np.int64)
        if level.shape != (self.cells,):
            raise ValueError(f"Expected {self.cells} cells, got shape {level.shape}.")
        found = [level]
        for width in self.widths[1:]:
            level = _sum_children(level, width, self.branching)
            found.append(level)
        return np.concatenate(found)

    def estimate_leaves(
        self, noisy: ArrayLike, *, total: float | None = None
    ) -> NDArray[np.float64]:
        """Return `[K]` the leaves of the least-squares tree for noise of one variance.

        `noisy` is in the order of `build`; `total` is the sum of all leaves if it is public.
        """
        values = np.asarray(noisy, dtype=np.float64)
        if values.shape != (self.nodes,):
            raise ValueError(f"Expected {self.nodes} nodes, got shape {values.shape}.")
        levels = np.split(values, np.cumsum(self.widths)[:-1])
        # Up: the best estimate of every node from the nodes below it, and its variance.
        estimates, variances = [levels[0]], [np.ones(self.cells)]
        for level in levels[1:]:
            below = _sum_children(estimates[-1], len(level), self.branching)
            spread = _sum_children(variances[-1], len(level), self.branching)
            weight = spread / (spread + 1)
            estimates.append(weight * level + (1 - weight) * below)
            variances.append(weight)
        # Down: share a node's excess over its children's sum, in proportion to their variances.
        if total is not None:
            top = variances[-1]
            estimates[-1] = estimates[-1] + (total - estimates[-1].sum()) * top / top.sum()
        for k in range(self.levels - 2, -1, -1):
            width = self.widths[k + 1]
            excess = estimates[k + 1] - _sum_children(estimates[k], width, self.branching)
            share = excess / _sum_children(variances[k], width, self.branching)
            spread_out = np.repeat(share, self.branching)[: self.widths[k]]
            estimates[k] = estimates[k] + spread_out * variances[k]
        return estimates[0]


def _sum_children(level: NDArray[Number], width: int, branching: int) -> NDArray[Number]:
    """Return `[width]` sums of `branching` neighbours each; the last sums the rest."""
    return np.add.reduceat(level, np.arange(width) * branching)


def fit_monotone(cumulative: ArrayLike) -> NDArray[np.float64]:
    """Return `[K]` the nearest non-decreasing curve in L2.

    Pool adjacent violators (Ayer et al. 1955).
    """
    sums: list[float] = []
    sizes: list[int] = []
    for value in np.asarray(cumulative, dtype=np.float64).tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-2] * sizes[-1] > sums[-1] * sizes[-2]:
            later, size = sums.pop(), sizes.pop()
            sums[-1] += later
            sizes[-1] += size
    return np.repeat([s / n for s, n in zip(sums, sizes, strict=True)], sizes)
