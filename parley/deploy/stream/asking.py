"""The one request of a call, read within a deadline, and of one caller a few at a time.

gRPC's own unary handlers begin once the request is there. A caller who never sends one would keep
the call, and with it a connection that is never idle, for as long as it likes. So calls of one
request are streams here: who calls is looked at first, then the request is waited for, not long.
What has come of a request that is being read is in memory, up to a chunk; what nobody reads is not
let come. So a caller who begins many requests and ends none costs no more than those few.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import grpc

REQUEST_S: Final = 10.0
MOST_READ: Final = 8
"""Requests of one caller that are read at a time."""


class Requests:
    """Reads the requests of one service's calls."""

    def __init__(self) -> None:
        self._reading: Counter[str] = Counter()

    async def read(self, caller: str, context: Any) -> bytes:
        """What the caller asks; ends the call where nothing comes, or too many are being read."""
        if self._reading[caller] >= MOST_READ:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"Expected at most {MOST_READ} requests of one caller at a time, got one more.",
            )
        self._reading[caller] += 1
        try:
            message = await asyncio.wait_for(context.read(), REQUEST_S)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"Expected a request within {REQUEST_S:g} s."
            )
            raise
        finally:
            self._reading[caller] -= 1
        return message if isinstance(message, bytes) else b""
