"""What an ε stands for: its unit, its neighbouring relation, against whom it holds.

An ε without these words says nothing, so every event, plan, ledger entry and report carries
them (Dwork & Roth 2014, Definition 2.4 and section 2.3).

    >>> f"ε = 1 for one {Unit.RECORD}, {Neighbouring.REPLACE_ONE} neighbours"
    'ε = 1 for one record, replace-one neighbours'

Also here: where noise is added: one row a noise point, which states what everybody else asks of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Unit(StrEnum):
    """Whose presence the guarantee hides."""

    RECORD = "record"
    """One record of one party."""

    PARTY = "party"
    """Everything that one party holds."""

    PERSON = "person"
    """All records of one person that one party holds, of which so many count."""

    @property
    def words(self) -> str:
        """What is protected."""
        return "everything that one party holds" if self is Unit.PARTY else f"one {self}"

    @property
    def plural(self) -> str:
        """In the plural."""
        return "parties" if self is Unit.PARTY else f"{self}s"


class Neighbouring(StrEnum):
    """Which two data sets the guarantee cannot tell apart."""

    REPLACE_ONE = "replace-one"
    """One unit has other contents; the public counts stay as they are. The default."""

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """One unit is present or absent. A replacement is two such steps."""

    @property
    def words(self) -> str:
        """What is done to one unit."""
        return "replacing" if self is Neighbouring.REPLACE_ONE else "adding or removing"

    @property
    def radii(self) -> int:
        """How far one unit moves a sum of vectors of a ball, in the ball's radius."""
        return 2 if self is Neighbouring.REPLACE_ONE else 1


class _WordedEnum(StrEnum):
    """A name with its words after "against"; the `short` ones stand where there is little room."""

    short: str
    words: str

    def __new__(cls, name: str, short: str = "", words: str = "") -> Self:
        """A member: `words` are those of `short` where none are given."""
        member = str.__new__(cls, name)
        member._value_, member.short, member.words = name, short, words or short
        return member


class Adversary(_WordedEnum):
    """Whom a guarantee holds against; each is stronger than the one before."""

    READERS = (
        "readers",
        "whoever sees what was released",
        "whoever sees what was released, if everyone else is honest",
    )
    """Whoever sees what is released, everyone else honest: the server, if it adds the noise."""

    COLLUDERS = (
        "server-and-colluders",
        "the server and those who collude with it",
        "the server and the parties that may collude with it",
    )
    """The server, and as many parties as are assumed to collude with it: their shares are known."""

    OTHERS = "all-others", "the server and all other parties"
    """The server and all other parties: what is left is a party's own noise."""

    def list_at_least_as_strong(self) -> tuple[Adversary, ...]:
        """It and those who know all that it does: what holds against them holds against it."""
        return tuple(Adversary)[list(Adversary).index(self) :]


class SampledAdversary(_WordedEnum):
    """The charged adversary with what it knows, where a coin says which rounds a party is in."""

    KNOWN = "attendance-known", "the same, who also know which rounds a party was in"
    HIDDEN = "attendance-hidden", "the same, if they don't know which rounds a party was in"
    EITHER = (
        "attendance-either",
        "the same, whether they know which rounds a party was in or not",
    )


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
    def is_locally_private(self) -> bool:
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

PARTY_NOISE_POINT = NOISE_POINTS["party"]
"""Where noise is that lies in a party's training, in its objective, or in its records' reports."""


def get_noise_point(name: object) -> NoisePoint:
    """The row of that name; ValueError where there is none."""
    if isinstance(name, str) and name in NOISE_POINTS:
        return NOISE_POINTS[name]
    raise ValueError(f"Expected a noise point of {', '.join(NOISE_POINTS)}.")


def find_noise_point(name: str) -> NoisePoint:
    """The row of that name; of a point that is not registered here, one that claims nothing."""
    seen = "what the run released"
    unknown = NoisePoint(name=name, adversary=Adversary.READERS, added_by=name, server_sees=seen)
    return NOISE_POINTS.get(name, unknown)
