"""Limit of the connections that a server of this process keeps open."""

from __future__ import annotations

MAX_CONNECTIONS = 64
