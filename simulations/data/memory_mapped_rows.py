"""Store prepared rows in a folder, and load them as memory maps.

Each array has its own file, which is never written again. The folder belongs to this program, is
next to its runs, and must be protected as strictly as the data. It stores its own name and the
digests of its arrays. It is refused if another user could have written to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format
from numpy.typing import NDArray

from parley.safe_io.file_writing import replace_file, write_file
from parley.safe_io.json_writing import format_json
from parley.simulations.data.prepared_data import PreparedData

_ARRAYS = ("rows", "labels", "test_rows", "test_labels", "sizes", "row_digests")

FILES = (*(f"{name}.npy" for name in _ARRAYS), "facts.json")
"""Names of all files in a folder of prepared rows."""


def save_prepared(data: PreparedData, folder: Path, *, name: str = "") -> None:
    """Write the data to a new folder, complete once `facts.json` exists.

    Args:
        name: future name of the folder; default: its current one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # The folder contains records.
    facts = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in vars(data).items()
        if key not in _ARRAYS
    }
    for each in _ARRAYS:
        with replace_file(folder / f"{each}.npy", mode=0o600) as file:
            np.save(file, getattr(data, each), allow_pickle=False)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        facts |= {"place": name or folder.name, "digests": _compute_digests(opened)}
    finally:
        os.close(opened)
    write_file(folder / "facts.json", format_json(facts), mode=0o600)


def load_prepared(folder: Path, *, whole: bool = False) -> PreparedData:
    """Load what `save_prepared` wrote, mapped into memory.

    Args:
        whole: whether every byte is compared with the digests.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: parts are missing or changed, or
            another user may write to it.
    """
    # All files are opened through the checked folder, so that it cannot be exchanged in between.
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_own(opened)
        return _load_from(opened, folder.name, whole=whole)
    except OSError as error:
        if error.filename:
            error.filename = str(folder / Path(error.filename).name)
        raise
    finally:
        os.close(opened)


def _load_from(folder: int, name: str, *, whole: bool) -> PreparedData:
    with _open_inside(folder, "facts.json") as file:
        facts = json.load(file)
    if (place := facts.pop("place")) != name:
        raise ValueError(f"they were stored as {place}, for other data")
    digests = facts.pop("digests")
    if whole and digests != (found := _compute_digests(folder)):
        changed = [f"{each}.npy" for each in _ARRAYS if digests.get(each) != found[each]]
        raise ValueError(f"{', '.join(changed)} changed since")
    arrays: dict[str, Any] = {each: _map_array(folder, each) for each in _ARRAYS}
    named = {each: tuple(facts[each]) for each in ("label_names", "party_names")}
    data = PreparedData(**arrays, **{**facts, **named})
    counts = {len(data.rows), len(data.labels), int(data.sizes.sum())}
    if data.rows.ndim != 2 or len(counts) > 1 or int(data.sizes.min(initial=0)) < 0:
        raise ValueError("expected as many rows as labels, and as the parties hold; got others")
    return data


def _open_inside(folder: int, name: str) -> BufferedReader:
    """Open a file in an open folder, to read."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)

    return open(name, "rb", opener=opener)


def _map_array(folder: int, name: str) -> NDArray[Any]:
    """Map an array from an open folder; raise ValueError if it is cut or has another form."""
    with _open_inside(folder, f"{name}.npy") as file:
        if format.read_magic(file) != (1, 0):
            raise ValueError(f"expected {name}.npy as it was written, got another version")
        shape, fortran, dtype = format.read_array_header_1_0(file)
        if fortran or dtype.hasobject:
            raise ValueError(f"expected {name}.npy as it was written, got {dtype}")
        if 0 in shape:  # There is nothing to map.
            return np.empty(shape, dtype)
        # Use a plain view: each slice of a memmap would be an object with a file name.
        return np.asarray(np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape))


def _compute_digests(folder: int) -> dict[str, str]:
    """Return the SHA-256 of every array's file."""

    def digest(name: str) -> str:
        with _open_inside(folder, f"{name}.npy") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(_ARRAYS, pool.map(digest, _ARRAYS), strict=True))


def _check_own(folder: int) -> None:
    """Refuse an open folder that another user owns or may write to, or that contains links."""
    found = {"the folder": os.stat(folder)}
    for name in os.listdir(folder):
        found[name] = os.stat(name, dir_fd=folder, follow_symlinks=False)
    for name, each in found.items():
        if each.st_uid != os.geteuid() or stat.S_ISLNK(each.st_mode):
            raise ValueError(f"{name} is a link, or user {each.st_uid}'s")
        if each.st_mode & 0o022:
            raise ValueError(f"others may write to {name}")
