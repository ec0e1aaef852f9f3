"""One release as a ledger charges it: its name, its event, and the facts about the event.

The round's survivors are known only after the round, so they belong to the outcome.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

from parley.privacy.accounting.privacy_events import PrivacyEvent, parse_event
from parley.privacy.accounting.rounding import check_whole
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.block_composition import Blocks, parse_blocks
from parley.privacy.ledger.budget import BudgetKey, check_name
from parley.privacy.ledger.hash_chain import encode_canonical_json
from parley.privacy.ledger.release_facts import check_facts


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One release to be charged to one budget. Run, dataset, unit and index name it.

    Attributes:
        dataset: the name of a data set that has a budget for the unit in `facts`.
        party: the releasing party's name, or `"server"` for the sum.
        index: number of the release within the run; rounds count from 1.
        facts: keys of `release_facts.FACTS` with plain JSON values; required keys must be present.
        blocks: the blocks that it reads, only for unit record; empty: all records.
    """

    run_id: str
    dataset: str
    party: str
    index: int
    event: PrivacyEvent
    facts: Mapping[str, Any]
    blocks: Blocks = ()

    def __post_init__(self) -> None:
        check_name(self.run_id, "run_id")
        check_name(self.dataset, "dataset")
        check_name(self.party, "party")
        check_whole("index", self.index, 0)
        check_facts(self.facts)
        object.__setattr__(self, "blocks", parse_blocks(self.blocks))
        if self.blocks and self.key.unit is not Unit.RECORD:
            # A party has records in every block, a person may have some in several: all may change
            # at once.
            raise ValueError(f"Expected unit record with blocks, got {self.key.unit}.")
        object.__setattr__(self, "facts", _share_facts(encode_canonical_json(dict(self.facts))))

    @property
    def key(self) -> BudgetKey:
        """The charged budget: that of the data, for the unit that the facts name."""
        return BudgetKey(self.dataset, Unit(self.facts["unit"]))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, which `from_json` reads back unchanged."""
        return vars(self) | {"event": self.event.to_json(), "facts": dict(self.facts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the result of `to_json`."""
        event = _share_event(encode_canonical_json(value["event"]))
        names = {key: sys.intern(value[key]) for key in ("run_id", "dataset", "party")}
        return cls(**{**value, **names, "event": event})


# The entries of a run differ in their index only. A ledger lists them every round, so equal parts
# are one object: a party's memory would otherwise grow by 10 KB per round.


@lru_cache(maxsize=256)
def _share_facts(text: str) -> Mapping[str, Any]:
    return MappingProxyType(json.loads(text))


@lru_cache(maxsize=256)
def _share_event(text: str) -> PrivacyEvent:
    return parse_event(json.loads(text))
