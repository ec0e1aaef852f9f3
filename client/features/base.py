"""`FeatureMap`: a public, fixed function of a single record, identified by name and digest.

    bound = feature_map.bind(schema)    # for records of one schema
    rows = bound.compute(cells)         # [n, p] cells as the schema reads them → [n, q] features

A map must be public and act on each record separately. Then features of neighbouring data sets are
neighbouring, for any map, and it costs no privacy. Cells are the schema's columns mapped into [−1,
1] and one-hot, *before* rows are scaled. `digest` covers everything that determines a feature.
Parties compare it, and contributions are bound to it.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.data.schema import Schema
from parley.client.data.threaded_chunks import map_chunks
from parley.client.features.column_terms import ColumnTerm
from parley.client.features.feature_error import FeatureError
from parley.client.models.contribution_clipping import zero_broken_rows

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows

MAX_FEATURES: Final = 1 << 17
"""Maximum output width of a map."""

_PIECE = 512
"""Records mapped at a time: a multiple of each map's batch size."""

_TIMED_ROWS: Final = 16

Cells = NDArray[np.float64]
Mapped = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class BoundFeatureMap:
    """A map for records of one schema: `[n, p]` cells → `[n, q]` features, q = `width`.

    Attributes:
        max_entries: maximum number of features of a record that are not zero; None: unknown. With
            it, `map_piece` maps each record separately, to the same bits in any batch.
    """

    width: int
    map_piece: Callable[[Cells], Mapped]
    max_entries: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_FEATURES:
            raise FeatureError(f"Expected 1 to {MAX_FEATURES} features, got {self.width}.")

    def measure_record_seconds(self, columns: int) -> float:
        """Measure the seconds per made-up record, in a batch of 16, on one core: for limits."""
        rows = np.zeros((_TIMED_ROWS, columns))
        self.map_piece(rows)  # exclude one-time work
        began = time.perf_counter()
        self.map_piece(rows)
        return (time.perf_counter() - began) / _TIMED_ROWS

    def compute(self, cells: FeatureRows) -> Mapped:
        """Compute `[N, q]` features of `[N, p]` cells, on all available cores.

        If a record's features are not all finite, they become zeros. A refusal would depend on that
        record, under settings that a server chose.
        """
        rows = np.empty((len(cells), self.width), np.float32)

        def fill(begin: int, end: int) -> None:
            rows[begin:end] = self.map_piece(np.asarray(cells[begin:end]))
            zero_broken_rows(rows[begin:end])

        count = len(cells)
        map_chunks(fill, [(at, min(at + _PIECE, count)) for at in range(0, count, _PIECE)])
        return rows


@dataclass(frozen=True, kw_only=True)
class FeatureMap(ABC):
    """A map with its settings as fields; `version` is raised when the same settings give other
    features.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @property
    def public_name(self) -> str:
        """Name by which server and parties identify the map."""
        return self.name

    def describe_content(self) -> Any:
        """Return what determines its features in addition to name, version and settings."""
        return None

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that determines a feature."""
        parts = (self.public_name, self.version, self.settings, self.describe_content())
        return hashlib.sha256(b"parley/features" + encode_canonical(parts)).hexdigest()

    @abstractmethod
    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records of a schema, if it accepts them."""

    def list_column_terms(self, schema: Schema) -> tuple[ColumnTerm, ...]:
        """Return the features of each single column; empty for a map that mixes columns."""
        return ()
