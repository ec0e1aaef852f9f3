"""The memory limit for a file's records: set beforehand, checked while they are read.

A small file can expand to much more than its size (compressed text, a column of one value). A
process that runs out of memory ends without a message. A reader therefore checks, before and while
it reads, how many records of p features fit:

    room = min(file.max-gib of the schema, ¾ of what this process may still take)
    records ≤ room / (16·(p + 2))      (two copies of p features and a label, 8 bytes each)

What a process may still take is the minimum of its limits (`ulimit -v`, `ulimit -d`), its
control group's and the machine's free memory. Each is read from the kernel, and skipped if the
kernel does not report it.

    >>> MemoryLimit(bytes=16_000, source="a test").compute_max_records(features=8)
    100
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parley.client.data.data_error import DataError

GIB = 2**30
_USABLE_SHARE = 0.75
"""Usable fraction of the free memory. Libraries need the rest while they read."""

_MAX_GIB = 2.0**20

_RESERVED_BYTES = 2**28
"""Bytes that must be left for the next batch. A library that gets none ends the process."""


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """Memory for the records of one file, and the limit's source, for the error."""

    bytes: int
    source: str

    def compute_max_records(self, *, features: int) -> int:
        """Return how many records with this number of features fit."""
        return self.bytes // (16 * (features + 2))

    def check_records(self, count: int, *, features: int, path: str | Path) -> None:
        """Raise DataError if `count` records with this number of features do not fit."""
        max_records = self.compute_max_records(features=features)
        if count > max_records:
            expected = f"at most {max_records:,} records of {features} features ({self.source})"
            raise DataError(expected, f"{count:,} or more", path=path)

    def check_free_memory(self, path: str | Path) -> None:
        """Raise DataError if this process has almost no memory left."""
        free = min(_list_free_bytes(), default=_RESERVED_BYTES)
        if free < _RESERVED_BYTES:
            expected = f"{_RESERVED_BYTES // 2**20} MiB of free memory to continue reading"
            raise DataError(expected, f"{max(free, 0) // 2**20} MiB", path=path)

    def check_bytes(self, size: int, *, path: str | Path) -> None:
        """Raise DataError if values of `size` bytes do not fit."""
        if size > self.bytes:
            expected = f"at most {self.bytes / GIB:.2f} GiB of values ({self.source})"
            raise DataError(expected, f"{size / GIB:.2f} GiB or more", path=path)


def compute_free_bytes() -> int | None:
    """Return how much memory this process may still take; None if the kernel does not report it."""
    return min(_list_free_bytes(), default=None)


def compute_memory_limit(max_gib: float) -> MemoryLimit:
    """Return the limit of `file.max-gib`, or less if this process may not take as much."""
    stated = int(min(max_gib, _MAX_GIB) * GIB)
    free = int(min(_list_free_bytes(), default=stated) * _USABLE_SHARE)
    if free < stated:
        shown = f"{free / GIB:.2f} GiB: three quarters of the memory this process may still take"
        return MemoryLimit(bytes=max(free, 0), source=shown)
    return MemoryLimit(bytes=stated, source=f"{max_gib:g} GiB: file.max-gib in the schema")


def _list_free_bytes() -> Iterator[int]:
    pages = Path("/proc/self/statm")
    if pages.is_file():
        fields = pages.read_text().split()
        page = resource.getpagesize()
        for limit, used in ((resource.RLIMIT_AS, fields[0]), (resource.RLIMIT_DATA, fields[5])):
            soft = resource.getrlimit(limit)[0]
            if soft != resource.RLIM_INFINITY:
                yield soft - int(used) * page
    machine = Path("/proc/meminfo")
    if machine.is_file():
        for line in machine.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
    yield from _list_free_in_groups()


def _list_free_in_groups() -> Iterator[int]:
    """Yield the memory that each control group (version 2) above this process leaves it."""
    group_file = Path("/proc/self/cgroup")
    root = Path("/sys/fs/cgroup")
    entries = group_file.read_text().splitlines() if group_file.is_file() else []
    names = [entry.removeprefix("0::/") for entry in entries if entry.startswith("0::/")]
    for name in names:
        group = root / name
        for folder in (group, *group.parents):
            max_file, current_file = folder / "memory.max", folder / "memory.current"
            if max_file.is_file() and current_file.is_file():
                used = int(current_file.read_text()) - _read_reclaimable(folder / "memory.stat")
                text = max_file.read_text().strip()
                if text != "max":
                    yield int(text) - used
            if folder == root:
                break


def _read_reclaimable(stat: Path) -> int:
    """Return the group's file cache, which the kernel frees when memory is requested."""
    for line in stat.read_text().splitlines() if stat.is_file() else []:
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0
