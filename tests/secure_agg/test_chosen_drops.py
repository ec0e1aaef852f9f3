"""A server that drops whom it likes around placed colluders, among real parties on a sparse graph.

The attack of docs/protocol.md, Theorem 2: everybody honest in two windows of k/2 places is said to
have dropped; the parties between them then have each other and the colluders alone.
"""

import numpy as np
from one_mask import mask_of

from parley.secure_agg.beacon import commitment
from parley.secure_agg.codec import decode, encode
from parley.secure_agg.edges import SharedEdgeWork
from parley.secure_agg.flags import pack_mask
from parley.secure_agg.ideal import simulated_nonces, simulated_parameters
from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.messages import SERVER, Confirmations, Reveal, Survivors
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Policy
from parley.secure_agg.primitives import expand_seed, signing_public

PARTIES, ARC, CONTEXT = 101, 20, b"c" * 32


def _masked():
    """101 parties on the graph that is derived for them, each with its vector sent."""
    run = simulated_parameters(parties=PARTIES, min_survivors=1)
    assert (run.degree, run.threshold, run.corrupt) == (32, 22, 10)
    nonces, entropy = simulated_nonces(run), expand_seed(b"drops")
    private = [entropy(32) for _ in range(PARTIES)]
    identities = tuple(signing_public(key) for key in private)
    policy, work = Policy(identities=identities, min_survivors=1), SharedEdgeWork()
    server = Server(
        run=run, identities=identities, commitments={i: commitment(i, n) for i, n in nonces.items()}
    )
    parties = [
        Party(
            run=run,
            policy=policy,
            index=i,
            identity=private[i],
            entropy=entropy,
            nonce=nonces[i],
            work=work,
        )
        for i in range(PARTIES)
    ]
    for party in parties:
        server.on_advertise(party.advertise())
    rosters, message = server.roster(), server.adverts.nonces()
    for i, party in enumerate(parties):
        server.on_encapsulated(party.on_roster(rosters[i], message))
        server.on_shares(party.prepare(1))
    for i, party in enumerate(parties):
        party.on_ciphertexts(server.ciphertexts(i))
    vectors = np.random.default_rng(0).integers(0, 2**32, (PARTIES, 4), dtype=np.uint32)
    plans = server.plan(1, dimension=4, context=CONTEXT)
    sent = {i: parties[i].on_plan(plan, vectors[i], context=CONTEXT) for i, plan in plans.items()}
    return server.run, parties, vectors, sent


def _circle(run):
    """Parties by place: everybody's neighbours are the 16 before and the 16 after it."""
    table = [set(row) for row in run.neighbours.tolist()]
    order = [0]
    # The place next to one shares all but two of its neighbours.
    while len(order) < PARTIES:
        here, known = order[-1], set(order)
        order.append(
            max(
                sorted(table[here] - known),
                key=lambda j, here=here: len(table[here] & table[j]),
            )
        )
    return order


def _open_arc(run, parties, vectors, sent, *, colluders):
    """The sum of an arc of honest parties, by `colluders` in each window; or the refusals."""
    order = _circle(run)
    half = run.degree // 2
    arc = order[half : half + ARC]
    windows = order[:half], order[half + ARC : 2 * half + ARC]
    corrupt = [j for window in windows for j in window[:colluders]]
    dropped = {j for window in windows for j in window} - set(corrupt)
    flags = np.array([i not in dropped for i in range(PARTIES)])
    listed = encode(run, Survivors(sender=SERVER, round_number=1, survivors=pack_mask(flags)))
    keys = {  # what the colluders know: their own keys of the round
        (j, parties[j].state.near[n]): key
        for j in corrupt
        for n, key in zip(
            parties[j].state.current.members, parties[j].state.current.pair_keys, strict=True
        )
    }
    signed = {}
    refused = []
    for i in np.flatnonzero(flags).tolist():
        try:
            signed[i] = parties[i].on_survivors(listed)[18:]
        except TooFewSurvivors as error:
            refused.append(str(error))
    if not set(arc) <= set(signed):
        return refused
    signers = sorted(signed)
    everyone = encode(
        run,
        Confirmations(
            sender=SERVER,
            round_number=1,
            signers=pack_mask(np.isin(np.arange(PARTIES), signers)),
            signatures=b"".join(signed[i] for i in signers),
        ),
    )
    total = np.zeros(4, dtype=np.uint32)
    for i in arc:
        members = [parties[i].state.near[n] for n in parties[i].state.current.members]
        reveal = decode(run, parties[i].on_confirmations(everyone), Reveal)
        total += np.frombuffer(sent[i][18 : 18 + 16], dtype="<u4") - mask_of(
            reveal.seed, 4, total.dtype
        )
        at = 0
        for j in members:
            key = keys.get((j, i))
            if not flags[j]:
                key = reveal.secrets[at : at + 32]
            at += 32 if flags[j] else 64
            if key is not None:
                mask = mask_of(key, 4, total.dtype)
                total += -mask if i < j else mask
    assert np.array_equal(total, vectors[arc].sum(axis=0, dtype=np.uint32))
    return "opened"


def test_as_many_colluders_as_are_assumed_open_no_arc_wherever_they_are_placed():
    refused = _open_arc(*_masked(), colluders=5)
    assert "Expected >= 22 surviving neighbours, got 21." in refused


def test_two_more_than_are_assumed_and_in_the_right_places_open_one_so_the_bound_is_tight():
    assert _open_arc(*_masked(), colluders=6) == "opened"
