"""From a file of rows to a file of predictions, batch by batch: any number of rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from parley.client.data.cells import plain_texts
from parley.client.data.readers import MissingColumns, read_tables
from parley.client.data.records import column_faults
from parley.client.data.table import DataError, Table
from parley.prediction.model import Model
from parley.server.model_file import ModelFileError


def predict_file(
    model: Model,
    source: Path,
    out: Path,
    *,
    keep: str | None = None,
    threshold: float | None = None,
) -> tuple[int, dict[str, int]]:
    """Writes a line of predictions for every row of a file, in its order.

    Args:
        source: CSV, .csv.gz, Parquet or .npz with the model's columns; other columns, the label
            among them, may be there or not.
        out: a CSV to make: `prediction`, and `probability of NAME` for each label, or `score`.
        keep: a column of the source to write first: what names the rows.
        threshold: as of `Model.predict`.

    Returns:
        The number of rows, and how often each label was predicted (empty for ridge).

    Raises:
        DataError: the file is not what the schema says: line or row, column, expected, got.
    """
    model.check_threshold(threshold)
    if out.exists():
        raise ModelFileError(f"Expected a new file for --out, {out} exists.")
    wanted = list(dict.fromkeys([*model.schema.features, *([] if keep is None else [keep])]))
    rows, counts = 0, dict.fromkeys(model.classes_.tolist(), 0)
    # Whole or not at all: a reader never takes half a file for all of it.
    draft = out.with_name(f".{out.name}.part")
    try:
        with draft.open("wb") as file:
            for table in read_tables(source, model.schema, only=wanted):
                frame = _predictions(model, table, keep, threshold)
                frame.write_csv(file, include_header=not rows)
                rows += table.rows
                if counts:
                    for name, count in frame["prediction"].value_counts().iter_rows():
                        counts[name] += count
        os.replace(draft, out)
    except MissingColumns as error:
        draft.unlink(missing_ok=True)
        raise DataError.of([error, *_other_faults(model, source, error.missing)]) from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return rows, counts


def _other_faults(model: Model, source: Path, missing: tuple[str, ...]) -> list[DataError]:
    """What else is wrong in the file's first rows, in columns that are there."""
    there = [name for name in model.schema.features if name not in missing]
    if not there:
        return []
    table = next(read_tables(source, model.schema, only=there))
    return column_faults(table, model.schema, there)


def _predictions(
    model: Model, table: Table, keep: str | None, threshold: float | None
) -> pl.DataFrame:
    scores = model.scores(model.rows_of(table))
    columns: dict[str, Any] = {"prediction": model.labels(scores, threshold=threshold)}
    chances = model.chances(scores)
    if chances is not None:
        for at, name in enumerate(model.classes_):
            columns[f"probability of {name}"] = chances[:, at]
    elif not model.targets:
        columns["score"] = scores
    if keep in columns:
        raise DataError("another name for the column to keep", repr(keep), path=table.path)
    return pl.DataFrame(columns if keep is None else {keep: plain_texts(table, keep), **columns})
