"""The roster of a deployment: who its parties are, by public keys that everyone has beforehand.

One TOML file, the same for the server and for every party; a party's index is its place in it.
Identities are never learned from the server: a server that could name them could be all of them.
"""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["Deployment", "RosterError", "RosterParty", "load_deployment", "new_deployment"]
__all__ += ["render_deployment"]

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class RosterError(ValueError):
    """A deployment file that cannot be used: the file, what was expected, what came."""


class _PartyEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: _Name
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    node: Annotated[str, Field(max_length=2000)] = ""


class _DeploymentFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: Annotated[int, Field(ge=1, le=1)]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    beacon: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    server: Annotated[str, Field(max_length=300)]
    party: Annotated[list[_PartyEntry], Field(min_length=1, max_length=2**20)]


@dataclass(frozen=True, kw_only=True)
class RosterParty:
    """One party.

    Attributes:
        name: letters, digits, `.`, `_`, `-`.
        identity: Ed25519 public key, 32 bytes: what its messages are signed with.
        node: OpenSSH public key of its SuperNode; empty in a simulation.
    """

    name: str
    identity: bytes
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Everything public about a deployment.

    Attributes:
        id: 32 hex digits.
        beacon: 32 bytes of public randomness, drawn before any key of a run: it fixes the graph.
        server_address: `host:port` of the SuperLink; empty in a simulation.
        parties: in order; a party's index is its place.

    Raises:
        RosterError: two parties with one name or one key.
    """

    id: str
    beacon: bytes
    server_address: str
    parties: tuple[RosterParty, ...]

    def __post_init__(self) -> None:
        for what, values in (
            ("name", [party.name for party in self.parties]),
            ("identity", [party.identity.hex() for party in self.parties]),
            ("node key", [_key(party.node) for party in self.parties if party.node]),
        ):
            seen: dict[str, int] = {}
            for index, value in enumerate(values):
                if value in seen:
                    raise RosterError(
                        f"Expected a different {what} for each party, got one for both "
                        f"{self.parties[seen[value]].name} and {self.parties[index].name}."
                    )
                seen[value] = index

    @property
    def identities(self) -> tuple[bytes, ...]:
        """Every party's identity, by index."""
        return tuple(party.identity for party in self.parties)


def _key(line: str) -> str:
    """A public key line without its comment."""
    return " ".join(line.split()[:2])


def new_deployment(*, server_address: str, parties: Iterable[RosterParty]) -> Deployment:
    """A deployment of its own, with a fresh name and beacon from the operating system."""
    return Deployment(
        id=secrets.token_hex(16),
        beacon=secrets.token_bytes(32),
        server_address=server_address,
        parties=tuple(parties),
    )


def load_deployment(path: Path) -> Deployment:
    """The deployment in a file.

    Raises:
        RosterError: not there, not TOML, unknown or missing keys, two parties with one key.
    """
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        read = _DeploymentFile.model_validate(raw)
    except OSError as error:
        raise RosterError(f"Expected a deployment file at {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RosterError(f"{path}: expected TOML, got {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RosterError(f"{path}: {where}: {first['msg']}.") from error
    try:
        return Deployment(
            id=read.id,
            beacon=bytes.fromhex(read.beacon),
            server_address=read.server,
            parties=tuple(
                RosterParty(name=p.name, identity=bytes.fromhex(p.identity), node=p.node)
                for p in read.party
            ),
        )
    except RosterError as error:
        raise RosterError(f"{path}: {error}") from error


def render_deployment(deployment: Deployment) -> str:
    """The file's text; `load_deployment` gives the same deployment back."""
    lines = [
        "# The roster of a Parley deployment: public, and the same for its server and every party.",
        "version = 1",
        f'id = "{deployment.id}"',
        f'beacon = "{deployment.beacon.hex()}"',
        f'server = "{deployment.server_address}"',
    ]
    for party in deployment.parties:
        lines += [
            "",
            "[[party]]",
            f'name = "{party.name}"',
            f'identity = "{party.identity.hex()}"',
            f'node = "{party.node}"',
        ]
    return "\n".join(lines) + "\n"
