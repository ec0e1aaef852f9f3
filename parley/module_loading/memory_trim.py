"""Release memory that a library needed only at its start: pages of its code that were read once.

While torch starts it reads 80 MiB of its code. All of it counts as this process's memory, although
training needs only a quarter. Linux takes such pages back on request.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_DONTNEED = 4
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +/")


def release_freed_memory() -> None:
    """Return memory that this process has freed to the system. Does nothing without glibc.

    Threads free many small pieces in any order, so that the allocator holds most of them.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc only
            libc.malloc_trim(ctypes.c_size_t(0))


def release_start_pages() -> int:
    """Release libraries' code, and freed memory; return how many libraries. Does nothing without
    Linux.

    Only mappings of files are released that cannot be written and have no page that differs from
    its file. What is read again is therefore the same.
    """
    if sys.platform != "linux" or not _SMAPS.exists():
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    release_freed_memory()
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
