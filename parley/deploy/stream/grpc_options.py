"""Configure gRPC for both sides: mutual TLS, limits for unknown callers, the caller's identity.

All gRPC settings that decide how many resources a caller can use are here.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from parley.connection_limit import MAX_CONNECTIONS
from parley.deploy.private_files import check_private
from parley.deploy.stream.stream_framing import LARGEST_MESSAGE

Options = Sequence[tuple[str, Any]]

ATTEND, HELLO = "/parley.Parties/Attend", "/parley.Parties/Hello"
DUPLICATE = "twice"
"""First word of the error text that a second connection of a party receives."""
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
