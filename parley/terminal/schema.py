"""How `parley schema infer` shows what it read: every column, its reading and the reason.

It quotes cells and lines of the file, for the person who holds it; the schema has none of them.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from parley.client.data.schema_inference import InferredSchema
from parley.client.data.sniffing import SEPARATORS
from parley.terminal.tables import plain_table

__all__ = ["print_reading"]


def print_reading(inferred: InferredSchema) -> None:
    """To stderr: how the file is written, then a line or more for each column."""
    # Not cut to a width where nobody watches, so that a log has every word.
    console = Console(stderr=True, soft_wrap=not Console(stderr=True).is_terminal)
    written = [f"{key} {_shown(value)}" for key, value in inferred.file.items() if key != "decimal"]
    if "decimal" in inferred.file:
        written.append(f"decimal {'comma' if inferred.file['decimal'] == ',' else 'point'}")
    console.print(f"{inferred.records} records · {escape(' · '.join(written))}")
    table = plain_table("column", "read as", "why, and what to look at")
    for column in inferred.columns:
        kind = str(column.entry["kind"])
        style = {"ignore": "yellow", "label": "bold"}.get(kind, "")
        why = "\n".join([escape(column.why), *(f"[red]! {escape(r)}[/]" for r in column.remarks)])
        table.add_row(escape(column.name), f"[{style}]{kind}[/]" if style else kind, why)
    console.print(table)
    for remark in inferred.remarks:
        console.print(f"[red]! {escape(remark)}[/]")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(repr, value))
    return f"{SEPARATORS[value]} {value!r}" if value in SEPARATORS else str(value)
