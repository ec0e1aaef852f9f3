"""The party's side: a state machine without IO. `pairwise` has the table of transitions.

    y_i = x_i + PRG(b_i^r) ± Σ_j PRG(k_ij^r)  mod 2^b, + where i < j      (Bonawitz et al. 2017)

The self seed b_i^r and the recovery secret c_i^r, which opens a sealed table of party i's base keys
of the round, are fresh entropy. Shares of both go to the neighbours before the round. Afterwards
neighbours give shares of b for a survivor and of c for a dropped party, all from one confirmed
list: never of both.
"""

from __future__ import annotations

import struct

import numpy as np

from secure_agg.edges import EdgeWork, pair_salt
from secure_agg.encoding import Ring, ring_dtype
from secure_agg.interface import LocalProtocolError, Mode, RemoteProtocolError, TooFewSurvivors
from secure_agg.masks import add_masks
from secure_agg.messages import (
    Advertise,
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
    header,
    pack_mask,
    unpack_mask,
)
from secure_agg.outcome import CONFIRMATION_BYTES, ENVELOPE_BYTES, HEADER_BYTES, SECRET_BYTES
from secure_agg.parameters import Policy, RunParameters
from secure_agg.primitives import (
    Entropy,
    derive,
    digest,
    mac,
    mac_matches,
    public_key,
    seal,
    sign,
    signing_public,
    unseal,
)
from secure_agg.shamir import split
from secure_agg.state import OpenRound, PartyState, Phase, Prepared

__all__ = ["MAX_SKIPPED_ROUNDS", "MaskJob", "Party", "VectorBuffer", "advertised", "bound"]
__all__ += ["commitment", "plan_digest", "table_key"]

MAX_SKIPPED_ROUNDS = 10_000
"""How far a chain is ratcheted at once; bounds the work that a round number can ask for."""
_ENTRY = 96
_NO_SHARE = bytes(SECRET_BYTES)


def advertised(run: RunParameters, index: int, identity: bytes, key: bytes) -> bytes:
    """What an identity signs: its key of the run, its index, and every parameter."""
    return digest(b"parley/advertise", run.fingerprint, index.to_bytes(4, "big"), identity, key)


def commitment(run: RunParameters, number: int, index: int, which: bytes, secret: bytes) -> bytes:
    """Commitment to a round's secret of 256 random bits, so that a rebuilt one can be checked."""
    where = struct.pack(">II", number, index)
    return digest(b"parley/commit", run.fingerprint, where, which, secret)


def plan_digest(run: RunParameters, plan: Plan) -> bytes:
    """What a round's pair keys are bound to."""
    fixed = struct.pack(">II", plan.round_number, plan.dimension)
    return digest(b"parley/plan", run.fingerprint, fixed, plan.context, plan.participants)


def table_key(recovery: bytes) -> bytes:
    """The key that seals a party's table of base keys, from its recovery secret c."""
    return derive(recovery, b"parley/table")


def bound(run: RunParameters, number: int, sender: int, receiver: int) -> bytes:
    """What a sealed message is bound to."""
    return struct.pack(">32sIII", run.fingerprint, number, sender, receiver)


class VectorBuffer:
    """A Vector message whose payload is filled in place: one copy of a vector, not three."""

    def __init__(self, head: bytes, vector: Ring) -> None:
        start = -(-HEADER_BYTES // 16) * 16  # the payload is aligned for its words
        raw = np.empty(start + vector.nbytes, dtype=np.uint8)
        raw[start - HEADER_BYTES : start] = np.frombuffer(head, dtype=np.uint8)
        self.words: Ring = raw[start:].view(vector.dtype.newbyteorder("<"))
        self.words[:] = vector
        self.message = raw.data[start - HEADER_BYTES :]


class MaskJob:
    """A vector on its way to being masked: the only holder of the unmasked copy.

    Attributes:
        buffer: holds the vector, masked in place.
        plus: keys whose masks are added; the self seed is the first in robust mode.
        minus: keys whose masks are subtracted.
        has_self_seed: whether `plus` begins with the self seed.
    """

    __slots__ = ("buffer", "has_self_seed", "minus", "plus")

    def __init__(self, buffer: VectorBuffer, seed: bytes) -> None:
        self.buffer = buffer
        self.has_self_seed = bool(seed)
        self.plus: list[bytes] = [seed] if seed else []
        self.minus: list[bytes] = []

    def run(self) -> memoryview:
        """Add the masks and give the message."""
        add_masks(self.buffer.words, self.plus, self.minus)
        return self.buffer.message


class Party:
    """One party of one run.

    Methods take the bytes of a message and return the bytes of the answer. A refusal raises and
    gives nothing away; one about a survivors' list or its confirmations also ends the round.
    """

    def __init__(
        self,
        *,
        run: RunParameters,
        policy: Policy,
        index: int,
        identity: bytes,
        entropy: Entropy,
        state: PartyState | None = None,
        work: EdgeWork | None = None,
    ) -> None:
        """A party before its first message, or resumed from `state`.

        Args:
            run: parameters proposed for the run.
            policy: what this party insists on.
            index: its own index in the roster.
            identity: its Ed25519 private key, 32 bytes.
            entropy: its source of secrets.
            state: from `PartyState.from_bytes`, to go on after a restart.
            work: shared between parties of one process (`block`).

        Raises:
            RemoteProtocolError: the run's parameters are weaker than the policy.
            LocalProtocolError: not the identity pinned for this index, or another run's state.
        """
        policy.check(run)
        if not 0 <= index < run.parties:
            raise LocalProtocolError(f"Expected index 0 to {run.parties - 1}, got {index}.")
        if policy.identities[index] != signing_public(identity):
            raise LocalProtocolError(
                f"Expected the identity pinned for party {index}, got another."
            )
        if state is not None and (state.index != index or state.run != run):
            raise LocalProtocolError("Expected the state of this party and run, got another.")
        self._policy, self._identity, self._entropy = policy, identity, entropy
        self._work = work or EdgeWork()
        self.state = state or PartyState(run=run, index=index)

    def __repr__(self) -> str:
        return f"<Party {self.state.index}: {self.state.phase.name}>"

    def __reduce__(self) -> str:
        raise TypeError("Expected PartyState.to_bytes, got pickle: it would copy secrets unseen.")

    def advertise(self) -> bytes:
        """NEW → ADVERTISED: the signed key of the run.

        Raises:
            LocalProtocolError: not NEW.
        """
        state = self.state
        if state.phase is not Phase.NEW:
            raise LocalProtocolError(f"Expected to advertise while NEW, got {state.phase.name}.")
        state.private_key = self._entropy(SECRET_BYTES)
        identity, key = self._policy.identities[state.index], public_key(state.private_key)
        signature = sign(self._identity, advertised(state.run, state.index, identity, key))
        state.phase = Phase.ADVERTISED
        return encode(
            state.run,
            Advertise(
                sender=state.index,
                round_number=0,
                identity=identity,
                key=key,
                signature=signature,
            ),
        )

    def on_roster(self, data: Bytes) -> None:
        """ADVERTISED → IDLE: verify the neighbours' signed keys, agree on pair secrets.

        Raises:
            RemoteProtocolError: forged, repeated or weak keys, or too few parties.
        """
        state, run = self.state, self.state.run
        self._expect("a roster", Phase.ADVERTISED)
        roster = decode(run, data, Roster)
        present = unpack_mask(roster.present, run.parties)
        graph = run.neighbours[state.index]
        near: list[int] = graph[present[graph]].tolist()
        if not present[state.index] or len(roster.entries) != _ENTRY * len(near):
            raise RemoteProtocolError(
                f"Expected party {state.index} itself and keys of {len(near)} neighbours in the "
                f"roster, got {len(roster.entries) // _ENTRY} keys."
            )
        _enough("present parties", int(present.sum()), self._least_survivors)
        _enough("neighbours", len(near), max(run.threshold, self._policy.minimum_degree))
        own = public_key(state.private_key)
        entries = [roster.entries[n * _ENTRY : (n + 1) * _ENTRY] for n in range(len(near))]
        if len({own, *(entry[:32] for entry in entries)}) != len(entries) + 1:
            raise RemoteProtocolError("Expected a different key of each party, got one repeated.")
        for j, entry in zip(near, entries, strict=True):
            identity = self._policy.identities[j]  # pinned, never the server's word
            statement = advertised(run, j, identity, entry[:32])
            if not self._work.verifies(identity, entry[32:], statement):
                raise RemoteProtocolError(
                    f"Expected a key signed by the pinned identity of party {j} for these "
                    "parameters, got a forged one."
                )
        exchanges = [(e[:32], pair_salt(run.fingerprint, own, e[:32])) for e in entries]
        try:
            state.chains = self._work.pair_secrets(state.private_key, exchanges)
        except ValueError:
            raise RemoteProtocolError("Expected keys of large order, got a weak one.") from None
        state.near, state.private_key = near, b""  # the chains are all that is needed from here
        state.phase = Phase.IDLE

    def prepare(self, number: int) -> bytes:
        """IDLE, MASKED or CONFIRMED, unchanged: secrets of a coming round, shared and sealed.

        May travel with an earlier message, so that a round needs no stage for it.

        Args:
            number: the round, above every round prepared before.

        Raises:
            LocalProtocolError: not joined yet, or optimistic mode, which shares nothing.
            RemoteProtocolError: a round number not above the last, or too far ahead.
        """
        state, run = self.state, self.state.run
        if state.phase < Phase.IDLE or run.mode is Mode.OPTIMISTIC:
            raise LocalProtocolError(
                f"Expected to prepare a robust round once joined, got {state.phase.name} in "
                f"{run.mode.value} mode."
            )
        prepared = self._ratchet(number)
        recovery = self._entropy(SECRET_BYTES)
        prepared.seed = self._entropy(SECRET_BYTES)
        graph: list[int] = run.neighbours[state.index].tolist()
        shares = split(prepared.seed + recovery, len(graph), run.threshold, self._entropy)
        by_neighbour = dict(zip(graph, shares, strict=True))
        me = state.index
        sealed = [
            seal(key, me, by_neighbour[j], bound(run, number, me, j))
            for j, key in zip(state.near, prepared.envelope_keys, strict=True)
        ]
        table = b"".join(prepared.pair_keys)
        message = Shares(
            sender=me,
            round_number=number,
            commitments=commitment(run, number, me, b"self", prepared.seed)
            + commitment(run, number, me, b"recovery", recovery),
            table=seal(table_key(recovery), me, table, bound(run, number, me, me)),
            envelopes=b"".join(sealed),
        )
        while len(state.prepared) >= 2:
            del state.prepared[min(state.prepared)]
        state.prepared[number] = prepared
        return encode(run, message)

    def _ratchet(self, number: int) -> Prepared:
        state = self.state
        skipped = number - state.chain_round
        if not 0 <= skipped <= MAX_SKIPPED_ROUNDS or number >= 2**32 - 1:
            raise RemoteProtocolError(
                f"Expected a round from {state.chain_round} to "
                f"{state.chain_round + MAX_SKIPPED_ROUNDS}, got {number}."
            )
        chains = state.chains
        for behind in range(state.chain_round, number):
            chains = [self._work.edge_keys(chain, behind)[0] for chain in chains]
        keys = [self._work.edge_keys(chain, number) for chain in chains]
        state.chains = [k[0] for k in keys]  # the chain that gave this round's keys is gone
        state.chain_round = number + 1
        return Prepared(
            seed=b"",
            pair_keys=[k[1] for k in keys],
            envelope_keys=[k[2] for k in keys],
            mac_keys=[k[3] for k in keys],
        )

    def on_plan(self, data: Bytes, vector: Ring, *, context: bytes) -> memoryview:
        """IDLE, MASKED or CONFIRMED → MASKED (robust) or IDLE (optimistic): the masked vector.

        A round that was open is over: it is erased and never answered again.

        Args:
            data: a Plan.
            vector: `[d]` ring elements.
            context: 32 bytes, the caller's digest of what it agreed to release in this round.

        Raises:
            RemoteProtocolError: a repeated round, another context or dimension, too few parties.
            LocalProtocolError: a vector of the wrong dtype or shape.
        """
        return self.start_round(data, vector, context=context).run()

    def start_round(self, data: Bytes, vector: Ring, *, context: bytes) -> MaskJob:
        """`on_plan` up to the masking itself, which a block does for all its parties at once."""
        state, run = self.state, self.state.run
        if vector.dtype != ring_dtype(run.ring_bits) or vector.ndim != 1:
            raise LocalProtocolError(
                f"Expected a vector [d] of {ring_dtype(run.ring_bits)}, got {vector.dtype} of "
                f"shape {vector.shape}."
            )
        self._expect("a plan", Phase.IDLE, Phase.MASKED, Phase.CONFIRMED)
        plan = decode(run, data, Plan)
        number = plan.round_number
        if number <= state.last_round:
            raise RemoteProtocolError(f"Expected a round above {state.last_round}, got {number}.")
        if plan.dimension != vector.size or plan.context != context:
            raise RemoteProtocolError(
                f"Expected dimension {vector.size} and the agreed context, got dimension "
                f"{plan.dimension} and {'that' if plan.context == context else 'another'}."
            )
        flags = unpack_mask(plan.participants, run.parties)
        members = np.flatnonzero(flags[state.near]).tolist() if state.near else []
        if not flags[state.index]:
            raise RemoteProtocolError(f"Expected party {state.index} among the participants.")
        _enough("participants", int(flags.sum()), self._least_survivors)
        _enough("participating neighbours", len(members), run.threshold)
        robust = run.mode is Mode.ROBUST
        if len(plan.envelopes) != robust * ENVELOPE_BYTES * len(members):
            raise RemoteProtocolError(
                f"Expected {robust * len(members)} envelopes, got "
                f"{len(plan.envelopes) // ENVELOPE_BYTES}."
            )
        if robust and number not in state.prepared:
            raise RemoteProtocolError(f"Expected a round that was prepared, got {number}.")
        prepared = state.prepared.pop(number) if robust else self._ratchet(number)
        for stale in [n for n in state.prepared if n < number]:
            del state.prepared[stale]
        agreed = plan_digest(run, plan)
        pair_keys = [self._work.mask_key(prepared.pair_keys[n], agreed) for n in members]
        job = MaskJob(
            VectorBuffer(header(run, Vector.kind, state.index, number), vector), prepared.seed
        )
        for n, key in zip(members, pair_keys, strict=True):
            (job.plus if state.index < state.near[n] else job.minus).append(key)
        state.last_round = number
        state.current = None
        state.phase = Phase.IDLE
        if robust:
            state.phase = Phase.MASKED
            state.current = OpenRound(
                number=number,
                plan_digest=agreed,
                participants=plan.participants,
                seed=prepared.seed,
                members=members,
                pair_keys=pair_keys,
                envelope_keys=[prepared.envelope_keys[n] for n in members],
                mac_keys=[prepared.mac_keys[n] for n in members],
                envelopes=plan.envelopes,
            )
        return job

    def on_survivors(self, data: Bytes) -> bytes:
        """MASKED → CONFIRMED with MACs over the list (active), or → IDLE with the reveal.

        Raises:
            RemoteProtocolError: not this round, or a list that is not a subset of the participants
                or leaves this party out. The round is erased.
            TooFewSurvivors: the list is below a minimum. The round is erased.
        """
        self._expect("a survivors' list", Phase.MASKED)
        current = self._current()
        message = decode(self.state.run, data, Survivors)
        try:
            self._check_round(message.round_number, current)
            survived = self._check_survivors(message.survivors, current)
            current.survivors = message.survivors
            if not self.state.run.active:
                return self._reveal(current, survived)
            statement = self._statement(current)
            me = self.state.index
            macs = [
                mac(current.mac_keys[at], statement + _way(me, j))
                for at, j in self._members(current)
                if survived[j]
            ]
        except (RemoteProtocolError, TooFewSurvivors):
            self.abandon()
            raise
        self.state.phase = Phase.CONFIRMED
        return encode(
            self.state.run,
            Confirm(sender=me, round_number=current.number, macs=b"".join(macs)),
        )

    def on_confirmations(self, data: Bytes) -> bytes:
        """CONFIRMED → IDLE: check the neighbours' MACs, then reveal. The round is erased.

        Raises:
            RemoteProtocolError: not this round, or a MAC over another list.
            TooFewSurvivors: fewer than the threshold confirmed.
        """
        self._expect("confirmations", Phase.CONFIRMED)
        current = self._current()
        message = decode(self.state.run, data, Confirmations)
        try:
            self._check_round(message.round_number, current)
            survived = unpack_mask(current.survivors, self.state.run.parties).tolist()
            self._check_confirmations(message, current, survived)
            return self._reveal(current, survived)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End the open round, if any: its secrets are erased and it is never answered again."""
        if self.state.phase > Phase.IDLE:
            self.state.phase, self.state.current = Phase.IDLE, None

    @property
    def _least_survivors(self) -> int:
        return max(self.state.run.minimum_survivors, self._policy.minimum_survivors)

    def _expect(self, what: str, *phases: Phase) -> None:
        if self.state.phase not in phases:
            names = " or ".join(phase.name for phase in phases)
            raise RemoteProtocolError(
                f"Expected {what} while {names}, got it while {self.state.phase.name}."
            )

    def _current(self) -> OpenRound:
        if self.state.current is None:
            raise LocalProtocolError("Expected an open round in the state, got none.")
        return self.state.current

    def _members(self, current: OpenRound) -> list[tuple[int, int]]:
        near = self.state.near
        return [(at, near[n]) for at, n in enumerate(current.members)]

    def _check_round(self, number: int, current: OpenRound) -> None:
        if number != current.number:
            raise RemoteProtocolError(f"Expected round {current.number}, got {number}.")

    def _check_survivors(self, survivors: bytes, current: OpenRound) -> list[bool]:
        run, state = self.state.run, self.state
        flags = unpack_mask(survivors, run.parties)
        if (flags & ~unpack_mask(current.participants, run.parties)).any():
            raise RemoteProtocolError("Expected survivors among the participants, got others.")
        if not flags[state.index]:
            raise RemoteProtocolError(f"Expected party {state.index}, which sent, to survive.")
        size = int(flags.sum())
        if size < self._least_survivors:
            raise TooFewSurvivors(f"Expected >= {self._least_survivors} survivors, got {size}.")
        listed: list[bool] = flags.tolist()
        alive = sum(listed[j] for _, j in self._members(current))
        if alive < run.threshold:
            raise TooFewSurvivors(f"Expected >= {run.threshold} surviving neighbours, got {alive}.")
        return listed

    def _statement(self, current: OpenRound) -> bytes:
        return digest(b"parley/survivors", current.plan_digest, current.survivors)

    def _check_confirmations(
        self, message: Confirmations, current: OpenRound, survived: list[bool]
    ) -> None:
        heard = unpack_mask(message.heard, self.state.run.degree).tolist()
        statement, me = self._statement(current), self.state.index
        at_mac = 0
        for at, j in self._members(current):
            if not heard[at]:
                continue
            got = message.macs[at_mac : at_mac + CONFIRMATION_BYTES]
            at_mac += CONFIRMATION_BYTES
            expected = mac(current.mac_keys[at], statement + _way(j, me))
            if not survived[j] or not mac_matches(expected, got):
                raise RemoteProtocolError(
                    f"Expected party {j} to confirm the same survivors' list, got another MAC."
                )
        if at_mac != len(message.macs) or any(heard[len(current.members) :]):
            raise RemoteProtocolError(
                f"Expected one MAC for each neighbour heard, got {len(message.macs)} bytes."
            )
        count = at_mac // CONFIRMATION_BYTES
        if count < self.state.run.threshold:
            raise TooFewSurvivors(
                f"Expected >= {self.state.run.threshold} confirming neighbours, got {count}."
            )

    def _reveal(self, current: OpenRound, survived: list[bool]) -> bytes:
        run, me = self.state.run, self.state.index
        opened, secrets = [False] * run.degree, []
        for at, j in self._members(current):
            sealed = current.envelopes[at * ENVELOPE_BYTES : (at + 1) * ENVELOPE_BYTES]
            share = unseal(current.envelope_keys[at], j, sealed, bound(run, current.number, j, me))
            # One list decides, and each neighbour is in it or not: its b share or its c share.
            if survived[j]:
                secrets.append(share[:SECRET_BYTES] if share else _NO_SHARE)
            else:
                secrets.append(current.pair_keys[at])
                secrets.append(share[SECRET_BYTES:] if share else _NO_SHARE)
            opened[at] = share is not None
        message = Reveal(
            sender=me,
            round_number=current.number,
            seed=current.seed,
            opened=pack_mask(np.array(opened)),
            secrets=b"".join(secrets),
        )
        self.abandon()
        return encode(run, message)


def _way(sender: int, receiver: int) -> bytes:
    return struct.pack(">II", sender, receiver)


def _enough(what: str, got: int, least: int) -> None:
    if got < least:
        raise RemoteProtocolError(f"Expected >= {least} {what}, got {got}.")
