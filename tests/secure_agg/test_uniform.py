"""What a masked vector says alone, and what a coalition sees: nothing about the input.

Statistical tests at about six standard deviations, so that a right implementation fails once in
10^8 runs or so; keys are seeded, so a run repeats.
"""

import numpy as np
import pytest

from parley.secure_agg.mask_expansion import add_masks
from parley.secure_agg.messages import Reveal, decode
from parley.secure_agg.primitives import unseal
from parley.secure_agg.protocol_digests import compute_commitment, encode_binding
from parley.secure_agg.shamir import combine

BINS = 64


def _chi_square(samples, bits):
    counts = np.bincount((samples >> (bits - 6)).astype(np.int64), minlength=BINS)
    expected = samples.size / BINS
    return float(((counts - expected) ** 2 / expected).sum())


LIMIT = BINS - 1 + 6 * (2 * (BINS - 1)) ** 0.5


def _words(message, bits, count):
    """The masked words; behind them, in the first round, halves of masks."""
    return np.frombuffer(bytes(message)[18:], dtype=f"<u{bits // 8}", count=count)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_every_masked_vector_alone_is_uniform(drill, bits):
    d = drill.joined(drill.build(3, dimension=30_000, ring_bits=bits))
    d.vectors[:] = 1  # the least uniform input there is
    for i, plan in drill.planned(d).items():
        words = _words(drill.vector(d, i, plan), bits, 30_000)
        assert _chi_square(words, bits) < LIMIT
        low = (words & 63).astype(words.dtype) << (bits - 6)
        assert _chi_square(low.astype(words.dtype), bits) < LIMIT
        centred = words.astype(float) - 2.0 ** (bits - 1)
        assert abs(np.corrcoef(centred[1:], centred[:-1])[0, 1]) < 6 / np.sqrt(30_000)


def test_the_check_would_notice_a_vector_that_is_not_uniform():
    rng = np.random.default_rng(0)
    narrow = rng.integers(0, int(2**16 * 0.98), 30_000).astype(np.uint16)
    assert _chi_square(narrow, 16) > LIMIT
    assert _chi_square(np.ones(30_000, dtype=np.uint16), 16) > LIMIT


def _coalition_view(drill, d, victim_input, other_input, number):
    """What server and colluders 4, 5 are left with of the honest parties' vectors."""
    d.vectors[0], d.vectors[1] = victim_input, other_input
    d.vectors[2] = d.vectors[3] = 7
    messages, listed = drill.masked(d, number)
    colluders = [4, 5]
    keys = {}  # what colluders know: their pair keys with every honest party
    for c in colluders:
        current = d.parties[c].state.current
        for at, n in enumerate(current.members):
            keys[c, d.parties[c].state.neighbours[n]] = current.pair_keys[at]
    reveals = {
        i: decode(d.run, d.parties[i].handle_confirmations(m), Reveal)
        for i, m in drill.signed(d, listed).items()
    }
    left = {}
    for i in (0, 1, 2, 3):
        words = _words(messages[i], 16, 40).copy()
        known = [keys[c, i] for c in colluders]  # honest parties have the lower index: they add
        add_masks(words, [], [reveals[i].seed, *known])
        left[i] = words
    return left


def _honest(drill):
    return drill.joined(drill.build(6, corrupt=2, dimension=40, ring_bits=16))


def _difference_of_views(drill, trials):
    d, views = _honest(drill), ([], [])
    for number in range(1, 2 * trials + 1):
        which = number % 2
        left = _coalition_view(drill, d, *((0, 50_000), (50_000, 0))[which], number)
        assert (sum(left[i].astype(np.int64) for i in range(4)) % 2**16 == 50_014).all()
        views[which].append(left[0])
    first, second = views
    a, b = np.concatenate(first), np.concatenate(second)
    assert _chi_square(a, 16) < LIMIT
    assert _chi_square(b, 16) < LIMIT
    counts = [np.bincount(v >> 10, minlength=BINS).astype(float) for v in (a, b)]
    both = ((counts[0] - counts[1]) ** 2 / (counts[0] + counts[1])).sum()
    assert both < LIMIT


def test_server_and_colluders_cannot_tell_two_inputs_of_a_victim_apart(drill):
    _difference_of_views(drill, 120)


@pytest.mark.heavy
def test_server_and_colluders_cannot_tell_two_inputs_apart_at_length(drill):
    _difference_of_views(drill, 3000)


def test_a_party_that_dropped_stays_hidden_when_its_vector_arrives_late(drill):
    # Its pair keys are revealed, its self mask never is: the late vector is uniform to all others.
    late = []
    d = _honest(drill)
    for number in range(1, 121):
        d.vectors[3] = 9
        sent = {i: drill.vector(d, i, plan) for i, plan in drill.planned(d, number).items()}
        pair_keys = d.parties[3].state.current.pair_keys
        for i in (0, 1, 2, 4, 5):
            d.server.handle_vector(sent[i])
        seen = b""
        for i, message in drill.signed(d, d.server.close()).items():
            seen += d.parties[i].handle_confirmations(message)
        assert all(key in seen for key in pair_keys)
        words = _words(sent[3], 16, 40).copy()
        near = d.parties[3].state.neighbours
        add_masks(
            words,
            [k for j, k in zip(near, pair_keys, strict=True) if j < 3],
            [k for j, k in zip(near, pair_keys, strict=True) if j > 3],
        )
        late.append(words)
    assert _chi_square(np.concatenate(late), 16) < LIMIT


def test_the_colluders_shares_do_not_open_a_survivor_s_recovery_secret(drill):
    d = _honest(drill)
    drill.masked(d)
    graph = d.run.neighbours[0].tolist()
    held = {}
    for holder in graph:
        current, near = d.parties[holder].state.current, d.parties[holder].state.neighbours
        at = [near[n] for n in current.members].index(0)
        sealed = current.envelopes[80 * at : 80 * at + 80]
        share = unseal(current.envelope_keys[at], 0, sealed, encode_binding(d.run, 1, 0, holder))
        held[graph.index(holder) + 1] = (holder, share[32:])

    def opens(holders):
        shares = {x: share for x, (holder, share) in held.items() if holder in holders}
        committed = d.server._sum.shares[0].commitments[32:]
        return compute_commitment(d.run, 1, 0, b"recovery", combine(shares)) == committed

    assert d.run.threshold == 4
    assert not opens([4, 5])
    assert not opens([4, 5, 1])
    assert opens([4, 5, 1, 2])
