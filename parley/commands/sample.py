"""`parley sample`: more rows from the generator that a model file holds, for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from parley.client.algorithms.task_codec import decode_task
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import Schema
from parley.client.features.bins_and_splines import RecordCodes
from parley.command_options import ModelPath, OwnModels
from parley.prediction.permitted_code import describe_missing_code, get_network_name, match_own_code
from parley.safe_io.printable_text import to_one_line
from parley.server.model_file import ModelFileError, open_model
from parley.server.synthetic.generation import draw_rows
from parley.server.synthetic.registry import GENERATORS
from parley.server.synthetic.synthetic_rows import write_rows

_MAX_ROWS = 10**9


def sample_table(
    model: Path, *, rows: int, seed: int, out: Path, own_models: tuple[str, ...] = ()
) -> dict[str, str]:
    """Write rows that the generator of a model file draws, as its schema describes them.

    Args:
        model: a run's folder, or its `model.safetensors`; nothing else of the run is read.
        seed: public: the same one gives the same rows.
        out: a CSV to make, or an .npz of arrays.
        own_models: networks of your own code that may be built, as "file.py:function": one whose
            module draws is a generator too. No file can name code to run.

    Raises:
        ModelFileError: no generator in the file, a damaged one, or `out` exists.
    """
    if not 1 <= rows <= _MAX_ROWS:
        raise ModelFileError(f"Expected --rows from 1 to {_MAX_ROWS:,}, got {rows}.")
    if out.exists():
        raise ModelFileError(f"Expected a new file for --out, {out} exists.")
    found = open_model(model)
    task = found.description["task"]
    try:
        made = decode_task(task, own_models=match_own_code(get_network_name(task), own_models))
        features = found.description.get("features", {})
        codes = features.get("digest") if isinstance(features, dict) else features
        if codes != (RecordCodes().digest if made.kind in GENERATORS else None):
            raise ModelFileError(f"{found.file}: Expected codes of this version, got others.")
        schema = Schema.from_toml(found.description["schema"], source=str(found.file))
        drawn = draw_rows(made, schema, found.tensors, rows, seed)
        write_rows(drawn, schema, out, rows=rows, seed=seed)
    except (DecodingError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        named = get_network_name(task) if isinstance(error, DecodingError) else None
        missing = describe_missing_code(named, own_models)
        raise ModelFileError(f"{found.file}: {missing or error}") from error
    return dict(found.statement)


def sample(
    model: ModelPath,
    rows: Annotated[int, Option(help="Number of rows.")],
    out: Annotated[Path, Option(help="File to write: CSV, or .npz with arrays.")],
    seed: Annotated[
        int, Option(min=0, help="Seed. It need not be secret; the same seed gives the same rows.")
    ] = 0,
    own_models: OwnModels = None,
) -> None:
    """Draw rows from a run's generator, at no further privacy cost.

    Only the model's file is read, no record and no ledger. The rows are drawn from the released,
    noisy counts, so any number of rows costs no more than the run's own ε.
    """
    said = sample_table(model, rows=rows, seed=seed, out=out, own_models=tuple(own_models or ()))
    typer.echo(f"{rows:,} synthetic rows in {out}")
    typer.echo(to_one_line(said.get("parley.statement", "")))
    typer.echo("Sampling costs nothing more.")
