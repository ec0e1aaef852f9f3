"""`MaskingParty`: the party's side of the protocol, a state machine without IO.

    y_i = x_i + PRG(b_i^r) ± Σ_j PRG(k_ij^r)  mod 2^b, + where i < j      (Bonawitz et al. 2017)

The self seed b_i^r and the recovery secret c_i^r are fresh entropy. c opens a sealed table of party
i's base keys of the round. Shares of both go to the neighbours before the round. Afterwards the
neighbours reveal shares of b for a survivor and of c for a dropped party, according to one
confirmed list: never of both. `pairwise` has the table of transitions.
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.encoding import Ring
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.mask_graph import NONCE_BYTES
from parley.secure_agg.messages import (
    Advertise,
    Bytes,
    Complaint,
    Confirm,
    Confirmations,
    Encapsulated,
    Evidence,
    Message,
    Survivors,
    decode,
    encode,
)
from parley.secure_agg.pair_keys import PairKeyComputer
from parley.secure_agg.party_key_setup import (
    accept_roster,
    complete_pairs,
    derive_public_keys,
    encapsulate_to_all,
)
from parley.secure_agg.party_masking import MaskJob, open_round, prepare_round
from parley.secure_agg.party_state import MaskingState, OpenRound, PartyPhase
from parley.secure_agg.predicted_outcome import SECRET_BYTES, pack_mask, unpack_mask
from parley.secure_agg.primitives import KEM_SEED_BYTES, Entropy, derive_signing_public_key, sign
from parley.secure_agg.protocol_digests import digest_advertisement, digest_survivors
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters
from parley.secure_agg.survivor_confirmation import (
    accept_survivors,
    build_reveal,
    find_true_signers,
)


class MaskingParty:
    """One party of one run.

    Methods take the bytes of a message and return the bytes of the answer. A refusal raises and
    reveals nothing. A refused survivors' list, or refused confirmations of it, also end the round.
    `RemoteProtocolError` is a message that breaks the protocol or this party's policy,
    `LocalProtocolError` a call out of order, `TooFewSurvivors` a list that is too short to answer.
    """

    def __init__(
        self,
        *,
        run: RunParameters,
        policy: ProtocolRequirements,
        index: int,
        identity: bytes,
        entropy: Entropy,
        nonce: bytes = b"",
        state: MaskingState | None = None,
        work: PairKeyComputer | None = None,
    ) -> None:
        """Create a party before its first message, or resume it from `state`.

        Args:
            identity: the party's Ed25519 private key, 32 bytes.
            nonce: the nonce that it committed to for this set-up; empty if the graph is complete.
            state: from `state_encoding.decode_state`, to resume after a restart.
            work: shared between parties of one process (`pair_keys`).
        """
        policy.check(run)
        if not 0 <= index < run.parties:
            raise LocalProtocolError(f"Expected index 0 to {run.parties - 1}, got {index}.")
        if policy.identities[index] != derive_signing_public_key(identity):
            raise LocalProtocolError(
                f"Expected the identity pinned for party {index}, "
                f"{policy.identities[index].hex()}, got "
                f"{derive_signing_public_key(identity).hex()}."
            )
        if len(nonce) != (NONCE_BYTES if run.sparse and state is None else 0):
            raise LocalProtocolError(
                f"Expected a nonce of {NONCE_BYTES} bytes for a new set-up of a graph that is not "
                f"complete, and none otherwise, got {len(nonce)}."
            )
        if state is not None and (
            state.index != index
            or state.run.without_beacon != run.without_beacon
            or state.roster != policy.roster
        ):
            raise LocalProtocolError(
                f"Expected the state of party {index} in run {run.run_id.hex()}, got that of party "
                f"{state.index} in run {state.run.run_id.hex()}, or of another roster."
            )
        self._requirements, self._identity, self._entropy = policy, identity, entropy
        self._work = work or PairKeyComputer()
        self.state = state or MaskingState(
            run=run.without_beacon, index=index, roster=policy.roster, nonce=nonce
        )

    def __repr__(self) -> str:
        return f"<Party {self.state.index}: {self.state.phase.name}>"

    def __reduce__(self) -> str:
        raise TypeError("Expected encode_state, got pickle, which would copy secrets unnoticed.")

    def advertise(self) -> bytes:
        """Return the signed public keys of the run (NEW → ADVERTISED).

        Raises:
            LocalProtocolError: the party is not NEW.
            AlgorithmMissing: the installed library has no ML-KEM.
        """
        state = self.state
        if state.phase is not PartyPhase.NEW:
            raise LocalProtocolError(f"Expected to advertise while NEW, got {state.phase.name}.")
        state.private_key = self._entropy(SECRET_BYTES)
        state.kem_seed = self._entropy(KEM_SEED_BYTES)
        run, key, nonce = state.run, derive_public_keys(state), state.nonce or bytes(NONCE_BYTES)
        statement = digest_advertisement(run.fingerprint, state.roster, state.index, key, nonce)
        state.phase = PartyPhase.ADVERTISED
        signature = sign(self._identity, statement)
        message = Advertise(
            sender=state.index, round_number=0, key=key, nonce=nonce, signature=signature
        )
        return encode(state.run, message)

    def handle_roster(self, data: Bytes, nonces: Bytes = b"") -> bytes:
        """Answer a Roster with an Encapsulated (ADVERTISED → PAIRING).

        Verify the neighbours' signed keys and agree on X25519 secrets.
        """
        state = self.state
        self._require_phase("a roster", PartyPhase.ADVERTISED)
        joined = accept_roster(state, data, nonces, self._requirements, self._work)
        state.pairing, items = encapsulate_to_all(state.index, joined, self._work)
        message = Encapsulated(sender=state.index, round_number=0, items=items)
        answer, state.phase = encode(state.run, message), PartyPhase.PAIRING
        state.run, state.neighbours = joined.run, joined.neighbours
        state.private_key, state.nonce = b"", b""
        return answer

    def handle_ciphertexts(self, data: Bytes) -> bytes:
        """Complete the pair secrets with the neighbours' ciphertexts (PAIRING → IDLE).

        In any later state the ciphertexts are not read. A server that does not know whether they
        arrived sends them again and gets the same answer.

        Returns:
            Empty, or a Complaint about neighbours whose ciphertexts do not match. This party takes
            part in no round with them. Until it sends a vector, the server may ask it to prove the
            complaint (`prove`).
        """
        state = self.state
        if state.phase <= PartyPhase.PAIRING:
            self._require_phase("ciphertexts", PartyPhase.PAIRING)
            if not complete_pairs(state, data, self._requirements, self._work, self._entropy):
                state.kem_seed = b""
            state.phase = PartyPhase.IDLE
        if not state.kem_seed:  # no dispute, or the dispute can no longer be proved
            return b""
        accused = np.zeros(state.run.degree, dtype=bool)
        accused[[n for n, j in enumerate(state.neighbours) if j in state.disputed]] = True
        complaint = Complaint(sender=state.index, round_number=0, accused=pack_mask(accused))
        return encode(state.run, complaint)

    def prove(self, plan: Bytes, survivors: Bytes, confirmations: Bytes) -> bytes:
        """Return Evidence of what the ciphertexts decapsulate to: the key itself (IDLE → LEFT).

        The party proves only before it has sent any vector. It also requires a list of this run
        that enough parties near each of its neighbours signed. Signers have sent vectors, so those
        who can still prove are, together with the colluders, fewer than t: see
        `dispute_certificate`.
        """
        state = self.state
        if state.phase is not PartyPhase.IDLE or not state.disputed or not state.kem_seed:
            raise RemoteProtocolError(
                f"Expected a dispute before the first vector to prove, got {state.phase.name} "
                f"with {len(state.disputed)} disputed ciphertexts."
            )
        from parley.secure_agg.dispute_certificate import check_certificate  # noqa: PLC0415 - spares its code for a run without disputes

        certificate, identities = (plan, survivors, confirmations), self._requirements.identities
        check_certificate(state.run, state.neighbours, certificate, identities, self._work)
        evidence = Evidence(sender=state.index, round_number=0, seed=state.kem_seed)
        state.phase, state.kem_seed, state.chains = PartyPhase.LEFT, b"", []
        state.prepared.clear()
        return encode(state.run, evidence)

    def prepare(self, number: int) -> bytes:
        """Return the shared and sealed secrets of a later round (IDLE, MASKED or CONFIRMED,
        unchanged).

        While PAIRING, only round 1 can be prepared: it travels with the Encapsulated. Other rounds
        may travel with an earlier message, so that a round needs no stage for its shares.
        """
        return prepare_round(self.state, number, self._work, self._entropy)

    def handle_plan(self, data: Bytes, vector: Ring, *, context: bytes) -> memoryview:
        """Return the masked vector for a plan (IDLE, MASKED or CONFIRMED → MASKED).

        A round that was open ends: it is erased and never answered again.

        Args:
            context: 32 bytes, the caller's digest of what it agreed to release in this round.
        """
        return self.start_round(data, vector, context=context).run()

    def start_round(self, data: Bytes, vector: Ring, *, context: bytes) -> MaskJob:
        """Do what `handle_plan` does except the masking, which a group does for all its parties at
        once.
        """
        self._require_phase("a plan", PartyPhase.IDLE, PartyPhase.MASKED, PartyPhase.CONFIRMED)
        return open_round(self.state, data, vector, context, self._requirements, self._work)

    def handle_survivors(self, data: Bytes) -> bytes:
        """Answer a survivors' list with a signature of it (MASKED → CONFIRMED)."""
        self._require_phase("a survivors' list", PartyPhase.MASKED)
        state, current = self.state, self._get_open_round()
        message = decode(state.run, data, Survivors)
        try:
            self._check_round(message, current)
            accept_survivors(state, current, message.survivors, self._requirements)
        except (RemoteProtocolError, TooFewSurvivors):
            self.abort_round()
            raise
        current.survivors = message.survivors
        statement = digest_survivors(current.plan_digest, current.survivors)
        state.phase = PartyPhase.CONFIRMED  # from here this party signs no other list of this round
        signature = sign(self._identity, statement)
        confirm = Confirm(sender=state.index, round_number=current.number, signature=signature)
        return encode(state.run, confirm)

    def handle_confirmations(self, data: Bytes) -> bytes:
        """Check who signed the same list, then reveal (CONFIRMED → IDLE). The round is erased."""
        self._require_phase("confirmations", PartyPhase.CONFIRMED)
        run, current = self.state.run, self._get_open_round()
        message = decode(run, data, Confirmations)
        signed, identities = (current.plan_digest, current.survivors), self._requirements.identities
        try:
            self._check_round(message, current)
            find_true_signers(run, *signed, message, identities, self._work)
            survived: list[bool] = unpack_mask(current.survivors, run.parties).tolist()
            return encode(run, build_reveal(self.state, current, survived))
        finally:
            self.abort_round()

    def abort_round(self) -> None:
        """End the open round, if any: erase its secrets and never answer it again."""
        if self.state.phase in (PartyPhase.MASKED, PartyPhase.CONFIRMED):
            self.state.phase, self.state.current = PartyPhase.IDLE, None

    def _require_phase(self, subject: str, *phases: PartyPhase) -> None:
        if self.state.phase not in phases:
            names = " or ".join(phase.name for phase in phases)
            raise RemoteProtocolError(
                f"Expected {subject} while {names}, got it while {self.state.phase.name}."
            )

    def _get_open_round(self) -> OpenRound:
        if self.state.current is None:
            raise LocalProtocolError("Expected an open round in the state, got none.")
        return self.state.current

    def _check_round(self, message: Message, current: OpenRound) -> None:
        if message.round_number != current.number:
            raise RemoteProtocolError(
                f"Expected round {current.number}, got {message.round_number}."
            )
