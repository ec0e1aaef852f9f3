"""The one request of a call, read within a deadline.

gRPC's own unary handlers begin once the request is there. A caller who never sends one would keep
the call, and with it a connection that is never idle, for as long as it likes. So calls of one
request are streams here: who calls is looked at first, then the request is waited for, not long.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

__all__ = ["REQUEST_S", "request_of"]

REQUEST_S: Final = 10.0


async def request_of(context: Any) -> bytes:
    """What the caller asks; ends the call where nothing comes."""
    try:
        message = await asyncio.wait_for(context.read(), REQUEST_S)
    except TimeoutError:
        await context.abort(
            grpc.StatusCode.DEADLINE_EXCEEDED, f"Expected a request within {REQUEST_S:g} s."
        )
        raise
    return message if isinstance(message, bytes) else b""
