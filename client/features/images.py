"""Scattering coefficients of images as features: group-normalised by record.

S(x) of `parley.client.features.scattering`, its channels in groups, each group of a record to mean
0 and variance 1 by itself (Wu & He 2018; Tramèr & Boneh 2021, §3: 27 groups). Nothing is learned,
and no record sees another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.columns import ArrayColumn
from parley.client.data.schema import Schema
from parley.client.features.base import FeatureError, FeatureMap, Features
from parley.client.features.scattering import Scattering

_VARIANCE = 1e-5
"""Added to a group's variance, as torch.nn.GroupNorm does."""


@dataclass(frozen=True, kw_only=True)
class ScatteringFeatures(FeatureMap):
    """Of the image that a record is: J scales, L angles, normalised in groups (0: not at all)."""

    name: ClassVar[str] = "scattering"

    scales: int = 2
    angles: int = 8
    groups: int = 27

    def on(self, schema: Schema) -> Features:
        """For records whose only feature is an array `[height, width]`."""
        columns = list(schema.features.values())
        column = columns[0]
        if len(columns) != 1 or not isinstance(column, ArrayColumn) or len(column.shape) != 2:
            raise FeatureError(
                "Expected one column of kind array and shape [height, width] (an image) with "
                f"features 'scattering', got {', '.join(schema.features)}."
            )
        height, width = column.shape
        try:
            scattering = Scattering(
                height=height, width=width, scales=self.scales, angles=self.angles
            )
        except ValueError as error:
            raise FeatureError(str(error)) from error
        channels, rows, columns_kept = scattering.shape
        if self.groups < 0 or (self.groups and channels % self.groups):
            raise FeatureError(
                f"Expected groups that divide {channels} channels, or 0 for none, got "
                f"{self.groups}."
            )

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            found = scattering(cells.reshape(len(cells), height, width))
            return self._normalised(found).reshape(len(cells), -1)

        return Features(width=channels * rows * columns_kept, piece=piece)

    def _normalised(self, found: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self.groups:
            return found
        by_group = found.reshape(len(found), self.groups, -1)
        by_group = by_group - by_group.mean(axis=-1, keepdims=True)
        variance = np.square(by_group).mean(axis=-1, keepdims=True)
        return np.asarray(by_group / np.sqrt(variance + np.float32(_VARIANCE)))
