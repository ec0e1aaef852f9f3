"""The integer samplers: exact on their words, the same by float and by mpmath, within range."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtri

from parley.privacy.sampling import inversion, rounded_gaussian
from parley.privacy.sampling.discrete_noise import (
    discrete_gaussian,
    discrete_laplace,
    draw_negative_binomial,
)
from parley.privacy.sampling.l2_laplace import draw_rounded_l2_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import (
    LARGEST_QUICK,
    QUICK_ERROR,
    add_rounded_gaussian,
    add_rounded_gaussian_rows,
    compute_quick_half_normal,
    compute_rounded_distance,
    draw_rounded_gaussian,
)

SCALAR = [draw_rounded_gaussian, discrete_laplace, discrete_gaussian]
SCALES = [2.0**-20, 1e-3, 0.3, 1.0, 7.5, 1e3, 2.0**30, 2.0**40]


class Scripted:
    """A stream whose first words are given and whose later words are a seed's."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)
        self._rest = NoiseStream.from_seed(99)

    def draw_words(self, count: int) -> np.ndarray:
        head, self._words = self._words[:count], self._words[count:]
        rest = self._rest.draw_words(count - len(head))
        return np.concatenate([np.array(head, dtype=np.uint64), rest])


@pytest.fixture
def settle_everything(monkeypatch: pytest.MonkeyPatch):
    """Return a function that widens the float margin until every lane is settled by mpmath."""

    def widen() -> None:
        monkeypatch.setattr(
            inversion, "_find_undecided", lambda distance, _: np.arange(distance.size)
        )

    return widen


def _l2(dimension):
    return lambda scale, size, stream: draw_rounded_l2_laplace(scale, dimension, size, stream)


def _negative_binomial(divisor):
    return lambda scale, size, stream: draw_negative_binomial(scale, divisor, size, stream)


DRAWS = [
    *((sampler, scale, 60) for sampler in SCALAR for scale in SCALES),
    *((_l2(d), scale, 1) for d in (1, 2, 3, 10, 41) for scale in (1e-3, 1.0, 1e5, 2.0**36)),
    *(
        (_negative_binomial(k), scale, 40)
        for k in (1, 7)
        for scale in (1e-2, 0.3, 1.0, 1e3, 2.0**40)
    ),
]


@pytest.mark.parametrize("factor", [1, pytest.param(300, marks=pytest.mark.heavy)])
@pytest.mark.parametrize(("sampler", "scale", "size"), DRAWS)
def test_the_slow_path_gives_what_the_fast_path_gives(
    sampler, scale, size, factor, settle_everything
) -> None:
    fast = sampler(scale, factor * size, NoiseStream.from_seed(11, "path"))
    settle_everything()
    slow = sampler(scale, factor * size, NoiseStream.from_seed(11, "path"))
    np.testing.assert_array_equal(slow, fast)


@pytest.mark.parametrize(
    ("rows", "dimension", "sigma"),
    [(300, 7, 2.0**38), (9, 33, 2.0**-19), (40, 1, 0.5), (4, 40_000, 1e9), (2, 70_000, 3.0)],
)
def test_rows_together_have_the_bits_of_each_by_itself(rows, dimension, sigma) -> None:
    _check_rows(rows, dimension, sigma)


def test_of_rows_together_each_draws_further_words_from_its_stream(
    settle_everything, monkeypatch
) -> None:
    class Further(inversion.Uniform):
        def __init__(self, word, stream):
            super().__init__(word, stream)
            self.extend()

    settle_everything()
    monkeypatch.setattr(inversion, "Uniform", Further)
    monkeypatch.setattr(
        rounded_gaussian, "round_to_nearest", lambda values, _: (values, np.arange(len(values)))
    )
    _check_rows(5, 7, 30.0)


def _check_rows(rows: int, dimension: int, sigma: float) -> None:
    alone, together = np.ones((2, rows, dimension), dtype=np.int64)
    own, same = ([NoiseStream.from_seed(3, at) for at in range(rows)] for _ in range(2))
    for row, stream in zip(alone, own, strict=True):
        add_rounded_gaussian(row, sigma, stream)
    add_rounded_gaussian_rows(together, sigma, same)
    np.testing.assert_array_equal(together, alone)
    assert [each.draw_words(1)[0] for each in same] == [each.draw_words(1)[0] for each in own]


def test_the_float_functions_keep_to_the_margin() -> None:
    rng = np.random.default_rng(1)
    tails = np.concatenate(
        [
            rng.random(1500) / 2,
            2.0 ** -rng.uniform(1, 65, 1500),
            0.5 - 2.0 ** -rng.uniform(2, 53, 500),
            math.exp(-2) * (1 + rng.uniform(-0.1, 0.1, 1000)),  # Cephes changes formula here
            math.exp(-32) * (1 + rng.uniform(-0.1, 0.1, 300)),  # and here
        ]
    )
    with mp.workprec(160):
        for tail, x in zip(tails.tolist(), ndtri(tails).tolist(), strict=True):
            # One Newton step measures the error of x.
            error = (mp.ncdf(mpf(x)) - mpf(tail)) / mp.npdf(mpf(x))
            assert abs(error) <= abs(x) * inversion.FLOAT_ERROR / 4
        for uniform in (2 * tails).tolist():
            exact = mp.log(mpf(uniform))
            assert abs(np.log(uniform) - exact) <= abs(exact) * inversion.FLOAT_ERROR / 4


def test_the_quick_guess_keeps_to_its_error_in_every_cell() -> None:
    rng = np.random.default_rng(2)
    octaves = 2 ** np.arange(43, 63)[:, None]
    edges = octaves + np.arange(1024) * (octaves // 1024)
    inner = [edges + (octaves / 1024 * rng.random(edges.shape)).astype(int) for _ in range(20)]
    edges = edges.ravel()
    words = np.concatenate([edges, edges[1:] - 1, np.ravel(inner), [2**63 - 1]]).astype(np.uint64)
    quick = compute_quick_half_normal(words)
    exact = -ndtri(words.astype(np.float64) / 2.0**64)
    assert np.abs(quick - exact).max() < QUICK_ERROR / 2
    assert quick.max() < LARGEST_QUICK
    np.testing.assert_array_equal(quick, compute_quick_half_normal(words | np.uint64(2**63)))
    below = np.array([0, 1, 2**42, 2**43 - 1], dtype=np.uint64)
    assert np.isnan(compute_quick_half_normal(below)).all()


def test_the_thresholds_do_not_change_at_twice_the_precision() -> None:
    # The settling path asks for the 159 leading bits of 223.
    for compute in (
        lambda: mp.erfc(mpf("1e-9")),
        lambda: mp.erfc(mpf("0.7123")),
        lambda: mp.erfc(mpf("6.4321")),
        lambda: mp.erfc(mpf("13.9")),
        lambda: mp.erfc(mpf(2) ** 18 + mpf("0.1")),
        lambda: mp.exp(-mpf("44.36")),
        lambda: mp.exp(-(mpf(2) ** 40) / 3),
        lambda: mp.log1p(-mp.exp(-(mpf(2) ** 10))),
    ):
        with mp.workprec(223):
            low = compute()
        with mp.workprec(700):
            assert abs(low / compute() - 1) < mpf(2) ** -159


def _rounded_normal(uniform, sigma):
    return mp.nint(mpf(sigma) * mp.sqrt(2) * mp.erfinv(1 - uniform))


def _inverted_laplace(uniform, scale):
    shift = mp.log(2) - mp.log(1 + mp.exp(-1 / mpf(scale)))
    return mp.floor(mpf(scale) * (shift - mp.log(uniform)))


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**62, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**40])
@pytest.mark.parametrize(
    ("sampler", "exactly"),
    [(draw_rounded_gaussian, _rounded_normal), (discrete_laplace, _inverted_laplace)],
)
def test_the_farthest_words_are_inverted_right(sampler, exactly, word: int, scale: float) -> None:
    extension = int(NoiseStream.from_seed(99).draw_words(1)[0])
    (drawn,) = sampler(scale, 1, Scripted(word)).tolist()
    with mp.workprec(400):
        numerator = ((word % 2**63) << 64) + extension
        expected = int(exactly((mpf(numerator) + 0.5) / mpf(2) ** 127, scale))
    assert drawn == (-expected if word >> 63 else expected)


def test_a_word_whose_cell_holds_a_threshold_is_extended_until_it_does_not() -> None:
    with mp.workprec(400):
        threshold = mp.erfc(mpf(1.5) / mp.sqrt(2))
        digits = int(mp.floor(threshold * mpf(2) ** 191))
    word, middle, last = digits >> 128, digits >> 64 & 2**64 - 1, digits & 2**64 - 1
    # |X| ≥ 2 exactly where U ≤ erfc(1.5/√2): settled by the third word, one unit either side.
    assert draw_rounded_gaussian(1.0, 1, Scripted(word, middle, last - 1)).tolist() == [2]
    assert draw_rounded_gaussian(1.0, 1, Scripted(word, middle, last + 1)).tolist() == [1]


@pytest.mark.parametrize("words", [(0,), (2**62, 2**61, 2**60), (0, 2**61, 0), (2**62, 0, 2**63)])
def test_l2_laplace_is_computed_right_from_its_words(words: tuple[int, ...]) -> None:
    # One word gives V for d = 1; three, of which the last is the angle, for d = 2.
    dimension = (len(words) + 1) // 2
    lanes = NoiseStream.from_seed(5).draw_words(dimension).tolist()
    drawn = draw_rounded_l2_laplace(2.0**30, dimension, 1, Scripted(*words, *lanes))[0].tolist()
    rest = iter(NoiseStream.from_seed(99).draw_words(9).tolist())
    with mp.workprec(300):
        halves = []
        for word in words:  # words whose 63 bits are 0 are extended, in order
            magnitude = word % 2**63
            low = mpf(magnitude) / 2**63 if magnitude else mpf(next(rest)) / mpf(2) ** 127
            halves.append(low)
        mixing = -mp.log(halves[0])
        if dimension == 2:
            mixing += -mp.log(halves[1]) * mp.cos(mp.pi * halves[2]) ** 2
        for lane, value in zip(lanes, drawn, strict=True):
            tail = mpf(lane % 2**63) / 2**63
            exact = 2**30 * mp.sqrt(2 * mixing) * mp.sqrt(2) * mp.erfinv(1 - tail)
            assert value == int(mp.nint(-exact if lane >> 63 else exact))


def test_settling_finds_the_count_from_any_guess() -> None:
    def survival(mp, bits: int, j: int):
        return inversion.widen(mp, mp.exp(-mpf(j + 1) / 100), mp.exp(-mpf(j + 1) / 100))

    stream = NoiseStream.from_seed(3)
    for word in stream.draw_words(5).tolist():
        counts = {
            inversion.find_exact_value(inversion.Uniform(word, stream), survival, guess)
            for guess in (-5, 0, 1, 50, 99, 1000, 10**9)
        }
        assert len(counts) == 1


@pytest.mark.parametrize("size", [0, 1, 5])
def test_sizes_and_types(size: int) -> None:
    for sampler in SCALAR:
        noise = sampler(3.0, size, NoiseStream.from_seed(1))
        assert noise.shape == (size,)
        assert noise.dtype == np.int64
    assert draw_rounded_l2_laplace(3.0, 6, 1, NoiseStream.from_seed(1)).shape == (1, 6)


def test_the_values_do_not_depend_on_the_platform() -> None:
    # Golden: a change here changes every seeded run.
    def draw(sampler, scale: float, label: str) -> list[int]:
        return sampler(scale, 5, NoiseStream.from_seed(2025, label)).tolist()

    assert draw(draw_rounded_gaussian, 1e6, "rounded_gaussian") == [
        71856,
        1324460,
        -21968,
        -454349,
        -232709,
    ]
    assert draw(discrete_laplace, 1e6, "discrete_laplace") == [
        179257,
        -199328,
        -2244606,
        1084279,
        -101411,
    ]
    assert draw(discrete_gaussian, 1e6, "discrete_gaussian") == [
        280017,
        -375762,
        -705474,
        -1548734,
        584193,
    ]
    stream = NoiseStream.from_seed(2025, "rounded_l2_laplace")
    assert draw_rounded_l2_laplace(1e6, 5, 1, stream).tolist()[0] == [
        -921266,
        1217754,
        -1499420,
        1938728,
        -1539910,
    ]


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**-21, 2.0**41])
def test_a_scale_out_of_range_is_refused_with_the_number(scale: float) -> None:
    for sampler in SCALAR:
        with pytest.raises(ValueError, match=r"Expected (sigma|scale) within .* got "):
            sampler(scale, 3, NoiseStream.from_seed(1))
    with pytest.raises(ValueError, match="Expected scale within"):
        draw_rounded_l2_laplace(scale, 3, 1, NoiseStream.from_seed(1))
    with pytest.raises(ValueError, match="Expected scale within"):
        draw_negative_binomial(scale, 2, 3, NoiseStream.from_seed(1))


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda stream: draw_rounded_gaussian(1.0, -1, stream), "size ≥ 0, got -1"),
        (lambda stream: discrete_laplace(1.0, -1, stream), "size ≥ 0, got -1"),
        (lambda stream: discrete_gaussian(1.0, -1, stream), "size ≥ 0, got -1"),
        (lambda stream: draw_rounded_l2_laplace(1.0, 0, 1, stream), "dimension ≥ 1, got 0"),
        (lambda stream: draw_rounded_l2_laplace(2.0**36, 10_000, 1, stream), "Use a coarser grid"),
        (lambda stream: draw_negative_binomial(1.0, 0, 3, stream), "divisor ≥ 1, got 0"),
        (
            lambda stream: add_rounded_gaussian_rows(np.zeros((3, 2)), 1.0, [stream]),
            "3 streams, one per row, got 1",
        ),
    ],
)
def test_a_size_out_of_range_is_refused_with_the_number(draw, said) -> None:
    stream = NoiseStream.from_seed(1)
    with pytest.raises(ValueError, match=f"Expected .*{said}|{said}"):
        draw(stream)
    assert "words_drawn=0)" in repr(stream)


def test_the_distance_of_a_whole_run_is_below_two_to_the_minus_forty() -> None:
    assert compute_rounded_distance(0) == 0
    assert compute_rounded_distance(2**47) <= 2.0**-40
    assert compute_rounded_distance(104 * 500) < 2.0**-70
    with pytest.raises(ValueError, match="Expected coordinates ≥ 0"):
        compute_rounded_distance(-1)


def test_the_global_precision_of_mpmath_is_neither_used_nor_changed(settle_everything) -> None:
    expected = draw_rounded_gaussian(5.0, 20, NoiseStream.from_seed(1))
    settle_everything()
    with mp.workprec(20):
        drawn = draw_rounded_gaussian(5.0, 20, NoiseStream.from_seed(1))
        assert mp.prec == 20
    np.testing.assert_array_equal(drawn, expected)
