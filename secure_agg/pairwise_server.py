"""`MaskingServer`: the server's side of the protocol, a state machine without IO.

It adds masked vectors when they arrive and stores none of them. Each message is checked on arrival.
A message that breaks the protocol raises, names its sender and changes nothing, so the caller
continues without that party, as without a silent one. A party whose earlier shares made a round
fail is blamed and excluded from later rounds. `pairwise` has the table of transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from parley.secure_agg.encoding import Ring
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.kem_delivery import CiphertextDelivery
from parley.secure_agg.mask_graph import compute_commitments_digest, compute_roster_digest
from parley.secure_agg.messages import (
    Advertise,
    AnyMessage,
    Bytes,
    Complaint,
    Confirm,
    Encapsulated,
    Evidence,
    Reveal,
    RoundShares,
    Vector,
    decode,
)
from parley.secure_agg.predicted_outcome import ENVELOPE_BYTES, choose_participants, find_eligible
from parley.secure_agg.protocol_parameters import RunParameters, is_before_pairing
from parley.secure_agg.server_key_setup import AdvertisedKeys
from parley.secure_agg.server_round import BadDealer, ServerPhase, ServerRound


class MaskingServer:
    """The server of one run. It holds no secret that it must not know, and no party's vector.

    `RemoteProtocolError` is a message that the server refuses without changing its state, because
    of its sender or because it belongs to another phase or round. `LocalProtocolError` is a call
    out of order. `TooFewSurvivors` ends the round.
    """

    def __init__(
        self,
        *,
        run: RunParameters,
        identities: tuple[bytes, ...],
        commitments: Mapping[int, bytes] | None = None,
        deployment: bytes = b"",
    ) -> None:
        """Create a server before the first message.

        Args:
            identities: Ed25519 public keys by index, to refuse forged adverts; the parties check
                again.
            commitments: commitments to the parties' nonces, by index; empty if the graph is
                complete or no party has committed yet (`with_commitments`).
            deployment: as in the parties' `ProtocolRequirements`.
        """
        self.run, self.phase, self.round_number = run.without_beacon, ServerPhase.JOINING, 0
        self._proposed, self._deployment = self.run, deployment
        self.adverts = AdvertisedKeys(
            run=self.run,
            identities=identities,
            roster=compute_roster_digest(identities, deployment),
            commitments=dict(commitments or {}),
        )
        """Signed keys, by party."""
        self.blamed: set[int] = set()
        """Parties convicted by what they shared; they take part in no further round."""
        self._neighbours: list[list[int]] = []
        self._slots: list[dict[int, int]] = []  # by party: present neighbour to position
        self._round_shares: dict[int, dict[int, RoundShares]] = {}  # later round → party
        self._sum: ServerRound | None = None
        self._delivery: CiphertextDelivery | None = None

    def __repr__(self) -> str:
        return f"<Server: {self.phase.name}, round {self.round_number}>"

    def with_commitments(self, commitments: Mapping[int, bytes], *, run_id: bytes) -> MaskingServer:
        """Return a server for a new set-up in which parties have committed to nonces.

        A party that committed must advertise, or the set-up is void (`AdvertisedKeys.unrevealed`).
        It is then repeated without that party, under fresh commitments and another `run_id`.
        """
        digest = compute_commitments_digest(commitments)
        return MaskingServer(
            run=replace(self._proposed, run_id=run_id, commitments=digest),
            identities=self.adverts.identities,
            commitments=commitments,
            deployment=self._deployment,
        )

    def handle_advertise(self, data: Bytes) -> int:
        """Store a party's signed keys and return its index (JOINING)."""
        message = self._accept(data, Advertise, ServerPhase.JOINING)
        self.adverts.add_advertisement(message)
        return message.sender

    def build_rosters(self) -> Mapping[int, bytes]:
        """Return the roster for each party that advertised, built when it is read (JOINING →
        READY).
        """
        self._require_phase("make the roster", ServerPhase.JOINING)
        adverts, silent = self.adverts.by_party, len(self.adverts.unrevealed)
        if silent:
            raise LocalProtocolError(
                f"Expected all committed parties to advertise, but {silent} did not: the set-up "
                "is void."
            )
        self.run = run = self.run.with_beacon({i: a.nonce for i, a in adverts.items()})
        if len(adverts) < run.min_survivors:
            raise TooFewSurvivors(f"Expected >= {run.min_survivors} parties, got {len(adverts)}.")
        self._neighbours = [[j for j in row if j in adverts] for row in run.neighbours.tolist()]
        self._slots = [{j: at for at, j in enumerate(row)} for row in self._neighbours]
        self._delivery = CiphertextDelivery(
            run=run, roster=self.adverts.roster, adverts=adverts, neighbours=self._neighbours
        )
        self.phase = ServerPhase.READY
        return self.adverts.build_rosters(self._neighbours)

    @property
    def delivery(self) -> CiphertextDelivery:
        """Delivery of the ciphertexts, from READY on."""
        if self._delivery is None:
            raise RemoteProtocolError(
                f"Expected ciphertexts after the roster, got them while {self.phase.name}."
            )
        return self._delivery

    def handle_encapsulated(self, data: Bytes) -> int:
        """Store a party's ciphertexts and return its index (READY, before the first round)."""
        message = decode(self.run, data, Encapsulated)
        self.delivery.add_ciphertexts(message)
        return message.sender

    def get_ciphertexts(self, party: int) -> bytes:
        """Return the Ciphertexts to attach to a message for a party (any phase).

        Empty before READY, and once the party has answered with a vector, with shares of a later
        round, or with a complaint.
        """
        return self._delivery.build_ciphertexts(party) if self._delivery is not None else b""

    def handle_complaint(self, data: Bytes) -> int:
        """Record a complaint about ciphertexts that do not match (any phase after JOINING)."""
        from parley.secure_agg.kem_disputes import record_complaint  # noqa: PLC0415 - spares its code if all ciphertexts match

        message = decode(self.run, data, Complaint)
        record_complaint(self.delivery, message)
        self.blamed |= self.delivery.blamed
        return message.sender

    @property
    def to_prove(self) -> tuple[int, ...]:
        """Parties to ask for Evidence, with `CiphertextDelivery.certificate`, if counting does not
        decide.

        Empty before a list was confirmed. Parties that could not answer by that list are not asked.
        """
        if self._delivery is None or not self._delivery.undecided:
            return ()
        from parley.secure_agg.kem_disputes import list_accusers_to_ask  # noqa: PLC0415 - likewise

        return list_accusers_to_ask(self._delivery)

    def handle_evidence(self, data: Bytes) -> int:
        """Blame the party that lied about a ciphertext (any phase after JOINING)."""
        from parley.secure_agg.kem_disputes import judge_evidence  # noqa: PLC0415 - likewise

        message = decode(self.run, data, Evidence)
        judge_evidence(self.delivery, message)
        self.blamed |= self.delivery.blamed
        return message.sender

    def handle_shares(self, data: Bytes, *, number: int | None = None) -> int:
        """Store a party's shares of a later round and return its index (any phase after JOINING).

        Args:
            number: the round for which shares were requested; None: the next one. Shares of another
                round are refused.
        """
        message = decode(self.run, data, RoundShares)
        asked, sender = self.round_number + 1 if number is None else number, message.sender
        if message.round_number != asked or asked <= self.round_number:
            raise RemoteProtocolError(
                f"Expected shares of party {sender} for round {asked}, got them for round "
                f"{message.round_number}."
            )
        kept = self._round_shares.setdefault(asked, {})
        if self.phase is ServerPhase.JOINING or sender not in self.adverts.by_party:
            raise RemoteProtocolError(f"Expected shares of a joined party, got party {sender}'s.")
        if sender in kept:
            raise RemoteProtocolError(f"Expected one Shares message from party {sender}, got two.")
        if len(message.envelopes) != ENVELOPE_BYTES * len(self._neighbours[sender]):
            raise RemoteProtocolError(
                f"Expected {len(self._neighbours[sender])} envelopes from party {sender}, got "
                f"{len(message.envelopes) // ENVELOPE_BYTES}."
            )
        kept[sender] = message
        if not is_before_pairing(asked):
            self.delivery.discard_ciphertexts(sender)
        return sender

    def plan(
        self,
        number: int,
        *,
        dimension: int,
        context: bytes,
        participants: Iterable[int] | None = None,
    ) -> dict[int, bytes]:
        """Return the plan for each participant (READY → VECTORS). An unfinished round is given up.

        Args:
            context: 32 bytes, what the application agreed to release.
            participants: None: all that joined. Always excluded: parties that did not prepare this
                round or sent no ciphertexts, blamed parties, pairs in a dispute over a ciphertext,
                and parties with fewer than t participating neighbours.
        """
        if self.phase is ServerPhase.JOINING or number <= self.round_number or len(context) != 32:
            raise LocalProtocolError(
                f"Expected a joined run, a round above {self.round_number} and a context of 32 "
                f"bytes, got {self.phase.name}, {number} and {len(context)}."
            )
        run = self.run
        shares = self._round_shares.get(number, {})
        joined = set(self.adverts.by_party)
        asked = (joined if participants is None else set(participants) & joined) - self.blamed
        asked = (asked & self.delivery.sent) - self.delivery.excluded
        chosen = choose_participants(run, asked & set(shares))
        self._end_round()
        self.round_number, self.phase = number, ServerPhase.VECTORS
        self._round_shares = {n: kept for n, kept in self._round_shares.items() if n > number}
        within = set(chosen)
        self._sum = ServerRound(
            run=run,
            number=number,
            dimension=dimension,
            context=context,
            members={i: [j for j in self._neighbours[i] if j in within] for i in chosen},
            slots=self._slots,
            shares={i: shares[i] for i in chosen},
        )
        return self._sum.build_plans()

    @property
    def _open(self) -> ServerRound:
        if self._sum is None:
            raise LocalProtocolError(f"Expected an open round, got {self.phase.name}.")
        return self._sum

    def handle_vector(self, data: Bytes) -> int:
        """Add a masked vector to the total and return its sender (VECTORS)."""
        message = self._accept(data, Vector, ServerPhase.VECTORS)
        self._open.add_vector(message)
        self.delivery.discard_ciphertexts(message.sender)
        return message.sender

    @property
    def survivors(self) -> tuple[int, ...]:
        """Parties whose vectors are in the total, ascending."""
        return tuple(sorted(self._sum.arrived)) if self._sum is not None else ()

    def has_enough_vectors(self, least: int) -> bool:
        """Return whether the vectors so far are enough for a sum, each with t neighbours in it, and
        at least `least`.
        """
        arrived = np.isin(np.arange(self.run.parties), list(self._open.arrived))
        needed = max(least, self.run.min_survivors, self.run.confirmations)
        return int(find_eligible(self.run, arrived).sum()) >= needed

    def has_enough_confirmations(self) -> bool:
        """Return whether the parties that confirmed could open the sum without the others."""
        signers = self._open.signatures
        return len(signers) >= self.run.confirmations and self._open.can_be_opened_by(signers)

    def has_enough_reveals(self) -> bool:
        """Return whether the reveals so far open the sum."""
        return self._open.can_be_opened()

    def close(self) -> bytes:
        """Return the survivors' list, to be sent to each survivor (VECTORS → CONFIRMING)."""
        self._require_phase("close the vectors", ServerPhase.VECTORS)
        run = self.run
        arrived = self._open.arrived
        convicted, got = self.blamed & arrived, len(arrived)
        if convicted:  # its vector is in the total, with unknown masks
            self._end_round()
            raise TooFewSurvivors(
                f"Expected vectors from parties that are not blamed, got one from party "
                f"{min(convicted)}. The round ends; later rounds exclude this party."
            )
        if got < run.min_survivors:
            self._end_round()
            raise TooFewSurvivors(f"Expected >= {run.min_survivors} survivors, got {got}.")
        self.phase = ServerPhase.CONFIRMING
        return self._open.build_survivors_list()

    def handle_confirm(self, data: Bytes) -> int:
        """Store a survivor's signature of the list and return its index (CONFIRMING)."""
        message = self._accept(data, Confirm, ServerPhase.CONFIRMING)
        self._open.add_confirmation(message, self.adverts.identities[message.sender])
        return message.sender

    def build_confirmations(self) -> dict[int, bytes]:
        """Return one message with the signatures for each party that confirmed (CONFIRMING →
        UNMASKING).

        It contains as many signatures as a party requires, and no more.
        """
        self._require_phase("pass on confirmations", ServerPhase.CONFIRMING)
        run, summed = self.run, self._open
        signers = sorted(summed.signatures)
        if len(signers) < run.confirmations:
            self._end_round()
            raise TooFewSurvivors(
                f"Expected >= {run.confirmations} parties to confirm the survivors' list, got "
                f"{len(signers)}."
            )
        self.phase = ServerPhase.UNMASKING
        certificate = summed.head, summed.build_survivors_list(), summed.build_confirmations()
        self.delivery.record_certificate(certificate, np.isin(np.arange(run.parties), signers))
        return dict.fromkeys(signers, summed.build_confirmations(run.confirmations))

    def handle_reveal(self, data: Bytes) -> int:
        """Store those secrets of a survivor's reveal that are true, and return its index
        (UNMASKING).
        """
        message = self._accept(data, Reveal, ServerPhase.UNMASKING)
        self._open.add_reveal(message)
        return message.sender

    def finish(self) -> Ring:
        """Return the survivors' sum, `[d]` (UNMASKING → READY).

        Raises:
            TooFewSurvivors: a mask cannot be rebuilt. The round and its total are given up. The
                blamed party takes part in no other round.
        """
        self._require_phase("finish", ServerPhase.UNMASKING)
        try:
            return self._open.compute_total()
        except BadDealer as error:
            self.blamed.add(error.party)
            raise
        finally:
            self._end_round()

    def _require_phase(self, action: str, phase: ServerPhase) -> None:
        if self.phase is not phase:
            raise LocalProtocolError(
                f"Expected to {action} while {phase.name}, got {self.phase.name}."
            )

    def _accept(self, data: Bytes, kind: type[AnyMessage], phase: ServerPhase) -> AnyMessage:
        """Decode a message and check that this phase and round expect it."""
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
        return message

    def _end_round(self) -> None:
        self._sum = None
        if self.phase is not ServerPhase.JOINING:
            self.phase = ServerPhase.READY
