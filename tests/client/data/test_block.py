"""Blocks of parties: whose records are taken."""

import numpy as np
import pytest

from parley.client.data.block import PartyBlock


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [([3, 3, 3, 3], [3, 0, 0]), ([1, 3, 3, 2], [2, 1]), ([4, 4, 2], [1])],
)
def test_parties_are_taken_with_their_own_records_in_the_order_given(sizes, chosen):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    count = int(offsets[-1])
    block = PartyBlock(
        features=np.arange(2.0 * count).reshape(count, 2), labels=np.arange(count), offsets=offsets
    )
    own = block.take(chosen)
    rows = np.concatenate([np.arange(offsets[at], offsets[at + 1]) for at in chosen])
    assert own.labels.tolist() == rows.tolist()
    assert own.features.tolist() == block.features[rows].tolist()
    assert own.sizes.tolist() == [sizes[at] for at in chosen]
    assert own.places.tolist() == list(chosen)
    assert own.take([0]).places.tolist() == chosen[:1]
    assert not np.shares_memory(own.features, block.features)


def test_sizes_are_kept_and_can_not_be_written_to():
    block = PartyBlock(features=np.zeros((5, 2)), labels=np.zeros(5), offsets=np.array([0, 2, 5]))
    assert block.sizes.tolist() == [2, 3]
    with pytest.raises(ValueError, match="read-only"):
        block.sizes[0] = 9
