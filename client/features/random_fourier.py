"""Random Fourier features of tables: a Gaussian kernel as a finite inner product.

    z(x) = (cos Wx, sin Wx)/√(D/2),   ⟨z(x), z(y)⟩ ≈ e^(−‖x−y‖²/2ℓ²),   rows of W from N(0, I/ℓ²)

(Rahimi & Recht 2007). W comes from a public seed and depends on no data. Each row of features has
norm 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.features.base import MAX_FEATURES, BoundFeatureMap, FeatureMap
from parley.client.features.feature_error import FeatureError
from parley.privacy.special_functions import ndtri

_MAX_ENTRIES = 1 << 24
"""Maximum entries of W: settings that a server sends cost at most twice 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class RandomFourier(FeatureMap):
    """D features of scale ℓ, in units of the cells, which span [−1, 1]; W from a public seed."""

    name: ClassVar[str] = "random-fourier"

    features: int = 500
    length_scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.features <= MAX_FEATURES or self.features % 2:
            expected = f"Expected an even number of features up to {MAX_FEATURES}"
            raise FeatureError(f"{expected}, got {self.features}.")
        if not 1e-6 <= self.length_scale <= 1e6 or self.seed < 0:
            expected = "Expected a length-scale of 1e-6 to 1e6 and a seed >= 0"
            raise FeatureError(f"{expected}, got {self.length_scale} and {self.seed}.")

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records of any columns."""
        wide, half = schema.dimension, self.features // 2
        if wide * half > _MAX_ENTRIES:
            expected = f"Expected at most {_MAX_ENTRIES} columns times features/2"
            raise FeatureError(f"{expected}, got {wide * half}.")
        draws = draw_public_normals(self.seed, wide * half)
        weights = draws.reshape(wide, half) / self.length_scale

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            # One product per record: its bits do not depend on the others.
            waves = np.matmul(cells[:, None, :], weights)[:, 0]
            both = np.concatenate([np.cos(waves), np.sin(waves)], axis=1)
            return np.asarray(both / np.sqrt(half), np.float32)

        return BoundFeatureMap(width=self.features, map_piece=piece)


def draw_public_normals(seed: int, count: int) -> NDArray[np.float64]:
    """Return `[count]` standard normal numbers of a public seed, equal in all versions of
    libraries.

    SHAKE-256 gives 53 bits of each number, which the normal quantile function maps to it.

    >>> draw_public_normals(0, 3).round(4).tolist()
    [0.6543, -1.6258, 1.3198]
    """
    stream = hashlib.shake_256(b"parley/random-fourier/" + str(seed).encode()).digest(8 * count)
    bits = np.frombuffer(stream, "<u8") >> np.uint64(11)
    return np.asarray(ndtri((bits + 0.5) * 2.0**-53), np.float64)
