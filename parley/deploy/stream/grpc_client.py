"""Connect a party or an operator to a server, and explain failed calls.

Each cause has its own text that says what to do: name resolution, no answer, the certificate's
issuer, a refusal.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import grpc

from parley.client.contract.message_frames import WIRE_VERSION
from parley.client.contract.roster import Deployment
from parley.deploy.private_files import PkiError
from parley.deploy.process_errors import ProcessError
from parley.deploy.server_address import DeployError, parse_address
from parley.deploy.stream.grpc_options import (
    DUPLICATE,
    HELLO,
    build_channel_options,
    load_channel_credentials,
)
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.printable_text import to_one_line
from parley.version import __version__

_CONNECT_S, _KNOWN_S = 5.0, 10.0
_PERMANENT_CODES = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Status codes for which a retry does not help."""

_CONNECTION = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not from our authority",
    "Connection refused": "no process listens there",
    "DNS resolution failed": "its name does not resolve",
    "Connection reset": "the connection was cut",
    "Socket closed": "the connection was cut",
    "timed out": "no answer",
}
"""Part of gRPC's error text → reason why there is no connection."""

_CERTIFICATE = {
    "expired": (
        "Its certificate has expired by this machine's clock. Check the clock. If it is right, the "
        "server administrator renews the certificate (parley deploy renew DIR)."
    ),
    "not yet valid": "Its certificate is not valid yet by this machine's clock. Set the clock.",
    "": (
        "Either it belongs to another deployment, or its certificate expired (parley deploy renew "
        "DIR), or one of the two clocks is wrong."
    ),
}
"""Part of the TLS error text on a server's certificate → what to do."""


class CallError(Exception):
    """A call that failed; with `is_permanent`, a retry does not help."""

    def __init__(self, said: str, *, is_permanent: bool) -> None:
        super().__init__(said)
        self.is_permanent = is_permanent


def build_call_metadata(deployment: str) -> tuple[tuple[str, str], ...]:
    """Return what a caller sends about itself before its first frame."""
    return (
        ("parley-wire", str(WIRE_VERSION)),
        ("parley-version", __version__),
        ("parley-deployment", deployment),
    )


def check_reachable(address: str, ca: Path, *, host: str | None = None) -> None:
    """Connect like a party to check that the server answers and that the authority certified it.

    Args:
        host: Name that the certificate must contain; None for the address's host.

    Raises:
        ProcessError: the name does not resolve, or no server answers at that address.
        PkiError: the authority did not certify the server, or the certificate is not valid today.
    """
    context = ssl.create_default_context(cafile=str(ca))
    try:
        name, port = parse_address(address)
        with (
            socket.create_connection((name, port), timeout=_CONNECT_S) as raw,
            context.wrap_socket(raw, server_hostname=host or name),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        cause = next(said for words, said in _CERTIFICATE.items() if words in error.verify_message)
        raise PkiError(
            f"The certificate of the server at {address} is not valid for {ca}: "
            f"{error.verify_message}. {cause}"
        ) from error
    except socket.gaierror as error:
        raise ProcessError(
            f"Cannot reach the server at {address}: the name {name} does not resolve "
            f"({error.strerror}). Check its spelling in deployment.toml and this machine's DNS. To "
            "use another address: --server HOST:PORT."
        ) from error
    except (OSError, ValueError) as error:
        # Python's own timeout has no error number.
        numbered = isinstance(error, OSError) and error.errno is not None
        reason = describe_cause(error) if numbered else "no answer"
        raise ProcessError(
            f"Cannot reach the server at {address}: {reason}. Check that `parley server` runs "
            "there and that the firewall lets this machine in."
        ) from error


def check_known(folder: Path, address: str, deployment: Deployment) -> str:
    """Ask the server whether it knows the party of a folder, and return the party's name there.

    Raises:
        ProcessError: the server did not answer.
        DeployError: the server refuses this party: another roster, or another version of Parley.
    """
    credentials = load_channel_credentials(folder, "party")
    with grpc.secure_channel(address, credentials, build_channel_options()) as channel:
        try:
            name = channel.unary_unary(HELLO)(
                b"", metadata=build_call_metadata(deployment.id), timeout=_KNOWN_S
            )
        except grpc.RpcError as error:
            said = explain_call_error(error, address=address)
            if said.is_permanent:
                raise DeployError(str(said)) from error
            raise ProcessError(
                f"The server at {address} did not answer this party: {said}. Its certificate may "
                "belong to another deployment, or not be valid by the server's clock."
            ) from error
    return to_one_line(bytes(name).decode("ascii", errors="replace")[:63])


def explain_call_error(error: Any, *, address: str) -> CallError:
    """Return a CallError that explains a failed call."""
    code, details = error.code(), to_one_line((error.details() or "")[:500])
    if code is grpc.StatusCode.UNAVAILABLE:
        causes = (said for words, said in _CONNECTION.items() if words in details)
        return CallError(next(causes, "no connection"), is_permanent=False)
    if code is grpc.StatusCode.ABORTED and details.startswith((DUPLICATE, "replaced")):
        return CallError(
            "another process is connected with this party's key. If it is yours (a second `parley "
            "party`, a copy of the folder), end one of the two. If not, the key was copied: ask "
            "the server administrator to replace it (parley deploy rotate)",
            is_permanent=False,
        )
    if code in _PERMANENT_CODES:
        said = f"The server at {address} refuses this caller: {details}"
        return CallError(said, is_permanent=True)
    return CallError(details or str(code), is_permanent=False)
