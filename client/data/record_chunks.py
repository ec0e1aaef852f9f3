"""Work through many records in pieces that stay in cache, on every core at hand.

A linear model reads its data twice a round (margins, then the weighted sum of rows). In chunks of
about `CHUNK_BYTES` the second reading comes from cache, and numpy releases the interpreter lock
inside its loops, so plain threads share the chunks. BLAS is held to one thread meanwhile: the
cores are taken already, and a result must not depend on how many there are.

    >>> import numpy as np
    >>> chunk_ranges(np.array([0, 2, 4, 9, 10]), 4)
    [(0, 2), (2, 3), (3, 4)]
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import LibController, ThreadpoolController

from parley.client.data.party_block import PartyBlock

_T = TypeVar("_T")

CHUNK_BYTES = 2 << 20
PIECE_BYTES = 128 * CHUNK_BYTES
"""Of parties whose results are kept at once: enough chunks for every core."""

_ROWS_BYTES = CHUNK_BYTES // 2

_MOST_WORKERS = 8  # the work is bound by memory, more cores than this only wait for it


def chunk_ranges(
    offsets: NDArray[np.int64], rows: int, alike: int | None = None
) -> list[tuple[int, int]]:
    """Parties `(first, last + 1)` in ranges of about `rows` records, at least one party each.

    Args:
        offsets: `[B + 1]` where each party's records (or bytes) begin.
        rows: most records (or bytes) of a chunk; a single larger party is its own chunk.
        alike: records of each party, where all have as many.
    """
    parties = len(offsets) - 1
    if alike:
        step = max(rows // alike, 1)
        return [(first, min(first + step, parties)) for first in range(0, parties, step)]
    ranges: list[tuple[int, int]] = []
    first = 0
    while first < parties:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        last = min(max(last, first + 1), parties)
        ranges.append((first, last))
        first = last
    return ranges


def block_ranges(block: PartyBlock, dimension: int) -> list[tuple[int, int]]:
    """Parties of a block whose records and `dimension` numbers each take about `PIECE_BYTES`."""
    contribution = 16 * dimension  # as doubles, and encoded
    ends = block.offsets * block.record_bytes + np.arange(block.parties + 1) * contribution
    return chunk_ranges(ends, PIECE_BYTES)


def core_ranges(rows: int, *, least: int, most: int) -> list[tuple[int, int]]:
    """Rows in a range a core, of `least` rows at the least; in more, where one has above `most`."""
    pieces = max(min(_cores(), rows // least), -(-rows // most), 1)
    return [(rows * at // pieces, rows * (at + 1) // pieces) for at in range(pieces)]


def row_ranges(values: NDArray[np.floating]) -> list[tuple[int, int]]:
    """Rows of an array that stay in a core's own cache while they are worked through."""
    rows = max(_ROWS_BYTES * len(values) // max(values.nbytes, 1), 1)
    return [(at, min(at + rows, len(values))) for at in range(0, len(values), rows)]


def for_each_chunk(work: Callable[[int, int], _T], ranges: Sequence[tuple[int, int]]) -> list[_T]:
    """Call `work(first, last)` for every range and return the results in the ranges' order.

    Each worker, the caller among them, takes the next range until none is left. After an error, or
    Ctrl-C in the caller, no further range is begun. `work` must not call this function itself.
    """
    if len(ranges) == 1:
        with single_threaded_blas():
            return [work(*ranges[0])]
    left = deque(enumerate(ranges))
    results: dict[int, _T] = {}

    def share() -> None:
        try:
            for number, chunk in _taken(left):
                results[number] = work(*chunk)
        except BaseException:
            left.clear()
            raise

    with single_threaded_blas():
        # Each in the caller's context: what floating point is not to warn of is a part of it.
        others = [
            _pool().submit(copy_context().run, share) for _ in range(1, min(_cores(), len(ranges)))
        ]
        try:
            share()
            # One that has not begun is not needed any more.
            others = [other for other in others if not other.cancel()]
            wait(others)
        except BaseException:
            left.clear()
            wait(others)  # none may still be writing when the caller sees an error
            raise
    for other in others:
        other.result()
    return [results[number] for number in range(len(ranges))]


def _taken(left: deque[_T]) -> Iterator[_T]:
    while True:
        try:
            item = left.popleft()  # two threads never get the same one
        except IndexError:
            return
        yield item


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold the BLAS libraries to one thread inside the `with` block."""
    # Each is asked by itself: `limit` first asks all of them for all they have to say.
    asked = [(library, library.num_threads) for library in _blas()]
    before = [(library, threads) for library, threads in asked if threads != 1]
    for library, _ in before:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in before:
            library.set_num_threads(threads)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(_cores() - 1, 1), thread_name_prefix="chunks")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads don't survive a fork


@cache
def _blas() -> tuple[LibController, ...]:
    # Looks through every loaded library: once is enough.
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def _cores() -> int:
    # A container or a batch system may grant fewer cores than the machine has.
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, _MOST_WORKERS)
