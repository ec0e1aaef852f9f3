"""What a party asks of a server before it takes part: is it there, is it the one, am I known.

Each by itself, so that a refusal names its cause: an address where nobody answers, a certificate of
another authority, a key that the server's roster does not have, another roster.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path

import httpx
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now

from parley.client.contract.roster import Deployment
from parley.deploy.flower.gate import HELLO
from parley.deploy.folders import DeployError
from parley.deploy.node_keys import node_key, node_line, signed_by_node
from parley.deploy.processes import ProcessError

_LARGEST_ANSWER = 4096


def check_known(
    folder: Path, address: str, deployment: Deployment, *, timeout_s: float = 10
) -> str:
    """Asks the server whether it knows the key in a party's folder; returns the party's name there.

    Raises:
        ProcessError: nobody answers.
        DeployError: the server's roster does not have the key, or is another.
        PkiError: the folder's key is none.
    """
    key = folder / "supernode.key"
    public = node_key(node_line(key))
    stamp = now().isoformat()
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public).decode(),
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signed_by_node(key, stamp.encode())).decode(),
    }
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    try:
        # No proxy of the environment's: it would only see the end of a tunnel, or nothing.
        with httpx.Client(verify=context, timeout=timeout_s, trust_env=False) as client:
            response = client.get(f"https://{address}{HELLO}", headers=headers)
            content = response.json() if len(response.content) <= _LARGEST_ANSWER else {}
    except (httpx.HTTPError, ValueError) as error:
        raise ProcessError(
            f"The server at {address} gave no answer that can be read ({type(error).__name__}). Is "
            "it a `parley server` of this version?"
        ) from error
    said = {str(name): str(value) for name, value in content.items()}
    if response.status_code != httpx.codes.OK:
        detail = said.get("detail", "no reason given")[:200]
        raise DeployError(
            f"The server at {address} refuses this party: {detail} Its roster is another than "
            "this folder's: ask the operator for the present deployment.toml, or whether the "
            "server was restarted with it."
        )
    if said.get("deployment") != deployment.id:
        raise DeployError(
            f"The server at {address} has another roster than this folder: ask the operator for "
            "the present deployment.toml, and compare its id by telephone."
        )
    return said.get("party", "")[:63]
