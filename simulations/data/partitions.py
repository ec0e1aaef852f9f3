"""Split one table among parties: which party holds which record in a simulation.

Each partition is `(values [N], parties, rng, *, min_records, …) -> [rows of party 0, …]`; `values`
are the labels, or a column's values if the partition depends on one. A record goes to at most one
party. Every party holds at least `min_records` (the public lower bound n₍₁₎ that determines the
noise), or there is a `PartitionError`. No party is padded, dropped or merged silently.

    >>> rng = np.random.default_rng(1)
    >>> [len(rows) for rows in split_iid(np.zeros(10), 3, rng)]
    [4, 3, 3]

The split into training and test records comes first: `split_test`, then a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class PartitionError(ValueError):
    """The records cannot be split as requested; the message contains the shortage and a remedy."""


def split_test(records: int, test_fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return disjoint training and test rows of all `records`, round(N·fraction) for tests."""
    if not 0 <= test_fraction < 1:
        raise PartitionError(f"Expected test-fraction in [0, 1), got {test_fraction:g}.")
    tests = round(records * test_fraction)
    if records - tests < 1:
        raise PartitionError(
            f"Expected a record to train on, got {records}, {tests} of them for testing. Lower "
            "data.test-fraction."
        )
    order = rng.permutation(records)
    return np.sort(order[tests:]), np.sort(order[:tests])


def split_iid(
    values: NDArray[Any],
    parties: int,
    rng: np.random.Generator,
    *,
    min_records: int = 1,
) -> list[Rows]:
    """Split all records at random, in sizes that differ by at most one."""
    sizes = _compute_equal_sizes(len(values), parties, min_records)
    return _cut_rows(rng.permutation(len(values)), sizes)


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
    return _check_sizes(_cut_rows(rng.permutation(len(values)), list(sizes)), min_records)


def split_by_column(
    values: NDArray[Any],
    parties: int,
    rng: np.random.Generator,
    *,
    min_records: int = 1,
) -> list[Rows]:
    """Split into one party per value of a column (a hospital, a bank), in the values' order."""
    names, owner = np.unique(values, return_inverse=True)
    if parties != len(names):
        raise PartitionError(
            f"Expected {parties} values in the column, one per party, got {len(names)}. Use "
            f"`--set parties.count={len(names)}`."
        )
    order = np.argsort(owner, kind="stable")
    parts = _cut_rows(order, np.bincount(owner, minlength=len(names)).tolist())
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
    sizes = _compute_equal_sizes(len(values), parties, min_records)
    pools = [rng.permutation(np.flatnonzero(label_of == k)) for k in range(len(labels))]
    left = np.array([len(pool) for pool in pools])
    mixtures = rng.dirichlet(alpha * len(labels) * left / left.sum(), size=parties)
    parts: list[Rows] = [np.empty(0, np.int64)] * parties
    # In a random order, so that party 0 does not always get the full pools.
    for party in rng.permutation(parties):
        counts = _draw_counts(mixtures[party], sizes[party], left, rng)
        left = left - counts
        parts[party] = np.concatenate(
            [pools[k][left[k] : left[k] + counts[k]] for k in np.flatnonzero(counts)]
        )
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


def _compute_equal_sizes(records: int, parties: int, min_records: int) -> list[int]:
    if parties < 1:
        raise PartitionError(f"Expected at least 1 party, got {parties}.")
    least = max(1, min_records)
    if records // parties < least:
        most, each = records // least, records // parties
        helps = [f"`--set parties.count={most}`"] if most else []
        helps += [f"`--set parties.min-records={each}`"] if each else []
        typed = f" Use {', or '.join(helps)}." if helps else ""
        raise PartitionError(
            f"Expected at least {_format_count(least)} per party, got {_format_count(records)} "
            f"for {parties} parties, {each} each. A lower data.test-fraction leaves more.{typed}"
        )
    quotient, remainder = divmod(records, parties)
    return [quotient + (party < remainder) for party in range(parties)]


def _cut_rows(order: Rows, sizes: Sequence[int]) -> list[Rows]:
    ends = np.cumsum([0, *sizes])
    return [order[begin:end] for begin, end in pairwise(ends)]


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


def _format_count(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"
