"""How much memory a file's records may take: stated beforehand, checked while they are read.

A small file can hold much more than its size (compressed text, a column of one value), and a
process that runs out of memory ends without a word. So a reader asks how many records of p features
fit before it reads and while it reads:

    room = min(file.max-gib of the schema, ¾ of what this process may still take)
    records ≤ room / (16·(p + 2))      (two copies of p features and a label, 8 bytes each)

What a process may still take is the least of its limits (`ulimit -v`, `ulimit -d`), its
control group's and the machine's free memory; each is read from the kernel and left out where the
kernel doesn't tell.

    >>> Room(bytes=16_000, source="a test").records(features=8)
    100
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parley.client.data.raw_table import DataError

GIB = 2**30
_SHARE = 0.75
"""Of what is left: the rest is for the libraries' own use while they read."""

_MOST_GIB = 2.0**20

_RESERVE = 2**28
"""Bytes that have to be left for the next batch: a library that gets none ends the process."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Memory for the records of one file, and what says so, for the error."""

    bytes: int
    source: str

    def records(self, *, features: int) -> int:
        """How many records of so many features fit."""
        return self.bytes // (16 * (features + 2))

    def check_records(self, count: int, *, features: int, path: str | Path) -> None:
        """Raises DataError where so many records of so many features don't fit."""
        most = self.records(features=features)
        if count > most:
            expected = f"at most {most:,} records of {features} features ({self.source})"
            raise DataError(expected, f"{count:,} or more", path=path)

    def check_left(self, path: str | Path) -> None:
        """Raises DataError where this process may hardly take more memory."""
        left = min(_left(), default=_RESERVE)
        if left < _RESERVE:
            expected = f"{_RESERVE // 2**20} MiB of memory left to go on reading"
            raise DataError(expected, f"{max(left, 0) // 2**20} MiB", path=path)

    def check_bytes(self, size: int, *, path: str | Path) -> None:
        """Raises DataError where values of so many bytes don't fit."""
        if size > self.bytes:
            expected = f"at most {self.bytes / GIB:.2f} GiB of values ({self.source})"
            raise DataError(expected, f"{size / GIB:.2f} GiB or more", path=path)


def room_for(max_gib: float) -> Room:
    """The room that `file.max-gib` gives, less where this process may not take as much."""
    stated = int(min(max_gib, _MOST_GIB) * GIB)
    left = int(min(_left(), default=stated) * _SHARE)
    if left < stated:
        shown = f"{left / GIB:.2f} GiB: three quarters of the memory this process may still take"
        return Room(bytes=max(left, 0), source=shown)
    return Room(bytes=stated, source=f"{max_gib:g} GiB: file.max-gib in the schema")


def _left() -> Iterator[int]:
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
    yield from _left_in_groups()


def _left_in_groups() -> Iterator[int]:
    """What each control group (version 2) above this process leaves it."""
    own = Path("/proc/self/cgroup")
    root = Path("/sys/fs/cgroup")
    entries = own.read_text().splitlines() if own.is_file() else []
    names = [entry.removeprefix("0::/") for entry in entries if entry.startswith("0::/")]
    for name in names:
        group = root / name
        for folder in (group, *group.parents):
            most, used = folder / "memory.max", folder / "memory.current"
            if most.is_file() and used.is_file() and (text := most.read_text().strip()) != "max":
                yield int(text) - int(used.read_text()) + _reclaimable(folder / "memory.stat")
            if folder == root:
                break


def _reclaimable(stat: Path) -> int:
    """The group's file cache, which the kernel gives back when memory is asked for."""
    for line in stat.read_text().splitlines() if stat.is_file() else []:
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0
