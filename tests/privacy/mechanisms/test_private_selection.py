"""Choosing by score, and randomised response: laws by enumeration, coins by their frequencies."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from parley.privacy.accounting.composition import Composition
from parley.privacy.mechanisms.private_selection import (
    SELECTIONS,
    ExponentialMechanism,
    PermuteAndFlip,
)
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.sampling.inversion import draw_integers_below
from parley.privacy.sampling.random_stream import NoiseStream

SCORES = [10, 8, 7, 1]


def by_orders(scores, epsilon, sensitivity):
    """Permute-and-flip's law, over all orders."""
    best = max(scores)
    q = [math.exp(-epsilon * (best - u) / (2 * sensitivity)) for u in scores]
    found = [0.0] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        left = 1.0
        for i in order:
            found[i] += left * q[i] / math.factorial(len(scores))
            left *= 1 - q[i]
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=5),
    st.floats(0.05, 4),
    st.fractions(Fraction(1, 10), 3, max_denominator=10),
)
def test_permute_and_flips_integral_is_the_sum_over_orders(scores, epsilon, sensitivity):
    law = PermuteAndFlip(epsilon=epsilon, sensitivity=sensitivity)
    assert law.compute_probabilities(scores) == pytest.approx(
        by_orders(scores, epsilon, float(sensitivity))
    )
    assert law.compute_probabilities(scores).sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", SELECTIONS.values())
@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    scores=st.lists(st.integers(-20, 20), min_size=2, max_size=5),
    epsilon=st.floats(0.05, 4),
    sensitivity=st.integers(1, 3),
)
def test_neighbours_are_told_apart_by_at_most_epsilon(kind, data, scores, epsilon, sensitivity):
    moves = st.integers(-sensitivity, sensitivity)
    near = [u + data.draw(moves) for u in scores]
    law = kind(epsilon=epsilon, sensitivity=sensitivity)
    ratios = np.log(law.compute_probabilities(scores) / law.compute_probabilities(near))
    assert np.abs(ratios).max() <= epsilon + 1e-9


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.integers(-20, 20), min_size=2, max_size=5),
    epsilon=st.floats(0.05, 4),
    order=st.floats(1.01, 40),
    data=st.data(),
)
def test_the_exponential_mechanisms_range_and_its_renyi_curve_are_bounded(
    scores, epsilon, order, data
):
    near = [u + data.draw(st.integers(-1, 1)) for u in scores]
    law = ExponentialMechanism(epsilon=epsilon, sensitivity=1)
    p, q = law.compute_probabilities(scores), law.compute_probabilities(near)
    ratios = np.log(p / q)
    assert ratios.max() - ratios.min() <= epsilon + 1e-9  # bounded range
    renyi = np.log(np.sum(q * np.exp(order * ratios))) / (order - 1)
    assert renyi <= order * epsilon**2 / 8 + 1e-9  # ε²/8-zCDP


@pytest.mark.parametrize(("epsilon", "rho"), [(0.5, 0.03125), (1.0, 0.125), (2.0, 0.5)])
def test_the_event_has_the_rho_of_bounded_range(epsilon, rho):
    event = ExponentialMechanism(epsilon=epsilon, sensitivity=1).event()
    assert (event.epsilon, event.rho) == (epsilon, rho)
    assert Composition.from_events([event]).compute_lowest_epsilon(0.0) == ("pure", epsilon)
    assert (
        PermuteAndFlip(epsilon=epsilon, sensitivity=1).event().exact_rho
        == Fraction(epsilon) ** 2 / 2
    )


@pytest.mark.parametrize("kind", SELECTIONS.values())
def test_the_frequencies_are_the_laws_and_no_others(kind):
    law, draws = kind(epsilon=1.0, sensitivity=1), 6000
    stream = NoiseStream.from_seed(11, law.law)
    counts = np.bincount([law.choose(SCORES, stream) for _ in range(draws)], minlength=4)
    assert chisquare(counts, law.compute_probabilities(SCORES) * draws).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        other = kind(epsilon=wrong, sensitivity=1).compute_probabilities(SCORES) * draws
        assert chisquare(counts, other).pvalue < 1e-6


def test_many_candidates_of_which_few_are_good():
    scores = np.full(16384, -30_000)
    scores[[17, 12_000]] = 0
    chosen = {
        ExponentialMechanism(epsilon=1.0, sensitivity=1).choose(scores, NoiseStream.from_seed(k))
        for k in range(6)
    }
    assert chosen == {17, 12_000}
    assert (
        PermuteAndFlip(epsilon=1.0, sensitivity=1).choose(scores, NoiseStream.from_seed(1))
        in chosen
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ExponentialMechanism(epsilon=0.0, sensitivity=1),
        lambda: PermuteAndFlip(epsilon=math.nan, sensitivity=1),
        lambda: PermuteAndFlip(epsilon=1.0, sensitivity=0),
        lambda: PermuteAndFlip(epsilon=1.0, sensitivity=1).choose([], NoiseStream.from_seed(1)),
        lambda: ExponentialMechanism(epsilon=1.0, sensitivity=1).compute_probabilities(
            np.array([0.5, 1.0])
        ),
        lambda: draw_integers_below(0, 1, NoiseStream.from_seed(1)),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()


def test_uniform_integers_are_uniform():
    drawn = draw_integers_below(7, 7000, NoiseStream.from_seed(1))
    assert chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-4


def test_known_answers():
    assert RandomisedResponse(epsilon=math.log(3), answers=2).truth_probability == pytest.approx(
        0.75
    )
    assert RandomisedResponse(epsilon=1.0, answers=5).truth_probability == pytest.approx(
        0.404610, abs=1e-6
    )
    share = RandomisedResponse(epsilon=1.0, answers=2).compute_deviation(300, records=1000) / 1000
    assert share == pytest.approx(0.0303426, abs=1e-7)
    assert math.hypot(share, math.sqrt(0.3 * 0.7 / 1000)) == pytest.approx(0.0336255, abs=1e-7)


@pytest.mark.parametrize("answers", [2, 5])
def test_the_reports_have_the_law_and_no_other(answers):
    response, records = RandomisedResponse(epsilon=1.0, answers=answers), 30_000
    reports = response.draw_reports(np.full(records, 1, dtype=np.int64), NoiseStream.from_seed(5))
    counts = np.bincount(reports, minlength=answers)

    def expected(epsilon):
        law = RandomisedResponse(epsilon=epsilon, answers=answers)
        return [
            records * (law.truth_probability if k == 1 else law.lie_probability)
            for k in range(answers)
        ]

    assert chisquare(counts, expected(1.0)).pvalue > 1e-4
    assert chisquare(counts, expected(2 / 3)).pvalue < 1e-6
    assert chisquare(counts, expected(3 / 2)).pvalue < 1e-6


def test_the_estimate_is_unbiased_and_has_its_deviation():
    response = RandomisedResponse(epsilon=1.0, answers=3)
    codes = np.repeat([0, 1, 2], [500, 300, 200])
    stream, found = NoiseStream.from_seed(9), []
    for _ in range(1500):
        reports = np.bincount(response.draw_reports(codes, stream), minlength=3)
        found.append(response.estimate_counts(reports, records=1000))
    mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
    deviation = response.compute_deviation([500, 300, 200], records=1000)
    np.testing.assert_allclose(mean, [500, 300, 200], atol=5 * deviation.max() / math.sqrt(1500))
    np.testing.assert_allclose(spread, deviation, rtol=0.08)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RandomisedResponse(epsilon=0.0, answers=2),
        lambda: RandomisedResponse(epsilon=1e9, answers=2),
        lambda: RandomisedResponse(epsilon=1.0, answers=1),
        lambda: RandomisedResponse(epsilon=1.0, answers=True),
        lambda: RandomisedResponse(epsilon=1.0, answers=2).draw_reports(
            np.array([2]), NoiseStream.from_seed(1)
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()
