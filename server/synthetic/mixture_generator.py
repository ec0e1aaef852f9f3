"""Fit a mixture of products to noisy pair tables; it draws any number of rows at no cost.

Every step here is post-processing of one release (Liu, Vietri & Wu 2021, arXiv 2103.06641, for the
mixture). A component is a separate distribution of each column. The model's table of columns i and
j is P_iᵀP_j/R over the R components. It is fitted to the released table by least squares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.pair_tables import PairTables
from parley.client.data.schema import Schema
from parley.privacy.estimation.marginals import project_onto_simplex
from parley.server.jobs.synthetic_algorithms import MarginalsSection
from parley.server.synthetic.registry import SyntheticGenerator
from parley.server.synthetic.synthetic_rows import split_rows

_RATE, _LAST_RATE = 0.1, 0.005
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Adam's (Kingma & Ba 2015)
_MIN_SHARE = 1e-6
"""Minimum share for a category's first logit: the logarithm of zero is not a start."""

_SLACK = 1e-3
"""Tolerance for the sum of float32 shares."""

_CHUNK_ROWS = 1 << 18
"""Number of rows drawn at a time."""

Array = NDArray[np.float64]
_Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class ReleasedTables:
    """Two-way tables of columns with values 0 to s_i − 1, one after another.

    Attributes:
        sizes: `[columns]` s_i.
        pairs: (i, j), i < j, of each table.
        values: `[d]` the cells, row-major, d = Σ s_i·s_j.
    """

    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, ...], ...]
    values: Array

    @property
    def tables(self) -> list[Array]:
        """`[s_i, s_j]` by pair."""
        cells = [self.sizes[i] * self.sizes[j] for i, j in self.pairs]
        ends = np.cumsum(cells)
        return [
            self.values[end - count : end].reshape(self.sizes[i], self.sizes[j])
            for (i, j), count, end in zip(self.pairs, cells, ends, strict=True)
        ]

    @property
    def total(self) -> float:
        """N̂: the tables' totals, each weighted by the inverse of its noise's variance."""
        weights = np.array([1 / (self.sizes[i] * self.sizes[j]) for i, j in self.pairs])
        totals = np.array([table.sum() for table in self.tables])
        return float(weights @ totals / weights.sum())

    def compute_margin(self, column: int, *, total: float) -> Array:
        """Return `[s]` shares of a column's values: the tables' margins, so weighted, on the
        simplex.
        """
        counts, weight = np.zeros(self.sizes[column]), 0.0
        for (i, j), table in zip(self.pairs, self.tables, strict=True):
            for own, other, axis in ((i, j, 1), (j, i, 0)):
                if own == column:
                    counts += table.sum(axis=axis) / self.sizes[other]
                    weight += 1 / self.sizes[other]
        if not weight:  # A column in no table has no data.
            return np.full(self.sizes[column], 1 / self.sizes[column])
        return project_onto_simplex(counts / weight / total, total=1.0)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """R products of distributions.

    Attributes:
        sizes: `[columns]` s_i.
        shares: `[R, Σ s_i]` float32; the distribution of every column in every component.
    """

    sizes: tuple[int, ...]
    shares: NDArray[np.float32]

    @classmethod
    def from_shares(cls, sizes: tuple[int, ...], shares: NDArray[np.generic] | None) -> Mixture:
        """Return the mixture from a file's shares.

        Raises:
            ValueError: not `[R, Σ s_i]` float32 of distributions.
        """
        if shares is None or shares.dtype != np.float32 or shares.ndim != 2:
            raise ValueError("Expected a generator, `shares` [R, columns] of float32, got none.")
        found = np.asarray(shares, np.float32)
        if found.shape[1] != sum(sizes) or not len(found):
            raise ValueError(f"Expected shares of {sum(sizes)} values, got {found.shape}.")
        sums = np.add.reduceat(found, _list_starts(sizes), axis=1)
        if not ((found >= 0).all() and (np.abs(sums - 1) < _SLACK).all()):  # refuses NaN too
            raise ValueError("Expected shares that add up to 1 in every column, got others.")
        return cls(sizes=sizes, shares=found)

    @property
    def _ranges(self) -> list[slice]:
        starts = np.cumsum([0, *self.sizes]).tolist()
        return [slice(begin, end) for begin, end in pairwise(starts)]

    def compute_table(self, i: int, j: int) -> Array:
        """Return `[s_i, s_j]` joint shares of both columns' values."""
        ranges, shares = self._ranges, self.shares.astype(np.float64)
        return np.asarray(shares[:, ranges[i]].T @ shares[:, ranges[j]] / len(shares))

    def compute_margin(self, column: int) -> Array:
        """Return `[s]` shares of one column's values."""
        shares = self.shares[:, self._ranges[column]]
        return np.asarray(shares.mean(axis=0, dtype=np.float64))

    def sample(self, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `[rows, columns]` values: components in turn, in random order, columns
        independently.
        """
        of = rng.permutation(np.arange(rows) % len(self.shares))
        drawn = np.empty((rows, len(self.sizes)), np.int64)
        for column, (size, own) in enumerate(zip(self.sizes, self._ranges, strict=True)):
            ends = np.cumsum(self.shares[:, own].astype(np.float64), axis=1)
            ends /= ends[:, -1:]
            # Every component's ends follow those of the one before: one search serves all rows.
            line = (ends + np.arange(len(ends))[:, None]).ravel()
            found = np.searchsorted(line, rng.random(rows) + of, side="right") - of * size
            drawn[:, column] = np.minimum(found, size - 1)
        return drawn


def fit(tables: ReleasedTables, *, components: int, steps: int, seed: int) -> Mixture:
    """Return the mixture whose tables are nearest to the released ones, by Adam from its margins.

    Args:
        steps: of Adam; the rate falls from 0.1 to 0.005 along a cosine.

    Raises:
        ValueError: the release's total is not positive, or so small that the fit diverged: there
            are too few records for its noise.
    """
    total = tables.total
    if not total > 0:
        raise ValueError(
            f"Expected released tables of a positive number of records, got {total:.0f}: there are "
            "too few records for this noise."
        )
    released = [(table / total).astype(np.float32) for table in tables.tables]
    margins = [tables.compute_margin(i, total=total) for i in range(len(tables.sizes))]
    start = np.log(np.maximum(np.concatenate(margins), _MIN_SHARE))
    rng = np.random.default_rng(seed)
    shape = (components, len(start))
    logits = (start + rng.standard_normal(shape)).astype(np.float32)
    first, second = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    shares = _apply_softmax(logits, tables.sizes)
    starts = _list_starts(tables.sizes)
    for step in range(steps):
        pull = _compute_gradient(tables, released, shares)
        inner = np.add.reduceat(shares * pull, starts, axis=1)
        slope = shares * (pull - np.repeat(inner, tables.sizes, axis=1)) * (2 / components)
        first += (1 - _FIRST) * (slope - first)
        second += (1 - _SECOND) * (slope * slope - second)
        lift = math.sqrt(1 - _SECOND ** (step + 1)) / (1 - _FIRST ** (step + 1))
        cosine = (1 + math.cos(math.pi * step / steps)) / 2
        rate = _LAST_RATE + (_RATE - _LAST_RATE) * cosine
        logits -= np.float32(rate * lift) * first / (np.sqrt(second) + np.float32(_TINY))
        shares = _apply_softmax(logits, tables.sizes)
    if not np.isfinite(shares).all():
        raise ValueError(
            f"Expected a finite generator, got one that diverged, of released tables of {total:.3g}"
            " records: there are too few records for this noise."
        )
    return Mixture(sizes=tables.sizes, shares=shares)


def _compute_gradient(
    tables: ReleasedTables, released: list[NDArray[np.float32]], shares: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return `[R, S]` Σ_j P_j (model − released)ᵀ of every column, from its shares."""
    ends = np.cumsum([0, *tables.sizes])
    found = np.zeros_like(shares)
    for (i, j), wanted in zip(tables.pairs, released, strict=True):
        one, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        off = shares[:, one].T @ shares[:, other] / np.float32(len(shares)) - wanted
        found[:, one] += shares[:, other] @ off.T
        found[:, other] += shares[:, one] @ off
    return found


@functools.lru_cache(maxsize=4)
def _list_starts(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes[:-1]])


def _apply_softmax(logits: NDArray[np.float32], sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """Return `[R, S]` the softmax of every column."""
    starts = _list_starts(sizes)
    highest = np.maximum.reduceat(logits, starts, axis=1)
    raised = np.exp(logits - np.repeat(highest, sizes, axis=1))
    sums = np.add.reduceat(raised, starts, axis=1)
    return np.asarray(raised / np.repeat(sums, sizes, axis=1), np.float32)


def fit_generator(
    counted: PairTables, schema: Schema, settings: MarginalsSection, released: Array
) -> tuple[_Tensors, float]:
    """Return the mixture of a release for a model file, and N̂ (`generation.SyntheticGenerator`)."""
    tables = ReleasedTables(sizes=counted.sizes, pairs=counted.pairs, values=released)
    mixture = fit(tables, components=settings.components, steps=settings.steps, seed=settings.seed)
    return {"shares": mixture.shares}, tables.total


def draw_rows(
    counted: PairTables, schema: Schema, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    """Draw codes from the result of `fit_generator`, in pieces."""
    mixture = Mixture.from_shares(counted.sizes, tensors.get("shares"))
    rng = np.random.default_rng([seed, 0])
    return (mixture.sample(count, rng) for count in split_rows(rows, _CHUNK_ROWS))


GENERATOR = SyntheticGenerator(
    fit=fit_generator, draw=draw_rows, count_released=lambda of: {"tables": len(of.pairs)}
)
