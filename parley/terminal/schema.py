"""How `parley schema infer` shows what it read: every column, its reading and the reason.

It quotes cells and lines of the file, for the person who holds it; the schema has none of them.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.text import Text

from parley.client.contract.printable import one_line
from parley.client.data.csv_text import SEPARATORS
from parley.client.data.schema_inference import InferredSchema
from parley.terminal.screen import Screen, plain_table


def print_reading(inferred: InferredSchema) -> None:
    """To stderr: how the file is written, then a line or more for each column."""
    # Not cut to a width where nobody watches, so that a log has every word.
    console = Screen(stderr=True, soft_wrap=not sys.stderr.isatty())
    written = [f"{key} {_shown(value)}" for key, value in inferred.file.items() if key != "decimal"]
    if "decimal" in inferred.file:
        written.append(f"decimal {'comma' if inferred.file['decimal'] == ',' else 'point'}")
    console.print(one_line(f"{inferred.records} records · {' · '.join(written)}"))
    table = plain_table("column", "read as", "why, and what to look at")
    for column in inferred.columns:
        kind = str(column.entry["kind"])
        style = {"ignore": "yellow", "label": "bold"}.get(kind, "")
        why = Text(one_line(column.why))
        for remark in column.remarks:
            why.append(f"\n! {one_line(remark)}", style="red")
        table.add_row(one_line(column.name), Text(kind, style=style), why)
    console.print(table)
    for remark in inferred.remarks:
        console.print(one_line(f"! {remark}"), style="red")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(repr, value))
    return f"{SEPARATORS[value]} {value!r}" if value in SEPARATORS else str(value)
