"""The only output of a party's process: public facts, or a release whose charge is on disk.

Every answer to a server and every log line of a party is one of two things:

- `PublicResponse`: a function of the request, the policy, the ledger and public facts
  (`parley.client.party.loaded_dataset.DatasetFacts`). The code that creates one never receives a
  record. Unreadable data give one reason and one line, whatever the cause, and a computation never
  fails.
- `ReleaseResponse`: masked bytes that contain a contribution, with the `Receipt` that its charge is
  on disk. Only the ledger's commit creates a receipt.

Two parties that differ only in their records give byte-identical answers and logs, except for
released vectors. This does not hold for time and memory (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from parley.client.contract.message_frames import (
    MessageFrame,
    build_refusal,
    build_response,
    encode_frame,
)
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.roster import with_names
from parley.client.party.party_folder import PartyFolder
from parley.client.party.release_charge import Receipt


@dataclass(frozen=True, kw_only=True)
class PublicResponse:
    """An answer that depends on no record."""

    frame: MessageFrame
    log_text: str = "ok"

    @classmethod
    def build_ok(
        cls, head: Mapping[str, Any] | None = None, blobs: tuple[bytes, ...] = ()
    ) -> PublicResponse:
        """Build an ok answer."""
        return cls(frame=build_response(head, blobs))

    @classmethod
    def build_refusal(cls, declined: Declined) -> PublicResponse:
        """Build a refusal. Its reason leaves the machine; its detail is for the log."""
        return cls(frame=build_refusal(declined.reason), log_text=f"refused {declined}")

    @classmethod
    def build_error(cls, detail: str) -> PublicResponse:
        """Build a refusal for a failure that involved no record."""
        return cls.build_refusal(Declined(Reason.ERROR, detail))


@dataclass(frozen=True, kw_only=True)
class ReleaseResponse:
    """An answer with a masked contribution."""

    log_text: ClassVar[str] = "ok"  # in the log

    receipt: Receipt
    blobs: tuple[bytes, ...]

    @property
    def frame(self) -> MessageFrame:
        """The frame that is sent. Plan and protocol decide its length."""
        return build_response(blobs=self.blobs)


@dataclass(frozen=True, kw_only=True)
class ResponseSender:
    """The sender of a party's answers and writer of its log lines."""

    party_folder: PartyFolder
    name: str
    party_names: list[str]

    def send(self, kind: str, response: PublicResponse | ReleaseResponse) -> bytes:
        """Return the bytes of an answer to a request of a kind, and log a line."""
        with suppress(OSError):  # a full disk must not prevent an answer
            log_text = with_names(response.log_text, self.party_names)
            self.party_folder.append_log(f"{self.name}: {kind} {log_text}")
        return encode_frame(response.frame)
