"""Shares of noise: the theorem by convolution, known answers, and the faults that it finds."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from parley.privacy.accounting.gaussian_curve import compute_gaussian_delta
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import LaplaceL1
from parley.privacy.mechanisms.noise_shares import Shares, compute_tau
from parley.privacy.mechanisms.share_laws import MIN_SHARE
from parley.privacy.sampling.random_stream import NoiseStream

REACH = 60


def masses(variance, x):
    """P[round(x + N(0, v)) = n] for |n| ≤ 60, from whichever tail keeps its digits."""
    n, s = np.arange(-REACH, REACH + 1), math.sqrt(variance)
    low, high = (n - 0.5 - x) / s, (n + 0.5 - x) / s
    right = stats.norm.sf(low) - stats.norm.sf(high)
    return np.where(n > x, right, stats.norm.cdf(high) - stats.norm.cdf(low))


def of_sum(variances, xs):
    """Masses of Σ round(x_j + N(0, v_j)), by convolution."""
    total = np.ones(1)
    for variance, x in zip(variances, xs, strict=True):
        total = np.convolve(total, masses(variance, x))
    return np.arange(-(total.size // 2), total.size // 2 + 1), total


def reference(variance, shares, centre, n):
    """P[round(N(centre, kv) + U_1 + … + U_{k−1}) = n], by Fourier inversion."""
    t = np.linspace(0, min(60.0, 9.5 / math.sqrt(shares * variance)), 100_001)
    weight = np.full_like(t, t[1])
    weight[[0, -1]] /= 2
    phi = np.exp(-shares * variance * t * t / 2) * np.sinc(t / 2 / math.pi) ** shares * weight
    return np.array([(phi * np.cos(t * (each - centre))).sum() / math.pi for each in n])


def delta_at_one(variances, *, moved=0):
    """The largest δ(1) of the integer sum when one real input moves by 1, over 21 offsets."""
    worst = 0.0
    for x in np.linspace(0, 1, 21):
        at = [float(x) if place == moved else 0.0 for place in range(len(variances))]
        _, one = of_sum(variances, at)
        at[moved] += 1
        _, two = of_sum(variances, at)
        for a, b in ((one, two), (two, one)):
            worst = max(worst, float(np.maximum(a - math.e * b, 0).sum()))
    return worst


@pytest.mark.parametrize(
    ("variance", "shares", "known"),
    [
        (1.0, 2, 1.034517e-4),
        (1.0, 3, 1.07306e-4),
        (4.0, 10, 1.431436e-17),
        (2.0, 5, 5.358319e-9),
        (16.0, 1000, 5.248006e-69),
    ],
)
def test_tau_has_its_known_values(variance: float, shares: int, known: float) -> None:
    assert compute_tau(variance, shares) == pytest.approx(known, rel=1e-6)


def test_tau_is_the_same_by_the_theta_function_and_bounded_for_a_million_shares() -> None:
    theta = math.fsum(
        -math.log1p(-2 * math.fsum(math.exp(-2 * math.pi**2 * 2 * j / (j + 1) * i * i)
                                   for i in range(1, 9)))
        for j in range(1, 400)
    )  # fmt: skip
    assert theta <= compute_tau(2.0, 400) <= theta * (1 + 1e-2)
    assert compute_tau(16.0, 2**20) < 5.3e-69
    assert compute_tau(0.01, 3) == math.inf


@pytest.mark.parametrize(
    ("variance", "xs", "n", "known"),
    [
        (0.25, (0, 0, 0), 3, 0.105783),
        (0.49, (0, 0), 6, 0.0121733),
        (0.49, (0, 0, 0, 0), 6, 0.00219259),
        (1.0, (0, 0), 8, 6.70029e-5),
        (1.0, (0.3, 0.45), -4, 4.70691e-5),
    ],
)
def test_the_sum_differs_from_its_reference_by_the_known_ratio(variance, xs, n, known) -> None:
    at, total = of_sum([variance] * len(xs), xs)
    (wanted,) = reference(variance, len(xs), sum(xs), [n])
    assert abs(math.log(total[at == n][0] / wanted)) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize("xs", [(0, 0, 0), (0.3, 0.45, -0.2), (0.5, 0.5, 0.5)])
@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0])
def test_the_theorem_holds_at_every_mass_that_doubles_resolve(scale: float, xs) -> None:
    variance = scale**2
    at, total = of_sum([variance] * 3, xs)
    seen = total > 1e-9
    ratio = np.abs(np.log(total[seen] / reference(variance, 3, sum(xs), at[seen])))
    bound = compute_tau(variance, 3)
    assert ratio.max() <= bound
    # It is no empty promise: two thirds of the scale are told apart.
    few = total > 1e-4
    off = np.abs(np.log(total[few] / reference(variance * 4 / 9, 3, sum(xs), at[few])))
    assert off.max() > bound


@pytest.mark.parametrize(
    ("scale", "shares", "known", "claimed"),
    [
        (0.2, 10, 0.790576, 0.352518),
        (0.2, 100, 0.0828846, 0.00682959),
        (0.5, 10, 0.0126130, 0.0244210),
    ],
)
def test_without_a_floor_the_claim_is_false(scale, shares, known, claimed) -> None:
    assert delta_at_one([scale**2] * shares) == pytest.approx(known, rel=1e-5)
    curve = compute_gaussian_delta(1 / (scale * math.sqrt(shares)), 1.0)
    assert curve == pytest.approx(claimed, rel=1e-5)
    assert (known > curve) == (scale < 0.5)


def test_shares_below_four_ring_units_are_refused_with_the_grid_that_gives_them() -> None:
    noise = Gaussian(sensitivity=1.0, sigma=3.99 * 3, dimension=2)
    with pytest.raises(ValueError, match=r"at least 4 ring units, got 3\.99.* 2\^1 times as fine"):
        Shares.from_mechanism(noise, parties=10, least=10, colluders=1)
    enough = replace(noise, sigma=MIN_SHARE * 3)
    assert Shares.from_mechanism(enough, parties=10, least=10, colluders=1).scale == MIN_SHARE
    # The floor is on ring units: 2^6 fine units to one of them need 2^6 times as much.
    with pytest.raises(ValueError, match=r"got 0\.0625: .* 2\^6 times as fine"):
        Shares.from_mechanism(enough, parties=10, least=10, colluders=1, fine_bits=6)


EXACT_SIGMA = 0.5 * math.sqrt(8)


"""Of 8 honest shares of half a unit each, where the faults below are computed exactly."""


@pytest.mark.parametrize(
    ("fault", "variances"),
    [
        ("k = t: the colluders' shares are counted", [0.25 * 8 / 10] * 8),
        ("one share is missing", [0.25] * 7),
        ("a share is scaled by two thirds", [0.25 * 4 / 9] * 8),
        ("shares are divided by the survivors that were expected", [0.25 * 8 / 12] * 8),
    ],
)
def test_a_planted_fault_has_less_noise_than_is_claimed(fault, variances) -> None:
    """By exact masses: the honest sum is within its claim, each fault's is beyond it."""
    del fault
    distance = compute_tau(0.25, 8)  # (ε + 2τ, δe^τ) of one coordinate
    claimed = compute_gaussian_delta(1 / EXACT_SIGMA, 1 - 2 * distance) * math.exp(distance)
    honest = delta_at_one([0.25] * 8)
    assert honest <= claimed
    # What the fault releases costs more than what was asked for does.
    assert delta_at_one(variances) > honest * 1.1


def test_a_plan_with_a_smaller_share_than_its_law_claims_is_refused() -> None:
    noise = Gaussian(sensitivity=1.0, sigma=1000.0, dimension=3)
    shares = Shares.from_mechanism(noise, parties=10, least=9, colluders=1)
    assert shares.honest == 8
    assert Fraction(shares.scale) ** 2 * 8 >= Fraction(1000) ** 2
    assert Fraction(math.nextafter(shares.scale, 0)) ** 2 * 8 < Fraction(1000) ** 2 * (1 + 1e-12)
    for fault in (
        replace(shares, scale=math.nextafter(shares.scale, 0)),
        replace(shares, scale=shares.scale * 2 / 3),
        replace(shares, honest=7),
    ):
        with pytest.raises(ValueError, match=r"Expected shares of at least .* make up gaussian"):
            fault.check(noise)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"least": 3, "colluders": 3}, "fewer colluders than the 3 survivors"),
        ({"least": 3, "colluders": 4}, "fewer colluders than the 3 survivors"),
        ({"least": 11, "colluders": 1}, "k [+] c ≤ m"),
        ({"colluders": -1}, "fewer colluders"),
        ({"parties": 2**20 + 1}, "parties, got"),
    ],
)
def test_bad_splits_are_refused(facts, said) -> None:
    noise = Gaussian(sensitivity=1.0, sigma=1000.0, dimension=3)
    with pytest.raises(ValueError, match=said):
        Shares.from_mechanism(noise, **{"parties": 10, "least": 9, "colluders": 1} | facts)


def test_a_law_whose_shares_do_not_add_up_is_refused_with_what_to_choose() -> None:
    noise = DiscreteGaussian(sensitivity=1.0, sigma=1000.0, dimension=3)
    with pytest.raises(ValueError, match=r"split into shares, of gaussian, .*noise-point = 'serv"):
        Shares.from_mechanism(noise, parties=10, least=9, colluders=1)
    exact = LaplaceL1(sensitivity=1.0, epsilon=0.1, dimension=3)
    with pytest.raises(ValueError, match="not proved for it, got 3 bits"):
        Shares.from_mechanism(exact, parties=10, least=9, colluders=1, fine_bits=3)


def test_rounding_after_the_noise_has_the_known_masses() -> None:
    # Coarse cells of 16 fine units, moved by half of one: u = 37, s = 96.
    noise = Gaussian(sensitivity=1.0, sigma=96.0, dimension=400_000)
    shares = Shares.from_mechanism(noise, parties=1, least=1, colluders=0, fine_bits=4)
    vectors = np.full((1, noise.dimension), 37, dtype=np.int64)
    shares.add(noise, vectors, [NoiseStream.from_seed(5)])
    rounded = shares.round_to_ring(vectors)[0]
    for cell, known in ((0, 0.0615458790), (2, 0.0663048491)):
        low, high = 16 * cell - 8.5 - 37, 16 * cell + 7.5 - 37
        assert stats.norm.cdf(high / 96) - stats.norm.cdf(low / 96) == pytest.approx(
            known, abs=1e-10
        )
        error = 5 * math.sqrt(known / noise.dimension)
        assert (rounded == cell).mean() == pytest.approx(known, abs=error)
