"""The server's set-up: collect the parties' signed keys and build each party's roster.

The server refuses forged keys, so that it can name their sender. Each party checks the keys again,
against identities that it knows from outside the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.mask_graph import (
    NO_BEACON,
    compute_commitments_digest,
    compute_nonce_commitment,
)
from parley.secure_agg.messages import SERVER, Advertise, Nonces, Roster, encode
from parley.secure_agg.predicted_outcome import pack_mask
from parley.secure_agg.primitives import KEY_BYTES, is_kem_public_key, is_valid_signature, is_weak
from parley.secure_agg.protocol_digests import digest_advertisement
from parley.secure_agg.protocol_parameters import RunParameters

_Value = TypeVar("_Value")


class LazyMapping(Mapping[int, _Value]):
    """Mapping from `parties` to the results of `build_value`, computed on access."""

    def __init__(self, parties: Collection[int], build_value: Callable[[int], _Value]) -> None:
        self._parties, self._build_value = parties, build_value

    def __getitem__(self, party: int) -> _Value:
        if party not in self._parties:
            raise KeyError(party)
        return self._build_value(party)

    def __contains__(self, party: object) -> bool:  # Mapping's own would build the value
        return party in self._parties

    def __iter__(self) -> Iterator[int]:
        return iter(self._parties)

    def __len__(self) -> int:
        return len(self._parties)


@dataclass(kw_only=True, repr=False)
class AdvertisedKeys:
    """Keys that the parties advertised in this set-up.

    Attributes:
        roster: digest of the roster that keys are signed for.
        commitments: commitments to the parties' nonces, by index; empty if the graph is complete.

    Raises:
        LocalProtocolError: identities or commitments differ from those of the parameters.
    """

    run: RunParameters
    identities: tuple[bytes, ...]
    roster: bytes
    commitments: Mapping[int, bytes]
    by_party: dict[int, Advertise] = field(default_factory=dict)
    _keys: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        run, identities = self.run, self.identities
        if len(identities) != run.parties:
            raise LocalProtocolError(f"Expected {run.parties} identities, got {len(identities)}.")
        named = compute_commitments_digest(self.commitments) if self.commitments else NO_BEACON
        if run.commitments != named:
            raise LocalProtocolError(
                f"Expected commitments of digest {run.commitments.hex()}, got {named.hex()}."
            )

    def add_advertisement(self, message: Advertise) -> None:
        """Check and store a party's signed keys."""
        run, sender, key, nonce = self.run, message.sender, message.key, message.nonce
        if sender in self.by_party:
            raise RemoteProtocolError(f"Expected one Advertise of party {sender}, got two.")
        statement = digest_advertisement(run.fingerprint, self.roster, sender, key, nonce)
        if not is_valid_signature(self.identities[sender], message.signature, statement):
            raise RemoteProtocolError(f"Expected party {sender}'s signed key, got a forged one.")
        parts = {key[:KEY_BYTES], key[KEY_BYTES:]}
        if parts & self._keys or is_weak(key[:KEY_BYTES]):
            raise RemoteProtocolError(
                f"Expected a new key of party {sender}, got a weak or repeated one."
            )
        if not is_kem_public_key(key[KEY_BYTES:]):
            raise RemoteProtocolError(
                f"Expected an ML-KEM-768 key of party {sender}, got other bytes."
            )
        if run.sparse and self.commitments.get(sender) != compute_nonce_commitment(sender, nonce):
            raise RemoteProtocolError(
                f"Expected the nonce that party {sender} committed to, got another."
            )
        self._keys |= parts
        self.by_party[sender] = message

    @property
    def unrevealed(self) -> tuple[int, ...]:
        """Parties that committed to a nonce and have not advertised it; the set-up needs all of
        them.
        """
        return tuple(sorted(set(self.commitments) - set(self.by_party)))

    def encode_nonces(self) -> bytes:
        """Return the Nonces message that goes with each Roster; empty if the graph is complete."""
        if not self.run.sparse:
            return b""
        joined = b"".join(self.by_party[i].nonce for i in sorted(self.by_party))
        message = Nonces(sender=SERVER, round_number=0, committed=self._present, nonces=joined)
        return encode(self.run, message)

    def build_rosters(self, neighbours: list[list[int]]) -> Mapping[int, bytes]:
        """Build the Roster for each party that advertised."""
        present = self._present
        bodies = {j: advert.encode_body() for j, advert in self.by_party.items()}

        def roster(party: int) -> bytes:
            entries = b"".join(bodies[j] for j in neighbours[party])
            message = Roster(sender=SERVER, round_number=0, present=present, entries=entries)
            return encode(self.run, message)

        return LazyMapping(bodies, roster)  # lazy: all are k times as large as the adverts

    @property
    def _present(self) -> bytes:
        return pack_mask(np.isin(np.arange(self.run.parties), list(self.by_party)))
