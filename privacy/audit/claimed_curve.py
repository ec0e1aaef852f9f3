"""Test a claim's whole curve, the points (ε, δ(ε)) that accountants charge, against counts.

A release claims (ε(δ), δ) for every δ, not for one. A claim is refuted if the rates of a test are
beyond one of its points: TPR₋ > e^ε·FPR₊ + δ, or the same inequality for the two complements. All
points use the same limits on the rates, so α is spent once.

    >>> from parley.privacy.accounting.composition import Composition
    >>> from parley.privacy.accounting.privacy_events import Pure
    >>> from parley.privacy.audit.event_counts import Hits
    >>> claim = ClaimedCurve.of(Composition.from_events([Pure(epsilon=1.0)]))
    >>> rates = {"hits_in": Hits(hits=900, trials=1000), "hits_out": Hits(hits=100, trials=1000)}
    >>> claim.refuted_by(**rates, alpha=0.05)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parley.privacy.accounting.composition import Composition
from parley.privacy.audit.event_counts import (
    Hits,
    ScoreEvent,
    Scores,
    check_alpha,
    find_most_telling_event,
)

_EXAGGERATION_FACTORS = (1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0, 4.0)

_LADDER_RATIO, _LADDER_TOP = 1.005, 840
"""Step of the ladder (half a percent), and its last step: 66 times the claimed noise."""


@dataclass(frozen=True, kw_only=True)
class ClaimedCurve:
    """Points (ε, δ) that a composition is charged."""

    points: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls, spent: Composition, *, delta: float = 0.0, points: int = 160, by: str | None = None
    ) -> ClaimedCurve:
        """Compute ε at `points` values of δ from 10⁻¹² to 0.99, at 0 and at `delta`.

        Args:
            by: use only this accountant, which is faster and claims no more; None: the lowest of
                all.
        """
        deltas = (0.0, delta, *np.logspace(-12, math.log10(0.99), points).tolist())
        if by is None:
            found = [(spent.compute_lowest_epsilon(each)[1], each) for each in deltas]
        else:
            found = [(spent.compute_epsilon_by(by, each), each) for each in deltas]
        # An ε of 700 is near the logarithm of the largest float, so such a point has no content.
        return cls(points=tuple(point for point in found if point[0] < 700))

    def refuted_by(self, *, hits_in: Hits, hits_out: Hits, alpha: float) -> bool:
        """Return whether these rates contradict at least one point of the claim."""
        return self.compute_excess(hits_in=hits_in, hits_out=hits_out, alpha=alpha) > 0

    def compute_excess(self, *, hits_in: Hits, hits_out: Hits, alpha: float) -> float:
        """Return by how much a rate exceeds a point's limit at most; ≤ 0 if none is exceeded."""
        check_alpha(alpha)
        tpr, fpr = hits_in.lower(alpha / 2), hits_out.upper(alpha / 2)
        # The complements' limits are the same two limits, subtracted from 1.
        tnr, fnr = 1 - fpr, 1 - tpr
        return max(
            max(tpr - math.exp(e) * fpr - d, tnr - math.exp(e) * fnr - d) for e, d in self.points
        )

    def find_worst_event(
        self, scores_in: Scores, scores_out: Scores, *, trials: int, alpha: float
    ) -> tuple[float, ScoreEvent]:
        """Return the event that contradicts the curve most, and by how much (≤ 0: not at all)."""
        epsilon, delta = np.array(self.points).T
        growth = np.exp(epsilon)

        def excess(low: Scores, high: Scores) -> Scores:
            tpr, fpr = low[:, None], high[:, None]
            beyond = np.maximum(tpr - growth * fpr, 1 - fpr - growth * (1 - tpr)) - delta
            return np.asarray(beyond.max(axis=1))

        return find_most_telling_event(scores_in, scores_out, excess, trials=trials, alpha=alpha)


def find_profile_event(
    curve_of: Callable[[float], ClaimedCurve],
    scores_in: Scores,
    scores_out: Scores,
    *,
    trials: int,
    alpha: float,
) -> ScoreEvent:
    """Return the event that would refute the least exaggerated claim at the pilot's rates.

    No event contradicts an honest claim, and almost every trivial event nearly does. Events differ
    in which claims of more noise they contradict.
    """
    event = ScoreEvent(threshold=0.0)
    for more in _EXAGGERATION_FACTORS:
        excess, event = curve_of(more).find_worst_event(
            scores_in, scores_out, trials=trials, alpha=alpha
        )
        if excess > 0:
            break
    return event


def profile_ratio(
    curve_of: Callable[[float], ClaimedCurve], *, hits_in: Hits, hits_out: Hits, alpha: float
) -> float:
    """Return the largest noise, relative to the claim's, whose curve these rates do not refute.

    It is accurate to half a percent. What that much noise is charged is a lower bound on ε for a
    release that consists of Gaussian steps.
    """

    def refuted(ratio: float) -> bool:
        return curve_of(ratio).refuted_by(hits_in=hits_in, hits_out=hits_out, alpha=alpha)

    # More noise is a stronger claim, so the refuted ratios are an interval up to ∞. The search uses
    # a fixed ladder of ratios so that curves can be cached.
    low, high, stride = 0, 0, 80
    while refuted(_LADDER_RATIO**low):
        low -= stride
    while not refuted(_LADDER_RATIO**high) and high < _LADDER_TOP:
        high += stride
    low = max(low, high - stride)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(_LADDER_RATIO**middle) else (middle, high)
    # The upper end is refuted, so the true ratio is below it: less noise, a larger ε.
    return _LADDER_RATIO**high
