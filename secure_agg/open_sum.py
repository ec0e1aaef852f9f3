"""One round's sum, as the server builds it: vectors in, a list that is signed, secrets in, a total.

Masked vectors are added as they come; none is kept. Each message is checked when it comes: one that
breaks the protocol raises, names its sender and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from parley.secure_agg.codec import encode
from parley.secure_agg.encoding import Ring, ring_dtype
from parley.secure_agg.flags import pack_mask
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.masks import add_masks
from parley.secure_agg.messages import (
    SERVER,
    Confirm,
    Confirmations,
    Message,
    Reveal,
    RoundStart,
    Shares,
    Survivors,
    Vector,
)
from parley.secure_agg.outcome import ENVELOPE_BYTES, SECRET_BYTES
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import verifies
from parley.secure_agg.recovery import Recovery
from parley.secure_agg.statements import confirmed, plan_digest


class ServerPhase(IntEnum):
    """Where the server stands."""

    JOINING = 0
    READY = 1
    VECTORS = 2
    CONFIRMING = 3
    UNMASKING = 4


@dataclass(kw_only=True, repr=False)
class OpenSum:
    """A round from its plan to its total.

    Attributes:
        run: parameters.
        number: the round.
        dimension: d.
        context: 32 bytes, what the application agreed to release.
        members: participating neighbours by participant.
        slots: by party: neighbour to its place among those present, ascending.
        shares: what each participant shared before the round; none in optimistic rounds.
        arrived: whose vectors are in the total.
        signatures: of the survivors' list, by party.
    """

    run: RunParameters
    number: int
    dimension: int
    context: bytes
    members: dict[int, list[int]]
    slots: list[dict[int, int]]
    shares: dict[int, Shares]
    arrived: set[int] = field(default_factory=set)
    signatures: dict[int, bytes] = field(default_factory=dict)
    _revealed: set[int] = field(default_factory=set)
    _halves: dict[int, bytes] = field(default_factory=dict)
    _recovery: Recovery | None = None

    def __post_init__(self) -> None:
        plan = RoundStart(
            sender=SERVER,
            round_number=self.number,
            dimension=self.dimension,
            context=self.context,
            participants=self._mask(self.members),
            envelopes=b"",
        )
        self.head, self._plan = encode(self.run, plan), plan_digest(self.run, plan)
        self._total: Ring = np.zeros(self.dimension, dtype=ring_dtype(self.run.ring_bits))

    def plans(self) -> dict[int, bytes]:
        """The RoundStart for each participant."""
        return {i: self.head + self._envelopes(i) for i in self.members}

    def _envelopes(self, receiver: int) -> bytes:
        if not self.shares:
            return b""
        pieces = []
        for j in self.members[receiver]:
            at = self.slots[j][receiver] * ENVELOPE_BYTES
            pieces.append(self.shares[j].envelopes[at : at + ENVELOPE_BYTES])
        return b"".join(pieces)

    def add(self, message: Vector) -> None:
        """Adds a masked vector to the total.

        Raises:
            RemoteProtocolError: not asked for, a second one, or another dimension.
        """
        sender, size = message.sender, self._total.nbytes
        _once(message, self.arrived)
        halves = SECRET_BYTES * self.run.unpaired(self.number)
        expected = size + halves * len(self.members.get(sender, ()))
        if sender not in self.members or len(message.payload) != expected:
            raise RemoteProtocolError(
                f"Expected {expected} bytes from a participant, got {len(message.payload)} from "
                f"party {sender}."
            )
        dtype = self._total.dtype.newbyteorder("<")
        words = np.frombuffer(message.payload, dtype=dtype, count=self._total.size)
        np.add(self._total, words, out=self._total)
        self.arrived.add(sender)
        if halves:
            self._halves[sender] = bytes(message.payload[size:])

    def listed(self) -> bytes:
        """The Survivors: whose vectors are in the total."""
        survivors = self._mask(self.arrived)
        return encode(
            self.run, Survivors(sender=SERVER, round_number=self.number, survivors=survivors)
        )

    def sign(self, message: Confirm, identity: bytes) -> None:
        """Keeps a survivor's signature of the list.

        Raises:
            RemoteProtocolError: not a survivor, a second one, or a false signature.
        """
        self._of_survivor(message, self.signatures)
        statement = confirmed(self._plan, self._mask(self.arrived))
        if not verifies(identity, message.signature, statement):
            raise RemoteProtocolError(
                f"Expected party {message.sender} to sign the survivors' list, got a signature of "
                "something else."
            )
        self.signatures[message.sender] = message.signature

    def confirmations(self, most: int | None = None) -> bytes:
        """The Confirmations: who signed the list; None: all of them."""
        signers = sorted(self.signatures)[:most]
        message = Confirmations(
            sender=SERVER,
            round_number=self.number,
            signers=self._mask(signers),
            signatures=b"".join(self.signatures[i] for i in signers),
        )
        return encode(self.run, message)

    def unmask(self) -> None:
        """From here secrets come, and vectors no more."""
        self._recovery = Recovery(
            run=self.run,
            number=self.number,
            plan=self._plan,
            shares=self.shares,
            slots=self.slots,
            members=self.members,
            survivors=set(self.arrived),
            halves=self._halves,
        )

    def reveal(self, message: Reveal) -> None:
        """Keeps what a survivor reveals, as far as it is true.

        Raises:
            RemoteProtocolError: not a survivor, a second one, or what `Recovery.take` refuses.
        """
        self._of_survivor(message, self._revealed)
        if self._recovery is not None:
            self._recovery.take(message)
        self._revealed.add(message.sender)

    def total(self) -> Ring:
        """`[d]` the survivors' sum.

        Raises:
            TooFewSurvivors: a mask cannot be rebuilt (robust), or a vector is missing
                (optimistic).
        """
        if self._recovery is not None:
            add_masks(self._total, *self._recovery.masks_left())
        elif len(self.arrived) < len(self.members):
            raise TooFewSurvivors(
                f"Expected all {len(self.members)} vectors of an optimistic round, got "
                f"{len(self.arrived)}."
            )
        return self._total

    def _of_survivor(self, message: Message, known: Iterable[int]) -> None:
        _once(message, known)
        if message.sender not in self.arrived:
            raise RemoteProtocolError(
                f"Expected {type(message).__name__} of a survivor, got party {message.sender}."
            )

    def _mask(self, parties: Iterable[int]) -> bytes:
        flags = np.zeros(self.run.parties, dtype=bool)
        flags[list(parties)] = True
        return pack_mask(flags)


def _once(message: Message, known: Iterable[int]) -> None:
    if message.sender in known:
        raise RemoteProtocolError(
            f"Expected one {type(message).__name__} of party {message.sender}, got two."
        )
