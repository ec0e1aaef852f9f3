"""Randomised response: its law, its unbiased inverse, and the deviation it has."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.sampling.stream import NoiseStream


def test_known_answers():
    assert RandomisedResponse(epsilon=math.log(3), answers=2).truth == pytest.approx(0.75)
    assert RandomisedResponse(epsilon=1.0, answers=5).truth == pytest.approx(0.404610, abs=1e-6)
    share = RandomisedResponse(epsilon=1.0, answers=2).deviation(300, records=1000) / 1000
    assert share == pytest.approx(0.0303426, abs=1e-7)
    assert math.hypot(share, math.sqrt(0.3 * 0.7 / 1000)) == pytest.approx(0.0336255, abs=1e-7)


@pytest.mark.parametrize("answers", [2, 5])
def test_the_reports_have_the_law_and_no_other(answers):
    response, records = RandomisedResponse(epsilon=1.0, answers=answers), 30_000
    reports = response.reports(np.full(records, 1, dtype=np.int64), NoiseStream.from_seed(5))
    counts = np.bincount(reports, minlength=answers)

    def expected(epsilon):
        law = RandomisedResponse(epsilon=epsilon, answers=answers)
        return [records * (law.truth if k == 1 else law.lie) for k in range(answers)]

    assert chisquare(counts, expected(1.0)).pvalue > 1e-4
    assert chisquare(counts, expected(2 / 3)).pvalue < 1e-6
    assert chisquare(counts, expected(3 / 2)).pvalue < 1e-6


def test_the_estimate_is_unbiased_and_has_its_deviation():
    response = RandomisedResponse(epsilon=1.0, answers=3)
    codes = np.repeat([0, 1, 2], [500, 300, 200])
    stream, found = NoiseStream.from_seed(9), []
    for _ in range(1500):
        reports = np.bincount(response.reports(codes, stream), minlength=3)
        found.append(response.counts(reports, records=1000))
    mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
    deviation = response.deviation([500, 300, 200], records=1000)
    np.testing.assert_allclose(mean, [500, 300, 200], atol=5 * deviation.max() / math.sqrt(1500))
    np.testing.assert_allclose(spread, deviation, rtol=0.08)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RandomisedResponse(epsilon=0.0, answers=2),
        lambda: RandomisedResponse(epsilon=1e9, answers=2),
        lambda: RandomisedResponse(epsilon=1.0, answers=1),
        lambda: RandomisedResponse(epsilon=1.0, answers=True),
        lambda: RandomisedResponse(epsilon=1.0, answers=2).reports(
            np.array([2]), NoiseStream.from_seed(1)
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()
