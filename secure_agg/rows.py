"""Vectors of B parties that are made one at a time: memory for one of them, not for all.

>>> import numpy as np
>>> rows = MadeRows(shape=(3, 2), dtype=np.dtype(np.uint32), make=lambda i: np.full(2, i, "u4"))
>>> rows[2].tolist(), len(rows)
([2, 2], 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.secure_agg.encoding import Ring


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeRows(Mapping[int, Ring]):
    """`[B, d]` ring elements, a row made when its party sends it.

    Attributes:
        shape: B and d.
        dtype: of the ring.
        make: a party's row.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    make: Callable[[int], Ring]

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    def __getitem__(self, party: int) -> Ring:
        return self.make(party)

    def __contains__(self, party: object) -> bool:  # a mapping's own would make the row
        return party in range(self.shape[0])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.shape[0]))

    def __len__(self) -> int:
        return self.shape[0]
