"""A batch of queries as an algorithm: one release of integers, whose noisy sum is the answer.

The task says the queries with their weights, the relation, and how records count; the schema is
the party's. From them it derives how many cells there are, what one record, person or party may
move (Δ₁, Δ₂) and how large a party's integers can be, and holds the plan against that like any
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from parley.client.algorithms.algorithm_spec import Party, check_keys
from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.noisy_sums import AsReleased
from parley.client.contract.assumptions import of_queries
from parley.client.contract.model_state import State
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, as_came, value_from
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError
from parley.client.queries.filters import WhereError
from parley.client.queries.query_batch import Batch, Counting, batch_from, counting_from
from parley.client.queries.randomised_response import Response
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness

LARGEST_SUM = 2**53
"""Of a party's integers: sums of whole doubles are exact below."""


@dataclass(frozen=True, kw_only=True)
class RawColumns:
    """What queries read: columns as they are, no features."""

    features: int = 0

    def check_labels(self, labels: Any) -> None:
        """There are none."""


@dataclass(frozen=True, kw_only=True)
class QueryRelease(AsReleased):
    """One batch of queries.

    Attributes:
        schema: the party's; None before it is bound to one.
    """

    kind: ClassVar[str] = "query"

    batch: Batch
    neighbouring: Neighbouring
    counting: Counting = field(default_factory=Counting)
    schema: Schema | None = None

    @property
    def model(self) -> RawColumns:
        """Nothing is learned."""
        return RawColumns()

    @property
    def _schema(self) -> Schema:
        if self.schema is None:
            raise ValueError("Expected queries that are bound to a schema, got none.")
        return self.schema

    @property
    def dimension(self) -> int:
        """d: all cells of the batch, by party those of all."""
        return self.counting.cells(self.batch, self._schema)

    @property
    def assumption(self) -> str:
        """Who a person is, and that reports are drawn anew; sums are of whole numbers."""
        return "; ".join(of_queries(self.counting.unit, reported=self.batch.reports is not None))

    def init(self) -> State:
        """Nothing to start from."""
        return {"theta": np.zeros(0)}

    def claim(self, facts: PublicFacts) -> Claim:
        """The set of the batch's whole numbers; no grid adds to them."""
        given = self.counting.set(self.batch, self._schema)
        # Where sizes are private a contribution is cut to the plan's bound, whatever that is; of
        # unit party `largest` is that of a party.
        records = 1 if self.counting.private(self.neighbouring) else facts.max_records
        reports = reports_of(self.batch)
        steps = None if reports is None else reports.mechanism(self._schema)
        return Claim(
            steps=steps,
            dimension=self.dimension,
            features=1,
            bound=float(records * given.largest),
            lies_in=given,
            records=self.counting.records,
            unit=self.counting.unit,
            neighbouring=self.neighbouring,
            scale_bits=0,
        )

    def local(
        self, state: State, block: Any, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Every party's integers, as doubles that hold them exactly."""
        most = int(plan.encoding.bound)
        # By party: in the cells of the one that draws for itself, or of each of a block.
        places = block.placed().tolist() if randomness.party is None else [randomness.party]
        if (reports := reports_of(self.batch)) is not None:
            block = reports.said(block, lambda at: randomness.share(plan.round_number, places[at]))
        vectors = self.counting.vectors(self.batch, block, places)
        rows = [np.clip(vector, -most, most) for vector in vectors]
        return Contribution(values=np.array(rows, dtype=np.float64), failed=())


def reports_of(batch: Batch) -> Response | None:
    """The query whose records answer for themselves, if it is one."""
    found = batch.reports
    return found if isinstance(found, Response) else None


def to_task(algorithm: QueryRelease) -> dict[str, Any]:
    """The queries, the relation, and how records count (see `registry`)."""
    return {
        "version": 3,
        "neighbouring": str(algorithm.neighbouring),
        "counting": algorithm.counting.to_json(),
        "batch": algorithm.batch.to_json(),
    }


def of_task(task: Mapping[str, Any], party: Party) -> QueryRelease:
    """The inverse of `to_task`, not bound to a schema yet. Raises DecodingError."""
    del party
    check_keys(task, "version", "neighbouring", "counting", "batch")
    value_from(Literal[3], task["version"], "version")
    return QueryRelease(
        batch=batch_from(task["batch"]),
        counting=counting_from(task["counting"]),
        neighbouring=value_from(Neighbouring, task["neighbouring"], "neighbouring"),
    )


def size(task: Mapping[str, Any]) -> tuple[str, int]:
    """No model, and at least a cell a query."""
    batch = task.get("batch")
    if not isinstance(batch, list):
        raise DecodingError(f"Expected a list of queries, got {as_came(batch)}.")
    return "", max(len(batch), 1)


def bound_to(algorithm: QueryRelease, schema: Schema | None) -> QueryRelease:
    """The same for a party's own schema, by which it is checked. Raises Declined."""
    if schema is None:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    try:
        counting, relation = algorithm.counting, algorithm.neighbouring
        if algorithm.batch.reports is not None and counting != Counting():
            raise QueryError("Expected unit record, all parties together, with records' reports.")
        algorithm.batch.check(schema, counting.relation(relation))
        bound = replace(algorithm, schema=schema)
        counting.moved(algorithm.batch, schema, relation)
        counting.cells(algorithm.batch, schema)
    except (QueryError, SchemaError, WhereError) as error:
        raise Declined(Reason.MODEL, str(error)) from error
    return bound


def check_grid(algorithm: QueryRelease, plan: ReleasePlan) -> None:
    """Integers are sent as they are, and summed exactly. Raises Declined."""
    if algorithm.counting.parties not in (0, plan.parties):
        raise Declined(
            Reason.ALGORITHM,
            f"Expected cells of {plan.parties} parties, or of all together, got those of "
            f"{algorithm.counting.parties}.",
        )
    if plan.encoding.scale_bits != 0 or not plan.encoding.bound < LARGEST_SUM:
        raise Declined(
            Reason.GRID,
            f"Expected a grid of whole numbers below 2^53, got scale_bits "
            f"{plan.encoding.scale_bits} and bound {plan.encoding.bound:g}.",
        )
