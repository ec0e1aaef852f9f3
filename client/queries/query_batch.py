"""`QueryBatch`: several queries in one vector, under one noise, charged as one release.

Query q is multiplied by an integer a_q before it joins the others. Its share of the budget can
therefore be chosen: its own noise has scale b/a_q or σ/a_q. A record's vector is in the product of
the queries' sets. A batch of one query is the ordinary case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import MAX_WEIGHT, Integers, Query, QueryError
from parley.client.queries.count_queries import MAX_CELLS
from parley.client.queries.query_decoding import decode_query
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sensitivity.bounded_sets import NormBounds, Set, compute_sensitivity
from parley.safe_io.error_translation import translate_errors

MAX_QUERIES = 64
MAX_PRIVATE_ENTRY = 2**31
"""Maximum entry if a party's number of records is private. Fewer than 2³² of them add up to less
than 2⁶³, before the sum is clipped to the plan's bound. If it wrapped around, all of it would move.
"""


@dataclass(frozen=True, kw_only=True)
class QueryBatch:
    """At least one query, and at most `MAX_QUERIES`, each with its weight a_q."""

    queries: tuple[Query, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.queries) <= MAX_QUERIES:
            got = len(self.queries)
            raise QueryError(f"Expected 1 to {MAX_QUERIES} queries in a batch, got {got}.")
        if len(self.weights) != len(self.queries):
            expected = f"Expected a weight for each of {len(self.queries)} queries"
            raise QueryError(f"{expected}, got {len(self.weights)}.")
        if not all(1 <= weight <= MAX_WEIGHT for weight in self.weights):
            raise QueryError(f"Expected weights from 1 to 2^40, got {self.weights}.")
        if self.reporting_query is not None and (len(self.queries) > 1 or self.weights != (1,)):
            raise QueryError(
                "Expected a query of randomised response to be the only one of its "
                "batch, with weight 1, got others."
            )

    @property
    def reporting_query(self) -> Query | None:
        """The query whose records answer for themselves. It is the only query of its batch."""
        return next((query for query in self.queries if query.report_epsilon), None)

    @property
    def columns(self) -> frozenset[str]:
        """All columns that it reads."""
        return frozenset[str]().union(*(query.columns for query in self.queries))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Raise QueryError or SchemaError if a query cannot be asked of such a table."""
        for query in self.queries:
            query.check(schema, neighbouring)
        check_cells(self.queries, schema)

    def list_slices(self, schema: Schema) -> tuple[slice, ...]:
        """Return the position of each query's vector in the batch's."""
        ends = np.cumsum([0, *(query.count_cells(schema) for query in self.queries)]).tolist()
        return tuple(slice(begin, end) for begin, end in pairwise(ends))

    def count_cells(self, schema: Schema) -> int:
        """Return d."""
        return sum(query.count_cells(schema) for query in self.queries)

    def build_record_sets(self, schema: Schema) -> tuple[Set, ...]:
        """Return the sets of what one record adds to each query's vector."""
        both = zip(self.queries, self.weights, strict=True)
        return tuple(query.build_record_set(schema, weight) for query, weight in both)

    def compute_party_vectors(self, block: RawPartyBlock) -> Iterator[Integers]:
        """Yield `[d]` for each party in turn."""
        both = zip(self.queries, self.weights, strict=True)
        parts = [query.compute_party_vectors(block, weight) for query, weight in both]
        for pieces in zip(*parts, strict=True):
            yield pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values for transport: every query with its weight."""
        both = zip(self.queries, self.weights, strict=True)
        return [{**query.to_json(), "weight": weight} for query, weight in both]


def check_cells(queries: Sequence[Query], schema: Schema) -> None:
    """Raise QueryError for more cells than any vector may have, before any such vector exists."""
    cells = sum(query.count_cells(schema) for query in queries)
    if cells > MAX_CELLS:
        raise QueryError(f"Expected at most {MAX_CELLS:,} cells in a sum, got {cells:,}.")


def decode_batch(value: Any) -> QueryBatch:
    """Decode a batch that a peer sent; the inverse of `QueryBatch.to_json`.

    Raises:
        DecodingError: the values are malformed.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_QUERIES:
        got = format_received(value)
        raise DecodingError(f"Expected a list of 1 to {MAX_QUERIES} queries, got {got}.")
    queries, weights = [], []
    for each in value:
        if not isinstance(each, Mapping) or "weight" not in each:
            got = format_received(each)
            raise DecodingError(f"Expected a query with its weight, got {got} without one.")
        weights.append(decode_value(int, each["weight"], "weight"))
        queries.append(decode_query({key: part for key, part in each.items() if key != "weight"}))
    with translate_errors(QueryError, DecodingError):
        return QueryBatch(queries=tuple(queries), weights=tuple(weights))


Clip = Literal["", "l1", "l2"]

MAX_RECORDS = 2**31
"""Maximum number of records of a person, or of those that a party counts for."""
_MAX_PARTIES = 2**20
_SLACK = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How records count in a release of queries.

    Attributes:
        unit: what the noise hides.
        most: k, the records that a person may have, or that a party counts for; 1 for unit record.
        clip: the norm in which a party's vectors are clipped.
        parties: m, if every party has its own cells; 0: all have the same.
    """

    unit: Unit = Unit.RECORD
    most: int = 1
    clip: Clip = ""
    parties: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.most <= MAX_RECORDS or (self.unit is Unit.RECORD and self.most > 1):
            expected = f"Expected 1 to 2^31 records of a {self.unit}, and 1 of a record"
            raise QueryError(f"{expected}, got {self.most}.")
        if (self.unit is Unit.PARTY) != (self.clip != ""):
            expected = "Expected clipping in l1 or l2 with unit party, and with no other"
            raise QueryError(f"{expected}, got {self.clip!r} with unit {self.unit}.")
        if not 0 <= self.parties <= _MAX_PARTIES:
            raise QueryError(f"Expected up to 2^20 parties, got {self.parties}.")

    def get_relation(self, neighbouring: Neighbouring) -> Neighbouring:
        """Return the relation of records within queries: sizes are private within a party."""
        inside = self.unit is Unit.PARTY
        return Neighbouring.ADD_OR_REMOVE_ONE if inside else neighbouring

    def is_size_private(self, neighbouring: Neighbouring) -> bool:
        """Return whether the number of records is private."""
        return self.get_relation(neighbouring) is Neighbouring.ADD_OR_REMOVE_ONE

    def count_cells(self, batch: QueryBatch, schema: Schema) -> int:
        """Return d, of all parties' cells.

        Raises:
            QueryError: they are more than any vector may have.
        """
        cells = batch.count_cells(schema) * max(self.parties, 1)
        if cells > MAX_CELLS:
            got = f"{cells:,} of {self.parties} parties together"
            remedy = "Request fewer cells, or the same cells for all parties."
            raise QueryError(f"Expected at most {MAX_CELLS:,} cells in a sum, got {got}. {remedy}")
        return cells

    @property
    def records(self) -> int:
        """Number of vectors of `build_unit_set` that one neighbour moves."""
        return 1 if self.unit is Unit.PARTY else self.most

    def build_unit_set(self, batch: QueryBatch, schema: Schema) -> Set:
        """Return the set of what one record adds; for unit party, of a party's whole vector."""
        if self.unit is not Unit.PARTY:
            return Set.product(*batch.build_record_sets(schema))
        every = zip(batch.queries, self._compute_clip_bounds(batch, schema), strict=True)
        return Set.product(*(self._build_clipped_set(q, schema, bound) for q, bound in every))

    def _build_clipped_set(self, query: Query, schema: Schema, bound: int) -> Set:
        """Return the set of a party's vectors of one query."""
        cells = query.count_cells(schema)
        if query.nonnegative and cells == 1:
            return Set.interval(0, bound if self.clip == "l1" else math.isqrt(bound))
        ball = Set.l1_ball(bound) if self.clip == "l1" else Set.ball(cells, squared=bound)
        return ball.restrict_to_acute() if query.nonnegative else ball

    def compute_sensitivity(
        self, batch: QueryBatch, schema: Schema, neighbouring: Neighbouring
    ) -> NormBounds:
        """Return how far a neighbour moves the integer sum. Raises QueryError."""
        alone = max(each.largest for each in batch.build_record_sets(schema))
        if self.is_size_private(neighbouring) and alone > MAX_PRIVATE_ENTRY:
            expected = "Expected entries of at most 2^31 if a party's size is private"
            raise QueryError(f"{expected}, got {alone}. Choose more equal shares of the budget.")
        unit_set = self.build_unit_set(batch, schema)
        moved = compute_sensitivity(unit_set, neighbouring, records=self.records)
        return moved.limit_to_dimension(self.count_cells(batch, schema))

    def _compute_clip_bounds(self, batch: QueryBatch, schema: Schema) -> list[int]:
        """Return each query's C (for L2, C²) for `most` records."""
        most = [each.radius.multiply(self.most) for each in batch.build_record_sets(schema)]
        return [each.l1 if self.clip == "l1" else each.l2_squared for each in most]

    def compute_party_vectors(
        self, batch: QueryBatch, block: RawPartyBlock, positions: Sequence[int]
    ) -> Iterator[Integers]:
        """Yield `[d]` for each party in turn, clipped and in its own cells.

        Args:
            positions: the parties' positions among all parties.
        """
        bounds = self._compute_clip_bounds(batch, block.schema) if self.unit is Unit.PARTY else []
        cells = self.count_cells(batch, block.schema)
        slices = batch.list_slices(block.schema)
        for place, vector in zip(positions, batch.compute_party_vectors(block), strict=True):
            given = vector
            if bounds:
                own = zip(batch.queries, bounds, slices, strict=True)
                clipped = [self._bound_vector(vector[at], q, most) for q, most, at in own]
                given = np.concatenate(clipped)
            if self.parties:
                if not 0 <= place < self.parties:
                    raise ValueError(f"Expected a party below {self.parties}, got {place}.")
                wide = np.zeros(cells, dtype=np.int64)
                wide[place * len(given) : (place + 1) * len(given)] = given
                given = wide
            yield given

    def _bound_vector(self, vector: Integers, query: Query, bound: int) -> Integers:
        """Return the vector clipped; counts are at least 0."""
        return self.clip_vector(np.maximum(vector, 0) if query.nonnegative else vector, bound)

    def clip_vector(self, vector: Integers, bound: int) -> Integers:
        """Scale a party's integers of one query towards 0 until Σ|v| ≤ C, or Σv² ≤ C².

        They are scaled as a whole, so that their ratios stay.
        """
        power = 1 if self.clip == "l1" else 2
        total, fits = _compute_norm(vector, bound, power)
        factor = 1.0 if fits else (bound / total) ** (1 / power) * (1 + 2.0**-45)
        given = vector
        while not fits:
            given = np.trunc(vector * factor).astype(np.int64)
            fits = _compute_norm(given, bound, power)[1]
            factor *= 1 - _SLACK / 4
        return given

    def to_json(self) -> dict[str, Any]:
        """Return plain values for transport."""
        return {**asdict(self), "unit": str(self.unit)}


def _compute_norm(vector: Integers, bound: int, power: int) -> tuple[float, bool]:
    """Return Σ|v|^power, and whether it is certainly at most the bound."""
    size = np.abs(vector.astype(np.float64))
    total = float(size.sum() if power == 1 else size @ size)
    # Below 2^52 every partial sum is an exact double. Beyond it the error is below the slack.
    return total, total <= bound if total < 2.0**52 else total * (1 + _SLACK) <= bound


def decode_counting(value: Any) -> Counting:
    """Decode a counting that a peer sent; the inverse of `Counting.to_json`.

    Raises:
        DecodingError: the values are malformed.
    """
    if not isinstance(value, dict):
        got = format_received(value)
        raise DecodingError(f"Expected how records count as an object, got {got}.")
    return decode_dataclass(Counting, value)
