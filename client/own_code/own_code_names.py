"""Names of your own code in jobs, policies and messages: 'file.py:function' or 'module:function'.

>>> get_public_name("/home/ann/nets/net.py:small")
'net.py:small'
"""

from __future__ import annotations

from pathlib import Path


def get_public_name(kind: str) -> str:
    """Return the name between server and parties: of a file, without its folder."""
    place, colon, function = kind.rpartition(":")
    return f"{Path(place).name}:{function}" if colon and place.endswith(".py") else kind


def is_own_code(kind: str) -> bool:
    """Return whether a name has the form `file.py:NAME` or `module:NAME` of the user's own code."""
    place, colon, attribute = kind.rpartition(":")
    return bool(colon and place) and attribute.isidentifier()


def resolve_path(kind: str, folder: Path) -> str:
    """Return the name with its file's path resolved relative to `folder`."""
    place, colon, function = kind.rpartition(":")
    return f"{folder / place}:{function}" if colon and place.endswith(".py") else kind
