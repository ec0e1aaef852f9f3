"""The standard health service of gRPC, for load balancers and supervisors: Check and Watch.

    grpc.health.v1.Health/Check, /Watch

A request is one field, the name of a service; an answer one field, its state. Both are read and
written here (https://github.com/grpc/grpc-proto, grpc/health/v1/health.proto), so that nothing else
parses what comes. It is asked on the server's port, by a party or an operator of today. A Watch
holds its connection, so that each of them has a few at a time: nobody takes all places by watching.

    >>> asked(b"") == "", asked(b"\\n\\x0eparley.Parties")
    (True, 'parley.Parties')
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from parley.deploy.peers import NotAdmitted
from parley.deploy.stream.settings import Requests, peer_certificate, service

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
_SERVICES = frozenset({"", "parley.Parties", "parley.Operators"})
MOST_WATCHES = 4
"""Of one caller at a time."""

_NAME, _LONGEST = b"\x0a", 100
_SERVING, _NOT_SERVING, _UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"


def asked(request: bytes) -> str:
    """The name that a HealthCheckRequest has.

    Raises:
        ValueError: it is something else.
    """
    if not request:
        return ""
    length = len(request) - 2
    if request[:1] != _NAME or not 0 <= length <= _LONGEST or request[1] != length:
        raise ValueError("Expected one field, the name of a service.")
    return request[2:].decode("ascii")


class Health:
    """Serving from the start until `end`; `admit` names who may ask, or raises NotAdmitted."""

    def __init__(self, admit: Callable[[bytes], str]) -> None:
        self._admit = admit
        self._requests = Requests()
        self._watching: Counter[str] = Counter()
        self._ended = asyncio.Event()

    def service(self) -> Any:
        """As a service of gRPC."""
        return service(
            {
                CHECK: grpc.stream_unary_rpc_method_handler(self._check),
                WATCH: grpc.stream_stream_rpc_method_handler(self._watch),
            }
        )

    def end(self) -> None:
        """Has every answer from now on be that nothing is served."""
        self._ended.set()

    async def _asked(self, context: Any) -> tuple[str, str]:
        """Who calls, and the name that is asked for."""
        try:
            caller = self._admit(peer_certificate(context))
            return caller, asked(await self._requests.read(caller, context))
        except NotAdmitted as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise

    async def _check(self, _requests: Any, context: Any) -> bytes:
        if (await self._asked(context))[1] not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service here.")
        return _NOT_SERVING if self._ended.is_set() else _SERVING

    async def _watch(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        caller, name = await self._asked(context)
        if self._watching[caller] >= MOST_WATCHES:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"Expected at most {MOST_WATCHES} watches of one caller at a time, got one more.",
            )
        self._watching[caller] += 1
        try:
            if name not in _SERVICES:
                yield _UNKNOWN
            elif not self._ended.is_set():
                yield _SERVING
            await self._ended.wait()
            yield _NOT_SERVING
        finally:
            self._watching[caller] -= 1
