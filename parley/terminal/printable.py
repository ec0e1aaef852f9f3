"""Text of a file or a peer, as a terminal may have it.

>>> printable("a\\x1b[2Jb\\u202ec\\n")
'a?[2Jb?c\\n'
"""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]


def printable(text: str) -> str:
    """Without what would move, hide or turn around what stands on a screen; lines stay lines."""
    return "".join(
        each if each == "\n" or unicodedata.category(each)[0] != "C" else "?" for each in text
    )
