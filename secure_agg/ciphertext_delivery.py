"""`CiphertextDelivery`: ciphertexts from party to party, and who is blamed if one does not match.

The server stores a ciphertext until its receiver has answered with it. A receiver may report that a
neighbour's ciphertext does not match its tag. It then accuses that neighbour, and one of the two
lies. A party that accuses more than c others, or is accused by more than c, is convicted. Otherwise
the two take part in no round together, and the server asks the accuser for proof (docs/protocol.md,
*Ciphertexts that do not match*).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.confirmation_rules import count_signers_near, count_signers_needed
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.messages import (
    SERVER,
    Advertise,
    Ciphertexts,
    Complaint,
    Encapsulated,
    Evidence,
    encode,
    split_kem_items,
)
from parley.secure_agg.pair_keys import (
    compute_ciphertext_id,
    compute_transcript,
    is_confirmation_tag,
)
from parley.secure_agg.primitives import KEY_BYTES, decapsulate, derive_kem_public_key
from parley.secure_agg.protocol_parameters import RunParameters
from parley.secure_agg.round_outcome import KEM_ITEM_BYTES, pack_mask, unpack_mask


@dataclass(kw_only=True, repr=False)
class CiphertextDelivery:
    """The ciphertexts of one run on the server.

    Attributes:
        sent: parties whose ciphertexts have arrived.
        blamed: parties that lied about a ciphertext.
        departed: accusers that gave proof or refused it; they take part in no further round.
    """

    run: RunParameters
    roster: bytes
    adverts: dict[int, Advertise]
    neighbours: list[list[int]]
    sent: set[int] = field(default_factory=set)
    blamed: set[int] = field(default_factory=set)
    departed: set[int] = field(default_factory=set)
    # Ciphertexts with their tags, by receiver and sender.
    _pending: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _accused_by: dict[int, set[int]] = field(default_factory=dict)
    _closed: bool = False
    _certificate: tuple[bytes, bytes, bytes] | None = None
    _signers: NDArray[np.bool_] | None = None

    def add_ciphertexts(self, message: Encapsulated) -> None:
        """Store a party's ciphertexts, one for each of its present neighbours."""
        sender, joined = message.sender, message.items
        items = [joined[at : at + KEM_ITEM_BYTES] for at in range(0, len(joined), KEM_ITEM_BYTES)]
        if sender not in self.adverts or sender in self.sent or self._closed:
            raise RemoteProtocolError(
                f"Expected the ciphertexts of party {sender} once, after the roster and before the "
                "first round, got them at another time."
            )
        wanted = len(self.neighbours[sender])
        if len(items) != wanted:
            raise RemoteProtocolError(
                f"Expected {wanted} ciphertexts of party {sender}, got {len(items)}."
            )
        self.sent.add(sender)
        for j, item in zip(self.neighbours[sender], items, strict=True):
            self._pending.setdefault(j, {})[sender] = item

    def build_ciphertexts(self, receiver: int) -> bytes:
        """Build the Ciphertexts for a party; empty once it has them. No party can add ciphertexts
        after this.
        """
        self._closed = True
        waits = receiver in self.sent and receiver in self._pending
        if not waits or receiver in self._accused_by:
            return b""
        items, near = self._pending[receiver], self.neighbours[receiver]
        flags = np.zeros(self.run.degree, dtype=bool)
        flags[[n for n, j in enumerate(near) if j in items and j in self.sent]] = True
        sent, joined = pack_mask(flags), b"".join(items[j] for j in near if j in items)
        message = Ciphertexts(sender=SERVER, round_number=0, sent=sent, items=joined)
        return encode(self.run, message)

    def discard_ciphertexts(self, receiver: int) -> None:
        """Discard the ciphertexts of a party that answered with complete pair secrets."""
        if receiver not in self._accused_by:
            self._pending.pop(receiver, None)

    def add_complaint(self, message: Complaint) -> None:
        """Record a party's complaint about ciphertexts that do not match."""
        sender = message.sender
        near, items = self.neighbours[sender], self._pending.get(sender, {})
        places = np.flatnonzero(unpack_mask(message.accused, self.run.degree)).tolist()
        accused = {near[n] for n in places if n < len(near)}
        if not self._closed or sender in self._accused_by or sender not in self.sent:
            raise RemoteProtocolError(
                f"Expected one complaint from party {sender}, about the ciphertexts that it "
                "received, got a second one, or one before it received any."
            )
        if len(accused) != len(places) or not accused or not accused <= set(items):
            raise RemoteProtocolError(
                f"Expected a complaint from party {sender} about neighbours whose ciphertexts it "
                "received, got one about no party or about another party."
            )
        self._accused_by[sender] = accused
        self._decide_by_count()

    def _decide_by_count(self) -> None:
        """Convict parties that accuse, or are accused by, more than max(1, c) others.

        At least one of those others is honest.
        """
        most = max(1, self.run.corrupt)
        for accuser, accused in self._accused_by.items():
            if len(accused) > most:
                self.blamed.add(accuser)
        for j in set().union(*self._accused_by.values()):
            if len([i for i, accused in self._accused_by.items() if j in accused]) > most:
                self.blamed.add(j)

    @property
    def undecided(self) -> dict[int, set[int]]:
        """Accusers to the parties they accuse, in cases in which no party is convicted yet."""
        gone = self.blamed | self.departed
        open_cases = {i: a - self.blamed for i, a in self._accused_by.items() if i not in gone}
        return {i: accused for i, accused in sorted(open_cases.items()) if accused}

    @property
    def excluded(self) -> set[int]:
        """Parties excluded from the next round: departed ones, and both ends of as few pairs as
        possible.
        """
        out = set[int]()
        for accuser, accused in self.undecided.items():
            here = accused - out
            if accuser not in out and here:
                out |= {accuser, min(here)}
        return out | self.departed

    def record_certificate(
        self, certificate: tuple[bytes, bytes, bytes], signers: NDArray[np.bool_]
    ) -> None:
        """Record a confirmed list to show to accusers, and `[m]` flags of the parties that signed
        it.
        """
        self._certificate, self._signers = certificate, signers

    @property
    def certificate(self) -> tuple[bytes, bytes, bytes]:
        """Plan without envelopes, Survivors and Confirmations of the last round with a confirmed
        list.

        With all signatures, they show an accuser which parties can no longer prove a dispute.

        Raises:
            LocalProtocolError: no list was confirmed yet.
        """
        if self._certificate is None:
            raise LocalProtocolError("Expected a confirmed list, got none so far.")
        return self._certificate

    @property
    def to_prove(self) -> tuple[int, ...]:
        """Accusers to ask for evidence: in order, those that add an accused party not covered
        before.

        An accuser that may not prove with the list shown is not asked. It stays apart from those it
        accuses.
        """
        if self._signers is None:
            return ()
        asked, heard, least = [], set[int](), count_signers_needed(self.run)
        for accuser, accused in self.undecided.items():
            may = count_signers_near(self.run, self.neighbours[accuser], self._signers) >= least
            if may and not accused <= heard:
                asked.append(accuser)
                heard |= accused
        return tuple(asked)

    def mark_unproven(self, accuser: int) -> None:
        """Exclude an accuser without evidence from later rounds, and clear those it accused."""
        if accuser not in self.undecided:
            raise LocalProtocolError(f"Expected a party of an open dispute, got party {accuser}.")
        self.departed.add(accuser)

    def judge_evidence(self, message: Evidence) -> None:
        """Decapsulate the disputed ciphertexts and convict the party of each pair that lied."""
        sender = message.sender
        if sender not in self.undecided:
            raise RemoteProtocolError(
                f"Expected no evidence from party {sender}, got some: it has nothing to prove."
            )
        if derive_kem_public_key(message.seed) != self.adverts[sender].key[KEY_BYTES:]:
            raise RemoteProtocolError(
                f"Expected the seed of the ML-KEM-768 key that party {sender} signed, got "
                "the seed of another key."
            )
        for j in sorted(self.undecided[sender]):
            ((ciphertext, tag),) = split_kem_items(self._pending[sender][j])
            (secret,) = decapsulate(message.seed, [ciphertext])
            ends = (sender, self.adverts[sender].key), (j, self.adverts[j].key)
            pair = compute_transcript(self.run.fingerprint, self.roster, *ends)
            where = compute_ciphertext_id(pair, j, sender, ciphertext)
            self.blamed.add(sender if is_confirmation_tag(secret, where, tag) else j)
        self.departed.add(sender)
        self._pending.pop(sender)
