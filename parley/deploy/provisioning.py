"""Create and change a deployment's folders: add, remove and renew parties, keys and certificates.

All functions run where the authority's key is, except `make_own_keys`, which runs at a party.
`parley.deploy.deployment_folder_checks` lists the contents of each folder. After each change, all
parties and the server need the new deployment.toml.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import BaseModel, ConfigDict, Field

from parley.client.contract.roster import (
    Deployment,
    RosterParty,
    load_deployment,
    render_deployment,
)
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.policy_writing import format_policy
from parley.deploy.authorization import certify_party, make_operator
from parley.deploy.certificate_checks import list_certificate_names
from parley.deploy.certificate_making import (
    make_authority,
    make_client_request,
    make_identity,
    make_server_certificate,
)
from parley.deploy.deployment_folder_checks import find_own_party, format_first_fault
from parley.deploy.server_address import DeployError, format_address, parse_address, strip_brackets
from parley.safe_io.file_reading import decode_text
from parley.safe_io.file_writing import make_private_folder, write_file
from parley.safe_io.toml_reading import parse_toml

_LARGEST_ENTRY = 1 << 14
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# Not of numbers only, which are an address with a mistake.
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?![0-9.]*\Z){_LABEL}(\.{_LABEL})*", re.ASCII)
_MOST_PARTIES = 10_000
"""Folders with keys that one command creates."""
_EXAMPLE = """
# A data set that you offer. Jobs use its name in data.source or privacy.dataset.
# [data.records]
# path = "records.csv"
# schema = "records.schema.toml"
# epsilon = 1.0
# delta = 1e-5
"""


class _PublicKeys(BaseModel):
    """The public keys that a party made itself and sends to the server administrator. `RosterParty`
    checks them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(max_length=63)]
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    request: Annotated[str, Field(min_length=1, max_length=4000)]


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """One party's new keys: the roster before and after the change, and the certificate request
    (PEM).
    """

    before: Deployment
    after: Deployment
    old: RosterParty
    new: RosterParty
    request: bytes


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """Certificates that were issued again.

    Attributes:
        parties: The parties with a new `party.pem` in their folder here. These had an old one here.
        new_roster: The roster with the server's new address; None if the address stays.
    """

    parties: tuple[str, ...]
    new_roster: Deployment | None


def make_deployment(
    folder: Path, *, hosts: Sequence[str], parties: Sequence[str], port: int = 9092
) -> Deployment:
    """Create the folders of a new deployment. Parties reach the server at the first of `hosts`.

    Raises:
        DeployError, RosterError: the folder is not empty, or the names are missing, wrong or not
            unique.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(f"Expected a new folder for the deployment, {folder} is not empty.")
    hosts = _check_hosts(hosts, remedy="Give the port separately: --port 9092.")
    if len(parties) > _MOST_PARTIES:
        raise DeployError(
            f"Expected at most {_MOST_PARTIES:,} parties, got {len(parties):,}. Each gets a folder "
            "with its own keys."
        )
    # Check all names before one of them names a folder.
    drafts = (
        RosterParty(name=name, identity=number.to_bytes(32, "big"))
        for number, name in enumerate(parties, start=1)
    )
    Deployment(server_address=format_address(hosts[0], port), parties=tuple(drafts))
    authority, server, operator = (folder / name for name in ("authority", "server", "operator"))
    for made in (authority, server, server / "runs", operator):
        make_private_folder(made)
    make_authority(authority, name="Parley deployment")
    for home in (server, operator):
        write_file(home / "ca.crt", (authority / "ca.crt").read_bytes())
    # "::" listens on IPv6 and IPv4; a machine without IPv6 has no such address.
    listen = "::" if any(":" in host for host in hosts) else "0.0.0.0"  # noqa: S104
    write_file(
        server / "server.toml",
        "# Address and port on which the server listens for parties: every interface, one port.\n"
        + tomli_w.dumps({"listen": listen, "port": port}),
    )
    _certify_server(folder, hosts)
    roster = [_make_party(folder, name) for name in parties]
    deployment = Deployment(server_address=format_address(hosts[0], port), parties=tuple(roster))
    return _publish(folder, deployment)


def _check_hosts(hosts: Sequence[str], *, remedy: str) -> list[str]:
    """Return names and addresses without brackets; raise DeployError if one is neither.

    Args:
        remedy: what to do if one is neither, for example because it has a port.
    """
    checked = [strip_brackets(host.strip()) for host in hosts]
    for given, host in zip(hosts, checked, strict=True):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if not _NAME.fullmatch(host):
                raise DeployError(
                    "Expected a host name or an IP address, such as fl.example.org or ::1, got "
                    f"{given[:80]!r}. {remedy}"
                ) from None
    return checked


def _certify_server(folder: Path, hosts: Sequence[str]) -> None:
    """Create new keys and certificates of the server and the operators."""
    authority, server = folder / "authority", folder / "server"
    names = [*dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    make_server_certificate(server, authority=authority, hosts=names)
    make_operator(server, "server", authority=authority)
    if (folder / "operator").is_dir():
        make_operator(folder / "operator", "operator", authority=authority)


def _make_party(folder: Path, name: str) -> RosterParty:
    """Create a party's folder with new keys. An existing policy is kept."""
    home, authority = folder / "parties" / name, folder / "authority"
    make_private_folder(home)
    write_file(home / "ca.crt", (authority / "ca.crt").read_bytes())
    if not (home / "party.toml").exists():
        write_file(home / "party.toml", format_policy(OwnerPolicy()) + _EXAMPLE)
    party = RosterParty(name=name, identity=make_identity(home / "identity.key"))
    asked = make_client_request(home / "party.key")
    write_file(home / "party.pem", certify_party(asked, party, authority=authority))
    return party


def _publish(folder: Path, deployment: Deployment) -> Deployment:
    """Write a roster to all folders of the deployment that are on this machine."""
    text = render_deployment(deployment)
    homes = [folder / "parties" / party.name for party in deployment.parties]
    for home in (folder / "authority", folder / "server", folder / "operator", *homes):
        if home.is_dir():
            write_file(home / "deployment.toml", text)  # atomic, also for a server that reads it
    return deployment


def _load_roster(folder: Path) -> Deployment:
    """Return the roster, from the authority's folder or else from the server's."""
    own = folder / "authority" / "deployment.toml"
    return load_deployment(own if own.exists() else folder / "server" / "deployment.toml")


def _replace_keys(deployment: Deployment, fresh: RosterParty) -> Deployment:
    """Return the roster with one party's new keys; raise RosterError if another party has one of
    them.
    """
    parties = (fresh if party.name == fresh.name else party for party in deployment.parties)
    return replace(deployment, parties=tuple(parties))


def rotate_party(folder: Path, name: str) -> Deployment:
    """Replace a party's keys with new ones."""
    deployment = _load_roster_with(folder, name)
    return _publish(folder, _replace_keys(deployment, _make_party(folder, name)))


def _load_roster_with(folder: Path, name: str) -> Deployment:
    deployment = _load_roster(folder)
    known = [party.name for party in deployment.parties]
    if name not in known:
        raise DeployError(f"Expected one of the parties {', '.join(known)}, got {name}.")
    return deployment


def add_party(folder: Path, name: str) -> Deployment:
    """Create the folder and keys of one more party."""
    deployment = _load_roster(folder)
    if name in {party.name for party in deployment.parties}:
        raise DeployError(
            f"Expected a party that is not in the roster, got {name}. To replace its keys: parley "
            f"deploy rotate DIR {name}"
        )
    RosterParty(name=name, identity=bytes(32))  # before it becomes a folder's name
    parties = (*deployment.parties, _make_party(folder, name))
    return _publish(folder, replace(deployment, parties=parties))


def remove_party(folder: Path, name: str) -> Deployment:
    """Remove a party from the roster. Its certificate is refused from then on; its folder stays."""
    deployment = _load_roster_with(folder, name)
    left = tuple(party for party in deployment.parties if party.name != name)
    if len(left) < 2:
        raise DeployError(f"Expected at least 2 parties without {name}, got {len(left)}.")
    return _publish(folder, replace(deployment, parties=left))


def make_own_keys(home: Path) -> Path:
    """Create a party's keys where the party is, so that no other person ever had them.

    Returns:
        A file with the party's public keys, for the server administrator (`propose_keys`).
    """
    home = home.resolve()
    party = find_own_party(home, load_deployment(home / "deployment.toml"))
    keys = {
        "name": party.name,
        "identity": make_identity(home / "identity.key").hex(),
        "request": make_client_request(home / "party.key").decode(),
    }
    (home / "party.pem").unlink(missing_ok=True)  # it certifies the old key
    entry = home / f"{party.name}.public.toml"
    write_file(entry, tomli_w.dumps(keys))
    return entry


def propose_keys(folder: Path, entry: Path) -> Acceptance:
    """Return the roster change for public keys that a party made itself; `accept` writes it.

    The file comes from outside. It can change only the keys of one party in the roster, and neither
    a name nor a comment.

    Raises:
        DeployError, RosterError: the file has no such keys, its party is not in the roster, or
            another party has the keys.
    """
    before = _load_roster(folder)
    known = {party.name: party for party in before.parties}
    try:
        with entry.open("rb") as file:
            content = file.read(_LARGEST_ENTRY + 1)
        if len(content) > _LARGEST_ENTRY:
            raise ValueError(f"more than {_LARGEST_ENTRY} bytes")
        keys = _PublicKeys.model_validate(parse_toml(decode_text(content, entry)))
        new = RosterParty(name=keys.name, identity=bytes.fromhex(keys.identity))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DeployError(
            f"Expected a party's public keys in {entry}, got: {format_first_fault(error)}."
        ) from error
    if new.name not in known:
        listed = ", ".join(known)
        raise DeployError(
            f"Expected keys of one of the parties {listed} in {entry}, got {new.name}'s."
        )
    after, old, request = _replace_keys(before, new), known[new.name], keys.request.encode()
    return Acceptance(before=before, after=after, old=old, new=new, request=request)


def accept(folder: Path, acceptance: Acceptance) -> None:
    """Publish the roster of an acceptance; raise DeployError if the roster has changed since."""
    if _load_roster(folder) != acceptance.before:
        raise DeployError("The roster has changed since it was shown. Run the command again.")
    signed = certify_party(acceptance.request, acceptance.new, authority=folder / "authority")
    home = folder / "parties" / acceptance.new.name
    make_private_folder(home)
    write_file(home / "party.pem", signed)
    _publish(folder, acceptance.after)


def renew_certificates(folder: Path, *, hosts: Sequence[str] = ()) -> Renewal:
    """Issue all certificates again with the same authority. The parties' keys do not change.

    Args:
        hosts: Names by which parties reach the server. The first becomes its address in the roster,
            with the old port. If empty, the address stays, and the names are those of the server's
            certificate or, if the server's folder is not here, of the roster.

    Raises:
        DeployError: one of `hosts` is neither a name nor an address. No file has changed.
    """
    server, deployment = folder / "server", _load_roster(folder)
    host, port = parse_address(deployment.server_address)
    if hosts:
        names = _check_hosts(hosts, remedy="Give it without a port: the port stays.")
    elif server.exists():
        names = list_certificate_names(server / "server.pem")
    else:
        names = _check_hosts([host], remedy="Correct it in authority/deployment.toml.")
    address = format_address(names[0], port) if hosts else deployment.server_address
    make_private_folder(server)
    _certify_server(folder, names)
    renewed, authority = [], folder / "authority"
    for party in deployment.parties:
        pem = folder / "parties" / party.name / "party.pem"
        if pem.exists():
            write_file(pem, certify_party(pem.read_bytes(), party, authority=authority))
            renewed.append(party.name)
    # A hand-edited copy can differ from the authority's, so `hosts` always writes all of them.
    moved = _publish(folder, replace(deployment, server_address=address)) if hosts else deployment
    return Renewal(parties=tuple(renewed), new_roster=moved if moved != deployment else None)
