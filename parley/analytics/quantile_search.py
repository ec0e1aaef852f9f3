"""Find one quantile by a few noisy counts, each placed by the earlier ones; no exact sum is seen.

A tree of noisy counts answers for every value of the grid at once, and pays for all of them. For
one quantile it is enough to ask on which side of a position it lies, to move to the position where
the answers so far place the share q, and to ask again. Each question is one signed sum, (1 −
q)·below − q·above (`parley.client.queries.sum_queries`). Its Δ₁ is max(q, 1 − q) under
add-or-remove-one and 1 under replace-one. In total they cost Σ εₜ = ε, pure, although the answers
before choose each position and price (Rogers, Roth, Ullman & Vadhan 2016). If N is private, the
first question counts both sides.

The first half of the counts halve the interval that the noise leaves possible, at prices that
double. Further halvings follow while more than half of the records are in the remaining interval,
which happens in a skewed column. Each has ε/32, until one is inconclusive. The last counts share
the rest, each with half as much again as the one before, and refine the position.

Between counts, the share of records below a position is modelled as a Brownian bridge. Its mean,
given the noisy counts, is a line through all of them (Rasmussen & Williams 2006, eq. 2.25). Its
variance is that of the interval at the end of the halving. This model decides only where to ask
next, never what is claimed. The interval follows from the counts' own noise and holds for any
records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from parley.analytics.answer import Answer, format_to_width
from parley.analytics.query_api import (
    ReleaseSession,
    check_epsilon,
    check_left,
    parse_optional_condition,
)
from parley.client.queries.base import QueryError
from parley.client.queries.count_queries import Histogram
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.quantiles import build_grid
from parley.client.queries.sum_queries import MAX_DENOMINATOR, Balance
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise

MAX_COUNTS = 30
_FREEDOM = 11.0
"""Divisor of a bridge's variance u(1 − u): ±15 % of the records in the middle."""
_MIN_DEVIATION = 1e-12
"""Minimum deviation of a count, as a share of the records."""
_MORE, _EXTRA, _KEPT = 16, 32, Fraction(2, 5)
"""Maximum additional counts in a skewed column, each with ε/32, and the share of ε kept for the
last counts.
"""
_NARROW, _MOST_MASS, _LEAST_MASS = 4, 0.5, 0.05
"""Number of cells and shares of the records at which halving no longer helps."""
_GROWTH = Fraction(3, 2)
"""Ratio of the prices of successive refining counts."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class QuantileResult:
    """One quantile.

    Attributes:
        interval: Interval of 95 % from the noise of all counts.
        answers: The answer of each count, in order.
    """

    value: float
    interval: tuple[float, float]
    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        last, (low, high) = self.answers[-1], self.interval
        charge = last.ledger
        spent = math.fsum(each.ledger.epsilon for each in self.answers)
        value, *ends = (format_to_width(each, high - low) for each in (self.value, low, high))
        seeded = "\nthe noise is seeded: repeatable, without any protection"
        return (
            f"{value}   noise interval 95 %: {ends[0]} … {ends[1]}\nby {len(self.answers)} counts "
            f"of {last.survivors} of {last.parties} parties; {last.law}; charged ε = "
            f"{format_exact(spent)} in all, left {format_rounded_down(charge.left)} "
            f"({charge.budget.unit}, {charge.budget.neighbouring}; against "
            f"{charge.against.short}){seeded * charge.seeded}"
        )


@dataclass(frozen=True, kw_only=True)
class _CountResult:
    """The result of a count at a position.

    Attributes:
        position: k; the position is between the grid's values k − 1 and k.
        excess: (1 − q)·below − q·above, in records.
        side: −1 or 1 if less or more than q is below for any plausible noise; 0 if unknown.
    """

    position: int
    excess: float
    deviation: float
    side: int


class QuantileSearch(ReleaseSession):
    """Query method of a session that finds one quantile by a few counts."""

    def find_quantile(
        self,
        column: str,
        quantile: float = 0.5,
        *,
        step: float = 0.0,
        counts: int | None = None,
        where: Expression | str | None = None,
        epsilon: float,
    ) -> QuantileResult:
        """Find one quantile by a few counts, each a separate release, placed by those before.

        The result is several times closer than that of `quantiles`, which answers for several
        quantiles in one release. If many records share a value, the search finds its neighbourhood
        slowly.

        Args:
            quantile: Share of the records below it, between 0 and 1.
            counts: Number of counts, plus up to 16 more in a skewed column. The default is one less
                than half the number of binary digits of the number of values.

        Raises:
            QueryError, SchemaError: the request is not valid; no budget was charged.
        """
        left = self.remaining
        values = build_grid(self.schema, column, float(step))
        share = quantile if isinstance(quantile, int | float) else math.nan
        if not 0 < share < 1 or to_fraction(share).denominator > MAX_DENOMINATOR:
            raise QueryError(
                f"Expected a quantile between 0 and 1, of at most six digits, got {quantile!r}."
            )
        rounds = max(3, math.ceil(math.log2(len(values)) / 2) - 1) if counts is None else counts
        if type(rounds) is not int or not 1 <= rounds <= MAX_COUNTS:
            raise QueryError(f"Expected 1 to {MAX_COUNTS} counts, got {rounds!r}.")
        check_epsilon(epsilon)
        check_left(to_fraction(epsilon), left, f"{rounds} counts")
        hunt = _Search(
            session=self,
            column=column,
            share=float(quantile),
            values=values,
            where=parse_optional_condition(where),
            rounds=rounds,
            remaining=to_fraction(epsilon),
            public=where is None and self.terms.facts.neighbouring is Neighbouring.REPLACE_ONE,
        )
        hunt.search_by_halving(to_fraction(epsilon))
        hunt.refine()
        return hunt.build_result()


@dataclass(kw_only=True)
class _Search:
    """The state of a search.

    Attributes:
        rounds: T, without the additional counts of a skewed column.
        remaining: What is left of ε, exactly.
        public: Whether N is public.
    """

    session: ReleaseSession
    column: str
    share: float
    values: Numbers
    where: Expression | None
    rounds: int
    remaining: Fraction
    public: bool
    results: list[_CountResult] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    freedom: float = _FREEDOM

    def search_by_halving(self, epsilon: Fraction) -> None:
        """Release the first half of the counts, and the additional ones of a skewed column."""
        cells, half = len(self.values), -(-self.rounds // 2)
        for number in range(half if self.rounds > 1 else 0):
            bounds = _bound_place(self.results, cells)
            place = (
                _choose_midpoint(bounds, {each.position for each in self.results}, number)
                if bounds[0] < bounds[1]
                else self._find_crossing()
            )
            self._release_count(round(place), epsilon * 2**number / (2**self.rounds - 1))
        while self.results and self.results[-1].side and len(self.results) < half + _MORE:
            low, high = _bound_place(self.results, cells)
            dear = self.remaining - epsilon / _EXTRA < epsilon * _KEPT
            if high - low < _NARROW or self._estimate_share(low, high) < _MOST_MASS or dear:
                break
            self._release_count((low + high) // 2, epsilon / _EXTRA)
        low, high = _bound_place(self.results, cells)
        if low < high:
            mass = max(self._estimate_share(low, high), _LEAST_MASS)
            self.freedom = min(_FREEDOM, _FREEDOM * (high - low) / cells / mass**2)

    def refine(self) -> None:
        """Release the other counts, where all earlier ones point, for the rest of the price."""
        parts = [_GROWTH**number for number in range(max(self.rounds // 2, 1))]
        for number, part in enumerate(parts):
            place = round(self._find_crossing()) if self.results else len(self.values) // 2
            self._release_count(place, self.remaining * part / sum(parts[number:]))

    def build_result(self) -> QuantileResult:
        """Return value and interval from all counts."""
        low, high = _bound_place(self.results, len(self.values))
        # In less than one case of twenty, sides contradict each other. Then return the whole range.
        low, high = (low, high - 1) if low < high else (0, len(self.values) - 1)
        at = min(max(math.floor(self._find_crossing()), low), high)
        interval = float(self.values[low]), float(self.values[high])
        value, answers = float(self.values[at]), tuple(self.answers)
        return QuantileResult(value=value, interval=interval, answers=answers)

    def _release_count(self, position: int, price: Fraction) -> None:
        """Release one count at a price of at most `price`."""
        epsilon = float(price)
        while to_fraction(epsilon) > self.remaining:
            epsilon = math.nextafter(epsilon, 0)
        position = min(max(position, 1), len(self.values) - 1)
        border = float((self.values[position - 1] + self.values[position]) / 2)
        balance = None
        if self.public or self.results:
            balance = Balance(column=self.column, border=border, share=self.share, where=self.where)
        edges = (float(self.values[0]), border, float(self.values[-1]))
        query = balance or Histogram(column=self.column, edges=edges, where=self.where)
        answer = self.session.ask(query, epsilon=epsilon, law="laplace")
        self.remaining -= to_fraction(epsilon)
        self.answers.append(answer)
        self.results.append(_read_count(answer, balance, self.share, position, self.rounds + _MORE))

    def _estimate_records(self) -> float:
        """Return N or an estimate. It scales the line and does not move the position of the
        quantile.
        """
        if self.public:
            return float(self.answers[-1].records or 1)
        counted = float(np.asarray(self.answers[0].table["value"]).sum())
        most = max(self.share, 1 - self.share)
        return max(counted, *(abs(each.excess) / most for each in self.results), 1.0)

    def _estimate_share(self, low: int, high: int) -> float:
        """Return an estimate of the share of records between two positions that were asked."""
        known = {
            each.position: each.excess / self._estimate_records() + self.share
            for each in self.results
        }
        return known.get(high, 1.0) - known.get(low, 0.0)

    def _find_crossing(self) -> float:
        return _compute_crossing(
            self.results, self.share, len(self.values), self._estimate_records(), self.freedom
        )


def _read_count(
    answer: Answer, balance: Balance | None, share: float, position: int, max_counts: int
) -> _CountResult:
    """Return the result of one count: how far it is from q·N, in records, and whether noise
    explains it.
    """
    counted = np.asarray(answer.table["value"], dtype=np.float64)
    noise = CellNoise(law=answer.law, scale=answer.scale)
    if balance is not None:
        over, spread = float(counted[0]), 1.0 / balance.fraction.denominator
        reach = spread * noise.compute_half_width(cells=max_counts)
    else:
        # (1 − q)·below − q·above has the noise of both cells, at most that of one cell in total.
        over = float((1 - share) * counted[0] - share * counted[1])
        spread, reach = math.hypot(1 - share, share), noise.compute_half_width(cells=2 * max_counts)
    return _CountResult(
        position=position,
        excess=over,
        deviation=spread * noise.deviation,
        side=int(np.sign(over)) if abs(over) > reach else 0,
    )


def _bound_place(seen: Sequence[_CountResult], cells: int) -> tuple[int, int]:
    """Return the positions between which the quantile is, from the sides of all counts."""
    low = max((each.position for each in seen if each.side < 0), default=0)
    return low, min((each.position for each in seen if each.side > 0), default=cells)


def _choose_midpoint(bounds: tuple[int, int], tried: set[int], number: int) -> int:
    """Return the midpoint; if it was asked without a result, the midpoint of either half, in
    turns.
    """
    halfway = sum(bounds) // 2
    return halfway if halfway not in tried else (halfway + bounds[number % 2]) // 2


def _merge_positions(seen: Sequence[_CountResult], records: float) -> list[_CountResult]:
    """Return one result per position, ascending: the weighted mean of repeated counts.

    Two counts of one position without noise would make the covariance singular.
    """
    groups: dict[int, list[_CountResult]] = {}
    for each in sorted(seen, key=lambda each: each.position):
        groups.setdefault(each.position, []).append(each)
    merged = []
    for first, *others in groups.values():
        if not others:
            merged.append(first)
            continue
        least = _MIN_DEVIATION * records
        weights = np.array([max(each.deviation, least) ** -2.0 for each in (first, *others)])
        excess = np.array([each.excess for each in (first, *others)])
        mean, deviation = weights @ excess / weights.sum(), weights.sum() ** -0.5
        merged.append(replace(first, excess=float(mean), deviation=float(deviation)))
    return merged


def _compute_crossing(
    seen: Sequence[_CountResult], share: float, cells: int, records: float, freedom: float
) -> float:
    """Return the position, from 0 to `cells`, where the line through all counts reaches `share`."""
    known = _merge_positions(seen, records)
    u = np.array([each.position for each in known]) / cells
    prior = (np.minimum.outer(u, u) - np.outer(u, u)) / freedom
    noise = np.diag([max(each.deviation / records, _MIN_DEVIATION) ** 2 for each in known])
    apart = np.array([min(max(share + each.excess / records, 0.0), 1.0) for each in known]) - u
    line = u + prior @ np.linalg.solve(prior + noise, apart)
    # Shares never fall with the position, so a drop in the estimate is noise.
    rising = np.maximum.accumulate(np.clip(np.concatenate([[0.0], line, [1.0]]), 0, 1))
    rising += np.arange(len(rising)) * 1e-12
    return float(np.interp(share, rising, np.concatenate([[0.0], u, [1.0]])) * cells)
