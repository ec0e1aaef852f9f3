"""Quantiles of a column: `quantiles`, `median`, several at once from one sum, in every group.

The column's range is a grid of K values that somebody wrote down (`step`); a record counts at the
nearest. It adds 1 to one node on each of the h levels of a tree over them
(`parley.privacy.estimation.count_trees`), whose branching is that of the least expected error. The
q-quantile is the first value at which the noisy counts, made consistent and summed up, reach q of
all.

The noise interval has the values at which that sum may cross q·N. The variance of a difference
c·x of least-squares leaves is c·(AᵀA)⁻¹c, and (AᵀA)⁻¹c is what the tree makes of c on its leaves
and nothing above them.
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

from parley.client.data.raw_party_block import TableBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnQuery,
    Facts,
    Integers,
    Numbers,
    Part,
    QueryError,
    Table,
    counts_in,
    groups_of,
    numeric,
)
from parley.client.queries.group_cells import Axis, Cells
from parley.client.queries.sums import Choosable
from parley.privacy.accounting.rounding import exact
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.count_trees import Tree, monotone
from parley.privacy.estimation.noise_intervals import Reach
from parley.privacy.estimation.sampling_error import rank_deviation
from parley.privacy.sensitivity.bounded_sets import Set

MOST_VALUES = 1 << 20
"""K of a grid."""
_STEPS = 1000
"""Of a column whose step nobody wrote down."""
_FINEST = 10**6
"""Denominator of a share that a server chooses by."""
_LEVELS = {"laplace": 1.0, "gaussian": 0.5}
"""Noise grows with so much of a power of the levels."""
_BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_MOST_LEAVES = 1024
"""Of a tree without levels above them."""
_MOST_TRIED = 1 << 15
_RANKS = np.arange(1, 33) * (math.sqrt(5) - 1) / 2 % 1
"""Even, and where no level's nodes end: there is a rank nearer than beside it."""


@dataclass(frozen=True, kw_only=True)
class Quantiles(ColumnQuery, Choosable):
    """Values below which given shares of the records lie.

    Attributes:
        quantiles: shares, each in [0, 1].
        step: between two values of the grid; 0: the schema's step, else a thousandth of the range.
    """

    kind: ClassVar[str] = "quantiles"
    derived: ClassVar[frozenset[str]] = frozenset({"branching"})
    counts: ClassVar[bool] = True
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
        """See `Query.check`."""
        super().check(schema, neighbouring)
        _grid(schema, self.column, self.step)

    def tuned(self, law: str, facts: Facts) -> Self:
        """The branching with the least error."""
        cells = _grid(facts.schema, self.column, self.step)[1]
        power = _LEVELS.get(law)
        return self if power is None else replace(self, branching=_best(cells, power))

    def _tree(self, schema: Schema) -> Tree:
        return Tree(cells=_grid(schema, self.column, self.step)[1], branching=self.branching)

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """The leaves, of a tree for each group."""
        size = self._tree(schema).cells
        grid = Axis(size=size, codes=self._codes, name=(self.column, self.step))
        return (counts_in(Cells(axes=(*groups_of(schema, self.by).axes, grid)), weight),)

    def _codes(self, block: TableBlock) -> NDArray[np.intp]:
        """`[N]` the nearest value of the grid, for each record."""
        step, count = _grid(block.schema, self.column, self.step)
        low = numeric(block.schema, self.column).low
        nearest = np.floor((block.columns[self.column] - low) / step + 0.5)
        return np.fmin(np.fmax(nearest, 0), count - 1).astype(np.intp)

    def cells(self, schema: Schema) -> int:
        """Nodes of a tree for each group."""
        return groups_of(schema, self.by).count * self._tree(schema).nodes

    def added(self, schema: Schema, weight: int) -> Set:
        """A node of each level."""
        groups, one = groups_of(schema, self.by).count, Set.interval(weight, weight)
        widths = self._tree(schema).widths
        return Set.product(*(one.in_one_of(groups * width) for width in widths))

    def vectors(self, block: TableBlock, weight: int) -> Iterator[Integers]:
        """Each group's leaves with the nodes above them."""
        tree = self._tree(block.schema)
        for leaves in super().vectors(block, weight):
            yield np.concatenate([tree.build(each) for each in leaves.reshape(-1, tree.cells)])

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """See `Query.answer`."""
        tree, groups = self._tree(facts.schema), groups_of(facts.schema, self.by)
        values = grid_values(facts.schema, self.column, self.step)
        total = None if self.selects or self.by else facts.records
        half = noise.half_width() / weight
        parts = noisy.reshape(groups.count, tree.nodes) / weight
        found = [self._crossings(tree, part, total, half, noise) for part in parts]
        middle, low, high = (values[np.concatenate(part)] for part in zip(*found, strict=True))
        if total is None:
            # A group that may have no record has no quantile: too few records for this ε.
            reach = half * _spread(tree, np.ones(tree.cells), None)
            few = [tree.consistent(part).sum() <= reach for part in parts]
            for part in (middle, low, high):
                part[np.repeat(few, len(self.quantiles))] = math.nan
        asked = len(self.quantiles)
        keys: Table = {name: np.repeat(k, asked) for name, k in groups.keys().items()}
        keys["quantile"] = np.tile(self.quantiles, groups.count)
        return {**keys, "value": middle, "low": low, "high": high}

    def _crossings(
        self,
        tree: Tree,
        noisy: Numbers,
        total: int | None,
        half: float,
        noise: Reach,
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """`[Q]` places on the grid: of every quantile, and of its interval's two ends."""
        below = monotone(np.cumsum(tree.consistent(noisy, total=total)))
        records = max(below[-1] if total is None else float(total), 0.0)
        shares = np.array(self.quantiles)
        wanted = records * shares
        reach = half * np.array(
            [_deviation(tree, below, q, records, total) for q in self.quantiles]
        )
        reach = noise.widened(reach, rank_deviation(records, shares))
        # A value's share is reached at the first place that is not below it.
        places = (np.searchsorted(below, wanted + off) for off in (0.0, -reach, reach))
        middle, low, high = (np.clip(place, 0, tree.cells - 1) for place in places)
        return middle, low, high

    def expected_error(self, weight: int, noise: Reach, facts: Facts) -> float:
        """In ranks, over all of them: by how many records the place is off."""
        public = facts.records is not None and not self.selects and not self.by
        return noise.deviation / weight * _expected(self._tree(facts.schema), public=public)

    def check_choice(self, schema: Schema) -> None:
        """One quantile, of all groups together, with few digits."""
        del schema
        if self.by or len(self.quantiles) > 1 or self._share().denominator > _FINEST:
            raise QueryError(
                "Expected one quantile of at most six digits, without groups, where a server "
                "chooses by exact counts, got more: laplace or gaussian has them."
            )

    def _share(self) -> Fraction:
        return exact(self.quantiles[0])

    def candidates(self, schema: Schema) -> int:
        """K."""
        return self._tree(schema).cells

    def score_unit(self, weight: int) -> int:
        """A rank."""
        del weight
        return self._share().denominator

    def scores(self, total: Integers, weight: int, facts: Facts) -> Integers:
        """−max(0, F(below) − qN, qN − F(upto)) of every value, times the denominator of q."""
        upto = np.cumsum(total[: self._tree(facts.schema).cells] // weight)
        below, share = np.concatenate([[0], upto[:-1]]), self._share()
        wanted, whole = share.numerator * upto[-1], share.denominator
        worst: Integers = np.maximum(np.maximum(whole * below - wanted, wanted - whole * upto), 0)
        return -worst

    def score_set(self, weight: int) -> Set:
        """±(1 − q) of a record on one side, and ∓q of one on the other, times q's denominator."""
        del weight
        share = self._share()
        return Set.interval(-share.numerator, share.denominator - share.numerator)

    def chosen(self, place: int, facts: Facts) -> Table:
        """See `Choosable.chosen`."""
        value = grid_values(facts.schema, self.column, self.step)[[place]]
        hidden = np.array([math.nan])
        return {"quantile": list(self.quantiles), "value": value, "low": hidden, "high": hidden}


def _deviation(
    tree: Tree, below: Numbers, share: float, records: float, total: int | None
) -> float:
    """√Var of F(k) − q·N̂ for nodes of unit variance, k where the share is reached."""
    place = min(int(np.searchsorted(below, share * records)), tree.cells - 1)
    asked = np.zeros(tree.cells)
    asked[: place + 1] = 1
    if total is None:
        asked -= share
    return _spread(tree, asked, total)


@lru_cache
def _expected(tree: Tree, *, public: bool) -> float:
    """√Var of F(k) − q·N̂ for nodes of unit variance and even counts, over all ranks q."""
    even, shares = np.arange(1, tree.cells + 1) / tree.cells, _RANKS
    off = [_deviation(tree, even, float(share), 1.0, 1 if public else None) for share in shares]
    return math.hypot(*off) / math.sqrt(len(off))


@lru_cache
def _best(cells: int, power: float) -> int:
    """The branching of the least expected error, of a tree of so many values, or the most tried."""
    cells = min(cells, _MOST_TRIED)

    def error(branching: int) -> float:
        tree = Tree(cells=cells, branching=branching)
        return math.pow(tree.levels, power) * _expected(tree, public=False)

    tried = [b for b in (*_BRANCHINGS, cells) if b <= min(cells, _MOST_LEAVES)]
    return min(tried, key=error)


def _spread(tree: Tree, asked: Numbers, total: int | None) -> float:
    """√Var of the sum of the leaves that is weighted by `asked` `[K]`."""
    nodes = np.concatenate([asked, np.zeros(tree.nodes - tree.cells)])
    solved = tree.consistent(nodes, total=None if total is None else 0.0)
    return math.sqrt(max(float(asked @ solved), 0.0))


def _grid(schema: Schema, column: str, step: float) -> tuple[float, int]:
    """The step of a column's grid, and K: the query's; else the schema's; else of a thousandth."""
    known = numeric(schema, column)
    width = known.high - known.low
    step = step or getattr(schema.columns[column], "step", None) or width / _STEPS
    if not width / MOST_VALUES < step <= width * (1 + 1e-9):
        raise QueryError(
            f"Expected a step of at least {width / MOST_VALUES:g} and at most {width:g}, the width "
            f"of {column!r}, got {step:g}."
        )
    return step, math.ceil(width / step - 1e-9) + 1


def grid_values(schema: Schema, column: str, step: float) -> Numbers:
    """`[K]` the grid of a column of numbers: low, low + step, … high."""
    known, (step, count) = numeric(schema, column), _grid(schema, column, step)
    return np.minimum(known.low + np.arange(count, dtype=np.float64) * step, known.high)
