"""Select one of k candidates by score: the exponential mechanism and permute-and-flip.

u_i are the candidates' scores, u* is the best, Δ is the most that one unit changes any score, and
γ_i = ε(u* − u_i)/(2Δ):

| | proposes | accepts i with | event |
|---|---|---|---|
| exponential | any candidate, again and again | e^(−γ_i) | ε, and ρ = ε²/8 |
| permute-and-flip | each once, in random order | e^(−γ_i) | ε |

The exponential mechanism selects candidate i with probability ∝ exp(εu_i/(2Δ)) (McSherry & Talwar
2007). It has bounded range ε, hence ε²/8-zCDP (Cesar & Rogers 2021, arXiv:2004.07223).
Permute-and-flip is also ε-DP and its expected loss is never larger (McKenna & Sheldon 2020); no ρ
below ε²/2 is proved for it. Scores are integers, so γ is rational and a coin of e^(−γ) is exact: U
is compared with e^(−γ) to as many bits as the comparison needs. Neighbours are those of Δ.

    >>> best = ExponentialMechanism(epsilon=1.0, sensitivity=1)
    >>> best.compute_probabilities([10, 8, 7, 1]).round(6).tolist()
    [0.624174, 0.229621, 0.139272, 0.006934]
    >>> flip = PermuteAndFlip(epsilon=1.0, sensitivity=1)
    >>> flip.compute_probabilities([10, 8, 7, 1]).round(6).tolist()
    [0.728263, 0.169654, 0.097547, 0.004536]
    >>> best.event(), flip.event()
    (BoundedRange(epsilon=1.0, rho=0.125), Pure(epsilon=1.0, rho=None))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.privacy_events import BoundedRange, Pure
from parley.privacy.accounting.rounding import check_positive, round_up, to_fraction
from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    Enclosure,
    accept,
    draw_integers_below,
    to_uniform_floats,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream

Scores: TypeAlias = Sequence[int] | NDArray[np.int64]

_MAX_PROPOSALS = 4096
"""Maximum number of proposals that the exponential mechanism draws at once."""


@dataclass(frozen=True, kw_only=True)
class Selection(ABC):
    """Selection of one candidate; the scores stay hidden.

    Attributes:
        sensitivity: Δ, the most that one unit changes any candidate's score; rational.
    """

    law: ClassVar[str]

    epsilon: float
    sensitivity: Fraction | int

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_positive("sensitivity", float(self.sensitivity))

    @property
    def rate(self) -> Fraction:
        """ε/(2Δ), with the smaller of the decimal and binary readings of ε."""
        least = min(to_fraction(self.epsilon), Fraction(self.epsilon))
        return least / (2 * Fraction(self.sensitivity))

    @abstractmethod
    def event(self) -> Pure:
        """Return the cost of one selection."""

    @abstractmethod
    def compute_probabilities(self, scores: Scores) -> NDArray[np.float64]:
        """Return `[k]` each candidate's probability.

        It depends on the scores, so it is for plans and tests and must not be shown.
        """

    @abstractmethod
    def choose(self, scores: Scores, stream: NoiseStream) -> int:
        """Select a candidate (numbered from 0) by `[k]` integer scores."""

    def _draw_acceptances(
        self, losses: NDArray[np.int64], stream: NoiseStream
    ) -> NDArray[np.bool_]:
        """Toss `[n]` one exact coin of e^(−γ) for each loss."""
        words = stream.draw_words(len(losses))
        rate, factor = self.rate, float(self.rate)
        uniforms, slack = to_uniform_floats(words)
        exponential, exponent = -np.log(uniforms), factor * losses
        # Two rounding errors of γ in addition to that of the logarithm.
        error = slack + FLOAT_ERROR * (exponential + exponent)

        def threshold(lane: int) -> Enclosure:
            gamma = rate * int(losses[lane])

            def enclosed(mp: Any, bits: int) -> tuple[Any, Any]:
                value = mp.exp(-mp.mpf(gamma.numerator) / gamma.denominator)
                return widen(mp, value, value)

            return enclosed

        return accept(words, exponential - exponent, error, threshold, stream)


class ExponentialMechanism(Selection):
    """P[i] ∝ exp(εu_i/(2Δ)): pure ε, ρ = ε²/8."""

    law: ClassVar[str] = "exponential"

    def event(self) -> Pure:
        """Return the event: ε, and ρ = ε²/8 by its bounded range."""
        return BoundedRange(epsilon=self.epsilon, rho=round_up(to_fraction(self.epsilon) ** 2 / 8))

    def compute_probabilities(self, scores: Scores) -> NDArray[np.float64]:
        """Return the softmax of εu/(2Δ)."""
        weights = np.exp(-float(self.rate) * _compute_losses(scores))
        result: NDArray[np.float64] = weights / weights.sum()
        return result

    def choose(self, scores: Scores, stream: NoiseStream) -> int:
        """Return the first proposal that its coin accepts; the best candidate's always accepts."""
        losses = _compute_losses(scores)
        while True:
            proposals = draw_integers_below(len(losses), min(len(losses), _MAX_PROPOSALS), stream)
            accepted = self._draw_acceptances(losses[proposals], stream)
            if accepted.any():
                return int(proposals[accepted.argmax()])


class PermuteAndFlip(Selection):
    """Each candidate once, in random order, until a coin of e^(−γ) accepts one: pure ε."""

    law: ClassVar[str] = "permute-and-flip"

    def event(self) -> Pure:
        """Return the event: ε, and the ρ that it implies."""
        return Pure(epsilon=self.epsilon)

    def compute_probabilities(self, scores: Scores) -> NDArray[np.float64]:
        """Return q_i·∫₀¹ Π_{j≠i}(1 − q_j·t)dt, q_i = e^(−γ_i).

        Candidate i is tried at time t, and the candidates before it are rejected.
        """
        q = np.exp(-float(self.rate) * _compute_losses(scores))
        # A polynomial of degree k − 1: k/2 nodes of Gauss and Legendre integrate it exactly.
        nodes, weights = np.polynomial.legendre.leggauss(min(len(q) // 2 + 1, 200))
        times, weights = (nodes + 1) / 2, weights / 2
        failed = 1 - np.outer(q, times)
        # The best candidate's time is < 1 at every node, so no divisor is 0.
        result: NDArray[np.float64] = q * ((failed.prod(axis=0) / failed) @ weights)
        return result

    def choose(self, scores: Scores, stream: NoiseStream) -> int:
        """Toss a coin per candidate; return the first accepted one in random order."""
        accepted = np.flatnonzero(self._draw_acceptances(_compute_losses(scores), stream))
        return int(accepted[draw_integers_below(len(accepted), 1, stream)[0]])


def _compute_losses(scores: Scores) -> NDArray[np.int64]:
    """Return `[k]` u* − u_i ≥ 0."""
    values = np.asarray(scores)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"Expected the scores of at least one candidate, got {values.shape}.")
    if values.dtype.kind not in "iu" or np.abs(values.astype(np.float64)).max() >= 2.0**62:
        raise ValueError(f"Expected integer scores below 2⁶², got {values.dtype}.")
    result: NDArray[np.int64] = values.max().astype(np.int64) - values.astype(np.int64)
    return result


SELECTIONS: dict[str, type[Selection]] = {
    each.law: each for each in (ExponentialMechanism, PermuteAndFlip)
}
"""Selection mechanisms, by name."""
