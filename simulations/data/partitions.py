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

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.module_loading.plugin_table import PluginTable

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
    values: NDArray[Any], parties: int, rng: np.random.Generator, *, min_records: int = 1
) -> list[Rows]:
    """Split all records at random, in sizes that differ by at most one."""
    sizes = compute_equal_sizes(len(values), parties, min_records)
    return cut_rows(rng.permutation(len(values)), sizes)


def compute_equal_sizes(records: int, parties: int, min_records: int) -> list[int]:
    """Return sizes that differ by at most one."""
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


def cut_rows(order: Rows, sizes: Sequence[int]) -> list[Rows]:
    """Return rows in pieces of these sizes."""
    return [order[begin:end] for begin, end in pairwise(np.cumsum([0, *sizes]))]


def _format_count(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"


PARTITIONS = PluginTable[Callable[..., list[Rows]]](
    {
        "iid": "parley.simulations.data.partitions:split_iid",
        "column": "parley.simulations.data.uneven_partitions:split_by_column",
        "dirichlet": "parley.simulations.data.uneven_partitions:split_dirichlet",
        "sizes": "parley.simulations.data.uneven_partitions:split_by_sizes",
    }
)
"""Partitions by the value of `data.partition`."""
