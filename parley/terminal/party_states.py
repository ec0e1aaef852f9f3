"""Format the states of the parties of a run: online, waiting for approval, declined and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

_MAX_PARTIES_SHOWN = 5
_WAITING_WORDS = {"offline": "waiting for ", "waiting for approval": "waiting for the approval of "}
"""State of a party that a run waits for → the words for parties in it."""


def format_states(parties: Sequence[Mapping[str, str]]) -> str:
    """Return the state of each of a few parties, or how many are in each state."""
    if len(parties) <= _MAX_PARTIES_SHOWN:
        return ", ".join(map(format_state, parties))
    counts = Counter(party["state"] for party in parties)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def format_state(party: Mapping[str, str]) -> str:
    """Return a party's name and state, and the reason if it declined."""
    reason = f" ({party['reason']})" if party["reason"] else ""
    return f"{party['name']} {party['state']}{reason}"


def format_waiting(parties: Sequence[Mapping[str, str]]) -> str:
    """Return the parties that a run waits for, as "waiting for west", or an empty text.

    >>> format_waiting([{"name": "west", "state": "offline"}, {"name": "east", "state": "online"}])
    'waiting for west'
    """
    found = []
    for state, words_before in _WAITING_WORDS.items():
        names = [party["name"] for party in parties if party["state"] == state]
        if names:
            left = len(names) - _MAX_PARTIES_SHOWN
            more = f" and {left} more" if left > 0 else ""
            found.append(f"{words_before}{', '.join(names[:_MAX_PARTIES_SHOWN])}{more}")
    return "; ".join(found)
