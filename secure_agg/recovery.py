"""What is left of the masks in a total once the survivors have revealed, and how it is found.

Survivors' self masks are in the total, and the masks of survivors with dropped parties. A self
seed comes from its owner, or from t shares of it; a pair key from the surviving end, or, where
that fell silent, from the dropped party's table, opened by t shares of its recovery secret.

Every share is held against its dealer's digest of it when it comes, so that what is combined is
true, however many others are garbage. Who dealt shares that don't combine is known, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parley.secure_agg.edges import mask_key
from parley.secure_agg.hybrid import pair_base, under_pad
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Reveal, Shares
from parley.secure_agg.outcome import SECRET_BYTES, SHARE_DIGEST_BYTES
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import share_digest, unseal
from parley.secure_agg.shamir import combine
from parley.secure_agg.statements import bound, commitment, table_key


class BadDealer(TooFewSurvivors):
    """A secret that is needed cannot be rebuilt, and it is its dealer's doing.

    Attributes:
        party: who shared out what is no secret, or shares that nobody could open.
    """

    def __init__(self, party: int, message: str) -> None:
        super().__init__(message)
        self.party = party


@dataclass(kw_only=True, repr=False)
class Recovery:
    """One round's end, as the server sees it.

    Attributes:
        run: parameters.
        number: the round.
        plan: digest of its plan.
        shares: what each participant shared before the round.
        slots: by party: neighbour to its place among those present, ascending.
        members: participating neighbours by participant.
        survivors: whose vectors are in the total.
        halves: in a hybrid run's first round, what came behind each survivor's vector: its halves
            of the masks with its members, each under that member's pad.
    """

    run: RunParameters
    number: int
    plan: bytes
    shares: dict[int, Shares]
    slots: list[dict[int, int]]
    members: dict[int, list[int]]
    survivors: set[int]
    halves: dict[int, bytes] = field(default_factory=dict)
    _seeds: dict[int, bytes] = field(default_factory=dict)
    _keys: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _true: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by dealer, by holder

    def take(self, reveal: Reveal) -> None:
        """Keeps what is true of what a survivor revealed.

        Shares that differ from their dealers' digests are left out. A few may be the dealers'
        fault; more than c of them, or a self seed that is not its own, are the sender's.

        Raises:
            RemoteProtocolError: of another length, a false self seed, or more than c false shares.
                Nothing of it is kept.
        """
        sender, members = reveal.sender, self.members.get(reveal.sender, [])
        surviving = sum(j in self.survivors for j in members)
        expected = SECRET_BYTES * (2 * len(members) - surviving)
        if len(reveal.secrets) != expected:
            raise RemoteProtocolError(
                f"Expected {expected} bytes of secrets from party {sender}, got "
                f"{len(reveal.secrets)}."
            )
        if not self._is_secret(sender, b"self", reveal.seed):
            raise RemoteProtocolError(
                f"Expected the self seed that party {sender} committed to, got one that it did not."
            )
        opened = np.unpackbits(np.frombuffer(reveal.opened, dtype=np.uint8)).tolist()
        keys, shares, false, at = {}, {}, 0, 0
        for n, j in enumerate(members):
            if j not in self.survivors:
                keys[sender, j] = reveal.secrets[at : at + SECRET_BYTES]
                at += SECRET_BYTES
            share = reveal.secrets[at : at + SECRET_BYTES]
            at += SECRET_BYTES
            if opened[n] and share_digest(share) == self._digest(j, sender):
                shares[j] = share
            else:
                false += opened[n]
        if false > self.run.corrupt:  # so many dealers cannot all have lied
            raise RemoteProtocolError(
                f"Expected true shares from party {sender}, got {false} false ones."
            )
        self._seeds[sender] = reveal.seed
        self._keys |= keys
        for j, share in shares.items():
            self._true.setdefault(j, {})[sender] = share

    def masks_left(self) -> tuple[list[bytes], list[bytes]]:
        """Keys whose masks are to be added to and to be subtracted from the total.

        Raises:
            TooFewSurvivors: fewer than t true shares of a secret that is needed; `BadDealer`
                where its dealer is to blame.
        """
        plus: list[bytes] = []
        minus: list[bytes] = []
        for i in sorted(self.survivors):
            seed = self._seeds.get(i)
            minus.append(self._rebuild(i, b"self") if seed is None else seed)
        for i in sorted(set(self.members) - self.survivors):
            table: dict[int, bytes] | None = None
            for j in self.members[i]:
                if j not in self.survivors:
                    continue
                key = self._keys.get((j, i))
                if key is None:
                    table = self._table(i) if table is None else table
                    key = mask_key(self._base(i, j, table[j]), self.plan)
                # Survivor j's vector has + this mask where j < i.
                (minus if j < i else plus).append(key)
        return plus, minus

    def _is_secret(self, party: int, which: bytes, secret: bytes) -> bool:
        """Whether a secret is the one that a party committed to; `which` is self or recovery."""
        commitments = self.shares[party].commitments
        expected = commitments[:SECRET_BYTES] if which == b"self" else commitments[SECRET_BYTES:]
        return commitment(self.run, self.number, party, which, secret) == expected

    def _digest(self, dealer: int, holder: int) -> bytes:
        """What the dealer said of the one share that the holder may reveal."""
        place = 2 * self.slots[dealer][holder] + (dealer not in self.survivors)
        at = SHARE_DIGEST_BYTES * place
        return self.shares[dealer].digests[at : at + SHARE_DIGEST_BYTES]

    def _rebuild(self, party: int, which: bytes) -> bytes:
        given, threshold = self._true.get(party, {}), self.run.threshold
        shares = {
            x: given[holder]
            for x, holder in enumerate(self.run.neighbours[party].tolist(), start=1)
            if holder in given
        }
        if len(shares) < threshold:
            without = sum(j in self._seeds for j in self.members[party]) - len(shares)
            said = (
                f"Expected >= {threshold} true shares of a secret of party {party}, got "
                f"{len(shares)}."
            )
            if without > self.run.corrupt:  # so many holders cannot all have lied
                raise BadDealer(party, said)
            raise TooFewSurvivors(said)
        secret = combine(dict(list(shares.items())[:threshold]))
        if not self._is_secret(party, which, secret):
            raise BadDealer(party, f"Expected party {party} to have shared out one of its secrets.")
        return secret

    def _base(self, dropped: int, survivor: int, entry: bytes) -> bytes:
        """The base of a pair's mask, from the dropped party's entry about it.

        Where pair secrets were not whole when it was made it has the dropped party's half, and the
        pad under which the survivor sent its own.
        """
        if not self.run.unpaired(self.number):
            return entry
        half, pad = entry[:SECRET_BYTES], entry[SECRET_BYTES:]
        at = SECRET_BYTES * self.members[survivor].index(dropped)
        other = under_pad(self.halves[survivor][at : at + SECRET_BYTES], pad)
        return pair_base(*((half, other) if dropped < survivor else (other, half)))

    def _table(self, party: int) -> dict[int, bytes]:
        key = table_key(self._rebuild(party, b"recovery"))
        where = bound(self.run, self.number, party, party)
        table = unseal(key, party, self.shares[party].table, where)
        slots = self.slots[party]
        size = SECRET_BYTES * (1 + self.run.unpaired(self.number))
        if table is None or len(table) != size * len(slots):
            raise BadDealer(party, f"Expected a true table of party {party}, got garbage.")
        return {j: table[n * size : (n + 1) * size] for j, n in slots.items()}
