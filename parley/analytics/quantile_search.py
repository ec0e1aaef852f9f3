"""One quantile by a few noisy counts, each where the last ones point: nobody sees a bare sum.

A tree of noisy counts answers for every value of the grid at once, and pays for all of them. Who
wants one quantile asks on which side of a place it lies, moves to where the answers so far say that
q of all is reached, and asks again. Each question is one signed sum, (1 − q)·below − q·above
(`parley.client.queries.sums`), of Δ₁ = max(q, 1 − q) under add-or-remove-one and 1 under
replace-one. They cost Σ εₜ = ε, pure, though each place and price is chosen by the answers before
(Rogers, Roth, Ullman & Vadhan 2016). Where N is private the first of them counts both sides.

The first half of the counts halve what the noise leaves possible, at prices that double; so do
others after them while more than half of the records lie in what is left, which is so where the
column is skewed: each has ε/32, until one does not tell. The last counts share the rest, each with
half as much again as the one before, and aim. Between counts the share of records below a place is
taken to run like a Brownian bridge: its mean, given the noisy counts, is a line that all of them
bend (Rasmussen & Williams 2006, eq. 2.25), and its slack is that of the interval where the halving
ended. That decides where to look, never what is claimed: the interval follows from the counts' own
noise, and holds for any records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from parley.analytics.answer import Answer, format_to_width
from parley.analytics.query_api import ReleaseSession, parse_optional_condition
from parley.client.queries.base import QueryError
from parley.client.queries.count_queries import Histogram
from parley.client.queries.filters import Expression
from parley.client.queries.quantiles import build_grid
from parley.client.queries.sums import MAX_DENOMINATOR, Balance
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise

MAX_COUNTS = 30
_FREEDOM = 11.0
"""By which the variance of a bridge, u(1 − u), is divided: ±15 % of the records halfway."""
_MORE, _EXTRA, _KEPT = 16, 32, Fraction(2, 5)
"""Counts that a skewed column may take more, each ε/32, and how much of ε the last ones keep."""
_NARROW, _MOST_MASS, _LEAST_MASS = 4, 0.5, 0.05
"""Cells, and parts of the records, from which on halving no longer helps."""
_GROWTH = Fraction(3, 2)
"""Of the prices of the counts that aim."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class QuantileResult:
    """One quantile.

    Attributes:
        interval: it lies within, by the noise of all counts, with 95 %.
        answers: of every count, in order.
    """

    value: float
    interval: tuple[float, float]
    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        last, (low, high) = self.answers[-1], self.interval
        charge = last.ledger
        spent = math.fsum(each.ledger.epsilon for each in self.answers)
        value, *ends = (format_to_width(each, high - low) for each in (self.value, low, high))
        seeded = "\nthe noise is seeded: repeatable, and it protects nobody"
        return (
            f"{value}   noise interval 95 %: {ends[0]} … {ends[1]}\n"
            f"by {len(self.answers)} counts of {last.survivors} of {last.parties} parties; "
            f"{last.law}; charged ε = {format_exact(spent)} in all, left "
            f"{format_rounded_down(charge.left)} "
            f"({charge.budget.unit}, {charge.budget.neighbouring}; against "
            f"{charge.against.short}){seeded * charge.seeded}"
        )


@dataclass(frozen=True, kw_only=True)
class _CountResult:
    """What a count says of a place.

    Attributes:
        position: k; between the grid's values k − 1 and k.
        excess: (1 − q)·below − q·above, in records.
        side: −1 or 1 where less or more than q must lie below, whatever the noise; 0 unknown.
    """

    position: int
    excess: float
    deviation: float
    side: int


class QuantileSearch(ReleaseSession):
    """One quantile by a few counts."""

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
        """One quantile by a few counts, each its own release, placed by those before.

        Several times nearer than `quantiles`, which answers in one release, and for several at
        once. Of values that many records share it finds the neighbourhood, slowly.

        Args:
            quantile: share of the records below it, between 0 and 1.
            counts: how many, and up to 16 more of a skewed column; default one less than half the
                binary digits of the number of values.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
        """
        left = self.remaining
        values = build_grid(self.schema, column, float(step))
        if isinstance(quantile, bool) or not isinstance(quantile, int | float):
            raise QueryError(f"Expected a quantile between 0 and 1, got {quantile!r}.")
        if not 0 < quantile < 1 or to_fraction(quantile).denominator > MAX_DENOMINATOR:
            raise QueryError(
                f"Expected a quantile between 0 and 1, of at most six digits, got {quantile!r}."
            )
        rounds = max(3, math.ceil(math.log2(len(values)) / 2) - 1) if counts is None else counts
        whole_number = isinstance(rounds, int) and not isinstance(rounds, bool)
        if not whole_number or not 1 <= rounds <= MAX_COUNTS:
            raise QueryError(f"Expected 1 to {MAX_COUNTS} counts, got {rounds!r}.")
        numeric = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
        if not numeric or not 0 < epsilon < math.inf:
            raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")
        if to_fraction(epsilon) > to_fraction(left):
            raise QueryError(
                f"Expected at most {format_exact(left)}, what is left of the budget, got "
                f"ε = {format_exact(epsilon)} for {rounds} counts."
            )
        public = where is None and self.terms.facts.neighbouring is Neighbouring.REPLACE_ONE
        hunt = _Search(
            session=self,
            column=column,
            share=float(quantile),
            values=values,
            where=parse_optional_condition(where),
            rounds=rounds,
            remaining=to_fraction(epsilon),
            public=public,
        )
        hunt.search_by_halving(to_fraction(epsilon))
        hunt.refine()
        return hunt.build_result()


@dataclass(kw_only=True)
class _Search:
    """A search that goes on.

    Attributes:
        rounds: T, without those that a skewed column takes.
        remaining: of ε, exactly.
        public: whether N is.
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
        """The first half of the counts, and what a skewed column takes beside them."""
        cells, half = len(self.values), -(-self.rounds // 2)
        for number in range(half if self.rounds > 1 else 0):
            bounds = _bound_place(self.results, cells)
            asked = {each.position for each in self.results}
            place = (
                _choose_midpoint(bounds, asked, number)
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
        """The other counts, where all before them point; together they have what is left."""
        rest = max(self.rounds // 2, 1)
        parts = [_GROWTH**number for number in range(rest)]
        for number, part in enumerate(parts):
            place = round(self._find_crossing()) if self.results else len(self.values) // 2
            self._release_count(place, self.remaining * part / sum(parts[number:]))

    def build_result(self) -> QuantileResult:
        """Value and interval, from all counts."""
        low, high = _bound_place(self.results, len(self.values))
        # Sides that contradict each other, less than once in twenty, leave no interval: all of it.
        low, high = (low, high - 1) if low < high else (0, len(self.values) - 1)
        at = min(max(math.floor(self._find_crossing()), low), high)
        interval = float(self.values[low]), float(self.values[high])
        return QuantileResult(
            value=float(self.values[at]), interval=interval, answers=tuple(self.answers)
        )

    def _release_count(self, position: int, price: Fraction) -> None:
        """One count, at a price of at most so much."""
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
        """N, or about as many: it scales the line, and moves no place where q is reached."""
        if self.public:
            return float(self.answers[-1].records or 1)
        counted = float(np.asarray(self.answers[0].table["value"]).sum())
        most = max(self.share, 1 - self.share)
        return max(counted, *(abs(each.excess) / most for each in self.results), 1.0)

    def _estimate_share(self, low: int, high: int) -> float:
        """About which part of the records lies between two places that were asked."""
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
    """Of one count: how far q·N is from it, in records, and the reach of its noise."""
    counted = np.asarray(answer.table["value"], dtype=np.float64)
    noise = CellNoise.from_law(answer.law, scale=answer.scale)
    if balance is not None:
        over, spread = float(counted[0]), 1.0 / balance.fraction.denominator
        reach = spread * noise.compute_half_width(cells=max_counts)
    else:
        # (1 − q)·below − q·above: of both cells' noise, no more than that of one in all.
        over = float((1 - share) * counted[0] - share * counted[1])
        spread, reach = math.hypot(1 - share, share), noise.compute_half_width(cells=2 * max_counts)
    return _CountResult(
        position=position,
        excess=over,
        deviation=spread * noise.deviation,
        side=int(np.sign(over)) if abs(over) > reach else 0,
    )


def _bound_place(seen: Sequence[_CountResult], cells: int) -> tuple[int, int]:
    """Places between which the quantile lies, whatever the noise, by all counts together."""
    low = max((each.position for each in seen if each.side < 0), default=0)
    return low, min((each.position for each in seen if each.side > 0), default=cells)


def _choose_midpoint(bounds: tuple[int, int], tried: set[int], number: int) -> int:
    """Halfway; where the noise left that open, halfway to either end, in turns."""
    halfway = sum(bounds) // 2
    return halfway if halfway not in tried else (halfway + bounds[number % 2]) // 2


def _compute_crossing(
    seen: Sequence[_CountResult], share: float, cells: int, records: float, freedom: float
) -> float:
    """Where the line through all counts reaches `share`, from 0 to `cells`."""
    known = sorted(seen, key=lambda each: each.position)
    u = np.array([each.position for each in known]) / cells
    prior = (np.minimum.outer(u, u) - np.outer(u, u)) / freedom
    noise = np.diag([max(each.deviation / records, 1e-12) ** 2 for each in known])
    apart = np.array([min(max(share + each.excess / records, 0.0), 1.0) for each in known]) - u
    line = u + prior @ np.linalg.solve(prior + noise, apart)
    # Shares rise: a count that says otherwise is as wrong as its noise.
    rising = np.maximum.accumulate(np.clip(np.concatenate([[0.0], line, [1.0]]), 0, 1))
    rising += np.arange(len(rising)) * 1e-12
    return float(np.interp(share, rising, np.concatenate([[0.0], u, [1.0]])) * cells)
