"""What an ε stands for: its unit, its neighbouring relation, against whom it holds.

An ε without these words says nothing, so every event, plan, ledger entry and report carries
them (Dwork & Roth 2014, Definition 2.4 and section 2.3).

    >>> f"ε = 1 for one {Unit.RECORD}, {Neighbouring.REPLACE_ONE} neighbours"
    'ε = 1 for one record, replace-one neighbours'
"""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """Whose presence the guarantee hides."""

    RECORD = "record"
    """One record of one party."""

    PARTY = "party"
    """Everything that one party holds."""

    PERSON = "person"
    """All records of one person that one party holds, of which so many count."""


class Neighbouring(StrEnum):
    """Which two data sets the guarantee cannot tell apart."""

    REPLACE_ONE = "replace-one"
    """One unit has other contents; the public counts stay as they are. The default."""

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """One unit is present or absent. A replacement is two such steps."""


class Adversary(StrEnum):
    """Whom a guarantee holds against; each is stronger than the one before."""

    READERS = "readers"
    """Whoever sees what is released, everyone else honest: the server, if it adds the noise."""

    COLLUDERS = "server-and-colluders"
    """The server, and as many parties as are assumed to collude with it: their shares are known."""

    OTHERS = "all-others"
    """The server and all other parties: what is left is a party's own noise."""
