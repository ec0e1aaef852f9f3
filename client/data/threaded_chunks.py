"""Processing of many records in chunks that fit the cache, on all available cores.

A linear model reads its data twice per round (margins, then the weighted sum of rows). In chunks of
about `CHUNK_BYTES` the second reading comes from cache. Numpy releases the interpreter lock inside
its loops, so plain threads share the chunks. BLAS is limited to one thread meanwhile: the cores are
in use already, and a result must not depend on their number.

    >>> import numpy as np
    >>> compute_chunk_ranges(np.array([0, 2, 4, 9, 10]), 4)
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
"""Bytes of parties whose results are held at once: enough chunks for every core."""

_ROWS_BYTES = CHUNK_BYTES // 2

_MAX_WORKERS = 8  # the work is limited by memory: more cores would only wait for it


def compute_chunk_ranges(
    offsets: NDArray[np.int64], rows: int, uniform_size: int | None = None
) -> list[tuple[int, int]]:
    """Return ranges `(first, last + 1)` of parties with about `rows` records, at least one party.

    Args:
        offsets: `[B + 1]` beginnings of the parties' records (or bytes).
        rows: maximum number of records (or bytes) of a chunk. A larger party is its own chunk.
        uniform_size: records per party, if all have the same number.
    """
    parties = len(offsets) - 1
    if uniform_size:
        step = max(rows // uniform_size, 1)
        return [(first, min(first + step, parties)) for first in range(0, parties, step)]
    ranges: list[tuple[int, int]] = []
    first = 0
    while first < parties:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        last = min(max(last, first + 1), parties)
        ranges.append((first, last))
        first = last
    return ranges


def compute_block_ranges(block: PartyBlock, dimension: int) -> list[tuple[int, int]]:
    """Return ranges of parties that take about `PIECE_BYTES`, each with `dimension` numbers."""
    contribution = 16 * dimension  # as doubles, and encoded
    ends = block.offsets * block.record_bytes + np.arange(block.parties + 1) * contribution
    return compute_chunk_ranges(ends, PIECE_BYTES)


def compute_core_ranges(rows: int, *, min_rows: int, max_rows: int) -> list[tuple[int, int]]:
    """Return row ranges, one per core, of at least `min_rows` rows.

    There are more ranges if one would have more than `max_rows` rows.
    """
    pieces = max(min(_count_cores(), rows // min_rows), -(-rows // max_rows), 1)
    return [(rows * piece // pieces, rows * (piece + 1) // pieces) for piece in range(pieces)]


def compute_row_ranges(values: NDArray[np.floating]) -> list[tuple[int, int]]:
    """Return row ranges of an array that fit in a core's own cache."""
    return compute_byte_ranges(len(values), values.nbytes // max(len(values), 1))


def compute_byte_ranges(rows: int, row_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of `rows` rows of `row_bytes` each that fit in a core's own cache."""
    step = max(_ROWS_BYTES // max(row_bytes, 1), 1)
    return [(at, min(at + step, rows)) for at in range(0, rows, step)]


def map_chunks(work: Callable[[int, int], _T], ranges: Sequence[tuple[int, int]]) -> list[_T]:
    """Call `work(first, last)` for every range and return the results in the ranges' order.

    Each worker, including the caller, takes the next range until none is left. After an error, or
    Ctrl-C in the caller, no further range is begun. `work` must not call this function.
    """
    if len(ranges) == 1:
        with limit_blas_threads():
            return [work(*ranges[0])]
    remaining = deque(enumerate(ranges))
    results: dict[int, _T] = {}

    def share() -> None:
        try:
            for number, chunk in _pop_items(remaining):
                results[number] = work(*chunk)
        except BaseException:
            remaining.clear()
            raise

    with limit_blas_threads():
        # Each runs in the caller's context, which contains numpy's floating-point warning settings.
        helpers = min(_count_cores(), len(ranges)) - 1
        others = [_get_pool().submit(copy_context().run, share) for _ in range(helpers)]
        try:
            share()
            # A worker that has not started is no longer needed.
            others = [other for other in others if not other.cancel()]
            wait(others)
        except BaseException:
            remaining.clear()
            wait(others)  # none may still be writing when the caller sees an error
            raise
    for other in others:
        other.result()
    return [results[number] for number in range(len(ranges))]


def _pop_items(remaining: deque[_T]) -> Iterator[_T]:
    while True:
        try:
            item = remaining.popleft()  # two threads never get the same one
        except IndexError:
            return
        yield item


@contextmanager
def limit_blas_threads() -> Iterator[None]:
    """Limit the BLAS libraries to one thread inside the `with` block."""
    # Set each library directly: threadpoolctl's `limit` first queries all facts of all libraries.
    thread_counts = [(library, library.num_threads) for library in _find_blas()]
    limited = [(library, threads) for library, threads in thread_counts if threads != 1]
    for library, _ in limited:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in limited:
            library.set_num_threads(threads)


@cache
def _get_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(_count_cores() - 1, 1), thread_name_prefix="chunks")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_get_pool.cache_clear)  # threads don't survive a fork


@cache
def _find_blas() -> tuple[LibController, ...]:
    # This scans every loaded library, so the result is cached.
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def _count_cores() -> int:
    # A container or a batch system may grant fewer cores than the machine has.
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, _MAX_WORKERS)
