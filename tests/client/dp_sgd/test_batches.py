"""Padded batches of many parties: each record by itself, each party by itself."""

import math

import numpy as np
import pytest

from parley.client.dp_sgd import batches as dp_batches
from parley.client.dp_sgd.batches import PaddedBatches, poisson_batch
from parley.client.dp_sgd.layout import Layout
from parley.privacy.sampling.stream import NoiseStream

SIZES = [40, 1, 25]
CLASSES = np.random.default_rng(0).integers(0, 2, sum(SIZES))


def padded_batches(sizes, rate, streams, period: int = 1) -> PaddedBatches:
    layout = Layout(width=4, period=period)
    return dp_batches.padded_batches(np.array(sizes), rate, streams, layout, CLASSES % period)


def of_party(batches, party: int) -> list[int]:
    return batches.rows[party][batches.there[party]].tolist()


@pytest.mark.parametrize("period", [1, 2])
def test_parties_with_streams_of_their_own_draw_what_each_draws_alone(period) -> None:
    streams = [NoiseStream.from_seed(3, party) for party in range(3)]
    batches = padded_batches(SIZES, 0.4, streams, period)
    assert batches.rows.shape[1] % 4 == 0
    _, places = np.nonzero(batches.there)
    assert (places % period == CLASSES[batches.rows[batches.there]] % period).all()
    for party, (size, begin) in enumerate(zip(SIZES, [0, 40, 41], strict=True)):
        alone = poisson_batch(size, 0.4, NoiseStream.from_seed(3, party))
        assert sorted(of_party(batches, party)) == sorted(begin + alone)


def test_every_record_is_drawn_at_the_rate_and_no_two_together() -> None:
    stream = NoiseStream.from_seed(4)
    trials, rate = 4000, 0.3
    drawn = np.zeros((trials, sum(SIZES)))
    for trial in range(trials):
        batches = padded_batches(SIZES, rate, [stream] * 3)
        drawn[trial, batches.rows[batches.there]] = 1
    error = math.sqrt(rate * (1 - rate) / trials)
    assert np.abs(drawn.mean(0) - rate).max() < 5 * error
    correlations = np.corrcoef(drawn.T) - np.eye(sum(SIZES))
    assert np.abs(correlations).max() < 6 / math.sqrt(trials)


@pytest.mark.parametrize("rate", [1e-9, 0.05, 1.0])
def test_a_padded_place_repeats_a_record_of_its_own_party(rate: float) -> None:
    batches = padded_batches(SIZES, rate, [NoiseStream.from_seed(5)] * 3)
    owner = np.repeat([0, 1, 2], SIZES)
    assert batches.rows.shape == batches.there.shape
    assert batches.rows.shape[1] >= 1
    np.testing.assert_array_equal(
        owner[batches.rows], np.arange(3)[:, None].repeat(batches.rows.shape[1], 1)
    )
    for party in range(3):
        chosen = of_party(batches, party)
        assert len(set(chosen)) == len(chosen)
