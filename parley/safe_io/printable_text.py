"""Make untrusted text safe to print to a terminal, a log or a file.

`guard_streams` keeps characters of Unicode's category C (control, format, surrogate, private,
unassigned) and line and paragraph separators out of this process's streams. Such a character could
move the cursor, set colours, add a link, reverse text or hide it. In TOML and JSON files it is
written as its number (`escape_unprintable`), so that reading restores it.

>>> to_printable("a\\x1b[2Jb\\u202ec\\n"), to_one_line("✓ done\\n✓ signed")
('a?[2Jb?c\\n', '✓ done?✓ signed')
>>> escape_unprintable('"a\\u200bb"'), escape_unprintable('"\\U000e0041"')
('"a\\\\u200bb"', '"\\\\udb40\\\\udc41"')
"""

from __future__ import annotations

import sys
import unicodedata
from typing import Any, TextIO


def to_printable(text: str) -> str:
    """Replace characters that could move, hide or reverse text on a screen; keep line breaks."""
    return "\n".join(map(to_one_line, text.split("\n")))


def to_one_line(text: str) -> str:
    """Replace the same characters in a text that is one line, and line breaks, too."""
    if text.isprintable():
        return text
    return "".join("?" if _is_unprintable(each) else each for each in text)


def escape_unprintable(text: str, *, toml: bool = False) -> str:
    """Return JSON or TOML in which such characters of strings are written as their numbers."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    number = _escape_in_toml if toml else _escape_in_json
    return text.translate(
        {ord(each): number(each) for each in set(text) if _is_unprintable(each) and each != "\n"}
    )


def _is_unprintable(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind[0] == "C" or kind in ("Zl", "Zp")


def _escape_in_toml(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _escape_in_json(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")  # a surrogate pair beyond the first plane
    return "".join(f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2))


def guard_streams() -> None:
    """Make standard output and error pass all text of this process through `to_printable`.

    Output by rich bypasses this. `parley.terminal.rich_output` is the only way to it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _PrintableStream):
            setattr(sys, name, _PrintableStream(stream))


class _PrintableStream:
    """A text stream that writes only printable text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # rich looks for this attribute and writes its own escape sequences there.
        self.rich_proxied_file = getattr(stream, "rich_proxied_file", stream)

    def write(self, text: str) -> int:
        """Write text after making it printable."""
        return self._stream.write(to_printable(text) if isinstance(text, str) else text)

    def writelines(self, lines: Any) -> None:
        """Write lines one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
