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
    """

    name: str
    adversary: Adversary
    in_contributions: bool = False
    divided: bool = False

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
        NoisePoint(name="server", adversary=Adversary.READERS),
        NoisePoint(
            name="share", adversary=Adversary.COLLUDERS, in_contributions=True, divided=True
        ),
        NoisePoint(name="party", adversary=Adversary.OTHERS, in_contributions=True),
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
