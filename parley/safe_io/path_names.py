"""Check names from a peer that become part of a path: one plain name, or an error.

>>> require_plain_name("20260101-120000-count-3f2a")
'20260101-120000-count-3f2a'
>>> for lie in ("..", "/etc", "a/b", ".x", "a\\n", "", None):
...     assert not is_plain_name(lie)
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

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


def get_public_name(kind: str) -> str:
    """Return a model's name between server and parties, which is a file's name without its
    folder.
    """
    place, colon, function = kind.rpartition(":")
    return f"{Path(place).name}:{function}" if colon and place.endswith(".py") else kind


def is_own_code(kind: str) -> bool:
    """Return whether a name has the form `file.py:NAME` or `module:NAME` of the user's own code."""
    place, colon, attribute = kind.rpartition(":")
    return bool(colon and place) and attribute.isidentifier()


def compute_own_file_digest(kind: str) -> str | None:
    """Return the SHA-256 of the file with a model of the user's own code, or None without such a
    file.
    """
    place, colon, _ = kind.rpartition(":")
    file = Path(place)
    if not colon or file.suffix != ".py" or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def resolve_path(kind: str, folder: Path) -> str:
    """Return a model's name with a file's path resolved relative to `folder`."""
    place, colon, function = kind.rpartition(":")
    return f"{folder / place}:{function}" if colon and place.endswith(".py") else kind
