"""How a noise point is explained: one row a point, for terminal, report and model metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["POINTS", "PointWords", "point_words"]


@dataclass(frozen=True, kw_only=True)
class PointWords:
    """What is said of noise by where it is added.

    Attributes:
        added_by: who adds it.
        server_sees: what the server holds of a round.
        sentence: where it is added, as a sentence.
        holds: whom the guarantee holds against, as a sentence; empty: nothing is said.
        server_account: the account that bounds what a curious server learns; empty: none does.
    """

    added_by: str
    server_sees: str
    sentence: str = ""
    holds: str = ""
    server_account: str = ""


POINTS: Final[dict[str, PointWords]] = {
    "server": PointWords(
        added_by="a trusted server, which sees the sum before it adds it",
        server_sees="the bare sum of each round, before it adds the noise",
        sentence="The server adds it once a round, to the integer sum, before it decodes anything.",
        holds="The noise is added where the sum is: for a moment the server holds the sum "
        "without noise. The guarantee is against everyone who sees the models, not against a "
        "server that looks at, keeps or passes on that sum, or adds less noise than agreed.",
    ),
    "share": PointWords(
        added_by="the parties, each a share of it before it masks",
        server_sees="masked integers of each party; of each round the sum with all shares of the "
        "noise",
        sentence="Each party adds a share of it, so that nobody ever holds the bare sum.",
        holds="Enough parties are honest: each adds its share of the noise, and the shares of "
        "the least number of honest survivors make up the whole.",
        server_account="server-and-colluders",
    ),
    "party": PointWords(
        added_by="each party",
        server_sees="masked integers of each party; sums of contributions that carry noise already",
        sentence="Each party adds it to its own contribution, before that leaves.",
        holds="Each party adds its own noise, so the guarantee holds against the server too.",
        server_account="all-others",
    ),
}
"""Noise point → its words."""


def point_words(point: str) -> PointWords:
    """The words of a noise point; of one without a row, its name."""
    return POINTS.get(point, PointWords(added_by=point, server_sees="what the run released"))
