"""The shares of coming rounds, as the server keeps them until the round's plan takes them along."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import Shares
from parley.secure_agg.outcome import ENVELOPE_BYTES


@dataclass(kw_only=True, repr=False)
class Dealt:
    """Sealed shares, by round and party.

    Attributes:
        near: present neighbours by party that joined.
    """

    near: dict[int, list[int]]
    _rounds: dict[int, dict[int, Shares]] = field(default_factory=dict)

    def take(self, message: Shares) -> None:
        """Keeps a party's shares of a round.

        Raises:
            RemoteProtocolError: it did not join, dealt them before, or not to each neighbour.
        """
        sender, kept = message.sender, self._rounds.setdefault(message.round_number, {})
        if sender not in self.near:
            raise RemoteProtocolError(f"Expected shares of a joined party, got party {sender}.")
        if sender in kept:
            raise RemoteProtocolError(f"Expected one Shares of party {sender}, got two.")
        if len(message.envelopes) != ENVELOPE_BYTES * len(self.near[sender]):
            raise RemoteProtocolError(
                f"Expected {len(self.near[sender])} envelopes of party {sender}, got "
                f"{len(message.envelopes) // ENVELOPE_BYTES}."
            )
        kept[sender] = message

    def of(self, number: int) -> dict[int, Shares]:
        """What was dealt for a round."""
        return self._rounds.get(number, {})

    def forget(self, number: int) -> None:
        """Drops what was dealt for a round and those before it."""
        self._rounds = {n: kept for n, kept in self._rounds.items() if n > number}
