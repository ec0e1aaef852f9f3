"""What is public of the parties of a session, and settled for all its queries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from parley.client.queries.base import Facts, Norms
from parley.client.queries.batch import Batch
from parley.client.queries.counting import Clip, Counting
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.noise_points import NoisePoint


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is public, and settled for all queries of a session.

    Attributes:
        facts: schema, relation of records, and N where sizes are public.
        parties: m.
        min_records: n₍₁₎; a party with fewer refuses under replace-one.
        most_records: no party's contribution is of more; under add-or-remove-one it is clipped.
        min_survivors: least number of parties in a sum that is opened.
        corrupt: c, parties that may collude with the server.
        delta: at which every ε is counted.
        relation: that is charged, where it is not that of records.
    """

    facts: Facts
    parties: int
    min_records: int
    most_records: int
    min_survivors: int
    corrupt: int
    noise_point: NoisePoint
    delta: float
    seeded: bool
    counting: Counting = field(default_factory=Counting)
    relation: Neighbouring | None = None
    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def neighbouring(self) -> Neighbouring:
        """What one neighbour of the unit differs by."""
        return self.facts.neighbouring if self.relation is None else self.relation

    def norms(self, batch: Batch) -> Norms:
        """Of a batch's integer sum."""
        return self.counting.norms(batch, self.facts.schema, self.neighbouring)

    def by_party(self) -> Terms:
        """The same where every party has its own cells."""
        return replace(self, counting=replace(self.counting, parties=self.parties))

    def clipped(self, clip: Clip) -> Terms:
        """The same with parties clipped in this norm, where they are."""
        if not self.counting.clip:
            return self
        return replace(self, counting=replace(self.counting, clip=clip))
