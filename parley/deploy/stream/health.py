"""The standard health service of gRPC, for load balancers and supervisors.

    grpc.health.v1.Health/Check

A request is one field, the name of a service; an answer one field, its state. Both are read and
written here (https://github.com/grpc/grpc-proto, grpc/health/v1/health.proto), so that nothing else
parses what comes. It is asked on the server's port, by a party or an operator of today. There is no
Watch, as the protocol allows: a call that lasts would hold a connection for nothing.

    >>> asked(b"") == "", asked(b"\\n\\x0eparley.Parties")
    (True, 'parley.Parties')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from parley.deploy.peers import NotAdmitted
from parley.deploy.stream.settings import Requests, peer_certificate, service

CHECK = "/grpc.health.v1.Health/Check"
_SERVICES = frozenset({"", "parley.Parties", "parley.Operators"})
_NAME, _LONGEST = b"\x0a", 100
_SERVING = b"\x08\x01"


def asked(request: bytes) -> str:
    """The name that a HealthCheckRequest has; ValueError for anything else."""
    if not request:
        return ""
    length = len(request) - 2
    if request[:1] != _NAME or not 0 <= length <= _LONGEST or request[1] != length:
        raise ValueError("Expected one field, the name of a service.")
    return request[2:].decode("ascii")


def health_service(admit: Callable[[bytes], str]) -> Any:
    """The service; `admit` names whose certificate it is, or raises NotAdmitted."""
    requests = Requests()

    async def check(_requests: Any, context: Any) -> bytes:
        try:
            caller = admit(peer_certificate(context))
            name = asked(await requests.read(caller, context))
        except NotAdmitted as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        if name not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service here.")
        return _SERVING

    return service({CHECK: grpc.stream_unary_rpc_method_handler(check)})
