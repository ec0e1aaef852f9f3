"""The folders of a deployment: made once by its operator, checked by everyone before each start.

    DIR/authority/        ca.crt, ca.key     stays with the operator, best offline
    DIR/server/           ca.crt, server.pem, server.key, server.toml, deployment.toml, runs/
    DIR/parties/<name>/   ca.crt, deployment.toml, identity.key, supernode.key, party.toml

The server's folder goes to the server, every party's to that party over a channel that keeps it
secret, and to nobody else. `deployment.toml` is public and the same everywhere: who the parties
are. `party.toml` belongs to the party alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.client.contract.roster import (
    Deployment,
    RosterParty,
    load_deployment,
    new_deployment,
    render_deployment,
)
from parley.client.contract.toml_reading import parse_toml
from parley.client.party.consent import Consent, load_consent, render_consent
from parley.deploy.pki import (
    PkiError,
    check_node_key,
    check_private,
    check_server_certificate,
    make_authority,
    make_identity,
    make_node_key,
    make_server_certificate,
    node_line,
)
from parley.secure_agg.primitives import signing_public

__all__ = [
    "DEFAULT_PORT",
    "Acceptance",
    "DeployError",
    "PartyHome",
    "ServerHome",
    "accept",
    "check_party",
    "check_server",
    "make_deployment",
    "make_own_keys",
    "own_entry",
    "propose_keys",
    "renew_certificate",
    "rotate_party",
]

DEFAULT_PORT = 9092

_LARGEST_ENTRY = 1 << 14
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


class _ServerFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    listen: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]+$", max_length=255)]
    port: Annotated[int, Field(ge=1, le=65535, strict=True)]


class _PublicKeys(BaseModel):
    """What a party sends of the keys that it made itself; `RosterParty` checks each."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(max_length=63)]
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    node: Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """One party's new keys in a roster that is otherwise the old one.

    Attributes:
        before, after: the rosters.
        old, new: the party in them.
    """

    before: Deployment
    after: Deployment
    old: RosterParty
    new: RosterParty

    @property
    def name(self) -> str:
        """Whose keys change."""
        return self.old.name


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
    for name in parties:
        RosterParty(name=name, identity=bytes(32))  # before it becomes a folder's name
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
        "# Where the server listens for parties: every interface, one port.\n"
        + tomli_w.dumps({"listen": "0.0.0.0", "port": port}),  # noqa: S104
        encoding="utf-8",
    )
    roster = [_make_party(folder / "parties" / name, authority, name) for name in parties]
    address = f"[{hosts[0]}]:{port}" if ":" in hosts[0] else f"{hosts[0]}:{port}"
    deployment = new_deployment(server_address=address, parties=roster)
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
            draft = home / ".deployment.toml.part"
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, home / "deployment.toml")  # a server that starts reads a whole one


def _with_keys(deployment: Deployment, fresh: RosterParty) -> Deployment:
    """The same roster with one party's keys replaced.

    Raises:
        RosterError: one of the keys is another party's.
    """
    parties = (fresh if party.name == fresh.name else party for party in deployment.parties)
    return replace(deployment, parties=tuple(parties))


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
    rotated = _with_keys(deployment, fresh)
    _publish(folder, rotated)
    return rotated


def make_own_keys(home: Path) -> Path:
    """Makes a party's keys anew where the party is, so that nobody else ever had them.

    Returns:
        A file of the party's public keys, for the operator (`propose_keys`).

    Raises:
        DeployError, PkiError, RosterError: not a party's folder.
    """
    home = home.resolve()
    party = own_entry(home, load_deployment(home / "deployment.toml"))
    fresh = RosterParty(
        name=party.name,
        identity=make_identity(home / "identity.key"),
        node=make_node_key(home / "supernode.key", comment=party.name),
    )
    entry = home / f"{party.name}.public.toml"
    keys = {"name": fresh.name, "identity": fresh.identity.hex(), "node": fresh.node}
    entry.write_text(tomli_w.dumps(keys), encoding="utf-8")
    return entry


def propose_keys(folder: Path, entry: Path) -> Acceptance:
    """The roster with the public keys that a party made itself; nothing is written (`accept`).

    The file comes from outside: it can change the keys of one party that is in the roster, and
    nothing else, neither a name nor a comment.

    Raises:
        DeployError: the file is not such keys, or of a party that is not in the roster.
        RosterError: one of the keys is another party's.
    """
    before = load_deployment(folder / "server" / "deployment.toml")
    known = {party.name: party for party in before.parties}
    try:
        with entry.open("rb") as file:
            content = file.read(_LARGEST_ENTRY + 1)
        if len(content) > _LARGEST_ENTRY:
            raise ValueError(f"more than {_LARGEST_ENTRY} bytes")
        keys = _PublicKeys.model_validate(parse_toml(content.decode()))
        new = RosterParty(name=keys.name, identity=bytes.fromhex(keys.identity), node=keys.node)
        check_node_key(new.node)
    except (OSError, ValueError, TypeError, RecursionError, PkiError) as error:
        said = _first(error) if isinstance(error, ValidationError) else str(error)
        raise DeployError(f"Expected a party's public keys in {entry}, got: {said}.") from error
    if new.name not in known:
        listed = ", ".join(known)
        raise DeployError(f"Expected keys of one of {listed} in {entry}, got {new.name}'s.")
    # The comment is ours: the party's name.
    new = replace(new, node=" ".join([*new.node.split()[:2], new.name]))
    old = known[new.name]
    return Acceptance(before=before, after=_with_keys(before, new), old=old, new=new)


def accept(folder: Path, acceptance: Acceptance) -> None:
    """Publishes the roster of an acceptance; everyone needs it then.

    Raises:
        DeployError: the roster is another than when it was proposed.
    """
    if load_deployment(folder / "server" / "deployment.toml") != acceptance.before:
        raise DeployError("Expected the roster that was shown, got another: accept it again.")
    _publish(folder, acceptance.after)


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


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
        read = _ServerFile.model_validate(parse_toml(settings.read_text(encoding="utf-8")))
    except OSError as error:
        raise DeployError(
            f"{folder} is not a server's folder: it has no server.toml. `parley deploy init` makes "
            "one."
        ) from error
    except (ValueError, RecursionError) as error:
        said = _first(error) if isinstance(error, ValidationError) else str(error)
        raise DeployError(f"Expected listen and port in {settings}, got {said}.") from error
    deployment = load_deployment(folder / "deployment.toml")
    check_private(folder / "server.key")
    host = deployment.server_address.rpartition(":")[0].strip("[]")
    check_server_certificate(folder / "ca.crt", folder / "server.pem", host=host)
    (folder / "runs").mkdir(exist_ok=True)
    return ServerHome(folder=folder, deployment=deployment, listen=read.listen, port=read.port)


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
    party = own_entry(folder, deployment)
    consent = load_consent(folder / "party.toml")
    for name, dataset in consent.data.items():
        for given in (dataset.path, dataset.data_schema, dataset.prepared):
            if given and not (folder / given).exists():
                raise DeployError(
                    f"Expected the data set {name} of {folder / 'party.toml'} at {folder / given}, "
                    "there is no such file."
                )
    return PartyHome(folder=folder, deployment=deployment, name=party.name)


def own_entry(folder: Path, deployment: Deployment) -> RosterParty:
    """The party whose keys are in a folder.

    Raises:
        PkiError: they are no keys.
        DeployError: the roster does not know them.
    """
    try:
        identity = signing_public(bytes.fromhex((folder / "identity.key").read_text().strip()))
    except ValueError as error:
        raise PkiError(f"Expected keys in {folder}, got something else: {error}.") from error
    line = node_line(folder / "supernode.key")
    for party in deployment.parties:
        own = party.identity == identity, party.node.split()[:2] == line.split()[:2]
        if all(own):
            return party
        if any(own):
            raise DeployError(
                f"Expected both keys of {party.name} in {folder}, got one of another party or of "
                "before a rotation."
            )
    raise DeployError(
        f"{folder} belongs to another deployment: its deployment.toml, with the id "
        f"{deployment.spoken}, does not know its keys. Ask the operator for the folder, or the "
        "roster, that goes with them."
    )
