"""Define the totals of a run's rounds, from which its summary is built.

`rounds.jsonl` and the ledger hold the rounds. A running server keeps 24 bytes of each, so that its
memory stays flat over any number of rounds.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Self

from parley.server.records.round_line import RoundLine


@dataclass(kw_only=True)
class RoundTotals:
    """Totals of committed rounds, in order.

    Attributes:
        bytes_up, bytes_down: traffic of all rounds; see `RoundLine`.
        seconds: time of each round.
        summed: number of parties in each round's sum.
        clipped_fractions: share of clipped gradients in each round; NaN if it is not released.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))
    summed: array[int] = field(default_factory=lambda: array("q"))
    clipped_fractions: array[float] = field(default_factory=lambda: array("d"))

    @classmethod
    def from_lines(cls, lines: Iterable[RoundLine]) -> Self:
        """Return the totals of some rounds."""
        totals = cls()
        for line in lines:
            totals.add(line)
        return totals

    def copy(self) -> Self:
        """Return equal totals that change independently."""
        return deepcopy(self)

    def add(self, line: RoundLine) -> None:
        """Add the next round."""
        self.bytes_up += line.bytes_up
        self.bytes_down += line.bytes_down
        self.seconds.append(line.seconds)
        self.summed.append(line.parties.summed)
        fraction = line.clipped_fraction
        self.clipped_fractions.append(math.nan if fraction is None else fraction)
