"""The roster of a deployment: its parties, identified by public keys distributed beforehand.

It is one TOML file, the same for the server and every party. A party's index is its position in it.
Identities are never learned from the server: a server that could name them could impersonate all of
them. The deployment's id is a digest of every name and identity. Comparing ids therefore compares
rosters.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.safe_io.file_reading import read_text
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import MAX_TOML_BYTES, parse_toml
from parley.secure_agg.primitives import digest

# Names are matched as a whole before anything is written, so none can contain a line break.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_ID_TAG = b"parley/deployment/1"
_BY_INDEX = re.compile(r"\bparty (\d{1,7})\b")


def with_names(text: str, names: Sequence[str]) -> str:
    """Replace party indices by names in a message of the masking protocol, which has only indices.

    >>> with_names("Expected the key of party 1, got that of party 7.", ["north", "south"])
    'Expected the key of south, got that of party 7.'
    """

    def name(found: re.Match[str]) -> str:
        index = int(found[1])
        return names[index] if index < len(names) else found[0]

    return _BY_INDEX.sub(name, text)


class RosterError(ValueError):
    """Error in a deployment file. It names the file, what was expected and what came."""


class _PartyEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(max_length=63)]
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _DeploymentFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: Annotated[int, Field(ge=2, le=2)]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    server: Annotated[str, Field(max_length=300)]
    party: Annotated[list[_PartyEntry], Field(min_length=1, max_length=2**20)]


@dataclass(frozen=True, kw_only=True)
class RosterParty:
    """One party.

    Attributes:
        identity: Ed25519 public key, 32 bytes, that verifies its messages' signatures.
    """

    name: str
    identity: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise RosterError(
                "Expected a party's name of at most 63 letters, digits, `.`, `_` and `-`, the "
                f"first a letter or digit, got {self.name[:80]!r}."
            )
        if len(self.identity) != 32:
            size = len(self.identity)
            raise RosterError(f"Expected an identity of 32 bytes for {self.name}, got {size}.")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """All public facts about a deployment."""

    server_address: str
    parties: tuple[RosterParty, ...]

    def __post_init__(self) -> None:
        if self.server_address and not _ADDRESS.fullmatch(self.server_address):
            got = f"{self.server_address[:80]!r}"
            raise RosterError(f"Expected the server's address as host:port, got {got}.")
        for what, values in (
            ("name", [party.name for party in self.parties]),
            ("identity", [party.identity.hex() for party in self.parties]),
        ):
            seen: dict[str, int] = {}
            for index, value in enumerate(values):
                if value in seen:
                    raise RosterError(
                        f"Expected a different {what} for each party, got one for both "
                        f"{self.parties[seen[value]].name} and {self.parties[index].name}."
                    )
                seen[value] = index

    @cached_property
    def id(self) -> str:
        """64 hex digits: SHA-256 of every party's name and identity, in any order.

        Names and identities define the parties. The address is only where they meet.
        """
        # Each party has a digest of fixed length, so no two rosters concatenate to the same bytes.
        tag = b"parley/party"
        parties = sorted(digest(tag, each.name.encode(), each.identity) for each in self.parties)
        return digest(_ID_TAG, *parties).hex()

    @property
    def spoken(self) -> str:
        """The whole id as 16 groups of five digits, two bytes per group, for reading aloud."""
        raw = bytes.fromhex(self.id)
        return " ".join(f"{int.from_bytes(raw[at : at + 2], 'big'):05d}" for at in range(0, 32, 2))

    @property
    def consortium(self) -> str:
        """64 hex digits: a digest of only the parties' names, which stays when keys are renewed.

        The server's ledger identifies the parties' data by it, so that new keys give no new budget.
        """
        names = sorted(party.name.encode() for party in self.parties)
        return digest(b"parley/consortium", *names).hex()

    @property
    def identities(self) -> tuple[bytes, ...]:
        """Every party's identity, by index."""
        return tuple(party.identity for party in self.parties)


def load_deployment(path: Path) -> Deployment:
    """Load the deployment in a file.

    Raises:
        RosterError: the file is missing, unreadable or malformed, or its id is not that of its
            parties.
    """
    try:
        text = read_text(path, max_bytes=MAX_TOML_BYTES)
    except OSError as error:
        raise RosterError(
            f"Expected a deployment file at {path}: {describe_cause(error)}. `parley deploy init` "
            "writes one into the folders of the server, each operator and each party."
        ) from error
    return _parse_deployment(text, path)


@functools.lru_cache(maxsize=16)
def _parse_deployment(text: str, path: Path) -> Deployment:
    """Parse the deployment in `text`. Its file is read at each connection."""
    try:
        raw: dict[str, Any] = parse_toml(text)
        read = _DeploymentFile.model_validate(raw)
    except tomllib.TOMLDecodeError as error:
        raise RosterError(f"{path}: expected TOML, got {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RosterError(f"{path}: {where}: {first['msg']}.") from error
    try:
        parties = [RosterParty(name=p.name, identity=bytes.fromhex(p.identity)) for p in read.party]
        deployment = Deployment(server_address=read.server, parties=tuple(parties))
    except RosterError as error:
        raise RosterError(f"{path}: {error}") from error
    if deployment.id != read.id:
        expected = f"{path}: Expected id {deployment.id}, computed from the parties listed"
        why = "a name or an identity was changed by hand"
        remedy = "Ask the server administrator for the original file."
        raise RosterError(f"{expected}, got {read.id}: {why}. {remedy}")
    return deployment


def render_deployment(deployment: Deployment) -> str:
    """Return the file's text. `load_deployment` is the inverse."""
    head = (
        "# The roster of a Parley deployment: public, the same for its server and every party.\n"
        "# Read its id aloud to each other: one other name or identity, and it is another id.\n"
        f"#   {deployment.spoken}\n"
    )
    content = {
        "version": 2,
        "id": deployment.id,
        "server": deployment.server_address,
        "party": [
            {"name": party.name, "identity": party.identity.hex()} for party in deployment.parties
        ],
    }
    return head + tomli_w.dumps(content)
