"""Format the answers of a query file as text and CSV, for local sessions and for servers.

The folder `tables/` has a CSV file per table of each answer. Its first line, after #, contains the
cost. A table one is written to `table-one.csv`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.analytics.table_one_output import TableOne
from parley.safe_io.csv_writing import format_csv
from parley.safe_io.file_writing import make_folder, write_file
from parley.safe_io.os_errors import report_os_errors
from parley.server.records.run_folder import RunFolderError


def format_answers(
    answers: Sequence[dict[str, Any]], folder: Path, *, cost_text: str, table: bool
) -> str:
    """Return one batch's answers as text, and write their CSV files.

    Args:
        answers: `Answer.to_json` values, each with its `name` and `text`.
        cost_text: Cost of the whole file, in words.
        table: Whether the batch is a table one.

    Raises:
        RunFolderError: the folder cannot be written to.
    """
    if table:
        shown = TableOne.from_answers(answers)
        files = {Path("table-one.csv"): shown.to_csv()}
        text = f"{shown}\n\nCSV: {folder / 'table-one.csv'}"
    else:
        files = dict(found for each in answers for found in _list_tables(each, cost_text))
        text = "\n\n".join(each["text"] for each in answers)
    with report_os_errors(RunFolderError, f"Cannot write into {folder}"):
        for name, content in files.items():
            make_folder(folder / name.parent)
            write_file(folder / name, content)
    return text


def _list_tables(answer: dict[str, Any], cost_text: str) -> list[tuple[Path, str]]:
    """Return path and CSV text of an answer's own table and its derived tables."""
    tables = {"": answer["table"], **answer.get("beside", {})}
    return [
        (build_file_path(answer["name"], beside), _format_csv(table, cost_text))
        for beside, table in tables.items()
    ]


def build_file_path(name: str, table_name: str = "") -> Path:
    """Return a file name for a person's text and a derived table, short enough for a file system.

    >>> (build_file_path("curves", "log-rank test").name,
    ... len(build_file_path("血" * 200, "medians").name.encode()))
    ('curves-log-rank-test.csv', 111)
    """
    own, other = (re.sub(r"\W+", "-", each).strip("-").lower() for each in (name, table_name))
    cut = own.encode()[:100].decode(errors="ignore")
    return Path("tables", "-".join(each for each in (cut, other) if each) + ".csv")


def _format_csv(table: dict[str, list[Any]], cost_text: str) -> str:
    rows = (
        ["" if isinstance(x, float) and math.isnan(x) else x for x in row]
        for row in zip(*table.values(), strict=True)
    )
    return format_csv(table, rows, note=cost_text)
