"""Second moments of a party's records, Σ x xᵀ: what private principal components are made of.

One release ahead of the first round (Dwork, Talwar, Thakurta & Zhang 2014, "Analyze Gauss"): the
noisy sum over all records, whose leading eigenvectors are post-processing.

v_j is the upper triangle, off-diagonal entries times 45/32, a little below √2: its L2 norm is at
most the matrix's Frobenius norm, which is ‖x‖² of one record. Rows are cut to a grid of 2^-b
towards zero, which makes no norm longer; what is longer than 1 then adds nothing. All sums are of
whole numbers. Two records' products are never opposed: ⟨xxᵀ, yyᵀ⟩ = (x·y)², and a weighted triangle
has besides only x_i²y_i² ≥ 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import Party, check_keys, settings_of
from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.noisy_sums import SumOfRecords
from parley.client.contract.model_state import State
from parley.client.contract.strict_decoding import DecodingError, as_came, facts_from, value_from
from parley.client.models.linear_serialization import LARGEST_MODEL
from parley.privacy.sensitivity.bounded_sets import BESIDE, ON_DIAGONAL, Set
from parley.privacy.sensitivity.exact_rows import keep_within, outer_sum

LARGEST_COMPONENT = 1000.0
"""Largest |entry| of components: they have no need of more, and rows stay finite."""

_MOST_BITS = 12
"""b at most."""

_ROW_BITS, _PIECE = 20, 8192
"""Of rows that are projected, so many at a time."""


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

    def of(self, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[p, p]` symmetric → `[p(p+1)/2]` the triangle, times 32 and, off the diagonal, 45."""
        places, weights = _upper(self.features)
        return np.asarray(matrix.ravel()[places] * weights)

    def matrix(self, triangle: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of a triangle weighted by 1 and 45/32."""
        places, weights = _upper(self.features)
        matrix = np.zeros((self.features, self.features))
        matrix.ravel()[places] = triangle * ON_DIAGONAL / weights
        return matrix + np.triu(matrix, 1).T


@functools.lru_cache(maxsize=1)
def _upper(features: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Where the triangle is in the matrix laid out flat, and its weights; once a run."""
    row, column = np.triu_indices(features)
    return row * features + column, np.where(row == column, ON_DIAGONAL, BESIDE)


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
        one = 1 << self.row_bits
        with np.errstate(over="ignore"):
            cut = np.trunc(rows.astype(np.float64) * one)
        keep_within(cut, one**2)
        return self.model.of(outer_sum(cut, cut, one**2)) / 2.0**self.grid_bits

    @property
    def row_bits(self) -> int:
        """b: so many that a sum up to the bound leaves 3 of 53 bits free, and 13 of a ring's."""
        return min(_MOST_BITS, (45 - int(self.bound).bit_length()) // 2)

    @property
    def grid_bits(self) -> int:
        """Of the weighted sums."""
        return 2 * self.row_bits + ON_DIAGONAL.bit_length() - 1

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """A triangle no longer than 1, whatever the parties hold."""
        del facts
        unit = Set.ball(self.dimension, squared=4**self.grid_bits)
        return self.claimed(unit.acute(), self.grid_bits, features=self.model.features)


def to_task(algorithm: SecondMoments) -> dict[str, Any]:
    """The features, relation and bound (see `registry`)."""
    return {"features": algorithm.model.features, "settings": settings_of(algorithm, "model")}


def of_task(task: Mapping[str, Any], party: Party) -> SecondMoments:
    """The inverse of `to_task`. Raises DecodingError."""
    del party
    check_keys(task, "features", "settings")
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


def projected(rows: NDArray[np.floating], components: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[N, p]` → `[N, k]` rows on the components, each a function of that row alone.

    A server chooses components and θ: where a row cancels to its last digits, they decide what a
    network makes of it. So a product has none that are rounded: rows are whole numbers of 2⁻²⁰,
    components of as many bits as keep |x·c| ≤ ‖x‖·‖c‖, of any part of the sum too, below 2⁵³. A row
    that is not finite, or longer than 32, is zeros; so are all, where components are not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        longest = float(np.linalg.norm(components, axis=0).max())
    if not math.isfinite(longest):
        return np.zeros((len(rows), components.shape[1]))
    bits = 27 - math.frexp(longest)[1]
    axes = np.rint(np.ldexp(components, bits))
    found = np.empty((len(rows), components.shape[1]))
    for begin in range(0, len(rows), _PIECE):
        whole = np.rint(rows[begin : begin + _PIECE].astype(np.float64) * 2.0**_ROW_BITS)
        keep_within(whole, 4 ** (_ROW_BITS + 5))
        found[begin : begin + _PIECE] = whole @ axes
    return np.ldexp(found, -_ROW_BITS - bits)


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
