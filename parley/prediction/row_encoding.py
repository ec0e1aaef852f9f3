"""Rows of a frame in a fitted model's encoding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_names import MissingColumns
from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import split_array_columns, to_columns
from parley.client.data.memory_table_format import build_table
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import Schema
from parley.client.data.table_reading import read_tables
from parley.client.data.training_records import encode_features, find_column_faults
from parley.client.features.row_preparation import build_prepared_rows
from parley.prediction.fitted_model import FittedModel
from parley.prediction.input_file_format import adapt_format


def read_table(frame: Any, schema: Schema) -> RawTable:
    """Return the model's columns of a frame or file, or raise all faults of the columns at once."""
    if isinstance(frame, str | Path):
        return _read_file(Path(frame), schema)
    if isinstance(frame, Mapping) or hasattr(frame, "columns"):
        columns = to_columns(frame)
    elif hasattr(frame, "toarray"):
        raise DataError("dense rows, as frame.toarray() gives", "a sparse matrix", path="frame")
    else:
        columns = split_array_columns(np.asarray(frame), schema, "frame")
    there = {name: columns[name] for name in schema.features if name in columns}
    if missing := [name for name in schema.features if name not in columns]:
        faults: list[DataError] = [MissingColumns(missing, path="frame")]
        if there:
            table = build_table(there, schema, path="frame")
            faults += find_column_faults(table, schema, list(there))
        raise DataError.combine(faults)
    return build_table(there, schema, path="frame")


def _read_file(path: Path, schema: Schema) -> RawTable:
    names = [*schema.features]
    schema = adapt_format(schema, path, names)
    tables = list(read_tables(path, schema, only=names))
    return tables[0] if len(tables) == 1 else RawTable.concatenate(tables)


def encode_table(model: FittedModel, table: RawTable) -> NDArray[np.floating[Any]]:
    """Return `[N, p]` rows of a table that was read by the model's schema."""
    raw: NDArray[np.floating[Any]]
    if model.features is None:
        raw = encode_features(table, model.schema)[0]
    else:
        cells = encode_features(table, model.schema.unscaled)[0]
        raw = model.features.bind(model.schema).compute(cells)
    rows = build_prepared_rows(raw, intercept=model.intercept)
    return rows if model.components is None else rows @ model.components
