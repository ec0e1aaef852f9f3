"""Mappings by party whose values are made when they are asked for: memory for one, not for all.

>>> squares = Made(range(3), lambda i: i * i)
>>> squares[2], len(squares), 3 in squares
(4, 3, False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

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
