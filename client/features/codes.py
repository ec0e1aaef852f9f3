"""Tables as codes: every column one-hot by the public schema alone, numbers by its bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parley.client.data.codes import coded_columns
from parley.client.data.schema import Schema, SchemaError
from parley.client.features.base import FeatureError, FeatureMap, Features
from parley.client.features.bins import Bins

__all__ = ["Codes"]


@dataclass(frozen=True, kw_only=True)
class Codes(FeatureMap):
    """One 1 for each column of the schema, at its code (`parley.client.data.codes`)."""

    name: ClassVar[str] = "codes"

    def on(self, schema: Schema) -> Features:
        """For records without arrays, of a label with classes."""
        try:
            columns = coded_columns(schema)
        except SchemaError as error:
            raise FeatureError(str(error)) from error
        return Bins(edges={each.name: each.edges for each in columns if each.edges}).on(schema)
