"""`mean` and `variance`: sums of polynomials of a column, next to the number of records.

With t = (x − centre)/half-width ∈ [−1, 1] a record adds a to its group's count and s·p(t) to a cell
for each polynomial p, with s = round(a·w). There is no count if the number of records is public
(replace-one, all records). A ratio's interval is Fieller's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    Integers,
    Numbers,
    Query,
    QueryError,
    QueryFacts,
    Table,
    build_group_cells,
    get_range,
    to_four_digits,
)
from parley.client.queries.group_cells import Summand
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.mean_differences import compute_differences
from parley.privacy.estimation.noise_intervals import (
    CellNoise,
    compute_ratio_interval,
    widen_by_rounding,
)
from parley.privacy.estimation.sampling_error import (
    estimate_mean_deviation,
    estimate_variance_deviation,
)
from parley.privacy.sensitivity.bounded_sets import Set

Polynomial = Callable[[Numbers], Numbers]
UNIT_BALANCE = 4096
"""Value of `balance` for w = 1."""


@dataclass(frozen=True, kw_only=True)
class Moments(ColumnQuery):
    """Sums of polynomials of a column of numbers.

    Attributes:
        polynomials: functions of t, each in [−1, 1].
        spread: about the answer's error per error of a sum, and per error of the count.
        balance: w in units of 1/4096.
        counted: whether the number of records is also requested.
    """

    integral: ClassVar[bool] = False
    sampling: ClassVar[bool] = True
    derived_fields: ClassVar[frozenset[str]] = frozenset({"balance", "counted"})
    polynomials: ClassVar[tuple[Polynomial, ...]]
    spread: ClassVar[tuple[float, float]]

    balance: int = UNIT_BALANCE
    counted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_balance(self.balance)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        get_range(schema, self.column)
        if not self.counted and not is_size_public(self, neighbouring):
            raise QueryError(
                f"Expected a {self.kind} that counts its records, under add-or-remove-one, with "
                "where or in groups: their number is not public. Got counted = false."
            )

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return a sum per polynomial and, if records are counted, their number."""
        a, s = compute_unit_weights(weight, self.balance)
        sums = tuple(self._build_sum(schema, p, s) for p in self.polynomials)
        counts = (Summand.from_constant(a),) if self.counted else ()
        return (CellSums(cells=build_group_cells(schema, self.by), summands=(*counts, *sums)),)

    def _build_sum(self, schema: Schema, polynomial: Polynomial, s: int) -> Summand:
        centre, half = self.get_centre_and_half_width(schema)

        def of(block: RawPartyBlock) -> Numbers:
            t = (block.columns[self.column] - centre) / half
            return s * polynomial(np.fmin(np.fmax(t, -1), 1))  # also for NaN

        return Summand(low=-s, high=s, compute=of)

    def get_centre_and_half_width(self, schema: Schema) -> tuple[float, float]:
        """Return the centre and half-width of the column's range."""
        known = get_range(schema, self.column)
        return known.low / 2 + known.high / 2, known.high / 2 - known.low / 2

    def compute_averages(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> list[tuple[Numbers, Numbers, Numbers]]:
        """Return `[G]` each polynomial's average in [−1, 1], and the ends of its noise interval."""
        a, s = compute_unit_weights(weight, self.balance)
        groups = build_group_cells(facts.schema, self.by)
        cells = noisy.reshape(-1, groups.count)
        if self.counted:
            counts, sums = cells[0] / a, cells[1:] / s
            found = [_compute_fieller_interval(counts, each, 1 / a, 1 / s, noise) for each in sums]
        else:
            counts = np.full(groups.count, float(facts.records or 1))
            half = noise.compute_half_width() / s / counts
            means = cells / s / counts
            found = [(np.clip(m, -1, 1), m - half, m + half) for m in means]
        return [_add_sampling_error(*each, counts, noise) for each in found]

    def build_means_table(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> Table:
        """Return the mean of every group, and its noise interval."""
        mean = self.compute_averages(noisy, weight, noise, facts)[0]
        centre, width = self.get_centre_and_half_width(facts.schema)
        value, low, high = (centre + width * part for part in mean)
        low, high = widen_by_rounding(low, high, abs(centre) + width)
        keys = build_group_cells(facts.schema, self.by).build_key_columns()
        return {**keys, "value": value, "low": low, "high": high}

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return half-width^k/N·deviation·√(…), of all records: group sizes are unknown."""
        a, s = compute_unit_weights(weight, self.balance)
        groups = build_group_cells(facts.schema, self.by).count
        each = noise.deviation / (facts.records or 1) * groups
        of_sum, of_count = self.spread
        error = math.hypot(of_sum / s, of_count / a if self.counted else 0.0)
        width: float = self.get_centre_and_half_width(facts.schema)[1] ** len(self.polynomials)
        return width * each * error

    def get_error_scale(self, facts: QueryFacts) -> float:
        """Return the scale relative to the column's range."""
        return 1 / (2 * self.get_centre_and_half_width(facts.schema)[1])


def check_balance(balance: int) -> None:
    """Raise QueryError if no query takes such a w."""
    if not 1 <= balance <= 16 * UNIT_BALANCE:
        raise QueryError(f"Expected a balance of 1 to 2^16, got {balance}.")


def compute_unit_weights(weight: int, balance: int) -> tuple[int, int]:
    """Return a and s."""
    return weight, max(1, round(weight * balance / UNIT_BALANCE))


def is_size_public(query: Query, neighbouring: Neighbouring) -> bool:
    """Return whether the number of records that it covers is public."""
    return not query.selects and not query.by and neighbouring is Neighbouring.REPLACE_ONE


def _add_sampling_error(
    value: Numbers, low: Numbers, high: Numbers, counts: Numbers, noise: CellNoise
) -> tuple[Numbers, Numbers, Numbers]:
    """Return `[G]` both errors together, per side (Zou & Donner 2008), within [−1, 1]."""
    sampled = estimate_mean_deviation(value, counts)
    low = value - noise.add_sampling_error(value - low, sampled)
    high = value + noise.add_sampling_error(high - value, sampled)
    return value, np.clip(low, -1, 1), np.clip(high, -1, 1)


def _compute_fieller_interval(
    counts: Numbers, sums: Numbers, count_unit: float, sum_unit: float, noise: CellNoise
) -> tuple[Numbers, Numbers, Numbers]:
    """Return `[G]` sums/counts in [−1, 1], and the ends of its noise interval (Fieller 1954).

    If it has no end, value and interval are NaN: too few records for this ε.
    """
    tail, off = noise.build_ratio_tail(sum_unit, count_unit), noise.rounding * sum_unit
    ratio = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), -1, 1)
    ends = compute_ratio_interval(sums, counts, tail, noise.compute_alpha(), rounding=off)
    lows, highs = np.clip(ends, -1, 1)
    return np.where(np.isnan(lows), math.nan, ratio), lows, highs


_GAUSSIAN_BALANCE = round(UNIT_BALANCE / math.sqrt(3))


@dataclass(frozen=True, kw_only=True)
class Mean(Moments):
    """The mean of a column of numbers."""

    kind: ClassVar[str] = "mean"
    polynomials = (lambda t: t,)
    spread: ClassVar[tuple[float, float]] = (1.0, 0.5)  # at t = ½

    def tune(self, law: str, facts: QueryFacts) -> Self:
        """Return it with w² = ⅓ for Gaussian noise under replace-one, else w = 1.

        It is counted if N is private.
        """
        third = law == "gaussian" and facts.neighbouring is Neighbouring.REPLACE_ONE
        return replace(
            self,
            balance=_GAUSSIAN_BALANCE if third else UNIT_BALANCE,
            counted=not is_size_public(self, facts.neighbouring),
        )

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the answer as in `Query.answer`."""
        return self.build_means_table(noisy, weight, noise, facts)


@dataclass(frozen=True, kw_only=True)
class Variance(Moments):
    """The variance of a column of numbers."""

    kind: ClassVar[str] = "variance"
    polynomials = (lambda t: t, lambda t: 2 * t * t - 1)
    spread: ClassVar[tuple[float, float]] = (0.5, 0.25)  # at t̄ = 0 and a variance of a quarter

    balance: int = round(UNIT_BALANCE / math.sqrt(3))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if not self.get_centre_and_half_width(schema)[1] <= _MAX_HALF_WIDTH:
            raise QueryError(
                f"Expected a range of {self.column!r} at most {2 * _MAX_HALF_WIDTH:g} wide for a "
                "variance, because its square would overflow. Use a larger unit for the column."
            )

    def tune(self, law: str, facts: QueryFacts) -> Self:
        """Return it counted if N is private. w² = ⅓ is near the best of either law."""
        return replace(self, counted=not is_size_public(self, facts.neighbouring))

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return the sums, with a smaller set: (t, 2t² − 1) is on a parabola."""
        (part,) = super().list_cell_sums(schema, weight)
        a, s = compute_unit_weights(weight, self.balance)
        count = (Set.interval(a, a),) if self.counted else ()
        return (replace(part, record_set=Set.product(*count, Set.parabola(s))),)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return v = (q + 1)/2 − m², with Fieller's interval of (Q + C)/2 − M²/C − v·C.

        That expression is 0 without noise, and with noise a sum of the noises of M, Q and C. M's
        noise counts by how far m² is from the square of an end of m's own interval, each side by
        itself (Zou & Donner 2008).
        """
        groups = build_group_cells(facts.schema, self.by)
        _, width = self.get_centre_and_half_width(facts.schema)
        a, s = compute_unit_weights(weight, self.balance)
        cells = noisy.reshape(-1, groups.count)
        sums, squares = cells[-2:] / s
        counts = cells[0] / a if self.counted else np.full(groups.count, facts.records or 1.0)
        usable = counts > 0
        count = np.where(usable, counts, 1.0)
        mean = np.clip(sums / count, -1, 1)
        value = (squares / count + 1) / 2 - mean**2
        unit, wide = noise.deviation / s, float(noise.compute_deviations_within(np.ones(())))
        farthest = wide * unit / count  # of m's own interval
        of_count = noise.deviation / a if self.counted else 0.0

        def end(side: float) -> Numbers:
            squared = np.square(np.maximum(np.abs(mean) - side * farthest, 0))
            of_mean = np.abs(mean**2 - squared) * count / wide

            def half(v: Numbers) -> Numbers:
                of_v = (0.5 + mean**2 - v) * of_count
                parts = [np.full_like(mean, unit / 2), of_mean, of_v]
                return noise.compute_half_widths(np.stack(parts, axis=-1)) / count

            return _find_interval_end(half, value, side)

        ends = [end(-1.0), end(1.0)]
        usable &= np.isfinite(ends[0]) & np.isfinite(ends[1])
        sampled = estimate_variance_deviation(value, mean, counts)
        low, high = (
            value + side * noise.add_sampling_error(np.maximum(side * (end - value), 0), sampled)
            for side, end in zip((-1.0, 1.0), ends, strict=True)
        )
        found = groups.build_key_columns()
        for name, part in (("value", value), ("low", low), ("high", high)):
            found[name] = np.where(usable, width**2 * np.clip(part, 0, 1), math.nan)
        return found

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return the mean from the same sums and, for groups, the differences of their means."""
        means = self.build_means_table(noisy, weight, noise, facts)
        return {"mean": means, **self._compare_group_means(noisy, weight, noise, facts)}

    def get_error_scale(self, facts: QueryFacts) -> float:
        """Return the scale relative to the column's range, by the error of its mean.

        With t in [−1, 1] the mean is off twice as far.
        """
        return 1 / self.get_centre_and_half_width(facts.schema)[1] ** 2

    def _compare_group_means(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return the difference of every two groups with its test: see `_MAX_COMPARED_GROUPS`."""
        groups = build_group_cells(facts.schema, self.by)
        if not 2 <= groups.count <= _MAX_COMPARED_GROUPS:
            return {}
        a, s = compute_unit_weights(weight, self.balance)
        counts, sums, squares = noisy.reshape(3, -1)
        every = compute_differences(
            counts / a,
            sums / s,
            squares / s,
            count_noise=noise.deviation / a,
            sum_noise=noise.deviation / s,
        )
        each = [found for found in every if not math.isnan(found.p)]  # enough records for this ε
        keys = zip(*groups.build_key_columns().values(), strict=True)
        names = [" · ".join(map(str, key)) for key in keys]
        _, width = self.get_centre_and_half_width(facts.schema)
        table: Table = {
            "group": [names[found.first] for found in each],
            "less that of": [names[found.second] for found in each],
        }
        for name, shown in (("difference", "difference"), ("low", "from"), ("high", "to")):
            table[shown] = to_four_digits([width * getattr(found, name) for found in each])
        table["p"] = to_four_digits([found.p for found in each])
        return {f"mean {self.column} of two groups": table}


def _find_interval_end(half: Callable[[Numbers], Numbers], middle: Numbers, side: float) -> Numbers:
    """Return `[G]` v with |v − middle| = half(v) on one side of the middle; ±∞ if none is near."""
    low, high = np.zeros_like(middle), half(middle)
    if (half(middle + side * high) == high).all():
        return middle + side * high  # the same for every v: how many records there are is public
    for _ in range(30):
        outside = half(middle + side * high) <= high
        if outside.all():
            break
        low, high = np.where(outside, low, high), np.where(outside, high, 2 * high)
    for _ in range(25):
        between = (low + high) / 2
        outside = half(middle + side * between) <= between
        low, high = np.where(outside, low, between), np.where(outside, between, high)
    return np.where(half(middle + side * high) <= high, middle + side * high, side * math.inf)


_MAX_HALF_WIDTH = 1e150
"""Maximum half-width of a range: its square, times a few thousand, is still a double."""
_MAX_COMPARED_GROUPS = 12
"""Maximum number of groups of which every two are compared."""
