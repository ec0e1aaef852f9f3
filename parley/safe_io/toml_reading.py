"""Parse all TOML that Parley reads, with one kind of error for any fault.

The text may be untrusted. The parser's time and memory grow with the square of a dotted key's
length. It also follows nested values by recursion, and makes integers of any length. So this module
measures a text before parsing it: its size, and the dots of its longest key, in one pass over its
strings and comments. Parley's own files nest only a few levels deep.

    >>> parse_toml("a.b = [1, 2]")
    {'a': {'b': [1, 2]}}
    >>> parse_toml("a = " + "[" * 5000)
    Traceback (most recent call last):
    tomllib.TOMLDecodeError: values nested at most 20 deep, got deeper ones
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from parley.safe_io.file_reading import read_text

MAX_TOML_BYTES = 1 << 23
"""Maximum characters of a text, and bytes of a file."""
_DEEPEST, _LONGEST_INTEGER = 20, 1 << 256
_TOO_DEEP = f"values nested at most {_DEEPEST} deep, got deeper ones"

# As in the parser, each of these begins a string or comment outside of others. One without an end
# extends to the end of its line or of the text, so no position is scanned twice.
_STRINGS_AND_COMMENTS = re.compile(
    r'"""(?:[^\\"]|\\[\s\S]|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5})?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
)
_BETWEEN_KEYS = re.compile(r"[\n=,\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables in `text`.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML, or it is larger or nested deeper than the limits.
    """
    if len(text) > MAX_TOML_BYTES:
        raise tomllib.TOMLDecodeError(f"at most {MAX_TOML_BYTES} characters, got {len(text)}")
    # The remaining dots are in keys, or one in a number.
    bare = _STRINGS_AND_COMMENTS.sub("", text)
    if any(part.count(".") >= _DEEPEST for part in _BETWEEN_KEYS.split(bare)):
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    try:
        parsed = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # an integer with too many digits for Python
        raise tomllib.TOMLDecodeError(str(error)) from None
    level: list[Any] = [parsed]
    for _ in range(_DEEPEST):
        level = [inner for value in level for inner in _list_children(value)]
    if level:
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    return parsed


def load_toml(path: Path) -> dict[str, Any]:
    """Return the tables in a file."""
    return parse_toml(read_text(path, max_bytes=MAX_TOML_BYTES))


def _list_children(value: Any) -> list[Any]:
    if isinstance(value, int) and abs(value) >= _LONGEST_INTEGER:
        raise tomllib.TOMLDecodeError("integers of at most 256 bits, got a longer one")
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
