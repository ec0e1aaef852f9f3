"""The noise laws that a sum of queries may have: how each shares a budget out, and its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Protocol

from parley.client.queries.base import Query
from parley.client.queries.batch import Batch
from parley.client.queries.counting import Clip
from parley.privacy.accounting.rounding import root_up
from parley.privacy.calibration.calibration import calibrate
from parley.privacy.calibration.gaussian import CalibrationError
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.laplace import Laplace
from parley.privacy.mechanisms.shares import event_of_shares
from parley.server.planning.query_terms import Terms


class _Law(Protocol):
    clip: ClassVar[Clip]

    def shares_of(self, shares: Sequence[float]) -> tuple[float, ...]:
        """How the norm is shared out."""

    def norm(self, query: Query, terms: Terms, weight: int) -> float:
        """Of one query, in the law's own norm."""

    def mechanism(self, batch: Batch, terms: Terms, epsilon: float) -> Mechanism:
        """The noise on the batch."""


class _LaplaceLaw:
    """ε is shared out as Δ₁ is."""

    clip: ClassVar[Clip] = "l1"

    def shares_of(self, shares: Sequence[float]) -> tuple[float, ...]:
        return tuple(shares)

    def norm(self, query: Query, terms: Terms, weight: int) -> float:
        return terms.norms(Batch(queries=(query,), weights=(weight,))).l1

    def mechanism(self, batch: Batch, terms: Terms, epsilon: float) -> Mechanism:
        norms = terms.norms(batch)
        return Laplace(
            sensitivity=root_up(Fraction(norms.l2_squared)),
            sensitivity_l1=float(norms.l1),
            epsilon=epsilon,
            dimension=terms.counting.cells(batch, terms.facts.schema),
        )


class _GaussianLaw:
    """μ² is shared out as Δ₂² is."""

    clip: ClassVar[Clip] = "l2"

    def shares_of(self, shares: Sequence[float]) -> tuple[float, ...]:
        return tuple(math.sqrt(share) for share in shares)

    def norm(self, query: Query, terms: Terms, weight: int) -> float:
        alone = Batch(queries=(query,), weights=(weight,))
        return math.sqrt(terms.norms(alone).l2_squared)

    def mechanism(self, batch: Batch, terms: Terms, epsilon: float) -> Mechanism:
        if not terms.delta > 0:
            raise CalibrationError(
                "Expected delta > 0 with Gaussian noise, got 0: law = 'laplace' needs none."
            )
        norms = terms.norms(batch)
        split = terms.noise_point.in_contributions
        return calibrate(
            law="gaussian",
            epsilon=epsilon,
            delta=terms.delta,
            rounds=1,
            sensitivity=root_up(Fraction(norms.l2_squared)),
            dimension=terms.counting.cells(batch, terms.facts.schema),
            accepted=("gaussian",),
            cost=lambda m: event_of_shares(m, terms.parties) if split else m.event(),
        )


QUERY_LAWS: Mapping[str, _Law] = MappingProxyType(
    {"laplace": _LaplaceLaw(), "gaussian": _GaussianLaw()}
)
"""The noise laws of queries, by name."""
