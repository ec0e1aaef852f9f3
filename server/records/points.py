"""How a noise point is explained: one row a point, for terminal, report and model metadata.

A point without a row goes by its name, and by what its noise point says. A summary may name a
point that is not registered here: of that nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parley.privacy.accounting.noise_points import NOISE_POINTS


@dataclass(frozen=True, kw_only=True)
class PointWords:
    """What is said of noise by where it is added.

    Attributes:
        added_by: who adds it.
        server_sees: what the server holds of a round.
        sentence: where it is added, as a sentence.
        holds: whom the guarantee holds against, as a sentence; empty: nothing is said.
        dropouts: what parties that drop out change, as a sentence.
    """

    added_by: str
    server_sees: str
    sentence: str = ""
    holds: str = ""
    dropouts: str = ""


POINTS: Final[dict[str, PointWords]] = {
    "server": PointWords(
        added_by="a trusted server, which sees the sum before it adds it",
        server_sees="the bare sum of each round, before it adds the noise",
        sentence="The server adds it once a round, to the integer sum, before it decodes anything.",
        holds="The noise is added where the sum is: for a moment the server holds the sum "
        "without noise. The guarantee is against everyone who sees the models, not against a "
        "server that looks at, keeps or passes on that sum, or adds less noise than agreed.",
        dropouts="The noise on the sum doesn't depend on who dropped out: with fewer parties in "
        "the sum the average is noisier, never less private.",
    ),
    "share": PointWords(
        added_by="the parties, each a share of it before it masks",
        server_sees="masked integers of each party; of each round the sum with all shares of the "
        "noise",
        sentence="Each party adds a share of it, so that nobody ever holds the bare sum.",
        holds="Enough parties are honest: each adds its share of the noise, and the shares of "
        "the least number of honest survivors make up the whole.",
    ),
    "party": PointWords(
        added_by="each party",
        server_sees="masked integers of each party; sums of contributions that carry noise already",
        sentence="Each party adds it to its own contribution, before that leaves.",
        holds="Each party adds its own noise, so the guarantee holds against the server too.",
    ),
}
"""Noise point → its words."""


def point_words(name: str) -> PointWords:
    """The words of a noise point; of one without a row, its name."""
    if name in POINTS:
        return POINTS[name]
    point, seen = NOISE_POINTS.get(name), "what the run released"
    if point is not None:
        like = "share" if point.in_contributions else "server"
        seen = POINTS[like].server_sees
    return PointWords(added_by=name, server_sees=seen)


def private_alone(name: str) -> bool:
    """Whether noise that is added there makes what one party sends private by itself."""
    return name in NOISE_POINTS and NOISE_POINTS[name].private_alone


def account_of_server(name: str) -> str:
    """The account that bounds what a curious server learns; empty: none does."""
    point = NOISE_POINTS.get(name)
    return str(point.adversary) if point is not None and point.in_contributions else ""
