"""Select records as rows or columns, and build pools of records to try as canaries.

A pool serves a release that adds up a value per record. Which two records move it most is found by
computing it (`corners` of `parley.simulations.audit.neighbouring_worlds`). This module does not
know what is added.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.client.data.query_party_block import CategoryField, RawPartyBlock, list_fields
from parley.client.data.schema import Schema

Block = PartyBlock | RawPartyBlock

MAX_COMBINATIONS = 256
"""Maximum number of records in a pool."""

_COLUMNS = 8
"""Number of a row's columns that are tried on their own."""


def build_table_schema(columns: int) -> str:
    """Return the public schema of an audited table: columns of two categories, and a label."""
    lines = [f'c{k} = {{ kind = "categorical", categories = ["a", "b"] }}' for k in range(columns)]
    return "\n".join(["[columns]", *lines, 'y = { kind = "label", positive = 1, negative = 0 }'])


def build_row_pool(algorithm: Any) -> PartyBlock:
    """Return rows of norm at most 1 with every label: zeros, a single column, all columns equal."""
    model = algorithm.model
    width, classes = model.features, int(getattr(model, "classes", 0))
    few = np.eye(width)[:_COLUMNS]
    rows = np.concatenate([np.zeros((1, width)), few, -few, np.full((1, width), width**-0.5)])
    labels = np.arange(classes) if classes else np.array([-1.0, 1.0])
    return _build_one_row_parties(np.repeat(rows, len(labels), axis=0), np.tile(labels, len(rows)))


def build_code_pool(algorithm: Any) -> PartyBlock:
    """Return rows with one indicator per column: every combination of codes, or some of them."""
    sizes = algorithm.columns
    codes = np.array(_list_combinations([range(size) for size in sizes]))
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.zeros((len(codes), starts[-1]))
    np.put_along_axis(rows, codes[:, :-1] + starts[:-1], 1.0, axis=1)
    return _build_one_row_parties(rows, codes[:, -1])


def build_column_pool(algorithm: Any) -> RawPartyBlock:
    """Return raw columns: every combination of categories and of ends, middle and quarter of a
    range.
    """
    schema: Schema = algorithm.schema
    fields = list_fields(schema)
    # If none is read, one column determines the number of records.
    names = sorted(algorithm.batch.columns) or [next(iter(fields))]
    wanted = {name: fields[name] for name in names}
    choices = [
        range(len(field.texts))
        if isinstance(field, CategoryField)
        else [field.low + part * (field.high - field.low) for part in (0, 0.25, 0.5, 1)]
        for field in wanted.values()
    ]
    values = list(zip(*_list_combinations(choices), strict=True))
    return RawPartyBlock(
        schema=schema,
        columns={
            name: np.array(own, dtype=np.intp if isinstance(field, CategoryField) else np.float64)
            for (name, field), own in zip(wanted.items(), values, strict=True)
        },
        offsets=np.arange(len(values[0]) + 1),
    )


def _list_combinations(choices: list[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations, or `MAX_COMBINATIONS` of them, drawn from a fixed seed."""
    count = np.prod([float(len(each)) for each in choices])
    if count <= MAX_COMBINATIONS:
        return list(product(*choices))
    rng = np.random.default_rng(0)
    return [tuple(own[rng.integers(len(own))] for own in choices) for _ in range(MAX_COMBINATIONS)]


def _build_one_row_parties(rows: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> PartyBlock:
    return PartyBlock(features=rows, labels=labels, offsets=np.arange(len(rows) + 1))


def reorder_records(block: Block, rows: NDArray[np.intp], offsets: NDArray[np.int64]) -> Block:
    """Return the records `rows` of a block, divided among parties by `offsets`."""
    if isinstance(block, RawPartyBlock):
        columns = {name: values[rows] for name, values in block.columns.items()}
        return replace(block, columns=columns, offsets=offsets)
    return PartyBlock(features=block.features[rows], labels=block.labels[rows], offsets=offsets)


def repeat_world(world: Block, count: int) -> Block:
    """Return `count` copies of this trial, one after another."""
    rows = np.tile(np.arange(world.offsets[-1]), count)
    offsets = np.concatenate([[0], np.cumsum(np.tile(world.sizes, count))])
    return reorder_records(world, rows, offsets)


def compute_bytes(world: Block) -> int:
    """Return the size of one trial's records."""
    if isinstance(world, RawPartyBlock):
        return sum(values.nbytes for values in world.columns.values())
    return int(world.features.nbytes)
