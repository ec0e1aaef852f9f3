"""The meaning of an ε: its unit, its neighbouring relation, and the adversary it holds against.

An ε is meaningless without these, so every event, plan, ledger entry and report carries them (Dwork
& Roth 2014, Definition 2.4 and section 2.3).

    >>> f"ε = 1 for one {Unit.RECORD}, {Neighbouring.REPLACE_ONE} neighbours"
    'ε = 1 for one record, replace-one neighbours'

The module also defines the noise points: one row for each place where noise can be added, with the
facts that other modules need about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Unit(StrEnum):
    """The unit that the guarantee hides."""

    RECORD = "record"
    """One record of one party."""

    PARTY = "party"
    """All data that one party holds."""

    PERSON = "person"
    """All records of one person at one party, up to a limited number of records."""

    @property
    def words(self) -> str:
        """The protected unit, in words."""
        return "everything that one party holds" if self is Unit.PARTY else f"one {self}"

    @property
    def plural(self) -> str:
        """The plural of the unit's name."""
        return "parties" if self is Unit.PARTY else f"{self}s"


class Neighbouring(StrEnum):
    """The relation between two data sets that the guarantee makes hard to distinguish."""

    REPLACE_ONE = "replace-one"
    """One unit has other contents; the public counts stay the same. The default."""

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """One unit is present or absent. A replacement counts as two such steps."""

    @property
    def words(self) -> str:
        """The change to one unit, in words."""
        return "replacing" if self is Neighbouring.REPLACE_ONE else "adding or removing"

    @property
    def radii(self) -> int:
        """How far one unit moves a sum of vectors from a ball, in units of its radius."""
        return 2 if self is Neighbouring.REPLACE_ONE else 1


class _WordedEnum(StrEnum):
    """A name with its text after "against"; the `short` text is for places with little room."""

    short: str
    words: str

    def __new__(cls, name: str, short: str = "", words: str = "") -> Self:
        """Create a member; `words` default to `short`."""
        member = str.__new__(cls, name)
        member._value_, member.short, member.words = name, short, words or short
        return member


class Adversary(_WordedEnum):
    """The adversary that a guarantee holds against; each is stronger than the one before."""

    READERS = (
        "readers",
        "anyone who sees what was released",
        "anyone who sees what was released, if everyone else is honest",
    )
    """Readers of the releases, if everyone else is honest, such as a server that adds the noise."""

    COLLUDERS = (
        "server-and-colluders",
        "the server and those who collude with it",
        "the server and the parties that may collude with it",
    )
    """The server and the assumed number of colluding parties: their noise shares are known."""

    OTHERS = "all-others", "the server and all other parties"
    """The server and all other parties: only the party's own noise protects it."""

    def list_at_least_as_strong(self) -> tuple[Adversary, ...]:
        """Return this adversary and all stronger ones.

        A guarantee against any of these holds against this adversary, too.
        """
        return tuple(Adversary)[list(Adversary).index(self) :]


class SampledAdversary(_WordedEnum):
    """The charged adversary and its knowledge, if a coin decides which rounds a party is in."""

    KNOWN = "attendance-known", "the same, who also know which rounds a party was in"
    HIDDEN = "attendance-hidden", "the same, if they don't know which rounds a party was in"
    EITHER = ("attendance-either", "the same, whether they know which rounds a party was in or not")


@dataclass(frozen=True, kw_only=True)
class NoisePoint:
    """Where the noise is added, which decides who holds the sum without it.

    Attributes:
        adversary: the adversary that a guarantee by noise at this point holds against.
        in_contributions: if true, every party draws noise and adds it before masking, so no
            participant ever holds the bare sum. Otherwise the one who opens the sum adds the noise
            to it.
        divided: if true, a party draws one part, and the honest parties' parts make up the whole
            noise.
        added_by: who adds the noise, in words.
        server_sees: what the server holds of a round, in words.
        sentence: where the noise is added.
        holds: the adversary the guarantee holds against, as a sentence.
        dropouts: the effect of parties that drop out, as a sentence.
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
            raise ValueError(f"Expected divided noise to be drawn by parties, got {self.name}.")
        strength = list(Adversary).index
        if strength(self.adversary) > strength(self._strongest):
            raise ValueError(
                f"Expected noise point {self.name} to hold against {self._strongest} at most, got "
                f"{self.adversary}."
            )

    @property
    def _strongest(self) -> Adversary:
        """Strongest adversary that the point's noise can hold against.

        The server that opens a sum and adds its noise knows the sum. A party that colludes reveals
        its part of the noise.
        """
        if not self.in_contributions:
            return Adversary.READERS
        return Adversary.COLLUDERS if self.divided else Adversary.OTHERS

    @property
    def is_locally_private(self) -> bool:
        """Whether a single party's message is private by itself: it has all of the noise."""
        return self.in_contributions and not self.divided

    def split(self, *, least: int, colluders: int) -> tuple[int, int]:
        """Return how many contributions must contain the whole noise, and how many collude."""
        return (least, colluders) if self.divided else (1, 0)

    def __str__(self) -> str:
        return self.name


NOISE_POINTS: dict[str, NoisePoint] = {
    point.name: point
    for point in (
        NoisePoint(
            name="server",
            adversary=Adversary.READERS,
            added_by="a trusted server, which sees the sum before it adds the noise",
            server_sees="the bare sum of each round, before it adds the noise",
            sentence="The server adds the noise once per round, to the integer sum, before "
            "decoding it.",
            holds="The server adds the noise, so for a moment it holds the sum without noise. The "
            "guarantee holds against everyone who sees the models, not against a server that looks "
            "at, keeps or passes on that sum, or adds less noise than agreed.",
            dropouts="The noise on the sum doesn't depend on which parties dropped out: with fewer "
            "parties in the sum the average is noisier, never less private.",
        ),
        NoisePoint(
            name="share",
            adversary=Adversary.COLLUDERS,
            in_contributions=True,
            divided=True,
            added_by="the parties: each adds a share before masking",
            server_sees="masked integers of each party; the sum of each round with all shares of "
            "the noise",
            sentence="Each party adds a share of the noise, so no one ever holds the bare sum.",
            holds="Enough parties are honest: each adds its share of the noise, and the shares of "
            "the minimum number of honest survivors make up all of it.",
        ),
        NoisePoint(
            name="party",
            adversary=Adversary.OTHERS,
            in_contributions=True,
            added_by="each party",
            server_sees="masked integers of each party; sums of contributions that already "
            "contain noise",
            sentence="Each party adds the noise to its own contribution before sending it.",
            holds="Each party adds its own noise, so the guarantee holds against the server too.",
        ),
    )
}
"""Name → noise point.

server: added to the opened sum. share: every party adds a part of it. party: every party adds all
of it (local DP).
"""

PARTY_NOISE_POINT = NOISE_POINTS["party"]
"""Noise point for noise inside a party's training, in its objective, or in its records' reports."""


def get_noise_point(name: object) -> NoisePoint:
    """Return the noise point with that name; raise ValueError if there is none."""
    if isinstance(name, str) and name in NOISE_POINTS:
        return NOISE_POINTS[name]
    raise ValueError(f"Expected a noise point of {', '.join(NOISE_POINTS)}.")


def find_noise_point(name: str) -> NoisePoint:
    """Return the noise point with that name; if it is not registered, one that claims nothing."""
    seen = "what the run released"
    unknown = NoisePoint(name=name, adversary=Adversary.READERS, added_by=name, server_sees=seen)
    return NOISE_POINTS.get(name, unknown)
