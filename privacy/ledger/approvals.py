"""An owner's decisions: a yes or a no to what was proposed, as lines of the chain.

A line names proposals by their digests (`parley.client.contract.agreement`), so that it stands for
nothing else; of several lines about one proposal the latest counts. It changes no account.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import check_name
from parley.privacy.ledger.hash_chain import LedgerRecord, RecordKind

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class OwnerDecision:
    """A yes or a no.

    Attributes:
        proposals: digests of all that it was said to, 64 hex digits each.
        reason: the owner's own words, for the owner alone; often empty.
        at: UTC, ISO 8601.
    """

    dataset: str
    unit: Unit
    run_id: str
    proposals: tuple[str, ...]
    accepted: bool
    reason: str
    at: str

    def __post_init__(self) -> None:
        check_name(self.run_id, "run_id")
        if not self.proposals or not all(map(_DIGEST.fullmatch, self.proposals)):
            raise ValueError("Expected digests of proposals in 64 hex digits, got others.")
        if not isinstance(self.accepted, bool) or not isinstance(self.at, str):
            raise ValueError("Expected a decision and its time, got others.")
        if self.reason and not self.reason.isprintable():
            raise ValueError(f"Expected a reason in one line, got {self.reason!r}.")

    def to_body(self) -> dict[str, Any]:
        """What a record says of it beside its columns."""
        columns = ("dataset", "unit", "run_id")
        return {name: value for name, value in asdict(self).items() if name not in columns}

    @classmethod
    def from_record(cls, record: LedgerRecord) -> Self:
        """The decision that a record says; ValueError, KeyError or TypeError where it is none."""
        body = record.parse_body()
        return cls(
            dataset=record.dataset,
            unit=Unit(record.unit),
            run_id=str(record.run_id),
            proposals=tuple(body["proposals"]),
            accepted=body["accepted"],
            reason=body["reason"],
            at=body["at"],
        )


def list_decisions(records: Sequence[LedgerRecord]) -> tuple[OwnerDecision, ...]:
    """The decisions among records, in order."""
    return tuple(
        OwnerDecision.from_record(each) for each in records if each.kind == RecordKind.DECIDE
    )


def map_latest_decisions(decisions: Sequence[OwnerDecision]) -> dict[str, OwnerDecision]:
    """Proposal → what counts of it."""
    return {proposal: each for each in decisions for proposal in each.proposals}
