"""How near synthetic records are to the records that made them, and to others of the same kind.

Information, and no evidence of privacy: a rare record that is copied does not show in an average,
and a common one is near whatever was released. The guarantee is the ε.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.simulations.figures.judging import auc

_MOST = 2000
"""Records of each kind that are looked at: all distances between them are taken."""

Rows = NDArray[Any]


def closest_figures(
    drawn: Rows, train: Rows, held_out: Rows, rng: np.random.Generator, *, codes: bool
) -> dict[str, float | None]:
    """Distances, copies, and how well distance tells training records from held-out ones.

    Args:
        drawn, train, held_out: `[n, columns]` codes, or cells of arrays.
        rng: which of them are looked at: as many training records as held-out ones.
        codes: a distance is the share of columns that differ; otherwise the root mean square.
    """
    count = min(_MOST, len(train), len(held_out))
    if not count or not len(drawn):
        return {}

    def some(rows: Rows, most: int) -> Rows:
        return rows[rng.choice(len(rows), most, replace=False)]

    made = some(drawn, min(_MOST, len(drawn)))
    distances = [_distances(made, some(rows, count), codes) for rows in (train, held_out)]
    own, other = (found.min(axis=1) for found in distances)
    scores = np.concatenate([-found.min(axis=0) for found in distances])
    return {
        "copies": float(np.mean(own == 0)),
        "held_out_copies": float(np.mean(other == 0)),
        "nearest": float(np.mean(own)),
        "held_out_nearest": float(np.mean(other)),
        "membership_auc": auc(scores, np.arange(2 * count) < count),
    }


def _distances(one: Rows, other: Rows, codes: bool) -> NDArray[np.float64]:
    """`[a, b]` of rows `[a, p]` and `[b, p]`."""
    if codes:
        found = np.zeros((len(one), len(other)), np.int32)
        for column in range(one.shape[1]):
            found += one[:, column, None] != other[None, :, column]
        return np.asarray(found / one.shape[1])
    one, other = one.astype(np.float64), other.astype(np.float64)
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0) / one.shape[1]))
