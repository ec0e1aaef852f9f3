"""One quantile by a few noisy counts, each where the last ones point: nobody sees a bare sum.

A tree of noisy counts answers for every value of the grid at once, and pays for all of them. Who
wants one quantile asks how many records lie below a place, moves to where the answers so far say
that q of all is reached, and asks again. T counts of Δ₁ = 1 cost Σ εₜ = ε, pure, though each place
is chosen by the answers before (Rogers, Roth, Ullman & Vadhan 2016). εₜ doubles from count to
count: early ones find the neighbourhood, where records go by the thousand; the last has half of ε.

Where N is public (replace-one, all records) a count of those below suffices. Else records are
counted on both sides, in one query: Δ₁ = 1 add-or-remove-one, 2 replace-one.

The first half of the counts halve what the noise leaves possible, whatever the records' shape; the
others aim. Between counts the share of records below a place is taken to run like a Brownian bridge
from 0 to 1: its mean, given the noisy counts, is a line that all of them bend (Rasmussen & Williams
2006, eq. 2.25). That decides where to look, never what is claimed: the interval follows from the
counts' own noise, and holds for any records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from parley.analytics.answer import AGAINST, Answer, Asked, shown_number
from parley.client.queries.base import Query, QueryError
from parley.client.queries.count import Count
from parley.client.queries.histogram import Histogram
from parley.client.queries.quantiles import grid_values
from parley.client.where import Expression, col
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import as_written, exact, shown_down
from parley.privacy.estimation.reach import Reach

__all__ = ["MOST_COUNTS", "Found", "find_quantile"]

MOST_COUNTS = 30
_FREEDOM = 11.0
"""By which the variance of a bridge, u(1 − u), is divided: ±15 % of the records halfway."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Found:
    """One quantile.

    Attributes:
        value: on the column's grid.
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
        value, *ends = (shown_number(each, high - low) for each in (self.value, low, high))
        seeded = "\nthe noise is seeded: repeatable, and it protects nobody"
        return (
            f"{value}   noise interval 95 %: {ends[0]} … {ends[1]}\n"
            f"by {len(self.answers)} counts of {last.survivors} of {last.parties} parties; "
            f"{last.law}; charged ε = {as_written(spent)} in all, left {shown_down(charge.left)} "
            f"({charge.budget.unit}, {charge.budget.neighbouring}; against "
            f"{AGAINST[charge.against]}){seeded * charge.seeded}"
        )


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What a count says of a place: `share` of the records lie below it, to ± `deviation`.

    Attributes:
        place: k; between the grid's values k − 1 and k.
        share, deviation: of all records.
        side: −1 or 1 where less or more than q must lie below, whatever the noise; 0 unknown.
    """

    place: int
    share: float
    deviation: float
    side: int


def find_quantile(
    session: Asked,
    column: str,
    share: float,
    *,
    step: float,
    counts: int | None,
    epsilon: float,
    neighbouring: Neighbouring,
    where: Expression | None,
) -> Found:
    """See `parley.analytics.composed.Composed.find_quantile`.

    Raises:
        QueryError, SchemaError: it cannot be asked; nothing was charged.
    """
    values = grid_values(session.schema, column, float(step))
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise QueryError(f"Expected a quantile between 0 and 1, got {share!r}.")
    rounds = max(3, math.ceil(math.log2(len(values)) / 2)) if counts is None else counts
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MOST_COUNTS:
        raise QueryError(f"Expected 1 to {MOST_COUNTS} counts, got {rounds!r}.")
    numeric = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not numeric or not 0 < epsilon < math.inf:
        raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")
    if exact(epsilon) > exact(session.remaining):
        raise QueryError(
            f"Expected at most {as_written(session.remaining)}, what is left of the budget, got "
            f"ε = {as_written(epsilon)} for {rounds} counts."
        )
    public = where is None and neighbouring is Neighbouring.REPLACE_ONE
    seen, answers = list[_Seen](), list[Answer]()
    for number, each in enumerate(_prices(epsilon, rounds)):
        bounds = _surely(seen, len(values))
        if 2 * number < rounds and bounds[0] < bounds[1]:
            aim = float(_between(bounds, {s.place for s in seen}, number))
        else:
            aim = _crossing(seen, share, len(values))
        place = min(max(round(aim), 1), len(values) - 1)
        border = float((values[place - 1] + values[place]) / 2)
        query: Query = (
            Count(where=col[column] < border)
            if public
            else Histogram(column=column, edges=_edges(values, border), where=where)
        )
        answers.append(session.ask(query, epsilon=each, law="laplace"))
        seen.append(_read(answers[-1], share, place, rounds))
    low, high = _surely(seen, len(values))
    # Sides that contradict each other, less than once in twenty, leave no interval: the whole grid.
    low, high = (low, high - 1) if low < high else (0, len(values) - 1)
    at = min(max(math.floor(_crossing(seen, share, len(values))), low), high)
    interval = float(values[low]), float(values[high])
    return Found(value=float(values[at]), interval=interval, answers=tuple(answers))


def _prices(epsilon: float, rounds: int) -> list[float]:
    """εₜ, each twice the one before; together no more than ε.

    >>> _prices(1.0, 3) == [1 / 7, 2 / 7, 4 / 7]
    True
    """
    whole = exact(epsilon)
    each = [float(whole * 2**t / (2**rounds - 1)) for t in range(rounds)]
    while sum(map(exact, each), Fraction(0)) > whole:
        each[-1] = math.nextafter(each[-1], 0)
    return each


def _edges(values: Numbers, border: float) -> tuple[float, ...]:
    return float(values[0]), border, float(values[-1])


def _read(answer: Answer, share: float, place: int, rounds: int) -> _Seen:
    """Of one count: how far q·N is from it, in records, and the reach of its noise."""
    counted = np.asarray(answer.table["value"], dtype=np.float64)
    noise = Reach.of(answer.law, scale=answer.scale)
    if len(counted) == 1:
        records = float(answer.records or 1)
        over, spread = counted[0] - share * records, 1.0
    else:
        # (1 − q)·below − q·above: of both cells' noise, no more than that of one in all.
        over, spread = (1 - share) * counted[0] - share * counted[1], math.hypot(1 - share, share)
        records = max(float(counted.sum()), 1.0)
    reach = noise.half_width(cells=rounds * len(counted))
    return _Seen(
        place=place,
        share=min(max(share + over / records, 0.0), 1.0),
        deviation=spread * noise.deviation / records,
        side=int(np.sign(over)) if abs(over) > reach else 0,
    )


def _surely(seen: Sequence[_Seen], cells: int) -> tuple[int, int]:
    """Places between which the quantile lies, whatever the noise, by all counts together."""
    low = max((each.place for each in seen if each.side < 0), default=0)
    return low, min((each.place for each in seen if each.side > 0), default=cells)


def _between(bounds: tuple[int, int], asked: set[int], number: int) -> int:
    """Halfway; where the noise left that open, halfway to either end, in turns."""
    halfway = sum(bounds) // 2
    return halfway if halfway not in asked else (halfway + bounds[number % 2]) // 2


def _crossing(seen: Sequence[_Seen], share: float, cells: int) -> float:
    """Where the line through all counts reaches `share`, from 0 to `cells`."""
    known = sorted(seen, key=lambda each: each.place)
    u = np.array([each.place for each in known]) / cells
    prior = (np.minimum.outer(u, u) - np.outer(u, u)) / _FREEDOM
    noise = np.diag([max(each.deviation, 1e-12) ** 2 for each in known])
    apart = np.array([each.share for each in known]) - u
    line = u + prior @ np.linalg.solve(prior + noise, apart) if known else u
    # Shares rise: a count that says otherwise is as wrong as its noise.
    rising = np.maximum.accumulate(np.clip(np.concatenate([[0.0], line, [1.0]]), 0, 1))
    rising += np.arange(len(rising)) * 1e-12
    return float(np.interp(share, rising, np.concatenate([[0.0], u, [1.0]])) * cells)
