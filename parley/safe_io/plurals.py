"""The form of a noun after a number, for every text that counts something.

>>> f"{1} {noun(1, 'record')}, {2:,} {noun(2, 'party')}, {0} {noun(0, 'round')}"
'1 record, 2 parties, 0 rounds'
"""

from __future__ import annotations


def noun(count: float, singular: str) -> str:
    """Return the noun as it stands after `count`."""
    if count == 1:
        return singular
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
