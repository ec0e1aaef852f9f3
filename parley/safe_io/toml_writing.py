"""TOML for files that people read: the library writes every key and value, we only the comments.

A file that carries comments cannot be written whole by the library. Of its text only brackets,
commas and equals signs are ours; whatever came from outside goes through `format_toml_key`,
`format_toml_value` or `format_toml_comment`, and can therefore hold neither the end of a line nor
that of a string.

    >>> format_toml_comment("two" + chr(10) + "lines")
    '# two lines'
    >>> print(f"{format_toml_key('a b')} = {format_toml_value('x]')}")
    "a b" = "x]"
    >>> format_toml_value({"kind": "numeric", "range": [0, 1.5], "odd": True})
    '{ kind = "numeric", range = [0, 1.5], odd = true }'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tomli_w

from parley.safe_io.printable_text import escape_unprintable


def format_toml_key(name: str) -> str:
    """A key, quoted where TOML needs it."""
    return escape_unprintable(tomli_w.dumps({name: 0}).removesuffix(" = 0\n"), toml=True)


def format_toml_value(value: object) -> str:
    """A value on one line: a string, number or boolean, or a list or table of them."""
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{format_toml_key(k)} = {format_toml_value(v)}" for k, v in value.items())
            + " }"
        )
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(format_toml_value(item) for item in value) + "]"
    text = tomli_w.dumps({"v": value}).removeprefix("v = ").removesuffix("\n")
    return escape_unprintable(text, toml=True)


def format_toml_comment(text: str) -> str:
    """A line of comment; whatever would end the line, or cannot be shown, becomes a space."""
    return "# " + "".join(c if c.isprintable() else " " for c in text)
