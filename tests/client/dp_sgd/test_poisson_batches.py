"""Batches of many parties: each record by itself, each party by itself, each in its place."""

import math

import numpy as np
import pytest

from parley.client.dp_sgd.poisson_batches import (
    PassLayout,
    draw_joint_batches,
    draw_poisson_batch,
    draw_poisson_batches,
)
from parley.privacy.sampling.random_stream import NoiseStream

SIZES = np.array([40, 1, 25])
OWNERS = np.repeat([0, 1, 2], SIZES)


def test_parties_with_streams_of_their_own_draw_what_each_draws_alone() -> None:
    streams = [NoiseStream.from_seed(3, party) for party in range(3)]
    drawn = draw_joint_batches(SIZES, 0.4, streams)
    for party, size in enumerate(SIZES.tolist()):
        alone = draw_poisson_batch(size, 0.4, NoiseStream.from_seed(3, party))
        assert np.flatnonzero(drawn[party == OWNERS]).tolist() == alone.tolist()
    assert draw_joint_batches(SIZES, 1.0, streams).all()


def test_every_record_is_drawn_at_the_rate_and_no_two_together() -> None:
    stream = NoiseStream.from_seed(4)
    trials, rate = 4000, 0.3
    drawn = np.array(
        [draw_joint_batches(SIZES, rate, [stream] * 3) for _ in range(trials)], dtype=float
    )
    error = math.sqrt(rate * (1 - rate) / trials)
    assert np.abs(drawn.mean(0) - rate).max() < 5 * error
    correlations = np.corrcoef(drawn.T) - np.eye(SIZES.sum())
    assert np.abs(correlations).max() < 6 / math.sqrt(trials)


def test_all_steps_batches_are_those_of_one_step_after_the_other() -> None:
    together = draw_poisson_batches(7, 0.3, 4, NoiseStream.from_seed(1))
    stream = NoiseStream.from_seed(1)
    for drawn in together:
        assert np.flatnonzero(drawn).tolist() == draw_poisson_batch(7, 0.3, stream).tolist()


@pytest.mark.parametrize("period", [1, 2, 4])
def test_every_record_has_a_place_of_its_party_and_class_and_no_two_have_one(period) -> None:
    layout = PassLayout(width=8, period=period)
    classes = np.random.default_rng(0).integers(0, period, len(OWNERS))
    holds = layout.assign_rows(classes, OWNERS, parties=3)
    parties, places = np.nonzero(holds >= 0)
    found = holds[parties, places]
    assert sorted(found) == list(range(len(OWNERS)))
    assert (parties == OWNERS[found]).all()
    assert (places % period == classes[found]).all()
    assert holds.shape[1] % 8 == 0
    nothing = np.zeros(0, dtype=np.int64)
    assert layout.assign_rows(nothing, nothing, min_chunks=2).tolist() == [[-1] * 16]
