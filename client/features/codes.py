"""Tables as codes: every column one-hot by the public schema alone, numbers by its bins.

A record that is one array keeps its cells, over √p: no row is longer than 1 then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.codes import array_of, coded_columns
from parley.client.data.schema import Schema, SchemaError
from parley.client.features.base import FeatureError, FeatureMap, Features
from parley.client.features.bins import Bins


@dataclass(frozen=True, kw_only=True)
class Codes(FeatureMap):
    """One 1 for each column of the schema, at its code (`parley.client.data.codes`)."""

    name: ClassVar[str] = "codes"

    def on(self, schema: Schema) -> Features:
        """For records without arrays, or of one, and of a label with classes."""
        array = array_of(schema)
        if array is not None:
            root = math.sqrt(array[1].width)
            return Features(
                width=array[1].width, piece=lambda cells: (cells / root).astype(np.float32)
            )
        try:
            columns = coded_columns(schema)
        except SchemaError as error:
            raise FeatureError(str(error)) from error
        return Bins(edges={each.name: each.edges for each in columns if each.edges}).on(schema)
