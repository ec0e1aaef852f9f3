"""Memory that a library needed only to start: pages of its code that were read once.

While torch starts it runs through 80 MiB of its code, and all of it stays counted as this process's
memory, although training needs a quarter of it. Linux takes such pages back when it is asked to.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_DONTNEED = 4
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +/")


def release_start_pages() -> int:
    """Gives back libraries' code, and what was freed; how many libraries. Nothing without Linux.

    Only mappings of files are given back that cannot be written and have no page that differs from
    its file: what is read again is then what was there.
    """
    if sys.platform != "linux" or not _SMAPS.exists():
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(ctypes.c_size_t(0))
    given, code = 0, None
    for line in _SMAPS.read_text(encoding="ascii", errors="replace").splitlines():
        if "-" in line.partition(" ")[0]:
            code = _MAPPING.match(line)
        elif code and line.startswith("Anonymous:"):
            if line.split()[1] == "0":
                start, end = (int(address, 16) for address in code.groups())
                given += not libc.madvise(
                    ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(_DONTNEED)
                )
            code = None
    return given
