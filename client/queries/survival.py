"""Time until an event: `survival`, the Kaplan–Meier curve in every group, from one histogram.

A record adds 1 to one cell of its group. The cell is the interval of its event or, without an
event, the number of K public intervals (a, b] in which it was at risk (docs/regression.md defines
this). The curve and everything else are post-processing (`parley.privacy.estimation.survival`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import CategoryField, RawPartyBlock, get_field
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    Integers,
    Numbers,
    QueryError,
    QueryFacts,
    Table,
    build_cell_counts,
    build_group_cells,
    get_categories,
    get_range,
)
from parley.client.queries.group_cells import Axis, CellGrid
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.estimation.survival import (
    CurveEstimate,
    LifeTable,
    compute_usual_noise,
    fit_decreasing,
)

MAX_INTERVALS = 128
MAX_GROUPS = 100
WITHIN = 0.05
"""Half-width of the noise interval that counts as usable, for the number of records needed."""


@dataclass(frozen=True, kw_only=True)
class Survival(ColumnQuery):
    """Shares of records without the event until the end of each interval of a time.

    Attributes:
        column: the time, in [0, …].
        event: column of whether the event happened then: a number in [0, 1], from ½ on, or a
            category.
        occurred: for categories: the one that means the event. Any other is censored.
        bins: number of intervals of one width, from 0 to `end`; 0 if `edges` are given.
        end: end of the last interval; 0: that of the column's range.
        edges: increasing, from 0 on, within the column's range.
    """

    kind: ClassVar[str] = "survival"
    nonnegative: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    curve: ClassVar[bool] = True

    event: str
    occurred: str = ""
    bins: int = 0
    end: float = 0.0
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.edges) == bool(self.bins) or (self.edges and self.end):
            raise QueryError("Expected either bins (how many), with or without an end, or edges.")
        if not 1 <= (len(self.edges) - 1 if self.edges else self.bins) <= MAX_INTERVALS:
            got = self.bins or len(self.edges) - 1
            raise QueryError(f"Expected 1 to {MAX_INTERVALS} intervals, got {got}.")
        if self.edges and not (self.edges[0] == 0 and all(a < b for a, b in pairwise(self.edges))):
            raise QueryError(f"Expected increasing edges from 0 on, got {list(self.edges)}.")
        if self.column == self.event or self.event in self.by:
            raise QueryError(f"Expected an event column for itself, got {self.event!r} twice.")

    @property
    def columns(self) -> frozenset[str]:
        """The columns of every query, the time and the event."""
        return super().columns | {self.event}

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        known = get_range(schema, self.column)
        if known.low < 0:
            expected = "Expected a time from 0 on"
            got = f"{self.column!r} in [{known.low:g}, {known.high:g}]"
            raise QueryError(f"{expected}, got {got}. Set a range from 0 in the schema.")
        if getattr(schema.columns[self.column], "outside", "") != "refuse":
            expected = f'Expected outside = "refuse" of {self.column!r} in the schema'
            why = "an event beyond the range would be one at its end, and a negative time one at 0"
            raise QueryError(f'{expected}, got "clamp": {why}.')
        if not 0 <= self.end <= known.high or (self.edges and self.edges[-1] > known.high):
            expected = f"Expected an end within (0, {known.high:g}], the range of {self.column!r}"
            raise QueryError(f"{expected}, got {self.edges[-1] if self.edges else self.end:g}.")
        if (groups := build_group_cells(schema, self.by).count) > MAX_GROUPS:
            raise QueryError(f"Expected at most {MAX_GROUPS} groups, got {groups}.")
        check_event(schema, self.event, self.occurred)

    def list_interval_ends(self, schema: Schema) -> Numbers:
        """Return `[K + 1]` ends of the intervals."""
        end = self.end or get_range(schema, self.column).high
        return np.array(self.edges or np.linspace(0, end, self.bins + 1), dtype=np.float64)

    def build_axis(self, schema: Schema) -> Axis:
        """Return an axis of K cells for events and K + 1 for censored records."""
        edges = self.list_interval_ends(schema)
        middles, intervals = (edges[1:] + edges[:-1]) / 2, len(edges) - 1

        def codes(block: RawPartyBlock) -> NDArray[np.intp]:
            times = block.columns[self.column]
            ends = np.searchsorted(edges[1:], times, side="left")
            passed = np.searchsorted(middles, times, side="right")
            found = find_events(block, self.event, self.occurred) & (ends < intervals)
            return np.where(found, ends, intervals + passed).astype(np.intp)

        return Axis(size=2 * intervals + 1, codes=codes)

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return a count for every group, and interval of an event or intervals without one."""
        groups = build_group_cells(schema, self.by)
        return (build_cell_counts(CellGrid(axes=(*groups.axes, self.build_axis(schema))), weight),)

    def _build_life_table(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> LifeTable:
        groups = build_group_cells(facts.schema, self.by).count
        cells, total = noisy.reshape(groups, -1) / weight, None if self.selects else facts.records
        return LifeTable(cells, deviation=noise.deviation / weight, total=total)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the curve at each interval's end, with events and numbers at risk."""
        table = self._build_life_table(noisy, weight, noise, facts)
        risk = np.maximum(fit_decreasing(table.at_risk), 0)
        events = np.clip(table.events, 0, risk)
        numbers = {"at risk": risk, "events": events}
        return {
            **self._build_row_keys(facts.schema),
            **{name: np.rint(part).astype(np.int64).ravel() for name, part in numbers.items()},
            **_build_curve_columns(table.survival, weight, noise, upper_limit=1.0),
        }

    def _build_row_keys(self, schema: Schema) -> Table:
        """Return a row for every group and interval."""
        edges, groups = self.list_interval_ends(schema), build_group_cells(schema, self.by)
        group_keys, times = groups.build_key_columns(), len(edges) - 1
        keys: Table = {name: np.repeat(key, times) for name, key in group_keys.items()}
        own = {f"{self.column} from": edges[:-1], f"{self.column} to": edges[1:]}
        return keys | {name: np.tile(part, groups.count) for name, part in own.items()}

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return cumulative hazards, medians, the log-rank test, and the records needed."""
        table = self._build_life_table(noisy, weight, noise, facts)
        groups = dict(build_group_cells(facts.schema, self.by).build_key_columns())
        curve = _build_curve_columns(table.survival, weight, noise, upper_limit=1.0)
        edges = self.list_interval_ends(facts.schema)
        found: dict[str, Table] = {}
        if self.by:
            test = table.run_log_rank_test()
            numbers = {"chi-squared": test.chi_squared, "degrees of freedom": test.degrees}
            found["log-rank test"] = {name: [n] for name, n in {**numbers, "p": test.p}.items()}
        shaped = {name: np.reshape(part, (-1, table.intervals)) for name, part in curve.items()}
        medians = {name: _find_medians(part, edges) for name, part in shaped.items()}
        found["median survival"] = groups | medians
        found["precision of the curve"] = groups | _build_precision_table(table, weight, noise)
        hazards = _build_curve_columns(table.hazard, weight, noise, upper_limit=np.inf)
        found["cumulative hazard"] = {**self._build_row_keys(facts.schema), **hazards}
        return found

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return the expected error of a curve that falls to a half, for an average group size."""
        intervals = len(self.list_interval_ends(facts.schema)) - 1
        groups = build_group_cells(facts.schema, self.by).count
        usual = noise.deviation / weight * compute_usual_noise(intervals)
        return usual * groups / (facts.records or 1)


def check_event(schema: Schema, event: str, occurred: str) -> None:
    """Raise QueryError if a column does not define whether an event happened."""
    if not isinstance(get_field(schema, event), CategoryField):
        known = get_range(schema, event)
        if (known.low, known.high) != (0, 1) or occurred:
            raise QueryError(
                f"Expected an event of categories with occurred, or a number in [0, 1] without "
                f"it, got {event!r} in [{known.low:g}, {known.high:g}]"
                f"{f' with {occurred!r}' if occurred else ''}."
            )
    elif occurred not in (texts := get_categories(schema, event)):
        expected = f"occurred to name the event, one of {', '.join(map(repr, texts))} of {event!r}"
        raise QueryError(f"Expected {expected}, got {occurred!r}.")


def find_events(block: RawPartyBlock, event: str, occurred: str) -> NDArray[np.bool_]:
    """Return `[N]` whether the event happened: the category `occurred`, or a number from ½ on."""
    known, values = get_field(block.schema, event), block.columns[event]
    if isinstance(known, CategoryField):
        return np.asarray(values == known.texts.index(occurred))
    return np.asarray(values >= 0.5)


def _build_curve_columns(
    curve: CurveEstimate, weight: int, noise: CellNoise, *, upper_limit: float
) -> Table:
    """Return `[G·K]` value, low and high of a curve that falls from 1, or rises from 0."""
    shape = fit_decreasing if upper_limit <= 1 else lambda values: -fit_decreasing(-values)
    noise_half = noise.compute_half_width() / weight * curve.noise
    half = noise.add_sampling_error(noise_half, curve.sampling)
    value = np.clip(shape(curve.value), 0, upper_limit)
    low, high = (np.clip(curve.value + side * half, 0, upper_limit) for side in (-1, 1))
    ends = {"value": value, "low": np.fmin(low, value), "high": np.fmax(high, value)}
    return {name: part.ravel() for name, part in ends.items()}


def _find_medians(curves: Numbers, edges: Numbers) -> Numbers:
    """Return `[G]` the end of the first interval at which a curve is at ½ or below.

    ∞: it stays above ½; NaN: too few are at risk to know.
    """
    below = curves <= 0.5
    never = np.where(np.isnan(curves).any(axis=1), np.nan, np.inf)
    return np.asarray(np.where(below.any(axis=1), edges[1:][below.argmax(axis=1)], never))


def _build_precision_table(table: LifeTable, weight: int, noise: CellNoise) -> Table:
    """Return each group's records, the noise's largest effect on its curve, and those needed."""
    half = noise.compute_half_width() / weight
    records = table.counts.sum(axis=1)
    reach = half * table.compute_deviation(np.ones(table.cells.shape[1]))
    found = np.where(table.known, table.survival.noise, -np.inf).max(axis=1) * half
    usual = half * compute_usual_noise(table.intervals)
    known = table.known[:, 0]
    needed = np.ceil(np.where(known, records * found, usual) / WITHIN)
    return {
        "noise ± at most": np.where(known, found, np.nan).round(4),
        f"records for ±{WITHIN}": needed.astype(np.int64),
        f"or ε times, for ±{WITHIN}": (needed / np.maximum(records, 1)).round(2),
        "value": records,
        "low": records - reach,
        "high": records + reach,
    }
