"""A batch of queries as an algorithm: one release of integers, whose noisy sum is the answer.

The task says the queries with their weights and the relation; the schema is the party's. From both
it derives how many cells there are, what one record may move (Δ₁, Δ₂) and how large a party's
integers can be, and holds the plan against that like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from parley.client.algorithms.base import AsReleased, Claim, Contribution, PublicFacts, State
from parley.client.algorithms.kind import Party
from parley.client.contract.decoding import DecodingError, as_came, value_from
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError
from parley.client.queries.batch import Batch, batch_from
from parley.client.where import WhereError
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.accounting.rounding import root_up
from parley.privacy.sampling.randomness import Randomness

__all__ = ["LARGEST_SUM", "QueryRelease", "RawColumns", "bound_to", "of_task", "size", "to_task"]

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
        batch: the queries, with their weights.
        neighbouring: the relation that their norms are of.
        schema: the party's; None before it is bound to one.
    """

    kind: ClassVar[str] = "query"

    batch: Batch
    neighbouring: Neighbouring
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
        """d: all cells of the batch."""
        return self.batch.cells(self._schema)

    def init(self) -> State:
        """Nothing to start from."""
        return {"theta": np.zeros(0)}

    def claim(self, facts: PublicFacts) -> Claim:
        """Δ₁ and Δ₂ of the integers, exactly; no grid adds to them."""
        norms = self.batch.norms(self._schema, self.neighbouring)
        private = self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
        # Where sizes are private a contribution is cut to the plan's bound, whatever that is.
        records = 1 if private else facts.max_records
        return Claim(
            dimension=self.dimension,
            features=1,
            bound=float(records * norms.largest),
            sensitivity=root_up(Fraction(norms.l2_squared)),
            sensitivity_l1=float(norms.l1),
            whole=True,
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            scale_bits=0,
        )

    def local(
        self, state: State, block: Any, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Every party's integers, as doubles that hold them exactly."""
        del randomness
        most = int(plan.encoding.bound)
        rows = [np.clip(vector, -most, most) for vector in self.batch.vectors(block, state)]
        return Contribution(values=np.array(rows, dtype=np.float64), failed=())


def to_task(algorithm: QueryRelease) -> dict[str, Any]:
    """The queries and the relation (see `registry`)."""
    return {
        "version": 1,
        "neighbouring": str(algorithm.neighbouring),
        "batch": algorithm.batch.to_json(),
    }


def of_task(task: Mapping[str, Any], party: Party) -> QueryRelease:
    """The inverse of `to_task`, not bound to a schema yet.

    Raises:
        DecodingError: not such a description.
    """
    del party
    if set(task) != {"kind", "version", "neighbouring", "batch"} or task["version"] != 1:
        raise DecodingError("Expected version 1, neighbouring and batch in a task of queries.")
    return QueryRelease(
        batch=batch_from(task["batch"]),
        neighbouring=value_from(Neighbouring, task["neighbouring"], "neighbouring"),
    )


def size(task: Mapping[str, Any]) -> tuple[str, int]:
    """No model, and at least a cell a query."""
    batch = task.get("batch")
    if not isinstance(batch, list):
        raise DecodingError(f"Expected a list of queries, got {as_came(batch)}.")
    return "", max(len(batch), 1)


def bound_to(algorithm: QueryRelease, schema: Schema | None) -> QueryRelease:
    """The same for a party's own schema, by which it is checked.

    Raises:
        Declined: model: rows that were prepared have no columns, or a query cannot be asked of it.
    """
    if schema is None:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    try:
        algorithm.batch.check(schema, algorithm.neighbouring)
        bound = replace(algorithm, schema=schema)
        bound.batch.norms(schema, algorithm.neighbouring)
    except (QueryError, SchemaError, WhereError) as error:
        raise Declined(Reason.MODEL, str(error)) from error
    return bound


def check_grid(algorithm: QueryRelease, plan: ReleasePlan) -> None:
    """Integers are sent as they are, and summed exactly.

    Raises:
        Declined: grid.
    """
    del algorithm
    if plan.encoding.scale_bits != 0 or not plan.encoding.bound < LARGEST_SUM:
        raise Declined(
            Reason.GRID,
            f"Expected a grid of whole numbers below 2^53, got scale_bits "
            f"{plan.encoding.scale_bits} and bound {plan.encoding.bound:g}.",
        )
