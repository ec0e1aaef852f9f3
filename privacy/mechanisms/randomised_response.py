"""Randomised response: every record randomises its own answer, so no party is trusted (local DP).

With k answers a record gives its true one with probability p = e^ε/(e^ε + k − 1) and each other
with q = 1/(e^ε + k − 1) (Warner 1965; Kairouz, Oh & Viswanath 2014). Equivalently, it gives any of
the k with probability k·q, else the truth. p/q = e^ε, so a record's report is ε-DP for all pairs of
its values (replace-one). If R_c of N reports are answer c, (R_c − Nq)/(p − q) is an unbiased count.
Three reports with fresh coins cost 3ε. Summing the reports lowers no cost here: no amplification is
claimed.

    >>> response = RandomisedResponse(epsilon=1.0, answers=2)
    >>> round(RandomisedResponse(epsilon=1.0, answers=5).truth_probability, 6)
    0.40461
    >>> round(float(response.compute_deviation(300, records=1000)) / 1000, 7)
    0.0303426
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.accounting.rounding import (
    check_positive,
    check_whole,
    format_exact,
    round_root_up,
    to_fraction,
)
from parley.privacy.mechanisms.base import Mechanism, check_probability
from parley.privacy.sampling.inversion import (
    Enclosure,
    accept,
    draw_integers_below,
    to_uniform_floats,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream

_MAX_EPSILON = 700.0
"""Maximum ε. Beyond it e^ε is no longer a double, and an answer is never false."""


@dataclass(frozen=True, kw_only=True)
class RandomisedResponse:
    """One question with k ≥ 2 answers, answered once by every record, with local ε per report."""

    law: ClassVar[str] = "randomised-response"

    epsilon: float
    answers: int

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if self.epsilon > _MAX_EPSILON:
            raise ValueError(
                f"Expected epsilon ≤ {format_exact(_MAX_EPSILON)}, got "
                f"{format_exact(self.epsilon)}."
            )
        check_whole("number of answers", self.answers, 2)

    @property
    def lie_probability(self) -> float:
        """q, the probability of each other answer."""
        return 1 / (math.exp(self.epsilon) + self.answers - 1)

    @property
    def truth_probability(self) -> float:
        """p = e^ε·q."""
        return math.exp(self.epsilon) * self.lie_probability

    def event(self) -> Pure:
        """Return the event of one report: pure ε."""
        return Pure(epsilon=self.epsilon)

    def draw_reports(self, codes: NDArray[np.int64], stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[N]` reports of the records with true answers `codes`, 0 … k − 1."""
        if len(codes) and not (codes.min() >= 0 and codes.max() < self.answers):
            raise ValueError(f"Expected answers 0 to {self.answers - 1}, got others.")
        words = stream.draw_words(len(codes))
        uniforms, _ = to_uniform_floats(words)
        least = min(to_fraction(self.epsilon), Fraction(self.epsilon))

        def threshold(lane: int) -> Enclosure:

            def enclosed(mp: Any, bits: int) -> tuple[Any, Any]:
                odds = mp.exp(mp.mpf(least.numerator) / least.denominator)
                value = self.answers / (odds + self.answers - 1)
                return widen(mp, value, value)

            return enclosed

        # k·q in float is accurate to a few ulp, a cell's middle to one.
        margin = self.answers * self.lie_probability - uniforms
        error = np.full(len(codes), 2.0**-48)
        blind = accept(words, margin, error, threshold, stream)
        said = codes.astype(np.int64, copy=True)
        said[blind] = draw_integers_below(self.answers, int(blind.sum()), stream)
        return said

    def estimate_counts(self, reports: ArrayLike, *, records: int) -> NDArray[np.float64]:
        """Return `[k]` unbiased counts from the numbers `[k]` of reports of each answer."""
        said, lie = np.asarray(reports, dtype=np.float64), self.lie_probability
        return (said - records * lie) / (self.truth_probability - lie)

    def compute_deviation(self, count: ArrayLike, *, records: int) -> Any:
        """Return the standard deviation of the estimate if `count` records have the answer.

        √(n·p(1−p) + (N−n)·q(1−q))/(p − q), from the coins only.
        """
        p = self.truth_probability
        q = self.lie_probability
        having = np.asarray(count, dtype=np.float64)
        variance = having * p * (1 - p) + (records - having) * q * (1 - q)
        return np.sqrt(np.maximum(variance, 0)) / (p - q)


@dataclass(frozen=True, kw_only=True)
class Reports(Mechanism):
    """A release of the sum of all records' reports; the noise is in each record's report.

    Δ is √2: a record with another answer moves from one cell to another. The event is that of one
    report, ε under replace-one. It holds against everyone except the record's party, including the
    server.
    """

    law: ClassVar[str] = RandomisedResponse.law

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.response

    @classmethod
    def from_answers(cls, epsilon: float, answers: int) -> Reports:
        """Build the release for k answers at the local ε."""
        return cls(sensitivity=round_root_up(Fraction(2)), dimension=answers, epsilon=epsilon)

    @property
    def response(self) -> RandomisedResponse:
        """The randomised response of one record."""
        return RandomisedResponse(epsilon=self.epsilon, answers=self.dimension)

    @property
    def is_in_contributions(self) -> bool:
        """Always true."""
        return True

    @property
    def scale(self) -> float:
        """√(p(1 − p)), the deviation of a report of a record's own answer."""
        return math.sqrt(self.response.truth_probability * (1 - self.response.truth_probability))

    def build_facts(self) -> dict[str, Any]:
        """Return the norm (of one report) and the noise parameter (the truth's probability)."""
        return {
            "norm": "of one record's report",
            "noise_parameter": self.response.truth_probability,
        }

    def event(self) -> Pure:
        """Return the event of the local ε."""
        return self.response.event()

    def expected_norm(self) -> float:
        """Return √k times `scale`, an upper bound for one report."""
        return math.sqrt(self.dimension) * self.scale

    def noise_tail(self, probability: float) -> float:
        """Return 0: a report is an integer from 0 to 1, and no noise is added to the sum."""
        check_probability(probability)
        return 0.0

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Return `[count, k]` zeros, because the noise is already in the reports."""
        return np.zeros((count, self.dimension), dtype=np.int64)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            f"Randomised response of every record among {self.dimension} answers, the truth with "
            f"probability {self.response.truth_probability:.6g}."
        )
