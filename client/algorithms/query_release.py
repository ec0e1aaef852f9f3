"""A batch of queries as an algorithm: one release of integers, whose noisy sum is the answer.

The task contains the queries with their weights, the relation, and how records count. The schema is
the party's. From them the party derives the number of cells, the sensitivity of one record, person
or party (Δ₁, Δ₂), and the maximum of a party's integers. It checks the plan against these, as for
any algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from parley.client.algorithms.algorithm_spec import AlgorithmSpec, PartyResources, check_keys
from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import ReleasedAggregate
from parley.client.contract.assumptions import list_query_assumptions
from parley.client.contract.model_state_encoding import State
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_value, format_received
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError
from parley.client.queries.filters.expressions import WhereError
from parley.client.queries.query_batch import Counting, QueryBatch, decode_batch, decode_counting
from parley.client.queries.randomised_response import ResponseQuery
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness

MAX_SUM = 2**53
"""Limit of a party's integers: sums of whole doubles are exact below."""


@dataclass(frozen=True, kw_only=True)
class RawColumns:
    """Input of queries: columns as they are, without features."""

    features: int = 0

    def check_labels(self, labels: Any) -> None:
        """Accept any labels: queries have none."""


@dataclass(frozen=True, kw_only=True)
class QueryRelease(ReleasedAggregate):
    """One batch of queries.

    Attributes:
        schema: the party's schema; None before the algorithm is bound to one.
    """

    kind: ClassVar[str] = "query"

    batch: QueryBatch
    neighbouring: Neighbouring
    counting: Counting = field(default_factory=Counting)
    schema: Schema | None = None

    @property
    def model(self) -> RawColumns:
        """Placeholder: no model is learned."""
        return RawColumns()

    @property
    def _schema(self) -> Schema:
        if self.schema is None:
            raise ValueError("Expected queries that are bound to a schema, got none.")
        return self.schema

    @property
    def dimension(self) -> int:
        """d: all cells of the batch; with results by party, those of all parties."""
        return self.counting.count_cells(self.batch, self._schema)

    @property
    def assumption(self) -> str:
        """Assumptions: who counts as a person, and that reports are fresh. Sums are exact."""
        reported = self.batch.reporting_query is not None
        return "; ".join(list_query_assumptions(self.counting.unit, reported=reported))

    def init(self) -> State:
        """Return an empty state."""
        return {"theta": np.zeros(0)}

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim the set of the batch's whole numbers; no grid adds to them."""
        record_set = self.counting.build_unit_set(self.batch, self._schema)
        # If sizes are private, a contribution is clamped to the plan's bound, for any bound. With
        # unit party, `largest` is that of a party.
        records = 1 if self.counting.is_size_private(self.neighbouring) else facts.max_records
        reports = get_response_query(self.batch)
        steps = None if reports is None else reports.build_mechanism(self._schema)
        return Claim(
            steps=steps,
            dimension=self.dimension,
            features=1,
            bound=float(records * record_set.largest),
            lies_in=record_set,
            records=self.counting.records,
            unit=self.counting.unit,
            neighbouring=self.neighbouring,
            scale_bits=0,
        )

    def local(
        self, state: State, block: Any, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's integers, as doubles that hold them exactly."""
        max_value = int(plan.encoding.bound)
        # For results by party: the cells of the single party, or of each party of a block.
        party = randomness.party
        positions = block.get_positions().tolist() if party is None else [party]
        if (reports := get_response_query(self.batch)) is not None:
            block = reports.randomise_block(
                block, lambda row: randomness.open_noise_share(plan.round_number, positions[row])
            )
        vectors = self.counting.compute_party_vectors(self.batch, block, positions)
        rows = [np.clip(vector, -max_value, max_value) for vector in vectors]
        return Contribution(values=np.array(rows, dtype=np.float64), failed=())


def get_response_query(batch: QueryBatch) -> ResponseQuery | None:
    """Return the query that records answer with randomised response, if the batch is one."""
    reports = batch.reporting_query
    return reports if isinstance(reports, ResponseQuery) else None


def to_task(algorithm: QueryRelease) -> dict[str, Any]:
    """Return the queries, the relation, and how records count (see `registry`)."""
    return {
        "version": 3,
        "neighbouring": str(algorithm.neighbouring),
        "counting": algorithm.counting.to_json(),
        "batch": algorithm.batch.to_json(),
    }


def from_task(task: Mapping[str, Any], party: PartyResources) -> QueryRelease:
    """Build the algorithm, not bound to a schema yet. Raises DecodingError."""
    check_keys(task, "version", "neighbouring", "counting", "batch")
    decode_value(Literal[3], task["version"], "version")
    return QueryRelease(
        batch=decode_batch(task["batch"]),
        counting=decode_counting(task["counting"]),
        neighbouring=decode_value(Neighbouring, task["neighbouring"], "neighbouring"),
    )


def parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return no model, and a lower bound of one cell per query."""
    batch = task.get("batch")
    if not isinstance(batch, list):
        raise DecodingError(f"Expected a list of queries, got {format_received(batch)}.")
    return "", max(len(batch), 1)


def bind_schema(algorithm: QueryRelease, schema: Schema | None) -> QueryRelease:
    """Return the algorithm bound to a party's own schema, and check it. Raises Declined."""
    if schema is None:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    with decline_errors(Reason.MODEL, (QueryError, SchemaError, WhereError)):
        counting, relation = algorithm.counting, algorithm.neighbouring
        if algorithm.batch.reporting_query is not None and counting != Counting():
            expected = "unit record and no results by party with randomised response"
            raise QueryError(f"Expected {expected}, got others.")
        algorithm.batch.check(schema, counting.get_relation(relation))
        bound = replace(algorithm, schema=schema)
        counting.compute_sensitivity(algorithm.batch, schema, relation)
        counting.count_cells(algorithm.batch, schema)
    return bound


def check_grid(algorithm: QueryRelease, plan: ReleasePlan) -> None:
    """Check that integers are sent unscaled and summed exactly. Raises Declined."""
    if algorithm.counting.parties not in (0, plan.parties):
        expected = f"Expected cells of {plan.parties} parties, or of all together"
        raise Declined(Reason.ALGORITHM, f"{expected}, got those of {algorithm.counting.parties}.")
    if plan.encoding.scale_bits != 0 or not plan.encoding.bound < MAX_SUM:
        got = f"scale_bits {plan.encoding.scale_bits} and bound {plan.encoding.bound:g}"
        raise Declined(Reason.GRID, f"Expected a grid of whole numbers below 2^53, got {got}.")


SPEC = AlgorithmSpec(
    title="queries",
    to_task=to_task,
    from_task=from_task,
    parse_size=parse_size,
    check=check_grid,
    bind=bind_schema,
    answers_queries=True,
    summed=True,
)
