"""When a server has enough answers to stop waiting for lost parties: not one too early."""

from itertools import combinations

import pytest

from parley.secure_agg.interface import TooFewSurvivors

M = 7


@pytest.mark.parametrize("absent", [(), (2,), (2, 5)])
def test_reveals_are_enough_exactly_if_the_sum_opens(drill, absent):
    found = set()
    for count in range(M - 1):
        for silent in combinations(sorted(set(range(M)) - set(absent)), count):
            d = drill.build(M, corrupt=1)
            drill.advertised(d)
            drill.rostered(d)
            confirmations = drill.confirmed(d, absent=absent)
            for party, message in confirmations.items():
                if party not in silent:
                    d.server.handle_reveal(d.parties[party].handle_confirmations(message))
            enough = d.server.has_enough_reveals()
            found.add(enough)
            try:
                d.server.finish()
                opened = True
            except TooFewSurvivors:
                opened = False
            assert enough is opened, silent
    assert found == {True, False}


def test_a_reveal_with_a_false_share_counts_only_as_its_true_ones(drill):
    found = set()
    for silent in combinations(sorted(set(range(M)) - {2}), 2):
        for liar in sorted(set(range(M)) - {2, *silent}):
            d = drill.build(M, corrupt=1)
            drill.advertised(d)
            drill.rostered(d)
            for party, message in drill.confirmed(d, absent=(2,)).items():
                if party in silent:
                    continue
                reveal = d.parties[party].handle_confirmations(message)
                d.server.handle_reveal(falsify(reveal) if party == liar else reveal)
            enough = d.server.has_enough_reveals()
            found.add(enough)
            try:
                d.server.finish()
                opened = True
            except TooFewSurvivors:
                opened = False
            assert enough is opened, (silent, liar)
    assert False in found


def falsify(reveal: bytes) -> bytes:
    """The last share with another bit."""
    return reveal[:-1] + bytes([reveal[-1] ^ 1])


def test_vectors_and_confirmations_are_enough_exactly_if_the_round_can_go_on(drill):
    d = drill.joined(drill.build(M, corrupt=1))
    plans = drill.planned(d)
    least = d.run.confirmations
    for sent, (party, plan) in enumerate(plans.items()):
        assert d.server.has_enough_vectors(0) is (sent >= least)
        assert d.server.has_enough_vectors(M) is False
        d.server.handle_vector(drill.vector(d, party, plan))
    assert d.server.has_enough_vectors(M)
    listed = d.server.close()
    for confirmed, party in enumerate(d.server.survivors):
        assert d.server.has_enough_confirmations() is (confirmed >= least)
        d.server.handle_confirm(d.parties[party].handle_survivors(listed))


def test_vectors_without_enough_neighbours_among_them_are_not_enough(drill):
    d = drill.joined(drill.sparse(b"enough"))
    plans, run = drill.planned(d), d.server.run
    party, near = 0, run.neighbours[0].tolist()
    lost = near[: run.degree - run.threshold + 1]
    there = [i for i in range(run.parties) if i not in lost]
    for i in there:
        d.server.handle_vector(drill.vector(d, i, plans[i]))
    assert len(set(near) & set(there)) == run.threshold - 1  # so that this party would not confirm
    assert party in there
    assert not d.server.has_enough_vectors(len(there))
    for i in lost:
        d.server.handle_vector(drill.vector(d, i, plans[i]))
    assert d.server.has_enough_vectors(run.parties)
