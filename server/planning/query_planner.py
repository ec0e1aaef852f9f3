"""From queries and a price to a release: weights, noise law, ring and plan of one batch.

Everything is planned in integers: what a query adds is whole, so that Δ on the grid is Δ, and the
ring is the smallest that holds every record's largest entry and the noise. The price ε is that of
the batch; each query has a share of it (default: the same), of ε for Laplace noise and of ρ for
Gaussian noise. `auto` takes the law with the lower expected errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from parley.client.algorithms.query_release import LARGEST_SUM
from parley.client.contract.assumptions import of_queries
from parley.client.contract.grid_rule import TAIL_PROBABILITY
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.client.queries.base import (
    LARGEST_WEIGHT,
    MOST_FINE,
    Facts,
    Integers,
    Query,
    QueryError,
)
from parley.client.queries.consistency import Agreement, rms
from parley.client.queries.query_batch import LARGEST_PRIVATE, Batch, Counting, check_cells
from parley.privacy.accounting.privacy_events import Event
from parley.privacy.accounting.threat_model import INSIDE, NOISE_POINTS, Neighbouring
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.estimation.noise_intervals import Reach
from parley.privacy.ledger.ledger_entry import Entry
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS, Shares
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.mechanisms.selection import SELECTIONS
from parley.privacy.sampling.random_stream import NoiseStream
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.server.planning.instead import Choice, Responses, choice_of, responses_of
from parley.server.planning.session_terms import QUERY_LAWS, Terms

ALGORITHM = "query"

_LEAST_WEIGHT = 4096
_NOISE_PER_PARTY = 256
"""Steps of the noise's scale for each party that rounds its sum, where the weights can be so large.
Rounding then moves an interval by less than 0.4 % of the scale."""
_ANSWERED = 0.01
"""Of the largest part of the norm: counts with less are the others' cells."""
_RINGS = (16, 32, 64)


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A batch as it will be released.

    Attributes:
        draft: the assumption of a drafted schema; empty if the schema is none.
        instead: what is done in the place of noise on the sum; None: noise is added.
    """

    batch: Batch
    plan: ReleasePlan
    counting: Counting = field(default_factory=Counting)
    draft: str = ""
    instead: Instead | None = None

    @property
    def by_party(self) -> bool:
        """Whether every party has its own cells."""
        return self.counting.parties > 0

    @property
    def private(self) -> bool:
        """Whether the number of records is private."""
        return self.counting.private(self.plan.primary.neighbouring)

    @property
    def law(self) -> str:
        """Of the noise, or of what is done instead."""
        return self.plan.primary.mechanism.law if self.instead is None else self.instead.law

    @property
    def event(self) -> Event:
        """What it costs."""
        return self.plan.primary.event if self.instead is None else self.instead.event()

    def scale(self, survivors: int | None = None) -> float:
        """Of the noise on a sum of so many parties, or of what is done instead."""
        return self.noise(survivors).scale if self.instead is None else self.instead.scale

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its ε rests on beyond its proof."""
        return of_queries(
            self.counting.unit,
            reported=self.batch.reports is not None,
            chosen=self.law in SELECTIONS,
            draft=self.draft,
        )

    def entries(self, dataset: str) -> tuple[Entry, ...]:
        """What the server's ledger charges."""
        entries = self.plan.entries(dataset, party="server", assumed=self.assumptions)
        if self.instead is None:
            return entries
        return tuple(self.instead.charged(entry) for entry in entries)

    def released(self, total: Integers, facts: Facts, stream: NoiseStream) -> list[int]:
        """What leaves the server of an exact sum, or of one that has its noise in shares."""
        if self.instead is None:
            noisy: list[int] = (total + self.plan.draw(stream)).tolist()
            return noisy
        return self.instead.shown(total, facts, stream)

    def noise(self, survivors: int | None = None) -> Reach:
        """The noise on every cell of a sum of so many parties; None: of the fewest."""
        mechanism, shares = self.plan.primary.mechanism, self.plan.primary.shares
        scale = mechanism.scale
        if shares is not None:
            scale *= math.sqrt((survivors or shares.least) / shares.honest)
        return Reach.of(mechanism.law, scale=scale)

    def errors(self, facts: Facts) -> tuple[float, ...]:
        """What each query expects to be off by, by noise."""
        if self.instead is not None:
            return (self.instead.expected_error(facts),)
        noise = self.noise()
        both = zip(self.batch.queries, self.batch.weights, self.nearer(facts), strict=True)
        return tuple(
            nearer * query.expected_error(weight, noise, facts) for query, weight, nearer in both
        )

    def nearer(self, facts: Facts) -> tuple[float, ...]:
        """Each answer's error over that of its cells alone, by what others say of it."""
        batch = self.batch
        if self.instead is not None:
            return (1.0,) * len(batch.queries)
        agreement = Agreement(
            batch=batch, facts=facts, noise=self.noise(), cut=self.counting.clip != ""
        )
        return tuple(rms(agreement.factors[place]) for place in batch.slices(facts.schema))


Instead: TypeAlias = Choice | Responses

INSTEAD: Mapping[str, Callable[[Batch, Facts, str, float, Counting, bool], Instead]] = (
    MappingProxyType({**dict.fromkeys(SELECTIONS, choice_of), RandomisedResponse.law: responses_of})
)
"""What may be done in the place of noise on the sum, by name."""


def plan_batch(
    queries: Sequence[Query],
    terms: Terms,
    *,
    epsilon: float,
    run_id: str,
    number: int,
    law: str = "auto",
    shares: Sequence[float] | None = None,
    by_party: bool = False,
) -> PlannedBatch:
    """The release of some queries together.

    Args:
        epsilon: what the release costs, at the terms' δ.
        shares: of the budget, one a query, any positive numbers; None: the same for all.

    Raises QueryError, SchemaError, CalibrationError, RingTooSmall.
    """
    number_like = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not number_like or not 0 < epsilon < math.inf:
        raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")
    if law not in (*QUERY_LAWS, *INSTEAD, "auto"):
        known = ", ".join((*QUERY_LAWS, *INSTEAD))
        raise QueryError(f"Expected law {known} or auto, got {law!r}.")
    if not queries:
        raise QueryError("Expected at least one query in a batch, got none.")
    terms = terms.by_party() if by_party else terms
    for query in queries:
        query.check(terms.facts.schema, terms.facts.neighbouring)
    check_cells(queries, terms.facts.schema)
    given = [1.0] * len(queries) if shares is None else list(shares)
    if len(given) != len(queries) or not all(0 < each < math.inf for each in given):
        raise QueryError(f"Expected a share > 0 for each of {len(queries)} queries, got {given}.")
    parts = tuple(each / math.fsum(given) for each in given)
    law = _law_of(queries, law)
    if law in INSTEAD:
        # The plan is that of the sum; what is drawn and charged is what is done instead.
        alone = replace(terms, noise_point=NOISE_POINTS["server"])
        whole = _planned(queries, parts, "laplace", alone, epsilon, run_id, number)
        shared = terms.noise_point.in_contributions
        made = INSTEAD[law](whole.batch, terms.facts, law, epsilon, terms.counting, shared)
        return _inside(whole, made) if isinstance(made, Responses) else replace(whole, instead=made)
    names = [law] if law != "auto" else list(QUERY_LAWS)  # one that cannot be had is refused
    planned, refused = list[PlannedBatch](), list[CalibrationError]()
    for name in names:
        try:
            planned.append(_planned(queries, parts, name, terms, epsilon, run_id, number))
        except CalibrationError as error:
            refused.append(error)
    if not planned:
        raise refused[0]
    return min(planned, key=lambda each: math.fsum(map(_log, each.errors(terms.facts))))


def _inside(whole: PlannedBatch, made: Responses) -> PlannedBatch:
    """The same release with all of its noise in what the records say."""
    mechanism = made.mechanism
    guarantee = replace(
        whole.plan.primary,
        sensitivity=mechanism.sensitivity,
        mechanism=mechanism,
        noise_point=INSIDE,
        against=INSIDE.adversary,
    )
    batch = Batch(queries=(made.query,), weights=(1,))
    return replace(
        whole, batch=batch, plan=replace(whole.plan, guarantees=(guarantee,)), instead=made
    )


def _log(error: float) -> float:
    return math.log(max(error, 1e-300))  # 0 where ε leaves no noise


def _law_of(queries: Sequence[Query], law: str) -> str:
    """The law that was asked for, or the only one that a query has."""
    own = next((query.law for query in queries if query.law), "")
    if own and (len(queries) > 1 or law not in (own, "auto")):
        raise QueryError(
            f"Expected {own} alone with its query, got {law} and {len(queries)} queries together."
        )
    return own or law


def _planned(
    queries: Sequence[Query],
    parts: Sequence[float],
    law: str,
    terms: Terms,
    epsilon: float,
    run_id: str,
    number: int,
) -> PlannedBatch:
    facts, row = terms.facts, QUERY_LAWS[law]
    terms = terms.clipped(row.clip)
    tuned = tuple(query.tuned(law, facts) for query in queries)
    batch = Batch(queries=tuned, weights=_weights(tuned, parts, law, terms))
    mechanism = row.mechanism(batch, terms, epsilon)
    if (times := _finer(batch, mechanism.scale, terms)) > 1:
        batch = replace(batch, weights=tuple(times * weight for weight in batch.weights))
        mechanism = row.mechanism(batch, terms, epsilon)
    split = None
    if terms.noise_point.in_contributions:
        least, colluders = terms.noise_point.split(
            least=terms.min_survivors, colluders=terms.corrupt
        )
        try:
            split = Shares.of(mechanism, parties=terms.parties, least=least, colluders=colluders)
        except ValueError as error:
            raise CalibrationError(str(error)) from error
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
        encoding=_encoding(batch, terms, guarantee),
        min_survivors=terms.min_survivors,
        parties=terms.parties,
        seeded=terms.seeded,
        guarantees=(guarantee,),
    )
    return PlannedBatch(
        batch=batch, plan=plan, counting=terms.counting, draft=facts.schema.assumption
    )


def _weights(
    queries: Sequence[Query], shares: Sequence[float], law: str, terms: Terms
) -> tuple[int, ...]:
    """a_q in proportion to a query's part of the norm, the least at 4096.

    A query of counts alone has 1, unless shares of the noise need a finer grid. One that others
    answer has less.
    """
    floor = terms.noise_point.in_contributions and SHARED_LAWS[law].floor > 0
    if len(queries) == 1:
        return (1 if queries[0].whole and not floor else _LEAST_WEIGHT,)
    row = QUERY_LAWS[law]
    alone = (Batch(queries=(query,), weights=(_LEAST_WEIGHT,)) for query in queries)
    norms = np.array([row.norm(terms.moved(each)) for each in alone])
    batch = Batch(queries=tuple(queries), weights=(_LEAST_WEIGHT,) * len(queries))
    agreement = Agreement(batch=batch, facts=terms.facts, cut=terms.counting.clip != "")
    parts = agreement.shared_out(shares, lambda p: p**row.power / norms) ** row.power
    # Of counts that others answer hardly anything is asked: no grid is finer for them.
    asked = (parts > _ANSWERED * parts.max()) | [not query.agrees for query in queries]
    least = np.where(asked, _LEAST_WEIGHT, 1)
    whole = (_LEAST_WEIGHT * norms / parts)[asked].max()
    found = np.floor(whole * parts / norms * (1 + 1e-12))
    return tuple(np.maximum(least, found).astype(int).tolist())


def _finer(batch: Batch, scale: float, terms: Terms) -> int:
    """Return by what to multiply a batch's weights, so that rounding is far below its noise.

    Each party rounds its sums by a step at most. A finer grid costs nothing but digits.
    """
    if all(query.whole for query in batch.queries):
        return 1
    largest, bound = _bounds(batch, terms)
    most = min(MOST_FINE // max(bound, 1), LARGEST_WEIGHT // max(batch.weights))
    if terms.counting.private(terms.neighbouring):
        most = min(most, LARGEST_PRIVATE // max(largest, 1))
    return max(1, min(math.ceil(_NOISE_PER_PARTY * terms.parties / scale), most))


def _bounds(batch: Batch, terms: Terms) -> tuple[int, int]:
    """Return the largest integers of a record, or of a clipped party, and of a party's sum."""
    largest = terms.counting.set(batch, terms.facts.schema).largest
    # Of unit party it is a party's own; else a party has so many records.
    return largest, largest if terms.counting.clip else terms.most_records * largest


def _encoding(batch: Batch, terms: Terms, guarantee: Guarantee) -> FixedPoint:
    """The smallest ring that holds every party's largest contribution, and the noise."""
    largest, bound = _bounds(batch, terms)
    if bound >= LARGEST_SUM:
        raise RingTooSmall(
            f"Expected a party's records × largest weight below 2^53, got {terms.most_records} × "
            f"{largest}: more equal shares of the budget, or fewer queries in a batch, help."
        )
    refused: RingTooSmall | None = None
    for bits in _RINGS:
        try:
            encoding = FixedPoint(scale_bits=0, ring_bits=bits, bound=float(bound))
            encoding.check_capacity(terms.parties, guarantee.noise_tail(TAIL_PROBABILITY))
        except RingTooSmall as error:
            refused = error
            continue
        return encoding
    raise refused or RingTooSmall("Expected a ring.")
