"""The noise follows its laws: the right scale passes, two thirds and three halves of it fail.

Seeds are fixed, so that a test gives the same verdict every time; the comparison with OpenDP,
whose randomness cannot be seeded, fails by chance once in a million runs.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceL1
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.sampling.discrete_noise import (
    discrete_gaussian,
    discrete_laplace,
    draw_negative_binomial,
)
from parley.privacy.sampling.l2_laplace import draw_rounded_l2_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian

ACCEPT, REJECT = 1e-3, 1e-12
SIZES = [20_000, pytest.param(2_000_000, marks=pytest.mark.heavy)]

Pmf = Callable[[np.ndarray, float], np.ndarray]


def rounded_gaussian_pmf(x: np.ndarray, sigma: float) -> np.ndarray:
    low, high = np.abs(x) - 0.5, np.abs(x) + 0.5
    return stats.norm.sf(low / sigma) - stats.norm.sf(high / sigma)


def discrete_gaussian_pmf(x: np.ndarray, sigma: float) -> np.ndarray:
    support = np.arange(-int(40 * sigma) - 20, int(40 * sigma) + 21)
    return np.exp(-(x**2) / (2 * sigma**2)) / np.exp(-(support**2) / (2 * sigma**2)).sum()


def discrete_laplace_pmf(x: np.ndarray, scale: float) -> np.ndarray:
    return math.tanh(1 / (2 * scale)) * np.exp(-np.abs(x) / scale)


LAWS = [
    (draw_rounded_gaussian, rounded_gaussian_pmf),
    (discrete_gaussian, discrete_gaussian_pmf),
    (discrete_laplace, discrete_laplace_pmf),
]


def chi_square(sample: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the p-value of an integer sample under a pmf, cells of < 10 expected ones pooled."""
    values = np.arange(sample.min(), sample.max() + 1)
    expected = pmf(values.astype(float)) * sample.size
    observed = np.bincount(sample - sample.min(), minlength=values.size)
    alone = expected >= 10
    pooled = [sample.size - expected[alone].sum(), observed[~alone].sum()]
    f_exp = np.append(expected[alone], max(pooled[0], 1e-9))
    f_obs = np.append(observed[alone], pooled[1])
    statistic = ((f_obs - f_exp) ** 2 / f_exp).sum()
    return float(stats.chi2.sf(statistic, len(f_exp) - 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 9.3])
@pytest.mark.parametrize(("sampler", "pmf"), LAWS)
def test_a_sampler_has_its_law_and_no_other_scale(sampler, pmf: Pmf, scale, size) -> None:
    sample = sampler(scale, size, NoiseStream.from_seed(21, "pmf"))
    assert chi_square(sample, lambda x: pmf(x, scale)) > ACCEPT
    assert chi_square(sample, lambda x: pmf(x, scale * 2 / 3)) < REJECT
    assert chi_square(sample, lambda x: pmf(x, scale * 3 / 2)) < REJECT


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1e4, 2.0**20, 2.0**32])
@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (draw_rounded_gaussian, stats.norm),
        (discrete_gaussian, stats.norm),
        (discrete_laplace, stats.laplace),
    ],
)
def test_on_a_fine_grid_a_sampler_has_the_continuous_law(sampler, law, scale, size) -> None:
    sample = sampler(scale, size, NoiseStream.from_seed(22)) / scale
    assert stats.kstest(sample, law.cdf).pvalue > ACCEPT
    assert stats.kstest(sample * 3 / 2, law.cdf).pvalue < REJECT
    assert stats.kstest(sample * 2 / 3, law.cdf).pvalue < REJECT


@pytest.mark.parametrize("count", [2_000, pytest.param(50_000, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("dimension", [1, 2, 3, 10])
def test_l2_laplace_has_a_gamma_norm_and_a_uniform_direction(dimension: int, count: int) -> None:
    scale = 1e5
    stream = NoiseStream.from_seed(25, dimension)
    sample = draw_rounded_l2_laplace(scale, dimension, count, stream)
    check_l2_laplace(sample, scale)


def check_l2_laplace(sample: np.ndarray, scale: float) -> None:
    dimension = sample.shape[1]
    norms = np.linalg.norm(sample, axis=1) / scale
    law = stats.gamma(dimension)
    assert stats.kstest(norms, law.cdf).pvalue > ACCEPT
    assert stats.kstest(norms * 3 / 2, law.cdf).pvalue < REJECT
    assert stats.kstest(norms * 2 / 3, law.cdf).pvalue < REJECT
    direction = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    if dimension == 1:
        assert stats.binomtest(int((direction > 0).sum()), len(direction)).pvalue > ACCEPT
        return
    # A coordinate of a uniform direction has u² ~ Beta(½, (d−1)/2); so has any projection.
    rotation = stats.special_ortho_group.rvs(dimension, random_state=7)
    for axis in (direction[:, 0], direction[:, -1], direction @ rotation[0]):
        assert stats.kstest(axis**2, stats.beta(0.5, (dimension - 1) / 2).cdf).pvalue > ACCEPT
        assert stats.binomtest(int((axis > 0).sum()), len(axis)).pvalue > ACCEPT
    # The norm tells nothing about the direction.
    assert stats.spearmanr(norms, np.abs(direction[:, 0])).pvalue > ACCEPT


def test_successive_values_and_the_signs_are_independent() -> None:
    for sampler in (draw_rounded_gaussian, discrete_laplace, discrete_gaussian):
        sample = sampler(1e3, 50_000, NoiseStream.from_seed(26)).astype(float)
        assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 5 / math.sqrt(50_000)
        signs, sizes = np.sign(sample), np.abs(sample)
        assert abs(np.corrcoef(signs, sizes)[0, 1]) < 5 / math.sqrt(50_000)


@pytest.mark.parametrize("size", [20_000, pytest.param(300_000, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("scale", [0.7, 3.0, 25.0])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_discrete_laws_are_those_of_opendp(law: str, scale: float, size: int) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="opendp is a test-only dependency")
    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    if law == "gaussian":
        theirs = dp.m.make_gaussian(vectors, dp.l2_distance(T=float), scale=scale)
        ours = discrete_gaussian(scale, size, NoiseStream.from_seed(27))
    else:
        theirs = dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=scale)
        ours = discrete_laplace(scale, size, NoiseStream.from_seed(27))
    reference = np.array(theirs([0] * size))
    assert two_sample(ours, reference) > 1e-6
    assert two_sample(np.rint(1.5 * ours).astype(int), reference) < REJECT


def two_sample(one: np.ndarray, other: np.ndarray) -> float:
    """Return the chi-square p-value that two integer samples have one law."""
    both = np.concatenate([one, other])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 31), method="nearest"))
    table = [np.bincount(np.searchsorted(edges, x), minlength=edges.size) for x in (one, other)]
    table = np.array(table)[:, np.sum(table, axis=0) > 10]
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize(("scale", "divisor"), [(0.4, 3), (1.0, 1), (3.0, 2), (20.0, 5)])
def test_the_negative_binomial_has_its_law(scale: float, divisor: int) -> None:
    sample = draw_negative_binomial(scale, divisor, 30_000, NoiseStream.from_seed(28))
    law = stats.nbinom(1 / divisor, -math.expm1(-1 / scale))
    assert chi_square(sample, law.pmf) > ACCEPT
    wrong = stats.nbinom(1 / divisor, -math.expm1(-1.5 / scale))
    assert chi_square(sample, wrong.pmf) < REJECT


@pytest.mark.parametrize("honest", [1, 4, 25])
@pytest.mark.parametrize(
    ("noise", "pmf"),
    [
        (LaplaceL1(sensitivity=3.0, epsilon=1.0, dimension=1), discrete_laplace_pmf),
        (Gaussian(sensitivity=1.0, sigma=31.0, dimension=1), None),
    ],
    ids=lambda each: getattr(each, "law", None),
)
def test_shares_sum_to_their_law(noise: Mechanism, pmf: Pmf | None, honest: int) -> None:
    size = 20_000
    shares = Shares.from_mechanism(noise, parties=honest, least=honest, colluders=0)
    rows = np.zeros((honest, size), dtype=np.int64)
    shares.add(noise, rows, [NoiseStream.from_seed(29, party) for party in range(honest)])
    total, scale = rows.sum(axis=0), noise.scale
    if pmf is None:  # further roundings: (k − 1)/12 of variance, little beside 31²
        assert stats.kstest((total + dither(size)) / scale, stats.norm.cdf).pvalue > ACCEPT
        assert stats.kstest(total / scale * 3 / 2, stats.norm.cdf).pvalue < REJECT
        assert stats.kstest(total / scale * 2 / 3, stats.norm.cdf).pvalue < REJECT
        return
    assert chi_square(total, lambda x: pmf(x, scale)) > ACCEPT
    assert chi_square(total, lambda x: pmf(x, scale * 2 / 3)) < REJECT
    assert chi_square(total, lambda x: pmf(x, scale * 3 / 2)) < REJECT


def dither(size: int) -> np.ndarray:
    """Uniform on ±½: integers that a continuous law can be compared with."""
    return np.random.default_rng(3).random(size) - 0.5


@pytest.mark.parametrize(("dimension", "honest"), [(1, 1), (2, 5), (5, 3), (10, 8)])
def test_l2_laplace_shares_sum_to_l2_laplace(dimension: int, honest: int) -> None:
    noise = L2Laplace(sensitivity=2.0**30, epsilon=1.0, dimension=dimension)
    shares = Shares.from_mechanism(noise, parties=honest, least=honest, colluders=0)
    stream, count = NoiseStream.from_seed(31, dimension), 600
    sample = np.zeros((count, dimension), dtype=np.int64)
    for at in range(count):
        rows = np.zeros((honest, dimension), dtype=np.int64)
        shares.add(noise, rows, [stream] * honest)
        sample[at] = rows.sum(axis=0)
    check_l2_laplace(sample.astype(float), noise.scale)
