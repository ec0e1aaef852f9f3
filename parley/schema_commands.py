"""`parley schema infer` and `parley schema check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parley.client.data.schema import SchemaError, load_schema
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference import infer_schema
from parley.terminal.schema import print_reading

schema_app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Describe your columns, from public knowledge, and hold files against that.",
)

TableFile = Annotated[Path, typer.Argument(metavar="FILE", help="CSV(.gz), Parquet or .npz.")]


@schema_app.command("infer")
def schema_infer(
    file: TableFile,
    label: Annotated[str | None, typer.Option(help="The label's column.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether a CSV's first line names columns.")
    ] = True,
    separator: Annotated[
        str | None, typer.Option(help="A CSV's separator (default: Parley finds it).")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="utf-8 | windows-1252 | latin-1 | utf-16 (default: Parley finds it)."),
    ] = None,
) -> None:
    """Write a first schema from a file. Review it: ε doesn't cover what it read from the data.

    Lists every column, how it was read and why, with the lines of cells that don't fit.
    """
    if out is not None and out.exists():
        raise SchemaError(f"Expected a new file for --out, {out} exists.")
    inferred = infer_schema(
        file, label=label, header=header, separator=separator, encoding=encoding
    )
    if out is None:
        typer.echo(inferred.text, nl=False)
    else:
        out.write_text(inferred.text, encoding="utf-8")
    print_reading(inferred)
    if label is None:
        typer.echo(
            f"Took the last column, {inferred.label!r}, as the label; --label names another.",
            err=True,
        )
    typer.echo(
        "Review it before use: ranges and categories were read from the data and are not covered "
        "by the privacy budget. Replace them by what is public knowledge.",
        err=True,
    )


@schema_app.command("check")
def schema_check(
    file: TableFile,
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema file (TOML).")],
) -> None:
    """List everything in which a file and a schema disagree, at once; status 2 if they do.

    It quotes cells and lines of the file, for the person who holds it: share none of it.
    """
    found = check_file(file, load_schema(schema))
    for remark in found.remarks:
        typer.echo(f"· {remark}")
    for problem in found.problems:
        typer.echo(f"✗ {problem}", err=True)
    if found.problems:
        raise typer.Exit(2)
    typer.echo(f"✓ {found.records:,} records are what {schema} says.")
