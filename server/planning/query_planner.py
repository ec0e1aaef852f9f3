"""Plan the release of one batch of queries: weights, noise distribution, ring and plan.

Everything is planned in integers. A query adds whole numbers, so Δ on the grid is Δ. The ring is
the smallest that holds every record's largest entry and the noise. The price ε is that of the
batch. Each query has a share of it (default: equal shares), of ε for Laplace noise and of ρ for
Gaussian noise. `auto` takes the distribution with the lower expected errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from parley.client.algorithms.query_release import MAX_SUM
from parley.client.contract.assumptions import list_query_assumptions
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY
from parley.client.queries.base import (
    MAX_FINE_SUM,
    MAX_WEIGHT,
    Integers,
    Query,
    QueryError,
    QueryFacts,
)
from parley.client.queries.consistency import BatchConsistency, compute_rms
from parley.client.queries.query_batch import MAX_PRIVATE_ENTRY, Counting, QueryBatch, check_cells
from parley.client.queries.query_decoding import check_decodable
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import NOISE_POINTS, PARTY_NOISE_POINT, Neighbouring
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS, Shares
from parley.privacy.mechanisms.private_selection import SELECTIONS
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.sampling.inversion import LARGEST_SCALE, SMALLEST_SCALE
from parley.privacy.sampling.random_stream import NoiseStream
from parley.safe_io.error_translation import translate_errors
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.server.planning.non_additive_releases import (
    PrivateSelection,
    RandomisedReports,
    build_reports,
    build_selection,
)
from parley.server.planning.session_terms import QUERY_LAWS, SessionTerms

ALGORITHM = "query"

_MIN_WEIGHT = 4096
_NOISE_PER_PARTY = 256
"""Grid steps per noise scale and per party, each of which rounds its sum, if weights can be this
large. Rounding then moves an interval by less than 0.4 % of the scale.
"""
_MIN_NORM_SHARE = 0.01
"""Minimum share of the largest part of the norm: counts with less are sums of other queries' cells.
"""
_RINGS = (16, 32, 64)
_LARGEST_EPSILON = 1e9
"""Largest ε of a release: beyond it, its cost in other accounts is no longer a double."""


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A batch as it will be released.

    Attributes:
        draft: the assumption of a drafted schema; empty for other schemas.
        replacement: what replaces noise on the sum; None: noise is added.
    """

    batch: QueryBatch
    plan: ReleasePlan
    counting: Counting = field(default_factory=Counting)
    draft: str = ""
    replacement: NoiseReplacement | None = None

    @property
    def by_party(self) -> bool:
        """Whether every party has its own cells."""
        return self.counting.parties > 0

    @property
    def has_private_size(self) -> bool:
        """Whether the number of records is private."""
        return self.counting.is_size_private(self.plan.primary.neighbouring)

    @property
    def law(self) -> str:
        """Name of the noise distribution, or of its replacement."""
        return self.plan.primary.mechanism.law if self.replacement is None else self.replacement.law

    @property
    def event(self) -> PrivacyEvent:
        """What the release costs."""
        if self.replacement is None:
            return self.plan.primary.event
        return self.replacement.compute_event()

    def compute_scale(self, survivors: int | None = None) -> float:
        """Return the scale of the noise on a sum of `survivors` parties, or of its replacement."""
        if self.replacement is None:
            return self.compute_noise(survivors).scale
        return self.replacement.scale

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of its ε beyond its proof."""
        return list_query_assumptions(
            self.counting.unit,
            reported=self.batch.reporting_query is not None,
            chosen=self.law in SELECTIONS,
            draft=self.draft,
        )

    def build_entries(self, dataset: str) -> tuple[LedgerEntry, ...]:
        """Return the entries that the server's ledger charges."""
        entries = self.plan.build_entries(dataset, party="server", assumptions=self.assumptions)
        if self.replacement is None:
            return entries
        return tuple(self.replacement.to_ledger_entry(entry) for entry in entries)

    def compute_release(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> list[int]:
        """Return what leaves the server, from an exact sum or one with noise shares in it."""
        if self.replacement is None:
            noisy: list[int] = (total + self.plan.draw(stream)).tolist()
            return noisy
        return self.replacement.compute_output(total, facts, stream)

    def compute_noise(self, survivors: int | None = None) -> CellNoise:
        """Return the noise on every cell of a sum of `survivors` parties; None: of the minimum
        number.
        """
        mechanism, shares = self.plan.primary.mechanism, self.plan.primary.shares
        scale = mechanism.scale
        if shares is not None:
            scale *= math.sqrt((survivors or shares.min_contributions) / shares.honest)
        return CellNoise(law=mechanism.law, scale=scale)

    def compute_errors(self, facts: QueryFacts) -> tuple[float, ...]:
        """Return each query's expected error from noise."""
        if self.replacement is not None:
            return (self.replacement.compute_expected_error(facts),)
        noise = self.compute_noise()
        batch, ratios = self.batch, self.compute_error_ratios(facts)
        both = zip(batch.queries, batch.weights, ratios, strict=True)
        return tuple(
            nearer * query.compute_expected_error(weight, noise, facts)
            for query, weight, nearer in both
        )

    def compute_error_ratios(self, facts: QueryFacts) -> tuple[float, ...]:
        """Return each answer's error relative to that of only its own cells, before consistency."""
        batch = self.batch
        if self.replacement is not None:
            return (1.0,) * len(batch.queries)
        agreement = BatchConsistency(
            batch=batch, facts=facts, noise=self.compute_noise(), clipped=self.counting.clip != ""
        )
        slices = batch.list_slices(facts.schema)
        return tuple(compute_rms(agreement.factors[place]) for place in slices)


NoiseReplacement: TypeAlias = PrivateSelection | RandomisedReports

NOISE_REPLACEMENTS: Mapping[
    str, Callable[[QueryBatch, QueryFacts, str, float, Counting, bool], NoiseReplacement]
] = MappingProxyType(
    {**dict.fromkeys(SELECTIONS, build_selection), RandomisedResponse.law: build_reports}
)
"""Name → what may replace noise on the sum."""


def plan_batch(
    queries: Sequence[Query],
    terms: SessionTerms,
    *,
    epsilon: float,
    run_id: str,
    number: int,
    law: str = "auto",
    shares: Sequence[float] | None = None,
    by_party: bool = False,
) -> PlannedBatch:
    """Plan the release of some queries together.

    Args:
        epsilon: what the release costs, at the terms' δ.
        shares: of the budget, one per query, any positive numbers; None: equal shares.

    Raises QueryError, SchemaError, CalibrationError, RingTooSmall.
    """
    number_like = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not number_like or not 0 < epsilon < math.inf:
        raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")
    if epsilon > _LARGEST_EPSILON:
        raise QueryError(
            f"Expected epsilon of at most {format_exact(_LARGEST_EPSILON)}, got "
            f"{format_exact(epsilon)}."
        )
    if law not in (*QUERY_LAWS, *NOISE_REPLACEMENTS, "auto"):
        known = ", ".join((*QUERY_LAWS, *NOISE_REPLACEMENTS))
        raise QueryError(f"Expected law {known} or auto, got {law!r}.")
    if not queries:
        raise QueryError("Expected at least one query in a batch, got none.")
    terms = terms.with_party_cells() if by_party else terms
    for query in queries:
        query.check(terms.facts.schema, terms.facts.neighbouring)
        check_decodable(query)
    check_cells(queries, terms.facts.schema)
    given = [1.0] * len(queries) if shares is None else list(shares)
    if len(given) != len(queries) or not all(0 < each < math.inf for each in given):
        raise QueryError(f"Expected a share > 0 for each of {len(queries)} queries, got {given}.")
    parts = tuple(each / math.fsum(given) for each in given)
    law = _choose_law(queries, law)
    if law in NOISE_REPLACEMENTS:
        # The plan is that of the sum; its replacement is what is drawn and charged.
        alone = replace(terms, noise_point=NOISE_POINTS["server"])
        whole = _plan_with_law(queries, parts, "laplace", alone, epsilon, run_id, number)
        shared = terms.noise_point.in_contributions
        build = NOISE_REPLACEMENTS[law]
        made = build(whole.batch, terms.facts, law, epsilon, terms.counting, shared)
        if isinstance(made, RandomisedReports):
            return _move_noise_inside(whole, made)
        return replace(whole, replacement=made)
    # A distribution that cannot be used is refused.
    names = [law] if law != "auto" else list(QUERY_LAWS)
    planned, refused = list[PlannedBatch](), list[CalibrationError]()
    for name in names:
        try:
            planned.append(_plan_with_law(queries, parts, name, terms, epsilon, run_id, number))
        except CalibrationError as error:
            refused.append(error)
    if not planned:
        raise refused[0]
    facts = terms.facts
    return min(planned, key=lambda each: math.fsum(map(_compute_log, each.compute_errors(facts))))


def _move_noise_inside(planned: PlannedBatch, reports: RandomisedReports) -> PlannedBatch:
    """Return the same release with all of its noise inside the records' reports."""
    mechanism = reports.mechanism
    guarantee = replace(
        planned.plan.primary,
        sensitivity=mechanism.sensitivity,
        mechanism=mechanism,
        noise_point=PARTY_NOISE_POINT,
        against=PARTY_NOISE_POINT.adversary,
    )
    batch = QueryBatch(queries=(reports.query,), weights=(1,))
    plan = replace(planned.plan, guarantees=(guarantee,))
    return replace(planned, batch=batch, plan=plan, replacement=reports)


def _compute_log(error: float) -> float:
    return math.log(max(error, 1e-300))  # The error is 0 if ε leaves no noise.


def _choose_law(queries: Sequence[Query], law: str) -> str:
    """Return the requested distribution, or the only one that a query has."""
    own = next((query.law for query in queries if query.law), "")
    if own and (len(queries) > 1 or law not in (own, "auto")):
        raise QueryError(
            f"Expected {own} only for its own query, got {law} and {len(queries)} queries together."
        )
    return own or law


def _plan_with_law(
    queries: Sequence[Query],
    parts: Sequence[float],
    law: str,
    terms: SessionTerms,
    epsilon: float,
    run_id: str,
    number: int,
) -> PlannedBatch:
    facts, row = terms.facts, QUERY_LAWS[law]
    terms = terms.with_clip(row.clip)
    tuned = tuple(query.tune(law, facts) for query in queries)
    batch = QueryBatch(queries=tuned, weights=_compute_weights(tuned, parts, law, terms))
    mechanism = row.mechanism(batch, terms, epsilon)
    if (times := _compute_refinement(batch, mechanism.scale, terms)) > 1:
        batch = replace(batch, weights=tuple(times * weight for weight in batch.weights))
        mechanism = row.mechanism(batch, terms, epsilon)
    split = None
    if terms.noise_point.in_contributions:
        point, parties = terms.noise_point, terms.parties
        least, colluders = point.split(least=terms.min_survivors, colluders=terms.corrupt)
        with translate_errors(ValueError, CalibrationError):
            split = Shares.from_mechanism(
                mechanism, parties=parties, least=least, colluders=colluders
            )
    _check_drawn_scale(mechanism, split, epsilon)
    guarantee = Guarantee(
        unit=terms.counting.unit,
        neighbouring=terms.neighbouring,
        sensitivity=mechanism.sensitivity,
        mechanism=mechanism,
        noise_point=terms.noise_point,
        against=terms.noise_point.adversary,
        delta=terms.delta,
        calibration=terms.calibration if row.power < 1 else "exact",
        clip_norm=None,
        charges=(terms.counting.unit,),
        shares=split,
    )
    private = facts.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    plan = ReleasePlan(
        run_id=run_id,
        round_number=number,
        algorithm=ALGORITHM,
        dimension=mechanism.dimension,
        lipschitz=1.0,
        min_records=terms.min_records,
        weights="uniform",
        mean_records=(
            float(terms.min_records) if private else (facts.records or 0) / terms.parties
        ),
        lambda_=0.0,
        gradient_tolerance=None,
        encoding=_choose_encoding(batch, terms, guarantee),
        min_survivors=terms.min_survivors,
        parties=terms.parties,
        seeded=terms.seeded,
        guarantees=(guarantee,),
    )
    return PlannedBatch(
        batch=batch, plan=plan, counting=terms.counting, draft=facts.schema.assumption
    )


def _check_drawn_scale(mechanism: Mechanism, split: Shares | None, epsilon: float) -> None:
    """Raise CalibrationError for a scale that no sampler draws, before anything is charged."""
    drawn = mechanism.sampler_scale * (1.0 if split is None else split.noise_ratio)
    if SMALLEST_SCALE <= drawn <= LARGEST_SCALE:
        return
    size = "smaller" if drawn < SMALLEST_SCALE else "larger"
    raise CalibrationError(
        f"Expected a {size} epsilon, got {format_exact(epsilon)}: its {mechanism.law} noise has a "
        f"scale of {drawn:.3g}, and samplers draw from 2^-20 to 2^40. Use an epsilon from 1e-06 to "
        "1000."
    )


def _compute_weights(
    queries: Sequence[Query], shares: Sequence[float], law: str, terms: SessionTerms
) -> tuple[int, ...]:
    """Return a_q in proportion to each query's part of the norm, with a minimum of 4096.

    A query with only counts has 1, unless shares of the noise need a finer grid. A query that
    others answer has less.
    """
    floor = terms.noise_point.in_contributions and SHARED_LAWS[law].floor > 0
    if len(queries) == 1:
        return (1 if queries[0].integral and not floor else _MIN_WEIGHT,)
    row = QUERY_LAWS[law]
    alone = (QueryBatch(queries=(query,), weights=(_MIN_WEIGHT,)) for query in queries)
    norms = np.array([row.norm(terms.compute_lengths(each)) for each in alone])
    batch = QueryBatch(queries=tuple(queries), weights=(_MIN_WEIGHT,) * len(queries))
    agreement = BatchConsistency(batch=batch, facts=terms.facts, clipped=terms.counting.clip != "")
    parts = agreement.allocate_budget(shares, lambda p: p**row.power / norms) ** row.power
    # Counts that others answer are hardly used: the grid need not be finer for them.
    asked = (parts > _MIN_NORM_SHARE * parts.max()) | [not query.consistent for query in queries]
    least = np.where(asked, _MIN_WEIGHT, 1)
    whole = (_MIN_WEIGHT * norms / parts)[asked].max()
    found = np.floor(whole * parts / norms * (1 + 1e-12))
    return tuple(np.maximum(least, found).astype(int).tolist())


def _compute_refinement(batch: QueryBatch, scale: float, terms: SessionTerms) -> int:
    """Return the factor for a batch's weights that makes rounding much smaller than its noise.

    Each party rounds its sums by at most one step. A finer grid costs only digits.
    """
    if all(query.integral for query in batch.queries):
        return 1
    largest, bound = _compute_bounds(batch, terms)
    most = min(MAX_FINE_SUM // max(bound, 1), MAX_WEIGHT // max(batch.weights))
    if terms.counting.is_size_private(terms.neighbouring):
        most = min(most, MAX_PRIVATE_ENTRY // max(largest, 1))
    return max(1, min(math.ceil(_NOISE_PER_PARTY * terms.parties / scale), most))


def _compute_bounds(batch: QueryBatch, terms: SessionTerms) -> tuple[int, int]:
    """Return the largest integers of a record, or of a clipped party, and of a party's sum."""
    largest = terms.counting.build_unit_set(batch, terms.facts.schema).largest
    # With unit party it is the party's own; else multiply by the party's maximum records.
    return largest, largest if terms.counting.clip else terms.most_records * largest


def _choose_encoding(batch: QueryBatch, terms: SessionTerms, guarantee: Guarantee) -> FixedPoint:
    """Return the smallest ring that holds every party's largest contribution, and the noise."""
    largest, bound = _compute_bounds(batch, terms)
    if bound >= MAX_SUM:
        raise RingTooSmall(
            f"Expected a party's records × largest weight below 2^53, got {terms.most_records} × "
            f"{largest}. Use more equal shares of the budget, or fewer queries per batch."
        )
    refused: RingTooSmall | None = None
    for bits in _RINGS:
        try:
            encoding = FixedPoint(scale_bits=0, ring_bits=bits, bound=float(bound))
            encoding.check_capacity(terms.parties, guarantee.compute_noise_tail(TAIL_PROBABILITY))
        except RingTooSmall as error:
            refused = error
            continue
        return encoding
    raise refused or RingTooSmall("Expected a ring.")
