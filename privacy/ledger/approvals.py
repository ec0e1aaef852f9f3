"""An owner's decisions: approvals and refusals of proposals, as records of the chain.

A record names proposals by their digests (`parley.client.contract.agreement`), so it applies to no
other proposal. If several records decide on one proposal, the latest counts. A decision changes no
account.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import check_name
from parley.privacy.ledger.hash_chain import LedgerRecord, RecordKind

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class OwnerDecision:
    """An approval or a refusal.

    Attributes:
        proposals: digests of all proposals that it decides, 64 hex digits each.
        reason: the owner's own words, shown only to the owner; often empty.
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
        """Return the fields that a record stores outside its columns."""
        columns = ("dataset", "unit", "run_id")
        return {name: value for name, value in asdict(self).items() if name not in columns}

    @classmethod
    def from_record(cls, record: LedgerRecord) -> Self:
        """Parse a record's decision; raise ValueError, KeyError or TypeError if it is none."""
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


def list_decisions(records: Iterable[LedgerRecord]) -> tuple[OwnerDecision, ...]:
    """Return the decisions among records, in order."""
    made = (each for each in records if each.kind == RecordKind.DECIDE)
    return tuple(map(OwnerDecision.from_record, made))


def map_latest_decisions(decisions: Iterable[OwnerDecision]) -> dict[str, OwnerDecision]:
    """Return proposal → the decision that counts for it."""
    return {proposal: each for each in decisions for proposal in each.proposals}
