"""What a server holds in memory for many parties at once."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from contextlib import suppress

import pytest

from parley.deploy.stream.connections import PartyConnection, PartyRequest
from parley.deploy.stream.stream_framing import split_into_chunks

LARGE = 1 << 20


@pytest.fixture
def traced():
    """Function that returns the bytes allocated since the test began."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield lambda: tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()


async def _never(*_):
    await asyncio.Event().wait()


def _request(number):
    return PartyRequest(
        number=number,
        build=lambda: bytes([number]) * LARGE,
        largest=LARGE,
        until=time.monotonic() + 3600,
        deliver=lambda _party, _reply: None,
    )


async def _serve_until_idle(connections, deliver=lambda _number, _frame: None):
    """Serve connections until all of them wait; the task that serves them."""
    serving = asyncio.gather(*(each.serve(deliver) for each in connections))
    for _ in range(100):
        await asyncio.sleep(0)
    return serving


async def _end(serving):
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def test_large_requests_are_in_memory_for_a_few_parties_at_a_time(traced):
    async def work():
        turns = asyncio.Semaphore(2)
        connections = [PartyConnection(_never, _never, turns) for _ in range(12)]
        for number, each in enumerate(connections, start=1):
            each.put(_request(number))
        serving = await _serve_until_idle(connections)
        held = traced()
        await _end(serving)
        return held

    assert asyncio.run(work()) < 7 * LARGE  # two frames and a copy of each; never twelve


def test_a_turn_ends_with_its_request_so_that_every_party_is_asked():
    async def work():
        written = []

        async def write(chunk):
            written.append(chunk[7])

        turns = asyncio.Semaphore(1)
        connections = [PartyConnection(_never, write, turns) for _ in range(2)]
        for number, each in enumerate(connections, start=1):
            each.put(_request(number))
        serving = await _serve_until_idle(connections)
        assert set(written) == {1, 255}  # the second party's waits for the first one's heartbeat
        connections[0]._end_probe(2**64 - 1, True)
        for _ in range(100):
            await asyncio.sleep(0)
        await _end(serving)
        return written

    assert set(asyncio.run(work())) == {1, 2, 255}


def test_a_heartbeat_may_be_answered_before_its_write_returns():
    async def work():
        async def write(chunk):
            if chunk[7] == 255:
                connection._end_probe(2**64 - 1, True)

        connection = PartyConnection(_never, write, asyncio.Semaphore(1))
        connection.put(_request(1))
        serving = await _serve_until_idle([connection])
        pending = dict(connection._probes)
        await _end(serving)
        return pending

    assert asyncio.run(work()) == {}


def test_a_reply_that_was_delivered_is_not_kept_until_the_next_one(traced):
    async def work():
        (chunk,) = split_into_chunks(7, bytes(LARGE))
        sent = [chunk]
        del chunk

        async def read():
            return sent.pop() if sent else await asyncio.Event().wait()

        connection = PartyConnection(read, _never, asyncio.Semaphore(1))
        connection._due[7] = LARGE
        sizes = []
        serving = await _serve_until_idle([connection], lambda _, frame: sizes.append(len(frame)))
        held = traced()
        await _end(serving)
        return sizes, held

    sizes, held = asyncio.run(work())
    assert sizes == [LARGE]
    assert held < LARGE // 2
