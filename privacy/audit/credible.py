"""A Bayesian reading of two rates (Zanella-Béguelin et al. 2023): credible, never a verdict.

Jeffreys' posteriors of both error rates, Beta(½ + errors, ½ + the rest), and the probability that
they lie in the region of (ε, δ)-DP; the bound is the ε at which that is α.

    >>> from parley.privacy.audit.counts import Hits
    >>> errors = Hits(hits=10, trials=100)
    >>> round(credible_bound(errors, errors, confidence=0.95, delta=0.0).epsilon_lower, 3)
    1.913
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv

from parley.privacy.accounting.rounding import check_delta
from parley.privacy.audit.counts import Hits, LowerBound, alpha_of

_NODES = 20_000


def credible_bound(
    false_positives: Hits, false_negatives: Hits, *, confidence: float, delta: float
) -> LowerBound:
    """The ε that is at least so large with this posterior probability."""
    alpha = alpha_of(confidence)
    check_delta(delta)
    # Equally likely values of one rate: the integral over it is a mean.
    quantiles = (np.arange(_NODES) + 0.5) / _NODES
    rate = betaincinv(*_jeffreys(false_negatives), quantiles)
    shape = _jeffreys(false_positives)

    def inside(epsilon: float) -> float:
        """P[the rates are ones that an (ε, δ)-DP release may have]."""
        growth = np.exp(epsilon)
        # Kairouz, Oh & Viswanath 2015, Theorem 2.1, for the event and for its complement.
        least = np.maximum(1 - delta - growth * rate, (1 - delta - rate) / growth)
        most = np.minimum(growth + delta - growth * rate, (growth + delta - rate) / growth)
        clipped: NDArray[np.float64] = betainc(*shape, np.clip(most, 0, 1)) - betainc(
            *shape, np.clip(least, 0, 1)
        )
        return float(np.maximum(clipped, 0.0).mean())

    epsilon = 0.0
    if inside(0.0) < alpha:
        epsilon = float(brentq(lambda epsilon: inside(epsilon) - alpha, 0.0, 60.0, xtol=1e-10))
    return LowerBound(method="bayes", epsilon_lower=epsilon, confidence=confidence, delta=delta)


def _jeffreys(errors: Hits) -> tuple[float, float]:
    return errors.hits + 0.5, errors.trials - errors.hits + 0.5
