"""What is left of the masks in a total once the survivors have revealed, and how it is found.

Survivors' self masks are in the total, and the masks of survivors with dropped parties. A self
seed comes from its owner, or from t shares of it; a pair key from the surviving end, or, where
that fell silent, from the dropped party's table, opened by t shares of its recovery secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from secure_agg.edges import mask_key
from secure_agg.interface import TooFewSurvivors
from secure_agg.messages import Reveal, Shares
from secure_agg.outcome import SECRET_BYTES
from secure_agg.parameters import RunParameters
from secure_agg.primitives import unseal
from secure_agg.shamir import recover
from secure_agg.statements import bound, commitment, table_key

__all__ = ["Recovery"]


@dataclass(kw_only=True, repr=False)
class Recovery:
    """One round's end, as the server sees it.

    Attributes:
        run: parameters.
        number: the round.
        plan: digest of its plan.
        shares: what each participant shared before the round.
        near: present neighbours by party.
        members: participating neighbours by participant.
        survivors: whose vectors are in the total.
        reveals: what survivors revealed.
    """

    run: RunParameters
    number: int
    plan: bytes
    shares: dict[int, Shares]
    near: list[list[int]]
    members: dict[int, list[int]]
    survivors: set[int]
    reveals: dict[int, Reveal]
    _index: dict[int, dict[int, tuple[int, bool]]] = field(default_factory=dict)

    def masks_left(self) -> tuple[list[bytes], list[bytes]]:
        """Keys whose masks are to be added to and to be subtracted from the total.

        Raises:
            TooFewSurvivors: fewer than t true shares of a secret that is needed.
        """
        plus: list[bytes] = []
        minus: list[bytes] = []
        for i in sorted(self.survivors):
            reveal = self.reveals.get(i)
            if reveal is not None and self.is_secret(i, b"self", reveal.seed):
                minus.append(reveal.seed)
            else:
                minus.append(self._rebuild(i, b"self"))
        for i in sorted(set(self.members) - self.survivors):
            table: dict[int, bytes] | None = None
            for j in self.members[i]:
                if j not in self.survivors:
                    continue
                key = self._pair_key(j, i)
                if key is None:
                    table = self._table(i) if table is None else table
                    key = mask_key(table[j], self.plan)
                # Survivor j's vector has + this mask where j < i.
                (minus if j < i else plus).append(key)
        return plus, minus

    def is_secret(self, party: int, which: bytes, secret: bytes) -> bool:
        """Whether a secret is the one that a party committed to; `which` is self or recovery."""
        commitments = self.shares[party].commitments
        expected = commitments[:SECRET_BYTES] if which == b"self" else commitments[SECRET_BYTES:]
        return commitment(self.run, self.number, party, which, secret) == expected

    def _rebuild(self, party: int, which: bytes) -> bytes:
        shares = {
            x: share
            for x, holder in enumerate(self.run.neighbours[party].tolist(), start=1)
            if (share := self._share(holder, party)) is not None
        }
        threshold = self.run.threshold
        secret = recover(shares, threshold, lambda s: self.is_secret(party, which, s))
        if secret is None:
            raise TooFewSurvivors(
                f"Expected >= {threshold} true shares of a secret of party {party}, got "
                f"{len(shares)} shares that do not give it."
            )
        return secret

    def _table(self, party: int) -> dict[int, bytes]:
        key = table_key(self._rebuild(party, b"recovery"))
        where = bound(self.run, self.number, party, party)
        table = unseal(key, party, self.shares[party].table, where)
        near = self.near[party]
        if table is None or len(table) != SECRET_BYTES * len(near):
            raise TooFewSurvivors(f"Expected a true table of party {party}, got garbage.")
        return {j: table[at * SECRET_BYTES : (at + 1) * SECRET_BYTES] for at, j in enumerate(near)}

    def _pair_key(self, holder: int, about: int) -> bytes | None:
        found = self._find(holder, about)
        return None if found is None else found[0][:SECRET_BYTES]

    def _share(self, holder: int, about: int) -> bytes | None:
        found = self._find(holder, about)
        return found[0][-SECRET_BYTES:] if found is not None and found[1] else None

    def _find(self, holder: int, about: int) -> tuple[bytes, bool] | None:
        """What a holder revealed about a neighbour, and whether it could open the share."""
        reveal = self.reveals.get(holder)
        if reveal is None:
            return None
        index = self._index.get(holder)
        if index is None:
            flags = np.unpackbits(np.frombuffer(reveal.opened, dtype=np.uint8)).tolist()
            index, at = {}, 0
            for n, j in enumerate(self.members[holder]):
                index[j] = (at, bool(flags[n]))
                at += self._entry(j)
            self._index[holder] = index
        if about not in index:
            return None
        at, given = index[about]
        return reveal.secrets[at : at + self._entry(about)], given

    def _entry(self, about: int) -> int:
        return SECRET_BYTES if about in self.survivors else 2 * SECRET_BYTES
