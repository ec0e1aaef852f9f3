"""Split one table among parties of other sizes or labels: by a column, by sizes, with label skew.

The functions are partitions as `parley.simulations.data.partitions` defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.simulations.data.partitions import PartitionError, Rows, compute_equal_sizes, cut_rows


def split_by_sizes(
    values: NDArray[Any],
    parties: int,
    rng: np.random.Generator,
    *,
    sizes: Sequence[int],
    min_records: int = 1,
) -> list[Rows]:
    """Split at random, with `sizes[j]` records for party j; records beyond their sum are unused."""
    if len(sizes) != parties:
        raise PartitionError(f"Expected {parties} sizes, one per party, got {len(sizes)}.")
    if min(sizes) < 1:
        raise PartitionError(f"Expected sizes of at least 1, got {min(sizes)}.")
    if sum(sizes) > len(values):
        raise PartitionError(
            f"Expected sizes that sum to at most {len(values)} records, got {sum(sizes)}. Lower "
            "the sizes or data.test-fraction."
        )
    return _check_sizes(cut_rows(rng.permutation(len(values)), list(sizes)), min_records)


def split_by_column(
    values: NDArray[Any], parties: int, rng: np.random.Generator, *, min_records: int = 1
) -> list[Rows]:
    """Split into one party per value of a column (a hospital, a bank), in the values' order."""
    names, owner = np.unique(values, return_inverse=True)
    if parties != len(names):
        raise PartitionError(
            f"Expected {parties} values in the column, one per party, got {len(names)}. Use "
            f"`--set parties.count={len(names)}`."
        )
    order = np.argsort(owner, kind="stable")
    parts = cut_rows(order, np.bincount(owner, minlength=len(names)).tolist())
    return _check_sizes(parts, min_records, [str(name) for name in names])


def split_dirichlet(
    values: NDArray[Any],
    parties: int,
    rng: np.random.Generator,
    *,
    alpha: float,
    min_records: int = 1,
) -> list[Rows]:
    """Split with label skew at equal sizes: party j samples by a label mixture q_j ~ Dir(α·K·p).

    p is the share of the K labels in the table. α → 0 leaves a party one label; α → ∞ is iid (Hsu,
    Qi, Brown 2019, arXiv:1909.06335, with the concentration spread over the labels). If a label
    runs out, the other labels of the party's mixture replace it. Sizes are equal so that skew does
    not change n₍₁₎, and with it the noise.
    """
    if not (alpha > 0 and np.isfinite(alpha)):
        raise PartitionError(f"Expected a finite alpha > 0, got {alpha:g}.")
    labels, label_of = np.unique(values, return_inverse=True)
    if len(labels) > 1000:
        raise PartitionError(
            f"Expected at most 1000 distinct labels to skew, got {len(labels)}. Use iid for "
            "numeric targets."
        )
    sizes = compute_equal_sizes(len(values), parties, min_records)
    pools = [rng.permutation(np.flatnonzero(label_of == k)) for k in range(len(labels))]
    left = np.array([len(pool) for pool in pools])
    mixtures = rng.dirichlet(alpha * len(labels) * left / left.sum(), size=parties)
    parts: list[Rows] = [np.empty(0, np.int64)] * parties
    # In a random order, so that party 0 does not always get the full pools.
    for party in rng.permutation(parties):
        counts = _draw_counts(mixtures[party], sizes[party], left, rng)
        left = left - counts
        taken = [pools[k][left[k] : left[k] + counts[k]] for k in np.flatnonzero(counts)]
        parts[party] = np.concatenate(taken)
    return parts


def _draw_counts(
    mixture: NDArray[np.float64], size: int, left: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw `[K]` the number of each label, by the mixture among the labels that are left."""
    counts = np.zeros_like(left)
    while (open_places := size - int(counts.sum())) > 0:
        available = left - counts
        weights = np.where(available > 0, mixture, 0.0)
        if not weights.sum() > 0:
            weights = available.astype(np.float64)
        drawn = rng.multinomial(open_places, weights / weights.sum())
        counts = counts + np.minimum(drawn, available)
    return counts


def _check_sizes(parts: list[Rows], min_records: int, names: list[str] | None = None) -> list[Rows]:
    held = [len(rows) for rows in parts]
    short = [party for party, size in enumerate(held) if size < min_records]
    if short:
        least = min(short, key=lambda party: held[party])
        name = f"party {least}" + (f" ({names[least]!r})" if names else "")
        raise PartitionError(
            f"Expected at least min-records = {min_records} records in every party, got"
            f" {held[least]} in {name}; {len(short)} of {len(parts)} parties hold too few:"
            f" {_format_remedies(held[least])}."
        )
    return parts


def _format_remedies(least: int) -> str:
    """Return remedies for parties with too few records, the smallest of them with `least`."""
    leave = "leave those parties' records out"
    return f"use `--set parties.min-records={least}`, or {leave}" if least else leave
