"""Define the public terms of a session's queries, and the noise distributions of their sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from parley.client.queries.base import QueryFacts
from parley.client.queries.query_batch import Clip, Counting, QueryBatch
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.threat_model import Neighbouring, NoisePoint
from parley.privacy.calibration.noise_calibration import CalibrationError, calibrate
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import build_shares_event
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES
from parley.privacy.sensitivity.bounded_sets import NormBounds


@dataclass(frozen=True, kw_only=True)
class SessionTerms:
    """Public terms that hold for all queries of a session.

    Attributes:
        facts: schema, relation of records, and N if sizes are public.
        min_records: n₍₁₎; a smaller party declines under replace-one.
        most_records: maximum number of records in a contribution; under add-or-remove-one it is
            clipped.
        min_survivors: minimum number of parties in a sum that is unmasked.
        corrupt: c, parties that may collude with the server.
        delta: δ at which every ε is stated.
        relation: neighbouring relation that is charged, if it is not that of records.
        reserved: δₐ of the account; Gaussian noise is calibrated to δ without it.
        calibration: of Gaussian noise, as the account charges it.
    """

    facts: QueryFacts
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
        """Relation between neighbours of the unit."""
        return self.facts.neighbouring if self.relation is None else self.relation

    def compute_lengths(self, batch: QueryBatch) -> NormBounds:
        """Return how far a neighbour moves a batch's integer sum."""
        return self.counting.compute_sensitivity(batch, self.facts.schema, self.neighbouring)

    def with_budget(self, budget: DatasetBudget) -> SessionTerms:
        """Return the same terms with noise for which an account charges what a query requests."""
        if not budget.certificate.is_adaptive:
            return self
        calibration = budget.certificate.calibration
        return replace(self, reserved=budget.reserved_delta, calibration=calibration)

    def with_party_cells(self) -> SessionTerms:
        """Return the same terms with separate cells for every party."""
        return replace(self, counting=replace(self.counting, parties=self.parties))

    def with_clip(self, clip: Clip) -> SessionTerms:
        """Return the same terms with parties clipped in this norm, if they are clipped."""
        if not self.counting.clip:
            return self
        return replace(self, counting=replace(self.counting, clip=clip))


@dataclass(frozen=True, kw_only=True)
class QueryLaw:
    """A noise distribution for queries.

    Attributes:
        clip: the norm in which a party's sum is clipped, if it is.
        power: exponent that turns a query's part of the budget into its part of the norm.
        certificate: of the account that a session with only this distribution opens, at δ > 0.
    """

    clip: Clip
    power: float
    norm: Callable[[NormBounds], float]
    mechanism: Callable[[QueryBatch, SessionTerms, float], Mechanism]
    certificate: AccountCertificate = AccountCertificate.ZCDP


def _build_laplace(batch: QueryBatch, terms: SessionTerms, epsilon: float) -> Mechanism:
    moved = terms.compute_lengths(batch)
    mechanism: Mechanism = MECHANISM_CLASSES["laplace"](
        sensitivity=moved.compute_l2(),
        sensitivity_l1=float(moved.l1),
        epsilon=epsilon,
        dimension=terms.counting.count_cells(batch, terms.facts.schema),
    )
    return mechanism


def _build_gaussian(batch: QueryBatch, terms: SessionTerms, epsilon: float) -> Mechanism:
    if not terms.delta > 0:
        raise CalibrationError(
            "Expected delta > 0 with Gaussian noise, got 0. Use law = 'laplace', which needs none."
        )
    split = terms.noise_point.in_contributions
    return calibrate(
        law="gaussian",
        calibration=terms.calibration,
        epsilon=epsilon,
        delta=terms.delta - terms.reserved,
        rounds=1,
        sensitivity=terms.compute_lengths(batch).compute_l2(),
        dimension=terms.counting.count_cells(batch, terms.facts.schema),
        cost=lambda m: build_shares_event(m, terms.parties) if split else m.event(),
    )


QUERY_LAWS: dict[str, QueryLaw] = {
    # ε is divided in proportion to Δ₁, and μ² in proportion to Δ₂².
    "laplace": QueryLaw(
        clip="l1", power=1.0, norm=lambda moved: moved.l1, mechanism=_build_laplace
    ),
    "gaussian": QueryLaw(
        clip="l2",
        power=0.5,
        norm=lambda moved: math.sqrt(moved.l2_squared),
        mechanism=_build_gaussian,
        certificate=AccountCertificate.GAUSSIAN,
    ),
}
