"""What is printed and written of a file's answers, asked here or by a server: text and CSV.

In the folder, a CSV for each table of each answer in `tables/`, which says what it cost in its
first line, after #; and `table-one.csv`.
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
from parley.safe_io.os_errors import describe_cause
from parley.server.records.run_folder import RunFolderError


def format_answers(
    answers: Sequence[dict[str, Any]], folder: Path, *, cost_text: str, table: bool
) -> str:
    """One batch's answers as text; writes their CSV files.

    Args:
        answers: each as `Answer.to_json` has it, with its `name` and its `text`.
        cost_text: what all of the file cost, in words.
        table: they are a table one.

    Raises:
        RunFolderError: the folder can't be written to.
    """
    if table:
        shown = TableOne.from_answers(answers)
        files = {Path("table-one.csv"): shown.to_csv()}
        text = f"{shown}\n\nCSV: {folder / 'table-one.csv'}"
    else:
        files = dict(found for each in answers for found in _list_tables(each, cost_text))
        text = "\n\n".join(each["text"] for each in answers)
    try:
        for name, content in files.items():
            make_folder(folder / name.parent)
            write_file(folder / name, content)
    except OSError as error:
        raise RunFolderError(
            f"Expected to write into {folder}, got: {describe_cause(error)}."
        ) from error
    return text


def _list_tables(answer: dict[str, Any], cost_text: str) -> list[tuple[Path, str]]:
    """Its own table and those beside it, each a CSV."""
    tables = {"": answer["table"], **answer.get("beside", {})}
    return [
        (build_file_path(answer["name"], beside), _format_csv(table, cost_text))
        for beside, table in tables.items()
    ]


def build_file_path(name: str, table_name: str = "") -> Path:
    """A file's name of somebody's words, and of a table's beside it: no longer than a disk takes.

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
