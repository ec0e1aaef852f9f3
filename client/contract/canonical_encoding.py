"""A canonical encoding of agreed values as bytes, so that two machines compute equal digests.

Every value starts with a tag of its type and the length of its content, so no two values share an
encoding. For example, 1, 1.0, True and "1" differ, and so do a missing field and None. A frozen
dataclass is encoded as its class name and all fields by name. A field that is added later is
therefore encoded automatically. A value of an unknown type is an error and is never left out.

    >>> encode_canonical({"b": (1, 2.0), "a": None}) == encode_canonical({"a": None, "b": [1, 2.0]})
    True
    >>> encode_canonical(1) == encode_canonical(1.0)
    False
    >>> encode_canonical(object())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: Expected a value with a canonical encoding, got object: add ...
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
    """Return the bytes of `value`, an injective function of it. A list equals a tuple.

    Raises:
        TypeError: a type that has no encoding here, or a key that is not a text.
        ValueError: NaN, which equals no value.
    """
    tag, content = _encode_content(value)
    return tag + len(content).to_bytes(8, "big") + content


@cache
def _encode_field_names(kind: type[Any]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Return the encodings of a dataclass's name and of its fields' names."""
    names = tuple((each.name, encode_canonical(each.name)) for each in fields(kind))
    return encode_canonical(kind.__name__), names


def _encode_content(value: Any) -> tuple[bytes, bytes]:  # noqa: PLR0911 - one a type of JSON
    if value is None:
        return b"n", b""
    # bool and Enum come before int and str, because they are instances of those.
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
        entries = (encode_canonical(key) + encode_canonical(value[key]) for key in sorted(value))
        return b"m", b"".join(entries)
    expected = "Expected a value with a canonical encoding"
    why = "add its type to parley.client.contract.canonical_encoding"
    raise TypeError(f"{expected}, got {type(value).__name__}: {why}.")
