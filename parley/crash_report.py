"""Write crash reports: the classes of an unexpected error and where each was raised.

A report has no text of an error, because it may contain values of records or secrets. Users can
therefore share it.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from parley.version import __version__


def write_crash_report(error: BaseException) -> Path | None:
    """Write a report to a new file and return its path; None if no folder can be written."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    lines = [
        f"Parley {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"Command: parley {' '.join(sys.argv[1:2])}\n\n",
        *_list_frames(error),
    ]
    for folder in (Path(cache) / "parley", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.writelines(lines)
        except OSError:
            continue
        return folder / name
    return None


def _list_frames(error: BaseException) -> Iterator[str]:
    """Yield an error's class and places in the code, then those of the errors that caused it."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield f"{type(current).__module__}.{type(current).__qualname__}\n"
        yield from traceback.format_tb(current.__traceback__)
        current = current.__cause__ or current.__context__
