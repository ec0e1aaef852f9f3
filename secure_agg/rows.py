"""Mappings by party whose values are made when they are asked for: memory for one, not for all.

>>> import numpy as np
>>> rows = MadeRows(range(3), lambda i: np.full(2, i, "u4"), shape=(3, 2), dtype=np.dtype("u4"))
>>> rows[2].tolist(), len(rows), 3 in rows
([2, 2], 3, False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from parley.secure_agg.encoding import Ring

_Value = TypeVar("_Value")


class Made(Mapping[int, _Value]):
    """What `make` gives for each of `parties`."""

    def __init__(self, parties: Collection[int], make: Callable[[int], _Value]) -> None:
        self._parties, self._make = parties, make

    def __getitem__(self, party: int) -> _Value:
        if party not in self._parties:
            raise KeyError(party)
        return self._make(party)

    def __contains__(self, party: object) -> bool:  # a mapping's would make the value
        return party in self._parties

    def __iter__(self) -> Iterator[int]:
        return iter(self._parties)

    def __len__(self) -> int:
        return len(self._parties)


class MadeRows(Made[Ring]):
    """`[B, d]` ring elements, a row made when its party sends it."""

    ndim = 2

    def __init__(
        self,
        parties: Collection[int],
        make: Callable[[int], Ring],
        *,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
    ) -> None:
        super().__init__(parties, make)
        self.shape, self.dtype = shape, dtype
