"""Files of several parties, by a pattern."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Literal

from parley.client.data.data_error import DataError

_MAX_LISTED = 5
"""Files of a folder that an error names."""


SUFFIXES: dict[str, Literal["csv", "parquet", "npz"]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".gz"), "csv"),
    ".parquet": "parquet",
    ".npz": "npz",
}


def find_party_files(pattern: str) -> list[Path]:
    """Return the files that match a glob (** descends), at least one; party-2 before party-10."""
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]
    files = sorted((path for path in found if path.is_file()), key=_get_sort_key)
    if not files:
        raise DataError("at least one file, one per party", "none", path=pattern)
    return files


def _get_sort_key(path: Path) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def refuse_folder(path: str | Path) -> None:
    """Raise DataError if a folder is named in the place of a file; the message names its files."""
    folder = Path(path)
    if not folder.is_dir():
        return
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    tables = [name for name in names if name.lower().endswith(tuple(SUFFIXES))]
    if not tables:
        raise DataError("a file of records", "a folder without one", path=path)
    listed = ", ".join(tables[:_MAX_LISTED]) + (", …" if len(tables) > _MAX_LISTED else "")
    suffix = max(SUFFIXES, key=lambda end: sum(name.lower().endswith(end) for name in tables))
    got = f"a folder with {listed}. Name one of them, or one per party as '{folder}/*{suffix}'"
    raise DataError("a file of records", got, path=path)
