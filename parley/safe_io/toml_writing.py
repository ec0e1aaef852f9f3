"""Write TOML for people: a library formats every key and value, Parley only adds comments.

The library cannot write a file with comments. Parley's own code writes only brackets, commas and
equals signs. All external text goes through `format_toml_key`, `format_toml_value` or
`format_toml_comment`. So it can contain neither the end of a line nor the end of a string.

    >>> format_toml_comment("two" + chr(10) + "lines")
    '# two lines'
    >>> print(f"{format_toml_key('a b')} = {format_toml_value('x]')}")
    "a b" = "x]"
    >>> format_toml_value({"kind": "numeric", "range": [0, 1.5], "odd": True})
    '{ kind = "numeric", range = [0, 1.5], odd = true }'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import tomli_w

from parley.safe_io.printable_text import escape_unprintable


@lru_cache(maxsize=1024)
def format_toml_key(name: str) -> str:
    """Return a key, quoted if TOML requires it."""
    return escape_unprintable(tomli_w.dumps({name: 0}).removesuffix(" = 0\n"), toml=True)


def format_toml_value(value: object) -> str:
    """Return a value on one line: a string, number or boolean, or a list or table of them."""
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{format_toml_key(k)} = {format_toml_value(v)}" for k, v in value.items())
            + " }"
        )
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(format_toml_value(item) for item in value) + "]"
    return _format_text(value) if isinstance(value, str) else _format_scalar(value)


def _format_scalar(value: object) -> str:
    text = tomli_w.dumps({"v": value}).removeprefix("v = ").removesuffix("\n")
    return escape_unprintable(text, toml=True)


_format_text = lru_cache(maxsize=1024)(_format_scalar)
"""Format a text. A schema of many columns repeats a few of them."""


def format_toml_comment(text: str) -> str:
    """Return a comment line. A character that would end the line or cannot be shown becomes a
    space.
    """
    return "# " + "".join(c if c.isprintable() else " " for c in text)
