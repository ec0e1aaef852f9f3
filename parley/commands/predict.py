"""`parley predict` and `parley show`.

A file of rows becomes a file of predictions batch by batch: any number of rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from typer import Argument, Option

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.data.cell_parsing import read_plain_texts
from parley.client.data.column_names import MissingColumns
from parley.client.data.data_error import DataError
from parley.client.data.raw_table import RawTable
from parley.client.data.table_reading import read_tables
from parley.client.data.training_records import find_column_faults
from parley.command_options import AsJson, ModelPath, OwnModels, Verbose
from parley.prediction.estimator import Estimator
from parley.prediction.input_file_format import adapt_format
from parley.prediction.model_loading import load_model
from parley.prediction.shape_functions import compute_shapes
from parley.prediction.shape_text import format_overview, format_shape
from parley.presentation.short_model import list_model_lines
from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.csv_writing import escape_formulas
from parley.safe_io.file_writing import replace_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import to_one_line
from parley.server.model_file import NON_PRIVATE, ModelFileError
from parley.server.records.run_reader import read_summary


def predict_file(
    model: Estimator,
    source: Path,
    out: Path,
    *,
    keep: str | None = None,
    threshold: float | None = None,
    **written: str | None,
) -> tuple[int, dict[str, int]]:
    """Write a line of predictions for every row of a file, in its order.

    Args:
        source: CSV, .csv.gz, Parquet or .npz with the model's columns; other columns, the label
            among them, may be there or not.
        out: a CSV to make: `prediction`, and `probability of NAME` for each label, or `score`.
        keep: a column of the source to write first, which names the rows.
        threshold: see `Estimator.predict`.
        written: separator, decimal, encoding of a CSV; guessed if the schema's do not fit.

    Returns:
        The number of rows, and how often each label was predicted (empty for ridge).

    Raises:
        DataError: the file differs from the schema: line or row, column, expected, got.
    """
    model.check_threshold(threshold)
    if out.exists():
        raise ModelFileError(f"Expected a new file for --out, {out} exists.")
    wanted = list(dict.fromkeys([*model.schema.features, *([] if keep is None else [keep])]))
    schema = adapt_format(model.schema, source, wanted, **written)
    rows, counts = 0, dict.fromkeys(model.label_names, 0)
    # Whole or not at all: a reader never takes half a file for all of it.
    try:
        with replace_file(out) as file:
            for table in read_tables(source, schema, only=wanted):
                frame = _build_predictions(model, table, keep, threshold)
                escape_formulas(frame).write_csv(file, include_header=not rows)
                rows += table.rows
                if counts:
                    for name, count in frame["prediction"].value_counts().iter_rows():
                        counts[name] += count
    except MissingColumns as error:
        others = _find_other_faults(model, source, error.missing)
        raise DataError.combine([error, *others]) from error
    return rows, counts


def _find_other_faults(model: Estimator, source: Path, missing: tuple[str, ...]) -> list[DataError]:
    """List the other faults in the file's first rows, in existing columns."""
    there = [name for name in model.schema.features if name not in missing]
    if not there:
        return []
    table = next(read_tables(source, model.schema, only=there))
    return find_column_faults(table, model.schema, there)


def _build_predictions(
    model: Estimator, table: RawTable, keep: str | None, threshold: float | None
) -> pl.DataFrame:
    scores = model.compute_scores(model.encode_table(table))
    if model.is_regression:
        predicted = model.to_labels(scores)
    else:
        positions = model.to_class_positions(scores, threshold=threshold)
        predicted = np.array(model.label_names)[positions]
    columns: dict[str, Any] = {"prediction": predicted}
    chances = model.to_probabilities(scores)
    if chances is not None:
        for at, name in enumerate(model.label_names):
            columns[f"probability of {name}"] = chances[:, at]
    elif not model.is_regression:
        columns["score"] = scores
    if keep in columns:
        raise DataError("another name for the column to keep", repr(keep), path=table.path)
    return pl.DataFrame(
        columns if keep is None else {keep: read_plain_texts(table, keep), **columns}
    )


SchemaFile = Annotated[
    Path | None, Option(help="The parties' schema file, if the model's file contains no schema.")
]


def predict(
    model: ModelPath,
    rows: Annotated[
        Path,
        Argument(metavar="ROWS", help="CSV, CSV.gz, Parquet or .npz with the model's columns."),
    ],
    out: Annotated[Path, Option(help="CSV to write.")] = Path("predictions.csv"),
    keep: Annotated[
        str | None,
        Option(metavar="COLUMN", help="A column to copy into the output, for example a row's id."),
    ] = None,
    threshold: Annotated[
        float | None,
        Option(
            metavar="T",
            help="With two labels: predict the second one from this "
            "probability on (huber-svm: from "
            "this score on). Default: the likelier label.",
        ),
    ] = None,
    separator: Annotated[str | None, Option(help="Separator of a CSV (default: detected).")] = None,
    decimal: Annotated[
        str | None, Option(help="Decimal mark of a CSV: . or , (default: detected).")
    ] = None,
    encoding: Annotated[
        str | None, Option(help="utf-8, windows-1252, latin-1 or utf-16 (default: detected).")
    ] = None,
    schema: SchemaFile = None,
    own_models: OwnModels = None,
) -> None:
    """Predict a label for every row of a file, with its probability.

    Rows are read by the schema that the model was trained with: the same ranges, categories and
    scaling. The label's column may be missing. If it is there, it is not read.
    """
    count, labels = predict_file(
        load_model(model, schema=schema, own_models=tuple(own_models or ())),
        rows,
        out,
        keep=keep,
        threshold=threshold,
        separator=separator,
        decimal=decimal,
        encoding=encoding,
    )
    typer.echo(f"{count:,} predictions in {out}")
    for name, times in labels.items():
        typer.echo(to_one_line(f"  {name}: {times:,}"))


def _round_up_epsilon(text: str) -> str:
    """Round up a file's ε. Return any other text unchanged."""
    try:
        return format_rounded_up(float(text), 4)
    except ValueError:
        return text


def show(
    model: ModelPath,
    schema: SchemaFile = None,
    own_models: OwnModels = None,
    column: Annotated[
        str | None, Option(metavar="NAME", help="Show the full contribution of this column.")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show a model, its privacy guarantee, and the contribution of each column.

    The guarantee states ε, δ, unit, relation and adversary. Contributions of columns are shown for
    linear models, also for those on features = "hats" or "bins". If MODEL is a run's folder, they
    include how far the noise may have moved them.
    """
    loaded = load_model(model, schema=schema, own_models=tuple(own_models or ()))
    task = loaded.task
    if task["kind"] not in {*ALGORITHMS, *NON_PRIVATE}:
        raise ModelFileError(
            f"{model}: Expected an algorithm of Parley's, got {task['kind']!r:.60}."
        )
    summary = read_summary(model)
    shapes = compute_shapes(loaded, summary)
    if column is not None:
        if shapes is None:
            raise ModelFileError(
                f"Expected a linear model, plain or on hats or bins, for --column, got {model}."
            )
        shown = shapes.select(column)
        lines = "\n".join(map(to_one_line, format_shape(shown)))
        typer.echo(format_json(shown.to_json()) if as_json else lines)
        return
    facts: dict[str, Any] = {
        "model": task.get("model", {}).get("loss", {}).get("kind", loaded.label),
        "learned by": task["kind"],
        "parameters": len(loaded.theta),
        "columns": loaded.feature_names_in_.tolist(),
        "label": loaded.schema.label_column,
        "labels": list(loaded.label_names),
        **({"class weights": list(loaded.class_weights)} if loaded.class_weights else {}),
        **{key.removeprefix("parley."): text for key, text in sorted(loaded.statement.items())},
    }
    if as_json:
        typer.echo(format_json(facts | {"shapes": shapes and shapes.to_json()}))
        return
    if not verbose:
        typer.echo("\n".join(list_model_lines(loaded, summary, shapes)))
        return
    wide = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if name == "epsilon":
            text = _round_up_epsilon(text)
        if text not in {"", "[]"}:  # a target has no labels; nothing is assumed
            typer.echo(to_one_line(f"{name:<{wide}}  {text}"))
    for line in format_overview(shapes) if shapes else ():
        typer.echo(to_one_line(line))
