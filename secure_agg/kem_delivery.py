"""`CiphertextDelivery`: ciphertexts from party to party, and the disputes over them.

The server stores a ciphertext until its receiver has answered with it. A receiver may report that a
neighbour's ciphertext does not match its tag (`parley.secure_agg.kem_disputes`). Until a
party is convicted, the two take part in no round together (docs/protocol.md, *Ciphertexts that do
not match*).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.messages import SERVER, Advertise, Ciphertexts, Encapsulated, encode
from parley.secure_agg.predicted_outcome import KEM_ITEM_BYTES, pack_mask
from parley.secure_agg.protocol_parameters import RunParameters


@dataclass(kw_only=True, repr=False)
class CiphertextDelivery:
    """The ciphertexts of one run on the server.

    Attributes:
        sent: parties whose ciphertexts have arrived.
        blamed: parties that lied about a ciphertext.
        departed: accusers that gave proof or refused it; they take part in no further round.
        pending: ciphertexts with their tags, by receiver and sender.
        accused_by: accuser → parties whose ciphertexts it reported.
        closed: whether the first ciphertexts were delivered, so that no party can add more.
        signers: `[m]` flags of the parties that signed the certificate.
    """

    run: RunParameters
    roster: bytes
    adverts: dict[int, Advertise]
    neighbours: list[list[int]]
    sent: set[int] = field(default_factory=set)
    blamed: set[int] = field(default_factory=set)
    departed: set[int] = field(default_factory=set)
    pending: dict[int, dict[int, bytes]] = field(default_factory=dict)
    accused_by: dict[int, set[int]] = field(default_factory=dict)
    closed: bool = False
    _certificate: tuple[bytes, bytes, bytes] | None = None
    signers: NDArray[np.bool_] | None = None

    def add_ciphertexts(self, message: Encapsulated) -> None:
        """Store a party's ciphertexts, one for each of its present neighbours."""
        sender, joined = message.sender, message.items
        items = [joined[at : at + KEM_ITEM_BYTES] for at in range(0, len(joined), KEM_ITEM_BYTES)]
        if sender not in self.adverts or sender in self.sent or self.closed:
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
            self.pending.setdefault(j, {})[sender] = item

    def build_ciphertexts(self, receiver: int) -> bytes:
        """Build the Ciphertexts for a party; empty once it has them. No party can add ciphertexts
        after this.
        """
        self.closed = True
        waits = receiver in self.sent and receiver in self.pending
        if not waits or receiver in self.accused_by:
            return b""
        items, near = self.pending[receiver], self.neighbours[receiver]
        flags = np.zeros(self.run.degree, dtype=bool)
        flags[[n for n, j in enumerate(near) if j in items and j in self.sent]] = True
        sent, joined = pack_mask(flags), b"".join(items[j] for j in near if j in items)
        message = Ciphertexts(sender=SERVER, round_number=0, sent=sent, items=joined)
        return encode(self.run, message)

    def discard_ciphertexts(self, receiver: int) -> None:
        """Discard the ciphertexts of a party that answered with complete pair secrets."""
        if receiver not in self.accused_by:
            self.pending.pop(receiver, None)

    @property
    def undecided(self) -> dict[int, set[int]]:
        """Accusers to the parties they accuse, in cases in which no party is convicted yet."""
        gone = self.blamed | self.departed
        open_cases = {i: a - self.blamed for i, a in self.accused_by.items() if i not in gone}
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
        self._certificate, self.signers = certificate, signers

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

    def mark_unproven(self, accuser: int) -> None:
        """Exclude an accuser without evidence from later rounds, and clear those it accused."""
        if accuser not in self.undecided:
            raise LocalProtocolError(f"Expected a party of an open dispute, got party {accuser}.")
        self.departed.add(accuser)
