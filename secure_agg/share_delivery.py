"""Ciphertexts on their way from party to party, and who is to blame where one does not match.

The server keeps a ciphertext until its receiver has answered with it in hand. One that says that a
neighbour's ciphertext does not give its tag accuses that neighbour, and one of the two lies: who
accuses, or is accused by, more than c others does; else the two are in no round together, and the
accuser is asked to prove what it said (docs/protocol.md, *Ciphertexts that do not match*).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
from parley.secure_agg.round_outcome import pack_mask, unpack_mask
from parley.secure_agg.survivor_confirmation import count_signers_near, count_signers_needed


@dataclass(kw_only=True, repr=False)
class CiphertextDelivery:
    """The ciphertexts of one run, as the server sees them.

    Attributes:
        sent: parties whose ciphertexts are here.
        blamed: parties that lied about a ciphertext.
        departed: parties that proved what they said, or would not, and are in no further round.
    """

    run: RunParameters
    roster: bytes
    adverts: dict[int, Advertise]
    neighbours: list[list[int]]
    sent: set[int] = field(default_factory=set)
    blamed: set[int] = field(default_factory=set)
    departed: set[int] = field(default_factory=set)
    _pending: dict[int, dict[int, tuple[bytes, bytes]]] = field(default_factory=dict)
    _accused_by: dict[int, set[int]] = field(default_factory=dict)
    _closed: bool = False
    _certificate: tuple[bytes, bytes, bytes] | None = None
    _signers: NDArray[np.bool_] | None = None

    def add_ciphertexts(self, message: Encapsulated) -> None:
        """Keeps a party's ciphertexts, one for each of its present neighbours."""
        sender, items = message.sender, split_kem_items(message.items)
        if sender not in self.adverts or sender in self.sent or self._closed:
            raise RemoteProtocolError(
                f"Expected the ciphertexts of party {sender} once, after the roster and before the "
                "first round, got them another time."
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
        """The Ciphertexts for a party; empty once it has them. No party's come after this."""
        self._closed = True
        if receiver not in self.sent & self._pending.keys() or receiver in self._accused_by:
            return b""
        items, near = self._pending[receiver], self.neighbours[receiver]
        flags = np.zeros(self.run.degree, dtype=bool)
        flags[[n for n, j in enumerate(near) if j in items and j in self.sent]] = True
        message = Ciphertexts(
            sender=SERVER,
            round_number=0,
            sent=pack_mask(flags),
            items=b"".join(b"".join(items[j]) for j in near if j in items),
        )
        return encode(self.run, message)

    def discard_ciphertexts(self, receiver: int) -> None:
        """A party answered with whole pair secrets: its ciphertexts are done with."""
        if receiver not in self._accused_by:
            self._pending.pop(receiver, None)

    def add_complaint(self, message: Complaint) -> None:
        """A party says whose ciphertexts do not match."""
        sender = message.sender
        near, items = self.neighbours[sender], self._pending.get(sender, {})
        places = np.flatnonzero(unpack_mask(message.accused, self.run.degree)).tolist()
        accused = {near[n] for n in places if n < len(near)}
        if not self._closed or sender in self._accused_by or sender not in self.sent:
            raise RemoteProtocolError(
                f"Expected one complaint of party {sender}, about the ciphertexts that it was "
                "given, got a second one, or one before it was given any."
            )
        if len(accused) != len(places) or not accused or not accused <= set(items):
            raise RemoteProtocolError(
                f"Expected party {sender} to complain of neighbours whose ciphertexts it was "
                "given, got a complaint of nobody, or of somebody else."
            )
        self._accused_by[sender] = accused
        self._decide_by_count()

    def _decide_by_count(self) -> None:
        """Convicts whom, or who, more than c others cannot all have made wrong."""
        most = max(1, self.run.corrupt)
        for accuser, accused in self._accused_by.items():
            if len(accused) > most:
                self.blamed.add(accuser)
        for j in set().union(*self._accused_by.values()):
            if len([i for i, accused in self._accused_by.items() if j in accused]) > most:
                self.blamed.add(j)

    @property
    def undecided(self) -> dict[int, set[int]]:
        """Accusers, by whom they accuse, where nobody is convicted yet."""
        gone = self.blamed | self.departed
        open_cases = {i: a - self.blamed for i, a in self._accused_by.items() if i not in gone}
        return {i: accused for i, accused in sorted(open_cases.items()) if accused}

    @property
    def excluded(self) -> set[int]:
        """Who is in no round as things stand: who left, and both of as few pairs as will do."""
        out = set[int]()
        for accuser, accused in self.undecided.items():
            here = accused - out
            if accuser not in out and here:
                out |= {accuser, min(here)}
        return out | self.departed

    def record_certificate(
        self, certificate: tuple[bytes, bytes, bytes], signers: NDArray[np.bool_]
    ) -> None:
        """A list was confirmed: what accusers are shown from now on, and `[m]` who signed it."""
        self._certificate, self._signers = certificate, signers

    @property
    def certificate(self) -> tuple[bytes, bytes, bytes]:
        """Plan without envelopes, Survivors and Confirmations, with all signatures, of the last
        round that had any: what shows an accuser who has no key to prove with any more.

        Raises:
            LocalProtocolError: no list was confirmed yet.
        """
        if self._certificate is None:
            raise LocalProtocolError("Expected a list that was confirmed, got none so far.")
        return self._certificate

    @property
    def to_prove(self) -> tuple[int, ...]:
        """Whom to ask for evidence: the fewest accusers in order who speak of all accused.

        Who may not prove by the list that is shown is not asked, and stays apart from whom it
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
        """An accuser gave no evidence: it is in no further round, and whom it accused is clear."""
        if accuser not in self.undecided:
            raise LocalProtocolError(f"Expected an accuser to give up, got party {accuser}.")
        self.departed.add(accuser)

    def judge_evidence(self, message: Evidence) -> None:
        """Decapsulates what was disputed, and convicts the one of each two who lied."""
        sender = message.sender
        if sender not in self.undecided:
            raise RemoteProtocolError(f"Expected nothing to prove of party {sender}, got evidence.")
        if derive_kem_public_key(message.seed) != self.adverts[sender].key[KEY_BYTES:]:
            raise RemoteProtocolError(
                f"Expected the seed of the ML-KEM-768 key that party {sender} signed, got "
                "the seed of a key that it did not."
            )
        for j in sorted(self.undecided[sender]):
            ciphertext, tag = self._pending[sender][j]
            (secret,) = decapsulate(message.seed, [ciphertext])
            ends = (sender, self.adverts[sender].key), (j, self.adverts[j].key)
            pair = compute_transcript(self.run.fingerprint, self.roster, *ends)
            matches = is_confirmation_tag(
                secret, compute_ciphertext_id(pair, j, sender, ciphertext), tag
            )
            self.blamed.add(sender if matches else j)
        self.departed.add(sender)
        self._pending.pop(sender)
