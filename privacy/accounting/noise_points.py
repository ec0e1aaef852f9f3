"""Where noise is added: one row a noise point, which states what everybody else asks of it.

>>> share = NOISE_POINTS["share"]
>>> str(share), str(share.adversary), share.in_contributions, share.divided
('share', 'server-and-colluders', True, True)
>>> share.split(least=8, colluders=1), NOISE_POINTS["party"].split(least=8, colluders=1)
((8, 1), (1, 0))
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.privacy.accounting.guarantee import Adversary


@dataclass(frozen=True, kw_only=True)
class NoisePoint:
    """Where the noise is added, that is, who holds the sum without it.

    Attributes:
        adversary: whom a guarantee by noise that is added there holds against.
        in_contributions: every party draws noise and adds it before it masks, so that nobody ever
            holds the bare sum; else whoever opens the sum adds the noise to it.
        divided: what a party draws is a part, and the honest parties' parts are the whole noise.
        added_by: who adds it, in words.
        server_sees: what the server holds of a round, in words.
        sentence: where it is added.
        holds: whom the guarantee holds against, as a sentence.
        dropouts: what parties that drop out change, as a sentence.
    """

    name: str
    adversary: Adversary
    in_contributions: bool = False
    divided: bool = False
    added_by: str
    server_sees: str
    sentence: str = ""
    holds: str = ""
    dropouts: str = ""

    def __post_init__(self) -> None:
        if self.divided and not self.in_contributions:
            raise ValueError(f"Expected noise that is divided to be drawn by parties: {self.name}.")
        strength = list(Adversary).index
        if strength(self.adversary) > strength(self._strongest):
            raise ValueError(
                f"Expected noise point {self.name} to hold against {self._strongest} at most, got "
                f"{self.adversary}."
            )

    @property
    def _strongest(self) -> Adversary:
        """Who opens a sum and adds its noise knows the sum; who gives its part away, that part."""
        if not self.in_contributions:
            return Adversary.READERS
        return Adversary.COLLUDERS if self.divided else Adversary.OTHERS

    @property
    def private_alone(self) -> bool:
        """Whether what one party sends is private by itself: it has all of the noise."""
        return self.in_contributions and not self.divided

    def split(self, *, least: int, colluders: int) -> tuple[int, int]:
        """Of how many contributions the noise must be whole, and how many of them collude."""
        return (least, colluders) if self.divided else (1, 0)

    def __str__(self) -> str:
        return self.name


NOISE_POINTS: dict[str, NoisePoint] = {
    point.name: point
    for point in (
        NoisePoint(
            name="server",
            adversary=Adversary.READERS,
            added_by="a trusted server, which sees the sum before it adds it",
            server_sees="the bare sum of each round, before it adds the noise",
            sentence="The server adds it once a round, to the integer sum, before it decodes "
            "anything.",
            holds="The noise is added where the sum is: for a moment the server holds the sum "
            "without noise. The guarantee is against everyone who sees the models, not against a "
            "server that looks at, keeps or passes on that sum, or adds less noise than agreed.",
            dropouts="The noise on the sum doesn't depend on who dropped out: with fewer parties "
            "in the sum the average is noisier, never less private.",
        ),
        NoisePoint(
            name="share",
            adversary=Adversary.COLLUDERS,
            in_contributions=True,
            divided=True,
            added_by="the parties, each a share of it before it masks",
            server_sees="masked integers of each party; of each round the sum with all shares of "
            "the noise",
            sentence="Each party adds a share of it, so that nobody ever holds the bare sum.",
            holds="Enough parties are honest: each adds its share of the noise, and the shares of "
            "the least number of honest survivors make up the whole.",
        ),
        NoisePoint(
            name="party",
            adversary=Adversary.OTHERS,
            in_contributions=True,
            added_by="each party",
            server_sees="masked integers of each party; sums of contributions that carry noise "
            "already",
            sentence="Each party adds it to its own contribution, before that leaves.",
            holds="Each party adds its own noise, so the guarantee holds against the server too.",
        ),
    )
}
"""Name → noise point. server: added to the opened sum; share: by every party a part of it; party:
by every party all of it (local DP)."""

INSIDE = NOISE_POINTS["party"]
"""Where noise is that lies in a party's training, in its objective, or in its records' reports."""


def noise_point(name: object) -> NoisePoint:
    """The row of that name; ValueError where there is none."""
    if isinstance(name, str) and name in NOISE_POINTS:
        return NOISE_POINTS[name]
    raise ValueError(f"Expected a noise point of {', '.join(NOISE_POINTS)}.")


def point_named(name: str) -> NoisePoint:
    """The row of that name; of a point that is not registered here, one that claims nothing."""
    seen = "what the run released"
    unknown = NoisePoint(name=name, adversary=Adversary.READERS, added_by=name, server_sees=seen)
    return NOISE_POINTS.get(name, unknown)
