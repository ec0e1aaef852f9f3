"""Streams by use, round and party: the same for ever from a seed, never the same from entropy."""

import itertools

import pytest

from parley.privacy.sampling.stream import NoiseStream, Randomness


def first(stream):
    return int(stream.words(1)[0])


NAMES = {
    "server's noise": (lambda r: r.server(2), ("server-noise", 2)),
    "server's noise ahead of the rounds": (lambda r: r.server(0), ("components-noise",)),
    "batches": (lambda r: r.batches(2, 1), ("dp-sgd", "batches", 2, "party", 1)),
    "party noise": (lambda r: r.party_noise(2), ("dp-sgd", "noise", 2, "party", 0)),
    "a share": (lambda r: r.share(2, 5), ("share", 2, 5)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_stream_has_its_name_for_ever(name):
    draw, labels = NAMES[name]
    stream = draw(Randomness.from_seed(7))
    assert stream.seeded
    assert first(stream) == first(NoiseStream.from_seed(7, *labels))


def test_a_party_alone_draws_its_own_batches_and_noise_and_the_share_that_a_block_draws_for_it():
    block, alone = Randomness.from_seed(7), Randomness.from_seed(7, party=3)
    assert first(alone.batches(1)) == first(block.batches(1, 3))
    assert first(alone.party_noise(1)) == first(block.party_noise(1, 3))
    assert first(alone.share(1)) == first(block.share(1, 3))


def test_no_two_uses_rounds_or_parties_share_a_stream():
    drawn = [
        first(draw)
        for source in (Randomness.from_seed(7), Randomness.from_seed(8))
        for number in (1, 2)
        for draw in (
            source.server(number),
            *(source.batches(number, row) for row in range(2)),
            *(source.party_noise(number, row) for row in range(2)),
            *(source.share(number, row) for row in range(3)),
        )
    ]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


def test_entropy_gives_another_stream_each_time():
    source = Randomness.from_entropy()
    streams = [source.server(1), source.server(1), source.share(1, 0), source.share(1, 0)]
    assert not any(stream.seeded for stream in streams)
    assert len({first(stream) for stream in streams}) == 4


def test_a_seed_serves_no_plan_that_is_not_seeded():
    Randomness.from_entropy().check(seeded=False)
    Randomness.from_entropy().check(seeded=True)
    Randomness.from_seed(0).check(seeded=True)
    with pytest.raises(ValueError, match=r"plan that is not seeded, got a seed"):
        Randomness.from_seed(0).check(seeded=False)
