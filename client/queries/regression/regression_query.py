"""Regression with odds, rate and hazard ratios, from noisy Newton steps: `regression`.

One query is one step. At public parameters (γ, β), a record adds one vector that it computes only
from itself, in integer multiples of 2⁻³⁶ (a party's sum is rounded once):

    (T·z, α·w·zzᵀ, β·T²·xxᵀ),   z = (c, x),   x = covariates − centre,   T = Σ s_k,

with slopes s_k and curvatures w_k of its family
(`parley.client.queries.regression.response_likelihoods`). Matrices are stored as triangles, with
off-diagonal entries times √2. For hazards, s_k and w_k of each of K intervals are added. The
vector's L2 norm is bounded by public numbers: the ranges, the categories and the centres. A vector
that is longer or not a number adds nothing.

`parley.analytics.adaptive_queries` asks `STEPS` of them, each at the point found by the earlier
ones. The last one's answer is one Newton step beyond its start (docs/regression.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import MISSING, CategoryField, RawPartyBlock, get_field
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    AnsweredQuery,
    CellSums,
    ColumnQuery,
    Integers,
    Numbers,
    Query,
    QueryError,
    QueryFacts,
    Table,
    to_four_digits,
)
from parley.client.queries.group_cells import CellGrid, Summand
from parley.client.queries.regression.design_matrix import Design
from parley.client.queries.regression.glm_families import FAMILIES, OutcomeFamily, RegressionOutcome
from parley.client.queries.regression.newton_rows import BASE, DecodedSums, NewtonRowLayout
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.newton_regression import NewtonSearch, NewtonStep, SearchPoint
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.bounded_sets import Set
from parley.privacy.sensitivity.exact_row_arithmetic import sum_rows
from parley.privacy.sensitivity.fine_row_arithmetic import FINE, keep_surely_within
from parley.privacy.special_functions import ndtr

SHARES = (5, 10, 20, 65)
"""Percentage of the budget per step."""
STEPS = len(SHARES)
MAX_COEFFICIENTS = 32
_MAX_START = 50.0
"""Maximum magnitude of a γ or β at which a step is asked."""
_MAX_WEIGHT = 2**30
_CHUNK_RECORDS = 4096
"""Records processed at a time."""


@dataclass(frozen=True, kw_only=True)
class RegressionQuery(ColumnQuery, RegressionOutcome):
    """Coefficients of covariates, one step of their estimate.

    The outcome's settings are those of `RegressionOutcome`.

    Attributes:
        of: columns of covariates.
        family: a key of `FAMILIES`.
        step, start, centres: number of the step; γ, then β; the centres that are subtracted from
            covariates: see `build_next_step`.
    """

    kind: ClassVar[str] = "regression"
    integral: ClassVar[bool] = False
    allows_groups: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    inference: ClassVar[bool] = True
    derived_fields: ClassVar[frozenset[str]] = frozenset({"step", "start", "centres"})

    of: tuple[str, ...]
    family: str
    step: int = 1
    start: tuple[float, ...] = ()
    centres: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family not in FAMILIES:
            raise QueryError(f"Expected a family of {', '.join(FAMILIES)}, got {self.family!r}.")
        for name in fields(RegressionOutcome):
            given = getattr(self, name.name)
            if given and name.name not in {"column", *self._family.keys}:
                raise QueryError(f"Expected no {name.name} with {self.family}, got {given}.")
        self._family.check_keys(self)
        names = [self.column, *self.of, *filter(None, (self.event, self.exposure))]
        if not self.of or len(set(names)) < len(names):
            got = ", ".join(names)
            raise QueryError(f"Expected at least one covariate, and each column once, got {got}.")
        if not 1 <= self.step <= STEPS:
            raise QueryError(f"Expected a step of 1 to {STEPS}, got {self.step}.")
        if not all(abs(each) <= _MAX_START for each in self.start):
            raise QueryError(f"Expected a start within ±{_MAX_START:g}, got one outside.")
        if not all(abs(each) <= 1 for each in self.centres):
            raise QueryError("Expected centres in [-1, 1], got one outside.")

    @property
    def columns(self) -> frozenset[str]:
        """The columns of every query, and its own."""
        return super().columns | {*self.of, *filter(None, (self.event, self.exposure))}

    @property
    def selects(self) -> bool:
        """Always true: a record with an empty cell does not count."""
        return True

    @property
    def step_shares(self) -> tuple[int, ...]:
        """Percentages as in `Query.step_shares`. A given start is asked at once."""
        return SHARES if self.step == 1 and not self.start else ()

    @property
    def interim_text(self) -> str:
        """Text as in `Query.interim_text`."""
        return f"step {self.step} of {STEPS}" if self.step < STEPS else ""

    def is_step_after(self, other: Query) -> bool:
        """Return whether it follows `other`, as in `Query.is_step_after`."""
        asked, own = other.to_json(), self.to_json()
        if other.kind != self.kind or asked["step"] + 1 != self.step:
            return False
        return {**asked, **{k: own[k] for k in ("step", "start", "centres")}} == own

    @property
    def _family(self) -> OutcomeFamily:
        return FAMILIES[self.family]

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        count = len(Design.from_schema(schema, self.of).covariates)
        if not 1 <= count <= MAX_COEFFICIENTS:
            why = "one per column of numbers, and one per category except the first"
            raise QueryError(f"Expected 1 to {MAX_COEFFICIENTS} coefficients, got {count}: {why}.")
        self._family.check(self, schema)
        wanted = self.count_intervals(schema) + count
        if self.start and len(self.start) != wanted:
            raise QueryError(f"Expected a start of {wanted} numbers, got {len(self.start)}.")
        if self.centres and len(self.centres) != 2 * count:
            raise QueryError(f"Expected {2 * count} centres, got {len(self.centres)}.")

    def count_intervals(self, schema: Schema) -> int:
        """Return K, the number of γ."""
        return self._family.count_intervals(self, schema)

    def get_start_point(self, schema: Schema) -> SearchPoint:
        """Return the point of this step: its own, or no effect and a usual base."""
        return self._build_step_layout(schema)[1]

    def build_layout(self, schema: Schema) -> NewtonRowLayout:
        """Return the layout of its vector, with the bound on its length."""
        return self._build_step_layout(schema)[2]

    def _build_step_layout(self, schema: Schema) -> tuple[Design, SearchPoint, NewtonRowLayout]:
        design, base = Design.from_schema(schema, self.of), self.count_intervals(schema)
        count, usual = len(design.covariates), self._family.get_initial_base(self, schema)
        start = np.array(self.start or (*[usual] * base, *[0.0] * count))
        centres = np.array(self.centres or [0.0] * (2 * count)).reshape(2, count)
        if base == 1:
            centres[1] = 0
        place = SearchPoint(base=start[:base], coefficients=start[base:], centres=centres)
        ends = place.centre[[0, -1]]  # no centre between these two is farther from any row
        longest = max(design.compute_max_distance(centre) for centre in ends) + BASE**2
        layout = NewtonRowLayout(rows=count + 1, intervals=base, max_squared_norm=longest)
        return design, place, layout

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return one part, with a ball as its set."""
        layout, s = self.build_layout(schema), min(weight, _MAX_WEIGHT)
        most = math.isqrt(layout.bound_squared_move(s))
        adds = (Summand(low=-most, high=most),) * layout.size
        within = Set.ball(layout.size, squared=layout.bound_squared_move(s))
        return (CellSums(cells=CellGrid(), summands=adds, record_set=within),)

    def compute_party_vectors(self, block: RawPartyBlock, weight: int) -> Iterator[Integers]:
        """Yield the vectors as in `Query.compute_party_vectors`."""
        layout, s = self.build_layout(block.schema), min(weight, _MAX_WEIGHT)
        squared, counted = layout.fine_squared, self._find_counted_records(block)
        for party in range(block.parties):
            own = block.get_rows(party)
            total = np.zeros(layout.size, dtype=object)
            for begin in range(own.start, own.stop, _CHUNK_RECORDS):
                at = np.arange(begin, min(begin + _CHUNK_RECORDS, own.stop))
                at = at[counted[at]]
                if not len(at):
                    continue
                columns = {name: block.columns[name][at] for name in self.columns}
                offsets = np.array([0, len(at)])
                part = RawPartyBlock(schema=block.schema, columns=columns, offsets=offsets)
                with np.errstate(all="ignore"):  # a row that is not a number adds nothing
                    rows = np.rint(FINE * self.compute_rows(part))
                keep_surely_within(rows, squared)
                total += sum_rows(rows, math.ceil(math.sqrt(squared)) + 1)
            yield ((s * total + FINE // 2) // FINE).astype(np.int64)

    def _find_counted_records(self, block: RawPartyBlock) -> NDArray[np.bool_]:
        """Return `[N]` which records have all requested values."""
        found = Design.from_schema(block.schema, self.of).find_complete_records(block)
        if self.where is not None:
            found &= self.where.mask(block)
        known = get_field(block.schema, self.column)
        if isinstance(known, CategoryField) and MISSING in known.texts:
            found &= block.columns[self.column] != known.texts.index(MISSING)
        return found

    def compute_rows(self, block: RawPartyBlock) -> Numbers:
        """Return `[N, d]` every record's vector, in units of 1."""
        design, place, layout = self._build_step_layout(block.schema)
        x = design.build_rows(block)
        margins = np.zeros(len(x))
        # In a fixed order, whichever records there are.
        for axis, coefficient in enumerate(place.coefficients):
            margins += x[:, axis] * coefficient
        derivatives = self._family.compute_derivatives(self, block, place.base, margins)
        return layout.build_rows(x, *derivatives, place.centres)

    def decode_sums(
        self, noisy: Integers, weight: int, noise: CellNoise, schema: Schema
    ) -> DecodedSums:
        """Return the sums of a noisy vector."""
        s = min(weight, _MAX_WEIGHT)
        scale = self._family.get_slope_unit(self, schema)
        return self.build_layout(schema).decode_sums(noisy / s, noise.deviation / s, scale)

    def build_next_step(self, steps: Sequence[AnsweredQuery], schema: Schema) -> RegressionQuery:
        """Return the next step, as in `Query.build_next_step`, at the point that all steps give."""
        place = self.get_start_point(schema)
        search = NewtonSearch.create(len(place.coefficients))
        for each in steps:
            own = each.query
            read = own.decode_sums(each.noisy, each.weight, each.noise, schema)
            at = own.get_start_point(schema)
            place = search.find_next(at, read.sums, read.base, BASE, first=not own.start)
        start = tuple(np.concatenate([place.base, place.coefficients]).round(6).tolist())
        centres = tuple(place.centres.ravel().round(6).tolist())
        return replace(self, step=len(steps) + 1, start=start, centres=centres)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return a row per coefficient, in its column's unit: value, interval, p, and ratios."""
        schema = facts.schema
        design, place = Design.from_schema(schema, self.of), self.get_start_point(schema)
        decoded = self.decode_sums(noisy, weight, noise, schema)
        found = decoded.sums.compute_step(sampling=noise.sampling)
        units, usable = design.half_widths, found.clearance >= 1
        value = (place.coefficients + found.change) / units
        deviation = found.deviation / units
        by_noise = noise.compute_deviations_within(found.peak) * found.noise / units
        sampled = np.sqrt(np.maximum(deviation**2 - (found.noise / units) ** 2, 0))
        half = noise.add_sampling_error(by_noise, sampled)
        ends = {"value": value, "low": value - half, "high": value + half}
        if not usable:
            ends = {name: np.full_like(part, np.nan) for name, part in ends.items()}
        p = 2 * ndtr(-np.abs(value / deviation))
        if not (noise.sampling and usable):
            p = np.full_like(value, np.nan)
        with np.errstate(over="ignore"):
            ratios = [to_four_digits(np.exp(part)) for part in ends.values()]
        ratio = self._family.ratio
        names = (ratio, f"{ratio} from", f"{ratio} to", "p")
        shown = dict(zip(names, (*ratios, to_four_digits(p)), strict=True))
        return {"coefficient": list(design.names), **shown, **ends}

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return the noise's effect on each coefficient, and how much more would be enough."""
        schema = facts.schema
        decoded = self.decode_sums(noisy, weight, noise, schema)
        found = decoded.sums.compute_step(sampling=noise.sampling)
        design = Design.from_schema(schema, self.of)
        return {"precision": self._build_precision_table(found, design)}

    def _build_precision_table(self, step: NewtonStep, design: Design) -> Table:
        usable = step.clearance >= 1
        part = np.square(step.noise / step.deviation)
        times = "over 10"
        if step.clearance > 0.1:
            times = "1" if usable else f"{1 / step.clearance:.1f}"
        return {
            "coefficient": list(design.names),
            "one unit is, of its range": [f"{1 / (2 * each):.3g}" for each in design.half_widths],
            "noise, of the variance": [f"{100 * x:.0f} %" if usable else "–" for x in part],
            "ε or records times, to be enough": [times] * len(part),
        }

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return the expected error of a coefficient, in a column's unit.

        It assumes a covariate with the variance of a uniform one.
        """
        s = min(weight, _MAX_WEIGHT)
        units = float(np.median(Design.from_schema(facts.schema, self.of).half_widths))
        return noise.deviation / s / ((facts.records or 1) / 20) / units
