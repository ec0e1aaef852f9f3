"""`parley sample`: more rows from the generator that a model file holds, for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_sampling_command", "sample_table"]

_MOST = 10**9


def sample_table(model: Path, *, rows: int, seed: int, out: Path) -> dict[str, str]:
    """Writes rows that the generator of a model file draws, as the schema in it reads them.

    Args:
        model: a run's folder, or its `model.safetensors`; nothing else of the run is read.
        rows: how many, from 1 to 10⁹.
        seed: public: the same one gives the same rows.
        out: a CSV to make, or an .npz of arrays.

    Returns:
        The model file's privacy statement.

    Raises:
        ModelFileError: no generator in the file, a damaged one, or `out` exists.
    """
    from parley.client.algorithms.registry import task_from  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.contract.decoding import DecodingError  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.data.schema import Schema  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.features.codes import Codes  # noqa: PLC0415 - start-up: for this command alone
    from parley.prediction.loading import open_model  # noqa: PLC0415 - start-up: for this command alone
    from parley.prediction.model import ModelFileError  # noqa: PLC0415 - start-up: for this command alone
    from parley.server.synthetic.generation import GENERATORS  # noqa: PLC0415 - start-up: polars takes .14 s
    from parley.server.synthetic.rows import write_rows  # noqa: PLC0415 - start-up: polars takes .14 s

    if not 1 <= rows <= _MOST:
        raise ModelFileError(f"Expected --rows from 1 to {_MOST:,}, got {rows}.")
    if out.exists():
        raise ModelFileError(f"Expected a new file for --out, {out} exists.")
    found = open_model(model)
    try:
        counted = task_from(found.described["task"])
        generator = GENERATORS.get(counted.kind)
        if generator is None:
            raise ModelFileError(
                f"Expected a run of {', '.join(GENERATORS)}, which make rows, got {counted.kind}: "
                f"{found.file}."
            )
        if found.described.get("features", {}).get("digest") != Codes().digest:
            raise ModelFileError(f"{found.file}: Expected codes of this version, got others.")
        schema = Schema.from_toml(found.described["schema"], source=str(found.file))
        drawn = generator.rows(counted, schema, found.tensors, rows, seed)
        write_rows(drawn, schema, out, rows=rows, seed=seed)
    except (DecodingError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{found.file}: {error}") from error
    return dict(found.statement)


def sample(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run's folder, or its model.safetensors.")
    ],
    rows: Annotated[int, typer.Option(help="How many rows.")],
    out: Annotated[Path, typer.Option(help="CSV to write; .npz of arrays.")],
    seed: Annotated[
        int, typer.Option(min=0, help="Public: the same seed gives the same rows.")
    ] = 0,
) -> None:
    """Draw rows from a synthetic table's generator. Sampling costs nothing more.

    The file alone is read: no record, no ledger. The rows are what the released, noisy counts say;
    however many are drawn, the run's own ε is all that they cost.
    """
    said = sample_table(model, rows=rows, seed=seed, out=out)
    typer.echo(f"{rows:,} synthetic rows in {out}")
    typer.echo(said.get("parley.statement", ""))
    typer.echo("Sampling costs nothing more.")


def add_sampling_command(app: typer.Typer) -> None:
    """Adds it to the command line."""
    app.command()(sample)
