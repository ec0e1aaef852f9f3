"""Score one trial's releases as an attacker does: by the exact log-ratio of the noise distribution.

| distribution | score of y, of two noise-free sums f₁ (with the canary) and f₀ |
|---|---|
| gaussian, discrete-gaussian | ⟨y − (f₁ + f₀)/2, f₁ − f₀⟩/σ² |
| l2-laplace | (‖y − f₀‖₂ − ‖y − f₁‖₂)/b |
| laplace, laplace-l1, laplace-as-printed | (‖y − f₀‖₁ − ‖y − f₁‖₁)/b |
| DP-SGD, every step seen | ln(1 − q + q·e^{(2sc − c²)/2σ²}) along f₁ − f₀, less the same for f₀ |
| the same for an absent party, which y = 0 shows | 0 |

Scores are added up over the rounds, each with the round's weight in the attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.privacy.audit.noise_scale import FactorLaw
from parley.privacy.mechanisms.base import Mechanism

Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The two explanations of a release.

    Attributes:
        inside, outside: `[T, d]` noise-free sums with and without the canary, with every record
            sampled.
        base: `[T, d]` noise-free sums of the records that both have.
        difference: `[T, d]` f₁ − f₀ of a round that shows the canary. In a round that hides it, the
            score uses the same direction, for the noise that it shares with the others.
        scale: σ, b or t of the noise, in the same unit.
        sampling_rate: factor by which a record's part of a batch is larger than in these sums: a
            DP-SGD contribution inside a party is divided by q.
        weights: `[T]` of the rounds.
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    base: NDArray[np.float64]
    difference: NDArray[np.float64]
    scale: float
    mechanism: Mechanism
    sampling_rate: float
    weights: NDArray[np.float64]

    @property
    def middle(self) -> NDArray[np.float64]:
        """`[T, d]` midpoint of the two."""
        return (self.inside + self.outside) / 2

    @property
    def distance(self) -> float:
        """Largest ‖f₁ − f₀‖₂ of a round."""
        difference = self.inside - self.outside
        return float(np.sqrt(np.vecdot(difference, difference)).max())

    @property
    def distance_l1(self) -> float:
        """Largest ‖f₁ − f₀‖₁ of a round."""
        return float(np.abs(self.inside - self.outside).sum(axis=1).max())


def get_sampling_rate(mechanism: Mechanism) -> float:
    """Return q at which a mechanism is charged; 1 if it takes all records."""
    own = mechanism.training or mechanism.sampled
    return 1.0 if own is None else own.sampling_rate


def score_releases(released: NDArray[np.float64], hypotheses: Hypotheses) -> Scores:
    """Return `[W]` scores of releases `[W, T, d]`: larger means more likely with the canary."""
    mechanism = hypotheses.mechanism
    rate, steps = get_sampling_rate(mechanism), mechanism.training
    # Only one contribution of several steps inside a party is visible.
    if rate < 1 and not (steps is not None and steps.steps > 1):
        by_round = _score_sampled(released, hypotheses, rate)
    else:
        by_round = get_noise_scoring(mechanism).ratio(released, hypotheses)
    if steps is not None and steps.attendance < 1:
        by_round = np.where(released.any(axis=-1), by_round, 0.0)
    return np.asarray(by_round @ hypotheses.weights)


def _score_gaussian(y: NDArray[np.float64], hypotheses: Hypotheses) -> Scores:
    return np.asarray(np.vecdot(y - hypotheses.middle, hypotheses.difference) / hypotheses.scale**2)


def _score_l2_laplace(y: NDArray[np.float64], hypotheses: Hypotheses) -> Scores:
    far, near = _compute_residuals(y, hypotheses)
    lengths = np.sqrt(np.vecdot(far, far)) - np.sqrt(np.vecdot(near, near))
    return np.asarray(lengths / hypotheses.scale)


def _score_laplace(y: NDArray[np.float64], hypotheses: Hypotheses) -> Scores:
    far, near = _compute_residuals(y, hypotheses)
    return np.asarray((np.abs(far) - np.abs(near)).sum(axis=-1) / hypotheses.scale)


def _compute_residuals(
    y: NDArray[np.float64], hypotheses: Hypotheses
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the residuals from f₀ and from f₁."""
    centred = y - hypotheses.middle
    return centred + hypotheses.difference / 2, centred - hypotheses.difference / 2


def _score_sampled(y: NDArray[np.float64], hypotheses: Hypotheses, rate: float) -> Scores:
    """Score mixtures: in both trials the canary is in a sum's batch with probability q."""
    length = np.sqrt(np.vecdot(hypotheses.difference, hypotheses.difference))[:, None]
    direction = hypotheses.difference / np.maximum(length, 1e-300)
    along = np.vecdot(y - hypotheses.base, direction) / hypotheses.scale

    def likelihood(world: NDArray[np.float64]) -> Scores:
        moved = np.vecdot(world - hypotheses.base, direction) * hypotheses.sampling_rate
        shift = moved / hypotheses.scale
        taken = np.log(rate) + along * shift - shift**2 / 2
        return np.asarray(np.logaddexp(np.log1p(-rate), taken))

    return likelihood(hypotheses.inside) - likelihood(hypotheses.outside)


@dataclass(frozen=True)
class NoiseScoring:
    """How an attacker scores noise.

    It consists of the log-ratio, the norm that measures how distinguishable two sums are, and the
    continuous distribution with the noise's shape.
    """

    ratio: Callable[[NDArray[np.float64], Hypotheses], Scores]
    norm: int
    shape: FactorLaw


_GAUSSIAN = NoiseScoring(_score_gaussian, 2, "gaussian")
_LAPLACE = NoiseScoring(_score_laplace, 1, "laplace-l1")
_SCORINGS = {
    "l2-laplace": NoiseScoring(_score_l2_laplace, 2, "l2-laplace"),
    **dict.fromkeys(("laplace", "laplace-l1", "laplace-as-printed"), _LAPLACE),
}


def get_noise_scoring(mechanism: Mechanism) -> NoiseScoring:
    """Return the row of a mechanism's distribution; all but Laplace's are Gaussians."""
    return _SCORINGS.get(mechanism.law, _GAUSSIAN)
