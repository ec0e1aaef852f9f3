"""`parley schema infer`, with every column and its reading, and `parley schema check`."""

from __future__ import annotations

import shlex
import sys
from glob import glob
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

from parley.client.data.csv_detection import SEPARATORS
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import SqlQuery, get_source_name
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.schema import SchemaError, load_schema
from parley.client.data.schema_check import CheckedFile, check_file
from parley.client.data.schema_inference.schema_draft import InferredSchema, infer_schema
from parley.privacy.ledger.database_url import is_database
from parley.safe_io.file_writing import write_file
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.terminal.rich_output import Screen, build_plain_table


def print_inference(inferred: InferredSchema) -> None:
    """Print to stderr how the file is written, then a line or more for each column."""
    # Not cut to a width where nobody watches, so that a log has every word.
    console = Screen(stderr=True, soft_wrap=not sys.stderr.isatty())
    written = [
        f"{key} {_format_setting(value)}"
        for key, value in inferred.file.items()
        if key != "decimal"
    ]
    if "decimal" in inferred.file:
        written.append(f"decimal {'comma' if inferred.file['decimal'] == ',' else 'point'}")
    records = f"{inferred.records:,} {format_noun(inferred.records, 'record')}"
    console.print(to_one_line(" · ".join([records, *written])))
    table = build_plain_table("column", "read as", "why, and what to look at")
    for column in inferred.columns:
        kind = str(column.entry["kind"])
        style = {"ignore": "yellow", "label": "bold"}.get(kind, "")
        if "range" in column.entry:
            kind += " {:g} to {:g}".format(*column.entry["range"])
        why = Text(to_one_line(column.why))
        for remark in column.remarks:
            why.append(f"\n! {to_one_line(remark)}", style="red")
        table.add_row(to_one_line(column.name) or '""', Text(kind, style=style), why)
    console.print(table)
    for remark in inferred.remarks:
        console.print(to_one_line(f"! {remark}"), style="red")


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(repr, value))
    return f"{SEPARATORS[value]} {value!r}" if value in SEPARATORS else str(value)


schema_app = typer.Typer(suggest_commands=False, no_args_is_help=True)

TableFiles = Annotated[
    list[str],
    Argument(
        metavar="FILE…",
        help="CSV, CSV.gz, Parquet or .npz files, or a glob: one file "
        "per party. Or a database, with "
        "--query: sqlite:///FILE, postgresql://USER@HOST/NAME, or env:NAME for a variable that "
        "contains such a URL.",
    ),
]
Query = Annotated[str, Option(help="With a database: the SELECT whose rows are the records.")]


def _expand_patterns(patterns: list[str], query: str) -> list[Path | SqlQuery]:
    """Return the files, with those of globs, or the query of a database."""
    if len(patterns) == 1 and (query or is_database(patterns[0])):
        try:
            return [SqlQuery(database=patterns[0], query=query)]
        except ValueError as error:
            raise SchemaError(str(error)) from None
    if query:
        raise SchemaError(f"Expected one database with --query, got {len(patterns)} sources.")
    found: list[Path | SqlQuery] = []
    for pattern in patterns:
        glob = any(mark in pattern for mark in "*?[") and not Path(pattern).exists()
        found += find_party_files(pattern) if glob else [Path(pattern)]
    return found


def _find_common_glob(files: list[str]) -> str:
    """Return the glob that matches exactly these files, or "GLOB" if there is no simple one."""
    # Of letters, no parts of a path: hospital-*.csv.
    begin, end = (commonprefix([each[::way] for each in files])[::way] for way in (1, -1))  # noqa: RUF071
    found = f"{begin}*{end}"
    return found if sorted(glob(found)) == sorted(files) else "GLOB"


@schema_app.command("infer")
def infer_schema_command(
    files: TableFiles,
    label: Annotated[str | None, Option(help="Column to predict (default: the last one).")] = None,
    out: Annotated[Path | None, Option(help="File to write (default: stdout).")] = None,
    header: Annotated[
        bool, Option("--header/--no-header", help="Whether a CSV's first line names columns.")
    ] = True,
    separator: Annotated[str | None, Option(help="Separator of a CSV (default: detected).")] = None,
    encoding: Annotated[
        str | None, Option(help="utf-8, windows-1252, latin-1 or utf-16 (default: detected).")
    ] = None,
    query: Query = "",
) -> None:
    """Write a draft schema for one file, or for several files with the same columns.

    Review the draft: ε does not cover what it reveals about the data.

    Lists how every column was read and why, with the lines of cells that do not fit.
    """
    if out is not None and out.exists():
        raise SchemaError(f"Expected a new file for --out, {out} exists.")
    named = _expand_patterns(files, query)
    inferred = infer_schema(
        *named, label=label, header=header, separator=separator, encoding=encoding
    )
    if out is None:
        typer.echo(inferred.text, nl=False)
    else:
        write_file(out, inferred.text)
    print_inference(inferred)
    if label is None:
        typer.echo(
            f"Took the last column, {inferred.label!r}, as the label; --label names another.",
            err=True,
        )
    typer.echo(
        "Review it before use: ranges, centres and categories were read from the data and are not "
        "covered by the privacy budget. Replace them by what is public knowledge, then delete "
        f"`drafted = true`{'' if out is None else f' in {out}'}: until then every ε is printed "
        "with the assumption that the schema is public, and real parties refuse the schema.",
        err=True,
    )
    if out is not None and not query:
        source = files[0] if len(files) == 1 else _find_common_glob(files)
        several = f" --parties {len(named)}" if len(named) > 1 else ""
        words = f"--data {shlex.quote(source)} --schema {shlex.quote(str(out))}"
        refused = any("a run refuses" in said for each in inferred.columns for said in each.remarks)
        then = "Once what a run refuses is mended" if refused else "Then"
        typer.echo(to_one_line(f"{then}: parley run {words}{several}"), err=True)


@schema_app.command("check")
def check_files_command(
    files: TableFiles,
    schema: Annotated[Path, Argument(metavar="SCHEMA", help="Schema file (TOML).")],
    query: Query = "",
) -> None:
    """List all differences between files and a schema. Exit status 2: there are some.

    The list quotes cells of the files. Do not share it.
    """
    known, named, refused = load_schema(schema), _expand_patterns(files, query), False
    for file in named:
        try:
            found = check_file(file, known)
        except DataError as error:
            found = CheckedFile(records=0, problems=(str(error),), remarks=())
        which = f"{get_source_name(file)}: " if len(named) > 1 else ""
        for remark in found.remarks:
            typer.echo(f"· {which}{remark}")
        for problem in found.problems:
            typer.echo(f"✗ {which}{problem}", err=True)
        if found.problems:
            refused = True
        else:
            typer.echo(
                f"✓ {which}{found.records:,} {format_noun(found.records, 'record')} as {schema} "
                "says."
            )
    if refused:
        raise typer.Exit(2)
