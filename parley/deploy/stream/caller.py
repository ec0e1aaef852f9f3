"""What a caller says of itself to a server, and what it makes of a call that failed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grpc

from parley.client.contract.printable import one_line
from parley.client.contract.protocol import WIRE_VERSION
from parley.client.contract.roster import Deployment
from parley.deploy.folders import DeployError
from parley.deploy.processes import ProcessError
from parley.deploy.stream.settings import HELLO, channel_credentials, channel_options

_LASTING = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""What trying again does not mend."""


class CallError(Exception):
    """A call that the server ended, or that did not reach it.

    Attributes:
        lasting: trying again does not help.
    """

    def __init__(self, said: str, *, lasting: bool) -> None:
        super().__init__(said)
        self.lasting = lasting


def parley_version() -> str:
    """Of the Parley that is installed here."""
    try:
        return version("parley")
    except PackageNotFoundError:
        return "unknown"


def call_metadata(deployment: str) -> tuple[tuple[str, str], ...]:
    """What a caller says of itself before its first frame."""
    return (
        ("parley-wire", str(WIRE_VERSION)),
        ("parley-version", parley_version()),
        ("parley-deployment", deployment),
    )


def check_known(
    folder: Path, address: str, deployment: Deployment, *, timeout_s: float = 10
) -> str:
    """Asks the server whether it knows the party of a folder; returns the party's name there.

    Raises:
        ProcessError: no answer.
        DeployError: the server refuses this party: another roster, or another version of Parley.
    """
    credentials = channel_credentials(folder, "party")
    with grpc.secure_channel(address, credentials, channel_options()) as channel:
        try:
            name = channel.unary_unary(HELLO)(
                b"", metadata=call_metadata(deployment.id), timeout=timeout_s
            )
        except grpc.RpcError as error:
            said = explained(error, address=address)
            if said.lasting:
                raise DeployError(str(said)) from error
            raise ProcessError(
                f"The server at {address} gave this party no answer: {said}. Its certificate may "
                "be of another deployment, or not valid by the server's clock."
            ) from error
    return one_line(bytes(name).decode("ascii", errors="replace")[:63])


def explained(error: Any, *, address: str) -> CallError:
    """A failed call in words."""
    code, details = error.code(), one_line((error.details() or "")[:500])
    if code is grpc.StatusCode.UNAVAILABLE:
        return CallError(_connection(details), lasting=False)
    if code is grpc.StatusCode.ABORTED and details.startswith("replaced"):
        return CallError(
            f"The server at {address} ended this connection: another process attends with the "
            "same certificate. Run one process a party; if no other is yours, the key was copied: "
            "have the operator make it anew (parley deploy rotate).",
            lasting=True,
        )
    if code in _LASTING:
        said = f"The server at {address} refuses this caller: {details}"
        return CallError(said, lasting=True)
    return CallError(details or str(code), lasting=False)


def _connection(details: str) -> str:
    """The part of gRPC's text on a connection that says why there is none."""
    for words, said in (
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not one that our authority vouches for"),
        ("Connection refused", "nobody listens there"),
        ("DNS resolution failed", "its name does not resolve"),
        ("Connection reset", "the connection was cut"),
        ("Socket closed", "the connection was cut"),
        ("timed out", "no answer"),
    ):
        if words in details:
            return said
    return "no connection"
