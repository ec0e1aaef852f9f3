"""Covariates: each record's columns as a row of numbers in [−1, 1], and back to their units.

A column of numbers is one covariate, (x − centre)/half-width of its public range. A column of
categories has an indicator for each category except the first in the schema, the *reference*. A
record with an empty cell has no row and does not count, unless the schema defines a value for it.
Every entry is a function of only that record and the schema.

    >>> from parley.client.data.memory_columns import build_memory_table
    >>> from parley.client.data.query_party_block import read_raw_party_block
    >>> schema = Schema.from_toml('''
    ... [columns]
    ... age = { kind = "numeric", range = [0, 100] }
    ... ward = { kind = "categorical", categories = ["a", "b", "c"] }
    ... sick = { kind = "label", positive = "yes", negative = "no" }
    ... ''')
    >>> rows = {"age": [75, 50, 0], "ward": ["c", "a", ""], "sick": ["yes", "no", "no"]}
    >>> block = read_raw_party_block([build_memory_table(rows, schema=schema)], schema)
    >>> design = Design.from_schema(schema, ("age", "ward"))
    >>> design.names, design.build_rows(block).tolist()
    (('age', 'ward: b', 'ward: c'), [[0.5, 0.0, 1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    >>> design.find_complete_records(block).tolist()
    [True, True, False]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import MISSING, RangeField, RawPartyBlock, get_field
from parley.client.data.schema import Schema
from parley.client.queries.base import Numbers, QueryError


@dataclass(frozen=True, kw_only=True)
class Covariate:
    """One entry of a row: (x − centre)/half-width, or for a category whether x is its code."""

    name: str
    column: str
    code: int | None = None
    centre: float = 0.0
    half_width: float = 1.0

    def encode(self, values: NDArray[np.generic]) -> Numbers:
        """Return `[N]` entries in [−1, 1] for any values of a column."""
        if self.code is not None:
            return np.where(values == self.code, 1.0, 0.0)
        scaled = (values.astype(np.float64) - self.centre) / self.half_width
        return np.asarray(np.fmin(np.fmax(scaled, -1), 1))


@dataclass(frozen=True, kw_only=True)
class Design:
    """The covariates of a row.

    Attributes:
        covariates: p covariates, column by column.
        missing: columns with a code for an empty cell.
    """

    covariates: tuple[Covariate, ...]
    missing: tuple[tuple[str, int], ...]

    @classmethod
    def from_schema(cls, schema: Schema, columns: Sequence[str]) -> Design:
        """Build the design of some columns of a schema.

        Raises:
            QueryError, SchemaError: a column occurs twice or does not exist.
        """
        if len(set(columns)) < len(columns):
            raise QueryError(f"Expected distinct columns, got {', '.join(columns)}.")
        covariates, missing = list[Covariate](), list[tuple[str, int]]()
        for name in columns:
            known = get_field(schema, name)
            if isinstance(known, RangeField):
                centre, half = (known.low + known.high) / 2, (known.high - known.low) / 2
                covariates.append(Covariate(name=name, column=name, centre=centre, half_width=half))
                continue
            texts = [text for text in known.texts if text != MISSING]
            covariates += [
                Covariate(name=f"{name}: {text}", column=name, code=code)
                for code, text in enumerate(texts)
                if code
            ]
            if MISSING in known.texts:
                missing.append((name, known.texts.index(MISSING)))
        return cls(covariates=tuple(covariates), missing=tuple(missing))

    @property
    def names(self) -> tuple[str, ...]:
        """Each covariate's name: its column, or column and category."""
        return tuple(each.name for each in self.covariates)

    @property
    def centres(self) -> Numbers:
        """`[p]` values of 0 in a row, in the column's unit."""
        return np.array([each.centre for each in self.covariates])

    @property
    def half_widths(self) -> Numbers:
        """`[p]` sizes of 1 in a row, in the column's unit."""
        return np.array([each.half_width for each in self.covariates])

    def compute_max_distance(self, point: Numbers) -> float:
        """Return the maximum of ‖row − centre‖² for a centre `[p]`: at an end, or at a category."""
        given = dict(zip(self.covariates, point.tolist(), strict=True))
        total = 0.0  # in a fixed order, so that server and party get the same bits
        for column in dict.fromkeys(each.column for each in self.covariates):
            part = [(each.code, at) for each, at in given.items() if each.column == column]
            if part[0][0] is None:
                total += (1 + abs(part[0][1])) ** 2
            else:  # one category is 1, or none (the reference)
                total += math.fsum(at * at for _, at in part)
                total += max(0.0, *(1 - 2 * at for _, at in part))
        return total

    def build_rows(self, block: RawPartyBlock) -> Numbers:
        """Return `[N, p]` the rows of all records."""
        columns = [each.encode(block.columns[each.column]) for each in self.covariates]
        return np.stack(columns, axis=1) if columns else np.empty((block.records, 0))

    def find_complete_records(self, block: RawPartyBlock) -> NDArray[np.bool_]:
        """Return `[N]` which records have a row."""
        found = np.ones(block.records, dtype=np.bool_)
        for name, code in self.missing:
            found &= block.columns[name] != code
        return found
