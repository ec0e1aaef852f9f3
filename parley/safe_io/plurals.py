"""Return the form of a noun after a number, for all texts that count something.

>>> format_noun(1, "record"), format_noun(2, "party"), format_noun(0, "round")
('record', 'parties', 'rounds')
"""

from __future__ import annotations


def format_noun(count: float, singular: str) -> str:
    """Return the form of a noun after `count`."""
    if count == 1:
        return singular
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
