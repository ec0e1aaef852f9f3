"""What a terminal, a log or a file may have of a text that came from elsewhere.

Nothing of Unicode's category C (control, format, surrogate, private, unassigned), and no separator
of lines or paragraphs, reaches a stream of a process of ours (`guard_streams`): it could move the
cursor, set colours, link, turn letters around or show nothing. In files of TOML and JSON such a
character is written as its number (`escape_unprintable`), so that it is read again as it was.

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
    """Without what would move, hide or turn around what stands on a screen; lines stay lines."""
    return "\n".join(map(to_one_line, text.split("\n")))


def to_one_line(text: str) -> str:
    """The same of a text that is one line: what ends a line is no part of it either."""
    if text.isprintable():
        return text
    return "".join("?" if _is_unprintable(each) else each for each in text)


def escape_unprintable(text: str, *, toml: bool = False) -> str:
    """JSON, or TOML, with every such character of its strings as its number."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    number = _escape_in_toml if toml else _escape_in_json
    return "".join(
        number(each) if _is_unprintable(each) and each != "\n" else each for each in text
    )


def _is_unprintable(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind[0] == "C" or kind in ("Zl", "Zp")


def _escape_in_toml(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _escape_in_json(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")  # two numbers beyond the first plane
    return "".join(f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2))


def guard_streams() -> None:
    """Has all that this process says on standard output and error go through `to_printable`.

    What is shown by rich goes past it: `parley.terminal.terminal_screen` is the one way to that.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _PrintableStream):
            setattr(sys, name, _PrintableStream(stream))


class _PrintableStream:
    """A text stream whose text is printable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Where rich writes that asks for this one: its sequences are its own.
        self.rich_proxied_file = getattr(stream, "rich_proxied_file", stream)

    def write(self, text: str) -> int:
        """Writes it, as it may be shown."""
        return self._stream.write(to_printable(text) if isinstance(text, str) else text)

    def writelines(self, lines: Any) -> None:
        """Writes them one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
