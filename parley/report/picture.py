"""Grey pictures for a page: a grid of images as one PNG within the page itself."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray


def png(grey: NDArray[np.uint8]) -> bytes:
    """`[h, w]` as a PNG of 8-bit grey.

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    high, wide = grey.shape
    lines = np.concatenate([np.zeros((high, 1), np.uint8), grey], axis=1)  # no filter
    parts = (
        (b"IHDR", struct.pack(">2I5B", wide, high, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def grid(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`[K, n, h, w]` images as one, a row for each class, grey lines between them."""
    count, each, high, wide = images.shape
    whole = np.full((count * (high + 1) - 1, each * (wide + 1) - 1), 128, np.uint8)
    for row, column in np.ndindex(count, each):
        at = row * (high + 1), column * (wide + 1)
        whole[at[0] : at[0] + high, at[1] : at[1] + wide] = images[row, column]
    return whole


def grid_picture(images: NDArray[np.uint8], *, said: str) -> Markup:
    """`[K, n, h, w]` images, a row for each class, as an element of a page.

    Args:
        images: from 0, black, to 255.
        said: what they are, for those who do not see them.
    """
    whole = grid(images)
    source = base64.b64encode(png(whole)).decode()
    return Markup('<img class="grid" width="{}" height="{}" alt="{}" src="{}">').format(
        whole.shape[1] * 2, whole.shape[0] * 2, said, f"data:image/png;base64,{source}"
    )
