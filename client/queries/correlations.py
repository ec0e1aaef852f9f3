"""Correlations of columns, and linear regressions, from one sum of second moments: `correlations`.

A record's row is z = (1, its columns scaled to [−1, 1]), as in
`parley.client.queries.regression.design_matrix`, in integer multiples of 2⁻³⁶. It adds the weighted
upper triangle of zzᵀ (`Set.triangle`) to its group. A party's sum is exact, and rounded once. A
record with an empty category adds nothing. Correlations, p and every regression among the columns
are post-processing of these sums (`parley.privacy.estimation.moment_regression`). Another one costs
no more budget.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnsQuery,
    Integers,
    Numbers,
    QueryError,
    QueryFacts,
    Table,
    build_group_cells,
    get_range,
    to_four_digits,
)
from parley.client.queries.group_cells import Summand
from parley.client.queries.moments import is_size_public
from parley.client.queries.regression.design_matrix import Design
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.moment_regression import NoisySecondMoments
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.bounded_sets import INDICATED, OFF_DIAGONAL, ON_DIAGONAL, Set
from parley.privacy.sensitivity.fine_row_arithmetic import FINE, keep_in_cube, sum_fine_outer

MAX_COLUMNS = 32
MAX_COVARIATES = 64
MAX_GROUPS = 100
WITHIN = 0.05
"""Half-width of a correlation's noise interval that counts as usable."""
_NAME = r"(`[^`]+`|[^\s`~+]+)"
_FORMULA = re.compile(rf"\s*{_NAME}\s*~\s*(\.|{_NAME}(?:\s*\+\s*{_NAME})*)\s*")


@dataclass(frozen=True, kw_only=True)
class Formula:
    """`target ~ first + second`; no regressors: every other column."""

    target: str
    on: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Formula:
        """Parse a text. A name with spaces, ~ or + needs backticks.

        >>> Formula.parse("cost ~ age + `blood pressure`")
        Formula(target='cost', on=('age', 'blood pressure'))

        Raises:
            QueryError: what was expected, what came.
        """
        if not _FORMULA.fullmatch(text):
            expected = "a regression such as 'cost ~ age + sex', or 'cost ~ .' on all other columns"
            raise QueryError(f"Expected {expected}, got {text!r:.80}.")
        target, *on = (name.strip("`") for name in re.findall(_NAME, text))
        return cls(target=target, on=() if on == ["."] else tuple(on))


@dataclass(frozen=True, kw_only=True)
class CorrelationsQuery(ColumnsQuery):
    """Correlations of columns, and regressions of one on others.

    Attributes:
        of: columns of numbers or categories.
        regressions: "target ~ column + column" each, of these columns; "target ~ .": on all others.
    """

    kind: ClassVar[str] = "correlations"
    integral: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    allows_groups: ClassVar[bool] = True
    free_fields: ClassVar[frozenset[str]] = frozenset({"regressions"})

    regressions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(set(self.of)) == len(self.of) <= MAX_COLUMNS or set(self.of) & {*self.by}:
            expected = f"Expected 2 to {MAX_COLUMNS} distinct columns, none that is grouped by"
            raise QueryError(f"{expected}, got {', '.join(self.of[:8]) or 'none'}.")
        if len(set(self.regressions)) < len(self.regressions):
            raise QueryError(f"Expected every regression once, got {', '.join(self.regressions)}.")
        for text in self.regressions:
            named = self._parse_formula(text)
            if unknown := {named.target, *named.on} - {*self.of}:
                known = ", ".join(self.of)
                raise QueryError(f"Expected columns of {known} in {text!r}, got {min(unknown)!r}.")
            if named.target in named.on or len(set(named.on)) < len(named.on):
                raise QueryError(f"Expected every column once in a regression, got {text!r}.")

    def _parse_formula(self, text: str) -> Formula:
        found = Formula.parse(text)
        others = tuple(name for name in self.of if name != found.target)
        return Formula(target=found.target, on=found.on or others)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        count = len(Design.from_schema(schema, self.of).covariates)
        if not 2 <= count <= MAX_COVARIATES:
            expected = f"Expected 2 to {MAX_COVARIATES} numbers and indicators of categories"
            raise QueryError(f"{expected}, got {count}.")
        if (groups := build_group_cells(schema, self.by).count) > MAX_GROUPS:
            raise QueryError(f"Expected at most {MAX_GROUPS} groups, got {groups}.")
        for text in self.regressions:
            get_range(schema, self._parse_formula(text).target)

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return the triangle's entries, which `compute_party_vectors` computes all at once."""
        design = Design.from_schema(schema, self.of)
        indicators = Counter(each.column for each in design.covariates if each.code is not None)
        numbers = len(self.of) - len(indicators)
        sizes = [factor * weight for _, factor in _list_entries(design)]
        triangle = Set.triangle(numbers, tuple(indicators.values()), unit=weight)
        within = triangle.add_rounding(len(sizes))
        adds = tuple(Summand(low=-size, high=size) for size in sizes)
        cells = build_group_cells(schema, self.by)
        return (CellSums(cells=cells, summands=adds, record_set=within),)

    def compute_party_vectors(self, block: RawPartyBlock, weight: int) -> Iterator[Integers]:
        """Yield `[d]` for every party: exact sums of products of whole rows, each rounded once."""
        design = Design.from_schema(block.schema, self.of)
        pairs, factors = zip(*_list_entries(design), strict=True)
        units = np.array(factors, dtype=object) * weight
        counted = design.find_complete_records(block)
        if self.where is not None:
            counted &= self.where.mask(block)
        cells = build_group_cells(block.schema, self.by)
        codes = np.where(counted, cells.compute_codes(block), -1)
        whole = np.rint(FINE * np.insert(design.build_rows(block), 0, 1.0, axis=1))
        keep_in_cube(whole, FINE)
        for party in range(block.parties):
            rows, own = whole[block.get_rows(party)], codes[block.get_rows(party)]
            chosen = (rows[own == cell] for cell in range(cells.count))
            sums = np.stack([sum_fine_outer(each) for each in chosen])
            fine = sums[:, *np.transpose(pairs)] * units
            yield ((fine + FINE**2 // 2) // FINE**2).astype(np.int64).T.ravel()

    def _compute_moments(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> tuple[Design, list[NoisySecondMoments]]:
        """Return the design and the second moments of every group."""
        design = Design.from_schema(facts.schema, self.of)
        pairs, factors = zip(*_list_entries(design), strict=True)
        unit = np.array(factors, dtype=np.float64) * weight
        public = is_size_public(self, facts.neighbouring) and not design.missing
        groups = noisy.reshape(len(pairs), -1).T
        return design, [
            NoisySecondMoments(
                values=each / unit,
                pairs=pairs,
                tied=tuple(factor == INDICATED for factor in factors),
                deviations=noise.deviation / unit,
                records=facts.records if public else None,
            )
            for each in groups
        ]

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the correlation of every two columns, or indicators of different columns."""
        design, groups = self._compute_moments(noisy, weight, noise, facts)
        first, second = _list_column_pairs(design)
        found = [each.estimate_correlations() for each in groups]
        value, shifts, sampling, null_noise = (
            np.concatenate([getattr(each, part)[first, second] for each in found])
            for part in ("value", "noise_shifts", "sampling", "null_noise")
        )
        counts = np.repeat([max(each.count, 1.0) for each in groups], len(first))
        p = noise.compute_p_value(value, null_noise, 1 / np.sqrt(counts))
        half = noise.add_sampling_error(noise.compute_half_widths(shifts), sampling)
        names = np.array(design.names)
        return {
            **self._repeat_groups(facts.schema, len(first)),
            "column": np.tile(names[first], len(groups)),
            "with": np.tile(names[second], len(groups)),
            "p": to_four_digits(p),
            "value": value,
            "low": np.clip(value - half, -1, 1),
            "high": np.clip(value + half, -1, 1),
        }

    def _repeat_groups(self, schema: Schema, times: int) -> Table:
        """Return the groups' keys, each repeated `times` times."""
        keys = build_group_cells(schema, self.by).build_key_columns()
        return {name: np.repeat(part, times) for name, part in keys.items()}

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return regressions with their fit, means and deviations, and their precision."""
        design, groups = self._compute_moments(noisy, weight, noise, facts)
        tables, fits = dict[str, Table](), list[Table]()
        for text in self.regressions:
            formula = self._parse_formula(text)
            made = [_compute_regression(formula, design, each, noise) for each in groups]
            terms, fit = (_stack_tables([each[k] for each in made]) for k in (0, 1))
            own = self._repeat_groups(facts.schema, len(terms["term"]) // len(groups))
            tables[text] = {**own, **terms}
            regression = np.repeat(text, len(groups))
            fits.append({**self._repeat_groups(facts.schema, 1), "regression": regression, **fit})
        if fits:
            tables["fit of regressions"] = _stack_tables(fits)
        means = _stack_tables([_build_means_table(design, each) for each in groups])
        tables["means"] = {**self._repeat_groups(facts.schema, len(design.names)), **means}
        rows = _stack_tables([_build_precision_table(each, noise, design) for each in groups])
        tables["precision of correlations"] = {**self._repeat_groups(facts.schema, 1), **rows}
        return tables

    def get_steps_per_unit(self, weight: int) -> int:
        """Return the integers that make 1 of a square."""
        return ON_DIAGONAL * weight

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return the expected error for two columns with mean 0 and variance ¼.

        It assumes as many records as a group has on average.
        """
        unit = OFF_DIAGONAL * weight
        groups = build_group_cells(facts.schema, self.by).count
        return 4 * noise.deviation / unit * groups / (facts.records or 1)

    def get_error_scale(self, facts: QueryFacts) -> float:
        """Return 1: a correlation needs no scaling."""
        return 1.0


def _list_entries(design: Design) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield pairs (i, j) of z's coordinates, i ≤ j, with their weights, from coordinate 0 (1) on.

    Two indicators of one column are never both 1, and an indicator's square is itself.
    """
    own = [(None, None), *((each.column, each.code) for each in design.covariates)]
    for i, (column, code) in enumerate(own):
        for j in range(i, len(own)):
            if code is not None and own[j][0] == column:
                continue
            indicated = i == 0 and own[j][1] is not None
            yield (i, j), INDICATED if indicated else ON_DIAGONAL if i == j else OFF_DIAGONAL


def _list_column_pairs(design: Design) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index pairs of covariates of different columns."""
    first, second = np.triu_indices(len(design.names), 1)
    columns = np.array([each.column for each in design.covariates])
    apart = columns[first] != columns[second]
    return first[apart], second[apart]


def _compute_regression(
    formula: Formula, design: Design, moments: NoisySecondMoments, noise: CellNoise
) -> tuple[Table, Table]:
    """Return coefficients in the columns' units, and the fit.

    A category too rare for ε has no coefficient and is counted with the reference.
    """
    target = design.names.index(formula.target)
    asked = [k for k, each in enumerate(design.covariates) if each.column in formula.on]
    told = np.isfinite(moments.spread)
    on = [k for k in asked if told[k] or design.covariates[k].code is None]
    found = moments.estimate_regression(1 + target, [1 + k for k in on])
    scale = design.half_widths[target] / design.half_widths[on]
    units = np.diag([design.half_widths[target], *scale])
    units[0, 1:] = -scale * design.centres[on]
    values = units @ found.coefficients
    values[0] += design.centres[target]
    shifts = units @ found.noise_shifts
    by_sampling = np.sqrt(np.diag(units @ found.sampling @ units.T))
    reach = replace(noise, sampling=True, together=1)
    half = reach.add_sampling_error(reach.compute_half_widths(shifts), by_sampling)
    columns = {
        "coefficient": _round_to_width(values, half),
        "from": _round_to_width(values - half, half),
        "to": _round_to_width(values + half, half),
        "p": to_four_digits(
            reach.compute_p_value(values, np.linalg.norm(shifts, axis=1), by_sampling)
        ),
    }
    terms: Table = {"term": ["1", *(design.names[k] for k in asked)]}
    for name, part in columns.items():
        whole = np.full(1 + len(asked), np.nan)
        whole[[0, *(1 + asked.index(k) for k in on)]] = part
        terms[name] = whole
    share, spread = np.array(found.r_squared)
    apart = reach.add_sampling_error(reach.compute_half_widths(found.r_squared_shifts), spread)
    low, high = np.clip([[share - apart], [share + apart]], 0, 1)
    return terms, {
        "R²": to_four_digits([share]),
        "from": to_four_digits(low),
        "to": to_four_digits(high),
        "residual deviation": to_four_digits([design.half_widths[target] * found.residual]),
        "records it takes": [math.ceil(found.needed)],
    }


def _build_precision_table(moments: NoisySecondMoments, noise: CellNoise, design: Design) -> Table:
    """Return how far noise moves a correlation at most, and the records needed for ±0.05."""
    shifts = moments.estimate_correlations().noise_shifts[_list_column_pairs(design)]
    found = noise.compute_half_widths(shifts)
    lost = not np.isfinite(found).all()
    count = float(moments.count)
    most = math.nan if lost else float(found.max())
    # Assume a variance of ¼ if the noise hides the real one.
    usual = noise.compute_half_width() / noise.deviation * 4 * float(moments.deviations.max())
    needed = math.ceil((usual if lost else most * count) / WITHIN)
    return {
        "records": [round(count)],
        "noise ± at most": to_four_digits([most]),
        f"records for ±{WITHIN}": [needed],
        f"or ε times, for ±{WITHIN}": [round(needed / max(count, 1.0), 2)],
    }


def _build_means_table(design: Design, moments: NoisySecondMoments) -> Table:
    """Return means and deviations in the columns' units; an indicator's mean is its share."""
    mean = design.centres + design.half_widths * moments.mean[1:]
    return {
        "column": list(design.names),
        "mean": to_four_digits(mean),
        "standard deviation": to_four_digits(design.half_widths * moments.spread),
    }


def _stack_tables(tables: Sequence[Table]) -> Table:
    """Stack tables, one below the other."""
    return {name: np.concatenate([np.asarray(t[name]) for t in tables]) for name in tables[0]}


def _round_to_width(values: Numbers, half: Numbers) -> list[float]:
    """Round values to four digits of an interval's half-width."""
    both = zip(values.tolist(), half.tolist(), strict=True)
    return [round(v, 3 - math.floor(math.log10(width))) if width > 0 else v for v, width in both]
