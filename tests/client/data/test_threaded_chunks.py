"""Chunks on several threads: order, errors, and Ctrl-C."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from parley.client.data.threaded_chunks import _get_pool, compute_row_ranges, map_chunks

RANGES = [(n, n + 1) for n in range(40)]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.client.data.threaded_chunks._count_cores", lambda: 2)
    _get_pool.cache_clear()


def test_results_come_in_the_ranges_order_whoever_computes_them() -> None:
    threads = set()

    def work(first: int, last: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.002 * (first % 3))
        return first

    assert map_chunks(work, RANGES) == list(range(40))
    assert len(threads) == 2


@pytest.mark.parametrize("ranges", [RANGES[:1], RANGES])
def test_blas_has_one_thread_meanwhile_and_then_as_many_as_before(
    ranges: list[tuple[int, int]],
) -> None:
    def threads(*_: int) -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        held = map_chunks(threads, ranges)
        assert {count for counts in held for count in counts} == {1}
        assert set(threads()) == {2}


@pytest.mark.parametrize("in_caller", [True, False])
def test_an_error_in_any_thread_comes_through_and_ends_the_work(in_caller: bool) -> None:
    caller = threading.get_ident()
    done = []

    def work(first: int, last: int) -> None:
        if (threading.get_ident() == caller) == in_caller:
            raise OSError("this one")
        time.sleep(0.02)
        done.append(first)

    with pytest.raises(OSError, match="this one"):
        map_chunks(work, RANGES)
    count = len(done)
    assert count < 5
    time.sleep(0.05)
    assert len(done) == count  # nobody goes on behind the caller's back


@pytest.mark.parametrize("waiting", [True, False])
def test_ctrl_c_ends_the_work_after_the_chunks_that_are_begun(waiting: bool) -> None:
    """In the caller's own chunk, or while it waits for another's."""
    caller = threading.get_ident()
    ranges = RANGES[:2] if waiting else RANGES
    done = []
    begun = threading.Event()  # or a slow machine gives the caller both chunks

    def work(first: int, last: int) -> None:
        if threading.get_ident() != caller:
            begun.set()
            time.sleep(0.3)
            if waiting:
                _interrupt()
                time.sleep(0.3)
        elif waiting:
            begun.wait(5)
        else:
            time.sleep(0.05)
            raise KeyboardInterrupt
        done.append(first)

    # Whoever starts the tests in the background of a shell has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            map_chunks(work, ranges)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(done) <= 2


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_rows_that_are_worked_through_together_are_all_rows_once() -> None:
    assert compute_row_ranges(np.empty((0, 7))) == []
    assert compute_row_ranges(np.empty((3, 1 << 20))) == [(0, 1), (1, 2), (2, 3)]
    ranges = compute_row_ranges(np.empty((5000, 120)))
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == 5000
    assert len(ranges) > 1


def test_what_floating_point_may_not_warn_of_is_the_callers_in_every_thread() -> None:
    def work(first: int, last: int) -> None:
        time.sleep(0.002)
        np.exp(np.full(1000, 1e4))

    with np.errstate(over="ignore"):
        map_chunks(work, RANGES)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        map_chunks(work, RANGES)
