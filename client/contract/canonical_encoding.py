"""One encoding of any agreed value as bytes, for digests that two machines compute alike.

Every value starts with a tag of its type and the length of what follows, so that no two values
share an encoding: 1, 1.0, True and "1" differ, as do a field's absence and None. A frozen dataclass
is its class's name and every field by name: a field that is added later is encoded without anybody
thinking of it, and one of a type that this file does not know is an error, never left out.

    >>> encode_canonical({"b": (1, 2.0), "a": None}) == encode_canonical({"a": None, "b": [1, 2.0]})
    True
    >>> encode_canonical(1) == encode_canonical(1.0)
    False
    >>> encode_canonical(object())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: Expected a value with a canonical encoding, got object: teach ...
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any


def encode_canonical(value: Any) -> bytes:
    """The bytes of `value`, an injective function of it (lists and tuples are the same).

    Raises:
        TypeError: a type that has no encoding here, or a key that is no text.
        ValueError: NaN, which equals nothing.
    """
    tag, content = _encode_content(value)
    return tag + len(content).to_bytes(8, "big") + content


@cache
def _encode_field_names(kind: type[Any]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """The encodings of a dataclass's name and of its fields' names."""
    names = tuple((each.name, encode_canonical(each.name)) for each in fields(kind))
    return encode_canonical(kind.__name__), names


def _encode_content(value: Any) -> tuple[bytes, bytes]:  # noqa: PLR0911 - one a type of JSON
    if value is None:
        return b"n", b""
    # Before int and str, of which they are instances.
    if isinstance(value, bool):
        return b"b", bytes([value])
    if isinstance(value, Enum):
        return b"e", encode_canonical(type(value).__name__) + encode_canonical(value.value)
    if type(value) is int:
        return b"i", str(value).encode()
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("Expected a number in an agreed value, got NaN.")
        return b"f", struct.pack(">d", float(value))
    if type(value) is str:
        return b"s", value.encode("utf-8", errors="surrogatepass")
    if type(value) is bytes:
        return b"y", value
    if type(value) in (tuple, list):
        return b"l", b"".join(encode_canonical(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        called, names = _encode_field_names(type(value))
        parts = (encoded + encode_canonical(getattr(value, name)) for name, encoded in names)
        return b"d", called + b"".join(parts)
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise TypeError("Expected texts as keys in an agreed value, got others.")
        return b"m", b"".join(
            encode_canonical(key) + encode_canonical(value[key]) for key in sorted(value)
        )
    raise TypeError(
        f"Expected a value with a canonical encoding, got {type(value).__name__}: teach "
        "parley.client.contract.canonical_encoding."
    )
