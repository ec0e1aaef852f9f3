"""What is settled for all queries of a session, and the noise laws that their sums may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from parley.client.queries.base import Facts
from parley.client.queries.query_batch import Batch, Clip, Counting
from parley.privacy.accounting.account_certificates import Certificate, Limits
from parley.privacy.accounting.threat_model import Neighbouring, NoisePoint
from parley.privacy.calibration.noise_calibration import CalibrationError, calibrate
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.laplace import Laplace
from parley.privacy.mechanisms.noise_shares import event_of_shares
from parley.privacy.sensitivity.bounded_sets import Lengths


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is public, and settled for all queries of a session.

    Attributes:
        facts: schema, relation of records, and N where sizes are public.
        min_records: n₍₁₎; a party with fewer refuses under replace-one.
        most_records: no party's contribution is of more; under add-or-remove-one it is clipped.
        min_survivors: least number of parties in a sum that is opened.
        corrupt: c, parties that may collude with the server.
        delta: at which every ε is counted.
        relation: that is charged, where it is not that of records.
        reserved: δₐ of the account, which Gaussian noise is calibrated without.
        calibration: of Gaussian noise, as the account charges it.
    """

    facts: Facts
    parties: int
    min_records: int
    most_records: int
    min_survivors: int
    corrupt: int
    noise_point: NoisePoint
    delta: float
    seeded: bool
    counting: Counting = field(default_factory=Counting)
    relation: Neighbouring | None = None
    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    reserved: float = 0.0
    calibration: str = "exact"

    @property
    def neighbouring(self) -> Neighbouring:
        """What one neighbour of the unit differs by."""
        return self.facts.neighbouring if self.relation is None else self.relation

    def moved(self, batch: Batch) -> Lengths:
        """How far a neighbour moves a batch's integer sum."""
        return self.counting.moved(batch, self.facts.schema, self.neighbouring)

    def charged_by(self, limits: Limits) -> Terms:
        """The same with noise for which an account charges what a query asks for."""
        if not limits.certificate.filters:
            return self
        calibration = limits.certificate.calibration
        return replace(self, reserved=limits.reserved, calibration=calibration)

    def by_party(self) -> Terms:
        """The same where every party has its own cells."""
        return replace(self, counting=replace(self.counting, parties=self.parties))

    def clipped(self, clip: Clip) -> Terms:
        """The same with parties clipped in this norm, where they are."""
        if not self.counting.clip:
            return self
        return replace(self, counting=replace(self.counting, clip=clip))


@dataclass(frozen=True, kw_only=True)
class QueryLaw:
    """A noise law of queries.

    Attributes:
        clip: the norm that a party's sum is clipped in, where it is.
        power: of a query's part of the budget, which is its part of the norm.
        certificate: of an account that a session with this law alone opens, at δ > 0.
    """

    clip: Clip
    power: float
    norm: Callable[[Lengths], float]
    mechanism: Callable[[Batch, Terms, float], Mechanism]
    certificate: Certificate = Certificate.ZCDP


def _laplace(batch: Batch, terms: Terms, epsilon: float) -> Mechanism:
    moved = terms.moved(batch)
    return Laplace(
        sensitivity=moved.l2(),
        sensitivity_l1=float(moved.l1),
        epsilon=epsilon,
        dimension=terms.counting.cells(batch, terms.facts.schema),
    )


def _gaussian(batch: Batch, terms: Terms, epsilon: float) -> Mechanism:
    if not terms.delta > 0:
        raise CalibrationError(
            "Expected delta > 0 with Gaussian noise, got 0: law = 'laplace' needs none."
        )
    split = terms.noise_point.in_contributions
    return calibrate(
        law="gaussian",
        calibration=terms.calibration,
        epsilon=epsilon,
        delta=terms.delta - terms.reserved,
        rounds=1,
        sensitivity=terms.moved(batch).l2(),
        dimension=terms.counting.cells(batch, terms.facts.schema),
        cost=lambda m: event_of_shares(m, terms.parties) if split else m.event(),
    )


QUERY_LAWS: dict[str, QueryLaw] = {
    # ε is shared out as Δ₁ is, and μ² as Δ₂² is.
    "laplace": QueryLaw(clip="l1", power=1.0, norm=lambda moved: moved.l1, mechanism=_laplace),
    "gaussian": QueryLaw(
        clip="l2",
        power=0.5,
        norm=lambda moved: math.sqrt(moved.l2_squared),
        mechanism=_gaussian,
        certificate=Certificate.GAUSSIAN,
    ),
}
