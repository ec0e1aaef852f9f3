"""The folders of a deployment: made once by its operator, checked by everyone before each start.

    DIR/authority/        ca.crt, ca.key     stays with the operator, best offline
    DIR/server/           ca.crt, server.pem, server.key, server.toml, deployment.toml, runs/
    DIR/parties/<name>/   ca.crt, deployment.toml, identity.key, supernode.key, party.toml

The server's folder goes to the server, every party's to that party over a channel that keeps it
secret, and to nobody else. `deployment.toml` is public and the same everywhere: who the parties
are. `party.toml` belongs to the party alone.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from client.consent import Consent, load_consent, render_consent
from client.roster import (
    Deployment,
    RosterParty,
    load_deployment,
    new_deployment,
    render_deployment,
)
from parley.deploy.pki import (
    PkiError,
    check_private,
    check_server_certificate,
    make_authority,
    make_identity,
    make_node_key,
    make_server_certificate,
)
from parley.deploy.processes import ProcessError
from secure_agg.primitives import signing_public

__all__ = [
    "DEFAULT_PORT",
    "DeployError",
    "PartyHome",
    "ServerHome",
    "accept_keys",
    "check_party",
    "check_reachable",
    "check_server",
    "make_deployment",
    "make_own_keys",
    "renew_certificate",
    "rotate_party",
]

DEFAULT_PORT = 9092

_EXAMPLE = """
# A data set that you serve, under the name that jobs ask for (data.source or privacy.dataset).
# [data.records]
# path = "records.csv"
# schema = "records.schema.toml"
# epsilon = 1.0
# delta = 1e-5
"""


class DeployError(Exception):
    """A deployment's folder that cannot be used, and what to do about it."""


@dataclass(frozen=True, kw_only=True)
class ServerHome:
    """The server's folder, checked."""

    folder: Path
    deployment: Deployment
    listen: str
    port: int


@dataclass(frozen=True, kw_only=True)
class PartyHome:
    """A party's folder, checked."""

    folder: Path
    deployment: Deployment
    name: str


def make_deployment(
    folder: Path, *, hosts: Sequence[str], parties: Sequence[str], port: int = DEFAULT_PORT
) -> Deployment:
    """Makes the folders of a new deployment; parties reach the server at the first of `hosts`.

    Raises:
        DeployError: the folder is there and not empty.
        RosterError: two parties with one name.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(f"Expected a new folder for the deployment, {folder} is not empty.")
    authority, server = folder / "authority", folder / "server"
    for made in (authority, server, server / "runs"):
        made.mkdir(parents=True, mode=0o700)
    make_authority(authority / "ca.crt", authority / "ca.key", name="Parley deployment")
    shutil.copy(authority / "ca.crt", server)
    names = [*dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    make_server_certificate(
        server / "server.pem",
        server / "server.key",
        authority=authority / "ca.crt",
        authority_key=authority / "ca.key",
        hosts=names,
    )
    (server / "server.toml").write_text(
        f"# Where the server listens: every interface. One port, for everything.\n"
        f'listen = "0.0.0.0"\nport = {port}\n',
        encoding="utf-8",
    )
    roster = [_make_party(folder / "parties" / name, authority, name) for name in parties]
    deployment = new_deployment(server_address=f"{hosts[0]}:{port}", parties=roster)
    _publish(folder, deployment)
    return deployment


def _make_party(home: Path, authority: Path, name: str) -> RosterParty:
    home.mkdir(parents=True, mode=0o700)
    shutil.copy(authority / "ca.crt", home)
    if not (home / "party.toml").exists():
        text = render_consent(Consent()) + _EXAMPLE
        (home / "party.toml").write_text(text, encoding="utf-8")
    return RosterParty(
        name=name,
        identity=make_identity(home / "identity.key"),
        node=make_node_key(home / "supernode.key", comment=name),
    )


def _publish(folder: Path, deployment: Deployment) -> None:
    text = render_deployment(deployment)
    homes = [folder / "parties" / party.name for party in deployment.parties]
    for home in (folder / "server", *homes):
        if home.is_dir():
            (home / "deployment.toml").write_text(text, encoding="utf-8")


def rotate_party(folder: Path, name: str) -> Deployment:
    """Makes a party's keys anew; everyone then needs the new deployment.toml.

    Raises:
        DeployError: there is no such party.
    """
    deployment = load_deployment(folder / "server" / "deployment.toml")
    if name not in {party.name for party in deployment.parties}:
        known = ", ".join(party.name for party in deployment.parties)
        raise DeployError(f"Expected one of {known}, got {name}.")
    home = folder / "parties" / name
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copy(folder / "authority" / "ca.crt", home)
    fresh = RosterParty(
        name=name,
        identity=make_identity(home / "identity.key"),
        node=make_node_key(home / "supernode.key", comment=name),
    )
    parties = tuple(fresh if party.name == name else party for party in deployment.parties)
    rotated = replace(deployment, parties=parties)
    _publish(folder, rotated)
    return rotated


def make_own_keys(home: Path) -> Path:
    """Makes a party's keys anew where the party is, so that nobody else ever had them.

    Returns:
        A file of the party's public keys, for the operator (`accept_keys`).

    Raises:
        DeployError, PkiError, RosterError: not a party's folder.
    """
    home = home.resolve()
    party = _own_entry(home, load_deployment(home / "deployment.toml"))
    fresh = RosterParty(
        name=party.name,
        identity=make_identity(home / "identity.key"),
        node=make_node_key(home / "supernode.key", comment=party.name),
    )
    entry = home / f"{party.name}.public.toml"
    lines = [f'name = "{fresh.name}"', f'identity = "{fresh.identity.hex()}"']
    entry.write_text("\n".join([*lines, f'node = "{fresh.node}"']) + "\n", encoding="utf-8")
    return entry


def accept_keys(folder: Path, entry: Path) -> Deployment:
    """Puts the public keys that a party made itself into the roster; everyone needs it then.

    Raises:
        DeployError: the file is not such keys, or of a party that is not in the roster.
    """
    deployment = load_deployment(folder / "server" / "deployment.toml")
    try:
        content = tomllib.loads(entry.read_text(encoding="utf-8"))
        fresh = RosterParty(
            name=str(content["name"]),
            identity=bytes.fromhex(content["identity"]),
            node=str(content["node"]),
        )
        serialization.load_ssh_public_key(fresh.node.encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeployError(f"Expected a party's public keys in {entry}, got: {error}.") from error
    if fresh.name not in {party.name for party in deployment.parties} or len(fresh.identity) != 32:
        known = ", ".join(party.name for party in deployment.parties)
        raise DeployError(f"Expected keys of one of {known} in {entry}, got others.")
    parties = tuple(fresh if party.name == fresh.name else party for party in deployment.parties)
    accepted = replace(deployment, parties=parties)
    _publish(folder, accepted)
    return accepted


def renew_certificate(folder: Path, *, hosts: Sequence[str]) -> None:
    """Makes the server's key and certificate anew, by the same authority: parties notice nothing.

    Raises:
        PkiError: the authority's key is not in this folder.
    """
    make_server_certificate(
        folder / "server" / "server.pem",
        folder / "server" / "server.key",
        authority=folder / "authority" / "ca.crt",
        authority_key=folder / "authority" / "ca.key",
        hosts=[*dict.fromkeys([*hosts, "localhost", "127.0.0.1"])],
    )


def check_server(folder: Path) -> ServerHome:
    """Checks a server's folder (or the deployment's, which holds one).

    Raises:
        DeployError, PkiError, RosterError: what is wrong with it.
    """
    folder = (folder / "server" if (folder / "server").is_dir() else folder).resolve()
    settings = folder / "server.toml"
    try:
        content = tomllib.loads(settings.read_text(encoding="utf-8"))
        listen, port = str(content["listen"]), int(content["port"])
    except OSError as error:
        raise DeployError(
            f"{folder} is not a server's folder: it has no server.toml. `parley deploy init` makes "
            "one."
        ) from error
    except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError) as error:
        raise DeployError(f"Expected listen and port in {settings}, got {error}.") from error
    deployment = load_deployment(folder / "deployment.toml")
    for name in ("server.key",):
        check_private(folder / name)
    host = deployment.server_address.rpartition(":")[0]
    check_server_certificate(folder / "ca.crt", folder / "server.pem", host=host)
    (folder / "runs").mkdir(exist_ok=True)
    return ServerHome(folder=folder, deployment=deployment, listen=listen, port=port)


def check_party(folder: Path) -> PartyHome:
    """Checks a party's folder: keys, certificate, roster, policy, and that its data are there.

    Raises:
        DeployError, PkiError, RosterError, ConsentError: what is wrong with it.
    """
    folder = folder.resolve()
    if not (folder / "identity.key").exists():
        raise DeployError(
            f"{folder} is not a party's folder: it has no identity.key. The operator makes it with "
            "`parley deploy init` and sends it to you."
        )
    for name in ("identity.key", "supernode.key"):
        check_private(folder / name)
    check_server_certificate(folder / "ca.crt")
    deployment = load_deployment(folder / "deployment.toml")
    party = _own_entry(folder, deployment)
    consent = load_consent(folder / "party.toml")
    for name, dataset in consent.data.items():
        for given in (dataset.path, dataset.data_schema, dataset.prepared):
            if given and not (folder / given).exists():
                raise DeployError(
                    f"Expected the data set {name} of {folder / 'party.toml'} at {folder / given}, "
                    "there is no such file."
                )
    return PartyHome(folder=folder, deployment=deployment, name=party.name)


def _own_entry(folder: Path, deployment: Deployment) -> RosterParty:
    try:
        identity = signing_public(bytes.fromhex((folder / "identity.key").read_text().strip()))
        key = serialization.load_ssh_private_key((folder / "supernode.key").read_bytes(), None)
    except ValueError as error:
        raise PkiError(f"Expected keys in {folder}, got something else: {error}.") from error
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    for party in deployment.parties:
        own = party.identity == identity, party.node.split()[:2] == line.decode().split()[:2]
        if all(own):
            return party
        if any(own):
            raise DeployError(
                f"Expected both keys of {party.name} in {folder}, got one of another party or of "
                "before a rotation."
            )
    raise DeployError(
        f"{folder} belongs to another deployment: {deployment.id} does not know its keys. Ask the "
        "operator for the folder, or for the deployment.toml, that goes with them."
    )


def check_reachable(address: str, ca: Path, *, timeout_s: float = 5.0) -> None:
    """Connects as a SuperNode would: the server is there, and the authority vouches for it.

    Raises:
        ProcessError: nobody answers at that address.
        PkiError: another deployment's server, an expired certificate, or a wrong host name.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.create_default_context(cafile=str(ca))
    try:
        with (
            socket.create_connection((host, int(port)), timeout=timeout_s) as raw,
            context.wrap_socket(raw, server_hostname=host),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        raise PkiError(
            f"The server at {address} is not the one that {ca} vouches for: "
            f"{error.verify_message}. Either it is another deployment's, or its certificate "
            "expired (parley deploy renew), or one of the two clocks is wrong."
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
        raise ProcessError(
            f"Cannot reach the server at {address}: {reason}. Is `parley server` running there, "
            "and does the firewall let this machine in?"
        ) from error
