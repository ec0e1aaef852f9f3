"""What an attacker computes of one world's releases: the exact log-ratio of the noise's law.

| law | score of y, of two noise-free sums f₁ (with the canary) and f₀ |
|---|---|
| gaussian, discrete-gaussian | ⟨y − (f₁ + f₀)/2, f₁ − f₀⟩/σ² |
| l2-laplace | (‖y − f₀‖₂ − ‖y − f₁‖₂)/b |
| laplace, laplace-l1, laplace-as-printed | (‖y − f₀‖₁ − ‖y − f₁‖₁)/b |
| DP-SGD, every step seen | ln(1 − q + q·e^{(2sc − c²)/2σ²}) along f₁ − f₀, less the same for f₀ |
| the same of a party that is absent, which y = 0 shows | 0 |

added up over the rounds, each with the round's weight of the attack.
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
        inside, outside: `[T, d]` noise-free sums with and without the canary, every record taken.
        base: `[T, d]` of the records that both have.
        towards: `[T, d]` f₁ − f₀ of a round that shows the canary. In one that hides it the score
            looks the same way: for noise that it shares with the others.
        scale: σ, b or t of the noise, in the same unit.
        taken: how much longer a record's share is in a batch than in these sums: a contribution of
            DP-SGD inside a party is divided by q.
        weights: `[T]` of the rounds.
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    base: NDArray[np.float64]
    towards: NDArray[np.float64]
    scale: float
    mechanism: Mechanism
    taken: float
    weights: NDArray[np.float64]

    @property
    def middle(self) -> NDArray[np.float64]:
        """`[T, d]` half-way between the two."""
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


def sampling_rate(mechanism: Mechanism) -> float:
    """q that a mechanism is charged at; 1 where it takes all records."""
    own = mechanism.training or mechanism.sampled
    return 1.0 if own is None else own.sampling_rate


def score(released: NDArray[np.float64], hypotheses: Hypotheses) -> Scores:
    """`[W]` of releases `[W, T, d]`: larger means more likely with the canary."""
    mechanism = hypotheses.mechanism
    rate, steps = sampling_rate(mechanism), mechanism.training
    # Of several steps inside a party its one contribution is seen.
    if rate < 1 and not (steps is not None and steps.steps > 1):
        by_round = _sampled(released, hypotheses, rate)
    else:
        by_round = law_of(mechanism).ratio(released, hypotheses)
    if steps is not None and steps.attendance < 1:
        by_round = np.where(released.any(axis=-1), by_round, 0.0)
    return np.asarray(by_round @ hypotheses.weights)


def _gaussian(y: NDArray[np.float64], given: Hypotheses) -> Scores:
    return np.asarray(np.vecdot(y - given.middle, given.towards) / given.scale**2)


def _l2_laplace(y: NDArray[np.float64], given: Hypotheses) -> Scores:
    far, near = _residuals(y, given)
    lengths = np.sqrt(np.vecdot(far, far)) - np.sqrt(np.vecdot(near, near))
    return np.asarray(lengths / given.scale)


def _laplace(y: NDArray[np.float64], given: Hypotheses) -> Scores:
    far, near = _residuals(y, given)
    return np.asarray((np.abs(far) - np.abs(near)).sum(axis=-1) / given.scale)


def _residuals(
    y: NDArray[np.float64], given: Hypotheses
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From f₀ and from f₁."""
    centred = y - given.middle
    return centred + given.towards / 2, centred - given.towards / 2


def _sampled(y: NDArray[np.float64], given: Hypotheses, rate: float) -> Scores:
    """Mixtures: in either world the canary is in a sum's batch with probability q."""
    length = np.sqrt(np.vecdot(given.towards, given.towards))[:, None]
    direction = given.towards / np.maximum(length, 1e-300)
    along = np.vecdot(y - given.base, direction) / given.scale

    def likelihood(world: NDArray[np.float64]) -> Scores:
        shift = np.vecdot(world - given.base, direction) * given.taken / given.scale
        taken = np.log(rate) + along * shift - shift**2 / 2
        return np.asarray(np.logaddexp(np.log1p(-rate), taken))

    return likelihood(given.inside) - likelihood(given.outside)


@dataclass(frozen=True)
class Law:
    """How an attacker looks at noise: the log-ratio, the norm in which two sums are as far apart as
    they are easy to tell, and the continuous law whose shape it has.
    """

    ratio: Callable[[NDArray[np.float64], Hypotheses], Scores]
    norm: int
    shape: FactorLaw


_GAUSSIAN = Law(_gaussian, 2, "gaussian")
_LAWS = {
    "l2-laplace": Law(_l2_laplace, 2, "l2-laplace"),
    **dict.fromkeys(
        ("laplace", "laplace-l1", "laplace-as-printed"), Law(_laplace, 1, "laplace-l1")
    ),
}


def law_of(mechanism: Mechanism) -> Law:
    """The row of a mechanism's law; others than Laplace's are Gaussians."""
    return _LAWS.get(mechanism.law, _GAUSSIAN)
