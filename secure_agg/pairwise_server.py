"""The server's side: a state machine without IO. `pairwise` has the table of transitions.

It adds masked vectors as they come and keeps none of them. A message that breaks the protocol
raises and changes nothing: the caller goes on without that party, as with one that fell silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np

from secure_agg.encoding import Ring, ring_dtype
from secure_agg.interface import LocalProtocolError, Mode, RemoteProtocolError, TooFewSurvivors
from secure_agg.masks import add_masks
from secure_agg.messages import (
    SERVER,
    Advertise,
    AnyMessage,
    Bytes,
    Confirm,
    Confirmations,
    Plan,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Vector,
    decode,
    encode,
    pack_mask,
)
from secure_agg.outcome import CONFIRMATION_BYTES, ENVELOPE_BYTES, SECRET_BYTES, eligible
from secure_agg.parameters import RunParameters
from secure_agg.primitives import verifies
from secure_agg.recovery import Recovery
from secure_agg.statements import advertised, plan_digest

__all__ = ["Server", "ServerPhase"]


class ServerPhase(IntEnum):
    """Where the server stands."""

    JOINING = 0
    READY = 1
    VECTORS = 2
    CONFIRMING = 3
    UNMASKING = 4


class Server:
    """The server of one run. Holds nothing that is secret from it, and no party's vector."""

    def __init__(self, *, run: RunParameters, identities: tuple[bytes, ...]) -> None:
        """A server before the first message.

        Args:
            run: parameters of the run.
            identities: Ed25519 public keys by index, to turn away forged adverts; the parties
                check for themselves.
        """
        if len(identities) != run.parties:
            raise LocalProtocolError(f"Expected {run.parties} identities, got {len(identities)}.")
        self.run, self.phase, self.round_number = run, ServerPhase.JOINING, 0
        self._identities = identities
        self._adverts: dict[int, Advertise] = {}
        self._near: list[list[int]] = []
        self._slot: list[dict[int, int]] = []  # by party: neighbour to its place in `near`
        self._shares: dict[int, dict[int, Shares]] = {}
        self._end_round()

    def __repr__(self) -> str:
        return f"<Server: {self.phase.name}, round {self.round_number}>"

    def on_advertise(self, data: Bytes) -> int:
        """JOINING: keep a party's signed key; its index is returned.

        Raises:
            RemoteProtocolError: forged, or the party advertised before.
        """
        message = self._accept(data, Advertise, ServerPhase.JOINING, self._adverts)
        sender, identity = message.sender, self._identities[message.sender]
        statement = advertised(self.run.fingerprint, sender, identity, message.key)
        if message.identity != identity or not verifies(identity, message.signature, statement):
            raise RemoteProtocolError(
                f"Expected the signed key of party {sender}, got a forged one."
            )
        self._adverts[sender] = message
        return sender

    def roster(self) -> dict[int, bytes]:
        """JOINING → READY: the roster for each party that advertised.

        Raises:
            TooFewSurvivors: fewer parties than a sum needs.
        """
        self._local("make the roster", ServerPhase.JOINING)
        run = self.run
        if len(self._adverts) < run.minimum_survivors:
            raise TooFewSurvivors(
                f"Expected >= {run.minimum_survivors} parties, got {len(self._adverts)}."
            )
        self._near = [[j for j in row if j in self._adverts] for row in run.neighbours.tolist()]
        self._slot = [{j: at for at, j in enumerate(row)} for row in self._near]
        self.phase = ServerPhase.READY
        present = self._mask(self._adverts)
        entries = {j: a.key + a.signature for j, a in self._adverts.items()}
        return {
            i: encode(
                run,
                Roster(
                    sender=SERVER,
                    round_number=0,
                    present=present,
                    entries=b"".join(entries[j] for j in self._near[i]),
                ),
            )
            for i in self._adverts
        }

    def on_shares(self, data: Bytes) -> int:
        """Any phase after JOINING: keep a party's shares of a coming round.

        Raises:
            RemoteProtocolError: a past round, one prepared before, or a wrong number of envelopes.
        """
        message = decode(self.run, data, Shares)
        number, sender = message.round_number, message.sender
        if self.phase is ServerPhase.JOINING or sender not in self._adverts:
            raise RemoteProtocolError(f"Expected shares of a joined party, got party {sender}.")
        known = self._shares.get(number, {})
        if number <= self.round_number or sender in known:
            raise RemoteProtocolError(
                f"Expected first shares for a round above {self.round_number}, got round {number}."
            )
        if len(known) == 0 and len(self._shares) >= 2:
            raise RemoteProtocolError(f"Expected shares for two rounds at most, got {number} too.")
        if len(message.envelopes) != ENVELOPE_BYTES * len(self._near[sender]):
            raise RemoteProtocolError(
                f"Expected {len(self._near[sender])} envelopes of party {sender}, got "
                f"{len(message.envelopes) // ENVELOPE_BYTES}."
            )
        self._shares.setdefault(number, {})[sender] = message
        return sender

    def plan(
        self,
        number: int,
        *,
        dimension: int,
        context: bytes,
        participants: Iterable[int] | None = None,
    ) -> dict[int, bytes]:
        """READY → VECTORS: the plan for each participant. An unfinished round is given up.

        Args:
            number: the round, above the last one.
            dimension: d.
            context: 32 bytes, what the application agreed to release.
            participants: None: all that joined. Left out in any case: who did not prepare this
                round (robust), and who has fewer than t neighbours taking part.

        Raises:
            TooFewSurvivors: fewer participants than a sum needs.
        """
        if self.phase is ServerPhase.JOINING or number <= self.round_number or len(context) != 32:
            raise LocalProtocolError(
                f"Expected a joined run, a round above {self.round_number} and a context of 32 "
                f"bytes, got {self.phase.name}, {number} and {len(context)}."
            )
        run, robust = self.run, self.run.mode is Mode.ROBUST
        shares = self._shares.get(number, {})
        asked = set(self._adverts if participants is None else participants) & set(self._adverts)
        flags = np.zeros(run.parties, dtype=bool)
        flags[sorted(asked & set(shares) if robust else asked)] = True
        chosen = np.flatnonzero(eligible(run, flags)).tolist()
        if len(chosen) < run.minimum_survivors:
            raise TooFewSurvivors(
                f"Expected >= {run.minimum_survivors} participants, got {len(chosen)}."
            )
        self._end_round()
        self.round_number, self.phase = number, ServerPhase.VECTORS
        self._shares = {n: s for n, s in self._shares.items() if n > number}
        self._given.update({i: shares[i] for i in chosen} if robust else {})
        within = set(chosen)
        self._members |= {i: [j for j in self._near[i] if j in within] for i in chosen}
        base = Plan(
            sender=SERVER,
            round_number=number,
            dimension=dimension,
            context=context,
            participants=self._mask(chosen),
            envelopes=b"",
        )
        self._plan_digest = plan_digest(run, base)
        self._total: Ring = np.zeros(dimension, dtype=ring_dtype(run.ring_bits))
        head = encode(run, base)
        return {i: head + self._envelopes(i) for i in chosen}

    def _envelopes(self, receiver: int) -> bytes:
        if not self._given:
            return b""
        pieces = []
        for j in self._members[receiver]:
            at = self._slot[j][receiver] * ENVELOPE_BYTES
            pieces.append(self._given[j].envelopes[at : at + ENVELOPE_BYTES])
        return b"".join(pieces)

    def on_vector(self, data: Bytes) -> int:
        """VECTORS: add a masked vector to the total.

        Raises:
            RemoteProtocolError: not asked for, a second one, or another dimension.
        """
        message = self._accept(data, Vector, ServerPhase.VECTORS, self._arrived)
        dtype = self._total.dtype.newbyteorder("<")
        if message.sender not in self._members or len(message.payload) != self._total.nbytes:
            raise RemoteProtocolError(
                f"Expected {self._total.nbytes} bytes from a participant, got "
                f"{len(message.payload)} from party {message.sender}."
            )
        np.add(self._total, np.frombuffer(message.payload, dtype=dtype), out=self._total)
        self._arrived[message.sender] = True
        return message.sender

    @property
    def survivors(self) -> tuple[int, ...]:
        """Parties whose vectors are in the total, ascending."""
        return tuple(sorted(self._arrived))

    def close(self) -> bytes:
        """VECTORS → CONFIRMING (active) or UNMASKING: the survivors' list, for each of them.

        Raises:
            TooFewSurvivors: below the minimum; the round is given up.
        """
        self._local("close the vectors", ServerPhase.VECTORS)
        run = self.run
        if run.mode is Mode.OPTIMISTIC:
            raise LocalProtocolError("Expected robust mode, got optimistic: call `finish`.")
        if len(self._arrived) < run.minimum_survivors:
            got = len(self._arrived)
            self._end_round()
            raise TooFewSurvivors(f"Expected >= {run.minimum_survivors} survivors, got {got}.")
        self.phase = ServerPhase.CONFIRMING if run.active else ServerPhase.UNMASKING
        survivors = self._mask(self._arrived)
        message = Survivors(sender=SERVER, round_number=self.round_number, survivors=survivors)
        return encode(run, message)

    def on_confirm(self, data: Bytes) -> int:
        """CONFIRMING: keep a survivor's MACs.

        Raises:
            RemoteProtocolError: not a survivor, a second one, or a wrong number of MACs.
        """
        message = self._accept(data, Confirm, ServerPhase.CONFIRMING, self._confirmed)
        targets = self._surviving(message.sender)
        if len(message.macs) != CONFIRMATION_BYTES * len(targets):
            raise RemoteProtocolError(
                f"Expected {len(targets)} MACs of party {message.sender}, got "
                f"{len(message.macs) // CONFIRMATION_BYTES}."
            )
        pieces = range(0, len(message.macs), CONFIRMATION_BYTES)
        self._confirmed[message.sender] = {
            j: message.macs[at : at + CONFIRMATION_BYTES]
            for j, at in zip(targets, pieces, strict=True)
        }
        return message.sender

    def confirmations(self) -> dict[int, bytes]:
        """CONFIRMING → UNMASKING: for each party that confirmed, what its neighbours confirmed."""
        self._local("pass on confirmations", ServerPhase.CONFIRMING)
        self.phase = ServerPhase.UNMASKING
        answers = {}
        for i in self._confirmed:
            members = self._members[i]
            heard = np.zeros(self.run.degree, dtype=bool)
            heard[: len(members)] = [j in self._confirmed for j in members]
            macs = [self._confirmed[j][i] for j in members if j in self._confirmed]
            answers[i] = encode(
                self.run,
                Confirmations(
                    sender=SERVER,
                    round_number=self.round_number,
                    heard=pack_mask(heard),
                    macs=b"".join(macs),
                ),
            )
        return answers

    def on_reveal(self, data: Bytes) -> int:
        """UNMASKING: keep what a survivor reveals.

        Raises:
            RemoteProtocolError: not a survivor, a second one, or a wrong number of secrets.
        """
        message = self._accept(data, Reveal, ServerPhase.UNMASKING, self._revealed)
        members = self._members.get(message.sender, [])
        surviving = len(self._surviving(message.sender))
        expected = SECRET_BYTES * (2 * len(members) - surviving)
        if len(message.secrets) != expected:
            raise RemoteProtocolError(
                f"Expected {expected} bytes of secrets from party {message.sender}, got "
                f"{len(message.secrets)}."
            )
        self._revealed[message.sender] = message
        return message.sender

    def finish(self) -> Ring:
        """UNMASKING (robust) or VECTORS (optimistic) → READY: the survivors' sum, `[d]`.

        Raises:
            TooFewSurvivors: a mask cannot be rebuilt (robust), or a vector is missing
                (optimistic). The round is given up, and its total with it.
        """
        robust = self.run.mode is Mode.ROBUST
        self._local("finish", ServerPhase.UNMASKING if robust else ServerPhase.VECTORS)
        try:
            if robust:
                recovery = Recovery(
                    run=self.run,
                    number=self.round_number,
                    plan=self._plan_digest,
                    shares=self._given,
                    near=self._near,
                    members=self._members,
                    survivors=set(self._arrived),
                    reveals=self._revealed,
                )
                add_masks(self._total, *recovery.masks_left())
            elif len(self._arrived) < len(self._members):
                raise TooFewSurvivors(
                    f"Expected all {len(self._members)} vectors of an optimistic round, got "
                    f"{len(self._arrived)}."
                )
            return self._total
        finally:
            self._end_round()

    def _surviving(self, party: int) -> list[int]:
        return [j for j in self._members.get(party, []) if j in self._arrived]

    def _mask(self, parties: Iterable[int]) -> bytes:
        flags = np.zeros(self.run.parties, dtype=bool)
        flags[list(parties)] = True
        return pack_mask(flags)

    def _local(self, what: str, phase: ServerPhase) -> None:
        if self.phase is not phase:
            raise LocalProtocolError(
                f"Expected to {what} while {phase.name}, got {self.phase.name}."
            )

    def _accept(
        self, data: Bytes, kind: type[AnyMessage], phase: ServerPhase, known: Iterable[int]
    ) -> AnyMessage:
        """Decode a message that this phase expects once from each party."""
        message = decode(self.run, data, kind)
        name = kind.__name__
        if self.phase is not phase:
            raise RemoteProtocolError(
                f"Expected {name} while {phase.name}, got it while {self.phase.name}."
            )
        if message.round_number != (self.round_number if phase else 0):
            raise RemoteProtocolError(
                f"Expected {name} of round {self.round_number}, got {message.round_number}."
            )
        if message.sender in known:
            raise RemoteProtocolError(f"Expected one {name} of party {message.sender}, got two.")
        if phase > ServerPhase.VECTORS and message.sender not in self._arrived:
            raise RemoteProtocolError(f"Expected {name} of a survivor, got party {message.sender}.")
        return message

    def _end_round(self) -> None:
        if self.phase is not ServerPhase.JOINING:
            self.phase = ServerPhase.READY
        self._given: dict[int, Shares] = {}
        self._members: dict[int, list[int]] = {}
        self._arrived: dict[int, bool] = {}
        self._confirmed: dict[int, dict[int, bytes]] = {}
        self._revealed: dict[int, Reveal] = {}
        self._plan_digest = b""
        self._total = np.empty(0, dtype=ring_dtype(self.run.ring_bits))
