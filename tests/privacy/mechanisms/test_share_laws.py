"""Shares of every law: moments, scale, tail, charge."""

import math

import numpy as np
import pytest
from scipy import stats

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import GaussianEvent
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceL1
from parley.privacy.mechanisms.laplace_shares import JITTER
from parley.privacy.mechanisms.noise_shares import Shares, compute_tau
from parley.privacy.sampling.random_stream import NoiseStream

LAWS = [
    Gaussian(sensitivity=100.0, sigma=900.0, dimension=40),
    L2Laplace(sensitivity=100.0, epsilon=0.5, dimension=40),
    LaplaceL1(sensitivity=100.0, epsilon=2.0, dimension=40),
]


def drawn(noise, shares, rows, seed=11, dealt=0):
    """`[rows, d]` sums of `dealt` shares in one draw, or of a share of each of k parties."""
    sums = np.zeros((rows, noise.dimension), dtype=np.int64)
    for at in range(rows):
        stream = NoiseStream.from_seed(seed, noise.law, at)
        if dealt:
            shares.add_summed(noise, sums[at], dealt, stream)
        else:
            vectors = np.zeros((shares.honest, noise.dimension), dtype=np.int64)
            shares.add(noise, vectors, [stream] * shares.honest)
            sums[at] = vectors.sum(axis=0)
    return sums


@pytest.mark.parametrize("noise", LAWS, ids=lambda noise: noise.law)
def test_shares_add_up_to_the_law_and_not_to_two_thirds_or_three_halves_of_it(noise) -> None:
    shares = Shares.from_mechanism(noise, parties=10, least=8, colluders=2)
    extra = JITTER * 6 if noise.law == "l2-laplace" else 0.0

    def size(sums):
        return math.sqrt((sums.astype(float) ** 2).sum(axis=1).mean())

    expected = math.sqrt(noise.expected_norm() ** 2 + noise.dimension * extra)
    for sums in (drawn(noise, shares, 150), drawn(noise, shares, 150, dealt=6)):
        assert abs(size(sums) / expected - 1) < 0.08
        assert abs(size(sums) / (expected * 2 / 3) - 1) > 0.08
        assert abs(size(sums) / (expected * 3 / 2) - 1) > 0.08
        assert np.abs(sums).max() <= shares.compute_tail(noise, 1e-6)
    largest = np.abs(drawn(noise, shares, 300, dealt=10)).max(axis=1)  # of all shares
    assert (largest > shares.compute_tail(noise, 0.2)).mean() < 0.26
    assert shares.compute_tail(noise, 0.01) < 3 * np.quantile(largest, 0.99)


def test_the_charge_has_every_samplers_distance_and_the_theorems() -> None:
    noise = Gaussian(sensitivity=3.0, sigma=900.0, dimension=1000)
    shares = Shares.from_mechanism(noise, parties=10, least=9, colluders=1)
    event = shares.build_event(noise)
    assert event.event == noise.event().event
    assert float(event.sampler_distance) == pytest.approx(
        10 * float(noise.event().sampler_distance), rel=1e-9
    )
    # On the floor the theorem's part is 1000·5.2e-69; with shares of 1 ring unit it would show.
    assert math.expm1(1000 * compute_tau(16.0, 10)) < 1e-60
    exact = LaplaceL1(sensitivity=1.0, epsilon=0.1, dimension=3)
    assert (
        Shares.from_mechanism(exact, parties=3, least=3, colluders=1).build_event(exact)
        == exact.event()
    )


def test_accounts_of_more_and_of_fewer_shares_are_the_known_ones() -> None:
    """ε of one release by the exact curve: k = 8 charged, all 10, all but one, one alone."""
    noise = Gaussian(sensitivity=1000.0, sigma=8000.0, dimension=4)
    shares = Shares.from_mechanism(noise, parties=10, least=9, colluders=1)

    def mu(count):
        event = shares.build_partial_event(noise, count).event
        assert isinstance(event, GaussianEvent)
        return event.mu

    assert mu(8) == pytest.approx(0.125, rel=1e-12)
    assert mu(8) >= 0.125 * (1 - 1e-14)
    assert mu(10) == pytest.approx(0.125 * math.sqrt(0.8), rel=1e-12)
    assert mu(1) == pytest.approx(0.125 * math.sqrt(8), rel=1e-12)
    pure = L2Laplace(sensitivity=100.0, epsilon=0.5, dimension=40)
    split = Shares.from_mechanism(pure, parties=10, least=9, colluders=1)
    assert Composition.from_events([split.build_partial_event(pure, 10)]).compute_lowest_epsilon(
        1e-6
    )[1] == pytest.approx(0.5)
    assert split.build_partial_event(pure, 1) is None  # nothing is proved of a part of it


@pytest.mark.parametrize(
    ("parties", "colluders", "dropped", "known"),
    [
        (10, 1, 1, 1.118034),
        (100, 1, 0, 1.005038),
        (3, 1, 0, 1.224745),
        (1, 0, 0, 1.0),
    ],
)
def test_inflation_is_the_root_of_parties_over_honest_shares(
    parties, colluders, dropped, known
) -> None:
    noise = Gaussian(sensitivity=1.0, sigma=1000.0, dimension=1)
    least = parties - dropped
    shares = Shares.from_mechanism(noise, parties=parties, least=least, colluders=colluders)
    assert shares.noise_ratio == pytest.approx(known, abs=1e-6)


def test_one_party_alone_adds_the_whole_noise() -> None:
    noise = Gaussian(sensitivity=1.0, sigma=1000.0, dimension=8)
    shares = Shares.from_mechanism(noise, parties=1, least=1, colluders=0)
    assert shares.scale == 1000.0
    own = np.zeros((1, 8), dtype=np.int64)
    shares.add(noise, own, [NoiseStream.from_seed(3)])
    assert np.array_equal(own[0], noise.draw(NoiseStream.from_seed(3)))


def test_rows_that_share_a_stream_are_those_drawn_one_after_the_other() -> None:
    noise = LAWS[0]  # the others draw them in one call, all rows' V or counts first
    shares = Shares.from_mechanism(noise, parties=3, least=3, colluders=1)
    together = np.zeros((3, 40), dtype=np.int64)
    stream = NoiseStream.from_seed(2)
    shares.add(noise, together, [stream] * 3)
    apart, stream = np.zeros((3, 40), dtype=np.int64), NoiseStream.from_seed(2)
    for row in apart:
        shares.add(noise, row[None, :], [stream])
    assert np.array_equal(together, apart)


@pytest.mark.parametrize("noise", LAWS[1:], ids=lambda noise: noise.law)
def test_rows_that_are_drawn_in_one_call_have_the_law_of_rows_drawn_one_by_one(noise) -> None:
    shares = Shares.from_mechanism(noise, parties=6, least=4, colluders=1)
    rows = 3000 // noise.dimension * 5
    together = np.zeros((rows, noise.dimension), dtype=np.int64)
    shares.add(noise, together, [NoiseStream.from_seed(3)] * rows)
    apart = np.zeros_like(together)
    shares.add(noise, apart, [NoiseStream.from_seed(3, row) for row in range(rows)])

    def same(one, other):
        return stats.ks_2samp(one, other).pvalue > 1e-6

    sizes = [np.linalg.norm(each, axis=1) for each in (together, apart)]
    assert same(*sizes)
    assert not same(sizes[0], 1.5 * sizes[1])
    assert same(together[:, 0], apart[:, 0])
    assert np.unique(sizes[0]).size > rows / 2  # a V of its own for every row


@pytest.mark.parametrize(("scaled", "right"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_shares_whose_jitter_is_too_much_for_one_draw_are_dealt_in_groups(scaled, right):
    """16·2^30 a share: the sampler takes 64 at a time."""
    noise = L2Laplace(sensitivity=2.0**24, epsilon=1.0, dimension=40)
    shares = Shares.from_mechanism(noise, parties=1000, least=1, colluders=0, fine_bits=15)
    stream, squares = NoiseStream.from_seed(3), []
    for _ in range(6):
        total = np.zeros(40, dtype=np.int64)
        shares.add_summed(noise, total, 1000, stream)
        squares.append(np.square(total / 2.0**24).sum())
    # E‖z‖² = r·d(d + 1)b²; 240 coordinates together are within 5 deviations of it.
    told = np.sqrt(np.mean(squares) / (1000 * 40 * 41)) / scaled
    assert bool(abs(told - 1) < 5 / np.sqrt(2 * 240)) is right
