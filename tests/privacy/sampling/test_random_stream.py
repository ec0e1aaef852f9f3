"""The noise stream: the keystream of the RFC, never twice, never shown, named by use and party."""

import copy
import hmac
import itertools
import os
import pickle

import numpy as np
import pytest

from parley.privacy.sampling.random_stream import WORDS_PER_STREAM, NoiseStream, Randomness


def test_the_words_are_the_chacha20_keystream_of_the_rfc() -> None:
    # RFC 8439, A.1, test vectors 1 and 2: zero key and nonce, blocks 0 and 1.
    words = NoiseStream(bytes(32), seeded=True).draw_words(16)
    keystream = words.astype("<u8").tobytes()
    assert keystream[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert keystream[64:80].hex() == "9f07e7be5551387a98ba977c732d080d"


def test_the_split_into_calls_does_not_change_the_words() -> None:
    whole = NoiseStream.from_seed(5).draw_words(40_000)
    stream = NoiseStream.from_seed(5)
    parts = [stream.draw_words(count) for count in (0, 1, 8192, 8193, 3, 23_611)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.uint64
    assert "words_drawn=40000)" in repr(stream)


def test_a_seed_and_labels_give_the_same_words_for_ever() -> None:
    stream = NoiseStream.from_seed(2025, "round", 3)
    assert stream.seeded
    words = stream.draw_words(4).tolist()
    assert words[:2] == [18292630618545733500, 12593747779641242963]
    # HKDF-SHA-256 (RFC 5869) written out: extract with a zero salt, expand to one block.
    extracted = hmac.digest(bytes(32), b'[2025, "round", 3]', "sha256")
    info = b"parley/privacy/noise-stream/chacha20/v1\x01"
    key = hmac.digest(extracted, info, "sha256")
    assert words == NoiseStream(key, seeded=True).draw_words(4).tolist()


def test_different_arguments_give_different_streams() -> None:
    arguments = [
        (1,), (2,), (-1,), (1, "1"), (1, 1), (1, "a", "b"), (1, "ab"), (1, "a,b"), (1, 'a", "b'),
        (1, ""), (2**300,), (1, "é"),
    ]  # fmt: skip
    first = {int(NoiseStream.from_seed(*each).draw_words(1)[0]) for each in arguments}
    assert len(first) == len(arguments)


@pytest.mark.parametrize("arguments", [(1.0,), ("1",), (True,), (1, 2.0), (1, None), (1, False)])
def test_a_seed_or_label_of_another_type_is_refused(arguments: tuple) -> None:
    with pytest.raises(TypeError, match=r"Expected (seed|label) of type"):
        NoiseStream.from_seed(*arguments)


def test_streams_from_entropy_differ_and_are_not_seeded() -> None:
    one, other = NoiseStream.from_entropy(), NoiseStream.from_entropy()
    assert not one.seeded
    assert not np.array_equal(one.draw_words(4), other.draw_words(4))


def test_the_key_is_kept_nowhere_a_message_could_show_it() -> None:
    key = bytes(range(32))
    stream = NoiseStream(key, seeded=False)
    assert repr(stream) == "NoiseStream(seeded=False, words_drawn=0)"
    for name in NoiseStream.__slots__:
        value = getattr(stream, name)
        assert value != key
        assert key.hex() not in repr(value)
    with pytest.raises(ValueError, match="Expected a key of 32 bytes, got 31") as error:
        NoiseStream(key[:31], seeded=False)
    assert key[:31].hex() not in str(error.value)


def test_a_stream_is_neither_pickled_nor_copied() -> None:
    stream = NoiseStream.from_seed(1)
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="one instance"):
            duplicate(stream)


def test_the_stream_ends_where_the_block_counter_ends() -> None:
    assert WORDS_PER_STREAM == 2**35
    stream = NoiseStream.from_seed(1)
    with pytest.raises(ValueError, match="Expected count ≥ 0, got -1"):
        stream.draw_words(-1)
    stream._drawn = WORDS_PER_STREAM - 4
    assert stream.draw_words(4).size == 4
    with pytest.raises(RuntimeError, match="Make a new stream"):
        stream.draw_words(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_cannot_repeat_the_stream() -> None:
    stream = NoiseStream.from_seed(1)
    child = os.fork()
    if child == 0:
        try:
            stream.draw_words(1)
        except RuntimeError:
            os._exit(17)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert stream.draw_words(1).size == 1


def first(stream):
    return int(stream.draw_words(1)[0])


NAMES = {
    "server's noise": (lambda r: r.open_server_noise(2), ("server-noise", 2)),
    "server's noise ahead of the rounds": (lambda r: r.open_server_noise(0), ("components-noise",)),
    "batches": (lambda r: r.open_training_batches(2, 1), ("dp-sgd", "batches", 2, "party", 1)),
    "party noise": (lambda r: r.open_training_noise(2), ("dp-sgd", "noise", 2, "party", 0)),
    "a share": (lambda r: r.open_noise_share(2, 5), ("share", 2, 5)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_stream_has_its_name_for_ever(name):
    draw, labels = NAMES[name]
    stream = draw(Randomness.from_seed(7))
    assert stream.seeded
    assert first(stream) == first(NoiseStream.from_seed(7, *labels))


def test_a_party_alone_draws_its_own_batches_and_noise_and_the_share_that_a_block_draws_for_it():
    block, alone = Randomness.from_seed(7), Randomness.from_seed(7, party=3)
    assert first(alone.open_training_batches(1)) == first(block.open_training_batches(1, 3))
    assert first(alone.open_training_noise(1)) == first(block.open_training_noise(1, 3))
    assert first(alone.open_noise_share(1)) == first(block.open_noise_share(1, 3))


def test_no_two_uses_rounds_or_parties_share_a_stream():
    drawn = [
        first(draw)
        for source in (Randomness.from_seed(7), Randomness.from_seed(8))
        for number in (1, 2)
        for draw in (
            source.open_server_noise(number),
            *(source.open_training_batches(number, row) for row in range(2)),
            *(source.open_training_noise(number, row) for row in range(2)),
            *(source.open_noise_share(number, row) for row in range(3)),
        )
    ]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


def test_entropy_gives_another_stream_each_time():
    source = Randomness.from_entropy()
    streams = [
        source.open_server_noise(1),
        source.open_server_noise(1),
        source.open_noise_share(1, 0),
        source.open_noise_share(1, 0),
    ]
    assert not any(stream.seeded for stream in streams)
    assert len({first(stream) for stream in streams}) == 4


def test_a_seed_serves_no_plan_that_is_not_seeded():
    Randomness.from_entropy().check(seeded=False)
    Randomness.from_entropy().check(seeded=True)
    Randomness.from_seed(0).check(seeded=True)
    with pytest.raises(ValueError, match=r"plan that is not seeded, got a seed"):
        Randomness.from_seed(0).check(seeded=False)
