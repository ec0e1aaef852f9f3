"""Second moments of a party's records, Σ x xᵀ, for private principal components.

It is one release before the first round (Dwork, Talwar, Thakurta & Zhang 2014, "Analyze Gauss"):
the noisy sum over all records. Its leading eigenvectors are post-processing.

v_j is the upper triangle, off-diagonal entries times 45/32, a little below √2. Its L2 norm is at
most the matrix's Frobenius norm, which is ‖x‖² for one record. Rows are cut to a grid of 2^-b
towards zero, which makes no norm longer. A row that is then longer than 1 adds nothing. All sums
are of whole numbers. Two records' products are never opposed: ⟨xxᵀ, yyᵀ⟩ = (x·y)², and a weighted
triangle only adds x_i²y_i² ≥ 0.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    get_settings,
)
from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import SumOfRecords
from parley.client.contract.model_state_encoding import Floats, State
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.models.linear_model_codec import MAX_MODEL_SIZE
from parley.privacy.sensitivity.bounded_sets import OFF_DIAGONAL, ON_DIAGONAL, Set
from parley.privacy.sensitivity.exact_row_arithmetic import keep_within, sum_outer

_MAX_BITS = 12
"""Maximum b."""


@dataclass(frozen=True, kw_only=True)
class UpperTriangle:
    """The upper triangle of a symmetric matrix.

    Attributes:
        features: p, its rows.
    """

    features: int

    @property
    def dimension(self) -> int:
        """Entries of the triangle, p(p + 1)/2."""
        return self.features * (self.features + 1) // 2

    def check_labels(self, labels: NDArray[np.generic]) -> None:
        """Accept any labels: they play no part."""

    def extract_triangle(self, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `[p(p+1)/2]`, the triangle of symmetric `[p, p]`, times 32 and, off the diagonal,
        45.
        """
        places, weights = _compute_triangle_index(self.features)
        return np.asarray(matrix.ravel()[places] * weights)

    def rebuild_matrix(self, triangle: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rebuild the matrix from a triangle weighted by 1 and 45/32."""
        places, weights = _compute_triangle_index(self.features)
        matrix = np.zeros((self.features, self.features))
        matrix.ravel()[places] = triangle * ON_DIAGONAL / weights
        return matrix + np.triu(matrix, 1).T


@functools.lru_cache(maxsize=1)
def _compute_triangle_index(features: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the triangle's positions in the flattened matrix, and its weights; once per run."""
    rows, columns = np.triu_indices(features)
    return rows * features + columns, np.where(rows == columns, ON_DIAGONAL, OFF_DIAGONAL)


@dataclass(frozen=True, kw_only=True)
class SecondMoments(SumOfRecords):
    """The sum of x xᵀ over all records; one release, numbered 0."""

    kind: ClassVar[str] = "second-moments"

    model: UpperTriangle

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.features < 1:
            raise ValueError(f"Expected features ≥ 1, got {self.model.features}.")

    @property
    def dimension(self) -> int:
        """Dimension of the triangle."""
        return self.model.dimension

    def init(self) -> State:
        """Return an empty state."""
        return {"theta": np.zeros(0)}

    def sum_records(self, rows: NDArray[np.floating[Any]], labels: NDArray[Any]) -> Floats:
        """Return `[d]` the triangle of Σ x xᵀ."""
        one = 1 << self.row_bits
        with np.errstate(over="ignore"):
            integers = np.trunc(rows.astype(np.float64) * one)
        keep_within(integers, one**2)
        triangle = self.model.extract_triangle(sum_outer(integers, integers, one**2))
        return triangle / 2.0**self.grid_bits

    @property
    def row_bits(self) -> int:
        """b, so that a sum up to the bound leaves 3 of 53 bits free, and 13 of a ring's."""
        return min(_MAX_BITS, (45 - int(self.bound).bit_length()) // 2)

    @property
    def grid_bits(self) -> int:
        """Grid bits of the weighted sums."""
        return 2 * self.row_bits + ON_DIAGONAL.bit_length() - 1

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """Claim a triangle no longer than 1, for any records."""
        unit_ball = Set.ball(self.dimension, squared=4**self.grid_bits)
        features = self.model.features
        return self.build_claim(unit_ball.restrict_to_acute(), self.grid_bits, features=features)


def to_task(algorithm: SecondMoments) -> dict[str, Any]:
    """Return the features, relation and bound (see `registry`)."""
    return {"features": algorithm.model.features, "settings": get_settings(algorithm, "model")}


def from_task(task: Mapping[str, Any], party: PartyResources) -> SecondMoments:
    """Build the algorithm from the result of `to_task`. Raises DecodingError."""
    check_keys(task, "features", "settings")
    features = decode_value(int, task["features"], "features")
    if not 1 <= features <= MAX_MODEL_SIZE:
        got = format_received(features)
        raise DecodingError(f"Expected 1 to {MAX_MODEL_SIZE} features, got {got}.")
    return decode_dataclass(SecondMoments, task["settings"], model=UpperTriangle(features=features))


def parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of model, and the number of the triangle's entries."""
    features = task.get("features")
    if type(features) is not int or not 0 < features < 2**40:
        got = format_received(features)
        raise DecodingError(f"Expected a whole number of features, got {got}.")
    return "pca-mlp", UpperTriangle(features=features).dimension


SPEC = AlgorithmSpec(
    title="second moments",
    to_task=to_task,
    from_task=from_task,
    parse_size=parse_size,
    before_rounds=True,
)
