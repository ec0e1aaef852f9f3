"""The one way out of a party's process: what is public, or what a charge on the disk has paid for.

Whatever a party says, to a server or in its log, is one of two things:

- `PublicResponse`: a function of the request, the policy, the ledger and public facts
  (`parley.client.party.dataset_loader.DatasetFacts`). The code that makes one is never given a
  record; data that cannot be read are one reason and one line, whatever is wrong, and a computation
  never fails.
- `ReleaseResponse`: masked bytes that a contribution is in, and the `Receipt` that its charge is on
  the disk, which nothing but the ledger's commit mints.

Two parties whose records differ say the same, to the byte, but for released vectors; in the log,
too. It does not hold of time and memory (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from parley.client.contract.party_protocol import (
    Declined,
    MessageFrame,
    Reason,
    build_refusal,
    build_response,
    encode_frame,
)
from parley.client.contract.roster import with_names
from parley.client.party.party_folder import PartyFolder
from parley.client.party.release_charge import Receipt


@dataclass(frozen=True, kw_only=True)
class PublicResponse:
    """An answer that no record had a part in."""

    frame: MessageFrame
    log_text: str = "ok"

    @classmethod
    def build_ok(
        cls, head: Mapping[str, Any] | None = None, blobs: tuple[bytes, ...] = ()
    ) -> PublicResponse:
        """An ok answer."""
        return cls(frame=build_response(head, blobs))

    @classmethod
    def build_refusal(cls, declined: Declined) -> PublicResponse:
        """A refusal: its reason leaves the machine, its detail is for the log."""
        return cls(frame=build_refusal(declined.reason), log_text=f"refused {declined}")

    @classmethod
    def build_error(cls, detail: str) -> PublicResponse:
        """A refusal for what went wrong where there was no record."""
        return cls.build_refusal(Declined(Reason.ERROR, detail))


@dataclass(frozen=True, kw_only=True)
class ReleaseResponse:
    """An answer with a masked contribution."""

    log_text: ClassVar[str] = "ok"  # in the log

    receipt: Receipt
    blobs: tuple[bytes, ...]

    @property
    def frame(self) -> MessageFrame:
        """What is sent: of a length that plan and protocol decide."""
        return build_response(blobs=self.blobs)


@dataclass(frozen=True, kw_only=True)
class ResponseSender:
    """Where a party's answers and lines leave."""

    party_folder: PartyFolder
    name: str
    party_names: list[str]

    def send(self, kind: str, response: PublicResponse | ReleaseResponse) -> bytes:
        """The bytes of an answer to a request of a kind, with its line in the log."""
        with suppress(OSError):  # a full disk must not keep an answer back
            self.party_folder.append_log(
                f"{self.name}: {kind} {with_names(response.log_text, self.party_names)}"
            )
        return encode_frame(response.frame)
