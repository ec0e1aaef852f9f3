"""Reaching a server: is its name known, does it answer, does the authority vouch for it.

Each by itself, so that a refusal names its cause, in words that say what to do.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from parley.deploy.private_files import PkiError
from parley.deploy.processes import ProcessError


def check_reachable(
    address: str, ca: Path, *, timeout_s: float = 5.0, host: str | None = None
) -> None:
    """Connects as a party would: the server is there, and the authority vouches for it.

    Args:
        address: `host:port`.
        ca: the authority's certificate.
        timeout_s: for each step.
        host: the name that its certificate must have; that of the address for None.

    Raises:
        ProcessError: its name does not resolve, or nobody answers at that address.
        PkiError: another deployment's server, one whose certificate has expired or is not valid
            yet, or a wrong host name.
    """
    name, _, port = address.rpartition(":")
    name = name.strip("[]")
    context = ssl.create_default_context(cafile=str(ca))
    try:
        with (
            socket.create_connection((name, int(port)), timeout=timeout_s) as raw,
            context.wrap_socket(raw, server_hostname=host or name),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        raise PkiError(
            f"The server at {address} is not the one that {ca} vouches for: "
            f"{error.verify_message}. {_cause(error.verify_message)}"
        ) from error
    except socket.gaierror as error:
        raise ProcessError(
            f"Cannot reach the server at {address}: the name {name} does not resolve "
            f"({error.strerror}). Is it spelled as in deployment.toml, and does this machine's DNS "
            "know it? Another address: --server HOST:PORT."
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
        raise ProcessError(
            f"Cannot reach the server at {address}: {reason}. Is `parley server` running there, "
            "and does the firewall let this machine in?"
        ) from error


def _cause(said: str) -> str:
    if "expired" in said:
        return (
            "Its certificate has expired by this machine's clock: is the clock right? Else the "
            "operator renews it (parley deploy renew)."
        )
    if "not yet valid" in said:
        return "Its certificate begins later than this machine's clock: set the clock."
    return (
        "Either it is another deployment's, or its certificate expired (parley deploy renew), or "
        "one of the two clocks is wrong."
    )
