"""Run trials by the thousand: W federations as one block, through the product's own round.

A trial (a world, in names) is one federation of m parties. W trials are one block of W·m parties,
so that no algorithm is written twice. A party's session answers (checks, local computation,
weights, encoding), the ring adds up each trial's parties, the plan draws the server's noise, the
algorithm updates `[W, d]`. A chunk of trials is bounded by its bytes; only what an attacker
computes from it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Contribution
from parley.client.algorithms.party_sampling import EVERYONE
from parley.client.algorithms.registry import needs_sum
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import AuditTarget
from parley.simulations.audit.canary_pool import Block, compute_bytes, reorder_records, repeat_world
from parley.simulations.audit.neighbouring_worlds import NeighbouringWorlds

_CHUNK_BYTES = 16 << 20
"""Size of a chunk's trials; four times as much for up to `_ENOUGH` of them, because a call is
costly.
"""

_ENOUGH, _LARGEST_CHUNK = 1_000, 20_000

_COMPARED_WORLDS = 3
"""Number of trials that are computed, and compared to the bit."""

_POLICY = RefusalRules(units=frozenset(Unit), neighbouring=frozenset(Neighbouring))


@dataclass(frozen=True, kw_only=True)
class WorldRandomness:
    """Randomness of every chunk of trials: from the operating system, or from a seed and names.

    Attributes:
        names: of the audit, the attack, the trial and the purpose.
    """

    seed: int | None
    names: tuple[str | int, ...] = ()

    def with_names(self, *names: str | int) -> WorldRandomness:
        """Return the randomness with more names."""
        return replace(self, names=(*self.names, *names))

    def get_chunk(self, number: int) -> Randomness:
        """Return the randomness of one chunk; no two chunks share a stream."""
        if self.seed is None:
            return Randomness.from_entropy()
        named = repr((self.seed, *self.names, number)).encode()
        return Randomness.from_seed(int.from_bytes(hashlib.sha256(named).digest()[:8], "big"))


def simulate_releases(
    target: AuditTarget,
    worlds: NeighbouringWorlds,
    *,
    inside: bool,
    count: int,
    source: WorldRandomness,
) -> Iterator[NDArray[np.float64]]:
    """Yield chunks `[W, T, d]` of `count` trials' releases: noisy sums, in the contribution's unit.

    They cover the parties that are not on the attacker's side, without the server's noise if the
    claim holds against the server.
    """
    world = worlds.inside if inside else worlds.outside
    size = _compute_chunk_size(target, world)
    for number, first in enumerate(range(0, count, size)):
        block: Any = repeat_world(world, min(size, count - first))
        yield _run_rounds(target, block, world.parties, source.get_chunk(number), worlds)[0]


def train_models(
    target: AuditTarget, world: Callable[[int], PartyBlock], count: int, source: WorldRandomness
) -> NDArray[np.float64]:
    """Return `[count, d]` the released models of that many federations, each trained to the end.

    Args:
        world: number of a trial → its parties.
    """
    # Parties of a network share the state that they train from: one trial at a time.
    size = _compute_chunk_size(target, world(0)) if target.learner.cheap else 1
    found = []
    for number, first in enumerate(range(0, count, size)):
        own = [world(at) for at in range(first, min(first + size, count))]
        block, randomness = _concatenate_worlds(own), source.get_chunk(number)
        _, state = _run_rounds(target, block, own[0].parties, randomness, None)
        found.append(np.atleast_2d(target.algorithm.model_of(state)))
    return np.concatenate(found)


def _concatenate_worlds(worlds: list[PartyBlock]) -> PartyBlock:
    sizes = np.concatenate([each.sizes for each in worlds])
    return PartyBlock(
        features=np.concatenate([each.features for each in worlds]),
        labels=np.concatenate([each.labels for each in worlds]),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )


def _compute_chunk_size(target: AuditTarget, world: Block) -> int:
    own = compute_bytes(world) + 64 * target.plan.dimension * world.parties
    own += 8 * target.plan.dimension * (target.sums + 8)
    size = max(_CHUNK_BYTES // own, min(4 * _CHUNK_BYTES // own, _ENOUGH))
    return max(1, min(size, _LARGEST_CHUNK))


def _run_rounds(
    target: AuditTarget,
    block: PartyBlock,
    parties: int,
    randomness: Randomness,
    worlds: NeighbouringWorlds | None,
) -> tuple[NDArray[np.float64], State]:
    """Return the releases of a chunk of trials, `[W, T, d]`, and their final state.

    Args:
        worlds: the data set that all trials share, and what is sent to them; None: trials differ,
            and train on from their own state.
    """
    algorithm, encoding = target.algorithm, target.plan.encoding
    own: Any = algorithm
    if worlds is not None and not target.draws_in_training:
        own = IdenticalParties(algorithm, parties)
    session = PartySession(block=block, algorithm=own, rules=_POLICY, randomness=randomness)
    count, sent = block.parties // parties, None if worlds is None else worlds.get_sent_state
    released = np.empty((count, target.sums, target.plan.dimension))
    state = algorithm.init() if worlds is None else worlds.start
    for number in range(1, target.sums + 1):
        plan = target.get_plan(number)
        given = sent(number) if sent else state
        encoded, weights = _collect_responses(session, plan, given, parties)
        summed = np.add.reduce(encoded[:, : target.summed], axis=1, dtype=encoding.dtype)
        total = encoding.decode(summed)
        if not target.before_server:
            stream = randomness.open_server_noise(plan.round_number, plan.step)
            total = total + plan.draw_many(count, stream)
        released[:, number - 1] = seen = encoding.to_float(total)
        if sent is None:
            if not needs_sum(algorithm):
                seen = seen / weights.reshape(count, parties).sum(axis=1)[:, None]
            state = algorithm.update(state, seen if target.learner.cheap else seen[0])
    return released, state


def _collect_responses(
    session: PartySession, plan: ReleasePlan, state: State, parties: int
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.float64]]:
    """Return ring elements `[W, m, d]` of all trials' parties, and the parties' weights `[W·m]`."""
    if state["theta"].ndim > 1:  # Each trial's θ `[W, d]`, for each of its parties.
        state = {**state, "theta": np.repeat(state["theta"], parties, axis=0)}
    answer = session.answer(plan, state)
    if answer.refused or answer.failed:
        why = next(iter(answer.refused.values()), "no certificate")
        raise AuditError(f"Expected every party of every trial to answer, got: {why}.")
    return answer.encoded.reshape(-1, parties, plan.dimension), answer.weights


@dataclass(frozen=True)
class IdenticalParties:
    """The product's algorithm for a block of identical trials with a number of parties each.

    It serves responses that depend only on the public state and the records: they are computed in a
    few trials, compared, and repeated. What differs by party is still computed for each party: its
    coin for being in a sum, its weight, the grid and its share of the noise.
    """

    algorithm: Any
    parties: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.algorithm, name)

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Return the algorithm's result; compute all of it if states or a few trials' responses
        differ.
        """
        worlds = block.parties // self.parties
        attendance = getattr(self.algorithm, "attendance", None) or EVERYONE
        if state["theta"].ndim == 1 and worlds > _COMPARED_WORLDS:
            offsets = block.offsets[: _COMPARED_WORLDS * self.parties + 1]
            few: Any = reorder_records(block, np.arange(offsets[-1]), offsets)
            everyone = self.algorithm
            if not attendance.includes_everyone:
                everyone = replace(everyone, attendance=EVERYONE)
            own: Contribution = everyone.local(state, few, plan, randomness)
            values = own.values.reshape(_COMPARED_WORLDS, self.parties, -1)
            if not own.failed and (values == values[0]).all():
                all_of_them = np.tile(values[0], (worlds, 1))
                if not attendance.includes_everyone:
                    all_of_them[~attendance.sample_parties(block, plan, randomness)] = 0.0
                return replace(own, values=all_of_them)
        given: Contribution = self.algorithm.local(state, block, plan, randomness)
        return given
