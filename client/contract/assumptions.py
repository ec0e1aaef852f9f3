"""What an ε rests on beyond its proof: one sentence for each such thing, said wherever the ε is.

A contribution that is exact by construction (`parley.privacy.sensitivity`) rests on nothing here.
What all releases rest on (that noise is drawn as its law says, that parties follow the protocol,
Python and its libraries) stands in docs/privacy-proof.md.

    >>> select_assumptions(Unit.RECORD, [OWN_FEATURE_MAP])
    ('your own features code makes a row of its record alone: tried on this machine, not proved',)
    >>> select_assumptions(Unit.PARTY, [OWN_FEATURE_MAP, OWN_CLAIM])
    ('a sum of your own moves by no more than its code claims: its author says so',)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from parley.privacy.accounting.threat_model import Unit

BATCH_INVARIANCE: Final = (
    "a record's gradient does not depend on its company: tried on this machine, not proved"
)
"""Of networks that torch computes, several records at a time."""

SOLVER_CONVERGENCE: Final = (
    "every party's solver reaches its certificate, whatever its records are: tried, not proved"
)
"""Of local optima."""

OWN_FEATURE_MAP: Final = (
    "your own features code makes a row of its record alone: tried on this machine, not proved"
)
"""Of one's own map of records."""

OWN_NETWORK: Final = (
    "your own network says of a record what it says of it alone: tried on this machine, not proved"
)
"""Of held-out records, of which one's own network is asked one at a time."""

OWN_CLAIM: Final = "a sum of your own moves by no more than its code claims: its author says so"
"""Of one's own algorithm."""

PERSON_IDENTIFIERS: Final = (
    "a person's rows are those with one identifier: the data's owner says so"
)
"""Of unit person."""

BLOCK_MEMBERSHIP: Final = (
    "a record that is replaced stays in its block, which is public: the data's owner says so"
)
"""Of a job that reads some blocks of the records, under replace-one."""

SERVER_SELECTION: Final = "the server adds the scores up and shows nothing but what it chose"
"""Of a choice by exact scores."""

LOCAL_REPORTS: Final = (
    "a record's report is drawn by its party from new coins; nothing else is sent"
)
"""Of randomised response."""

_PARTY_ASSUMPTIONS: Final = frozenset({OWN_CLAIM, SERVER_SELECTION})
"""What a guarantee of unit party rests on too: all that a party sends is clipped as a whole."""

_PUBLIC_SCHEMA: Final = "the schema is public"


def format_draft_assumption(source: str) -> str:
    """Return the assumption of a drafted schema: a guarantee of any unit rests on it.

    Args:
        source: name of what the schema was read from.
    """
    return f"{_PUBLIC_SCHEMA} (drafted from {source}, not reviewed)"


def list_query_assumptions(
    unit: Unit, *, reported: bool, chosen: bool = False, draft: str = ""
) -> tuple[str, ...]:
    """Return those of a batch of queries, whose sums are of whole numbers.

    Args:
        draft: the assumption of a drafted schema; empty if the schema is none.
    """
    said = {
        PERSON_IDENTIFIERS: unit is Unit.PERSON,
        LOCAL_REPORTS: reported,
        SERVER_SELECTION: chosen,
        draft: draft != "",
    }
    return tuple(each for each, holds in said.items() if holds)


def select_assumptions(unit: Unit, assumptions: Iterable[str]) -> tuple[str, ...]:
    """Those that the guarantee of a unit rests on, each once."""
    if unit is Unit.PARTY:
        assumptions = (
            each
            for each in assumptions
            if each in _PARTY_ASSUMPTIONS or each.startswith(_PUBLIC_SCHEMA)
        )
    return tuple(dict.fromkeys(filter(None, assumptions)))


def build_assumptions_fact(unit: Unit, assumptions: Iterable[str]) -> dict[str, list[str]]:
    """What a ledger keeps of them: nothing where there are none."""
    found = select_assumptions(unit, assumptions)
    return {"assumptions": list(found)} if found else {}
