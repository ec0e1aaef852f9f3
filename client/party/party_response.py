"""The one way out of a party's process: what is public, or what a charge on the disk has paid for.

Whatever a party says, to a server or in its log, is one of two things:

- `Public`: a function of the request, the policy, the ledger and public facts
  (`parley.client.party.dataset_loader.Facts`). The code that makes one is never given a record;
  data that cannot be read are one reason and one line, whatever is wrong, and a computation never
  fails.
- `Released`: masked bytes that a contribution is in, and the `Receipt` that its charge is on the
  disk, which nothing but the ledger's commit mints.

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
    Frame,
    Reason,
    answer,
    encode_frame,
    refusal,
)
from parley.client.contract.roster import with_names
from parley.client.party.party_folder import Keeper
from parley.client.party.release_charge import Receipt


@dataclass(frozen=True, kw_only=True)
class Public:
    """An answer that no record had a part in."""

    frame: Frame
    said: str = "ok"

    @classmethod
    def answer(cls, head: Mapping[str, Any] | None = None, blobs: tuple[bytes, ...] = ()) -> Public:
        """An ok answer."""
        return cls(frame=answer(head, blobs))

    @classmethod
    def declined(cls, declined: Declined) -> Public:
        """A refusal: its reason leaves the machine, its detail is for the log."""
        return cls(frame=refusal(declined.reason), said=f"refused {declined}")

    @classmethod
    def error(cls, what: str) -> Public:
        """A refusal for what went wrong where there was no record."""
        return cls.declined(Declined(Reason.ERROR, what))


@dataclass(frozen=True, kw_only=True)
class Released:
    """An answer with a masked contribution."""

    said: ClassVar[str] = "ok"  # in the log

    receipt: Receipt
    blobs: tuple[bytes, ...]

    @property
    def frame(self) -> Frame:
        """What is sent: of a length that plan and protocol decide."""
        return answer(blobs=self.blobs)


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Where a party's answers and lines leave."""

    keeper: Keeper
    name: str
    names: list[str]

    def send(self, kind: str, leaving: Public | Released) -> bytes:
        """The bytes of an answer to a request of a kind, with its line in the log."""
        with suppress(OSError):  # a full disk must not keep an answer back
            self.keeper.log(f"{self.name}: {kind} {with_names(leaving.said, self.names)}")
        return encode_frame(leaving.frame)
