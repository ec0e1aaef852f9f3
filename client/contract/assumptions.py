"""The assumptions that an ε rests on beyond its proof, one sentence each, shown next to every ε.

A contribution that is exact by construction (`parley.privacy.sensitivity`) needs none of these. The
assumptions of every release are in docs/privacy-proof.md: noise follows its distribution, parties
follow the protocol, Python and its libraries are correct.

    >>> select_assumptions(Unit.RECORD, [OWN_FEATURE_MAP])
    ('your own features code maps each record by itself: tested on this machine, not proved',)
    >>> select_assumptions(Unit.PARTY, [OWN_FEATURE_MAP, OWN_CLAIM])
    ('your own sum moves by at most what its code claims: stated by its author',)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from parley.privacy.accounting.threat_model import Unit

BATCH_INVARIANCE: Final = (
    "a record's gradient does not depend on other records: tested on this machine, not proved"
)
"""Assumption for networks that torch computes on several records at a time."""

SOLVER_CONVERGENCE: Final = (
    "every party's solver reaches its certified gradient norm for all records: tested, not proved"
)
"""Assumption for local optima."""

OWN_FEATURE_MAP: Final = (
    "your own features code maps each record by itself: tested on this machine, not proved"
)
"""Assumption for a user's own feature map."""

OWN_NETWORK = "your own network predicts each record by itself: tested on this machine, not proved"
"""Assumption for held-out records, which a user's own network predicts one at a time."""

OWN_CLAIM: Final = "your own sum moves by at most what its code claims: stated by its author"
"""Assumption for a user's own algorithm."""

PERSON_IDENTIFIERS: Final = (
    "a person's rows are exactly those with one identifier: stated by the data's owner"
)
"""Assumption for unit person."""

BLOCK_MEMBERSHIP: Final = (
    "a replaced record stays in its block, which is public: stated by the data's owner"
)
"""Assumption for a job that reads some blocks of the records, under replace-one."""

SERVER_SELECTION: Final = "the server adds up the scores and shows only its selection"
"""Assumption for a selection by exact scores."""

LOCAL_REPORTS = "each party draws its records' reports from fresh coins and sends nothing else"
"""Assumption for randomised response."""

_PARTY_ASSUMPTIONS: Final = frozenset({OWN_CLAIM, SERVER_SELECTION})
"""Assumptions that also apply to a guarantee of unit party. All that a party sends is clipped as a
whole.
"""

_PUBLIC_SCHEMA: Final = "the schema is public"


def format_draft_assumption(source: str) -> str:
    """Return the assumption of a drafted schema. A guarantee of any unit rests on it.

    Args:
        source: name of the input that the schema was inferred from.
    """
    return f"{_PUBLIC_SCHEMA} (drafted from {source}, not reviewed)"


def list_query_assumptions(
    unit: Unit, *, reported: bool, chosen: bool = False, draft: str = ""
) -> tuple[str, ...]:
    """Return the assumptions of a batch of queries. The batch's sums are sums of integers.

    Args:
        draft: the assumption of a drafted schema; empty if the schema is not a draft.
    """
    said = {
        PERSON_IDENTIFIERS: unit is Unit.PERSON,
        LOCAL_REPORTS: reported,
        SERVER_SELECTION: chosen,
        draft: draft != "",
    }
    return tuple(each for each, holds in said.items() if holds)


def select_assumptions(unit: Unit, assumptions: Iterable[str]) -> tuple[str, ...]:
    """Return the assumptions that the guarantee of a unit rests on, each once."""
    if unit is Unit.PARTY:
        assumptions = (
            a for a in assumptions if a in _PARTY_ASSUMPTIONS or a.startswith(_PUBLIC_SCHEMA)
        )
    return tuple(dict.fromkeys(filter(None, assumptions)))


def build_assumptions_fact(unit: Unit, assumptions: Iterable[str]) -> dict[str, list[str]]:
    """Return the assumptions as a ledger fact; empty if there are none."""
    found = select_assumptions(unit, assumptions)
    return {"assumptions": list(found)} if found else {}
