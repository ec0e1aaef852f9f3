"""A coming round's secrets, on a party's own state: drawn, shared out, and sealed to neighbours.

The self seed b and the recovery secret c are fresh entropy. c opens a sealed table of this party's
base keys of the round, so that t neighbours can take the place of a party that dropped. Keys of a
pair are ratcheted: the chain that gave a round's keys is gone once they are made.
"""

from __future__ import annotations

from parley.secure_agg.codec import encode
from parley.secure_agg.edges import EdgeWork, next_chain
from parley.secure_agg.interface import DropoutPolicy, LocalProtocolError, RemoteProtocolError
from parley.secure_agg.messages import Shares
from parley.secure_agg.outcome import SECRET_BYTES
from parley.secure_agg.pairing import first_table, outgoing
from parley.secure_agg.primitives import Entropy, seal, share_digest
from parley.secure_agg.shamir import split
from parley.secure_agg.state import MaskingState, Phase, Prepared
from parley.secure_agg.statements import bound, commitment, table_key


def prepare_round(state: MaskingState, number: int, work: EdgeWork, entropy: Entropy) -> bytes:
    """The Shares of a round; what it needs later is in the state. See `Party.prepare`."""
    run, me = state.run, state.index
    joined = Phase.PAIRING <= state.phase < Phase.LEFT
    if not joined or run.dropouts is DropoutPolicy.OPTIMISTIC:
        raise LocalProtocolError(
            f"Expected to prepare a robust round once joined, got {state.phase.name} in "
            f"{run.dropouts.value} dropouts."
        )
    if state.pairing is not None:
        if number != 1 or state.prepared:
            raise RemoteProtocolError(
                f"Expected round 1 to prepare, once, before the neighbours' ciphertexts came, "
                f"got round {number}."
            )
        own = outgoing(state.pairing)
        prepared = Prepared(seed=b"", pair_keys=[], envelope_keys=[])
        sealing, table = [each.envelope for each in own], first_table(own)
    else:
        prepared = ratchet(state, number, work)
        sealing, table = prepared.envelope_keys, b"".join(prepared.pair_keys)
    recovery = entropy(SECRET_BYTES)
    prepared.seed = entropy(SECRET_BYTES)
    graph: list[int] = run.neighbours[me].tolist()
    shares = split(prepared.seed + recovery, len(graph), run.threshold, entropy)
    by_neighbour = dict(zip(graph, shares, strict=True))
    digests = b"".join(
        share_digest(share[:SECRET_BYTES]) + share_digest(share[SECRET_BYTES:])
        for share in (by_neighbour[j] for j in state.near)
    )
    sealed = [
        seal(key, me, by_neighbour[j], bound(run, number, me, j))
        for j, key in zip(state.near, sealing, strict=True)
    ]
    message = Shares(
        sender=me,
        round_number=number,
        commitments=commitment(run, number, me, b"self", prepared.seed)
        + commitment(run, number, me, b"recovery", recovery),
        table=seal(table_key(recovery), me, table, bound(run, number, me, me)),
        digests=digests,
        envelopes=b"".join(sealed),
    )
    while len(state.prepared) >= 2:
        del state.prepared[min(state.prepared)]
    state.prepared[number] = prepared
    return encode(run, message)


def ratchet(state: MaskingState, number: int, work: EdgeWork) -> Prepared:
    """The keys of a round, without a self seed; the chains are those of the round after.

    Raises:
        RemoteProtocolError: a round that is past, or beyond the run's last.
    """
    if not state.chain_round <= number <= state.run.rounds:
        raise RemoteProtocolError(
            f"Expected a round from {state.chain_round} to {state.run.rounds}, the last that "
            f"the run can reach, got {number}."
        )
    chains = state.chains
    for _ in range(state.chain_round, number):
        chains = [next_chain(chain) for chain in chains]
    keys = [work.edge_keys(chain, number) for chain in chains]
    state.chains = [k[0] for k in keys]  # the chain that gave this round's keys is gone
    state.chain_round = number + 1
    return Prepared(
        seed=b"",
        pair_keys=[k[1] for k in keys],
        envelope_keys=[k[2] for k in keys],
    )
