"""How large a Poisson batch may be, and how large it is at most."""

from __future__ import annotations

import math
from typing import Final

MAX_RECORDS: Final = 10**6
"""Of one sum: up to here it is exact."""


def _bound_batch_size(records: float, rate: float, deviations: float) -> int:
    mean = rate * records
    return max(1, math.ceil(mean if rate >= 1 else mean + deviations * math.sqrt(mean)))


def compute_padded_width(records: int, rate: float) -> int:
    """Return ⌈qn + 6√(qn)⌉ rows, at most n: batches are larger once in 10⁸ steps or less often.

    >>> compute_padded_width(600, 0.05), compute_padded_width(600, 1.0)
    (63, 600)
    """
    return min(records, _bound_batch_size(records, rate, 6))
