"""The server's side: a state machine without IO. `pairwise` has the table of transitions.

It adds masked vectors as they come and keeps none of them. Every message is checked when it comes:
one that breaks the protocol raises, names its sender and changes nothing, so that the caller goes
on without that party, as with one that fell silent. Who made a round fail by what it had shared out
before is blamed, and in no later round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import IntEnum

import numpy as np

from parley.secure_agg.beacon import NO_BEACON, commitment, commitments_digest, roster_digest
from parley.secure_agg.delivery import Delivery
from parley.secure_agg.encoding import Ring, ring_dtype
from parley.secure_agg.interface import (
    DropoutPolicy,
    LocalProtocolError,
    RemoteProtocolError,
    TooFewSurvivors,
)
from parley.secure_agg.masks import add_masks
from parley.secure_agg.messages import (
    SERVER,
    Advertise,
    AnyMessage,
    Bytes,
    Complaint,
    Confirm,
    Confirmations,
    Encapsulated,
    Evidence,
    Nonces,
    Reveal,
    Roster,
    RoundStart,
    Shares,
    Survivors,
    Vector,
    decode,
    encode,
    pack_mask,
    unpack_mask,
)
from parley.secure_agg.outcome import ENVELOPE_BYTES, SECRET_BYTES, eligible
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import KEY_BYTES, is_kem_public, is_weak, verifies
from parley.secure_agg.recovery import BadDealer, Recovery
from parley.secure_agg.statements import advertised, confirmed, plan_digest

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

    def __init__(
        self,
        *,
        run: RunParameters,
        identities: tuple[bytes, ...],
        commitments: Mapping[int, bytes] | None = None,
        deployment: bytes = b"",
    ) -> None:
        """A server before the first message.

        Args:
            run: parameters of the run.
            identities: Ed25519 public keys by index, to turn away forged adverts; the parties
                check for themselves.
            commitments: to the parties' nonces, by index; none where the graph is complete, or
                before there are any (`with_commitments`).
            deployment: as in the parties' `Policy`.
        """
        if len(identities) != run.parties:
            raise LocalProtocolError(f"Expected {run.parties} identities, got {len(identities)}.")
        given = dict(commitments or {})
        named = commitments_digest(given) if given else NO_BEACON
        if run.commitments != named:
            raise LocalProtocolError("Expected the commitments of the parameters, got others.")
        self.run, self.phase, self.round_number = run.proposed, ServerPhase.JOINING, 0
        self._proposed, self._commitments, self._deployment = self.run, given, deployment
        self._roster = roster_digest(identities, deployment)
        self.blamed: set[int] = set()
        """Parties that what they shared out convicts: they take part in no further round."""
        self._identities = identities
        self._adverts: dict[int, Advertise] = {}
        self._keys: set[bytes] = set()
        self._near: list[list[int]] = []
        self._slot: list[dict[int, int]] = []  # by party: neighbour to its place in `near`
        self._shares: dict[int, dict[int, Shares]] = {}
        self._recovery: Recovery | None = None
        self._delivery: Delivery | None = None
        self._certificate: tuple[bytes, ...] = ()
        self._signers = np.zeros(run.parties, dtype=bool)
        self._head = b""
        self._end_round()

    def __repr__(self) -> str:
        return f"<Server: {self.phase.name}, round {self.round_number}>"

    def with_commitments(self, commitments: Mapping[int, bytes], *, run_id: bytes) -> Server:
        """A server for a set-up of its own, whose parties committed to nonces.

        Who committed must advertise, or the set-up is void (`unrevealed`): it is repeated without
        them, under fresh commitments and another `run_id`.
        """
        run = replace(self._proposed, run_id=run_id, commitments=commitments_digest(commitments))
        return Server(
            run=run,
            identities=self._identities,
            commitments=commitments,
            deployment=self._deployment,
        )

    def on_advertise(self, data: Bytes) -> int:
        """JOINING: keep a party's signed key; its index is returned.

        Raises:
            RemoteProtocolError: forged, of small order, another party's, without the nonce that
                was committed to, or the party advertised before.
        """
        message = self._accept(data, Advertise, ServerPhase.JOINING, self._adverts)
        sender, key, nonce = message.sender, message.key, message.nonce
        statement = advertised(self.run.fingerprint, self._roster, sender, key, nonce)
        if not verifies(self._identities[sender], message.signature, statement):
            raise RemoteProtocolError(
                f"Expected the signed key of party {sender}, got a forged one."
            )
        parts = {key[:KEY_BYTES], key[KEY_BYTES:]} - {b""}
        if parts & self._keys or is_weak(key[:KEY_BYTES]):
            raise RemoteProtocolError(f"Expected a key of its own of party {sender}, got none.")
        if self.run.hybrid and not is_kem_public(key[KEY_BYTES:]):
            raise RemoteProtocolError(
                f"Expected an ML-KEM-768 public key of party {sender}, got no such key."
            )
        if self.run.sparse and self._commitments.get(sender) != commitment(sender, nonce):
            raise RemoteProtocolError(
                f"Expected the nonce that party {sender} committed to, got another."
            )
        self._keys |= parts
        self._adverts[sender] = message
        return sender

    @property
    def unrevealed(self) -> tuple[int, ...]:
        """JOINING: who committed to a nonce and has not advertised it; the set-up needs all."""
        return tuple(sorted(set(self._commitments) - set(self._adverts)))

    def nonces(self) -> bytes:
        """READY: the Nonces that go with every Roster; empty where the graph is complete."""
        if not self.run.sparse:
            return b""
        message = Nonces(
            sender=SERVER,
            round_number=0,
            committed=self._mask(self._adverts),
            nonces=b"".join(self._adverts[i].nonce for i in sorted(self._adverts)),
        )
        return encode(self.run, message)

    def roster(self) -> dict[int, bytes]:
        """JOINING → READY: the roster for each party that advertised.

        Raises:
            TooFewSurvivors: fewer parties than a sum needs.
        """
        self._local("make the roster", ServerPhase.JOINING)
        if self.unrevealed:
            raise LocalProtocolError(
                f"Expected every party that committed to advertise, {len(self.unrevealed)} did "
                "not: the set-up is void."
            )
        self.run = run = self.run.with_beacon({i: a.nonce for i, a in self._adverts.items()})
        if len(self._adverts) < run.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {run.min_survivors} parties, got {len(self._adverts)}."
            )
        self._near = [[j for j in row if j in self._adverts] for row in run.neighbours.tolist()]
        self._slot = [{j: at for at, j in enumerate(row)} for row in self._near]
        if run.hybrid:
            self._delivery = Delivery(
                run=run, roster=self._roster, adverts=self._adverts, near=self._near
            )
        self.phase = ServerPhase.READY
        present = self._mask(self._adverts)
        entries = {j: a.body() for j, a in self._adverts.items()}
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

    @property
    def delivery(self) -> Delivery:
        """The ciphertexts, from READY on.

        Raises:
            RemoteProtocolError: no roster yet, or a run that has none.
        """
        if self._delivery is None:
            raise RemoteProtocolError(
                f"Expected ciphertexts in a hybrid run, once there is a roster, got them in "
                f"{self.run.key_exchange} while {self.phase.name}."
            )
        return self._delivery

    def on_encapsulated(self, data: Bytes) -> int:
        """READY, before the first round: keep a party's ciphertexts.

        Raises:
            RemoteProtocolError: another time, a second one, or not one for each neighbour.
        """
        message = decode(self.run, data, Encapsulated)
        self.delivery.take(message)
        return message.sender

    def ciphertexts(self, party: int) -> bytes:
        """Any phase after JOINING: what goes with whatever a party is sent until it answers with a
        vector, with shares of a later round, or with a complaint; empty afterwards."""
        return self._delivery.of(party) if self._delivery is not None else b""

    def on_complaint(self, data: Bytes) -> int:
        """Any phase after JOINING: a party says whose ciphertexts do not match.

        Raises:
            RemoteProtocolError: not about ciphertexts that it was given, or a second one.
        """
        message = decode(self.run, data, Complaint)
        self.delivery.accuse(message)
        self.blamed |= self.delivery.blamed
        return message.sender

    @property
    def to_prove(self) -> tuple[int, ...]:
        """Whom to ask, with `certificate`, for Evidence of what counting does not decide.

        Nobody before a list was confirmed, and nobody who could not answer by it.
        """
        if self._delivery is None or not self._certificate:
            return ()
        return self._delivery.to_prove(self._signers)

    @property
    def certificate(self) -> tuple[bytes, bytes, bytes]:
        """Plan without envelopes, Survivors and Confirmations, with all signatures, of the last
        round that had any: what shows an accuser who has no key to prove with any more.

        Raises:
            LocalProtocolError: no list was confirmed yet.
        """
        if not self._certificate:
            raise LocalProtocolError("Expected a list that was confirmed, got none so far.")
        plan, survivors, confirmations = self._certificate
        return plan, survivors, confirmations

    def unproven(self, accuser: int) -> None:
        """An accuser that was to prove its complaint did not: it takes part in no further round."""
        self.delivery.unproven(accuser)

    def on_evidence(self, data: Bytes) -> int:
        """Any phase after JOINING: who lied about a ciphertext is blamed.

        Raises:
            RemoteProtocolError: nothing to prove, or not the seed of the sender's key.
        """
        message = decode(self.run, data, Evidence)
        self.delivery.judge(message)
        self.blamed |= self.delivery.blamed
        return message.sender

    def on_shares(self, data: Bytes, *, number: int | None = None) -> int:
        """Any phase after JOINING: keep a party's shares of a coming round.

        Args:
            data: a Shares.
            number: the round that they were asked for; None: the coming one. Any other is refused.

        Raises:
            RemoteProtocolError: another round, one prepared before, or a wrong number of envelopes.
        """
        message = decode(self.run, data, Shares)
        asked = self.round_number + 1 if number is None else number
        sender = message.sender
        if self.phase is ServerPhase.JOINING or sender not in self._adverts:
            raise RemoteProtocolError(f"Expected shares of a joined party, got party {sender}.")
        if message.round_number != asked or asked <= self.round_number:
            raise RemoteProtocolError(
                f"Expected shares of party {sender} for round {asked}, got them for round "
                f"{message.round_number}."
            )
        if sender in self._shares.get(asked, {}):
            raise RemoteProtocolError(f"Expected one Shares of party {sender}, got two.")
        if len(message.envelopes) != ENVELOPE_BYTES * len(self._near[sender]):
            raise RemoteProtocolError(
                f"Expected {len(self._near[sender])} envelopes of party {sender}, got "
                f"{len(message.envelopes) // ENVELOPE_BYTES}."
            )
        if self._delivery is not None and not self.run.unpaired(asked):
            self._delivery.arrived(sender)
        self._shares.setdefault(asked, {})[sender] = message
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
                round (robust) or send ciphertexts (hybrid), who is blamed, pairs of which one lies
                about a ciphertext, and who has fewer than t neighbours taking part.

        Raises:
            TooFewSurvivors: fewer participants than a sum needs.
        """
        if self.phase is ServerPhase.JOINING or number <= self.round_number or len(context) != 32:
            raise LocalProtocolError(
                f"Expected a joined run, a round above {self.round_number} and a context of 32 "
                f"bytes, got {self.phase.name}, {number} and {len(context)}."
            )
        run, robust = self.run, self.run.dropouts is DropoutPolicy.ROBUST
        shares = self._shares.get(number, {})
        asked = set(self._adverts if participants is None else participants) & set(self._adverts)
        asked -= self.blamed
        if self._delivery is not None:
            asked &= self._delivery.sent
            asked -= self._delivery.apart
        flags = np.zeros(run.parties, dtype=bool)
        flags[sorted(asked & set(shares) if robust else asked)] = True
        chosen = np.flatnonzero(eligible(run, flags)).tolist()
        if len(chosen) < run.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {run.min_survivors} participants, each with >= {run.threshold} "
                f"neighbours among them, got {len(chosen)} of the {int(flags.sum())} parties left."
            )
        self._end_round()
        self.round_number, self.phase = number, ServerPhase.VECTORS
        self._shares = {n: s for n, s in self._shares.items() if n > number}
        self._given.update({i: shares[i] for i in chosen} if robust else {})
        within = set(chosen)
        self._members |= {i: [j for j in self._near[i] if j in within] for i in chosen}
        base = RoundStart(
            sender=SERVER,
            round_number=number,
            dimension=dimension,
            context=context,
            participants=self._mask(chosen),
            envelopes=b"",
        )
        self._plan_digest = plan_digest(run, base)
        self._total: Ring = np.zeros(dimension, dtype=ring_dtype(run.ring_bits))
        self._head = encode(run, base)
        return {i: self._head + self._envelopes(i) for i in chosen}

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
        sender, size = message.sender, self._total.nbytes
        dtype = self._total.dtype.newbyteorder("<")
        halves = SECRET_BYTES * self.run.unpaired(self.round_number)
        expected = size + halves * len(self._members.get(sender, ()))
        if sender not in self._members or len(message.payload) != expected:
            raise RemoteProtocolError(
                f"Expected {expected} bytes from a participant, got {len(message.payload)} from "
                f"party {sender}."
            )
        words = np.frombuffer(message.payload, dtype=dtype, count=self._total.size)
        np.add(self._total, words, out=self._total)
        self._arrived[sender] = True
        if self._delivery is not None:
            self._delivery.arrived(sender)
            self._halves[sender] = bytes(message.payload[size:])
        return sender

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
        if run.dropouts is DropoutPolicy.OPTIMISTIC:
            raise LocalProtocolError("Expected robust dropouts, got optimistic: call `finish`.")
        convicted = self.blamed & set(self._arrived)
        if convicted:  # its vector is in the total, and nobody knows with which masks
            self._end_round()
            raise TooFewSurvivors(
                f"Expected vectors of parties that are not blamed, got that of party "
                f"{min(convicted)}: the round is given up, and goes on without it."
            )
        if len(self._arrived) < run.min_survivors:
            got = len(self._arrived)
            self._end_round()
            raise TooFewSurvivors(f"Expected >= {run.min_survivors} survivors, got {got}.")
        self.phase = ServerPhase.CONFIRMING
        if not run.confirm_survivors:
            self._open()
        survivors = self._mask(self._arrived)
        message = Survivors(sender=SERVER, round_number=self.round_number, survivors=survivors)
        return encode(run, message)

    def on_confirm(self, data: Bytes) -> int:
        """CONFIRMING: keep a survivor's signature of the list.

        Raises:
            RemoteProtocolError: not a survivor, a second one, or a false signature.
        """
        message = self._accept(data, Confirm, ServerPhase.CONFIRMING, self._confirmed)
        statement = confirmed(self._plan_digest, self._mask(self._arrived))
        if not verifies(self._identities[message.sender], message.signature, statement):
            raise RemoteProtocolError(
                f"Expected party {message.sender} to sign the survivors' list, got another "
                "signature."
            )
        self._confirmed[message.sender] = message.signature
        return message.sender

    def confirmations(self) -> dict[int, bytes]:
        """CONFIRMING → UNMASKING: for each party that confirmed, who else did; one message.

        As many signatures as a party asks for, and no more.

        Raises:
            TooFewSurvivors: too few confirmed; the round is given up.
        """
        self._local("pass on confirmations", ServerPhase.CONFIRMING)
        run, got = self.run, len(self._confirmed)
        if got < run.confirmations:
            self._end_round()
            raise TooFewSurvivors(
                f"Expected >= {run.confirmations} parties to confirm the survivors' list, got "
                f"{got}."
            )
        self._open()
        signers = sorted(self._confirmed)
        survivors = self._mask(self._arrived)
        listed = Survivors(sender=SERVER, round_number=self.round_number, survivors=survivors)
        self._certificate = (self._head, encode(run, listed), self._signed(signers))
        self._signers = unpack_mask(self._mask(signers), run.parties)
        return dict.fromkeys(self._confirmed, self._signed(signers[: run.confirmations]))

    def _signed(self, signers: list[int]) -> bytes:
        message = Confirmations(
            sender=SERVER,
            round_number=self.round_number,
            signers=self._mask(signers),
            signatures=b"".join(self._confirmed[i] for i in signers),
        )
        return encode(self.run, message)

    def _open(self) -> None:
        self.phase = ServerPhase.UNMASKING
        self._recovery = Recovery(
            run=self.run,
            number=self.round_number,
            plan=self._plan_digest,
            shares=self._given,
            slots=self._slot,
            members=self._members,
            survivors=set(self._arrived),
            halves=self._halves,
        )

    def on_reveal(self, data: Bytes) -> int:
        """UNMASKING: keep what a survivor reveals, as far as it is true.

        Raises:
            RemoteProtocolError: not a survivor, a second one, a wrong number of secrets, or false
                ones (`Recovery.take`).
        """
        message = self._accept(data, Reveal, ServerPhase.UNMASKING, self._revealed)
        if self._recovery is not None:
            self._recovery.take(message)
        self._revealed.add(message.sender)
        return message.sender

    def finish(self) -> Ring:
        """UNMASKING (robust) or VECTORS (optimistic) → READY: the survivors' sum, `[d]`.

        Raises:
            TooFewSurvivors: a mask cannot be rebuilt (robust), or a vector is missing
                (optimistic). The round is given up, and its total with it; who is to blame takes
                part in no other.
        """
        robust = self.run.dropouts is DropoutPolicy.ROBUST
        self._local("finish", ServerPhase.UNMASKING if robust else ServerPhase.VECTORS)
        try:
            if self._recovery is not None:
                add_masks(self._total, *self._recovery.masks_left())
            elif len(self._arrived) < len(self._members):
                raise TooFewSurvivors(
                    f"Expected all {len(self._members)} vectors of an optimistic round, got "
                    f"{len(self._arrived)}."
                )
            return self._total
        except BadDealer as error:
            self.blamed.add(error.party)
            raise
        finally:
            self._end_round()

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
        self._confirmed: dict[int, bytes] = {}
        self._revealed: set[int] = set()
        self._halves: dict[int, bytes] = {}
        self._recovery = None
        self._plan_digest = b""
        self._total = np.empty(0, dtype=ring_dtype(self.run.ring_bits))
