"""Crash reports: what is kept of an error that Parley does not expect.

The terminal shows one line. The file has the traceback, which may hold values of records, so only
this user can read it.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from parley.version import __version__


def write_crash_report(error: BaseException) -> Path | None:
    """Write the traceback to a new file and return its path; None if no folder can be written."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    lines = [
        f"Parley {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"Command: parley {' '.join(sys.argv[1:2])}\n\n",
        *traceback.format_exception(error),
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
