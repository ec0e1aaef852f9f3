"""Configure gRPC for both sides: mutual TLS, limits for unknown callers, the caller's identity.

All gRPC settings that decide how many resources a caller can use are here.

This module also defines frames in chunks. A stream carries chunks, each with the number of its
request.
"""

from __future__ import annotations

import asyncio
import resource
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from parley.connection_limit import MAX_CONNECTIONS
from parley.deploy.private_files import check_private

CHUNK = 1 << 20
"""Bytes of a frame in one message."""

_HEAD = struct.Struct(">QQQI")
LARGEST_MESSAGE = CHUNK + _HEAD.size


class EnvelopeError(ValueError):
    """Bytes that are not a chunk, or not the expected one. Never contains the content."""


@dataclass(frozen=True, kw_only=True)
class ReceivedFrame:
    """A received frame: its request's number, the time allowed for the reply, and its bytes."""

    number: int
    allowed_ms: int
    frame: bytes = field(repr=False)


def split_into_chunks(number: int, frame: bytes, *, allowed_ms: int = 0) -> Iterator[bytes]:
    """Yield the frame as messages of a stream. An empty frame is one message."""
    for offset in range(0, max(len(frame), 1), CHUNK):
        yield _HEAD.pack(number, len(frame), offset, allowed_ms) + frame[offset : offset + CHUNK]


class FrameReader:
    """Reassembles frames. `largest(number)` bounds the frame with that number; None refuses it."""

    def __init__(self, largest: Callable[[int], int | None]) -> None:
        self._largest = largest
        self._head: tuple[int, int, int] | None = None
        self._body = bytearray()

    def take(self, message: bytes) -> ReceivedFrame | None:
        """Return the frame that ends with this message, or None if it is not complete.

        Raises:
            EnvelopeError: not a chunk, not the next one, or of a frame that is unexpected or too
                long.
        """
        if len(message) < _HEAD.size:
            raise EnvelopeError(f"Expected a head of {_HEAD.size} bytes, got {len(message)}.")
        number, total, offset, allowed = _HEAD.unpack_from(message)
        if self._head is None:
            limit = self._largest(number)
            if limit is None:
                raise EnvelopeError(f"Expected a requested frame, once, got frame {number}.")
            if total > limit:
                raise EnvelopeError(f"Expected a frame of at most {limit} bytes, got {total}.")
            self._head = (number, total, allowed)
        elif (number, total, allowed) != self._head:
            raise EnvelopeError(
                f"Expected the next chunk of frame {self._head[0]}, got one of frame {number}."
            )
        if offset != len(self._body):
            raise EnvelopeError(f"Expected the chunk at {len(self._body)}, got that at {offset}.")
        size = len(message) - _HEAD.size
        if size != min(CHUNK, total - offset):
            expected = min(CHUNK, total - offset)
            raise EnvelopeError(f"Expected {expected} bytes in a chunk, got {size}.")
        if size == total:  # the only chunk: one copy
            self._head = None
            return ReceivedFrame(number=number, allowed_ms=allowed, frame=message[_HEAD.size :])
        self._body += memoryview(message)[_HEAD.size :]
        if len(self._body) < total:
            return None
        whole = ReceivedFrame(number=number, allowed_ms=allowed, frame=bytes(self._body))
        self._head, self._body = None, bytearray()
        return whole


Options = Sequence[tuple[str, Any]]

ATTEND, HELLO = "/parley.Parties/Attend", "/parley.Parties/Hello"
HANDSHAKE_S = 10.0
REQUEST_S = 10.0
MAX_READS = 8
"""Maximum number of a caller's requests that are read at the same time."""
_PING_MS = 10_000
_IDLE_MS = 20_000
_OPERATOR_CONNECTIONS = 8
"""Connections for operators' commands, in addition to the parties'."""
_UNKNOWN_CONNECTIONS = 1024
"""Connections of callers that have not shown a certificate yet, 20 KiB each. If there were few,
strangers who reconnect at once could occupy all of them before a party connects.
"""
_OWN_FILES = 256 + MAX_CONNECTIONS
"""Files that the server itself opens, and the connections of its monitor."""


def compute_max_connections(parties: int) -> int:
    """Return how many connections the port accepts, after raising the process's limit on open
    files.
    """
    known = 2 * parties + _OPERATOR_CONNECTIONS
    wanted = known + _UNKNOWN_CONNECTIONS + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wanted = soft
    # If the machine allows fewer, the server's own files come first.
    return max(known, wanted - _OWN_FILES)


def build_server_options(parties: int) -> Options:
    """Return the options of the server's port, which limit strangers and detect dead connections.

    Connections count before their handshake. These end a connection: a frame longer than a chunk,
    headers above 16 KiB, more than a few streams, and 20 s without a call.
    """
    return (
        ("grpc.max_allowed_incoming_connections", compute_max_connections(parties)),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_S)),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_concurrent_streams", 8),
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ("grpc.max_metadata_size", 1 << 14),
        ("grpc.absolute_max_metadata_size", 1 << 14),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS // 2),
        *_build_ping_options(),
    )


def build_channel_options() -> Options:
    """Return the options of a party's or an operator's connection."""
    return (
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
        # Parley reconnects by itself, with jitter and a line in the log.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        # Ignore the environment's proxy: it could see only one end of a tunnel, or nothing.
        ("grpc.enable_http_proxy", 0),
        *_build_ping_options(),
    )


def _build_ping_options() -> Options:
    return (
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_MS),
        # This one ends a connection without answers to pings; a minute by default.
        ("grpc.http2.ping_timeout_ms", _PING_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )


def load_server_credentials(folder: Path) -> Any:
    """Return the TLS credentials of the server in `folder`, which accept only its authority's
    clients.
    """
    check_private(folder / "server.key")
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    return grpc.ssl_server_credentials(
        [pair], root_certificates=(folder / "ca.crt").read_bytes(), require_client_auth=True
    )


def load_channel_credentials(folder: Path, name: str) -> Any:
    """Return the TLS credentials of the holder of `name`.key and `name`.pem in `folder`."""
    check_private(folder / f"{name}.key")
    return grpc.ssl_channel_credentials(
        root_certificates=(folder / "ca.crt").read_bytes(),
        private_key=(folder / f"{name}.key").read_bytes(),
        certificate_chain=(folder / f"{name}.pem").read_bytes(),
    )


def get_peer_certificate(context: Any) -> bytes:
    """Return the certificate that a caller presented, or empty bytes."""
    found = context.auth_context().get("x509_pem_cert", [])
    return bytes(found[0]) if len(found) == 1 else b""


def get_metadata(context: Any) -> Mapping[str, str]:
    """Return a call's text metadata with names that start with `parley-`."""
    return {
        str(key): value[:200]
        for key, value in context.invocation_metadata() or ()
        if str(key).startswith("parley-") and isinstance(value, str)
    }


def build_service(methods: Mapping[str, Any]) -> Any:
    """Return a gRPC service from a handler per method path."""
    names = {path.rpartition("/")[2]: handler for path, handler in methods.items()}
    return grpc.method_handlers_generic_handler(next(iter(methods)).split("/")[1], names)


class RequestReader:
    """Reads the one request of each call, within a deadline and a few at a time per caller.

    gRPC's unary handlers start when the request has arrived. A caller that never sends one could
    keep the call, and its never idle connection, forever. So calls with one request are streams
    here: the server first checks the caller, then waits a short time for the request. At most one
    chunk of a request that is being read is in memory, and unread data is not received. So a caller
    that begins many requests costs no more than a few.
    """

    def __init__(self) -> None:
        self._reading: Counter[str] = Counter()

    async def read(self, caller: str, context: Any) -> bytes:
        """Return the caller's request; end the call if none comes or too many are being read."""
        if self._reading[caller] >= MAX_READS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"Expected at most {MAX_READS} requests of one caller at a time, got one more.",
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


PROBE = 0
"""Number of the empty request by which the server asks whether a party's first connection is alive.

The party answers immediately, even while it computes, and informs its owner of the second one.
"""

HEARTBEAT = 2**64 - 1
"""Number of the empty request that a party answers immediately, even while it computes."""


DUPLICATE = "twice"
"""First word of the error text that a second connection of a party receives."""
