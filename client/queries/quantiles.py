"""Quantiles of a column: `quantiles` and `median`, several at once from one sum, in every group.

The column's range is a grid of K values that a person set (`step`). A record counts at the nearest
value. It adds 1 to one node on each of the h levels of a tree over them
(`parley.privacy.estimation.count_trees`). The branching is the one with the smallest expected
error. The q-quantile is the first value at which the noisy counts, made consistent and summed up,
reach q of all.

The noise interval contains the values at which that sum may cross q·N. The variance of a difference
c·x of least-squares leaves is c·(AᵀA)⁻¹c. The tree computes (AᵀA)⁻¹c from c on its leaves and zeros
above them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import RawPartyBlock
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
    get_range,
)
from parley.client.queries.group_cells import Axis, CellGrid
from parley.client.queries.selection_queries import SelectionQuery
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.count_trees import CountTree, fit_monotone
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.estimation.sampling_error import estimate_rank_deviation
from parley.privacy.sensitivity.bounded_sets import Set

MAX_VALUES = 1 << 20
"""Maximum K of a grid."""
_DEFAULT_STEPS = 1000
"""Number of steps of a column without a given step."""
_MAX_DENOMINATOR = 10**6
"""Maximum denominator of a share if a server chooses by exact counts."""
_LEVELS = {"laplace": 1.0, "gaussian": 0.5}
"""Power of the number of levels by which noise grows, per law."""
_BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_MAX_LEAVES = 1024
"""Maximum number of leaves of a tree without further levels."""
_MAX_TRIED = 1 << 15
_RANKS = np.arange(1, 33) * (math.sqrt(5) - 1) / 2 % 1
"""Even ranks that avoid the ends of the levels' nodes, where a rank is more precise than its
neighbours.
"""


@dataclass(frozen=True, kw_only=True)
class Quantiles(ColumnQuery, SelectionQuery):
    """Values that given shares of the records do not exceed.

    Attributes:
        quantiles: shares, each in [0, 1].
        step: distance of two values of the grid; 0: the schema's step, else a thousandth of the
            range.
    """

    kind: ClassVar[str] = "quantiles"
    derived_fields: ClassVar[frozenset[str]] = frozenset({"branching"})
    nonnegative: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True

    quantiles: tuple[float, ...] = (0.5,)
    step: float = 0.0
    branching: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        outside = [q for q in self.quantiles if not 0 <= q <= 1]
        if outside or not self.quantiles or len(set(self.quantiles)) < len(self.quantiles):
            raise QueryError(f"Expected distinct quantiles in [0, 1], got {list(self.quantiles)}.")
        if not 0 <= self.step < math.inf:
            raise QueryError(f"Expected a finite step > 0, or 0 for a default, got {self.step:g}.")
        if not 2 <= self.branching <= 1024:
            raise QueryError(f"Expected a branching from 2 to 1024, got {self.branching}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        _get_grid(schema, self.column, self.step)

    def tune(self, law: str, facts: QueryFacts) -> Self:
        """Return it with the branching of the smallest error."""
        cells = _get_grid(facts.schema, self.column, self.step)[1]
        power = _LEVELS.get(law)
        return self if power is None else replace(self, branching=_choose_branching(cells, power))

    def _build_tree(self, schema: Schema) -> CountTree:
        _, cells = _get_grid(schema, self.column, self.step)
        return CountTree(cells=cells, branching=self.branching)

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return the leaves, of one tree per group."""
        size = self._build_tree(schema).cells
        grid = Axis(size=size, codes=self._compute_codes, name=(self.column, self.step))
        groups = build_group_cells(schema, self.by).axes
        return (build_cell_counts(CellGrid(axes=(*groups, grid)), weight),)

    def _compute_codes(self, block: RawPartyBlock) -> NDArray[np.intp]:
        """Return `[N]` the nearest value of the grid, for each record."""
        step, count = _get_grid(block.schema, self.column, self.step)
        low = get_range(block.schema, self.column).low
        nearest = np.floor((block.columns[self.column] - low) / step + 0.5)
        return np.fmin(np.fmax(nearest, 0), count - 1).astype(np.intp)

    def count_cells(self, schema: Schema) -> int:
        """Return the number of nodes of one tree per group."""
        return build_group_cells(schema, self.by).count * self._build_tree(schema).nodes

    def build_counted_set(self, schema: Schema, weight: int) -> Set:
        """Return the set with one node on each level."""
        groups, one = build_group_cells(schema, self.by).count, Set.interval(weight, weight)
        widths = self._build_tree(schema).widths
        return Set.product(*(one.spread_over_cells(groups * width) for width in widths))

    def compute_party_vectors(self, block: RawPartyBlock, weight: int) -> Iterator[Integers]:
        """Yield each group's leaves with the nodes above them."""
        tree = self._build_tree(block.schema)
        for leaves in super().compute_party_vectors(block, weight):
            yield np.concatenate([tree.build(each) for each in leaves.reshape(-1, tree.cells)])

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the answer as in `Query.answer`."""
        tree, groups = self._build_tree(facts.schema), build_group_cells(facts.schema, self.by)
        values = build_grid(facts.schema, self.column, self.step)
        total = None if self.selects or self.by else facts.records
        half = noise.compute_half_width() / weight
        parts = noisy.reshape(groups.count, tree.nodes) / weight
        found = [self._find_crossings(tree, part, total, half, noise) for part in parts]
        middle, low, high = (values[np.concatenate(part)] for part in zip(*found, strict=True))
        if total is None:
            # A group that may be empty has no quantile: too few records for this ε.
            reach = half * _compute_deviation(tree, np.ones(tree.cells), None)
            few = [tree.estimate_leaves(part).sum() <= reach for part in parts]
            for part in (middle, low, high):
                part[np.repeat(few, len(self.quantiles))] = math.nan
        asked = len(self.quantiles)
        keys: Table = {name: np.repeat(k, asked) for name, k in groups.build_key_columns().items()}
        keys["quantile"] = np.tile(self.quantiles, groups.count)
        return {**keys, "value": middle, "low": low, "high": high}

    def _find_crossings(
        self, tree: CountTree, noisy: Numbers, total: int | None, half: float, noise: CellNoise
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return `[Q]` positions on the grid: of every quantile, and of its interval's two ends."""
        below = fit_monotone(np.cumsum(tree.estimate_leaves(noisy, total=total)))
        records = max(below[-1] if total is None else float(total), 0.0)
        shares = np.array(self.quantiles)
        wanted = records * shares
        spread = [_compute_rank_deviation(tree, below, q, records, total) for q in self.quantiles]
        sampling = estimate_rank_deviation(records, shares)
        reach = noise.add_sampling_error(half * np.array(spread), sampling)
        # A share is reached at the first position that is not below it.
        places = (np.searchsorted(below, wanted + off) for off in (0.0, -reach, reach))
        middle, low, high = (np.clip(place, 0, tree.cells - 1) for place in places)
        return middle, low, high

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return the expected error in ranks: by how many records the position is off."""
        public = facts.records is not None and not self.selects and not self.by
        error = _compute_expected_error(self._build_tree(facts.schema), public=public)
        return noise.deviation / weight * error

    def check_choice(self, schema: Schema) -> None:
        """Require one quantile, of all groups together, with few digits.

        Raises:
            QueryError: there are more.
        """
        if self.by or len(self.quantiles) > 1 or self._get_share().denominator > _MAX_DENOMINATOR:
            raise QueryError(
                "Expected one quantile of at most six digits, without groups, for a server's "
                "selection by exact counts, got more. Use laplace or gaussian for them."
            )

    def _get_share(self) -> Fraction:
        return to_fraction(self.quantiles[0])

    def count_candidates(self, schema: Schema) -> int:
        """Return K."""
        return self._build_tree(schema).cells

    def get_score_unit(self, weight: int) -> int:
        """Return the score of one rank."""
        return self._get_share().denominator

    def compute_scores(self, total: Integers, weight: int, facts: QueryFacts) -> Integers:
        """Return −max(0, F(below) − qN, qN − F(upto)) of every value, times q's denominator."""
        upto = np.cumsum(total[: self._build_tree(facts.schema).cells] // weight)
        below, share = np.concatenate([[0], upto[:-1]]), self._get_share()
        wanted, whole = share.numerator * upto[-1], share.denominator
        worst: Integers = np.maximum(np.maximum(whole * below - wanted, wanted - whole * upto), 0)
        return -worst

    def build_score_set(self, weight: int) -> Set:
        """Return the interval of a record's terms, from −q to 1 − q, times q's denominator.

        A record on one side adds ±(1 − q), one on the other ∓q.
        """
        share = self._get_share()
        return Set.interval(-share.numerator, share.denominator - share.numerator)

    def build_winner_table(self, winner: int, facts: QueryFacts) -> Table:
        """Return the table as in `SelectionQuery.build_winner_table`."""
        value = build_grid(facts.schema, self.column, self.step)[[winner]]
        hidden = np.array([math.nan])
        return {"quantile": list(self.quantiles), "value": value, "low": hidden, "high": hidden}


def _compute_rank_deviation(
    tree: CountTree, below: Numbers, share: float, records: float, total: int | None
) -> float:
    """Return √Var of F(k) − q·N̂ for nodes of unit variance; the share is reached at k."""
    place = min(int(np.searchsorted(below, share * records)), tree.cells - 1)
    asked = np.zeros(tree.cells)
    asked[: place + 1] = 1
    if total is None:
        asked -= share
    return _compute_deviation(tree, asked, total)


@lru_cache
def _compute_expected_error(tree: CountTree, *, public: bool) -> float:
    """Return √Var of F(k) − q·N̂ for nodes of unit variance and even counts, over all ranks q."""
    even, shares = np.arange(1, tree.cells + 1) / tree.cells, _RANKS
    total = 1 if public else None
    off = [_compute_rank_deviation(tree, even, float(q), 1.0, total) for q in shares]
    return math.hypot(*off) / math.sqrt(len(off))


@lru_cache
def _choose_branching(cells: int, power: float) -> int:
    """Return the branching of the smallest expected error for a tree of `cells` values."""
    cells = min(cells, _MAX_TRIED)

    def error(branching: int) -> float:
        tree = CountTree(cells=cells, branching=branching)
        return math.pow(tree.levels, power) * _compute_expected_error(tree, public=False)

    tried = [b for b in (*_BRANCHINGS, cells) if b <= min(cells, _MAX_LEAVES)]
    return min(tried, key=error)


def _compute_deviation(tree: CountTree, weights: Numbers, total: int | None) -> float:
    """Return √Var of the sum of the leaves weighted by `weights` `[K]`."""
    nodes = np.concatenate([weights, np.zeros(tree.nodes - tree.cells)])
    solved = tree.estimate_leaves(nodes, total=None if total is None else 0.0)
    return math.sqrt(max(float(weights @ solved), 0.0))


def _get_grid(schema: Schema, column: str, step: float) -> tuple[float, int]:
    """Return the step of a column's grid, and K.

    The step is the query's, else the schema's, else a thousandth of the range.

    Raises:
        QueryError: the step is too small or too large.
    """
    known = get_range(schema, column)
    width = known.high - known.low
    step = step or getattr(schema.columns[column], "step", None) or width / _DEFAULT_STEPS
    if not width / MAX_VALUES < step <= width * (1 + 1e-9):
        raise QueryError(
            f"Expected a step of at least {width / MAX_VALUES:g} and at most {width:g}, the width "
            f"of {column!r}, got {step:g}."
        )
    return step, math.ceil(width / step - 1e-9) + 1


def build_grid(schema: Schema, column: str, step: float) -> Numbers:
    """Return `[K]` the grid of a column of numbers: low, low + step, … high."""
    known, (step, count) = get_range(schema, column), _get_grid(schema, column, step)
    return np.minimum(known.low + np.arange(count, dtype=np.float64) * step, known.high)
