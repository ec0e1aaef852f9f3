"""Check the folders of a deployment before each start (`provisioning` creates them).

    DIR/authority/        ca.crt, ca.key, deployment.toml    administrator only, best offline
    DIR/server/           ca.crt, server.pem, server.key, server.toml, deployment.toml, runs/,
                          operator.key, operator.pem (for commands on the server's machine)
    DIR/operator/         ca.crt, deployment.toml, operator.key, operator.pem (from another machine)
    DIR/parties/<name>/   ca.crt, deployment.toml, identity.key, party.key, party.pem, party.toml

Send the server's folder only to the server, and each party's folder only to that party, over a
confidential channel. `deployment.toml` lists the parties; it is public and the same everywhere.
`party.toml` belongs to the party only; `party_check` checks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.client.contract.roster import Deployment, RosterParty, load_deployment
from parley.deploy.authorization import NotAdmitted, admit_party
from parley.deploy.certificate_checks import check_client_pair, check_server_certificate
from parley.deploy.private_files import PkiError, check_private
from parley.deploy.server_address import DeployError, parse_address
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import load_toml
from parley.secure_agg.primitives import derive_signing_public_key


class _ServerFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    listen: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]+$", max_length=255)]
    port: Annotated[int, Field(ge=1, le=65535, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ServerHome:
    """The server's folder after its check."""

    folder: Path
    deployment: Deployment
    listen: str
    port: int


def format_first_fault(error: Exception) -> str:
    """Return what is wrong. If a file has several faults, return the first one and its position."""
    if not isinstance(error, ValidationError):
        return describe_cause(error)
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def check_server(folder: Path) -> ServerHome:
    """Check the server's folder and return what it contains. The deployment's folder works, too.

    Raises:
        DeployError, PkiError, RosterError: what is wrong with the folder.
    """
    folder = (folder / "server" if (folder / "server").is_dir() else folder).resolve()
    settings = folder / "server.toml"
    try:
        read = _ServerFile.model_validate(load_toml(settings))
    except FileNotFoundError as error:
        raise DeployError(
            f"{folder} is not a server's folder: it has no server.toml. Create one with: parley "
            "deploy init"
        ) from error
    except (OSError, ValueError) as error:
        said = format_first_fault(error)
        raise DeployError(f"Expected listen and port in {settings}, got {said}.") from error
    deployment = load_deployment(folder / "deployment.toml")
    check_private(folder / "server.key")
    host, _ = parse_address(deployment.server_address)
    check_server_certificate(folder / "ca.crt", folder / "server.pem", host=host)
    (folder / "runs").mkdir(exist_ok=True)
    return ServerHome(folder=folder, deployment=deployment, listen=read.listen, port=read.port)


def find_own_party(folder: Path, deployment: Deployment) -> RosterParty:
    """Return the party whose keys are in a folder, after checking that the roster has both keys.

    Raises:
        PkiError, DeployError: the files are not keys, do not match, or are not in the roster.
    """
    try:
        key = bytes.fromhex((folder / "identity.key").read_text().strip())
        identity = derive_signing_public_key(key)
    except ValueError as error:
        raise PkiError(f"Expected keys in {folder}, got something else: {error}.") from error
    found = [party for party in deployment.parties if party.identity == identity]
    if not found:
        raise DeployError(
            f"{folder} belongs to another deployment: its keys are not in its deployment.toml, "
            f"which has the id {deployment.spoken}. Ask the server administrator for "
            "the folder or the roster that matches the keys."
        )
    pem = folder / "party.pem"
    try:
        certified = deployment.parties[admit_party(deployment, pem.read_bytes())]
    except OSError as error:
        raise DeployError(
            f"Expected {found[0].name}'s certificate at {pem}: {describe_cause(error)}. After "
            "`parley deploy own-keys` the server administrator creates it (parley deploy accept) "
            "and sends it back."
        ) from error
    except NotAdmitted as error:
        raise DeployError(f"{pem}: {error}") from error
    if certified != found[0]:
        raise DeployError(
            f"Expected both keys of {found[0].name} in {folder}, got the certificate of "
            f"{certified.name}."
        )
    check_client_pair(folder, "party")
    return found[0]
