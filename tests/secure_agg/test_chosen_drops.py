"""A server that drops whom it likes around placed colluders, among real parties on a sparse graph.

The attack of docs/protocol.md, Theorem 2: everybody honest in two windows of k/2 places is said to
have dropped; the parties between them then have each other and the colluders alone.
"""

import numpy as np
from forgeries import forged_confirmations
from one_mask import mask_of

from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.messages import Reveal, decode

PARTIES, ARC = 101, 20


def _masked(drill):
    """Each of 101 parties has sent its vector."""
    d = drill.prepared(drill.joined(drill.sparse(b"drops")))
    drill.delivered(d)
    return d, drill.sent(d, drill.plan(d))


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


def _open_arc(drill, d, sent, *, colluders):
    """The sum of an arc of honest parties, by `colluders` in each window; or the refusals."""
    run, parties = d.server.run, d.parties
    order = _circle(run)
    half = run.degree // 2
    arc = order[half : half + ARC]
    windows = order[:half], order[half + ARC : 2 * half + ARC]
    corrupt = [j for window in windows for j in window[:colluders]]
    dropped = {j for window in windows for j in window} - set(corrupt)
    left = [i for i in range(PARTIES) if i not in dropped]
    listed = drill.listed(d, left)
    keys = {  # what the colluders know: their own keys of the round
        (j, parties[j].state.neighbours[n]): key
        for j in corrupt
        for n, key in zip(
            parties[j].state.current.members, parties[j].state.current.pair_keys, strict=True
        )
    }
    signed = {}
    refused = []
    for i in left:
        try:
            signed[i] = parties[i].handle_survivors(listed)
        except TooFewSurvivors as error:
            refused.append(str(error))
    if not set(arc) <= set(signed):
        return refused
    everyone = forged_confirmations(d, signed)
    total = np.zeros(4, dtype=np.uint32)
    for i in arc:
        members = [parties[i].state.neighbours[n] for n in parties[i].state.current.members]
        reveal = decode(run, parties[i].handle_confirmations(everyone), Reveal)
        total += np.frombuffer(sent[i][18 : 18 + 16], dtype="<u4") - mask_of(
            reveal.seed, 4, total.dtype
        )
        at = 0
        for j in members:
            key = keys.get((j, i))
            if j in dropped:
                key = reveal.secrets[at : at + 32]
            at += 64 if j in dropped else 32
            if key is not None:
                mask = mask_of(key, 4, total.dtype)
                total += -mask if i < j else mask
    assert np.array_equal(total, d.vectors[arc].sum(axis=0, dtype=np.uint32))
    return "opened"


def test_as_many_colluders_as_are_assumed_open_no_arc_wherever_they_are_placed(drill):
    refused = _open_arc(drill, *_masked(drill), colluders=5)
    assert "Expected >= 22 surviving neighbours, got 21." in refused


def test_two_more_than_are_assumed_and_in_the_right_places_open_one_so_the_bound_is_tight(drill):
    assert _open_arc(drill, *_masked(drill), colluders=6) == "opened"
