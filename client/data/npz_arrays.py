"""Arrays of an .npz file, measured before they are loaded."""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.data_error import DataError
from parley.client.data.memory_limit import MemoryLimit


def read_arrays(
    path: str | Path, choose: Callable[[list[str]], list[str]], memory_limit: MemoryLimit
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file that `choose` picks from their names, if they fit."""
    if not Path(path).is_file():
        raise DataError("a file", "nothing there", path=path)
    try:
        with _HEADER_LOCK, zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(set(members)) < len(members):
                raise ValueError("two arrays of one name")
            wanted = choose([name.removesuffix(".npy") for name in members])
            # Sizes come from the headers, before anything is loaded: few bytes can expand to many.
            size = sum(_read_array_size(archive, f"{name}.npy") for name in wanted)
            memory_limit.check_bytes(size, path=path)
            # Read the members that were measured. By an array's name, numpy could open another one.
            return {name: _read_array(archive, f"{name}.npy") for name in wanted}
    except DataError:
        raise
    except Exception as error:
        # numpy parses a header as Python text; zipfile and zlib parse the rest. Their errors on
        # damaged input cannot be listed, and all mean the same.
        got = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError("a .npz file of plain arrays", got, path=path) from error


def _read_array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _read_array_size(archive: zipfile.ZipFile, member: str) -> int:
    """Return the bytes that the array takes while it is read, according to its header."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = _HEADER_READERS.get(version)
        if read is None:
            raise ValueError(f"version {version} of the .npy format, which is none of 1.0 and 2.0")
        shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Python objects, which are neither numbers nor text")
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"values of no bytes: {dtype} of shape {shape}")
    # Text becomes one Python object per value on its way into a column.
    value_bytes = dtype.itemsize + (_TEXT_OBJECT_BYTES if dtype.kind == "U" else 0)
    return math.prod(shape) * value_bytes


_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Readers of an array's header, by the version of the .npy format."""

_TEXT_OBJECT_BYTES = 64
"""Bytes of a short text as a Python object, including its slot in a list."""


_HEADER_LOCK = threading.Lock()
"""Lock for numpy's header parser, which uses `ast`. Before Python 3.11.8 threads disturb each other
there (gh-106905).
"""
