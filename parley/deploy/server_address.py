"""Addresses of servers: `host:port`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?P<host>\[[^\[\]/\s]+\]|[^:\[\]/\s]+):(?P<port>[0-9]{1,5})", re.ASCII)


class DeployError(Exception):
    """A deployment folder that cannot be used. The text says what to do about it."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, without the brackets of an IPv6 address.

    >>> parse_address("[::1]:9092")
    ('::1', 9092)

    Raises:
        DeployError: the address has no port, or is an IPv6 address without brackets.
    """
    found = _ADDRESS.fullmatch(address.strip())
    if found is None or not 0 < int(found["port"]) < 2**16:
        raise DeployError(
            "Expected the server's address as HOST:PORT, such as fl.example.org:9092 or "
            f"[2001:db8::1]:9092, got {address[:80]!r}. The port is in the server's server.toml "
            "(9092 by default)."
        )
    return strip_brackets(found["host"]), int(found["port"])


def strip_brackets(host: str) -> str:
    """Return a host as certificates name it, which is an IPv6 address without brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    host = strip_brackets(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
