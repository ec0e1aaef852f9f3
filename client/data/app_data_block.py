"""`AppDataBlock`: parties whose records only their app reads; Parley has no row of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from parley.client.data.party_block import PartyBlock


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AppDataBlock(PartyBlock):
    """Parties with one placeholder row each, and where their apps find their records.

    Attributes:
        paths: a party's position → a file or folder; a party without one knows its own place.
    """

    paths: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def create(cls, parties: int, paths: Mapping[int, str]) -> AppDataBlock:
        """Return the block of parties 0 to `parties` − 1."""
        return cls(
            features=np.zeros((parties, 1)),
            labels=np.zeros(parties, np.int64),
            offsets=np.arange(parties + 1),
            paths=paths,
        )
