"""`ServerRound`: one round's sum on the server, from masked vectors to a total.

Masked vectors are added when they arrive and not stored. Each message is checked on arrival. A
message that breaks the protocol raises, names its sender and changes nothing.

After the survivors have revealed, the total still contains their self masks and their masks with
dropped parties. A self seed comes from its owner, or from t shares of it. A pair key comes from the
surviving end. If that end fell silent, the key comes from the dropped party's table, opened with t
shares of its recovery secret. Each share is compared with its dealer's digest on arrival, so that
only true shares are combined, however many others are garbage. A dealer whose shares do not combine
is identified, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.encoding import Ring, get_ring_dtype
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.mask_expansion import add_masks
from parley.secure_agg.messages import (
    SERVER,
    Confirm,
    Confirmations,
    Message,
    Reveal,
    RoundShares,
    RoundStart,
    Survivors,
    Vector,
    encode,
)
from parley.secure_agg.pair_keys import apply_pad, derive_mask_key, derive_pair_base
from parley.secure_agg.predicted_outcome import (
    ENVELOPE_BYTES,
    SECRET_BYTES,
    SHARE_DIGEST_BYTES,
    pack_mask,
)
from parley.secure_agg.primitives import compute_share_digest, is_valid_signature, unseal
from parley.secure_agg.protocol_digests import (
    compute_commitment,
    compute_plan_digest,
    derive_table_key,
    digest_survivors,
    encode_binding,
)
from parley.secure_agg.protocol_parameters import RunParameters, is_before_pairing
from parley.secure_agg.shamir import combine


class ServerPhase(IntEnum):
    """Phase of the server."""

    JOINING = 0
    READY = 1
    VECTORS = 2
    CONFIRMING = 3
    UNMASKING = 4


class BadDealer(TooFewSurvivors):
    """A required secret cannot be rebuilt, and its dealer is to blame.

    `party` shared something that is not its secret, or shares that no holder could open.
    """

    def __init__(self, party: int, message: str) -> None:
        super().__init__(message)
        self.party = party


@dataclass(kw_only=True, repr=False)
class ServerRound:
    """A round from its plan to its total.

    Attributes:
        context: 32 bytes, what the application agreed to release.
        members: participating neighbours by participant.
        slots: by party: position of each neighbour among those present, ascending.
        shares: what each participant shared before the round.
        arrived: parties whose vectors are in the total: the survivors.
        signatures: signatures of the survivors' list, by party.
    """

    run: RunParameters
    number: int
    dimension: int
    context: bytes
    members: dict[int, list[int]]
    slots: list[dict[int, int]]
    shares: dict[int, RoundShares]
    arrived: set[int] = field(default_factory=set)
    signatures: dict[int, bytes] = field(default_factory=dict)
    # In a run's first round: the halves after each survivor's vector, for its masks with its
    # members, each under that member's pad.
    _halves: dict[int, bytes] = field(default_factory=dict)
    _seeds: dict[int, bytes] = field(default_factory=dict)  # by party that revealed
    _keys: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by survivor and dropped
    # Shares, by holder and dealer.
    _true_shares: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _true_counts: dict[int, int] = field(default_factory=dict)  # number of them, by dealer

    def __post_init__(self) -> None:
        plan = RoundStart(
            sender=SERVER,
            round_number=self.number,
            dimension=self.dimension,
            context=self.context,
            participants=self._pack_parties(self.members),
            envelopes=b"",
        )
        self.head, self._plan = encode(self.run, plan), compute_plan_digest(self.run, plan)
        self._total: Ring = np.zeros(self.dimension, dtype=get_ring_dtype(self.run.ring_bits))

    def build_plans(self) -> dict[int, bytes]:
        """Build the RoundStart for each participant."""
        return {i: self.head + self._collect_envelopes(i) for i in self.members}

    def _collect_envelopes(self, receiver: int) -> bytes:
        pieces = []
        for j in self.members[receiver]:
            at = self.slots[j][receiver] * ENVELOPE_BYTES
            pieces.append(self.shares[j].envelopes[at : at + ENVELOPE_BYTES])
        return b"".join(pieces)

    def add_vector(self, message: Vector) -> None:
        """Add a masked vector to the total."""
        sender, size = message.sender, self._total.nbytes
        _check_first(message, self.arrived)
        halves = SECRET_BYTES * is_before_pairing(self.number)
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

    def build_survivors_list(self) -> bytes:
        """Build the Survivors message: the parties whose vectors are in the total."""
        survivors = self._pack_parties(self.arrived)
        message = Survivors(sender=SERVER, round_number=self.number, survivors=survivors)
        return encode(self.run, message)

    def add_confirmation(self, message: Confirm, identity: bytes) -> None:
        """Check and store a survivor's signature of the list."""
        self._check_survivor(message, self.signatures)
        statement = digest_survivors(self._plan, self._pack_parties(self.arrived))
        if not is_valid_signature(identity, message.signature, statement):
            raise RemoteProtocolError(
                f"Expected party {message.sender} to sign the survivors' list, got another "
                "signature."
            )
        self.signatures[message.sender] = message.signature

    def build_confirmations(self, max_signers: int | None = None) -> bytes:
        """Build the Confirmations with at most `max_signers` signatures; None: with all of them."""
        signers = sorted(self.signatures)[:max_signers]
        packed, signed = self._pack_parties(signers), b"".join(self.signatures[i] for i in signers)
        message = Confirmations(
            sender=SERVER, round_number=self.number, signers=packed, signatures=signed
        )
        return encode(self.run, message)

    def add_reveal(self, message: Reveal) -> None:
        """Store the true secrets of a survivor's reveal.

        Shares that differ from their dealers' digests are left out. A few can be the dealers'
        fault. More than c of them, or a self seed that is not the sender's, are the sender's fault.
        """
        self._check_survivor(message, self._seeds)
        sender, members = message.sender, self.members[message.sender]
        surviving = sum(j in self.arrived for j in members)
        expected = SECRET_BYTES * (2 * len(members) - surviving)
        if len(message.secrets) != expected:
            raise RemoteProtocolError(
                f"Expected {expected} secret bytes from party {sender}, got {len(message.secrets)}."
            )
        if not self._is_secret(sender, b"self", message.seed):
            raise RemoteProtocolError(
                f"Expected the self seed that party {sender} committed to, got another one."
            )
        opened = np.unpackbits(np.frombuffer(message.opened, dtype=np.uint8)).tolist()
        keys, revealed = {}, _split_secrets(message.secrets)
        if surviving < len(members):
            secrets, revealed = iter(revealed), []
            for j in members:
                if j not in self.arrived:
                    keys[sender, j] = next(secrets)
                revealed.append(next(secrets))
        digests = self._find_share_digests(sender)
        shares = {
            j: share
            for j, share, digest, is_open in zip(members, revealed, digests, opened, strict=False)
            if is_open and compute_share_digest(share) == digest
        }
        false = sum(opened[: len(members)]) - len(shares)
        if false > self.run.corrupt:  # more dealers than c cannot all have lied
            raise RemoteProtocolError(f"Expected true shares of party {sender}, got {false} false.")
        self._seeds[sender] = message.seed
        self._keys |= keys
        self._true_shares[sender] = shares
        for j in shares:
            self._true_counts[j] = self._true_counts.get(j, 0) + 1

    def can_be_opened_by(self, parties: Collection[int]) -> bool:
        """Return whether the sum opens if these parties reveal, with true shares, and no other."""
        reveals = np.isin(np.arange(self.run.parties), list(parties))
        return self._can_open(reveals, reveals[self.run.neighbours].sum(axis=1))

    def can_be_opened(self) -> bool:
        """Return whether the reveals so far open the sum. False shares do not count."""
        numbers = np.arange(self.run.parties)
        shares = np.array([self._true_counts.get(j, 0) for j in numbers.tolist()])
        return self._can_open(np.isin(numbers, list(self._seeds)), shares)

    def _can_open(self, reveals: NDArray[np.bool_], shares: NDArray[np.int64]) -> bool:
        """Return whether the sum opens if `reveals` `[m]` and there are `shares` `[m]` by dealer.

        A secret is rebuilt from t shares: the self seed of a survivor that does not reveal, and the
        table of a dropped party if one of its surviving neighbours does not reveal.
        """
        numbers, near = np.arange(self.run.parties), self.run.neighbours
        arrived, asked = (np.isin(numbers, list(some)) for some in (self.arrived, self.members))
        revealing, surviving = reveals[near].sum(axis=1), arrived[near].sum(axis=1)
        incomplete = np.where(arrived, ~reveals, asked & (revealing < surviving))
        return not (incomplete & (shares < self.run.threshold)).any()

    def compute_total(self) -> Ring:
        """Return `[d]`, the survivors' sum."""
        add_masks(self._total, *self._collect_remaining_keys())
        return self._total

    def _collect_remaining_keys(self) -> tuple[list[bytes], list[bytes]]:
        """Return the keys whose masks must be added to the total, and those to be subtracted."""
        plus: list[bytes] = []
        minus: list[bytes] = []
        for i in sorted(self.arrived):
            seed = self._seeds.get(i)
            minus.append(self._rebuild(i, b"self") if seed is None else seed)
        for i in sorted(set(self.members) - self.arrived):
            table: dict[int, bytes] | None = None
            for j in self.members[i]:
                if j not in self.arrived:
                    continue
                key = self._keys.get((j, i))
                if key is None:
                    table = self._recover_table(i) if table is None else table
                    key = derive_mask_key(self._recover_base(i, j, table[j]), self._plan)
                # Survivor j's vector contains + this mask if j < i.
                (minus if j < i else plus).append(key)
        return plus, minus

    def _is_secret(self, party: int, kind: bytes, secret: bytes) -> bool:
        """Return whether a party committed to this secret; `kind` is self or recovery."""
        own, recovery = _split_secrets(self.shares[party].commitments)
        expected = own if kind == b"self" else recovery
        return compute_commitment(self.run, self.number, party, kind, secret) == expected

    def _find_share_digests(self, holder: int) -> list[bytes]:
        """Return each dealer's digest of the one share that the holder may reveal."""
        size, slots, shares, arrived = SHARE_DIGEST_BYTES, self.slots, self.shares, self.arrived
        found = []
        for dealer in self.members[holder]:
            at = size * (2 * slots[dealer][holder] + (dealer not in arrived))
            found.append(shares[dealer].digests[at : at + size])
        return found

    def _rebuild(self, party: int, kind: bytes) -> bytes:
        given, threshold = self._true_shares, self.run.threshold
        shares = {
            x: given[holder][party]
            for x, holder in enumerate(self.run.neighbours[party].tolist(), start=1)
            if holder in given and party in given[holder]
        }
        if len(shares) < threshold:
            without = sum(j in self._seeds for j in self.members[party]) - len(shares)
            message = (
                f"Expected >= {threshold} true shares of a secret of party {party}, got "
                f"{len(shares)}."
            )
            if without > self.run.corrupt:  # more holders than c cannot all have lied
                raise BadDealer(party, message)
            raise TooFewSurvivors(message)
        secret = combine(dict(list(shares.items())[:threshold]))
        if not self._is_secret(party, kind, secret):
            raise BadDealer(
                party, f"Expected shares of the secret that party {party} committed to, got others."
            )
        return secret

    def _recover_base(self, dropped: int, survivor: int, entry: bytes) -> bytes:
        """Return the base of a pair's mask, from the dropped party's table entry for the pair.

        An entry of round 1 was made before pair secrets were complete. It contains the dropped
        party's half and the pad under which the survivor sent its own half.
        """
        if not is_before_pairing(self.number):
            return entry
        half, pad = _split_secrets(entry)
        sent = _split_secrets(self._halves[survivor])[self.members[survivor].index(dropped)]
        other = apply_pad(sent, pad)
        return derive_pair_base(*((half, other) if dropped < survivor else (other, half)))

    def _recover_table(self, party: int) -> dict[int, bytes]:
        key = derive_table_key(self._rebuild(party, b"recovery"))
        where = encode_binding(self.run, self.number, party, party)
        table = unseal(key, party, self.shares[party].table, where)
        slots = self.slots[party]
        size = SECRET_BYTES * (1 + is_before_pairing(self.number))
        if table is None or len(table) != size * len(slots):
            raise BadDealer(party, f"Expected a valid table from party {party}, got another.")
        return {j: table[n * size : (n + 1) * size] for j, n in slots.items()}

    def _check_survivor(self, message: Message, received: Iterable[int]) -> None:
        _check_first(message, received)
        if message.sender not in self.arrived:
            raise RemoteProtocolError(
                f"Expected {type(message).__name__} from a survivor, got it from party "
                f"{message.sender}."
            )

    def _pack_parties(self, parties: Iterable[int]) -> bytes:
        flags = np.zeros(self.run.parties, dtype=bool)
        flags[list(parties)] = True
        return pack_mask(flags)


def _split_secrets(secrets: bytes) -> list[bytes]:
    """Split into pieces of 32 bytes."""
    return [secrets[at : at + SECRET_BYTES] for at in range(0, len(secrets), SECRET_BYTES)]


def _check_first(message: Message, received: Iterable[int]) -> None:
    if message.sender in received:
        raise RemoteProtocolError(
            f"Expected one {type(message).__name__} from party {message.sender}, got two."
        )
