"""How many records: `count`, of all that are selected, or in every group.

A record adds 1 to its group's cell. Without `where` and groups the number of records is public
under replace-one, and nothing is to be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parley.client.data.schema import Schema
from parley.client.queries.base import Part, Query, QueryError, counts_in, groups_of
from parley.privacy.accounting.guarantee import Neighbouring


@dataclass(frozen=True, kw_only=True)
class Count(Query):
    """How many records."""

    kind: ClassVar[str] = "count"
    counts: ClassVar[bool] = True
    sampling: ClassVar[bool] = True

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if self.where is None and not self.by and neighbouring is Neighbouring.REPLACE_ONE:
            raise QueryError(
                "Expected where or group_by with count, got neither: under replace-one the number "
                "of records is public, and costs nothing (Answer.records, Session.records)."
            )

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """G counts."""
        return (counts_in(groups_of(schema, self.by), weight),)
