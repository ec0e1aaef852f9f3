"""Second moments of a party's records, Σ x xᵀ: what private principal components are made of.

One release ahead of the first round (Dwork, Talwar, Thakurta & Zhang 2014, "Analyze Gauss"): the
noisy sum over all records, whose leading eigenvectors are post-processing. With ‖x‖ ≤ 1,
‖xxᵀ − x′x′ᵀ‖_F ≤ √2 when a record is replaced and ‖xxᵀ‖_F ≤ 1 when one is added or removed.

v_j is the upper triangle, off-diagonal entries times √2: its L2 norm is the matrix's Frobenius
norm. Rows are cut to a grid of 2⁻¹⁶ towards zero, which makes no norm longer, and their products
are summed as integers, without rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.kind import Party, settings_of
from parley.client.algorithms.sums import SumOfRecords
from parley.client.contract.decoding import DecodingError, as_came, facts_from, value_from
from parley.client.contract.state import State
from parley.client.models.described import LARGEST_MODEL
from parley.client.models.own_margins import TILE, own_margins
from parley.privacy.accounting.guarantee import Neighbouring

LARGEST_COMPONENT = 1000.0
"""Largest |entry| of components: they have no need of more, and rows stay finite."""

_GRID = 2.0**16
_PIECE = 8192
"""Rows at a time: their products' sums, integers below 2⁴⁵, are exact in double precision."""


@dataclass(frozen=True, kw_only=True)
class Triangle:
    """The upper triangle of a symmetric matrix.

    Attributes:
        features: p, its rows.
    """

    features: int

    @property
    def dimension(self) -> int:
        """p(p + 1)/2."""
        return self.features * (self.features + 1) // 2

    def check_labels(self, labels: NDArray[np.generic]) -> None:
        """Any will do: labels have no part in it."""

    def of(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[p, p]` symmetric → `[p(p+1)/2]` of the same L2 norm."""
        places, weights = _upper(self.features)
        return np.asarray(matrix.ravel()[places] * weights)

    def matrix(self, triangle: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inverse of `of`."""
        places, weights = _upper(self.features)
        matrix = np.zeros((self.features, self.features))
        matrix.ravel()[places] = triangle / weights
        return matrix + np.triu(matrix, 1).T


@functools.lru_cache(maxsize=1)
def _upper(features: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Where the triangle is in the matrix laid out flat, and √2 off the diagonal; once a run."""
    row, column = np.triu_indices(features)
    return row * features + column, np.where(row == column, 1.0, math.sqrt(2))


@dataclass(frozen=True, kw_only=True)
class SecondMoments(SumOfRecords):
    """The sum of x xᵀ over all records; one release, numbered 0."""

    kind: ClassVar[str] = "second-moments"

    model: Triangle

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.features < 1:
            raise ValueError(f"Expected features ≥ 1, got {self.model.features}.")

    @property
    def dimension(self) -> int:
        """The triangle's."""
        return self.model.dimension

    def init(self) -> State:
        """Nothing to start from."""
        return {"theta": np.zeros(0)}

    def summed(self, rows: NDArray[np.floating[Any]], labels: NDArray[Any]) -> NDArray[np.float64]:
        """`[d]` the triangle of Σ x xᵀ."""
        del labels
        return self.model.of(_moments(rows))

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """√2 or 1, whatever the parties hold: ‖xxᵀ‖_F ≤ 1. And the rounding of products with √2."""
        del facts
        one = 1.0 if self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE else math.sqrt(2)
        # Entries of at most B are rounded twice, by B·2⁻⁵³: as a double, and as a product.
        rounded = math.sqrt(self.model.dimension) * self.bound * 2.0**-51
        return self.moved_by(
            one * (1 + 2.0**-50) + rounded,
            bound=self.bound * (1 + 1e-9),
            features=self.model.features,
        )


def to_task(algorithm: SecondMoments) -> dict[str, Any]:
    """The features, relation and bound (see `registry`)."""
    return {"features": algorithm.model.features, "settings": settings_of(algorithm, "model")}


def of_task(task: Mapping[str, Any], party: Party) -> SecondMoments:
    """The inverse of `to_task`. Raises DecodingError."""
    del party
    if set(task) != {"kind", "features", "settings"}:
        raise DecodingError("Expected features and settings in a second-moments task, got others.")
    features = value_from(int, task["features"], "features")
    if not 1 <= features <= LARGEST_MODEL:
        raise DecodingError(f"Expected 1 to {LARGEST_MODEL} features, got {as_came(features)}.")
    return facts_from(SecondMoments, task["settings"], model=Triangle(features=features))


def size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The model that they are for, and the triangle's entries."""
    features = task.get("features")
    if type(features) is not int or not 0 < features < 2**40:
        raise DecodingError(f"Expected a whole number of features, got {as_came(features)}.")
    return "pca-mlp", Triangle(features=features).dimension


def _moments(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """`[n, p]` → `[p, p]` Σ x xᵀ of the rows cut to the grid, exactly.

    Cut rows have squared norms that are multiples of 2⁻³² and at most 1: rounding in the rows
    themselves, which may be a little longer than 1, cannot reach the next multiple. A row for which
    that does not hold (there is none among prepared ones), NaN or infinite, adds zero.
    """
    total = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
    for begin in range(0, len(rows), _PIECE):
        with np.errstate(over="ignore"):
            cut = np.trunc(rows[begin : begin + _PIECE].astype(np.float64) * _GRID)
            cut[~(np.vecdot(cut, cut) <= _GRID**2)] = 0
        total += (cut.T @ cut).astype(np.int64)
    return total / _GRID**2


def projected(rows: NDArray[np.floating], components: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[N, p]` → `[N, k]` rows on the components, each by arithmetic on that row alone.

    One product of a party's rows would have last digits that depend on how many they are. A server
    chooses components and θ: where a row cancels to those digits, they decide what a network makes
    of it, and one record less would move others' gradients (`parley.client.dp_sgd.apart`).
    """
    axes = np.ascontiguousarray(components.T)
    found = np.empty((len(rows), len(axes)))
    for begin in range(0, len(rows), TILE):
        tile = rows[begin : begin + TILE].astype(np.float64)
        found[begin : begin + TILE] = own_margins(tile, axes)
    return found


def check_components(components: NDArray[np.generic]) -> None:
    """Refuses what cannot be components of any rows."""
    if components.ndim != 2 or components.dtype != np.float64:
        raise ValueError(
            f"Expected components [p, k] of float64, got {components.dtype} of shape "
            f"{components.shape}."
        )
    features, count = components.shape
    if not 1 <= count <= features:
        raise ValueError(f"Expected 1 to {features} components of {features} features.")
    if not (np.abs(components) <= LARGEST_COMPONENT).all():  # NaN is not
        raise ValueError(f"Expected finite components of at most {LARGEST_COMPONENT:g}.")
