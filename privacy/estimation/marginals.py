"""Make noisy tables of counts of the same records consistent, and compute the resulting variances.

A table counts records by some columns. It is a sum of independent *residuals*, one for each subset
B of its columns: its sums over the other columns, minus what fewer columns explain. Every table
that contains B estimates that residual. Least squares is the average of these estimates weighted by
precision, one B at a time, in closed form (ResidualPlanner: Xiao, He, Zhang & Kifer, NeurIPS 2023).
A public number of records is the exact residual of no columns.

    >>> import numpy as np
    >>> tables = TableOverlaps(shapes=({"a": 2, "b": 2}, {"a": 2}))
    >>> noisy = [np.array([[4.0, 2.0], [1.0, 3.0]]), np.array([5.0, 7.0])]
    >>> of_both, of_a = tables.make_consistent(noisy, np.ones(2))
    >>> of_both.sum(axis=1).round(6).tolist() == of_a.round(6).tolist()
    True
    >>> of_a.round(6).tolist()
    [5.333333, 6.0]
    >>> tables.compute_variances(np.ones(2)).round(4).tolist()
    [0.6667, 0.6667]

The module also projects noisy counts to possible counts: non-negative, with the known total.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
Columns = frozenset[Hashable]

_MAX_SHARED_COLUMNS = 4
"""Maximum number of columns of a shared residual; with more, each table keeps its estimate."""


@dataclass(frozen=True, kw_only=True)
class TableOverlaps:
    """T tables, and the R residuals estimated by more than one of them or by a public total.

    Attributes:
        shapes: each table's columns with their numbers of cells, in the order of its axes.
        public: whether the number of records is known exactly.
    """

    shapes: tuple[Mapping[Hashable, int], ...]
    public: bool = False

    @cached_property
    def sizes(self) -> dict[Hashable, int]:
        """Number of cells of every column."""
        found = dict[Hashable, int]()
        for column, cells in (each for shape in self.shapes for each in shape.items()):
            if found.setdefault(column, cells) != cells:
                raise ValueError(f"Expected {column} of one size, got {found[column]} and {cells}.")
        return found

    @cached_property
    def residuals(self) -> tuple[Columns, ...]:
        """`[R]` residuals, those of few columns first."""
        found = Counter[Columns]([frozenset()] if self.public else [])
        for shape in self.shapes:
            found.update(_list_subsets(shape))
        return tuple(columns for columns, tables in found.items() if tables > 1)

    @cached_property
    def others(self) -> Numbers:
        """`[R, T]` number of a table's cells in one of its sums by B; 0 for a table without B."""
        found = np.zeros((len(self.residuals), len(self.shapes)))
        rows = {columns: row for row, columns in enumerate(self.residuals)}
        for place, shape in enumerate(self.shapes):
            for columns in filter(rows.__contains__, _list_subsets(shape)):
                others = math.prod(n for column, n in shape.items() if column not in columns)
                found[rows[columns], place] = others
        return found

    @cached_property
    def _shares(self) -> Numbers:
        """`[R, T]` precision of a table's residual if that of its cells is 1; 0 without B."""
        return np.divide(1, self.others, out=np.zeros_like(self.others), where=self.others > 0)

    @cached_property
    def _parts(self) -> Numbers:
        """`[R, T]` a residual's part of a cell's variance, for a table by itself."""
        own = [math.prod(1 - 1 / self.sizes[column] for column in b) for b in self.residuals]
        return np.array(own)[:, None] * self._shares

    @cached_property
    def _alone(self) -> Numbers:
        """`[T]` the rest of a cell's variance, from residuals that no other table estimates."""
        rest = 1 - self._parts.sum(axis=0)
        return np.where(rest < 2.0**-30, 0.0, rest)

    def compute_precisions(self, cells: Numbers) -> Numbers:
        """Return `[R]` the precision of each residual, from those of the tables' cells `[T]`."""
        found: Numbers = self._shares @ cells
        if self.public:
            found[self.residuals.index(frozenset())] = math.inf
        return found

    def compute_variances(self, cells: Numbers) -> Numbers:
        """Return `[T]` the variance of a consistent cell; all cells of a table have the same."""
        shared = self._parts * self._shares / self.compute_precisions(cells)[:, None]
        result: Numbers = self._alone / cells + shared.sum(axis=0)
        return result

    def compute_gains(self, cells: Numbers, wanted: Numbers) -> Numbers:
        """Return `[T]` −∂/∂ ln cells of Σ wanted·variance: the gain by each table's precision."""
        lost = (self._parts * self._shares) @ wanted / self.compute_precisions(cells) ** 2
        return wanted * self._alone / cells + cells * (lost @ self._shares)

    def make_consistent(
        self, tables: Sequence[Numbers], cells: Numbers, *, total: float | None = None
    ) -> list[Numbers]:
        """Return the least-squares tables in the overlaps' shapes; `total` only if public."""
        if (total is not None) != self.public or len(tables) != len(self.shapes):
            raise ValueError(
                f"Expected {len(self.shapes)} tables, and a total only if it is public, got "
                f"{len(tables)} and {total}."
            )
        place = {column: k for k, column in enumerate(self.sizes)}
        found, views, names = list[Numbers](), list[Numbers](), list[list[Hashable]]()
        for table, shape in zip(tables, self.shapes, strict=True):
            if table.shape != tuple(shape.values()):
                raise ValueError(f"Expected a table of {dict(shape)}, got shape {table.shape}.")
            found.append(np.array(table, dtype=np.float64))
            # Columns are in the same order everywhere, so sums by B have the same axes.
            names.append(sorted(shape, key=place.__getitem__))
            views.append(found[-1].transpose([list(shape).index(name) for name in names[-1]]))
        for columns, others in zip(self.residuals, self.others, strict=True):
            holding = np.flatnonzero(others)
            own = [_compute_residual(views[k], [n in columns for n in names[k]]) for k in holding]
            shares = cells[holding] / others[holding]
            agreed = np.tensordot(shares / shares.sum(), np.stack(own), axes=1)
            if not columns and total is not None:
                agreed = np.array(total)
            for k, residual in zip(holding, own, strict=True):
                along = [self.sizes[name] if name in columns else 1 for name in names[k]]
                views[k] += ((agreed - residual) / others[k]).reshape(along)
        return found


def _list_subsets(shape: Iterable[Hashable]) -> Iterator[Columns]:
    """Yield the subsets of a table's columns with at most `_MAX_SHARED_COLUMNS` columns."""
    columns = tuple(shape)
    for size in range(min(len(columns), _MAX_SHARED_COLUMNS) + 1):
        yield from map(frozenset, combinations(columns, size))


def _compute_residual(table: Numbers, kept: Sequence[bool]) -> Numbers:
    """Return sums over all axes except `kept`, with the mean along each kept axis removed."""
    found = np.asarray(table.sum(axis=tuple(k for k, keep in enumerate(kept) if not keep)))
    for axis in range(found.ndim):
        found = found - found.mean(axis=axis, keepdims=True)
    return found


def project_onto_simplex(values: ArrayLike, *, total: float) -> NDArray[np.float64]:
    """Return the nearest `[d]` in L2 without negative entries and with this sum.

    The result is max(v − θ, 0), with θ chosen to give the sum (Duchi et al. 2008).
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"Expected a vector of at least one value, got shape {given.shape}.")
    if not 0 <= total < math.inf:
        raise ValueError(f"Expected a finite total ≥ 0, got {total}.")
    if total == 0:
        return np.zeros_like(given)
    falling = np.sort(given)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(given) + 1)
    # The largest entry stays positive for every rounding of the total.
    theta = excess[max(int((falling > excess).sum()) - 1, 0)]
    result: NDArray[np.float64] = np.maximum(given - theta, 0)
    return result
