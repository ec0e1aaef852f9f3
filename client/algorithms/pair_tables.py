"""Two-way tables of a party's records, from which synthetic tables are generated.

Each column is a code (`parley.client.data.record_discretization`). A record adds 1 to one cell of
each table. Contributions are whole numbers, so no order of summation rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    get_settings,
)
from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import NoModel, SumOfRecords
from parley.client.contract.model_state_encoding import Floats
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.data.record_discretization import MAX_VALUES, encode_classes
from parley.privacy.sensitivity.bounded_sets import Set

MAX_CELLS = 1 << 22
"""Maximum cells of all tables together."""

MAX_COLUMNS = 1024
"""Maximum columns of one record."""


def list_pairs(selection: str, columns: int) -> tuple[tuple[int, ...], ...]:
    """Return the pairs (i, j), i < j: of "all" columns, or of each with the "label", the last."""
    pairs = combinations(range(columns), 2)
    return tuple(pair for pair in pairs if selection == "all" or pair[1] == columns - 1)


def compute_cell_count(sizes: tuple[int, ...], pairs: tuple[tuple[int, ...], ...]) -> int:
    """Return Σ s_i·s_j."""
    return sum(sizes[i] * sizes[j] for i, j in pairs)


@dataclass(frozen=True, kw_only=True)
class PairTables(SumOfRecords):
    """The sum over all records of one indicator in each table; one release.

    Attributes:
        sizes: `[columns]` s_i; the label is the last column.
        pairs: the tables' columns (i, j), i < j.
    """

    kind: ClassVar[str] = "marginals"

    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = len(self.sizes)
        if columns < 2 or min(self.sizes) < 1:
            raise ValueError(f"Expected at least two columns with values, got {self.sizes}.")
        proper = all(len(pair) == 2 and 0 <= pair[0] < pair[1] < columns for pair in self.pairs)
        if not self.pairs or not proper or len(set(self.pairs)) < len(self.pairs):
            raise ValueError(f"Expected different pairs i < j of {columns} columns, got others.")
        if self.dimension > MAX_CELLS:
            got = self.dimension
            raise ValueError(f"Expected at most {MAX_CELLS} cells of all tables, got {got}.")

    @property
    def dimension(self) -> int:
        """Cells of all tables, Σ s_i·s_j."""
        return compute_cell_count(self.sizes, self.pairs)

    @property
    def columns(self) -> tuple[int, ...]:
        """`[columns]` number of values of each column, the label's last."""
        return self.sizes

    @property
    def model(self) -> NoModel:
        """Description of rows with one indicator per column, with any labels."""
        return NoModel(features=sum(self.sizes[:-1]), classes=self.sizes[-1])

    def sum_records(self, rows: NDArray[np.floating[Any]], labels: NDArray[Any]) -> Floats:
        """Return `[d]` the cells of `[n, Σ]` rows and their labels."""
        return self.count_cells(encode_rows(rows, labels, self.sizes))

    def count_cells(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `[d]` the cells of `[n, columns]` codes."""
        columns = np.ascontiguousarray(codes.T, np.int32)
        tables = [
            np.bincount(
                columns[i] * self.sizes[j] + columns[j], minlength=self.sizes[i] * self.sizes[j]
            )
            for i, j in self.pairs
        ]  # memory is bounded by the cells, for any sizes that a server sends
        return np.concatenate(tables).astype(np.float64)

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """Claim one cell of each table, for any records."""
        cells = [self.sizes[i] * self.sizes[j] for i, j in self.pairs]
        tables = (Set.interval(1, 1).spread_over_cells(count) for count in cells)
        features, classes = self.model.features, self.model.classes
        return self.build_claim(Set.product(*tables), classes=classes, features=features)


def encode_rows(
    rows: NDArray[np.floating[Any]], labels: NDArray[Any], sizes: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return `[n, columns]` codes of `[n, Σ]` rows with one indicator per column, and their labels.

    Any row gets exactly one code per column, so the sensitivity does not depend on trust in the
    data.
    """
    starts = np.cumsum([0, *sizes])
    codes = np.empty((len(rows), len(sizes)), np.int64)
    for column, (begin, end) in enumerate(pairwise(starts[:-1])):
        codes[:, column] = rows[:, begin:end].argmax(axis=1)
    codes[:, -1] = encode_classes(labels, sizes[-1])
    return codes


def to_task(algorithm: PairTables) -> dict[str, Any]:
    """Return the values of its fields (see `registry`).

    A word stands for all pairs, and for all pairs with the label.
    """
    columns = len(algorithm.sizes)
    words = {list_pairs(word, columns): word for word in ("all", "label")}
    pairs: Any = words.get(algorithm.pairs) or [list(pair) for pair in algorithm.pairs]
    settings = get_settings(algorithm, "sizes", "pairs")
    return {"sizes": list(algorithm.sizes), "pairs": pairs, "settings": settings}


def from_task(task: Mapping[str, Any], party: PartyResources) -> PairTables:
    """Build the algorithm from the result of `to_task`. Raises DecodingError."""
    parse_size(task)
    sizes, pairs = task["sizes"], task["pairs"]
    if isinstance(pairs, str):
        column_pairs = list_pairs(pairs, len(sizes))
    else:
        column_pairs = tuple(tuple(decode_value(tuple[int, ...], pair, "pair")) for pair in pairs)
    return decode_dataclass(PairTables, task["settings"], sizes=tuple(sizes), pairs=column_pairs)


def parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of model, and a lower bound on the number of cells."""
    check_keys(task, "sizes", "pairs", "settings")
    sizes, pairs = task["sizes"], task["pairs"]
    if not isinstance(sizes, list) or not 2 <= len(sizes) <= MAX_COLUMNS:
        raise DecodingError(f"Expected sizes of 2 to {MAX_COLUMNS} columns, got others.")
    if not all(type(each) is int and 1 <= each <= MAX_VALUES for each in sizes):
        raise DecodingError(f"Expected sizes from 1 to {MAX_VALUES}, got others.")
    if isinstance(pairs, list) and len(pairs) <= MAX_COLUMNS**2:
        return "table", max(len(pairs), 1)
    if pairs not in ("all", "label"):
        got = format_received(pairs)
        raise DecodingError(f"Expected pairs of columns, 'all' or 'label', got {got}.")
    return "table", 1


SPEC = AlgorithmSpec(
    title="two-way marginals",
    to_task=to_task,
    from_task=from_task,
    parse_size=parse_size,
    summed=True,
)
