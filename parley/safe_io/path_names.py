"""Check names from a peer that become part of a path: one plain name, or an error.

>>> require_plain_name("20260101-120000-count-3f2a")
'20260101-120000-count-3f2a'
>>> for lie in ("..", "/etc", "a/b", ".x", "a\\n", "", None):
...     assert not is_plain_name(lie)
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class InvalidName(ValueError):
    """A peer's text that is not a plain name. The message contains the text, truncated."""


def is_plain_name(name: object) -> bool:
    """Return whether a name has 1 to 128 letters, digits, `.`, `_` and `-`, with no sign first."""
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def require_plain_name(name: object) -> str:
    """Return the name, which is one entry of a folder when joined to it; raise InvalidName if not
    plain.
    """
    if not isinstance(name, str) or not is_plain_name(name):
        raise InvalidName(
            "Expected a name of 1 to 128 letters, digits, '.', '_' and '-', the first a letter or "
            f"digit, got {name!r:.130}."
        )
    return name
