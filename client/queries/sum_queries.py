"""Sums: `sum` and `balance`.

`sum` is the sum of a column, of all selected records or in every group.

`balance` shows on which side of a border a quantile is: one signed sum of all selected records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    Numbers,
    QueryError,
    QueryFacts,
    build_group_cells,
    get_range,
)
from parley.client.queries.group_cells import CellGrid, Summand
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.sampling_error import estimate_sum_deviation


@dataclass(frozen=True, kw_only=True)
class ColumnSum(ColumnQuery):
    """The sum of a column of numbers."""

    kind: ClassVar[str] = "sum"
    integral: ClassVar[bool] = False

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if not self.get_answer_unit(schema) > 0:
            raise QueryError(f"Expected a range of {self.column!r} other than 0, got only 0.")

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return G sums."""
        known, most = get_range(schema, self.column), self.get_answer_unit(schema)
        low, high = math.floor(weight * (known.low / most)), math.ceil(weight * (known.high / most))
        scaled = Summand(
            low=low, high=high, compute=lambda b: b.columns[self.column] / most * weight
        )
        return (CellSums(cells=build_group_cells(schema, self.by), summands=(scaled,)),)

    def get_answer_unit(self, schema: Schema) -> float:
        """Return X, the largest magnitude of the range."""
        known = get_range(schema, self.column)
        return max(abs(known.low), abs(known.high))

    def supports_sampling(self, facts: QueryFacts) -> bool:
        """Return whether N is public, or the range has one sign."""
        known = get_range(facts.schema, self.column)
        return facts.records is not None or known.low >= 0 or known.high <= 0

    def compute_sampling_errors(self, values: Numbers, facts: QueryFacts) -> Numbers:
        """Return the sampling errors of the sums. Records that are not selected add 0.

        If N is private it is treated as Poisson: Var = E Σx² ≤ X·E Σ|x|.
        """
        if facts.records is None:
            return np.asarray(np.sqrt(self.get_answer_unit(facts.schema) * np.abs(values)))
        known = get_range(facts.schema, self.column)
        low, high = known.low, known.high
        if self.selects or self.by:
            low, high = min(low, 0.0), max(high, 0.0)
        return estimate_sum_deviation(values, low, high, facts.records)


MAX_DENOMINATOR = 10**6
"""Maximum d: six digits of q."""


@dataclass(frozen=True, kw_only=True)
class Balance(ColumnQuery):
    """(1 − q)·(records below the border) − q·(records at or above it), q = `share`."""

    kind: ClassVar[str] = "balance"
    allows_groups: ClassVar[bool] = False

    border: float
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1 or self.fraction.denominator > MAX_DENOMINATOR:
            expected = "Expected a share between 0 and 1 of at most six digits"
            raise QueryError(f"{expected}, got {self.share!r}.")

    @property
    def fraction(self) -> Fraction:
        """q = n/d."""
        return to_fraction(self.share)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        known = get_range(schema, self.column)
        if not known.low < self.border <= known.high:
            raise QueryError(
                f"Expected a border within [{known.low:g}, {known.high:g}], the range of "
                f"{self.column!r}, got {self.border:g}."
            )

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return one sum."""
        low, high = -self.fraction.numerator * weight, self.get_steps_per_unit(weight)
        signed = Summand(
            low=low,
            high=low + high,
            compute=lambda b: np.where(b.columns[self.column] < self.border, low + high, low),
        )
        return (CellSums(cells=CellGrid(), summands=(signed,)),)

    def get_steps_per_unit(self, weight: int) -> int:
        """Return the integers of one record, d times the weight."""
        return weight * self.fraction.denominator
