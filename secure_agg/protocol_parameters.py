"""`RunParameters`, agreed on before any key, and `ProtocolRequirements`, a party's own conditions.

No party chooses degree, threshold and confirmations. Each derives them with `derive_parameters`
from the number of parties and the assumed collusion. A server proposes how many parties may
collude; a party accepts no fewer than its own policy requires.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.safe_io.error_translation import translate_errors
from parley.secure_agg.encoding import get_ring_dtype
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import (
    NO_BEACON,
    build_neighbour_table,
    choose_degree,
    compute_beacon,
    compute_commitments_digest,
    compute_roster_digest,
)
from parley.secure_agg.primitives import digest

_LAYOUT = struct.Struct(">B16s32s32sIIIIIBBBB")
_VERSION = 3
_FIELDS = (
    "run_id", "commitments", "beacon", "parties", "min_survivors", "corrupt", "dropped", "rounds",
    "ring_bits",
)  # fmt: skip
"""Fields in the order of their encoding."""
_PROTOCOL = (0, 1, 1)
"""The last three bytes: double masks, confirmed lists, hybrid keys. Other values are refused."""
SIGNATURE = "ed25519"
"""Signature algorithm of keys and lists. The name is part of what is signed, so it can be replaced.
"""
KEY_EXCHANGE = "x25519+ml-kem-768"
"""Source of two parties' common secrets, which stay secret as long as either algorithm holds."""
STAGES = 3
"""Sequential exchanges of one round after set-up: vectors, confirmations, unmasking."""
MAX_PARTIES = 2**20


def is_before_pairing(number: int) -> bool:
    """Return whether a round's shares are dealt before the pair secrets are complete.

    This holds for round 1: its shares travel together with the ciphertexts.
    """
    return number == 1


@dataclass(frozen=True, kw_only=True)
class DerivedParameters:
    """Parameters that follow from m, c and d; built by `derive_parameters`.

    Attributes:
        degree: k, neighbours of a party.
        threshold: t, shares that rebuild a secret, and neighbours that a party must have.
        confirmations: parties that must have signed one survivors' list before a party reveals for
            it. No second list can have that many. 0 for a single party.
    """

    degree: int
    threshold: int
    confirmations: int


def compute_assumed_corrupt(parties: int) -> int:
    """Return the default number of parties that may collude with the server: a tenth, at least one.

    It is 0 for two parties: if one colludes with the server against the other, no protocol helps.
    """
    return max(1, parties // 10) if parties > 2 else 0


def choose_min_survivors(parties: int, *, corrupt: int, requested: int | None = None) -> int:
    """Return the minimum number of vectors in a sum that is unmasked.

    It is `requested`, by default ⌈2m/3⌉, and at least the number of confirmations of one list.
    """
    share = -(-2 * parties // 3) if requested is None else requested
    return max(1, share, _count_confirmations(parties, corrupt))


def _count_confirmations(parties: int, corrupt: int) -> int:
    """Return ⌊(m + c)/2⌋ + 1, or 0 for a single party.

    Two lists with more than (m + c)/2 signers each share an honest signer, which signs only one.
    """
    return (parties + corrupt) // 2 + 1 if parties > 1 else 0


@lru_cache(maxsize=64)
def derive_parameters(parties: int, *, corrupt: int, dropped: int) -> DerivedParameters:
    """Return degree, threshold and confirmations for the assumed collusion and dropouts."""
    degree, threshold = choose_degree(parties, corrupt=corrupt, dropped=dropped)
    confirmations = _count_confirmations(parties, corrupt)
    return DerivedParameters(degree=degree, threshold=threshold, confirmations=confirmations)


@dataclass(frozen=True, kw_only=True)
class RunParameters:
    """Parameters of one run; each party signs them together with its key.

    Attributes:
        run_id: 16 bytes, new for each set-up.
        min_survivors: minimum number of vectors in a sum that is unmasked.
        corrupt: c, parties assumed to collude with the server.
        dropped: d, silent parties that a round must tolerate.
        rounds: the last round that the run can reach, repetitions counted.
        commitments: digest of the nonces' commitments; zeros if the graph is complete.
        beacon: determines the graph's order once the nonces are revealed; zeros before, and if the
            graph is complete.
    """

    run_id: bytes = field(repr=False)
    parties: int
    min_survivors: int
    corrupt: int
    dropped: int = 0
    rounds: int = 2**32 - 2
    ring_bits: int = 32
    commitments: bytes = field(default=NO_BEACON, repr=False)
    beacon: bytes = field(default=NO_BEACON, repr=False)

    def __post_init__(self) -> None:
        get_ring_dtype(self.ring_bits)
        if len(self.run_id) != 16 or len(self.beacon) != 32 or len(self.commitments) != 32:
            raise ValueError(
                "Expected a run_id of 16 bytes, commitments and a beacon of 32, got "
                f"{len(self.run_id)}, {len(self.commitments)} and {len(self.beacon)}."
            )
        m, c = self.parties, self.corrupt
        if not 1 <= m <= MAX_PARTIES:
            raise ValueError(f"Expected parties from 1 to 2^20, got {m}.")
        if not 0 <= c < m or not 0 <= self.dropped < m:
            raise ValueError(
                f"Expected corrupt and dropped from 0 to m - 1 = {m - 1}, got {c}, {self.dropped}."
            )
        if not 1 <= self.rounds < 2**32 - 1:
            raise ValueError(f"Expected rounds from 1 to 2^32 - 2, got {self.rounds}.")
        least = max(1, self.confirmations)
        if not least <= self.min_survivors <= m:
            raise ValueError(
                f"Expected min_survivors from {least} (m = {m}, corrupt {c}) to m, got "
                f"{self.min_survivors}."
            )
        if not self.sparse and (self.commitments, self.beacon) != (NO_BEACON, NO_BEACON):
            raise ValueError("Expected no commitments and no beacon for a complete graph.")

    @classmethod
    def choose(
        cls,
        *,
        parties: int,
        min_survivors: int,
        run_id: bytes,
        corrupt: int | None = None,
        dropped: int | None = None,
        commitments: Mapping[int, bytes] | None = None,
        **others: Any,
    ) -> RunParameters:
        """Build parameters and fill in those that are not given.

        Args:
            min_survivors: requested minimum; `choose_min_survivors` may raise it.
            corrupt: c; None: `compute_assumed_corrupt`.
            dropped: dropouts that the degree must tolerate; None: 10% of the parties.

        Raises:
            ValueError: no such parameters, or outside their ranges.
        """
        assumed: dict[str, Any] = {
            "corrupt": compute_assumed_corrupt(parties) if corrupt is None else corrupt,
            "dropped": parties // 10 if dropped is None else dropped,
        }
        return cls(
            run_id=run_id,
            parties=parties,
            min_survivors=choose_min_survivors(
                parties, corrupt=assumed["corrupt"], requested=min_survivors
            ),
            commitments=compute_commitments_digest(commitments) if commitments else NO_BEACON,
            **assumed,
            **others,
        )

    @cached_property
    def derived(self) -> DerivedParameters:
        """Parameters that follow from these."""
        return derive_parameters(self.parties, corrupt=self.corrupt, dropped=self.dropped)

    @property
    def degree(self) -> int:
        """Neighbours of a party, k."""
        return self.derived.degree

    @property
    def threshold(self) -> int:
        """Shares that rebuild a secret, t."""
        return self.derived.threshold

    @property
    def confirmations(self) -> int:
        """Signatures over one survivors' list that a party requires before it reveals."""
        return self.derived.confirmations

    @property
    def sparse(self) -> bool:
        """Whether the graph is not complete and so depends on a beacon."""
        return self.degree < self.parties - 1

    @cached_property
    def tag(self) -> bytes:
        """8 bytes in each message of the run, the same before and after its beacon is known."""
        return self.without_beacon.fingerprint[:8]

    @property
    def without_beacon(self) -> RunParameters:
        """These parameters as they were before the set-up determined the beacon."""
        return replace(self, beacon=NO_BEACON)

    def with_beacon(self, nonces: Mapping[int, bytes]) -> RunParameters:
        """Return these parameters with the beacon of the revealed nonces; a complete graph has
        none.
        """
        if not self.sparse:
            return self
        return replace(self, beacon=compute_beacon(self.without_beacon.fingerprint, nonces))

    @property
    def neighbours(self) -> NDArray[np.int32]:
        """`[m, k]` neighbours of each party, ascending."""
        return build_neighbour_table(self.parties, self.degree, self.beacon)

    def to_bytes(self) -> bytes:
        """Return the canonical encoding, over which `fingerprint` is computed."""
        return _LAYOUT.pack(_VERSION, *(getattr(self, name) for name in _FIELDS), *_PROTOCOL)

    @classmethod
    def from_bytes(cls, data: bytes) -> RunParameters:
        """Parse the encoding of `to_bytes`.

        Raises:
            RemoteProtocolError: no such encoding.
        """
        if len(data) != _LAYOUT.size:
            raise RemoteProtocolError(f"Expected {_LAYOUT.size} bytes, got {len(data)}.")
        version, *values = _LAYOUT.unpack(data)
        protocol = tuple(values[len(_FIELDS) :])
        if version != _VERSION or protocol != _PROTOCOL:
            raise RemoteProtocolError(
                f"Expected version {_VERSION} with double masks, confirmed lists and hybrid keys "
                f"{_PROTOCOL}, got {version} and {protocol}."
            )
        with translate_errors(ValueError, RemoteProtocolError):
            return cls(**dict(zip(_FIELDS, values, strict=False)))

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that a party signs, and to which each secret of the run is bound.

        They depend on the derived parameters: two programs that derive differently do not connect.
        They also depend on the names of the algorithms: a key signed for others counts as forged.
        """
        derived = struct.pack(">III", self.degree, self.threshold, self.confirmations)
        algorithms = SIGNATURE.encode(), KEY_EXCHANGE.encode()
        return digest(b"parley/parameters", self.to_bytes(), derived, *algorithms)


@dataclass(frozen=True, kw_only=True)
class ProtocolRequirements:
    """Conditions that a party requires of each run, regardless of what the server proposes.

    Attributes:
        identities: Ed25519 public keys of all parties of the roster, by index, known from outside
            the protocol; never learned from the server.
        min_survivors: minimum number of vectors in a sum that this party helps to unmask.
        minimum_degree: minimum number of neighbours, in the roster and in each round.
        corrupt: colluding parties that this party must be safe against; None:
            `compute_assumed_corrupt`.
        deployment: 32 bytes that name the roster outside the protocol, including the names of
            parties; each key is signed for them. Empty: only the identities.
    """

    identities: tuple[bytes, ...]
    min_survivors: int
    minimum_degree: int = 1
    corrupt: int | None = None
    deployment: bytes = b""

    def __post_init__(self) -> None:
        parties, different = len(self.identities), len(set(self.identities))
        if different != parties:
            raise ValueError(f"Expected {parties} different identities, got {different}.")
        if any(len(identity) != 32 for identity in self.identities):
            raise ValueError("Expected identities of 32 bytes.")

    @cached_property
    def roster(self) -> bytes:
        """32 bytes that name the roster."""
        return compute_roster_digest(self.identities, self.deployment)

    def check(self, run: RunParameters) -> None:
        """Check a run's parameters.

        Raises:
            RemoteProtocolError: they do not meet these requirements.
        """
        if run.parties != len(self.identities):
            raise RemoteProtocolError(
                f"Expected {len(self.identities)} parties, got {run.parties}."
            )
        corrupt = compute_assumed_corrupt(run.parties) if self.corrupt is None else self.corrupt
        for name, least, got in (
            ("min_survivors", self.min_survivors, run.min_survivors),
            ("degree", self.minimum_degree, run.degree),
            ("corrupt", corrupt, run.corrupt),
        ):
            if got < least:
                raise RemoteProtocolError(f"Expected {name} >= {least}, got {got}.")
        if run.sparse and run.commitments == NO_BEACON:
            raise RemoteProtocolError(
                "Expected commitments to every party's nonce for a sparse graph, got none."
            )
