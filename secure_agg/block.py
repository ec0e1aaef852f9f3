"""B parties of one process, served at once; bit for bit the same as B separate ones.

They share the work of the edges between them (`edges.SharedEdgeWork`), and each such edge's mask is
expanded once: added to one vector, subtracted from the other. A block of one is a party alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from parley.secure_agg.edges import EdgeWork, SharedEdgeWork
from parley.secure_agg.encoding import Ring
from parley.secure_agg.interface import LocalProtocolError
from parley.secure_agg.masking import MaskJob
from parley.secure_agg.masks import add_shared_masks
from parley.secure_agg.messages import Bytes
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.parameters import Policy, RunParameters
from parley.secure_agg.primitives import Entropy

SHARED_BYTES = 1 << 27
"""Above this many bytes of vectors a block masks party by party: twice the keystream, but memory
for one vector instead of B."""


class Block:
    """Parties by index; messages in and out are `{index: bytes}`."""

    def __init__(
        self,
        *,
        run: RunParameters,
        policy: Policy,
        identities: Mapping[int, bytes],
        entropy: Entropy,
        nonces: Mapping[int, bytes] | None = None,
        shared: bool = True,
        shared_bytes: int = SHARED_BYTES,
    ) -> None:
        """Parties before their first message.

        Args:
            nonces: what each committed to, where the graph is not complete.
            shared: False: every party does all its work itself, as if it were alone.
            shared_bytes: most bytes of vectors for which edges' masks are expanded once.
        """
        self._shared = SharedEdgeWork() if shared and len(identities) > 1 else None
        self._shared_bytes = shared_bytes
        work = self._shared or EdgeWork()
        committed = nonces or {}
        self.parties = {
            i: Party(
                run=run,
                policy=policy,
                index=i,
                identity=identity,
                entropy=entropy,
                nonce=committed.get(i, b""),
                work=work,
            )
            for i, identity in sorted(identities.items())
        }

    def advertise(self) -> list[bytes]:
        """Every party's advert."""
        return [party.advertise() for party in self.parties.values()]

    def on_rosters(
        self, rosters: Iterable[tuple[int, Bytes]], nonces: Bytes = b""
    ) -> Iterator[bytes]:
        """Every party joins; its ciphertexts, in a hybrid run, one party's after the other."""
        for i, roster in rosters:
            if message := self.parties[i].on_roster(roster, nonces):
                yield message
        self._forget()

    def on_ciphertexts(self, messages: Iterable[tuple[int, Bytes]]) -> list[bytes]:
        """Pair secrets are whole, party by party; complaints, if there are any."""
        answers = [self.parties[i].on_ciphertexts(message) for i, message in messages]
        self._forget()
        if self._shared is not None:
            self._shared.forget_ciphertexts()
        return [answer for answer in answers if answer]

    def prepare(self, number: int) -> Iterator[bytes]:
        """Every party's shares of a round, one party's after the other."""
        for party in self.parties.values():
            yield party.prepare(number)
        self._forget()

    def on_plans(
        self, plans: Mapping[int, Bytes], vectors: Mapping[int, Ring], *, size: int, context: bytes
    ) -> Iterator[Bytes]:
        """Masked vectors of the parties of `plans`, one after the other."""
        chosen = [i for i in plans if i in vectors]
        if self._shared is None or size * len(chosen) > self._shared_bytes:
            for i in chosen:
                yield self.parties[i].on_plan(plans[i], vectors[i], context=context)
        else:
            jobs = [
                self.parties[i].start_round(plans[i], vectors[i], context=context) for i in chosen
            ]
            _mask_together(jobs)
            for job in jobs:
                yield job.message
        self._forget()

    def abandon(self) -> None:
        """End the open round of every party."""
        for party in self.parties.values():
            party.abandon()

    def _forget(self) -> None:
        if self._shared is not None:
            self._shared.clear()


def _mask_together(jobs: list[MaskJob]) -> None:
    """Mask B vectors; a key that one adds and another subtracts is expanded once."""
    if len({job.words.size for job in jobs}) > 1:
        raise LocalProtocolError("Expected vectors of one dimension in a block, got several.")
    adds = {key: n for n, job in enumerate(jobs) for key in job.plus}
    edges = [(adds[key], n, key) for n, job in enumerate(jobs) for key in job.minus if key in adds]
    paired = {key for _, _, key in edges}
    alone = [(n, 1, key) for key, n in adds.items() if key not in paired]
    alone += [(n, -1, key) for n, job in enumerate(jobs) for key in job.minus if key not in paired]
    add_shared_masks([job.words for job in jobs], alone, edges)
