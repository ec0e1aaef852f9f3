"""Names that come from a peer and become part of a path: one plain name, or they are refused.

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
    """What a peer gave as a name is none; what it said is in the message, cut."""


def is_plain_name(name: object) -> bool:
    """Whether it is 1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit."""
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def require_plain_name(name: object) -> str:
    """The name, which joined to a folder is one entry of that folder."""
    if not isinstance(name, str) or not is_plain_name(name):
        raise InvalidName(
            "Expected a name of 1 to 128 letters, digits, '.', '_' and '-', the first a letter or "
            f"digit, got {name!r:.130}."
        )
    return name


def get_public_name(kind: str) -> str:
    """The name under which server and parties speak of a model: of a file without its folder."""
    place, colon, function = kind.rpartition(":")
    return f"{Path(place).name}:{function}" if colon and place.endswith(".py") else kind


def is_own_code(kind: str) -> bool:
    """Whether it has the form `file.py:NAME` or `module:NAME`, of code of your own."""
    place, colon, attribute = kind.rpartition(":")
    return bool(colon and place) and attribute.isidentifier()


def compute_own_file_digest(kind: str) -> str | None:
    """SHA-256 of the file that a model of your own code is in; None where there is no such file."""
    place, colon, _ = kind.rpartition(":")
    file = Path(place)
    if not colon or file.suffix != ".py" or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def resolve_path(kind: str, folder: Path) -> str:
    """The same model, where a file is meant from `folder` on."""
    place, colon, function = kind.rpartition(":")
    return f"{folder / place}:{function}" if colon and place.endswith(".py") else kind
