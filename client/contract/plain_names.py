"""Names that come from a peer and become part of a path: one plain name, or they are refused.

>>> plain_name("20260101-120000-count-3f2a")
'20260101-120000-count-3f2a'
>>> for lie in ("..", "/etc", "a/b", ".x", "a\\n", "", None):
...     assert not is_plain(lie)
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class NameRefused(ValueError):
    """What a peer gave as a name is none; what it said is in the message, cut."""


def is_plain(name: object) -> bool:
    """Whether it is 1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit."""
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def plain_name(name: object) -> str:
    """The name, which joined to a folder is one entry of that folder."""
    if not isinstance(name, str) or not is_plain(name):
        raise NameRefused(
            "Expected a name of 1 to 128 letters, digits, '.', '_' and '-', the first a letter or "
            f"digit, got {name!r:.130}."
        )
    return name
