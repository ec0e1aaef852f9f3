"""Join records that were read in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import RowStorage
from parley.client.data.training_records import Records


def join_records(
    parts: list[Records], order: NDArray[np.int64] | None = None, storage: RowStorage | None = None
) -> Records:
    """Join the records of all parts. Each part is freed once copied, to save memory.

    Args:
        order: `[N]` index of the record at each position; None: as they came.
        storage: of rows that may be sparse; None: they are dense.
    """
    if len(parts) == 1 and order is None and isinstance(parts[0].features, np.ndarray):
        return parts[0]
    groups = [part.groups for part in parts if part.groups is not None]
    labels = np.concatenate([part.labels for part in parts])
    names = parts[0].feature_names
    clamped = {n: sum(p.clamped.get(n, 0) for p in parts) for p in parts for n in p.clamped}
    shape = len(labels), len(names)
    features = np.empty(shape) if storage is None else storage.allocate(*shape)
    positions = None if order is None else np.argsort(order)
    end = len(labels)
    while parts:
        part = parts.pop()
        rows = slice(end - len(part), end)
        features[rows if positions is None else positions[rows]] = part.features
        end -= len(part)
    joined_groups = np.concatenate(groups) if groups else None
    return Records(
        features=features,
        labels=labels if order is None else labels[order],
        feature_names=names,
        groups=joined_groups if joined_groups is None or order is None else joined_groups[order],
        clamped=clamped,
    )
