"""What an ε stands for: its unit, its neighbouring relation, against whom it holds.

An ε without these words says nothing, so every event, plan, ledger entry and report carries
them (Dwork & Roth 2014, Definition 2.4 and section 2.3).

    >>> f"ε = 1 for one {Unit.RECORD}, {Neighbouring.REPLACE_ONE} neighbours"
    'ε = 1 for one record, replace-one neighbours'
"""

from __future__ import annotations

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


class _Worded(StrEnum):
    """A name with its words after "against"; the `short` ones stand where there is little room."""

    short: str
    words: str

    def __new__(cls, name: str, short: str = "", words: str = "") -> Self:
        """A member: `words` are those of `short` where none are given."""
        member = str.__new__(cls, name)
        member._value_, member.short, member.words = name, short, words or short
        return member


class Adversary(_Worded):
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

    def and_stronger(self) -> tuple[Adversary, ...]:
        """It and those who know all that it does: what holds against them holds against it."""
        return tuple(Adversary)[list(Adversary).index(self) :]


class Attendance(_Worded):
    """The charged adversary with what it knows, where a coin says which rounds a party is in."""

    KNOWN = "attendance-known", "the same, who also know which rounds a party was in"
    HIDDEN = "attendance-hidden", "the same, if they don't know which rounds a party was in"
    EITHER = (
        "attendance-either",
        "the same, whether they know which rounds a party was in or not",
    )
